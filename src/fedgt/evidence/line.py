"""Evidence about whole sets of malicious clients: does the line along which the group means differ point to this set?

Under the model of `contrasts`, a set d of malicious clients moves the contrasts along theta by b = sum over d of the columns
of `shifts`, a known direction. What is observed is the leading eigenvector u of the Gram matrix of the contrasts. Its error
follows from the other eigenvalues: with signal-to-noise ratio L = (e_1 - e) / e (e the mean of the others) and D effective
features,

    variance of u per coordinate across = (1 + 1/L) / (D L)        (first-order perturbation theory).

Malicious clients need not push equally hard: client j of the set pushes with strength 1 + eps_j, eps_j ~ N(0, s^2), for a
few values of s; then u lies along b plus a vector in the span of the columns of d. The length along the line is integrated
out. How much evidence there is for *any* line against none comes from `sphericity`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln

from fedgt.evidence.contrast import Moved, moved
from fedgt.evidence.sphericity import Sphericity, sphericity, statistic
from fedgt.types import BoolArray, FloatArray, IntArray, frozen

STRENGTH_SPREADS = ((0.03, 0.6), (0.12, 0.3), (0.35, 0.1))
"""(standard deviation of the strengths of malicious clients relative to their mean, prior probability)."""

_SIGNALS = 10.0 ** np.arange(-0.5, 5.01, 0.5)
"""Signal-to-noise ratios of the line, log-uniform: below the smallest, poisoning changes less than training noise."""

TEMPER = 0.7
"""Power to which likelihoods are raised. Real training noise is not quite a Wishart matrix, a few directions stand out: the
full power named somebody in 3 of 10 runs without any attacker on small data, this one in none (docs/graded-evidence.md)."""

_FLOOR = 1e-9
"""Eigenvalues are raised to this fraction of their mean: exact repetitions must not become infinite evidence."""

_WORTH_WHILE = 25.0
"""Sets this many nats below the best, even if strengths could vary in every direction, are not looked at more closely."""

_ALL_CLOSELY, _MOST_CLOSELY = 8192, 1024
"""Up to the first number all sets that are scored at once are looked at more closely, as for 15 clients. Of more, as where
there are millions of sets, only the nearest ones: the others count with nearly equal strengths."""

_STEP = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShiftEvidence:
    """One line through the contrasts, and how well each set explains it. Implements `SetEvidence`.

    Attributes:
        shifts: float64[contrasts, clients]; see `Contrasts`.
        direction: float64[contrasts]: u, of unit length; its sign has no meaning.
        variance: Of u, per coordinate across, in one test; with the effective features tempered.
        signal: L, the signal-to-noise ratio of the line.
        effective_features: D.
        line: log-evidence, tempered, that the contrasts differ along some one line.
        nobody: log-evidence, tempered, that they are noise only.
        power: To which likelihoods are raised: the part of several tests that is new (`repeated`).
    """

    shifts: FloatArray
    direction: FloatArray
    variance: float
    signal: float
    effective_features: float
    line: float
    nobody: float
    power: float = 1.0

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "shifts", frozen(self.shifts, np.float64))
        object.__setattr__(self, "direction", frozen(self.direction, np.float64))

    def log_likelihood(self, sets: BoolArray) -> FloatArray:
        """float64[B]: log p(contrasts | exactly these are malicious), up to a constant.

        `nobody` for the empty set and for a set that moves no contrast: the sums are the same with and without it.
        """
        shift = moved(self.shifts, sets)
        likelihood: FloatArray = np.where(shift.able, self.line + self.explained(sets, shift), self.nobody)
        return likelihood

    def some(self) -> float:
        """By how many nats there is a line at all, against noise: no set has more evidence."""
        return self.line - self.nobody

    def scattered(self) -> float:
        """Log-density of a line in any direction, uniform over the sphere, less that of a perfect fit to a set.

        What honest clients make that differ along one direction more than along all others, as those of deep networks do.
        Raised to the power like all likelihoods: in further tests of the same groups it is no news that they lie so.
        """
        k = len(self.direction)
        half_sphere = np.log(np.pi) * k / 2 - gammaln(k / 2)
        return self.power * float((k - 1) / 2 * np.log(2 * np.pi * self.variance) - half_sphere)

    def raised(self, power: float) -> "ShiftEvidence":
        """The same with its likelihoods raised to a power."""
        return replace(
            self,
            line=power * self.line,
            nobody=power * self.nobody,
            power=power * self.power,
        )

    def towards(self, direction: FloatArray) -> "ShiftEvidence":
        """The evidence if the strongest line were another one, float64[contrasts], of unit length."""
        return replace(self, direction=direction)

    def explained(self, sets: BoolArray | FloatArray, shift: Moved | None = None) -> FloatArray:
        """float64[B]: log-density of the observed line under each set, less that of a perfect fit: about 0 or below.

        The empty set explains no line: -inf. So does a set that moves no contrast.

        Args:
            sets: bool[B, clients].
            shift: What `moved` says of them, if it is known.
        """
        members = np.asarray(sets, dtype=np.float64)
        along, squared, spread, able = moved(self.shifts, members) if shift is None else shift
        if not able.any():
            return np.full(len(members), -np.inf)
        k = len(self.direction)
        # As a difference of vectors, not of squares: what is left may be smaller than the rounding of a square.
        beside = self.direction - along * (along @ self.direction / squared)[:, None]
        across = np.einsum("bk,bk->b", beside, beside)
        # Strengths that vary in every direction, not only in the span of the set: more tolerant than any exact form.
        tolerant = -0.5 * across / (self.variance + STRENGTH_SPREADS[-1][0] ** 2 * spread)
        narrow = self.variance + STRENGTH_SPREADS[0][0] ** 2 / k * spread
        result: FloatArray = (
            -0.5 * across / narrow - 0.5 * (k - 1) * np.log(narrow / self.variance) + np.log(STRENGTH_SPREADS[0][1])
        )
        result[~able] = -np.inf
        close = np.flatnonzero(able & (tolerant > float(result.max()) - _WORTH_WHILE / self.power))
        for part, clients in looked_at_closely(members, close, tolerant):
            result[part] = log_sum(np.stack([result[part], self._with_strengths(clients, squared[part])]))
        # All of it, the chance of unequal strengths too: equal tests are to say no more together than one.
        return self.power * result

    def _with_strengths(self, clients: IntArray, squared: FloatArray) -> FloatArray:
        """float64[B]: the same with strengths that vary in the span of the set, for int64[B, size] and |b|^2, float64[B].

        Woodbury's identity, read off one orthogonalisation: of the columns of the set over |b| (on top of a ridge), their
        sum, and u. What is left of the sum and of u beside the columns are the two quadratic forms. Columns may repeat each
        other, as those of two clients of one group do: the ridge is a row of its own, which keeps every length positive.
        """
        size, k = clients.shape[1], len(self.direction)
        columns = self.shifts[:, clients.T] / np.sqrt(squared)
        energy = np.einsum("ksb,ksb->b", columns, columns)
        # One matrix in each place of the last axis: a few operations on long rows, for all sets together.
        stacked = np.empty((k + size, size + 2, len(clients)))
        terms = []
        for spread, probability in STRENGTH_SPREADS[1:]:
            ratio = self.variance / spread**2
            stacked[k:] = 0.0
            stacked[k + np.arange(size), np.arange(size)] = ratio**0.5
            stacked[:k, :size] = columns
            stacked[:k, size] = columns.sum(axis=1)
            stacked[:k, size + 1] = self.direction[:, None]
            left = _left_beside(stacked, k)
            log_determinant = np.log(left[:size] / ratio).sum(axis=0)
            # The sum is in the span: it is the ridge that leaves something, and at least so much.
            own = np.log(np.maximum(left[size], ratio / (energy + ratio)))
            terms.append(-0.5 * (left[size + 1] / self.variance + log_determinant + own) + np.log(probability))
        return log_sum(np.stack(terms))


def looked_at_closely(members: FloatArray, close: IntArray, scores: FloatArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Sets whose strengths may vary, in parts of one size: int64[B] which sets, int64[B, size] their clients.

    Args:
        members: float64[sets, clients] of 0 and 1: all sets that are scored at once.
        close: int64[...]: those that are near enough. Of many only those with the highest scores are looked at.
        scores: float64[sets].
    """
    if len(members) > _ALL_CLOSELY and len(close) > _MOST_CLOSELY:
        close = np.sort(close[np.argpartition(scores[close], -_MOST_CLOSELY)[-_MOST_CLOSELY:]])
    sizes = members[close].sum(axis=1).astype(np.int64)
    for size in np.unique(sizes).tolist():
        chosen = close[sizes == size]
        for start in range(0, len(chosen), _STEP):
            part = chosen[start : start + _STEP]
            yield part, np.nonzero(members[part])[1].reshape(len(part), size)


