"""Which sets of malicious clients graded evidence can never tell apart, exactly: the ties of a design.

With malicious clients d the expected group sums are u = mu 1 + theta P d, P_ij = a_ij w_j / sum_k a_ik w_k: level mu and
step theta > 0 are unknown, the sign being known because the utility orients it. Two sets d, e are tied when
P e = c P d + k 1 for some c > 0 and k: every u that one explains, the other explains as well.

Complements give opposite directions and are not tied. Without noise the best rule takes the smallest set of a tie; among
several smallest one is drawn uniformly. Its expected number of wrong (missed and falsely accused) clients judges the design.

Exactness. With B = A diag(w) and its row sums b, P e = c P d + k 1 is the same as B e = c B d + k b: scaling a group changes
nothing, so ties, like privacy, are a matter of the row space of B alone. Entry by entry, v_i b_m - v_m b_i (v = B d) removes
the level in integers; division by the greatest common divisor removes the step and keeps the sign. Before that a floating
key that provably lies within a tolerance for tied sets tells almost all sets apart; the integers decide about the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations
from math import comb
from typing import Any

import numpy as np

from fedgt.design import Design
from fedgt.errors import DesignError, ShapeError
from fedgt.types import BitArray, FloatArray, IntArray, frozen

MAX_SETS = 3_000_000
"""Sets that are enumerated at most (about 1 GB and some seconds)."""

_CHUNK = 1 << 17  # sets held in floating point at once


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ties:
    """All sets of at most `n_max` malicious clients, and which of them are tied.

    Attributes:
        sets: uint8[B, clients]: every set once, ascending in size, then in lexicographic order.
        label: int64[B]: the position of the first set of the same tie; a set that is tied with no other has its own.
        expected_wrong: float64[n_max + 1]: the expected number of missed and falsely accused clients, noise-free, when
            n_m = q clients drawn uniformly are malicious and a smallest set of the tie is accused.
        tied: int64[n_max + 1]: how many sets of each size are tied with another set of at most n_max clients.

    Examples:
        >>> from fedgt import named_design
        >>> from fedgt.planning import ties
        >>> ties(named_design("graded-15x10-b"), 3).expected_wrong.tolist()  # no two sets look alike
        [0.0, 0.0, 0.0, 0.0]
    """

    sets: BitArray
    label: IntArray
    expected_wrong: FloatArray
    tied: IntArray

    @property
    def n_max(self) -> int:
        """The size of the largest sets that were compared."""
        return len(self.tied) - 1

    @property
    def untied(self) -> int:
        """The largest q such that no set of at most q clients is tied with any other set of at most q clients."""
        sizes = self.sets.sum(axis=1)
        tied = self.label != np.arange(len(self.label))
        return int(sizes[tied].min()) - 1 if tied.any() else self.n_max


def ties(design: Design, n_max: int, *, weights: Sequence[int] | None = None) -> Ties:
    """Every tie among the sets of at most `n_max` malicious clients, exactly.

    Args:
        design: The groups. 15 clients with n_max = 7 take a few hundredths of a second, 30 with n_max = 5 half a second.
        n_max: The largest number of malicious clients, 0..clients.
        weights: Positive integers [clients]: the weight of each client in its group sums, such as its number of samples;
            None for equal weights.

    Raises:
        DesignError: If n_max is out of range, or there are more than 3 million sets.
        ShapeError: If the weights are not one positive integer per client.

    Examples:
        >>> from fedgt import named_design
        >>> from fedgt.planning import ties
        >>> found = ties(named_design("bch-15x8"), 3)
        >>> len(found.sets), found.tied.tolist()
        (576, [0, 2, 5, 15])
    """
    check_sets(design, n_max)
    rows = [[a * w for a, w in zip(row, check_weights(design, weights), strict=True)] for row in design.matrix.tolist()]
    sets, sizes = all_sets(design.clients, n_max)
    positions = _suspects(rows, sets)
    label = np.arange(len(sets))
    label[positions] = positions[_first_equal(_canonical(rows, sets[positions]))]
    count = np.bincount(label, minlength=len(sets))
    tied = count[label] > 1
    return Ties(
        sets=sets,
        label=frozen(label, np.int64),
        expected_wrong=frozen(_expected_wrong(sets, sizes, label, tied, n_max), np.float64),
        tied=frozen(np.bincount(sizes[tied], minlength=n_max + 1), np.int64),
    )


def set_count(clients: int, n_max: int) -> int:
    """The number of sets of at most `n_max` of the clients."""
    return sum(comb(clients, q) for q in range(n_max + 1))


def check_sets(design: Design, n_max: int) -> None:
    """Refuse a range of sets that does not exist or is too large to enumerate.

    Raises:
        DesignError: As `ties`.
    """
    if not 0 <= n_max <= design.clients:
        raise DesignError(
            f"n_max = {n_max} malicious clients for the {design.clients} clients of {design.name!r}; "
            f"0 to {design.clients} are possible"
        )
    count = set_count(design.clients, n_max)
    if count > MAX_SETS:
        most = max(q for q in range(n_max) if set_count(design.clients, q) <= MAX_SETS)
        raise DesignError(
            f"{count} sets of at most {n_max} of {design.clients} clients; at most {MAX_SETS} are compared exactly, "
            f"which n_max = {most} keeps"
        )


def check_weights(design: Design, weights: Sequence[int] | None, *, what: str = "weights") -> list[int]:
    """One positive integer per client, equal ones for None.

    Raises:
        ShapeError: As `ties`.
    """
    if weights is None:
        return [1] * design.clients
    given = list(weights)
    if len(given) != design.clients or any(w != int(w) or w < 1 for w in given):
        raise ShapeError(
            f"{len(given)} {what} {given[:8]} for {design.clients} clients; one positive integer per client is needed"
        )
    return [int(w) for w in given]


@lru_cache(maxsize=8)
def all_sets(clients: int, n_max: int) -> tuple[BitArray, IntArray]:
    """(uint8[B, clients], int64[B] sizes): every set of at most `n_max` clients, ascending in size, read-only."""
    sizes = np.repeat(np.arange(n_max + 1), [comb(clients, q) for q in range(n_max + 1)])
    members = chain.from_iterable(
        chain.from_iterable(combinations(range(clients), q)) for q in range(n_max + 1)
    )  # every member of every set, in order
    sets = np.zeros((len(sizes), clients), dtype=np.uint8)
    sets[np.repeat(np.arange(len(sizes)), sizes), np.fromiter(members, dtype=np.int64)] = 1
    sets.setflags(write=False)
    sizes.setflags(write=False)
    return sets, sizes


def _suspects(rows: list[list[int]], sets: BitArray) -> IntArray:
    """Ascending positions of all sets that could be tied: every tied set is among them.

    The key is a fixed unit combination of the differences of the entries of P d to the last one, divided by their norm. P is
    rounded correctly, so an entry of P d, at most 1, is off by less than 4 n eps, a difference of two by 8 n eps, their norm
    by 8 n m eps, the unit vector by twice that over its norm, and the key by no more. The keys of tied sets then differ by
    less than 32 n m eps over the norm; the tolerance is twice that. Sets with a small norm are compared exactly whatever
    their key.
    """
    share = np.array([[value / sum(row) for value in row] for row in rows])
    groups, clients = share.shape
    tolerance = 64.0 * clients * groups * np.finfo(np.float64).eps
    smallest_norm = 1e-4
    moving = share[:-1] - share[-1]
    combination = np.cos(1.0 + 1.7 * np.arange(len(moving)) ** 1.3)  # any fixed numbers without a pattern
    combination /= np.linalg.norm(combination) or 1.0
    keys = np.empty(len(sets))
    unsure = np.zeros(len(sets), dtype=np.bool_)
    for begin in range(0, len(sets), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        moves = sets[part].astype(np.float64) @ moving.T
        keys[part] = moves @ combination
        norm = np.sqrt(np.einsum("ij,ij->i", moves, moves))
        unsure[part] = norm < smallest_norm
        keys[part] /= np.maximum(norm, smallest_norm)
    order = np.argsort(keys)
    near = np.diff(keys[order]) <= tolerance / smallest_norm
    unsure[order[1:]] |= near
    unsure[order[:-1]] |= near
    positions: IntArray = np.flatnonzero(unsure)
    return positions


def _canonical(rows: list[list[int]], sets: BitArray) -> Any:
    """int64 or object [B, values]: equal rows exactly for tied sets.

    No value exceeds the square of the largest group weight; beyond 2^62 they are Python integers.
    """
    heaviest = max(sum(row) for row in rows)
    exact = np.array(rows, dtype=np.int64 if heaviest**2 < 2**62 else object)
    moves = sets.astype(exact.dtype) @ exact.T
    total = exact.sum(axis=1)
    moves = moves[:, :-1] * total[-1] - moves[:, -1:] * total[:-1]
    divisor = np.gcd.reduce(moves, axis=1) if moves.shape[1] else np.ones(len(moves), dtype=np.int64)
    return moves // np.where(divisor == 0, 1, divisor)[:, None]


def _first_equal(rows: Any) -> IntArray:
    """int64[B]: for each row the position of the first row that is equal to it."""
    if rows.dtype == object or not rows.shape[1]:
        first: dict[tuple[int, ...], int] = {}
        return np.array([first.setdefault(tuple(row), i) for i, row in enumerate(rows.tolist())], dtype=np.int64)
    odd = np.random.default_rng(0).integers(0, 2**63, size=rows.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    hashes = (rows.astype(np.uint64) * odd).sum(axis=1, dtype=np.uint64)  # modulo 2^64
    _, first_position, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    if not np.array_equal(rows, rows[first_position][inverse]):  # two rows share a hash: compare the rows themselves
        _, first_position, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    positions: IntArray = first_position[inverse.ravel()].astype(np.int64)
    return positions


def _expected_wrong(sets: BitArray, sizes: IntArray, label: IntArray, tied: Any, n_max: int) -> FloatArray:
    """float64[n_max + 1]: mean over sets d of a size of |d| + |e| - 2 |d and e|, e uniform among the smallest tied ones."""
    position = np.flatnonzero(tied)
    members = sets[position].astype(np.float64)
    _, group = np.unique(label[position], return_inverse=True)
    smallest = sizes[label[position]]  # the first of a tie is a smallest one: sets ascend in size
    among = sizes[position] == smallest
    # Per tie, the mean of its smallest sets: the share of them that hold each client.
    order = np.flatnonzero(among)[np.argsort(group[among], kind="stable")]
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    choice = np.zeros((0, sets.shape[1]))
    if len(order):
        totals = np.add.reduceat(members[order], starts, axis=0)
        choice = totals / np.diff(starts, append=len(order))[:, None]
    both = np.einsum("ij,ij->i", members, choice[group]) if len(order) else np.zeros(0)
    wrong = sizes[position] + smallest - 2.0 * both
    totals_by_size = np.bincount(sizes[position], weights=wrong, minlength=n_max + 1)
    mean: FloatArray = totals_by_size / np.bincount(sizes, minlength=n_max + 1)
    return mean
