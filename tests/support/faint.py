"""Attackers whose poison is so weak that one test leaves them undecided, among clients that differ."""

from dataclasses import dataclass

import numpy as np

from fedgt import TrainedModel
from fedgt.types import Parameters
from small_run import ATTACKERS, NAMES, Site


@dataclass
class Faint(Site):
    """Moves two classes towards each other, and goes its own way a little, most of it the same in every round."""

    share: float = 0.7

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        self.asked.append(round)
        number = NAMES.index(self.name)
        step = 0.3 * np.eye(4, 6)
        if self.name in ATTACKERS:
            step[[2, 3]] = (1.0 - self.share) * step[[2, 3]] + self.share * step[[3, 2]]
        own = np.random.default_rng([99, number]).normal(0, 0.05, (4, 6))
        drawn = np.random.default_rng([round, number]).normal(0, 0.02, (4, 6))
        return TrainedModel(
            parameters={"weight": parameters["weight"] + step + own + drawn, "bias": parameters["bias"]}, samples=10
        )
