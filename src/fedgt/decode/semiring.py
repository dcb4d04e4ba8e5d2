"""The three ways to add and multiply along a trellis: probabilities, their logarithms, and the best path only."""

from dataclasses import dataclass

import numpy as np

from fedgt.types import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Semiring:
    """What "sum" and "product" mean.

    Attributes:
        name: `linear`, `log` or `max`.
        add: The sum of two alternatives; its `reduce` sums along an axis.
        times: The product of two factors.
        zero: Neutral for `add`: the impossible event.
        one: Neutral for `times`.
    """

    name: str
    add: np.ufunc
    times: np.ufunc
    zero: float
    one: float

    def from_log(self, values: FloatArray) -> FloatArray:
        """Logarithms as elements of this semiring."""
        return np.exp(values) if self.name == "linear" else values

    def total(self, values: FloatArray) -> FloatArray:
        """The sum along the last axis."""
        if self.name == "log":  # a log-sum-exp in one sweep is much faster than adding pair by pair
            largest = values.max(axis=-1, keepdims=True)
            safe = np.where(np.isfinite(largest), largest, 0.0)
            summed = np.exp(values - safe).sum(axis=-1)
            logs: FloatArray = np.log(summed, out=np.full(summed.shape, -np.inf), where=summed > 0) + safe[..., 0]
            return logs
        result: FloatArray = self.add.reduce(values, axis=-1)
        return result


LINEAR = Semiring(name="linear", add=np.add, times=np.multiply, zero=0.0, one=1.0)
LOG = Semiring(name="log", add=np.logaddexp, times=np.add, zero=-np.inf, one=0.0)
MAX = Semiring(name="max", add=np.maximum, times=np.add, zero=-np.inf, one=0.0)
