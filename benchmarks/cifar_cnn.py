"""Graded evidence on a small convolutional network trained from end to end on CIFAR-10: 15 clients, tested from round 5.

    FEDGT_DATA=<folder with cifar-10-batches-bin> python benchmarks/cifar_cnn.py [--seeds 20] [--first 0]
        [--cells flip:0,flip:1,flip:3,flip:5] [--models build/cifar-cnn] [--validation 100] [--features outputs,margins]

Needs torch. Each client has 1,600 images; SGD with momentum .9, learning rate .05, batch 64; one epoch a round. Attackers
label class 5 (dog) as 3 (cat). The models of the five last of nine rounds are kept in `--models` (22 MB a run, 60 to 250 s
of CPU); cells of one seed share the images, the start and the order of the attackers. From them every kind of evidence is
computed for three placements of the clients in the ten groups, with one test round and with up to three or five while
clients stay undecided: the same rows again, because no three new ones keep r = 4. Rows: docs/results/cifar_cnn.csv.

`weights` are the default with its second opinion, `weights-alone` without, `outputs` the losses and mean outputs of the
classes, `margins` are tested once.
"""

import argparse
import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils import vector_to_parameters

from fedgt.design import named_design
from fedgt.evidence import GradedDecoding
from fedgt.federation import DecodeSettings, ScreenSettings, Validation
from fedgt.federation.group_means import GroupMeans
from fedgt.federation.measure import suspects
from fedgt.federation.views import graded_of
from fedgt.types import FloatArray, SetEvidence

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "cifar_cnn.csv"
KEY = ("seed", "attack", "malicious_clients", "placement", "validation_images", "features", "most_tests")
COLUMNS = (
    *KEY,
    "tests",
    "missed_clients",
    "falsely_accused_clients",
    "undecided_clients",
    "evidence_against_nobody_nats",
    "status",
    "label_spread",
    "top1_accuracy_percent",
    "attack_accuracy_percent",
)
FEATURES = ("weights", "weights-alone", "outputs", "margins")
CLIENTS, IMAGES, SET_APART, SOURCE, TARGET = 15, 1600, 2000, 5, 3
FIRST_TEST, ROUNDS, PLACEMENTS = 5, 9, 3
BUDGETS = (1, 3, 5)
HEAD = 10 * 1024 + 10
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
ROWS = named_design("graded-15x10-b").matrix.astype(np.float64)
SAMPLES = np.full(CLIENTS, float(IMAGES))
SCREENS = {kind: ScreenSettings(features=kind.removesuffix("-alone")) for kind in FEATURES}


def read(folder: Path, names: list[str]) -> tuple[Any, Any]:
    """uint8[images, 3, 32, 32] and int64[images], from CIFAR-10's binary batches of 3,073 bytes a record."""
    records = np.concatenate([np.fromfile(folder / name, dtype=np.uint8).reshape(-1, 3073) for name in names])
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def network() -> Any:
    """Three convolutions, each with ReLU and pooling, and the classification layer."""
    layers: list[Any] = []
    for inputs, filters in ((3, 32), (32, 64), (64, 64)):
        layers += [torch.nn.Conv2d(inputs, filters, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(1024, 10))


def prepared(images: Any) -> Any:
    """float32[images, 3, 32, 32], standardised; channels last, which is faster on a CPU."""
    mean, deviation = (torch.tensor(one).view(3, 1, 1) for one in (MEAN, DEVIATION))
    return ((torch.from_numpy(images).float() / 255 - mean) / deviation).contiguous(memory_format=torch.channels_last)


def flat(model: Any) -> Any:
    """float32[entries]: a copy."""
    return torch.cat([one.detach().reshape(-1) for one in model.parameters()]).clone()


class Data:
    """CIFAR-10, and how one seed shares it out."""

    def __init__(self, folder: Path) -> None:
        """Read all images."""
        raw, self.labels = read(folder, [f"data_batch_{one}.bin" for one in range(1, 6)])
        self.images = prepared(raw)
        test, self.test_labels = read(folder, ["test_batch.bin"])
        self.test = prepared(test)

    def shared_out(self, seed: int) -> tuple[Any, Any, Any]:
        """Images for validation, the images of each client, and the clients in the order in which they become attackers."""
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(self.labels))
        parts = order[SET_APART : SET_APART + CLIENTS * IMAGES].reshape(CLIENTS, IMAGES)
        return order[:SET_APART], parts, rng.permutation(CLIENTS)

    def poisoned(self, attack: str, parts: Any) -> Any:
        """int64[images]: the labels that everybody trains on, these parts being the attackers'."""
        labels = self.labels.copy()
        for part in parts:
            if attack == "flip":
                labels[part[self.labels[part] == SOURCE]] = TARGET
            else:
                labels[part] = (self.labels[part] + 1) % 10
        return torch.from_numpy(labels)


