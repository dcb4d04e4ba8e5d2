"""The paper's tables beside ours: reads rows that `fedgt reproduce` wrote, never runs anything."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from fedgt.errors import SpecError
from fedgt.reproduction.paper import (
    DATASETS,
    EXPERIMENTS,
    PAPER_SCALE,
    PRIVATE_IN_PAPER,
    VARIANTS,
    Cell,
    Dataset,
    Experiment,
    PaperMetric,
    PaperValue,
    best_private,
    cells,
    default_seeds,
    metrics_of,
    paper_value,
    planned,
)
from fedgt.reproduction.sweep import Row, read_rows
from fedgt.types import FloatArray

Verdict = Literal["within", "outside", "same", "better", "worse", "win", "tie", "loss", ""]
"""Where we train the paper's model (MNIST): `within` or `outside` its mean +- 2 standard deviations (what defends nothing,
the oracle, RFA); `same`, `better` or `worse` than its value (its own methods). Ours: `win`, `tie` or `loss` against the best
private method of the paper, on MNIST by its printed value, elsewhere by our own runs of its methods, whichever is
best. By Welch's test at 5 %; empty where there is nothing to compare with."""

_SIGNIFICANT = 0.05
_PRINTED_STEP = 0.01  # the paper prints two digits
_PRINTED = ("targeted", "untargeted")
_OUR_VERDICTS: tuple[Verdict, Verdict, Verdict] = ("loss", "tie", "win")
_THEIR_VERDICTS: tuple[Verdict, Verdict, Verdict] = ("worse", "same", "better")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    """A value to compare with.

    Attributes:
        mean: In percent.
        deviation: Standard deviation, in percent; None for a single run.
        runs: How many runs it is of.
    """

    mean: float
    deviation: float | None
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A value of a table.

    Attributes:
        experiment: Which table.
        dataset: The data set.
        cell: Attack, n_m and variant.
        metric: `attack_accuracy`, `top1_accuracy` or `balanced_accuracy`.
        runs: How many of ours.
        mean: Of ours, in percent.
        deviation: Standard deviation of ours (n - 1), in percent; NaN for a single run.
        half_width: Half of the 95 % interval of our mean (Student), in percent; NaN for a single run.
        paper: What the paper prints for this method, with its own model.
        against: Whose value the verdict is about; empty for the paper's value of this method.
        reference: That value.
        verdict: See `Verdict`.
        missed: Attackers kept, mean a run; None without a test round.
        false: Honest clients excluded, mean a run; None without a test round.
        privacy: The smallest r of our runs.
    """

    experiment: Experiment
    dataset: Dataset
    cell: Cell
    metric: str
    runs: int
    mean: float
    deviation: float
    half_width: float
    paper: PaperValue | None
    against: str
    reference: "_Reference | None"
    verdict: Verdict
    missed: float | None
    false: float | None
    privacy: int | None


def comparisons(folder: Path) -> Iterator[Comparison]:
    """All values that the rows of a folder give.

    Args:
        folder: Where `fedgt reproduce` wrote `mnist.csv` and the like.

    Raises:
        SpecError: If there is no such file, or a file is not of these columns.
    """
    found = [dataset for dataset in DATASETS if (folder / f"{dataset}.csv").exists()]
    if not found:
        raise SpecError(
            f"{folder} holds no {', '.join(f'{one}.csv' for one in DATASETS)}: `fedgt reproduce targeted --out {folder}` "
            "makes one"
        )
    for dataset in found:
        rows = {row["spec_hash"]: row for row in read_rows(folder / f"{dataset}.csv")}
        for experiment in EXPERIMENTS:
            if experiment == "thirty-clients" and dataset.startswith("isic2019"):
                continue
            yield from _of_experiment(experiment, dataset, rows)


def rows_of(cell: Cell, dataset: Dataset, *, experiment: Experiment, rows: Mapping[str, Row]) -> list[Row]:
    """The rows of a cell, by the hashes of its specifications; runs that ended early have no final accuracy."""
    seeds = 1 + max((int(row["seed"]) for row in rows.values()), default=-1)
    wanted = planned(cell, dataset, experiment=experiment, seeds=seeds)
    found = [rows[one.spec.digest] for one in wanted if one.spec.digest in rows]
    return [row for row in found if row["status"] == "finished"]


def _of_experiment(experiment: Experiment, dataset: Dataset, rows: Mapping[str, Row]) -> Iterator[Comparison]:
    numbers = sorted({int(row["malicious_clients"]) for row in rows.values()})
    if not numbers:
        return
    found: dict[Cell, list[Row]] = {}
    for cell in cells(experiment, dataset, malicious=numbers):
        if members := rows_of(cell, dataset, experiment=experiment, rows=rows):
            found[cell] = members
    for cell in found:
        for metric in metrics_of(dataset, cell.attack):
            yield _compared(experiment, dataset, cell, metric, found)


def _compared(
    experiment: Experiment, dataset: Dataset, cell: Cell, metric: PaperMetric, found: Mapping[Cell, Sequence[Row]]
) -> Comparison:
    rows = found[cell]
    values = _values(rows, metric)
    paper = paper_value(dataset, cell, metric) if experiment in _PRINTED else None
    against, reference = _reference(experiment, dataset, cell, metric, found)
    tested = [row for row in rows if row["missed_clients"]]
    return Comparison(
        experiment=experiment,
        dataset=dataset,
        cell=cell,
        metric=metric,
        runs=len(rows),
        mean=float(values.mean()),
        deviation=float(values.std(ddof=1)) if len(values) > 1 else float("nan"),
        half_width=_half_width(values),
        paper=paper,
        against=against,
        reference=reference,
        verdict="" if reference is None else _verdict(cell, metric, values, reference),
        missed=float(np.mean([float(row["missed_clients"]) for row in tested])) if tested else None,
        false=float(np.mean([float(row["falsely_excluded_clients"]) for row in tested])) if tested else None,
        privacy=min((int(row["privacy_strict"]) for row in rows if row["privacy_strict"]), default=None),
    )


def _values(rows: Sequence[Row], metric: str) -> FloatArray:
    return np.array([float(row[f"{metric}_percent"]) for row in rows])


def _reference(
    experiment: Experiment, dataset: Dataset, cell: Cell, metric: PaperMetric, found: Mapping[Cell, Sequence[Row]]
) -> tuple[str, _Reference | None]:
    """Whose value decides the verdict, and that value."""
    variant = VARIANTS[cell.variant]
    printed = experiment in _PRINTED and dataset in PAPER_SCALE
    if not variant.ours:
        paper = paper_value(dataset, cell, metric) if printed else None
        return "", None if paper is None else _printed(dataset, paper)
    if printed:
        best = best_private(dataset, cell, metric)
        return ("", None) if best is None else (best[0], _printed(dataset, best[1]))
    sign = 1 if metric == "attack_accuracy" else -1
    candidates = {
        name: _values(rows, metric)
        for name in VARIANTS
        if VARIANTS[name].paper in PRIVATE_IN_PAPER
        and (rows := found.get(Cell(attack=cell.attack, malicious=cell.malicious, variant=name)))
    }
    if not candidates:
        return "", None
    name = min(candidates, key=lambda one: sign * float(candidates[one].mean()))
    values = candidates[name]
    deviation = float(values.std(ddof=1)) if len(values) > 1 else None
    return f"our {name}", _Reference(mean=float(values.mean()), deviation=deviation, runs=len(values))


def _printed(dataset: Dataset, value: PaperValue) -> _Reference:
    return _Reference(mean=value.mean, deviation=value.deviation, runs=default_seeds(dataset))


def _half_width(values: FloatArray) -> float:
    if len(values) < 2:
        return float("nan")
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def _verdict(cell: Cell, metric: PaperMetric, values: FloatArray, reference: _Reference) -> Verdict:
    if reference.deviation is None or len(values) < 2:
        return ""
    difference = float(values.mean()) - reference.mean
    if cell.variant in ("no-defence", "oracle", "rfa"):
        return "within" if abs(difference) <= 2 * reference.deviation + _PRINTED_STEP / 2 else "outside"
    if metric == "attack_accuracy":
        difference = -difference
    worse, equal, better = _OUR_VERDICTS if VARIANTS[cell.variant].ours else _THEIR_VERDICTS
    if not _differ(values, reference):
        return equal
    return better if difference > 0 else worse


def _differ(values: FloatArray, reference: _Reference) -> bool:
    """Welch's test from means and deviations."""
    deviation = float(values.std(ddof=1))
    if deviation == 0 and not reference.deviation:
        return float(values.mean()) != reference.mean
    from scipy.stats import ttest_ind_from_stats

    found = ttest_ind_from_stats(
        float(values.mean()),
        deviation,
        len(values),
        reference.mean,
        reference.deviation,
        reference.runs,
        equal_var=False,
    )
    return bool(found.pvalue < _SIGNIFICANT)


