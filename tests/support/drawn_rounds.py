"""Test rounds whose group means are drawn from the model that graded evidence assumes."""

import numpy as np

from fedgt.design import named_design
from fedgt.evidence import GradedDecoding, GradedScreen, decode_graded, graded_screen

DESIGN = named_design("graded-15x10-b").matrix.astype(np.float64)
CLASSES, INPUTS = 4, 60


def drawn(
    shifts: np.ndarray | float,
    *,
    rng: np.random.Generator,
    samples: np.ndarray | None = None,
    rows: np.ndarray = DESIGN,
    harm: float = 3.0,
) -> GradedScreen:
    """One test round: client j's layer is a common one, its own shift, and noise of variance 1 / n_j."""
    n = np.full(15, 100.0) if samples is None else samples
    clients = shifts + rng.normal(size=(15, CLASSES, INPUTS)) * (100.0 / n)[:, None, None] ** 0.5
    shares = rows / rows.sum(axis=1, keepdims=True)
    means = np.tensordot(shares, clients, axes=1) + rng.normal(size=(CLASSES, INPUTS))
    hurt = shares @ np.any(np.broadcast_to(shifts, clients.shape), axis=(1, 2))
    losses = 0.5 + 0.05 * rng.normal(size=(len(rows), CLASSES)) + hurt[:, None] * np.array([harm, 0.0, 0.0, 0.0])
    return graded_screen(means, losses, weights=rows, samples=n, erased=np.zeros(len(rows), dtype=np.bool_))


def attack(malicious: list[int], *, size: float, rng: np.random.Generator) -> np.ndarray:
    shifts = np.zeros((15, CLASSES, INPUTS))
    towards = rng.normal(size=INPUTS)
    shifts[malicious, 0], shifts[malicious, 1] = size * towards, -size * towards
    return shifts


def decoded(*screens: GradedScreen) -> GradedDecoding:
    evidence = [one.evidence for one in screens if one.evidence is not None]
    return decode_graded(evidence, clients=15, largest=7)