def trained(data: Data, seed: int, attack: str, malicious: int, honest: dict[int, Any]) -> dict[str, Any]:
    """The models of the clients and where they started, of each round with a test, with the accuracies of their mean.

    `honest` keeps the first round's models of honest clients for the other cells of the seed.
    """
    _, parts, ranking = data.shared_out(seed)
    attackers = set(ranking[:malicious].tolist())
    labels = data.poisoned(attack, parts[sorted(attackers)])
    torch.manual_seed(seed)
    model = network()
    common, kept = flat(model), {}
    for number in range(ROUNDS):
        found = []
        for client in range(CLIENTS):
            if number or client in attackers or client not in honest:
                rng = np.random.default_rng([seed, number, client])
                one = epoch(model, common, data.images, labels, torch.from_numpy(rng.permutation(parts[client])))
                if not number and client not in attackers:
                    honest[client] = one
            else:
                one = honest[client]
            found.append(one)
        models = torch.stack(found)
        start, common = common, models.mean(dim=0)
        if number + 1 >= FIRST_TEST:
            said = logits(model, common, data.test).argmax(axis=1)
            kept[f"models{number + 1}"], kept[f"start{number + 1}"] = models.numpy(), start.numpy()
            kept[f"top1{number + 1}"] = 100 * (said == data.test_labels).mean()
            kept[f"taken{number + 1}"] = 100 * (said[data.test_labels == SOURCE] == TARGET).mean()
    return kept


def epoch(model: Any, start: Any, images: Any, labels: Any, order: Any) -> Any:
    """float32[entries]: a client's model after one pass over its images."""
    vector_to_parameters(start, model.parameters())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for begin in range(0, len(order), 64):
        batch = order[begin : begin + 64]
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimiser.step()
    return flat(model)


def logits(model: Any, parameters: Any, images: Any) -> FloatArray:
    """float64[images, classes]."""
    vector_to_parameters(parameters, model.parameters())
    with torch.no_grad():
        said: FloatArray = torch.cat([model(part) for part in images.split(1000)]).numpy().astype(np.float64)
    return said


def named(vector: FloatArray) -> dict[str, FloatArray]:
    """The tensors that the test knows by name: the classification layer, and all below it."""
    body, weight, bias = np.split(vector, [len(vector) - HEAD, len(vector) - 10])
    return {"body": body, "weight": weight.reshape(10, -1), "bias": bias}


def held_back(model: Any, images: Any, labels: Any, *, opinion: bool) -> Validation:
    """The server's validation set; without what the last layer sees there is no second opinion."""

    def said(parameters: Any) -> FloatArray:
        vector = np.concatenate([one.reshape(-1) for one in parameters.values()])
        return logits(model, torch.from_numpy(vector).float(), images)

    def seen(parameters: Any) -> FloatArray:
        said(parameters)
        with torch.no_grad():
            return np.asarray(model[:-1](images).numpy(), dtype=np.float64)

    return Validation(logits=said, labels=labels, inputs=seen if opinion else None)


def evidence(
    model: Any, kept: Any, number: int, seats: Any, images: Any, labels: Any, features: list[str]
) -> dict[str, Any]:
    """What the test of one round says, by each of these kinds of features, and the label spread."""
    start = kept[f"start{number}"].astype(np.float64)
    means = ROWS / ROWS.sum(axis=1, keepdims=True) @ kept[f"models{number}"].astype(np.float64)[seats]
    test = GroupMeans(start=named(start), updates=[named(one - start) for one in means], rows=ROWS, samples=SAMPLES)
    found: dict[str, Any] = {}
    for kind in {"weights", *features}:
        validation = held_back(model, images, labels, opinion=kind != "weights-alone")
        found[kind] = graded_of(test, validation, SCREENS[kind]).evidence
    opinion = getattr(found["weights"], "opinion", None)
    return found | {"spread": float("nan") if opinion is None else opinion.spread}


def decided(found: list[SetEvidence], kind: str, most: int) -> tuple[GradedDecoding, int]:
    """The decision with at most so many test rounds, and how many were needed."""
    for tests in range(1, most + 1):
        heard = [one for one in found[:tests] if one is not None]
        decision = suspects(heard, CLIENTS, screen=SCREENS[kind], decoding=DecodeSettings())
        if not decision.undecided.any():
            break
    return decision, tests


