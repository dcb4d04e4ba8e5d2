"""Run many specifications on all cores and keep one CSV row for each; rows that are there already are not run again.

A library for the scripts beside it, not a benchmark itself.
"""

import csv
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path

from fedgt.experiment import ExperimentSpec, RunResult, run
from fedgt.train import ImageData, load

COLUMNS = (
    "spec_hash",
    "version",
    "dataset",
    "attack",
    "malicious_clients",
    "method",
    "screen",
    "strategy",
    "design",
    "after_test",
    "seed",
    "top1_accuracy_percent",
    "attack_accuracy_percent",
    "missed_clients",
    "falsely_excluded_clients",
    "wrong_outcomes",
    "groups",
    "estimated_malicious",
    "decision",
    "privacy_strict",
    "status",
    "top1_accuracy_by_round_percent",
    "attack_accuracy_by_round_percent",
    "cpu_seconds",
)
Row = dict[str, str]


@lru_cache(maxsize=1)
def _data(name: str) -> ImageData:
    return load(name)


def _row(spec: ExperimentSpec) -> Row:
    result = run(spec, data=_data(spec.data.name))
    last, test = result.rounds[-1], result.test
    wrong = "" if test is None or not test.outcomes else str(_wrong(result))
    values = (
        spec.digest,
        result.version,
        spec.data.name,
        spec.attack.kind,
        spec.attack.malicious,
        spec.method,
        spec.screen.kind if spec.method == "fedgt" else "",
        (test.strategy if test is not None else spec.decode.strategy) if spec.method == "fedgt" else "",
        "" if test is None else test.design,
        spec.decode.after_test if spec.method == "fedgt" else "",
        spec.seed,
        f"{100 * last.top1_accuracy:.4f}",
        "" if last.attack_accuracy is None else f"{100 * last.attack_accuracy:.4f}",
        result.missed,
        result.falsely_excluded,
        wrong,
        "" if test is None else len(test.groups),
        "" if test is None else test.estimated_malicious,
        "" if test is None else test.status,
        result.privacy.strict,
        result.status,
        " ".join(f"{100 * one.top1_accuracy:.3f}" for one in result.rounds),
        " ".join(f"{100 * one.attack_accuracy:.3f}" for one in result.rounds if one.attack_accuracy is not None),
        f"{result.cpu_seconds:.3f}",
    )
    return {name: str(value) for name, value in zip(COLUMNS, values, strict=True)}


def _wrong(result: RunResult) -> int:
    test = result.test
    if test is None or test.truth is None:
        return 0
    return sum(1 for said, true in zip(test.outcomes, test.truth, strict=True) if said not in (true, "?"))


def sweep(specs: Iterable[ExperimentSpec], path: Path, *, workers: int = 2) -> list[Row]:
    """All rows of the specifications, in their order; new ones are appended to the file as they are finished.

    Args:
        specs: What to run.
        path: The CSV file.
        workers: Processes.
    """
    wanted = list(specs)
    known = {row["spec_hash"]: row for row in _read(path)}
    missing = [spec for spec in wanted if spec.digest not in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file, ProcessPoolExecutor(workers) as pool:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        for number, row in enumerate(pool.map(_row, missing), start=1):
            writer.writerow(row)
            file.flush()
            known[row["spec_hash"]] = row
            print(f"\r{number} of {len(missing)} runs", end="", file=sys.stderr, flush=True)
    if missing:
        print(file=sys.stderr)
    return [known[spec.digest] for spec in wanted]


def _read(path: Path) -> Iterator[Row]:
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            yield from csv.DictReader(file)
