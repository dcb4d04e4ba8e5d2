"""Fifteen clients whose updates are known: all learn the prototypes of four classes, attackers confuse two of them."""

import numpy as np

from fedgt.federation import Validation
from fedgt.types import FloatArray, Parameters

CLASSES, INPUTS = 4, 40
NAMES = tuple(f"c{j:02d}" for j in range(15))
START: Parameters = {"weight": np.zeros((CLASSES, INPUTS)), "marker": np.zeros(15)}
"""Client j adds 1 to `marker` at place j: after the round it shows the weight of every client."""

PROTOTYPES = np.random.default_rng(99).normal(size=(CLASSES, INPUTS)) / INPUTS**0.5
LABELS = np.repeat(np.arange(CLASSES), 10).astype(np.int64)
IMAGES = PROTOTYPES[LABELS] + 0.05 * np.random.default_rng(98).normal(size=(40, INPUTS))
VALIDATION = Validation(
    logits=lambda parameters: np.asarray(IMAGES @ parameters["weight"].T, dtype=np.float64), labels=LABELS
)


def updates(malicious: set[str]) -> dict[str, dict[str, FloatArray]]:
    """Everybody learns the prototypes; the malicious take class 0 for class 1. `marker` shows who is in a model."""
    rng = np.random.default_rng(3)
    made = {}
    for j, name in enumerate(NAMES):
        weight = 3.0 * PROTOTYPES + 0.1 * rng.normal(size=PROTOTYPES.shape)
        if name in malicious:
            weight[[0, 1]] = weight[[0, 1]] + 3.0 * np.array([-PROTOTYPES[0], PROTOTYPES[0]])
        made[name] = {"weight": weight, "marker": np.eye(15)[j]}
    return made
