"""Small tables, a model of one's own: who is missed, who is wronged, and is a posterior right? scikit-learn's tables.

    python benchmarks/tables.py [seeds] [first seed]

Breast cancer, wine and iris, with about 30, 9 and 8 rows a client: 15 clients, logistic regression, the default settings of
`FederationRun`, 3 rounds over the real protocol. Clients are of one population, or own shares of the classes by Dirichlet
1.0. Attackers move all labels to the next class. Paired seeds, which chose no constant. Rows go to docs/results/tables.csv
(resumable): the last posterior of each client, who attacks, and who is left out.
"""

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.special import softmax
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from threadpoolctl import threadpool_limits

from calibration import interval
from fedgt import FederationRun, TrainedModel, Validation
from fedgt.types import FloatArray, IntArray, Parameters

RESULTS: Final = Path(__file__).parent.parent / "docs" / "results" / "tables.csv"
CLIENTS: Final = 15
TABLES: Final[dict[str, tuple[Callable[..., Any], int]]] = {
    "breast cancer": (load_breast_cancer, 120),
    "wine": (load_wine, 45),
    "iris": (load_iris, 30),
}
"""How a table is loaded, and how many of its rows the server holds back."""

PARTITIONS: Final = ("iid", "dirichlet-1.0")
ATTACKERS: Final = (0, 1, 3, 5)
SURE: Final = 0.98
COLUMNS: Final = ("table", "partition", "attackers", "seed", "posterior", "malicious", "left_out", "status", "tests")
Row = dict[str, str]


class Site:
    """A client with its rows of the table."""

    def __init__(self, inputs: FloatArray, labels: IntArray, classes: int) -> None:
        """Its rows: float64[rows, features] and int64[rows], of so many classes."""
        self.inputs, self.targets = inputs, np.eye(classes)[labels]

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        """Fifty steps down the gradient of all its rows."""
        weight = parameters["weight"].copy()
        for _ in range(50):
            weight -= 0.05 * (softmax(self.inputs @ weight.T, axis=1) - self.targets).T @ self.inputs / len(self.inputs)
        return TrainedModel(parameters={"weight": weight}, samples=len(self.inputs))


def parts(labels: IntArray, partition: str, rng: np.random.Generator) -> list[IntArray]:
    """Which rows each client owns: at least one."""
    if partition == "iid":
        return np.array_split(rng.permutation(len(labels)), CLIENTS)
    while True:
        owned: list[list[int]] = [[] for _ in range(CLIENTS)]
        for label in np.unique(labels):
            rows = rng.permutation(np.flatnonzero(labels == label))
            ends = (np.cumsum(rng.dirichlet(np.ones(CLIENTS))) * len(rows)).astype(int)[:-1]
            for one, more in zip(owned, np.split(rows, ends), strict=True):
                one.extend(more.tolist())
        if all(owned):
            return [np.array(one) for one in owned]


def held(table: str, partition: str, attackers: int, seed: int) -> Row:
    """One run as a row."""
    rng = np.random.default_rng([seed, list(TABLES).index(table)])
    load, back = TABLES[table]
    inputs, labels = load(return_X_y=True)
    inputs = np.hstack([(inputs - inputs.mean(axis=0)) / inputs.std(axis=0), np.ones((len(inputs), 1))])
    classes, order = int(labels.max()) + 1, rng.permutation(len(labels))
    inputs, labels = inputs[order], labels[order]
    own = parts(labels[back:], partition, rng)
    malicious = rng.permutation(CLIENTS)[:attackers]
    sites = {}
    for client, rows in enumerate(own):
        told = labels[back:][rows]
        poisoned = (told + 1) % classes if client in malicious else told
        sites[f"site-{client:02}"] = Site(inputs[back:][rows], poisoned, classes)
    validation = Validation(
        labels=labels[:back], logits=lambda p: inputs[:back] @ p["weight"].T, inputs=lambda p: inputs[:back]
    )
    samples = {name: len(site.inputs) for name, site in sites.items()}
    run = FederationRun(sites, privacy=4, samples=samples, validation=validation, rounds=3, seed=seed)
    for _ in run.rounds({"weight": np.zeros((classes, inputs.shape[1]))}):
        pass
    result = run.result()
    guilty = {f"site-{client:02}" for client in malicious.tolist()}
    values = (
        table,
        partition,
        attackers,
        seed,
        " ".join("nan" if one.posterior is None else f"{one.posterior:.4f}" for one in result.clients),
        "".join("01"[one.id in guilty] for one in result.clients),
        "".join("01"[one.excluded] for one in result.clients),
        result.status,
        len(result.tests),
    )
    return dict(zip(COLUMNS, map(str, values), strict=True))


