"""Evidence about sets of clients that push each in a direction of its own, with nothing in common.

Independent noise makes no line, and neither do attackers who each aim at another label. But whoever pushes puts energy into
the groups that it sits in, and into no others. With the columns s_j of `shifts` (see `Contrasts`) the contrasts then have a
covariance proportional to

    V = I + t sum over the set of s_j s_j^T        (t: how much more energy a member has than an honest client),

and their Gram matrix G has the likelihood that `sphericity` gives, with its effective features and its scale learnt from G.
Honest clients of one population have nearly equal energies, so t begins far above what they differ by. Where clients own
different classes their energies differ by nature: there this evidence is not asked.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from fedgt.evidence.line import TEMPER, log_sum
from fedgt.evidence.sphericity import sphericity
from fedgt.types import BoolArray, FloatArray, IntArray, frozen

RATIOS = 10.0 ** np.arange(1.0, 5.01, 0.5)
"""Values of t, log-uniform. Of honest clients of one population none was above 1.3 times the median of their energies."""

STANDS_OUT = 3.0
"""Energies that are all below this many times their median, as non-negative least squares give them, are not looked at."""

_LEAST = 1e-9
"""What a set leaves of the energy, and eigenvalues, are raised to this fraction: repetitions are no infinite evidence."""

_STEP = 1 << 13


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ApartEvidence:
    """How well each set explains the contrasts, if its members push each for itself. Implements `SetEvidence`.

    Attributes:
        gram: float64[contrasts, contrasts], Y Y^T of the contrasts Y.
        shifts: float64[contrasts, clients]; see `Contrasts`.
        features: The number of features that Y has.
        power: To which likelihoods are raised, where several tests say partly the same.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import ApartEvidence, contrasts
        >>> rows, rng = named_design("graded-15x10-b").matrix, np.random.default_rng(0)
        >>> parts = contrasts(rows, [100] * 15)
        >>> clients = rng.normal(size=(15, 400))
        >>> clients[[2, 9]] *= 8.0  # two send noise
        >>> moved = parts.transform @ (rows @ clients / rows.sum(axis=1, keepdims=True))
        >>> evidence = ApartEvidence(gram=moved @ moved.T, shifts=parts.shifts, features=400)
        >>> two, others = np.isin(np.arange(15), [2, 9]), np.arange(15) < 2
        >>> (evidence.log_likelihood(np.stack([two, others, two & others])) > 3.0).tolist()
        [True, False, False]
    """

    gram: FloatArray
    shifts: FloatArray
    features: int
    power: float = 1.0

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "gram", frozen(self.gram, np.float64))
        object.__setattr__(self, "shifts", frozen(self.shifts, np.float64))

    def energies(self) -> FloatArray:
        """float64[clients]: of each client's own push, 0 or above, in units of all that is seen.

        The Gram matrix of independent pushes is sum over j of energy_j s_j s_j^T in the mean: non-negative least squares.
        """
        columns = np.einsum("kj,lj->klj", self.shifts, self.shifts).reshape(-1, self.shifts.shape[1])
        found: FloatArray = nnls(columns, self.gram.ravel() / np.trace(self.gram))[0]
        return found

    def stands_out(self) -> bool:
        """Whether some client has far more energy than most."""
        energies = self.energies()
        return bool(energies.max(initial=0.0) > STANDS_OUT * float(np.median(energies)))

    def log_likelihood(self, sets: BoolArray) -> FloatArray:
        """float64[B]: tempered log-likelihood ratio of each set against noise; 0 for the empty set.

        Args:
            sets: bool[B, clients].
        """
        k, total = len(self.gram), float(np.trace(self.gram))
        values = np.linalg.eigvalsh(self.gram)
        volume = float(np.log(np.maximum(values, _LEAST * total / k)).sum())
        table = sphericity(k, self.features)
        nobody = float(table.log_evidence(np.array([volume - k * np.log(total / k)]))[0])
        columns, met = self.shifts.T @ self.shifts, self.shifts.T @ self.gram @ self.shifts
        result = np.zeros(len(sets))
        sizes = sets.sum(axis=1)
        for size in np.unique(sizes[sizes > 0]).tolist():
            chosen = np.flatnonzero(sizes == size)
            for start in range(0, len(chosen), _STEP):
                part = chosen[start : start + _STEP]
                lengths, along = _stretched(columns, met, np.nonzero(sets[part])[1].reshape(len(part), size))
                terms = np.empty((len(RATIOS), len(part)))
                for row, ratio in enumerate(RATIOS):
                    left = total - (ratio * along / (1.0 + ratio * lengths)).sum(axis=1)
                    left = np.maximum(left, _LEAST * total)
                    terms[row] = table.log_evidence(
                        volume - np.log1p(ratio * lengths).sum(axis=1) - k * np.log(left / k)
                    )
                result[part] = TEMPER * (log_sum(terms) - np.log(len(RATIOS)) - nobody)
        return self.power * result


def _stretched(columns: FloatArray, met: FloatArray, clients: IntArray) -> tuple[FloatArray, FloatArray]:
    """The directions that sets stretch: float64[B, size] their squared lengths, and the energy that is met along them.

    With C the columns of a set, V stretches along the eigenvectors of C C^T, which are C times those of C^T C.
    """
    pairs = clients[:, :, None], clients[:, None, :]
    lengths, axes = np.linalg.eigh(columns[pairs])
    along = np.einsum("bij,bij->bj", axes, met[pairs] @ axes)
    return np.maximum(lengths, 0.0), along
