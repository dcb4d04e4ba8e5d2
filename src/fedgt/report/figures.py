"""The pictures of the report and of the paper as matplotlib figures; matplotlib comes with the extra `plots`.

Colours are those of Okabe and Ito (2008), which people with colour-blindness tell apart; shape or line style always says the
same as the colour. Every function returns a new `Figure` that no interactive backend knows; save it with `figure.savefig`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from fedgt.errors import SpecError
from fedgt.extras import how_to_install

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINES = ("-", "--", ":", "-.")
_SEATS = {"positive": "#D55E00", "negative": "#0072B2", "erased": "#8A8A8A", None: "#000000"}

Metric = Literal["top1_accuracy", "balanced_accuracy", "attack_accuracy", "loss"]
_METRICS = {
    "top1_accuracy": "top-1 accuracy (%)",
    "balanced_accuracy": "balanced accuracy (%)",
    "attack_accuracy": "attack accuracy (%)",
    "loss": "loss",
}


def assignment_figure(report: Mapping[str, Any]) -> "Figure":
    """Clients x groups, coloured by the outcome of the group; the most suspicious clients on top.

    Args:
        report: `report.json`, as `fedgt.report.audit` gives it.

    Raises:
        SpecError: If no group test was made, or matplotlib is not installed.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.experiment import make_spec, run_into
        >>> from fedgt.report import audit
        >>> from fedgt.report.figures import assignment_figure
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_into(make_spec({"privacy": 4, "federation": {"rounds": 1}}), Path(folder))
        ...     figure = assignment_figure(audit(Path(folder)))
        >>> len(figure.axes)
        1
    """
    test = _test_of(report)
    rows, groups = report["verdicts"], len(test["groups"])
    figure, axes = _blank((1.6 + 0.32 * groups, 0.8 + 0.24 * len(rows)))
    for outcome, colour in _SEATS.items():
        seats = [
            (seat["group"], y) for y, row in enumerate(rows) for seat in row["groups"] if seat["outcome"] == outcome
        ]
        if seats:
            x, y = np.array(seats).T
            face = colour if outcome == "positive" else "none"
            style = ":" if outcome == "erased" else "-"
            axes.scatter(
                x, y, marker="s", s=70, facecolors=face, edgecolors=colour, linestyles=style, label=outcome or "member"
            )
    axes.set_yticks(range(len(rows)), [_plain(row["client"]) for row in rows])
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row["excluded"] else "normal")
    axes.set_xticks(range(groups), [str(one["group"]) for one in test["groups"]])
    axes.set_xlim(-0.7, groups - 0.3)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("group")
    axes.set_title("excluded clients in bold", fontsize=9, loc="left")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def evidence_figure(report: Mapping[str, Any]) -> "Figure":
    """The groups in the plane of their evidence: utility (or loss) against projection, one shape a cluster, + for positive.

    Raises:
        SpecError: If fewer than two groups have both, no test was made, or matplotlib is not installed.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.experiment import make_spec, run_into
        >>> from fedgt.report import audit
        >>> from fedgt.report.figures import evidence_figure
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_into(make_spec({"privacy": 4, "federation": {"rounds": 1}}), Path(folder))
        ...     figure = evidence_figure(audit(Path(folder)))
        >>> len(figure.axes)
        1
    """
    test = _test_of(report)
    placed = report["figures"]["scatter"]
    if placed is None:
        raise SpecError("this test has no such evidence for two groups or more; there is nothing to draw")
    figure, axes = _blank((5.6, 3.8))
    for number in placed["groups"]:
        group = test["groups"][number]
        cluster = max(group["cluster"] or 0, 0)
        place = (group["projection"], group[placed["vertical"]])
        axes.plot(
            *place,
            marker=_MARKERS[cluster % len(_MARKERS)],
            color=COLOURS[cluster % len(COLOURS)],
            markersize=8,
            linestyle="none",
        )
        sign = " +" if group["outcome"] == "positive" else ""
        axes.annotate(f"{group['group']}{sign}", place, textcoords="offset points", xytext=(7, 4), fontsize=8)
    axes.set_xlabel("projection on the strongest line")
    axes.set_ylabel(placed["vertical"])
    axes.grid(alpha=0.3)
    return figure


def curves_figure(report: Mapping[str, Any]) -> "Figure":
    """Accuracies (and the loss, where recorded) over rounds, the test round marked.

    Raises:
        SpecError: If the run has no round, or matplotlib is not installed.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.experiment import make_spec, run_into
        >>> from fedgt.report import audit
        >>> from fedgt.report.figures import curves_figure
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_into(make_spec({"privacy": 4, "federation": {"rounds": 2}}), Path(folder))
        ...     figure = curves_figure(audit(Path(folder)))
        >>> len(figure.axes) > 0
        True
    """
    drawn = report["figures"]["curves"]
    if drawn is None:
        raise SpecError("the run has no finished round; there is nothing to draw")
    figure, panels = _blank((6.0, 3.4 * len(drawn["panels"])), rows=len(drawn["panels"]))
    for panel, axes in zip(drawn["panels"], np.atleast_1d(panels), strict=True):
        factor = 100.0 if panel["unit"] == "percent" else 1.0
        for k, series in enumerate(panel["series"]):
            x, y = np.array(series["points"], dtype=np.float64).T
            name = _METRICS[series["name"]].removesuffix(" (%)")
            axes.plot(x, factor * y, _LINES[k % 4], color=COLOURS[k], marker=_MARKERS[k], markersize=4, label=name)
        for k, test_round in enumerate(drawn["test_rounds"]):
            _mark(axes, test_round, named=k == 0)
        axes.set_ylabel("%" if panel["unit"] == "percent" else "loss")
        _rounds_axis(axes)
        axes.legend(fontsize=8)
    return figure


def rounds_grid_figure(
    panels: Mapping[int, Mapping[str, npt.NDArray[np.floating]]],
    *,
    metric: Metric,
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

    Examples:
        >>> import numpy as np
        >>> from fedgt.report.figures import rounds_grid_figure
        >>> runs = {3: {"graded": np.array([[84.2, 86.9, 88.0], [84.1, 87.0, 88.1]])}}  # two runs of three rounds
        >>> len(rounds_grid_figure(runs, metric="top1_accuracy", test_round=1).axes)
        1
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
        _mark(axes, test_round)
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

    Examples:
        >>> from fedgt.report.figures import malicious_figure
        >>> values = {"graded": {1: [90.4, 90.3], 3: [90.3, 90.3]}}
        >>> len(malicious_figure(values, label="top-1 accuracy (%)").axes)
        1
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


def _test_of(report: Mapping[str, Any]) -> Mapping[str, Any]:
    test: Mapping[str, Any] | None = report["test"]
    if test is None:
        raise SpecError("no group test was made in this run; there is nothing to draw")
    return test


def _blank(size: tuple[float, float], *, rows: int = 1, columns: int = 1) -> tuple["Figure", Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SpecError(f"figures need matplotlib: {how_to_install('plots')}") from error
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns)


def _rounds_axis(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)


def _mark(axes: "Axes", test_round: int | None, *, named: bool = True) -> None:
    if test_round is not None:
        label = "test round" if named else None
        axes.axvline(test_round, color="black", linestyle=(0, (2, 2)), linewidth=1, label=label)


def _plain(text: str) -> str:
    """A client id as it is: `$` would start a formula."""
    return text.replace("$", r"\$")