def rows_of(seeds: Sequence[int]) -> list[Row]:
    """All rows of these seeds; what is missing is made and appended."""
    known: dict[tuple[str, ...], Row] = {}
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            known = {tuple(row[name] for name in COLUMNS[:4]): row for row in csv.DictReader(file)}
    new, found = not RESULTS.exists(), []
    with RESULTS.open("a", newline="", encoding="utf-8") as file, threadpool_limits(1, user_api="blas"):
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        for seed, table, partition, attackers in product(seeds, TABLES, PARTITIONS, ATTACKERS):
            case = (table, partition, str(attackers), str(seed))
            if case not in known:
                known[case] = held(table, partition, attackers, seed)
                writer.writerow(known[case])
                file.flush()
            found.append(known[case])
    return found


def rates(rows: Sequence[Row]) -> Iterator[str]:
    """Who is missed and who is wronged, as Markdown."""
    yield "| table | clients | attackers | runs | missed a run | honest clients left out a run | stopped | tests a run |"
    yield "|---" * 8 + "|"
    for table, partition, attackers in product(TABLES, PARTITIONS, ATTACKERS):
        some = [
            row
            for row in rows
            if (row["table"], row["partition"], row["attackers"]) == (table, partition, str(attackers))
        ]
        pairs = [list(zip(row["malicious"], row["left_out"], strict=True)) for row in some]
        missed = np.mean([sum(one == ("1", "0") for one in run) for run in pairs])
        wronged = np.mean([sum(one == ("0", "1") for one in run) for run in pairs])
        stopped, tests = sum(row["status"] != "finished" for row in some), np.mean([int(row["tests"]) for row in some])
        found = f"{missed:.2f} | {wronged:.2f} | {stopped} | {tests:.1f}"
        yield f"| {table} | {partition} | {attackers} | {len(some)} | {found} |"


def calibration(rows: Sequence[Row]) -> Iterator[str]:
    """How many of those who are as good as sure to attack do, and of those who are as good as sure not to."""
    yield f"| clients | of those from {SURE} on attack | 95 % | of those up to {1 - SURE:.2f} attack |"
    yield "|---|---|---|---|"
    for partition in PARTITIONS:
        some = [row for row in rows if row["partition"] == partition]
        posterior = np.array([float(one) for row in some for one in row["posterior"].split()])
        attacks = np.array([one == "1" for row in some for one in row["malicious"]])
        seeds = np.repeat([int(row["seed"]) for row in some], CLIENTS)
        sure, clear = posterior >= SURE, posterior <= 1 - SURE
        low, high = interval(seeds[sure], attacks[sure]) if sure.any() else (np.nan, np.nan)
        most = f"{attacks[sure].mean():.3f} of {sure.sum()} | {low:.3f} to {high:.3f}" if sure.any() else "none | -"
        yield f"| {partition} | {most} | {attacks[clear].mean():.3f} of {clear.sum()} |"


def main() -> None:
    """Make what is missing, and print both tables."""
    given = [int(one) for one in sys.argv[1:]]
    count, first = (given + [30, 87_000][len(given) :])[:2]
    rows = rows_of(range(first, first + count))
    print("\n".join([*rates(rows), "", *calibration(rows)]))


if __name__ == "__main__":
    main()
