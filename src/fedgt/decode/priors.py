"""What is believed about the clients before the tests."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgt.errors import SpecError
from fedgt.types import FloatArray, as_count, as_numbers, frozen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IndependentPrior:
    """Clients are malicious independently, as in section IV.E of the paper.

    Attributes:
        prevalence: float64[clients]: P(d_j = 1), a probability from 0 to 1 for each client.

    Raises:
        SpecError: If a value is not a probability.

    Examples:
        >>> from fedgt.decode import IndependentPrior
        >>> IndependentPrior.uniform(4, 0.2).prevalence.tolist()
        [0.2, 0.2, 0.2, 0.2]
    """

    prevalence: FloatArray

    def __post_init__(self) -> None:
        """Freeze and check."""
        values = as_numbers(self.prevalence, "prevalence", error=SpecError)
        if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
            wrong = values[~((values >= 0) & (values <= 1))]
            raise SpecError(
                f"a prevalence is needed for each client, a probability from 0 to 1; got shape {values.shape}"
                + (f" with {wrong[0]}" if wrong.size else "")
            )
        object.__setattr__(self, "prevalence", frozen(values, np.float64))

    @classmethod
    def uniform(cls, clients: int, prevalence: float) -> "IndependentPrior":
        """The same prevalence for every client: delta of the paper."""
        return cls(prevalence=np.full(clients, prevalence))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountPrior:
    """The number of malicious clients has a distribution; given it, every set of that size is equally likely.

    Attributes:
        weights: float64[n_max + 1]: relative weight of n_m = 0..n_max; normalised to sum to 1.

    Raises:
        SpecError: If the weights are negative, not finite, or all zero.

    Examples:
        >>> from fedgt.decode import CountPrior
        >>> CountPrior.uniform(3).weights.tolist()  # 0 to 3 attackers, equally likely
        [0.25, 0.25, 0.25, 0.25]
    """

    weights: FloatArray

    def __post_init__(self) -> None:
        """Freeze, check and normalise."""
        values = as_numbers(self.weights, "weights", error=SpecError)
        if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any() or not values.any():
            raise SpecError("weights for n_m = 0..n_max are needed: finite, not negative, not all zero")
        scaled = values / values.max()  # so that huge weights do not overflow in the sum
        object.__setattr__(self, "weights", frozen(scaled / scaled.sum(), np.float64))

    @classmethod
    def uniform(cls, largest: int) -> "CountPrior":
        """Every number of malicious clients from 0 to `largest` is equally likely."""
        if not 0 <= as_count(largest, "largest") < _MOST_CLIENTS:
            raise SpecError(f"largest = {str(largest)[:20]} malicious clients; 0 to {_MOST_CLIENTS - 1} is needed")
        return cls(weights=np.ones(largest + 1))


_MOST_CLIENTS = 1_000_000

Prior = IndependentPrior | CountPrior


def log_or_minus_infinity(values: npt.ArrayLike) -> FloatArray:
    """Natural logarithm with log 0 = -inf and no warning."""
    array = np.asarray(values, dtype=np.float64)
    return np.log(array, out=np.full(array.shape, -np.inf), where=array > 0)
