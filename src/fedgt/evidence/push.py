"""How far suspects go along the way of everybody else: what no honest client does, whatever classes it owns.

Clients that own other classes differ in many directions, but not much along the mean update. One whose samples teach the
others nothing goes nowhere along it. Whoever sends its update five times goes more than three times as
far, and who turns it round goes backwards. Margins do not show that: a boosted backdoor makes the
classes look unevenly owned, so that margins were compared, which say nothing about a trigger.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedgt.evidence.contrast import contrasts, mean_of_others
from fedgt.types import BoolArray, FloatArray, frozen

BACKWARDS, AHEAD = -3.0, 0.15
"""Suspects that go twice as far backwards as the others go forwards, or so much further than their samples would carry them,
are not honest clients of other classes. Those went from -1.57 to -0.01 in the first round, in honest federations of seeds
300 to 335, and hospitals from -2.68 on in the fifth and tenth, on seeds 3100 to 3121; attackers with a backdoor who send
their update twice from 0.26 on, and five times from 1.58 on, on seeds 300 to 303 and 320 to 323."""

SELDOM = -2.0
"""Suspects that go as far backwards as the others go forwards are seldom honest, in the first round."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Push:
    """How far clients go along the mean update of the others, by the sums of one test round.

    Attributes:
        products: float64[groups, groups]: inner products of the mean updates of the groups.
        weights: float64[groups, clients], the real weight of each client in each of these sums.
        samples: float64[clients], sample counts.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import Push
        >>> rows, suspects = named_design("graded-15x10-b").matrix.astype(float), np.arange(15) < 3
        >>> clients = np.where(suspects, 5.0, 1.0)[:, None] * np.ones((15, 20))  # three send five times the update
        >>> push = Push.of_updates(rows @ clients / rows.sum(axis=1, keepdims=True), weights=rows, samples=np.ones(15))
        >>> nobody = np.zeros(15, dtype=bool)
        >>> round(push.along_mean(suspects, nobody), 6), push.beyond_honest(suspects, nobody)
        (4.0, True)
    """

    products: FloatArray
    weights: FloatArray
    samples: FloatArray

    def __post_init__(self) -> None:
        """Freeze."""
        for name in ("products", "weights", "samples"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))

    @classmethod
    def of_updates(cls, updates: FloatArray, *, weights: FloatArray, samples: FloatArray) -> Self:
        """By the mean update of each group, float64[groups, features]."""
        return cls(products=updates @ updates.T, weights=weights, samples=samples)

    def along_mean(self, suspects: BoolArray, aside: BoolArray) -> float:
        """By how much suspects differ from the mean update of the others, along it, in units of it.

        0 is as far as the others, -1 nowhere, 1 twice as far.

        Args:
            suspects: bool[clients].
            aside: bool[clients]: whose updates cancel, whatever they are.

        Returns:
            0 where the groups do not show it, or the others do not move.
        """
        parts = contrasts(self.weights, self.samples).without(aside)
        shift = parts.shifts[:, suspects].sum(axis=1)
        length = float(shift @ shift)
        if not length > 0:
            return 0.0
        # Combinations of the groups: what suspects differ by, and the mean without it.
        away = shift @ parts.transform / length
        shares = self.weights[:, suspects].sum(axis=1) / self.weights.sum(axis=1)
        mean = mean_of_others(self.weights, aside)
        others = mean - float(mean @ shares) * away
        size = float(others @ self.products @ others)
        return float(away @ self.products @ others) / size if size > 0 else 0.0

    def beyond_honest(self, suspects: BoolArray, aside: BoolArray) -> bool:
        """Whether suspects go along the mean update as no honest client does, whatever classes it owns.

        Clients with more samples make more steps, and get further with diminishing returns, as the square root
        (`contrasts`).

        Args:
            suspects: bool[clients].
            aside: bool[clients]: whose updates cancel, whatever they are.
        """
        return self._beyond(suspects, aside, BACKWARDS)

    def seldom_honest(self, suspects: BoolArray, aside: BoolArray) -> bool:
        """The same with the limit `SELDOM`: honest clients may go as far where the others hardly move any more."""
        return self._beyond(suspects, aside, SELDOM)

    def _beyond(self, suspects: BoolArray, aside: BoolArray, backwards: float) -> bool:
        if not suspects.any():
            return False
        push, others = self.along_mean(suspects, aside), ~(suspects | aside)
        usual = self.samples[others].mean() if others.any() else np.inf
        more = max(1.0, float(self.samples[suspects].max() / usual))
        return push <= backwards or push >= more**0.5 - 1.0 + AHEAD
