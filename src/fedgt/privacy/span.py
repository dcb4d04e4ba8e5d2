"""The mean of the kept clients, as well as it can be had from what is revealed already: it costs no privacy at all.

The server holds sums u = A c of the local models c. Every combination b u is known to it, so none of them reveals anything
new. Among those that give weight 0 to the flagged clients and weight 1 in total, the nearest to the mean of the kept
clients is wanted.

*Nearest* is meant as an estimate. Client j trained on t_j of the kept samples, so its model scatters around the common one
with a variance proportional to 1 / t_j, independently of the others. A combination with client weights v then has the
variance sum v_j^2 / t_j, in units of the variance of the mean itself (v = t, where it is 1). As v and t both add up to 1,
the squared distance sum (v_j - t_j)^2 / t_j is just what the variance exceeds 1 by: the nearest vector is the one of least
variance. In this metric the condition of total weight 1 reads <v, t> = <t, t>, so that the answer is the projection p of t
onto the span, scaled: v = p / <p, p>. With equal weights the metric is the Euclidean one, up to a factor.

Weight 0 on a flagged client is exact. The combinations that miss the flagged clients are found by elimination in integers,
and only the choice among them is made in floating point: a rounding error moves the answer within them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError
from fedgt.privacy.support import combinations_within, exact_rows
from fedgt.types import FloatArray, as_array, as_numbers, frozen

_AT_ZERO = 1e-9  # client weights below this part of their target count as at their bound: made exactly zero
_RANK_TOLERANCE = 1e-11
_HALF = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpanMean:
    """A combination of revealed sums that stands in for the mean of the kept clients.

    Attributes:
        coefficients: b, exactly: element i multiplies the revealed sum i (the sum, not its mean).
        weights: float64[clients], b A: what each local model weighs in it; they add up to 1, and those of the clients to
            avoid are exactly 0.
        distance: How far it is from the mean: the root of sum (weights - target)^2 / target, 0 if it is the mean.
        amplification: The variance of it over that of the mean, for independent clients: 1 + distance^2.
        negative: The total of the negative weights, 0 or less. A client with a negative weight is subtracted: what it did
            wrong enters with the other sign.

    Examples:
        >>> from fedgt.privacy import best_in_span
        >>> mean = best_in_span([[1, 1, 0, 0], [0, 0, 1, 1]], target=[1, 1, 1, 1], forbidden=[0])
        >>> mean.weights.tolist(), [str(part) for part in mean.coefficients]
        ([0.0, 0.0, 0.5, 0.5], ['0', '1/2'])
    """

    coefficients: tuple[Fraction, ...]
    weights: FloatArray
    distance: float
    amplification: float
    negative: float

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "weights", frozen(self.weights, np.float64))


def best_in_span(
    rows: npt.ArrayLike,
    *,
    target: npt.ArrayLike,
    forbidden: Iterable[int] = (),
    nonnegative: bool = False,
) -> SpanMean | None:
    """The best stand-in for the mean of the kept clients that is a combination of revealed sums.

    Args:
        rows: float or int [aggregates, clients], the real weights of the revealed sums of one set of local models.
        target: float [clients], the weight of each kept client in the mean that is wanted, such as its number of samples;
            they are divided by their total. Clients with target 0 get weight 0.
        forbidden: Clients that must have weight 0 although `target` names them.
        nonnegative: No client may have a negative weight.

    Returns:
        None when no such combination exists: whatever avoids these clients has total weight 0, or needs negative weights.

    Raises:
        ShapeError: If the rows are no finite matrix, the target is no non-negative vector with one entry per client, a
            forbidden client is out of range, or nobody is left.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.privacy import best_in_span
        >>> rows = named_design("bch-15x8").matrix
        >>> mean = best_in_span(rows, target=np.ones(15), forbidden=[2])
        >>> round(mean.distance, 3), float(mean.weights[2])
        (0.5, 0.0)
    """
    array = as_array(rows, "revealed rows")
    if array.ndim != 2 or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise ShapeError(f"revealed rows must be a finite aggregates x clients array, got shape {array.shape}")
    wanted = _target(target, forbidden, array.shape[1])
    if not array.any():
        return None
    exact, scales = exact_rows(array)
    avoided = wanted == 0
    while True:
        found = _nearest(exact, wanted, avoided, nonnegative=nonnegative)
        if found is None or not nonnegative:
            break
        below = np.array([v < 0 for v in _weights(exact, found)])
        if not below.any():
            break
        avoided = avoided | below  # at their bound but for a rounding error
    if found is None:
        return None
    weights = np.array([float(v) for v in _weights(exact, found)])
    kept = wanted > 0
    distance = float(np.sqrt(((weights[kept] - wanted[kept]) ** 2 / wanted[kept]).sum()))
    return SpanMean(
        # The rows were scaled to integers; the caller multiplies the sums as given.
        coefficients=tuple(b * scale for b, scale in zip(found, scales, strict=True)),
        weights=weights,
        distance=distance,
        amplification=1.0 + distance**2,
        negative=float(np.minimum(weights, 0.0).sum()),
    )


def _target(target: npt.ArrayLike, forbidden: Iterable[int], clients: int) -> FloatArray:
    wanted = as_numbers(target, "target")
    if wanted.shape != (clients,) or not np.isfinite(wanted).all() or (wanted < 0).any():
        raise ShapeError(
            f"the target must hold one finite weight >= 0 for each of the {clients} clients of the revealed rows, got shape "
            f"{wanted.shape}"
        )
    avoid = sorted(set(forbidden))
    if any(not 0 <= client < clients for client in avoid):
        raise ShapeError(f"forbidden clients {avoid}: clients are numbered 0 to {clients - 1}")
    wanted[avoid] = 0.0
    if not wanted.any():
        raise ShapeError("nobody is left to take the mean of: every client is forbidden or has target 0")
    normalised: FloatArray = wanted / wanted.sum()
    return normalised


def _nearest(
    exact: Sequence[Sequence[int]], wanted: FloatArray, avoided: npt.NDArray[np.bool_], *, nonnegative: bool
) -> tuple[Fraction, ...] | None:
    """Coefficients over the integer rows; their total client weight is exactly 1."""
    basis, combinations = combinations_within(exact, np.flatnonzero(~avoided).tolist())
    totals = [sum(vector) for vector in basis]
    if not any(totals):
        return None
    allowed = ~avoided
    largest = [max(abs(v) for v in vector) for vector in basis]
    # Integers of any size become floats once each row is divided by its largest entry.
    scaled = np.array([[v / m for v in vector] for vector, m in zip(basis, largest, strict=True)])
    metric = np.sqrt(wanted[allowed])
    across = (scaled[:, allowed] / metric).T  # columns span what is open to choice, in coordinates with a plain metric
    choice = np.linalg.lstsq(across, metric, rcond=None)[0]
    projection = across @ choice
    choice = choice / (projection @ metric)
    if nonnegative and (across @ choice < _AT_ZERO * metric).any():
        never = _never_positive(scaled[:, allowed])
        if never.all():
            return None
        if never.any():
            grown = avoided.copy()
            grown[np.flatnonzero(allowed)[never]] = True
            return _nearest(exact, wanted, grown, nonnegative=True)
        bound = _at_bound(across, metric, across @ choice)
        if bound is None:
            return None
        if bound.any():  # without the clients at their bound the problem has no bounds left
            grown = avoided.copy()
            grown[np.flatnonzero(allowed)[bound]] = True
            return _nearest(exact, wanted, grown, nonnegative=False)
    exactly = [Fraction(float(y)) / m for y, m in zip(choice, largest, strict=True)]
    total = sum((y * t for y, t in zip(exactly, totals, strict=True)), Fraction(0))
    if total == 0:  # pragma: no cover - the floating-point total is 1
        return None
    return tuple(
        sum((y * b[i] for y, b in zip(exactly, combinations, strict=True)), Fraction(0)) / total
        for i in range(len(exact))
    )


def _never_positive(span: FloatArray) -> npt.NDArray[np.bool_]:
    """Which clients have weight 0 in every combination without negative weights.

    Combinations can be scaled up, so the greatest sum of t with t <= v, 0 <= t <= 1 has t_j = 1 for all others. Without
    these clients some combination is positive for everybody, and `_at_bound` does not have to find a needle.
    """
    from scipy.optimize import (
        linprog,
    )  # not for sites: a process starts for each of their messages, and needs none of it

    vectors, clients = span.shape
    solved = linprog(
        np.concatenate([np.zeros(vectors), -np.ones(clients)]),
        A_ub=np.hstack([-span.T, np.eye(clients)]),
        b_ub=np.zeros(clients),
        bounds=[(None, None)] * vectors + [(0.0, 1.0)] * clients,
    )
    never: npt.NDArray[np.bool_] = solved.x[vectors:] < _HALF
    return never


def _at_bound(across: FloatArray, metric: FloatArray, nearest: FloatArray) -> npt.NDArray[np.bool_] | None:
    """Which clients have weight 0 in the nearest combination without negative weights; None if there is none.

    With N an orthonormal basis of the moves that keep the total, minimise |x| such that nearest + N x >= 0: least distance
    programming, solved by one non-negative least-squares problem (Lawson and Hanson, Solving Least Squares Problems, 1974,
    chapter 23).
    """
    from scipy.linalg import qr
    from scipy.optimize import nnls

    orthonormal, triangle, _ = qr(across, mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    orthonormal = orthonormal[:, size > _RANK_TOLERANCE * size[0]]
    along = orthonormal.T @ metric  # the total of each direction
    moves = orthonormal @ qr(along[:, None])[0][:, 1:]
    system = np.vstack([moves.T, -nearest[None]])
    wanted = np.zeros(len(system))
    wanted[-1] = 1.0
    multipliers, _ = nnls(system, wanted, maxiter=30 * system.shape[1])
    residual = system @ multipliers - wanted
    if -residual[-1] < _RANK_TOLERANCE:
        return None
    bound: npt.NDArray[np.bool_] = nearest + moves @ (-residual[:-1] / residual[-1]) < _AT_ZERO * metric
    return bound


def _weights(exact: Sequence[Sequence[int]], coefficients: Sequence[Fraction]) -> list[Fraction]:
    return [
        sum((b * row[j] for b, row in zip(coefficients, exact, strict=True) if row[j]), Fraction(0))
        for j in range(len(exact[0]))
    ]
