"""Missed and falsely accused clients of graded evidence on real MNIST: first round, attackers drawn uniformly, IID data.

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/graded_rates.py [--seeds 50] [--designs nested-15x12-r4,bch-15x8]
        [--cells null,flip,permutation] [--malicious 1,2,3] [--further none,chosen,random,repeated]
        [--dataset mnist|cifar10-lite0] [--round 1]
    python benchmarks/graded_rates.py --ties [--seeds 50] [--designs bch-15x8]

Every client is trained once honestly and once for each attack; a run takes for each client the model of what it is. Group
means are plain sums here: that secure sums equal them is tested elsewhere. Rows go to docs/results/graded.csv (resumable);
all designs and cells see the same seeds, data and attackers.

`--further`: what follows where clients stay undecided: no second test round; one with rows chosen by the posterior, or drawn
at random, within r = 4 in the cautious account; or one with the same rows. Everybody trains again from the mean of
all models.

`--ties`: what ties alone leave wrong, for the same attackers: without noise, when all are accused who have a posterior above
1/2 among the sets that move the sums in the same direction.
"""

import argparse
import csv
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from fedgt._version import __version__
from fedgt.design import Design, named_design, searched_design, searched_designs
from fedgt.evidence import GradedDecoding
from fedgt.federation import DecodeSettings, ScreenSettings, Validation
from fedgt.federation.group_means import GroupMeans
from fedgt.federation.measure import suspects
from fedgt.federation.next_rows import next_rows
from fedgt.federation.views import graded_of
from fedgt.planning.ties import ties
from fedgt.train import (
    ImageData,
    LabelAttack,
    LabelFlip,
    LabelPermutation,
    LocalTraining,
    LogisticRegression,
    load,
    partition_dirichlet,
    partition_iid,
    poison,
    train_clients,
)
from fedgt.types import FloatArray, IntArray, SetEvidence

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "graded.csv"
COLUMNS = (
    "version",
    "dataset",
    "round",
    "design",
    "cell",
    "malicious_clients",
    "seed",
    "further",
    "missed_clients",
    "falsely_accused_clients",
    "undecided_clients",
    "test_rounds",
    "groups",
    "attacks",
    "evidence_against_nobody_nats",
    "status",
    "screen_and_decode_seconds",
)
# cell -> the attacks of its malicious clients, by turns
CELLS = {
    "null": (),
    "flip": ("flip",),
    "permutation": ("permutation",),
    "partial": ("half-flip",),
    "strengths": ("flip", "half-flip"),
    "two-flips": ("flip", "flip-3-8"),
    "flip-and-permutation": ("flip", "permutation"),
    "sizes-1-to-20": ("flip",),
    "dirichlet-1": ("flip",),
    "dirichlet-1-permutation": ("permutation",),
    "dirichlet-1-null": (),
}
Row = dict[str, str]
Models = Mapping[str, np.ndarray[Any, Any]]
PRIVACY = 4
FLIP = LabelFlip(source=1, target=7)
# kind of client -> its attack, and the fraction of its samples that it poisons
KINDS: dict[str, tuple[LabelAttack | None, float]] = {
    "honest": (None, 0.0),
    "flip": (FLIP, 1.0),
    "half-flip": (FLIP, 0.5),
    "quarter-flip": (FLIP, 0.25),
    "tenth-flip": (FLIP, 0.1),
    "twentieth-flip": (FLIP, 0.05),
    "flip-3-8": (LabelFlip(source=3, target=8), 1.0),
    "permutation": (LabelPermutation(), 1.0),
}


@lru_cache(maxsize=1)
def _data(dataset: str) -> ImageData:
    return load(dataset)


def _design(name: str) -> Design:
    return searched_design(name).design.plain if name in searched_designs() else named_design(name)


