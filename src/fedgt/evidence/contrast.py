"""What is known about the noise of group means: their covariance follows from the design and the sample counts.

The model (decision 0010): client j's update is c_j = mu + d_j theta + e_j with d_j = 1 for malicious clients and
e_j ~ N(0, Psi / n_j) independent. The mean of group i is u_i = sum_j P_ij c_j with P_ij = a_ij w_j / sum_k a_ik w_k, so that
across groups the noise of every feature has covariance P diag(1/n_j) P^T up to a factor. A *contrast* is a combination of
group means in which mu cancels; the contrasts here are chosen so that their noise is independent and equal.

Clients with more samples make more steps in a round and get further along the common way, with diminishing returns, so that
mu is not the same for all: where sample counts differ, mu_j = mu + sqrt(n_j) nu, and nu must cancel too. Without that, sizes
of 1 : 20 look like malice.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedgt.errors import DesignError, ShapeError
from fedgt.types import BoolArray, FloatArray, as_numbers, frozen

_RANK = 1e-9
"""Directions with less than this fraction of the largest noise are combinations of groups that repeat each other."""

_UNEQUAL = 0.1
"""Progress that spreads by more than this is not the same for all."""

_NOTHING = 1e-9
"""A set moves nothing whose squared shift is at most this fraction of the largest of one client."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contrasts:
    """Group means with the common part removed and the noise made equal.

    Attributes:
        transform: float64[contrasts, groups]: contrasts = transform @ group means.
        shifts: float64[contrasts, clients]: how far the contrasts move, along theta, for each malicious client; in units in
            which the noise of one client of mean sample count is 1.
        noise: float64[contrasts, clients]: how far each client's own noise moves the contrasts, in units of its deviation.
            Rows are orthonormal.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import contrasts
        >>> parts = contrasts(named_design("graded-15x10-b").matrix, [100] * 15)
        >>> bool(np.allclose(parts.transform @ np.ones(10), 0.0))  # what is common to all groups cancels
        True
    """

    transform: FloatArray
    shifts: FloatArray
    noise: FloatArray

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "transform", frozen(self.transform, np.float64))
        object.__setattr__(self, "shifts", frozen(self.shifts, np.float64))
        object.__setattr__(self, "noise", frozen(self.noise, np.float64))

    @property
    def size(self) -> int:
        """The number of contrasts: the rank of the group means, less one, or less two where sample counts differ."""
        return len(self.transform)

    @property
    def clients(self) -> int:
        """The number of clients, n."""
        return int(self.shifts.shape[1])

    def without(self, clients: BoolArray) -> "Contrasts":
        """Those in which the updates of these clients, bool[clients], cancel, whatever they are."""
        left = cancelling(self.shifts, clients).T
        return Contrasts(transform=left @ self.transform, shifts=left @ self.shifts, noise=left @ self.noise)


