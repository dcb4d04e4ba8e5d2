"""The tables of `robust_rules.py`: Markdown, beside the rows of `fedgt reproduce`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from fedgt.reproduction.comparison import rows_of
from fedgt.reproduction.paper import Cell
from fedgt.reproduction.sweep import read_rows
from rule_rows import ATTACKS, METHODS, RULES, SCORES, Dataset, Experiment, Method, Row, spec_of

REPRODUCED: Final = ("no-defence", "oracle", "rfa", "graded")
_HEADS: Final = {
    Method(name="median"): "median",
    Method(name="trimmed-mean", told="n_m"): "trimmed mean, f = n_m",
    Method(name="trimmed-mean", told="nothing"): "trimmed mean, f = {nothing}",
    Method(name="multi-krum", told="n_m"): "Multi-Krum, f = n_m",
    Method(name="multi-krum", told="most"): "Multi-Krum, f = {most}",
}


def tables(rows: Sequence[Row], folder: Path, *, dataset: Dataset, clients: int = 15) -> str:
    """The rows as Markdown, mean and standard deviation over the seeds, beside those of `fedgt reproduce` in the folder.

    The seeds are those of the rows. Without a file of `fedgt reproduce`, no defence is our own mean, and its other methods
    have no column.
    """
    name = spec_of(dataset, "targeted", 0, "no-defence", 0).data.name
    mine = [row for row in rows if row["dataset"] == name]
    seeds = {row["seed"] for row in mine}
    reproduced = {row["spec_hash"]: row for row in read_rows(folder / f"{dataset}.csv") if row["seed"] in seeds}
    told = {"nothing": (clients - 1) // 2, "most": (clients - 3) // 2}
    parts = []
    for experiment, attack in ATTACKS.items():
        of_attack = [row for row in mine if row["attack"] == attack]
        numbers = sorted({int(row["malicious_clients"]) for row in of_attack})

        def theirs(number: int, variant: str, experiment: Experiment = experiment) -> list[Row]:
            wanted = "no-defence" if variant == "oracle" and not number else variant
            cell = Cell(attack=ATTACKS[experiment], malicious=number, variant=wanted)
            return rows_of(cell, dataset, experiment=experiment, rows=reproduced)

        for metric in ("attack_accuracy", "top1_accuracy") if experiment == "targeted" else ("top1_accuracy",):
            column = f"{metric}_percent"
            columns = {
                variant: [_spread(theirs(number, variant), column) for number in numbers] for variant in REPRODUCED
            }
            if not any(columns["no-defence"]):
                columns["no-defence"] = [_spread(_of(of_attack, number, RULES[0]), column) for number in numbers]
            columns |= {
                head.format(**told): [_spread(_of(of_attack, number, method), column) for number in numbers]
                for method, head in _HEADS.items()
            }
            parts += _table(f"{dataset}, {experiment}: {metric.replace('_', ' ')}, %", numbers, columns)
        columns = {
            f"{method.name}, {method.utility}": [_ranked(_of(of_attack, number, method)) for number in numbers]
            for method in METHODS
            if method.name in SCORES
        }
        columns |= {variant: [_wrong(theirs(number, variant)) for number in numbers] for variant in ("delta", "graded")}
        parts += _table(
            f"{dataset}, {experiment}: AUC of the attackers; missed / falsely excluded, clients a run", numbers, columns
        )
    refused = sorted({row["reason"] for row in mine if row["status"] == "refused"})
    parts.append(f"{len(seeds)} seeds. Not run: {'; '.join(refused) or 'nothing'}.")
    return "\n".join(parts)


def _table(title: str, numbers: Sequence[int], columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Lines of a table by n_m; a column without a value is left out."""
    shown = {head: cells for head, cells in columns.items() if any(cells)}
    lines = [f"### {title}\n", f"| n_m | {' | '.join(shown)} |", f"|{'---|' * (len(shown) + 1)}"]
    lines += [
        f"| {number} | {' | '.join(cells[place] for cells in shown.values())} |" for place, number in enumerate(numbers)
    ]
    return [*lines, ""]


def _ranked(rows: Sequence[Row]) -> str:
    """Nothing without attackers: a score is told how many there are, and excludes nobody."""
    found = [float(row["attackers_auc"]) for row in rows if row["attackers_auc"]]
    return f"{np.mean(found):.2f}; {_wrong(rows)}" if found else ""


def _of(rows: Iterable[Row], number: int, method: Method) -> list[Row]:
    return [
        row
        for row in rows
        if int(row["malicious_clients"]) == number
        and (row["method"], row["utility"]) == (method.name, method.utility)
        and (method.name in SCORES or row["told"] == method.told)
    ]


def _spread(rows: Sequence[Row], column: str) -> str:
    values = np.array([float(row[column]) for row in rows if row[column]])
    if not len(values):
        return ""
    return f"{values.mean():.2f} ± {values.std(ddof=1):.2f}" if len(values) > 1 else f"{values.mean():.2f}"


def _wrong(rows: Sequence[Row]) -> str:
    columns = ("missed_clients", "falsely_excluded_clients")
    if not rows:
        return ""
    return " / ".join(f"{np.mean([float(row[column] or 0) for row in rows]):.2f}" for column in columns)
