"""The pictures of the paper as matplotlib figures; matplotlib comes with the extra `plots`.

Colours are those of Okabe and Ito (2008), which people with colour-blindness tell apart; shape or line style always says the
same as the colour. Every function returns a new `Figure` that no interactive backend knows; save it with `figure.savefig`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedgt.errors import SpecError
from fedgt.extras import how_to_install
from fedgt.reproduction.paper import PaperMetric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINES = ("-", "--", ":", "-.")

_METRICS: Mapping[PaperMetric, str] = {
    "top1_accuracy": "top-1 accuracy (%)",
    "balanced_accuracy": "balanced accuracy (%)",
    "attack_accuracy": "attack accuracy (%)",
}


def rounds_grid_figure(
    panels: Mapping[int, Mapping[str, npt.NDArray[np.floating]]],
    *,
    metric: PaperMetric,
    test_round: int | None = None,
    title: str = "",
) -> "Figure":
    """A metric over communication rounds, one panel for each n_m: the paper's layout of a row of its curves.

    Args:
        panels: n_m -> method -> float[runs, rounds], the metric in percent.
        metric: Names the axis.
        test_round: Where the mark goes.
        title: Above the panels.

    Raises:
        SpecError: If there is nothing to draw, or matplotlib is not installed.
    """
    if not any(panels.values()):
        raise SpecError("no run was given; there is nothing to draw")
    figure, grid = _blank((4.2 * len(panels), 3.6), columns=len(panels))
    for axes, (malicious, methods) in zip(np.atleast_1d(grid), panels.items(), strict=True):
        for k, (method, values) in enumerate(methods.items()):
            x, mean = 1 + np.arange(values.shape[1]), values.mean(axis=0)
            colour = COLOURS[k % len(COLOURS)]
            every = max(1, len(x) // 10)
            marker = _MARKERS[k % 7]
            axes.plot(x, mean, _LINES[k % 4], color=colour, marker=marker, markevery=every, markersize=4, label=method)
        if test_round is not None:
            axes.axvline(test_round, color="black", linestyle=(0, (2, 2)), linewidth=1, label="test round")
        axes.set_title(f"n_m = {malicious}", fontsize=10)
        _rounds_axis(axes)
        if metric != "attack_accuracy":
            axes.set_ylim(bottom=None, auto=True)
            axes.autoscale(axis="y")
    first = np.atleast_1d(grid)[0]
    first.set_ylabel(_METRICS[metric])
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=5, loc="outside lower center")
    figure.suptitle(title, fontsize=11)
    return figure


def malicious_figure(
    values: Mapping[str, Mapping[int, Sequence[float]]],
    *,
    label: str,
    paper: Mapping[str, Mapping[int, tuple[float, float]]] | None = None,
    title: str = "",
) -> "Figure":
    """A final figure of merit over the number of malicious clients, ours (filled) beside the paper's (hollow, if given).

    Args:
        values: Method -> n_m -> one value per seed.
        label: Name and unit of the value.
        paper: Method -> n_m -> (mean, standard deviation) as printed in the paper's tables.
        title: Above the axes.

    Raises:
        SpecError: If there is nothing to draw, or matplotlib is not installed.
    """
    if not any(counts for counts in values.values()):
        raise SpecError("no value was given; there is nothing to draw")
    figure, axes = _blank((5.6, 3.6))
    for k, (method, counts) in enumerate(values.items()):
        colour, shift = COLOURS[k % len(COLOURS)], 0.07 * (k - (len(values) - 1) / 2)
        x = np.array(sorted(counts), dtype=np.float64)
        mean, spread = (np.array([f(counts[int(n)]) for n in x]) for f in (np.mean, np.std))
        style: dict[str, Any] = {"color": colour, "marker": _MARKERS[k % 7], "markersize": 5, "capsize": 2}
        axes.errorbar(x + shift, mean, spread, linestyle=_LINES[k % 4], label=method, **style)
        printed = (paper or {}).get(method, {})
        if printed:
            ours = np.array(sorted(printed), dtype=np.float64)
            mean, spread = np.array([printed[int(n)] for n in ours]).T
            axes.errorbar(
                ours + shift + 0.03, mean, spread, ls="none", mfc="none", label=f"{method}, paper", alpha=0.7, **style
            )
    axes.set_xlabel("malicious clients, n_m")
    axes.set_ylabel(label)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    return figure


def _blank(size: tuple[float, float], *, columns: int = 1) -> tuple["Figure", Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SpecError(f"figures need matplotlib: {how_to_install('plots')}") from error
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns)


def _rounds_axis(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