def contrasts(weights: npt.ArrayLike, samples: npt.ArrayLike) -> Contrasts:
    """The contrasts of a test round.

    Args:
        weights: float[groups, clients]: the real weight of each client in each opened sum, 0 for those not in it. Of a
            combination of sums some may be negative, their total must not. Groups that were not opened are left out.
        samples: float[clients]: n_j, for the noise 1/n_j; positive where a client is in some group.

    Returns:
        The contrasts; none where fewer than two different group means are open.

    Raises:
        ShapeError: If the shapes do not fit, a number is not finite, or the weights of a group have a negative total.
        DesignError: If a group is empty.

    Examples:
        >>> from fedgt import named_design
        >>> from fedgt.evidence import contrasts
        >>> parts = contrasts(named_design("graded-15x10-b").matrix, [100] * 15)
        >>> parts.size, parts.shifts.shape
        (9, (9, 15))
    """
    w, n = as_numbers(weights, "weights"), as_numbers(samples, "sample counts")
    if w.ndim != 2 or n.shape != w.shape[1:]:
        raise ShapeError(f"weights of shape {w.shape} with sample counts of shape {n.shape}; [m, n] and [n] are needed")
    taking_part, totals = (w != 0).any(axis=0), w.sum(axis=1)
    if not (np.isfinite(w).all() and (totals >= 0).all() and np.isfinite(n).all() and (n[taking_part] > 0).all()):
        raise ShapeError(
            "weights must be finite, with a total that is not negative, and the sample counts of all members positive"
        )
    if len(w) and (totals == 0).any():
        raise DesignError(
            f"group {int(np.flatnonzero(totals == 0)[0])} has no member (its weights are 0); leave it out"
        )
    none = np.zeros((0, len(n)))
    nothing = Contrasts(transform=np.zeros((0, len(w))), shifts=none, noise=none)
    if len(w) < 2:
        return nothing
    shares = w / w.sum(axis=1, keepdims=True)
    mean_count = float(n[taking_part].mean())
    deviations = np.sqrt(np.divide(mean_count, n, out=np.zeros_like(n), where=taking_part))
    left, scale, _ = np.linalg.svd(shares * deviations, full_matrices=False)
    rank = int((scale > _RANK * scale[0]).sum())
    whitening = left[:, :rank].T / scale[:rank, None]
    # mu enters every group mean with weight 1, nu with the mean progress of its members; contrasts are orthogonal to both.
    progress = np.sqrt(np.where(taking_part, n / mean_count, 1.0))
    cancelled = [np.ones(len(w))] + ([shares @ progress] if np.ptp(progress) > _UNEQUAL else [])
    directions, lengths, _ = np.linalg.svd(whitening @ np.stack(cancelled, axis=1))
    complement = directions[:, int((lengths > _RANK * lengths[0]).sum()) :]
    if not complement.shape[1]:
        return nothing
    transform = complement.T @ whitening
    return Contrasts(transform=transform, shifts=transform @ shares, noise=transform @ (shares * deviations))


def cancelling(shifts: FloatArray, clients: BoolArray) -> FloatArray:
    """float64[contrasts, rest]: orthonormal combinations of contrasts in which the updates of these clients cancel.

    Whatever they send, it cancels as the common model does; each of them costs one contrast.

    Args:
        shifts: float64[contrasts, clients]; see `Contrasts`.
        clients: bool[clients].
    """
    if not clients.any():
        return np.eye(len(shifts))
    directions, lengths, _ = np.linalg.svd(shifts[:, clients])
    return directions[:, int((lengths > _RANK * lengths.max(initial=0.0)).sum()) :]


def mean_of_others(weights: FloatArray, out: BoolArray) -> FloatArray:
    """float64[groups]: the combination of group means, of total 1, in which some clients cancel: the shortest one.

    Args:
        weights: float64[groups, clients], the real weight of each client in each sum.
        out: bool[clients]: who cancels. Nobody: then it is the plain mean.
    """
    if not out.any():
        return np.full(len(weights), 1.0 / len(weights))
    shares = weights / weights.sum(axis=1, keepdims=True)
    conditions = np.concatenate([np.ones((1, len(weights))), shares[:, out].T])
    wanted = np.zeros(len(conditions))
    wanted[0] = 1.0
    combination: FloatArray = np.linalg.lstsq(conditions, wanted, rcond=None)[0]
    return combination


class Moved(NamedTuple):
    """How far sets of clients move the contrasts.

    Attributes:
        along: float64[B, contrasts]: the sum of the columns of `shifts`.
        squared: float64[B]: its squared length; 1 where it is nothing.
        spread: float64[B]: the summed squared lengths of the columns, in units of it.
        able: bool[B]: whether it is something.
    """

    along: FloatArray
    squared: FloatArray
    spread: FloatArray
    able: BoolArray


def moved(shifts: FloatArray, sets: BoolArray | FloatArray) -> Moved:
    """How far each set moves the contrasts: the same for all lines through them, and for the losses.

    Args:
        shifts: float64[contrasts, clients]; see `Contrasts`.
        sets: bool[B, clients].
    """
    # Float products, not boolean ones, so that the linear algebra library does them.
    members = np.asarray(sets, dtype=np.float64)
    along = members @ shifts.T
    squared = np.einsum("bk,bk->b", along, along)
    lengths = np.einsum("kj,kj->j", shifts, shifts)
    able = squared > _NOTHING * lengths.max(initial=0.0)
    squared[~able] = 1.0
    return Moved(along, squared, members @ lengths / squared, able)
