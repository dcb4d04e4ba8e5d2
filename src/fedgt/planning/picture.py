"""Designs in one picture: wrong clients against secure sums, or what each further sum finds and discloses."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedgt.errors import SpecError
from fedgt.extras import how_to_install
from fedgt.planning.rows_frontier import FrontierRow
from fedgt.planning.search import SearchResult
from fedgt.text_file import writing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".svg", ".png", ".pdf")


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be drawn, before a search has run for it.

    Raises:
        SpecError: If the file has another ending than `.svg`, `.png` or `.pdf`, or matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise SpecError(f"picture {path}: the name must end with one of {', '.join(FORMATS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise SpecError(f"plots need matplotlib: {how_to_install('plots')}") from error


def draw_tradeoff(path: Path, result: SearchResult) -> None:
    """Draw the Pareto set: expected wrong clients over groups, one line of the best designs for each r.

    The numbers at the points are n_m^max (binary evidence). The recommended design has a ring. The file has no date
    in it, so the same result gives the same file.

    Raises:
        SpecError: As `check_picture`.
        OSError: If the file cannot be written.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.planning import Demands, draw_tradeoff, search
        >>> found = search(Demands(clients=8, privacy=2, max_malicious=1), effort=0.1, draws=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     draw_tradeoff(Path(folder) / "designs.svg", found)
        ...     [path.name for path in Path(folder).iterdir()]
        ['designs.svg']
    """
    demands = result.demands
    with _axes_saved_to(path) as axes:
        for r in sorted({one.figures.r for one in result.front}):
            points = [one.figures for one in result.front if one.figures.r == r]
            best: dict[int, float] = {}
            for one in points:
                best[one.groups] = min(one.expected_mean, best.get(one.groups, one.expected_mean))
            (line,) = axes.plot(list(best), list(best.values()), label=f"r = {r}")
            places = ([one.groups for one in points], [one.expected_mean for one in points])
            axes.plot(*places, marker="o", markersize=4, linestyle="none", color=line.get_color())
            for one in points:
                if one.max_malicious is not None:
                    axes.annotate(
                        str(one.max_malicious),
                        (one.groups, one.expected_mean),
                        textcoords="offset points",
                        xytext=(4, 4),
                        fontsize=7,
                        color=line.get_color(),
                    )
        chosen = result.recommended.figures
        axes.plot(
            [chosen.groups], [chosen.expected_mean], marker="o", markersize=12, fillstyle="none", color="black", lw=0
        )
        axes.set_xlabel("groups = secure sums of a test round")
        axes.set_ylabel(f"expected wrong clients, mean of n_m = 0..{demands.max_malicious}")
        axes.set_title(
            f"{demands.clients} clients, privacy {demands.privacy}, up to {demands.max_malicious} malicious, "
            f"{demands.evidence} evidence",
            fontsize=10,
        )


def draw_frontier(path: Path, lines: Sequence[FrontierRow], *, title: str, chosen: str | None = None) -> None:
    """Draw what each further sum finds, and what it discloses, as `fedgt design` lists it.

    Args:
        path: The file; its ending says what kind. The same lines give the same file.
        lines: What `frontier` returns; at least one.
        title: Stands above.
        chosen: The name of the design that has a ring.

    Raises:
        SpecError: As `check_picture`.
        OSError: If the file cannot be written.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.planning import draw_frontier, frontier
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     draw_frontier(Path(folder) / "sums.svg", frontier(8, 2, groups=4), title="8 clients, r = 2")
        ...     [path.name for path in Path(folder).iterdir()]
        ['sums.svg']
    """
    sums = [one.design.groups for one in lines]
    with _axes_saved_to(path) as axes:
        axes.plot(sums, [one.power.found for one in lines], marker="o", markersize=4, label="attackers found")
        axes.plot(sums, [one.share.mean for one in lines], marker="s", markersize=4, ls="--", label="disclosed, mean")
        axes.plot(sums, [one.share.largest for one in lines], marker="^", markersize=4, ls=":", label="disclosed, most")
        for one in lines:
            if one.design.name == chosen:
                place = [one.design.groups], [one.power.found]
                axes.plot(*place, marker="o", markersize=12, fillstyle="none", color="black", lw=0, label="default")
        axes.set_xlabel("secure sums of a test round")
        axes.set_ylabel("share")
        axes.set_ylim(top=1.02)
        axes.set_title(title, fontsize=10)


@contextmanager
def _axes_saved_to(path: Path) -> "Iterator[Axes]":
    """Axes to draw on; when the block ends they are in the file, without a date, from 0 on and with a legend."""
    check_picture(path)
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with mpl.rc_context({"svg.hashsalt": "fedgt", "svg.fonttype": "none"}):
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        yield axes
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        metadata = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}
        kind = path.suffix.lower()[1:]
        with writing(path):
            figure.savefig(path, format=kind, metadata=metadata[kind])
