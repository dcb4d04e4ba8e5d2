"""How much of what is particular to a client the opened sums explain: what r does not say.

r counts whom an *exact* combination mixes. A server that *estimates* does better. Let u_j be the update of client j (one
entry of it), w_j its weight in the sums, W the total. What is particular to it is its difference from the weighted mean,

    d_j = u_j - sum_i w_i u_i / W,    d = C u  with  C = I - 1 w' / W.

Let clients differ independently and equally around a mean that nobody knows. Whoever knows the weighted mean and nothing
else guesses u_j with the error variance (C C')_jj. Whoever knows the sums A u guesses it with that of the best linear
estimate that is right in the mean. The share is by how much that is less:

    1 - min |e_j - v|^2 / (C C')_jj    over the v of the row space of A whose entries sum to 1.

Where the sum over everybody is among the combinations of the rows, this is the part of the variance of d that A d explains,
diag(C C' A' (A C C' A')+ A C C') / diag(C C'), and with equal weights C C' = C. A singular value decomposition gives the
minimum, whatever the rank.

docs/disclosed-share.md derives it, and compares it with what is really recovered.
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

from fedgt.deadline import NEVER, Deadline
from fedgt.errors import PrivacyError, ShapeError
from fedgt.types import LARGEST_COEFFICIENT, FloatArray, IntArray

MAX_SETS = 20_000
"""Sets of colluders that are tried; with more, no worst case is stated."""

_INDEPENDENT = 1e-11  # of a row of length 1: below it a row is a combination of the others, up to rounding
_EXCEEDS = 1e-9  # a share above a limit by less is rounding
_DIGITS = 12  # behind the point: what follows is rounding
_CHUNK = 1_000_000  # array elements held at once


@dataclass(frozen=True, slots=True, kw_only=True)
class DisclosedShare:
    """What opened sums explain of every client. An average estimate, not a bound.

    Attributes:
        shares: For each client, from 0 (nothing but the mean) to 1 (its update is known); 0 for a client in no sum.
        members: The clients that are in some sum, ascending 0-based numbers.
        colluding: How many clients help the server at most; each share is the worst over who they are.

    Examples:
        >>> from fedgt.privacy import disclosed_share
        >>> disclosed_share([[1, 1, 0, 0], [0, 0, 1, 1]]).shares
        (0.333333333333, 0.333333333333, 0.333333333333, 0.333333333333)
    """

    shares: tuple[float, ...]
    members: tuple[int, ...]
    colluding: int

    @property
    def largest(self) -> float:
        """The share of the client that is disclosed most."""
        return max(self.shares)

    @property
    def client(self) -> int:
        """Who that is; the first of several."""
        return self.shares.index(self.largest)

    @property
    def mean(self) -> float:
        """Over the clients that are in some sum."""
        return round(float(np.mean([self.shares[j] for j in self.members])), _DIGITS)

    def exceeds(self, limit: float) -> bool:
        """Whether some client's share is above a limit, by more than rounding."""
        return self.largest > limit + _EXCEEDS


def disclosed_share(
    rows: npt.ArrayLike, *, weights: npt.ArrayLike | None = None, colluding: int = 0, deadline: Deadline = NEVER
) -> DisclosedShare | None:
    """The share of every client's particular update that sums of the same local models explain.

    It assumes that clients differ equally and independently. Where they do not, such as when a class is at one client
    only, a client may be known better than its share says. Colluders know their own updates: their columns are deleted,
    and what is left is about the others and their mean.

    Args:
        rows: float or int [aggregates, clients]: the real weights of everything revealed about one set of local models.
        weights: float[clients], above 0, of the mean from which clients differ: those without any coefficient. If they are
            not known, the smallest entry of each column that is not 0, which is too large where all rows multiply it.
        colluding: c. Every set of up to c clients is tried, and each of the others has the share of its worst case.
        deadline: When to give up on them: a part of the sets would state too little.

    Returns:
        None when nothing is revealed (no rows, or only zero rows).

    Raises:
        ShapeError: If the rows are no finite matrix, the weights do not fit, or c is out of range.
        PrivacyError: If there are more than `MAX_SETS` sets of colluders.
        OutOfTimeError: If the deadline passed.

    Examples:
        >>> from fedgt import named_design
        >>> from fedgt.privacy import disclosed_share
        >>> share = disclosed_share(named_design("bch-15x8").matrix)
        >>> round(share.mean, 2), round(share.largest, 2)
        (0.49, 0.73)
    """
    array = np.asarray(rows)
    if array.ndim != 2 or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise ShapeError(
            f"revealed rows must be a finite aggregates x clients array, got shape {array.shape} of {array.dtype}"
        )
    if not 0 <= colluding < max(array.shape[1], 1):
        raise ShapeError(f"{colluding} colluding clients of {array.shape[1]}; 0 to {array.shape[1] - 1} is needed")
    if not array.any():
        return None
    array = np.unique(
        array.astype(np.float64), axis=0
    )  # in one order, so that equal accounts are equal to the last bit
    clients = array.shape[1]
    members = np.flatnonzero(array.any(axis=0))
    mean = _lightest(array) if weights is None else np.asarray(weights, dtype=np.float64)
    if mean.shape != (clients,) or not np.isfinite(mean).all() or (mean[members] <= 0).any():
        raise ShapeError(f"weights of shape {mean.shape}; {clients} finite numbers above 0 are needed")
    # Colluders that are in no sum know nothing of it; of those in the sums somebody is left.
    helping = min(colluding, len(members) - 1)
    if not can_try(len(members), colluding):
        raise PrivacyError(
            f"{colluding} colluders of {len(members)} clients are more than {MAX_SETS} sets: the worst is not computed; ask "
            "for fewer colluders"
        )
    array, mean = array[:, members], mean[members]
    worst = np.zeros(len(members))
    for size in range(helping + 1):
        for left in _sets_left(len(members), size):
            deadline.check()
            np.maximum.at(worst, left, _shares(array, mean, left))
    shares = np.zeros(clients)
    shares[members] = worst
    return DisclosedShare(shares=tuple(shares.tolist()), members=tuple(members.tolist()), colluding=colluding)