def log_sum(logs: FloatArray) -> FloatArray:
    """float64[B]: log of the sum of exp over the first axis; -inf where all are. Overwrites its argument.

    `numpy.logaddexp.reduce` does the same one element at a time, five times slower.
    """
    peak: FloatArray = logs.max(axis=0)
    logs -= np.where(peak > -np.inf, peak, 0.0)
    total = np.exp(logs, out=logs).sum(axis=0)
    with np.errstate(divide="ignore"):
        peak += np.log(total, out=total)
    return peak


def _left_beside(columns: FloatArray, top: int) -> FloatArray:
    """float64[order, B]: the squared length of what each column has beside those before it, for float64[rows, order, B].

    The modified Gram-Schmidt process: the same numbers as the pivots of the columns' Gram matrix, but with errors relative
    to the lengths and not to their squares, and never negative. Overwrites its argument. Below the rows `top` the columns
    are an upper triangle.
    """
    left = np.empty(columns.shape[1:])
    for done in range(len(left)):
        column, rest = columns[: top + done + 1, done], columns[: top + done + 1, done + 1 :]
        left[done] = np.einsum("rb,rb->b", column, column)
        share = np.einsum("rb,rcb->cb", column, rest) / left[done]
        for row in range(len(rest)):
            rest[row] -= column[row] * share
    return left


