"""The pictures of a reproduction: the paper's curves over rounds, and final values over the number of attackers."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedgt.reproduction.comparison import rows_of
from fedgt.reproduction.figures import malicious_figure, rounds_grid_figure
from fedgt.reproduction.paper import Cell, Dataset, Experiment, cells, metrics_of, paper_value, planned
from fedgt.reproduction.sweep import Row, read_rows
from fedgt.text_file import writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN = ("no-defence", "oracle", "rfa", "count", "delta", "graded")
"""The variants in pictures; all of them are in the tables."""


def draw(folder: Path, dataset: Dataset, experiment: Experiment) -> list[Path]:
    """Draw what the rows of a data set give, as SVG files beside them.

    Returns:
        The files; none where no row belongs to the experiment.

    Raises:
        SpecError: If matplotlib is not installed.
    """
    rows = {row["spec_hash"]: row for row in read_rows(folder / f"{dataset}.csv")}
    numbers = sorted({int(row["malicious_clients"]) for row in rows.values()})
    if not numbers:
        return []
    found: dict[Cell, list[Row]] = {}
    for cell in cells(experiment, dataset, malicious=numbers):
        if members := rows_of(cell, dataset, experiment=experiment, rows=rows):
            found[cell] = members
    written = []
    for attack in dict.fromkeys(cell.attack for cell in found):
        for name, figure in _figures(dataset, experiment, attack, found):
            path = folder / f"{dataset}-{experiment}-{attack}-{name}.svg"
            # Without a date and with fixed ids the same rows give the same file.
            import matplotlib

            with writing(path), matplotlib.rc_context({"svg.hashsalt": "fedgt"}):
                figure.savefig(path, metadata={"Date": None})
            written.append(path)
    return written


def _figures(
    dataset: Dataset, experiment: Experiment, attack: str, found: Mapping[Cell, Sequence[Row]]
) -> Iterator[tuple[str, "Figure"]]:
    # In one order, so that a method has one colour in all pictures.
    members = {
        cell: rows for name in DRAWN for cell, rows in found.items() if cell.attack == attack and cell.variant == name
    }
    if not members:
        return
    title = f"{dataset}, {experiment}, {attack}"
    spec = planned(next(iter(members)), dataset, experiment=experiment, seeds=1)[0].spec
    for metric in metrics_of(dataset, attack):
        panels: dict[int, dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]] = {}
        for cell, rows in members.items():
            if cell.malicious:
                curves = [[float(one) for one in row[f"{metric}_by_round_percent"].split()] for row in rows]
                shortest = min(len(one) for one in curves)
                panels.setdefault(cell.malicious, {})[cell.variant] = np.array([one[:shortest] for one in curves])
        if panels:
            yield (
                f"{metric}-rounds",
                rounds_grid_figure(panels, metric=metric, test_round=spec.screen.round, title=title),
            )
        values: dict[str, dict[int, list[float]]] = {}
        printed: dict[str, dict[int, tuple[float, float]]] = {}
        for cell, rows in members.items():
            values.setdefault(cell.variant, {})[cell.malicious] = [float(row[f"{metric}_percent"]) for row in rows]
            paper = paper_value(dataset, cell, metric) if experiment != "thirty-clients" else None
            if paper is not None:
                printed.setdefault(cell.variant, {})[cell.malicious] = (paper.mean, paper.deviation or 0.0)
        label = f"{metric.replace('_', ' ')} (%)"
        yield f"{metric}-malicious", malicious_figure(values, label=label, paper=printed, title=title)