def markdown(found: Sequence[Comparison]) -> str:
    """The comparisons as Markdown tables, one for each experiment, data set and attack, and a count of verdicts."""
    blocks: dict[tuple[str, str, str], list[Comparison]] = {}
    for one in found:
        blocks.setdefault((one.experiment, one.dataset, one.cell.attack), []).append(one)
    parts = []
    for (experiment, dataset, attack), members in blocks.items():
        parts.append(f"### {experiment}, {dataset}, {attack}\n")
        parts.append(
            "| n_m | method | metric | ours, % | 95 % interval | paper, % | verdict | missed / false | r | runs |"
        )
        parts.append("|---|---|---|---|---|---|---|---|---|---|")
        parts += [_line(one) for one in members]
        parts.append("")
        parts.append(_counted(members) + "\n")
    return "\n".join(parts)


def _line(one: Comparison) -> str:
    name = one.cell.variant
    paper = ""
    if one.paper is not None:
        spread = "" if one.paper.deviation is None else f" ± {one.paper.deviation:.2f}"
        paper = f"{one.paper.mean:.2f}{spread}"
    against = f"{one.against}: {one.reference.mean:.2f}" if one.against and one.reference is not None else ""
    wrong = "" if one.missed is None else f"{one.missed:.2f} / {one.false:.2f}"
    interval = "" if np.isnan(one.half_width) else f"{one.mean - one.half_width:.2f} to {one.mean + one.half_width:.2f}"
    spread = "" if np.isnan(one.deviation) else f" ± {one.deviation:.2f}"
    metric = one.metric.replace("_accuracy", "").replace("_", " ")
    privacy = "" if one.privacy is None else one.privacy
    return (
        f"| {one.cell.malicious} | {name} | {metric} | {one.mean:.2f}{spread} | {interval} | {paper} | {one.verdict} "
        f"| {against} | {wrong} | {privacy} | {one.runs} |"
    )


def _counted(members: Sequence[Comparison]) -> str:
    counts: dict[str, dict[str, int]] = {}
    for one in members:
        if one.verdict:
            group = counts.setdefault(one.cell.variant, {})
            group[one.verdict] = group.get(one.verdict, 0) + 1
    said = [f"{name}: " + ", ".join(f"{n} {verdict}" for verdict, n in one.items()) for name, one in counts.items()]
    return "; ".join(said) + "." if said else ""
