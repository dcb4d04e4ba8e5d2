"""What the default does about every attack and failure that a specification can name: MNIST, 15 clients.

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/attack_rates.py [seeds] [first seed]

Rows go to docs/results/attacks.csv (resumable). Every attack is run without a defence, with the default, and with an oracle
that knows the attackers. A broken site is honest: leaving it out is counted by itself, neither as right nor as wrong.
"""

import csv
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

from fedgt.experiment import ExperimentSpec, make_spec
from fedgt.experiment.batch import run_batch
from fedgt.record import RunResult
from fedgt.train import load

RESULTS: Final = Path(__file__).parent.parent / "docs" / "results" / "attacks.csv"
CLIENTS: Final = 15
COUNTS: Final = (3, 5)
METHODS: Final = ("no-defence", "fedgt", "oracle")
ATTACKS: Final[Mapping[str, Mapping[str, Any]]] = {
    "label-flip": {"kind": "label-flip"},
    "label-permutation": {"kind": "label-permutation"},
    "random-labels": {"kind": "random-labels"},
    "flip, boosted x5": {"kind": "label-flip", "boost": 5.0},
    "backdoor": {"kind": "backdoor"},
    "backdoor, boosted x5": {"kind": "backdoor", "boost": 5.0},
    "distributed backdoor": {"kind": "distributed-backdoor"},
    "sign flip": {"kind": "sign-flip"},
    "sign flip x5": {"kind": "sign-flip", "strength": 5.0},
    "Gaussian noise x5": {"kind": "gaussian"},
    "ALIE, z = 1.5": {"kind": "alie"},
    "IPM, 0.5": {"kind": "ipm"},
    "IPM, 2": {"kind": "ipm", "strength": 2.0},
    "Min-Max": {"kind": "min-max"},
    "free rider": {"kind": "free-rider"},
    "flip from round 4": {"kind": "label-flip", "first_round": 4},
}
FAILURES: Final = ("inverted-images", "shuffled-labels", "old-model")
COLUMNS: Final = (
    "spec_hash",
    "seed",
    "case",
    "malicious_clients",
    "faulty_clients",
    "method",
    "top1_accuracy_percent",
    "attack_accuracy_percent",
    "missed_clients",
    "falsely_excluded_clients",
    "faulty_excluded_clients",
    "tests",
    "decision",
    "status",
)
Row = dict[str, str]
ONE_TEST: Final = {"schedule": "first"}
"""The evidence of one test is measured."""


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and sections of everything that is tried."""
    for name, attack in ATTACKS.items():
        for count in COUNTS:
            yield name, {"attack": {"source": 1, "target": 7, **attack, "malicious": count}}
    yield (
        "flip and permutation",
        {
            "attack": {
                "source": 1,
                "target": 7,
                "malicious": 3,
                "further": [{"kind": "label-permutation", "malicious": 2}],
            }
        },
    )
    for kind in FAILURES:
        yield f"broken site: {kind}", {"failures": [{"kind": kind}]}


def specs(seed: int) -> Iterator[tuple[str, ExperimentSpec]]:
    """All runs of a seed, with the name of their case."""
    for name, sections in cases():
        for method in METHODS:
            if method != "oracle" or "attack" in sections:
                common = {"seed": seed, "privacy": 4, "method": method, "data": {"name": "mnist"}, "screen": ONE_TEST}
                yield name, make_spec({**common, "federation": {"clients": CLIENTS, "rounds": 10}, **sections})


def row_of(name: str, spec: ExperimentSpec, result: RunResult) -> Row:
    """One run as a row."""
    last = result.rounds[-1]
    faulty = [client for client in result.clients if client.truth == "faulty"]
    values = (
        spec.digest,
        spec.seed,
        name,
        spec.attack.everybody,
        len(faulty),
        spec.method,
        f"{100 * (last.top1_accuracy or 0):.3f}",
        "" if last.attack_accuracy is None or not spec.attack.malicious else f"{100 * last.attack_accuracy:.3f}",
        result.missed,
        result.falsely_excluded,
        sum(client.excluded for client in faulty),
        len(result.tests),
        "" if result.test is None else result.test.status,
        result.status,
    )
    return {column: str(value) for column, value in zip(COLUMNS, values, strict=True)}


def rows(seeds: range) -> list[Row]:
    """All rows of the seeds; what is missing is run and appended."""
    known: dict[str, Row] = {}
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            known = {row["spec_hash"]: row for row in csv.DictReader(file)}
    wanted = [pair for seed in seeds for pair in specs(seed)]
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        data = load("mnist")
        missing = [(name, spec) for name, spec in wanted if spec.digest not in known]
        # The runs of a case train together; those of all cases would need gigabytes.
        for (name, _, _), group in groupby(missing, key=lambda one: (one[0], one[1].seed, one[1].attack.everybody)):
            together = [spec for _, spec in group]
            for spec, result in zip(together, run_batch(together, data=data, masks=False), strict=True):
                known[spec.digest] = row_of(name, spec, result)
                writer.writerow(known[spec.digest])
            file.flush()
    return [known[spec.digest] for _, spec in wanted]


def main() -> None:
    """Run what is missing and print the rates as Markdown."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found = rows(range(first, first + count))
    print(
        "| case | attackers | missed | honest excluded | broken sites excluded | top-1 % without, with, oracle | attack % |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, sections in cases():
        malicious = str(make_spec({"privacy": 4, **sections}).attack.everybody)
        cell = [row for row in found if row["case"] == name and row["malicious_clients"] == malicious]

        def mean(column: str, method: str, digits: int = 2, cell: list[Row] = cell) -> str:
            values = [float(row[column]) for row in cell if row["method"] == method and row[column]]
            return f"{np.mean(values):.{digits}f}" if values else "-"

        top1, success = (
            ", ".join(mean(column, method, 1) for method in METHODS)
            for column in ("top1_accuracy_percent", "attack_accuracy_percent")
        )
        broken = mean("faulty_excluded_clients", "fedgt") if "failures" in sections else "-"
        print(
            f"| {name} | {malicious} | {mean('missed_clients', 'fedgt')} | {mean('falsely_excluded_clients', 'fedgt')} | "
            f"{broken} | {top1} | {success} |"
        )


if __name__ == "__main__":
    main()
