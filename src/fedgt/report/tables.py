"""The paper's tables beside ours: reads rows that `fedgt reproduce` wrote, never runs anything."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from fedgt.errors import SpecError
from fedgt.experiment.paper import (
    DATASETS,
    EXPERIMENTS,
    VARIANTS,
    Cell,
    Dataset,
    Experiment,
    PaperValue,
    best_private,
    cells,
    default_seeds,
    metrics_of,
    paper_value,
    planned,
)
from fedgt.experiment.sweep import Row, read_rows
from fedgt.types import FloatArray

Verdict = Literal["within", "outside", "same", "better", "worse", "win", "tie", "loss", ""]
"""`within` or `outside` the paper's mean +- 2 standard deviations (what defends nothing, the oracle, RFA); `same`, `better`
or `worse` than the paper's value (its own methods) and `win`, `tie` or `loss` against its best private method (ours) by
Welch's test at 5 %; empty where the paper has no value."""

_SIGNIFICANT = 0.05


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
        against: Whose value ours is compared with.
        paper: That value.
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
    against: str
    paper: PaperValue | None
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
            if experiment == "thirty-clients" and dataset == "isic2019":
                continue
            yield from _of_experiment(experiment, dataset, rows)


def rows_of(cell: Cell, dataset: Dataset, *, experiment: Experiment, rows: Mapping[str, Row]) -> list[Row]:
    """The rows of a cell, by the hashes of its specifications."""
    seeds = 1 + max((int(row["seed"]) for row in rows.values()), default=-1)
    wanted = planned(cell, dataset, experiment=experiment, seeds=seeds)
    return [rows[one.spec.digest] for one in wanted if one.spec.digest in rows]


def _of_experiment(experiment: Experiment, dataset: Dataset, rows: Mapping[str, Row]) -> Iterator[Comparison]:
    numbers = sorted({int(row["malicious_clients"]) for row in rows.values()})
    if not numbers:
        return
    for cell in cells(experiment, dataset, malicious=numbers):
        found = rows_of(cell, dataset, experiment=experiment, rows=rows)
        if not found:
            continue
        for metric in metrics_of(dataset, cell.attack):
            yield _compared(experiment, dataset, cell, metric, found)


def _compared(experiment: Experiment, dataset: Dataset, cell: Cell, metric: str, rows: Sequence[Row]) -> Comparison:
    values = np.array([float(row[f"{metric}_percent"]) for row in rows])
    deviation = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
    printed = experiment in ("targeted", "untargeted")
    ours = VARIANTS[cell.variant].ours
    paper, against = (paper_value(dataset, cell, metric) if printed else None), VARIANTS[cell.variant].paper or ""
    if ours and printed and (best := best_private(dataset, cell, metric)) is not None:
        against, paper = best
    tested = [row for row in rows if row["missed_clients"]]
    return Comparison(
        experiment=experiment,
        dataset=dataset,
        cell=cell,
        metric=metric,
        runs=len(rows),
        mean=float(values.mean()),
        deviation=deviation,
        half_width=_half_width(values),
        against=against if paper is not None else "",
        paper=paper,
        verdict="" if paper is None else _verdict(cell, metric, values, paper, runs=default_seeds(dataset)),
        missed=float(np.mean([float(row["missed_clients"]) for row in tested])) if tested else None,
        false=float(np.mean([float(row["falsely_excluded_clients"]) for row in tested])) if tested else None,
        privacy=min((int(row["privacy_strict"]) for row in rows if row["privacy_strict"]), default=None),
    )


def _half_width(values: FloatArray) -> float:
    if len(values) < 2:
        return float("nan")
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def _verdict(cell: Cell, metric: str, values: FloatArray, paper: PaperValue, *, runs: int) -> Verdict:
    if paper.deviation is None or len(values) < 2:
        return ""
    difference = float(values.mean()) - paper.mean
    if cell.variant in ("no-defence", "oracle", "rfa"):
        return "within" if abs(difference) <= 2 * paper.deviation + 0.005 else "outside"  # printed to .01
    if metric == "attack_accuracy":
        difference = -difference
    equal: tuple[Verdict, Verdict, Verdict] = (
        ("loss", "tie", "win") if VARIANTS[cell.variant].ours else ("worse", "same", "better")
    )
    if not _differ(values, paper, runs=runs):
        return equal[1]
    return equal[2] if difference > 0 else equal[0]


def _differ(values: FloatArray, paper: PaperValue, *, runs: int) -> bool:
    """Welch's test from the paper's mean and deviation."""
    deviation = float(values.std(ddof=1))
    if deviation == 0 and not paper.deviation:
        return float(values.mean()) != paper.mean
    from scipy.stats import ttest_ind_from_stats

    found = ttest_ind_from_stats(
        float(values.mean()), deviation, len(values), paper.mean, paper.deviation, runs, equal_var=False
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
        whose = "" if one.against == VARIANTS[name].paper else f" ({one.against})"
        paper = f"{one.paper.mean:.2f}{spread}{whose}"
    wrong = "" if one.missed is None else f"{one.missed:.2f} / {one.false:.2f}"
    interval = "" if np.isnan(one.half_width) else f"{one.mean - one.half_width:.2f} to {one.mean + one.half_width:.2f}"
    spread = "" if np.isnan(one.deviation) else f" ± {one.deviation:.2f}"
    metric = one.metric.replace("_accuracy", "").replace("_", " ")
    privacy = "" if one.privacy is None else one.privacy
    return (
        f"| {one.cell.malicious} | {name} | {metric} | {one.mean:.2f}{spread} | {interval} | {paper} | {one.verdict} "
        f"| {wrong} | {privacy} | {one.runs} |"
    )


def _counted(members: Sequence[Comparison]) -> str:
    counts: dict[str, dict[str, int]] = {}
    for one in members:
        if one.verdict:
            group = counts.setdefault(one.cell.variant, {})
            group[one.verdict] = group.get(one.verdict, 0) + 1
    said = [f"{name}: " + ", ".join(f"{n} {verdict}" for verdict, n in one.items()) for name, one in counts.items()]
    return "; ".join(said) + "." if said else "The paper prints no values for this."
