"""Graded evidence on a small convolutional network trained end to end on CIFAR-10: 15 clients, tested in the fifth round.

    FEDGT_DATA=<folder with cifar-10-batches-bin> python benchmarks/cifar_cnn.py [first seed] [seeds]

Needs torch. Each client has 1,600 images; SGD with momentum .9, learning rate .05, batch 64. Rows
of each cell, three placements of the clients in the ten groups, go to docs/results/cifar_cnn.csv. About 150 s of CPU a cell.
"""

import csv
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedgt.decode import decode_graded
from fedgt.design import named_design
from fedgt.screen import class_losses, graded_screen

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "cifar_cnn.csv"
COLUMNS = (
    "seed",
    "attack",
    "malicious_clients",
    "placement",
    "missed_clients",
    "falsely_accused_clients",
    "undecided_clients",
    "evidence_against_nobody_nats",
    "top1_accuracy_percent",
    "attack_accuracy_percent",
)
CELLS = (("flip", 0), ("flip", 1), ("flip", 3), ("flip", 5), ("permutation", 3))
CLIENTS, IMAGES, ROUNDS, SOURCE, TARGET = 15, 1600, 5, 5, 3
HEAD = 10 * 1024 + 10
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)


def read(folder: Path, names: list[str]) -> tuple[Any, Any]:
    """uint8[images, 3, 32, 32] and int64[images], from CIFAR-10's binary batches of 3,073 bytes a record."""
    records = np.concatenate([np.fromfile(folder / name, dtype=np.uint8).reshape(-1, 3073) for name in names])
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def network() -> Any:
    """Three convolutions, each with ReLU and pooling, and the classification layer."""
    layers: list[Any] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 64)):
        layers += [torch.nn.Conv2d(inputs, outputs, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(1024, 10))


def prepared(images: Any) -> Any:
    """float32[images, 3, 32, 32], standardised."""
    mean, deviation = (torch.tensor(one).view(3, 1, 1) for one in (MEAN, DEVIATION))
    return (torch.from_numpy(images).float() / 255 - mean) / deviation


def trained(images: Any, labels: Any, parts: Any, seed: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """The models of all clients in the last round, float32[clients, entries], and their mean."""
    torch.manual_seed(seed)
    model = network()
    common = parameters_to_vector(model.parameters()).detach().clone()
    models = common[None]
    for _ in range(ROUNDS):
        found = []
        for part in parts:
            vector_to_parameters(common, model.parameters())
            optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
            order = torch.from_numpy(rng.permutation(part))
            for start in range(0, len(order), 64):
                batch = order[start : start + 64]
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
                optimiser.step()
            found.append(parameters_to_vector(model.parameters()).detach().clone())
        models = torch.stack(found)
        common = models.mean(dim=0)
    return models, common


def logits(parameters: Any, images: Any) -> Any:
    """float64[images, classes]."""
    model = network()
    vector_to_parameters(parameters, model.parameters())
    with torch.no_grad():
        return model(images).numpy().astype(np.float64)


def main() -> None:
    """Run the seeds and append their rows."""
    first, seeds = (int(one) for one in (sys.argv[1:3] or ("0", "2")))
    torch.set_num_threads(1)
    folder = Path(os.environ["FEDGT_DATA"]) / "cifar-10-batches-bin"
    raw, labels = read(folder, [f"data_batch_{one}.bin" for one in range(1, 6)])
    images = prepared(raw)
    test_raw, test_labels = read(folder, ["test_batch.bin"])
    test = prepared(test_raw)
    rows = named_design("graded-15x10-b").matrix.astype(np.float64)
    shares = rows / rows.sum(axis=1, keepdims=True)
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(COLUMNS)
        for seed in range(first, first + seeds):
            for attack, malicious in CELLS:
                rng = np.random.default_rng([seed, malicious])
                order = rng.permutation(len(labels))
                validation, parts = order[:100], order[100 : 100 + CLIENTS * IMAGES].reshape(CLIENTS, IMAGES)
                attackers = rng.choice(CLIENTS, malicious, replace=False)
                poisoned = labels.copy()
                for part in parts[attackers]:
                    if attack == "flip":
                        poisoned[part[labels[part] == SOURCE]] = TARGET
                    else:
                        poisoned[part] = (labels[part] + 1) % 10
                models, common = trained(images, torch.from_numpy(poisoned), parts, seed, rng)
                said = logits(common, test).argmax(axis=1)
                top1 = 100 * (said == test_labels).mean()
                taken = 100 * (said[test_labels == SOURCE] == TARGET).mean()
                for placement in range(3):
                    seats = np.random.default_rng([seed, malicious, placement]).permutation(CLIENTS)
                    means = shares @ models.numpy().astype(np.float64)[seats]
                    losses = [
                        class_losses(logits(torch.from_numpy(one).float(), images[validation]), labels[validation])
                        for one in means
                    ]
                    screen = graded_screen(
                        means[:, -HEAD:-10].reshape(len(means), 10, 1024),
                        np.stack(losses),
                        weights=rows,
                        samples=np.full(CLIENTS, float(IMAGES)),
                        erased=np.zeros(len(rows), dtype=np.bool_),
                    )
                    evidence = [] if screen.evidence is None else [screen.evidence]
                    found = decode_graded(evidence, clients=CLIENTS, largest=7)
                    truth = np.isin(seats, attackers)
                    values = (
                        int((truth & ~found.flagged).sum()),
                        int((found.flagged & ~truth).sum()),
                        int(found.undecided.sum()),
                        f"{found.against_nobody:.2f}",
                        f"{top1:.2f}",
                        f"{taken:.2f}",
                    )
                    writer.writerow((seed, attack, malicious, placement, *values))
                    print(seed, attack, malicious, placement, *values, flush=True)
                file.flush()


if __name__ == "__main__":
    main()
