"""Attackers who do not all do the same: who is missed, who is wronged, and who reads as cleared. MNIST, 15 clients.

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/different_attacks.py [seeds] [first seed]

The test is in round 1, with up to two more while somebody is undecided. Rows go to docs/results/different_attacks.csv
(resumable). The seeds chose no constant.
"""

import csv
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from fedgt.experiment import ExperimentSpec, make_spec
from fedgt.experiment.batch import run_batch
from fedgt.record import RunResult
from fedgt.train import load

RESULTS: Final = Path(__file__).parent.parent / "docs" / "results" / "different_attacks.csv"
PAIRS: Final = ((1, 7), (0, 6), (2, 5), (4, 9), (8, 3))
COLUMNS: Final = (
    "spec_hash",
    "seed",
    "case",
    "malicious_clients",
    "missed_clients",
    "falsely_excluded_clients",
    "attackers_cleared",
    "tests",
    "decision",
    "more",
)
Row = dict[str, str]


def flips(*pairs: tuple[int, int]) -> dict[str, Any]:
    """Attackers with a pair of labels each."""
    each = [{"kind": "label-flip", "source": s, "target": t, "malicious": 1} for s, t in pairs]
    return {**each[0], "further": each[1:]}


def mixed(flippers: int, others: int) -> dict[str, Any]:
    """Some flip 1 -> 7, and others permute all labels."""
    further = [{"kind": "label-permutation", "malicious": others}]
    return {"kind": "label-flip", "source": 1, "target": 7, "malicious": flippers, "further": further}


CASES: Final[Mapping[tuple[str, int], Mapping[str, Any]]] = {
    ("nobody", 0): {"malicious": 0},
    ("one flip", 3): {"source": 1, "target": 7, "malicious": 3},
    ("one flip", 5): {"source": 1, "target": 7, "malicious": 5},
    ("flip and permutation", 3): mixed(2, 1),
    ("flip and permutation", 5): mixed(3, 2),
    ("a pair of labels each", 3): flips(*PAIRS[:3]),
    ("a pair of labels each", 5): flips(*PAIRS),
}


def specs(seed: int) -> list[tuple[str, ExperimentSpec]]:
    """All runs of a seed, with the name of their case."""
    common = {"seed": seed, "privacy": 4, "data": {"name": "mnist"}, "federation": {"clients": 15, "rounds": 3}}
    common["screen"] = {"schedule": "first"}  # the evidence of one test
    return [(name, make_spec({**common, "attack": attack})) for (name, _), attack in CASES.items()]


def row_of(name: str, spec: ExperimentSpec, result: RunResult) -> Row:
    """One run as a row."""
    cleared = sum(client.truth == "malicious" and client.verdict == "keep" for client in result.clients)
    said = "" if result.test is None else result.test.reason
    values = (
        spec.digest,
        spec.seed,
        name,
        spec.attack.everybody,
        result.missed,
        result.falsely_excluded,
        cleared,
        len(result.tests),
        "" if result.test is None else result.test.status,
        int("more is going on" in said),
    )
    return {column: str(value) for column, value in zip(COLUMNS, values, strict=True)}


def rows(seeds: range) -> list[Row]:
    """All rows of the seeds; what is missing is run and appended."""
    known: dict[str, Row] = {}
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            known = {row["spec_hash"]: row for row in csv.DictReader(file)}
    data, new = load("mnist"), not RESULTS.exists()
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        for seed in seeds:
            missing = [(name, spec) for name, spec in specs(seed) if spec.digest not in known]
            results = run_batch([spec for _, spec in missing], data=data, masks=False)
            for (name, spec), result in zip(missing, results, strict=True):
                known[spec.digest] = row_of(name, spec, result)
                writer.writerow(known[spec.digest])
            file.flush()
    return [known[spec.digest] for seed in seeds for _, spec in specs(seed)]


def main() -> None:
    """Run what is missing and print the rates as Markdown."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 900
    found = rows(range(first, first + count))
    print("| case | attackers | runs | missed | honest excluded | attackers cleared | tests | more is going on |")
    print("|---|---|---|---|---|---|---|---|")
    for name, malicious in CASES:
        cell = [row for row in found if (row["case"], row["malicious_clients"]) == (name, str(malicious))]
        figures = (f"{np.mean([int(row[column]) for row in cell]):.2f}" for column in (*COLUMNS[4:8], "more"))
        print(f"| {name} | {malicious} | {len(cell)} | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()
