"""Missed and falsely accused clients of graded evidence on real MNIST: first round, attackers drawn uniformly, IID data.

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/graded_rates.py [--seeds 50] [--designs graded-15x10-b,bch-15x8]
        [--cells null,flip,permutation] [--malicious 1,2,3]

Every client is trained once honestly and once for each attack; a run takes for each client the model of what it is. Group
means are plain sums here: that secure sums equal them is tested elsewhere. Rows go to docs/results/graded.csv (resumable);
all designs and cells see the same seeds, data and attackers.
"""

import argparse
import csv
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedgt._version import __version__
from fedgt.decode import decode_graded
from fedgt.design import named_design
from fedgt.screen import class_losses, graded_screen
from fedgt.train import (
    ImageData,
    LocalTraining,
    LogisticRegression,
    attack_named,
    load,
    partition_dirichlet,
    partition_iid,
    poison,
    train_clients,
)
from fedgt.types import FloatArray, IntArray

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "graded.csv"
COLUMNS = (
    "version",
    "dataset",
    "design",
    "cell",
    "malicious_clients",
    "seed",
    "missed_clients",
    "falsely_accused_clients",
    "undecided_clients",
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
Trained = tuple[LogisticRegression, Mapping[str, Models], Models, IntArray, FloatArray]


@lru_cache(maxsize=1)
def _data() -> ImageData:
    return load("mnist")


@lru_cache(maxsize=4)
def _trained(seed: int, clients: int, partition: str) -> Trained:
    """The models of every client under every attack, the start, the validation set and the sample counts."""
    data = _data()
    rng = np.random.default_rng([seed, clients, len(partition)])
    samples = len(data.train_labels)
    if partition.startswith("dirichlet"):
        split = partition_dirichlet(
            labels=data.train_labels, clients=clients, validation=100, concentration=1.0, rng=rng
        )
    else:
        split = partition_iid(samples=samples, clients=clients, validation=100, rng=rng)
    parts = list(split.clients)
    if partition.startswith("sizes"):  # from 1/20 of its share to the whole of it
        shares = np.linspace(0.05, 1, clients)
        parts = [part[: int(len(part) * share)] for part, share in zip(parts, shares, strict=True)]
    model = LogisticRegression(classes=data.classes, features=data.train_images.shape[1])
    start = model.initial(rng=rng)
    half = [part[rng.random(len(part)) < 0.5] for part in parts]
    wanted = {
        "honest": (None, parts),
        "flip": (attack_named("label-flip", source=1, target=7), parts),
        "half-flip": (attack_named("label-flip", source=1, target=7), half),
        "flip-3-8": (attack_named("label-flip", source=3, target=8), parts),
        "permutation": (attack_named("label-permutation"), parts),
    }
    models = {}
    for name, (attack, poisoned) in wanted.items():
        labels = data.train_labels
        if attack is not None:
            labels = poison(labels, attack=attack, parts=poisoned, classes=data.classes, rng=rng)
        trained = train_clients(
            start,
            model=model,
            images=data.train_images,
            labels=labels,
            parts=parts,
            rngs=[np.random.default_rng([seed, j]) for j in range(clients)],
            training=LocalTraining(),
        )
        models[name] = {key: np.stack([one[key] for one in trained]).astype(np.float64) for key in start}
    return model, models, start, split.validation, np.array([len(part) for part in parts], dtype=np.float64)


def _partition_of(cell: str) -> str:
    return next((kind for kind in ("dirichlet", "sizes") if cell.startswith(kind)), "iid")


def _run(design_name: str, cell: str, malicious: int, seed: int) -> Row:
    data, design = _data(), named_design(design_name)
    model, models, start, validation, samples = _trained(seed, design.clients, _partition_of(cell))
    rng = np.random.default_rng([seed, malicious, 1])
    attackers = rng.choice(design.clients, malicious, replace=False)
    kinds = ["honest"] * design.clients
    for turn, j in enumerate(attackers):
        kinds[j] = CELLS[cell][turn % len(CELLS[cell])]
    seats = rng.permutation(design.clients)  # column -> client
    rows = design.matrix.astype(np.float64)  # unweighted sums
    shares = rows / rows.sum(axis=1, keepdims=True)
    means = {key: np.tensordot(shares, np.stack([models[kinds[j]][key][j] for j in seats]), axes=1) for key in start}
    images, labels = data.train_images[validation].astype(np.float64), data.train_labels[validation]
    logits = [model.logits({key: value[i] for key, value in means.items()}, images) for i in range(design.groups)]
    began = time.process_time()
    screen = graded_screen(
        means["weight"] - start["weight"],
        np.stack([class_losses(one, labels) for one in logits]),
        weights=rows,
        samples=samples[seats],
        erased=np.zeros(design.groups, dtype=np.bool_),
    )
    found = decode_graded(
        [] if screen.evidence is None else [screen.evidence],
        clients=design.clients,
        largest=8 if design.clients == 30 else (design.clients - 1) // 2,
    )
    seconds = time.process_time() - began
    truth = np.isin(seats, attackers)
    values = (
        __version__,
        "mnist",
        design_name,
        cell,
        malicious,
        seed,
        int((truth & ~found.flagged).sum()),
        int((found.flagged & ~truth).sum()),
        int(found.undecided.sum()),
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
    arguments.add_argument("--designs", default="graded-15x10-b")
    arguments.add_argument("--cells", default="null,flip,permutation")
    arguments.add_argument("--malicious", default="1,2,3,4,5,6,7")
    given = arguments.parse_args()
    key = ("design", "cell", "malicious_clients", "seed")
    known = {tuple(row[name] for name in key): row for row in _read()}
    cases = [
        (design, cell, malicious, seed)
        for seed in range(given.first, given.first + given.seeds)  # outermost: the models of a seed are trained once
        for design in given.designs.split(",")
        for cell in given.cells.split(",")
        for malicious in ([0] if not CELLS[cell] else [int(one) for one in given.malicious.split(",")])
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
        "design, cell, n_m: missed / falsely accused a run, runs with an accusation, undecided clients a run, seconds"
    )
    for design, cell, malicious in dict.fromkeys(case[:3] for case in cases):
        rows = [known[tuple(map(str, case))] for case in cases if case[:3] == (design, cell, malicious)]
        missed, wrong, undecided = (
            np.array([int(row[name]) for row in rows])
            for name in ("missed_clients", "falsely_accused_clients", "undecided_clients")
        )
        seconds = np.median([float(row["screen_and_decode_seconds"]) for row in rows])
        accused = missed * 0 + [
            int(row["missed_clients"]) < malicious or int(row["falsely_accused_clients"]) > 0 for row in rows
        ]
        print(
            f"{design}, {cell}, {malicious}: {missed.mean():.3f} / {wrong.mean():.3f}, {accused.sum()} of {len(rows)}, "
            f"{undecided.mean():.2f}, {seconds:.2f}"
        )


if __name__ == "__main__":
    main()