def shift_evidence(
    gram: FloatArray, shifts: FloatArray, *, features: int, effective_features: float | None = None
) -> ShiftEvidence | None:
    """Read the leading line off a Gram matrix of contrasts.

    Args:
        gram: float64[k, k], Y Y^T of the contrasts Y.
        shifts: float64[k, clients]; see `Contrasts`.
        features: The number of features that Y has.
        effective_features: D, where it is known from elsewhere.

    Returns:
        The evidence; None where all group means are equal, or fewer than two contrasts leave nothing to compare a line with.

    Raises:
        ShapeError: If there are not more features than contrasts.
    """
    if len(gram) < 2 or not np.trace(gram) > 0:
        return None
    values, vectors = np.linalg.eigh(gram)
    values, vectors = values[::-1], vectors[:, ::-1]
    values = np.maximum(values, _FLOOR * float(values.mean()))
    table = sphericity(len(values), features)
    return _line(values, vectors[:, 0], shifts, table, effective_features)


def line_evidence(grams: FloatArray, *, features: int) -> FloatArray:
    """float64[B]: by how many nats there is a line in each Gram matrix, against noise: `some` of `shift_evidence`.

    Args:
        grams: float64[B, k, k], Y Y^T of contrasts Y, k of at least 2; 0 where nothing differs.
        features: The number of features that Y has.

    Raises:
        ShapeError: If there are not more features than contrasts.
    """
    values = np.linalg.eigvalsh(grams)[:, ::-1]
    equal = ~(values.sum(axis=1) > 0)
    values[equal] = 1.0
    values = np.maximum(values, _FLOOR * values.mean(axis=1, keepdims=True))
    table = sphericity(values.shape[1], features)
    stretched = np.concatenate([np.ones(1), 1.0 + _SIGNALS])
    evidence = np.stack([table.log_evidence(statistic(one, stretched)) for one in values])
    line = np.logaddexp.reduce(evidence[:, 1:], axis=1) - np.log(len(_SIGNALS))
    some: FloatArray = np.where(equal, 0.0, TEMPER * (line - evidence[:, 0]))
    return some


def _line(
    values: FloatArray, direction: FloatArray, shifts: FloatArray, table: Sphericity, degrees: float | None
) -> ShiftEvidence:
    noise = float(values[1:].mean())
    signal = max((float(values[0]) - noise) / noise, float(_SIGNALS[0]))
    if degrees is None:
        degrees = table.effective_features(float(statistic(values, np.array([1.0 + signal]))[0]))
    line = table.log_evidence(statistic(values, 1.0 + _SIGNALS))
    nobody = table.log_evidence(statistic(values, np.ones(1)))
    return ShiftEvidence(
        shifts=shifts,
        direction=direction,
        variance=(1.0 + 1.0 / signal) / (TEMPER * degrees * signal),
        signal=signal,
        effective_features=degrees,
        line=TEMPER * float(np.logaddexp.reduce(line) - np.log(len(_SIGNALS))),
        nobody=TEMPER * float(nobody[0]),
    )
