"""Clients of the small run that are honest until a round, and what their attack does to the model."""

from dataclasses import dataclass

import numpy as np

from fedgt import FederationRun, TrainedModel
from fedgt.federation import Step
from fedgt.types import Parameters
from small_run import ATTACKERS, NAMES, START


@dataclass
class Sleeper:
    """Honest until a round; some rounds after that it sends whatever it likes."""

    name: str
    wakes: int = 99
    attackers: frozenset[str] = frozenset(ATTACKERS)
    later: float | None = None
    named: int = 99
    times: float = 1.0

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        rng = np.random.default_rng([round, NAMES.index(self.name)])
        moved = 0.3 * np.eye(4, 6) + rng.normal(0, 0.01, (4, 6))
        if self.name in self.attackers and round >= self.wakes:
            moved[[2, 3]] = self.times * moved[[3, 2]]
            if self.later is not None and round > self.named:
                moved = rng.normal(0, self.later, (4, 6))
        weight = np.asarray(parameters["weight"])
        return TrainedModel(parameters={"weight": weight + moved, "bias": parameters["bias"]}, samples=10)


def held(run: FederationRun) -> list[Step]:
    return list(run.rounds(START))


def harm(parameters: Parameters) -> float:
    """How far the rows of the two exchanged classes are from where honest clients take them, per step of theirs."""
    weight = np.asarray(parameters["weight"])
    return float(abs(weight[2, 3] + weight[3, 2]) / abs(weight[0, 0]))
