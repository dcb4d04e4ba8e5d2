"""How likely is a scatter matrix of contrasts, when neither the noise scale nor its number of dimensions is known?

The contrasts Y [k, features] have independent rows under the null hypothesis; their Gram matrix G = Y Y^T is treated as a
Wishart matrix of k dimensions with D degrees of freedom, where D is the *effective* number of independent features (many
features of a model move together). With the scale integrated out under the prior d(s^2)/s^2, the likelihood of a covariance
proportional to V depends on G only through Mauchly's sphericity statistic (Mauchly 1940) of V^-1/2 G V^-1/2,

    x = log det(V^-1 G) - k log(tr(V^-1 G) / k) <= 0,    log p(G | V, D) = D x / 2 + c(D) + (a term without V and D).

D is integrated out under a log-uniform prior from k to the number of features, so that it is learnt from how equal the
contrasts are: equal ones mean much independent evidence (IID clients), unequal ones little (heterogeneous clients).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from fedgt.errors import ShapeError
from fedgt.types import FloatArray, frozen

_POINTS = 64
"""Grid points over log D: the integrand is smooth on this scale."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sphericity:
    """log p(G | V) as a function of the sphericity statistic, and what it says about D.

    Attributes:
        contrasts: k.
        degrees: float64[points]: the grid over D.
        constants: float64[points]: c(D) plus the log-prior of each point.
    """

    contrasts: int
    degrees: FloatArray
    constants: FloatArray

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "degrees", frozen(self.degrees, np.float64))
        object.__setattr__(self, "constants", frozen(self.constants, np.float64))

    def log_evidence(self, statistic: FloatArray) -> FloatArray:
        """float64[...]: log p(G | V) up to a constant, for sphericity statistics of any shape."""
        x = np.asarray(statistic, dtype=np.float64)
        evidence: FloatArray = np.logaddexp.reduce(x[..., None] * (self.degrees / 2) + self.constants, axis=-1)
        return evidence

    def effective_features(self, statistic: float) -> float:
        """D: its posterior geometric mean."""
        weights = statistic * self.degrees / 2 + self.constants
        weights = np.exp(weights - weights.max())
        return float(np.exp(weights @ np.log(self.degrees) / weights.sum()))


@lru_cache(maxsize=64)
def sphericity(contrasts: int, features: int) -> Sphericity:
    """Prepare the evidence for k contrasts of a number of features.

    Raises:
        ShapeError: If there is no contrast, or there are not more features than contrasts.
    """
    if contrasts < 1 or features <= contrasts:
        raise ShapeError(
            f"{features} features of {contrasts} contrasts: at least one contrast and more features than contrasts are "
            "needed; take a larger classification layer, or fewer groups"
        )
    degrees = np.geomspace(contrasts + 0.5, features + 0.5, _POINTS)
    log_multigamma = contrasts * (contrasts - 1) / 4 * np.log(np.pi) + gammaln(
        degrees[:, None] / 2 - np.arange(contrasts) / 2
    ).sum(axis=1)
    constants = gammaln(degrees * contrasts / 2) - degrees * contrasts / 2 * np.log(contrasts) - log_multigamma
    return Sphericity(contrasts=contrasts, degrees=degrees, constants=constants - np.log(_POINTS))


def statistic(eigenvalues: FloatArray, first_divided_by: FloatArray) -> FloatArray:
    """float64[B]: the statistic x after the first eigenvalue was divided by each of these numbers (V along it), >= 1."""
    k = len(eigenvalues)
    log_determinant = float(np.log(eigenvalues).sum()) - np.log(first_divided_by)
    trace = eigenvalues[1:].sum() + eigenvalues[0] / first_divided_by
    x: FloatArray = log_determinant - k * np.log(trace / k)
    return x