def weights_behind(rows: FloatArray, announced: FloatArray) -> FloatArray | None:
    """The weights of the mean for sums whose entries are announced weights times coefficients.

    Args:
        rows: float[aggregates, clients], as for `disclosed_share`.
        announced: float[clients]: the weight of each client in every mean; 0 where it is not known.

    Returns:
        The announced weights, and the smallest entry of each column without one. None if some entry is no announced weight
        times a coefficient: then the sums have other weights, such as those of a Weiszfeld step or of another run.

    Examples:
        >>> import numpy as np
        >>> from fedgt.privacy.disclosed_share import weights_behind
        >>> weights_behind(np.array([[3.0, 2.0], [6.0, 0.0]]), np.array([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    known = announced > 0
    times = rows[:, known] / announced[known]
    if (times != np.rint(times)).any() or (times > LARGEST_COEFFICIENT).any():
        return None
    return np.where(known, announced, _lightest(rows))


def can_try(clients: int, colluding: int) -> bool:
    """Whether all sets of up to so many colluders can be tried."""
    return sum(comb(clients, size) for size in range(min(colluding, clients - 1) + 1)) <= MAX_SETS


def _lightest(rows: FloatArray) -> FloatArray:
    """float[clients]: the smallest entry of each column that is not 0; 1 for a column without any."""
    lightest: FloatArray = np.where(rows, np.abs(rows), np.inf).min(axis=0, initial=np.inf)
    return np.where(np.isfinite(lightest), lightest, 1.0)


def _sets_left(clients: int, colluding: int) -> list[IntArray]:
    """int64[sets, clients - colluding]: who is left beside each set of colluders, in batches."""
    left = np.array(list(combinations(range(clients), clients - colluding)), dtype=np.int64)
    step = max(1, _CHUNK // clients**2)
    return [left[start : start + step] for start in range(0, len(left), step)]


def _shares(rows: FloatArray, weights: FloatArray, left: IntArray) -> FloatArray:
    """float[sets, clients left]: the share of each client that is left, without the columns of the others."""
    if left.shape[1] == 1:  # it is alone with the sums: known
        return np.ones(left.shape)
    among = rows[:, left].transpose(1, 0, 2)
    length = np.linalg.norm(among, axis=2, keepdims=True)
    _, size, basis = np.linalg.svd(among / np.where(length > 0, length, 1.0), full_matrices=False)
    basis = basis * (size > _INDEPENDENT)[:, :, None]
    total = basis.sum(axis=2, keepdims=True)  # the vector of ones in the basis
    known, biased = (total**2).sum(axis=1), 1 - (total * basis).sum(axis=1)
    # The nearest vector of the row space, and what it takes to make its entries sum to 1.
    error = 1 - (basis**2).sum(axis=1) + biased**2 / np.where(known > _INDEPENDENT, known, 1.0)
    mean = weights[left] / weights[left].sum(axis=1, keepdims=True)
    variance = 1 - 2 * mean + (mean**2).sum(axis=1, keepdims=True)
    shares: FloatArray = np.clip(np.round(1 - error / variance, _DIGITS), 0.0, 1.0)
    return shares