class World:
    """One seed: the shares of the clients, the start, and the models of every kind of client, trained when asked for."""

    def __init__(self, dataset: str, seed: int, clients: int, partition: str) -> None:
        """Share the data out and draw the start."""
        self.data = _data(dataset)
        self.seed = seed
        rng = np.random.default_rng([seed, clients, len(partition)])
        samples = len(self.data.train_labels)
        if partition.startswith("dirichlet"):
            _, _, concentration = partition.partition("-")
            split = partition_dirichlet(
                labels=self.data.train_labels,
                clients=clients,
                validation=100,
                concentration=float(concentration or 1.0),
                rng=rng,
            )
        else:
            split = partition_iid(samples=samples, clients=clients, validation=100, rng=rng)
        self.parts = list(split.clients)
        if partition.startswith("sizes"):  # from 1/20 of its share to the whole of it
            shares = np.linspace(0.05, 1, clients)
            self.parts = [part[: int(len(part) * share)] for part, share in zip(self.parts, shares, strict=True)]
        self.validation = split.validation
        self.model = LogisticRegression(classes=self.data.classes, features=self.data.train_images.shape[1])
        self.start = self.model.initial(rng=rng)
        self.samples = np.array([len(part) for part in self.parts], dtype=np.float64)
        self._labels: dict[str, IntArray] = {}
        self._models: dict[str, Models] = {}

    def labels(self, kind: str) -> IntArray:
        """The labels that a client of this kind trains on."""
        if kind not in self._labels:
            attack, fraction = KINDS[kind]
            rng = np.random.default_rng([self.seed, len(kind), 7])
            parts = [part[rng.random(len(part)) < fraction] for part in self.parts]
            labels = self.data.train_labels
            if attack is not None:
                labels = poison(labels, attack=attack, parts=parts, classes=self.data.classes, rng=rng)
            self._labels[kind] = labels
        return self._labels[kind]

    def trained(self, kind: str, start: Models, *, round: int, clients: Sequence[int] | None = None) -> Models:
        """Tensor -> float64[clients, ...], after one round of local training."""
        who = range(len(self.parts)) if clients is None else clients
        found = train_clients(
            start,
            model=self.model,
            images=self.data.train_images,
            labels=self.labels(kind),
            parts=[self.parts[j] for j in who],
            rngs=[np.random.default_rng([self.seed, j, round]) for j in who],
            training=LocalTraining(),
        )
        return {key: np.stack([one[key] for one in found]).astype(np.float64) for key in start}

    def first(self, kinds: Sequence[str]) -> Models:
        """The models of the first round."""
        for kind in set(kinds) - self._models.keys():
            self._models[kind] = self.trained(kind, self.start, round=1)
        return {key: np.stack([self._models[kind][key][j] for j, kind in enumerate(kinds)]) for key in self.start}

    def later(self, kinds: Sequence[str], start: Models, *, round: int) -> Models:
        """The models of a later round."""
        found = {key: np.empty((len(kinds), *value.shape)) for key, value in start.items()}
        for kind in set(kinds):
            who = [j for j, one in enumerate(kinds) if one == kind]
            for key, value in self.trained(kind, start, round=round, clients=who).items():
                found[key][who] = value
        return found

    def tested(self, rows: FloatArray, seats: IntArray, models: Models, start: Models) -> GroupMeans:
        """What a test with these rows compares; `seats` gives the client of each column."""
        shares = rows / rows.sum(axis=1, keepdims=True)  # unweighted sums
        means = {key: np.tensordot(shares, value[seats], axes=1) for key, value in models.items()}
        return GroupMeans(
            start={key: value.astype(np.float64) for key, value in start.items()},
            updates=[{key: value[i] - start[key] for key, value in means.items()} for i in range(len(rows))],
            rows=rows,
            samples=self.samples[seats],
        )

    @property
    def held_back(self) -> Validation:
        """The server's validation set."""
        images = self.data.train_images[self.validation].astype(np.float64)
        labels = self.data.train_labels[self.validation]
        return Validation(
            logits=lambda parameters: self.model.logits(parameters, images), labels=labels, inputs=lambda _: images
        )

    def evidence(self, rows: FloatArray, seats: IntArray, models: Models, start: Models) -> list[SetEvidence]:
        """What such a test says."""
        screen = graded_of(self.tested(rows, seats, models, start), self.held_back, ScreenSettings())
        return [] if screen.evidence is None else [screen.evidence]


def accused(evidence: Sequence[SetEvidence], clients: int) -> GradedDecoding:
    """Whom the evidence names, at the product's settings; of 30 clients at most 8 are considered."""
    largest = 8 if clients == 30 else (clients - 1) // 2
    return suspects(evidence, clients, screen=ScreenSettings(), decoding=DecodeSettings(max_malicious=largest))


@lru_cache(maxsize=3)
def _world(dataset: str, seed: int, clients: int, partition: str) -> World:
    return World(dataset, seed, clients, partition)


def _partition_of(cell: str) -> str:
    return next((kind for kind in ("dirichlet", "sizes") if cell.startswith(kind)), "iid")


def _further(rows: FloatArray, found: GradedDecoding, further: str, rng: np.random.Generator) -> FloatArray | None:
    if further == "repeated":
        return rows
    sets = np.zeros((len(found.best), rows.shape[1]), dtype=np.bool_)
    for number, one in enumerate(found.best):
        sets[number, list(one.clients)] = True
    design = next_rows(
        rows,
        sets,
        [one.probability for one in found.best],
        privacy=PRIVACY,
        candidates=20 if further == "chosen" else 1,
        rng=rng,
    )
    return None if design is None else design.matrix.astype(np.float64)


def _drawn(seed: int, malicious: int, clients: int) -> tuple[np.random.Generator, IntArray, IntArray]:
    """The generator of a run, its attackers, and the client of each column."""
    rng = np.random.default_rng([seed, malicious, 1])
    return rng, rng.choice(clients, malicious, replace=False), rng.permutation(clients)


