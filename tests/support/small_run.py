"""A small federation of one's own clients: fifteen sites of a model with four classes, of which three exchange two."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedgt import FederationRun, TrainedModel, Validation
from fedgt.types import Parameters

NAMES = [f"c{j:02d}" for j in range(15)]
ATTACKERS = {"c02", "c05", "c11"}
START: dict[str, Any] = {"weight": np.zeros((4, 6)), "bias": np.zeros(4)}
IMAGES = np.eye(6)[np.arange(48) % 4] + np.random.default_rng(0).normal(0, 0.1, (48, 6))
LABELS = np.arange(48) % 4


@dataclass
class Site:
    """Moves the model to what is right, or to what poison makes of it; each round a little differently."""

    name: str
    asked: list[int] = field(default_factory=list)

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        self.asked.append(round)
        rng = np.random.default_rng([round, NAMES.index(self.name)])
        weight = parameters["weight"] + 0.3 * np.eye(4, 6) + rng.normal(0, 0.01, (4, 6))
        if self.name in ATTACKERS:
            weight[[2, 3]] = weight[[3, 2]]
        return TrainedModel(parameters={"weight": weight, "bias": parameters["bias"]}, samples=10)


def logits(parameters: Parameters) -> Any:
    return IMAGES @ np.asarray(parameters["weight"]).T + parameters["bias"]


VALIDATION = Validation(logits=logits, labels=LABELS, inputs=lambda _: IMAGES)


def made(sites: Mapping[str, Any] | None = None, **changes: Any) -> FederationRun:
    options: dict[str, Any] = {
        "privacy": 4,
        "samples": dict.fromkeys(NAMES, 10),
        "validation": VALIDATION,
        "rounds": 3,
        "seed": 1,
    }
    return FederationRun(sites or {name: Site(name) for name in NAMES}, **(options | changes))
