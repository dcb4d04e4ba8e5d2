"""Evidence about whole sets of malicious clients where few features vary: the likelihood of the contrasts under each set.

`shift_evidence` asks how well a set explains the strongest line, and takes the error of that line from perturbation theory.
That holds while independent features outnumber contrasts. Where they do not, as when outputs of several test rounds are put
together, the strongest line is bent by noise more than the theory says. Here the likelihood is written down for each set
instead: under the model of `contrasts`, with theta normal in each of D independent features and strengths 1 + eps_j,
eps_j ~ N(0, sigma^2), the k contrasts have covariance s^2 V,

    V = I + t C (1 1^T + sigma^2 I) C^T        (C: the columns of `shifts` of the set, t the size of theta),

and with the noise scale integrated out under d(s^2)/s^2 their Gram matrix G has

    log p(G | V) = -D/2 log det V - k D/2 log(tr(V^-1 G) / tr G)    relative to V = I    (as in `sphericity`).
"""

from dataclasses import dataclass

import numpy as np

from fedgt.evidence.contrast import Moved, moved
from fedgt.evidence.line import STRENGTH_SPREADS, ShiftEvidence, log_sum, looked_at_closely
from fedgt.types import BoolArray, FloatArray, IntArray, frozen

_LEAST = 1e-9
"""What a set leaves of the contrasts' energy is raised to this fraction: exact repetitions are no infinite evidence."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FewFeatures:
    """What is known of the features beforehand.

    Attributes:
        effective: D, how many of them vary independently.
        power: To which likelihoods are raised.
        signals: float64[...]: signal-to-noise ratios t |b|^2 of a set's shift b, each as likely as the others.
    """

    effective: float
    power: float
    signals: FloatArray

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "signals", frozen(self.signals, np.float64))

    def line(self, gram: FloatArray, shifts: FloatArray) -> "ShiftLikelihood | None":
        """The evidence.

        Args:
            gram: float64[k, k], Y Y^T of the contrasts Y.
            shifts: float64[k, clients]; see `Contrasts`.

        Returns:
            None where all group means are equal, or there are fewer than two contrasts.
        """
        total = float(np.trace(gram))
        if len(gram) < 2 or not total > 0:
            return None
        values, vectors = np.linalg.eigh(gram)
        noise = max((total - float(values[-1])) / (len(gram) - 1), _LEAST * total)
        signal = max((float(values[-1]) - noise) / noise, float(self.signals.min()))
        # A shift along the strongest line itself: no set can do better.
        along = self.log_likelihood(
            np.log1p(self.signals)[:, None], _left(np.array([float(values[-1]) / total]), self.signals), len(gram)
        )
        return ShiftLikelihood(
            shifts=shifts,
            direction=vectors[:, -1],
            variance=(1.0 + 1.0 / signal) / (self.power * self.effective * signal),
            signal=signal,
            effective_features=self.effective,
            line=float(along[0]),
            nobody=0.0,
            gram=gram,
            features=self,
        )

    def log_likelihood(self, log_determinants: FloatArray, left: FloatArray, contrasts: int) -> FloatArray:
        """float64[B]: tempered log-likelihood ratio against noise, mean over the signals.

        Args:
            log_determinants: float64[signals, B] of V.
            left: float64[signals, B]: tr(V^-1 G) / tr G.
            contrasts: k.
        """
        terms = log_determinants + contrasts * np.log(np.maximum(left, _LEAST))
        terms *= -0.5 * self.effective
        ratio: FloatArray = self.power * (log_sum(terms) - np.log(len(terms)))
        return ratio


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShiftLikelihood(ShiftEvidence):
    """The likelihood of the contrasts under each set. Implements `SetEvidence`.

    `direction`, `variance` and `signal` are those of the strongest line; `nobody` is 0.

    Attributes:
        gram: float64[contrasts, contrasts].
        features: What is known of them.
    """

    gram: FloatArray
    features: FewFeatures

    def __post_init__(self) -> None:
        """Freeze."""
        ShiftEvidence.__post_init__(self)
        object.__setattr__(self, "gram", frozen(self.gram, np.float64))

    def towards(self, direction: FloatArray) -> ShiftEvidence:
        """The evidence if the strongest line were another one, float64[contrasts], of unit length."""
        return ShiftEvidence(
            shifts=self.shifts,
            direction=direction,
            variance=self.variance,
            signal=self.signal,
            effective_features=self.effective_features,
            line=self.line,
            nobody=self.nobody,
        )

    def explained(self, sets: BoolArray | FloatArray, shift: Moved | None = None) -> FloatArray:
        """float64[B]: log-likelihood of each set, less that of a shift along the strongest line: about 0 or below.

        The empty set explains no line: -inf. So does a set that moves no contrast.

        Args:
            sets: bool[B, clients].
            shift: What `moved` says of them, if it is known.
        """
        members = np.asarray(sets, dtype=np.float64)
        along, squared, _, able = moved(self.shifts, members) if shift is None else shift
        if not able.any():
            return np.full(len(members), -np.inf)
        signals, k = self.features.signals, len(self.gram)
        energies = np.einsum("bk,bk->b", along @ self.gram, along)
        share = np.clip(energies / squared / float(np.trace(self.gram)), 0.0, 1.0)
        result = self.features.log_likelihood(np.log1p(signals)[:, None], _left(share, signals), k)
        # The smallest spread of strengths is as good as none.
        result += np.log(STRENGTH_SPREADS[0][1])
        result[~able] = -np.inf
        columns, met = self.shifts.T @ self.shifts, self.shifts.T @ self.gram @ self.shifts
        for part, clients in looked_at_closely(members, np.flatnonzero(able), result):
            more = self._unequal(clients, squared[part], columns, met)
            result[part] = log_sum(np.concatenate([result[None, part], more]))
        result -= self.line
        return result

    def _unequal(self, clients: IntArray, squared: FloatArray, columns: FloatArray, met: FloatArray) -> FloatArray:
        """float64[spreads - 1, B]: the same with strengths that vary, for int64[B, size], the smallest spread left out.

        With R the symmetric root of 1 1^T + sigma^2 I, one eigendecomposition of R C^T C R serves all signals.
        """
        size, k = clients.shape[1], len(self.gram)
        pairs = clients[:, :, None], clients[:, None, :]
        inner, energy = columns[pairs], met[pairs] / float(np.trace(self.gram))
        scales = self.features.signals[:, None, None] / squared[:, None]
        terms = []
        for spread, probability in STRENGTH_SPREADS[1:]:
            root = spread * np.eye(size) + ((size + spread**2) ** 0.5 - spread) / size
            lengths, axes = np.linalg.eigh(root @ inner @ root)
            along = np.einsum("bij,bij->bj", axes, root @ energy @ root @ axes)
            stretched = 1.0 + scales * np.maximum(lengths, 0.0)
            left = 1.0 - (scales * along / stretched).sum(axis=2)
            ratio = self.features.log_likelihood(np.log(stretched).sum(axis=2), left, k)
            terms.append(ratio + np.log(probability))
        return np.stack(terms)


def _left(share: FloatArray, signals: FloatArray) -> FloatArray:
    """float64[signals, B]: tr(V^-1 G) / tr G where V stretches one direction, along which this share of the energy lies."""
    left: FloatArray = 1.0 - share * (signals / (1.0 + signals))[:, None]
    return left