def rows(
    data: Data, seed: int, attack: str, malicious: int, kept: Any, features: list[str], size: int
) -> Iterator[dict[str, Any]]:
    """All rows of one run, with this many validation images."""
    apart, _, ranking = data.shared_out(seed)
    validation = apart[:size]
    images, labels = data.images[validation], data.labels[validation]
    model = network()
    for placement in range(PLACEMENTS):
        seats = np.random.default_rng([seed, malicious, placement]).permutation(CLIENTS)
        truth = np.isin(seats, ranking[:malicious])
        tests = [
            evidence(model, kept, number, seats, images, labels, features) for number in range(FIRST_TEST, ROUNDS + 1)
        ]
        for kind in features:
            for most in (1,) if kind == "margins" else BUDGETS:
                decision, needed = decided([one[kind] for one in tests], kind, most)
                values = (
                    *(seed, attack, malicious, placement, size, kind, most, needed),
                    int((truth & ~decision.flagged).sum()),
                    int((decision.flagged & ~truth).sum()),
                    int(decision.undecided.sum()),
                    f"{decision.against_nobody:.2f}",
                    decision.status,
                    f"{tests[0]['spread']:.2f}",
                    f"{float(kept[f'top1{FIRST_TEST}']):.2f}",
                    f"{float(kept[f'taken{FIRST_TEST}']):.2f}",
                )
                yield {name: str(value) for name, value in zip(COLUMNS, values, strict=True)}


def known_rows(results: Path) -> list[dict[str, str]]:
    """Those of earlier runs of this script."""
    if not results.exists():
        return []
    with results.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(found: list[dict[str, str]]) -> str:
    """Markdown: means over the runs of a cell and the placements."""
    by = ("features", "validation_images", "most_tests", "attack", "malicious_clients")
    cells: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for one in found:
        cells.setdefault(tuple(one[name] for name in by), []).append(one)
    lines = [
        "| features | validation | tests | attack | n_m | trials | missed | falsely accused | accusing | attack accuracy |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in sorted(cells, key=lambda one: (FEATURES.index(one[0]), int(one[1]), *one[2:])):
        missed, wrong, taken = (
            np.array([float(one[name]) for one in cells[cell]])
            for name in ("missed_clients", "falsely_accused_clients", "attack_accuracy_percent")
        )
        accusing = float(np.mean((missed < int(cell[4])) | (wrong > 0)))
        lines.append(
            f"| {' | '.join(cell)} | {len(missed)} | {missed.mean():.2f} | {wrong.mean():.2f} | {100 * accusing:.0f} % | "
            f"{taken.mean():.0f} % |"
        )
    return "\n".join(lines)


def main() -> None:
    """Train what is missing, append its rows and print the table."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seeds", type=int, default=20)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--cells", default="flip:0,flip:1,flip:3,flip:5")
    arguments.add_argument("--models", type=Path, default=Path("build/cifar-cnn"))
    arguments.add_argument("--validation", type=int, default=100, help=f"images, {SET_APART} at most")
    arguments.add_argument("--features", default=",".join(FEATURES))
    arguments.add_argument("--results", type=Path, default=RESULTS)
    given = arguments.parse_args()
    features = given.features.split(",")
    torch.set_num_threads(1)
    given.models.mkdir(parents=True, exist_ok=True)
    data = Data(Path(os.environ["FEDGT_DATA"]) / "cifar-10-batches-bin")
    found = known_rows(given.results)
    done = {tuple(one[name] for name in (*KEY[:3], "validation_images", "features")) for one in found}
    new = not given.results.exists()
    with given.results.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        for seed in range(given.first, given.first + given.seeds):
            honest: dict[int, Any] = {}
            for attack, malicious in (cell.split(":") for cell in given.cells.split(",")):
                left = [
                    one for one in features if (str(seed), attack, malicious, str(given.validation), one) not in done
                ]
                if not left:
                    continue
                path = given.models / f"{seed}-{attack}-{malicious}.npz"
                if not path.exists():
                    part = path.with_suffix(".part.npz")
                    np.savez(part, **trained(data, seed, attack, int(malicious), honest))
                    part.rename(path)
                with np.load(path) as kept:
                    fresh = list(rows(data, seed, attack, int(malicious), dict(kept), left, given.validation))
                writer.writerows(fresh)
                file.flush()
                found += fresh
    print(table(found))


if __name__ == "__main__":
    main()