def _left_by_ties(name: str, seeds: Sequence[int]) -> None:
    design = _design(name)
    found = ties(design, (design.clients - 1) // 2)
    sets = found.sets.astype(np.bool_)
    prior = np.array([1 / comb(design.clients, int(size)) for size in sets.sum(axis=1)])
    for malicious in range(1, found.n_max + 1):
        wrong = []
        for seed in seeds:
            _, attackers, seats = _drawn(seed, malicious, design.clients)
            truth = np.isin(seats, attackers)
            tied = found.label == found.label[(sets == truth).all(axis=1)]
            posterior = prior[tied] @ sets[tied] / prior[tied].sum()
            wrong.append(int(((posterior > 0.5) != truth).sum()))
        print(f"{name}, {malicious}: {np.mean(wrong):.2f} wrong by ties alone")


def _run(dataset: str, round: int, design_name: str, cell: str, malicious: int, seed: int, further: str) -> Row:
    design = _design(design_name)
    world = _world(dataset, seed, design.clients, _partition_of(cell))
    rng, attackers, seats = _drawn(seed, malicious, design.clients)
    kinds = ["honest"] * design.clients
    for turn, j in enumerate(attackers):
        kinds[j] = CELLS[cell][turn % len(CELLS[cell])]
    rows = design.matrix.astype(np.float64)
    models, start = world.first(kinds), world.start
    for number in range(2, round + 1):
        start = {key: value.mean(axis=0) for key, value in models.items()}
        models = world.later(kinds, start, round=number)
    began = time.process_time()
    evidence = world.evidence(rows, seats, models, start)
    found = accused(evidence, design.clients)
    seconds = time.process_time() - began
    groups, rounds = len(rows), 1
    if further != "none" and found.undecided.any():
        more = _further(rows, found, further, rng)
        if more is not None:
            start = {key: value.mean(axis=0) for key, value in models.items()}
            evidence += world.evidence(more, seats, world.later(kinds, start, round=round + 1), start)
            found = accused(evidence, design.clients)
            groups, rounds = groups + len(more), 2
    truth = np.isin(seats, attackers)
    values = (
        __version__,
        dataset,
        round,
        design_name,
        cell,
        malicious,
        seed,
        further,
        int((truth & ~found.flagged).sum()),
        int((found.flagged & ~truth).sum()),
        int(found.undecided.sum()),
        rounds,
        groups,
        found.attacks,
        f"{found.against_nobody:.2f}",
        found.status,
        f"{seconds:.3f}",
    )
    return {name: str(value) for name, value in zip(COLUMNS, values, strict=True)}


def _read() -> Iterator[Row]:
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            yield from csv.DictReader(file)


def main() -> None:
    """Run what is missing and print the table."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seeds", type=int, default=50)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--designs", default="nested-15x12-r4")
    arguments.add_argument("--cells", default="null,flip,permutation")
    arguments.add_argument("--malicious", default="1,2,3,4,5,6,7")
    arguments.add_argument("--further", default="none")
    arguments.add_argument("--dataset", default="mnist", choices=["mnist", "cifar10-lite0"])
    arguments.add_argument("--round", type=int, default=1, help="of the test; everybody trains until then")
    arguments.add_argument("--ties", action="store_true")
    given = arguments.parse_args()
    if given.ties:
        for design in given.designs.split(","):
            _left_by_ties(design, range(given.first, given.first + given.seeds))
        return
    key = ("dataset", "round", "design", "cell", "malicious_clients", "seed", "further")
    known = {tuple(row[name] for name in key): row for row in _read()}
    cases = [
        (given.dataset, given.round, design, cell, malicious, seed, further)
        for seed in range(given.first, given.first + given.seeds)  # outermost: the models of a seed are trained once
        for design in given.designs.split(",")
        for cell in given.cells.split(",")
        for malicious in ([0] if not CELLS[cell] else [int(one) for one in given.malicious.split(",")])
        for further in given.further.split(",")
    ]
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        for case in cases:
            name = tuple(map(str, case))
            if name not in known:
                known[name] = _run(*case)
                writer.writerow(known[name])
                file.flush()
    print(
        "design, cell, n_m, further: missed / falsely accused a run, runs with an accusation, undecided clients, seconds"
    )
    for design, cell, malicious, further in dict.fromkeys((*case[2:5], case[6]) for case in cases):
        these = [case for case in cases if (*case[2:5], case[6]) == (design, cell, malicious, further)]
        rows = [known[tuple(map(str, case))] for case in these]
        missed, wrong, undecided = (
            np.array([int(row[name]) for row in rows])
            for name in ("missed_clients", "falsely_accused_clients", "undecided_clients")
        )
        seconds = np.median([float(row["screen_and_decode_seconds"]) for row in rows])
        accused = missed * 0 + [
            int(row["missed_clients"]) < malicious or int(row["falsely_accused_clients"]) > 0 for row in rows
        ]
        print(
            f"{design}, {cell}, {malicious}, {further}: {missed.mean():.3f} / {wrong.mean():.3f}, "
            f"{accused.sum()} of {len(rows)}, {undecided.mean():.2f}, {seconds:.2f}"
        )


if __name__ == "__main__":
    main()
