"""How many groups stay clean: counts over all sets of malicious clients (section III.B of the paper).

Everything follows from one histogram. For a set T of groups let free(T) be the number of clients in none of them. The
number of ways to place q malicious clients so that at least the groups of T stay negative is C(free(T), q); summing over
T by size gives the binomial moments of Z, the number of negative groups, and inclusion-exclusion gives its exact
distribution. All arithmetic on these counts is in Python integers.

Beyond 22 groups, P(all groups contaminated) still follows exactly from one pass over the clients where few groups are open
at once: a group matters only between its first member and its last. Elsewhere it is sampled, and carries a standard error.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb

import numpy as np

from fedgt.defaults import KAPPA
from fedgt.design.matrix import Design
from fedgt.errors import DesignError
from fedgt.types import BitArray, FloatArray, IntArray, as_number, frozen

MAX_GROUPS = 22
"""Counting over sets of groups visits all 2^m of them; beyond this it would take minutes and gigabytes."""

_MOST_TERMS = 3_000_000
"""Products of large integers of one count: a few seconds."""

_MOST_STATES = 1 << 25
"""Entries (states of open groups times numbers of malicious clients) of the pass over clients: 256 MiB."""
_MOST_CLIENTS = 1000
_MOST_SAMPLED = 10**9  # clients times groups times samples: some ten seconds
_CHUNK = 1 << 21  # array elements of one batch of samples


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contamination:
    """P(all groups contaminated | n_m) for every n_m (equation (prop_hist) of the paper), and how well it is known.

    Attributes:
        probability: float64[clients + 1]: element q is P(all groups contaminated | n_m = q).
        standard_error: float64[clients + 1]: of each, in the same unit; 0 where it was counted.
        exact: Whether every value was counted (float64 rounding apart) and none sampled.

    Examples:
        >>> from fedgt.design import contamination, named_design
        >>> found = contamination(named_design("bch-15x8"))
        >>> found.exact, round(float(found.probability[5]), 3)
        (True, 0.191)
    """

    probability: FloatArray
    standard_error: FloatArray
    exact: bool

    def max_malicious(self, kappa: float = KAPPA) -> int:
        """n_m^max: the largest n_m whose probability is at most kappa.

        A sampled probability counts with two standard errors added, so that n_m^max is not claimed by luck.

        Raises:
            DesignError: If kappa is not a probability.
        """
        _check_kappa(kappa)
        return int(np.flatnonzero(self.probability + 2.0 * self.standard_error <= kappa)[-1])


def countable(design: Design) -> bool:
    """Whether the negative groups can be counted exactly: at most 22 groups, or groups that share nobody.

    Examples:
        >>> from fedgt.design import countable, named_design
        >>> countable(named_design("cyclic-30x12"))
        True
    """
    return design.groups <= MAX_GROUPS or bool((design.matrix.sum(axis=0) <= 1).all())


def negative_group_counts(design: Design) -> tuple[tuple[int, ...], ...]:
    """The exact number of sets of q malicious clients that leave exactly z groups negative.

    Args:
        design: At most 22 groups.

    Returns:
        Element [q][z] for q = 0..clients and z = 0..groups; row q sums to C(clients, q).

    Raises:
        DesignError: If there are more than 22 groups and they overlap.

    Examples:
        >>> from fedgt.design import from_matrix, negative_group_counts
        >>> counts = negative_group_counts(from_matrix([[1, 1, 0, 0], [0, 0, 1, 1]]))
        >>> counts[1]  # one attacker always leaves one of two groups negative
        (0, 4, 0)
    """
    return _counts(design.matrix.tobytes(), design.groups, design.clients, design.name)


def negative_group_distribution(design: Design) -> FloatArray:
    """float64[clients + 1, groups + 1]: P(Z = z | n_m = q), the likelihood of equation (z_cond_nm) of the paper.

    Examples:
        >>> from fedgt.design import from_matrix, negative_group_distribution
        >>> chances = negative_group_distribution(from_matrix([[1, 1, 0, 0], [0, 0, 1, 1]]))
        >>> chances[2].round(3).tolist()  # two attackers: 0, 1 or 2 negative groups
        [0.667, 0.333, 0.0]
    """
    n = design.clients
    rows = [[count / comb(n, q) for count in row] for q, row in enumerate(negative_group_counts(design))]
    table: FloatArray = frozen(rows, np.float64)
    return table


def contamination(design: Design, *, rng: np.random.Generator | None = None, samples: int = 200_000) -> Contamination:
    """P(all groups contaminated | n_m) for all n_m of any design: counted where possible, else sampled.

    Args:
        design: m groups of n clients.
        rng: Draws the samples; without it a design that cannot be counted is refused.
        samples: Random orders of the clients; each serves every n_m at once.

    Raises:
        DesignError: If the design cannot be counted and no `rng` was given, or there are fewer than 2 samples.

    Examples:
        >>> from fedgt.design import contamination, from_matrix
        >>> contamination(from_matrix([[1, 1, 0, 0], [0, 0, 1, 1]])).probability.tolist()
        [0.0, 0.0, 0.6666666666666666, 1.0, 1.0]
    """
    if _counted_soon(design):
        counts = _contaminating_sets(design)
        exact = frozen([count / ways for count, ways in zip(counts, _ways(design.clients), strict=True)], np.float64)
        return Contamination(probability=exact, standard_error=_zeros(design.clients), exact=True)
    counted = _by_open_groups(design.matrix)
    if counted is not None:
        return Contamination(probability=frozen(counted, np.float64), standard_error=_zeros(design.clients), exact=True)
    if rng is None:
        raise DesignError(
            f"design {design.name!r} has {design.groups} groups of {design.clients} clients; exact counting visits all sets "
            f"of groups and is limited to {MAX_GROUPS} groups and some thousand clients, and too many groups overlap for a "
            "pass over the clients: give an rng to `contamination`, which then samples and states its error"
        )
    if samples < 2:
        raise DesignError(f"samples = {samples}; at least 2 are needed for a standard error")
    # Fewer samples of large designs, so that it ends: the standard error says how many there were.
    return _sampled(design, rng, min(samples, max(2, _MOST_SAMPLED // (design.clients * design.groups))))


def all_contaminated(design: Design) -> FloatArray:
    """float64[clients + 1]: P(all groups contaminated | n_m = q), q = 0..clients (equation (prop_hist) of the paper).

    Raises:
        DesignError: If it cannot be counted exactly; `contamination` samples it then.

    Examples:
        >>> from fedgt.design import all_contaminated, from_matrix
        >>> all_contaminated(from_matrix([[1, 1, 0, 0], [0, 0, 1, 1]])).round(3).tolist()
        [0.0, 0.0, 0.667, 1.0, 1.0]
    """
    return contamination(design).probability


def max_malicious(design: Design, kappa: float = KAPPA) -> int:
    """n_m^max: the largest n_m with P(all groups contaminated | n_m) <= kappa (equation (prop_hist) of the paper).

    Raises:
        DesignError: If kappa is not a probability, or the sets cannot be counted exactly.

    Examples:
        >>> from fedgt.design import max_malicious, named_design
        >>> max_malicious(named_design("bch-15x8"))
        5
        >>> max_malicious(named_design("bch-15x8"), kappa=0.5)  # bolder: some runs leave no group clean
        6
    """
    _check_kappa(kappa)
    if not _counted_soon(design):
        return contamination(design).max_malicious(kappa)
    limit, counts = Fraction(kappa), _contaminating_sets(design)
    return max(q for q, ways in enumerate(_ways(design.clients)) if counts[q] <= limit * ways)


def _check_kappa(kappa: float) -> None:
    if not 0.0 <= as_number(kappa, "kappa", error=DesignError) <= 1.0:
        raise DesignError(f"kappa = {kappa}; a probability from 0 to 1 is needed")


def _zeros(clients: int) -> FloatArray:
    nothing: FloatArray = frozen(np.zeros(clients + 1), np.float64)
    return nothing


def _contaminating_sets(design: Design) -> tuple[int, ...]:
    """Element q: the exact number of sets of q clients that contaminate every group.

    Inclusion-exclusion for Z = 0 alone: the histogram of free(T), each T counted with the sign of its size.
    """
    n = design.clients
    if design.groups > MAX_GROUPS:  # groups that share nobody
        return _disjoint_contaminating_sets(design.matrix)
    totals = [0] * (n + 1)
    for free, count in _signed(design):
        for q, ways in enumerate(_ways(free)):
            totals[q] += count * ways
    return tuple(totals)


def _signed(design: Design) -> list[tuple[int, int]]:
    """(free(T), how often it occurs with an even number of groups less with an odd one), where that is not 0."""
    free, sizes = _free_clients(design.matrix), _set_sizes(design.groups)
    even = np.bincount(free[sizes % 2 == 0], minlength=design.clients + 1)
    odd = np.bincount(free[sizes % 2 == 1], minlength=design.clients + 1)
    return [(f, count) for f, count in enumerate((even - odd).tolist()) if count]


def _counted_soon(design: Design) -> bool:
    """Whether the sets that contaminate every group can be counted in a few seconds."""
    if not countable(design):
        return False
    if design.groups > MAX_GROUPS:
        return design.clients**2 <= 3 * _MOST_TERMS
    return design.clients < _MOST_CLIENTS or sum(f + 1 for f, _ in _signed(design)) <= _MOST_TERMS


def _disjoint_contaminating_sets(a: BitArray) -> tuple[int, ...]:
    """Groups that share nobody: the product of the polynomials "at least one of its s members"."""
    sizes = a.sum(axis=1, dtype=np.int64).tolist()
    counts = list(_ways(a.shape[1] - sum(sizes)))
    for size in sizes:
        grown = [0] * (len(counts) + size)
        some = list(enumerate(_ways(size)))[1:]
        for q, count in enumerate(counts):
            if count:
                for hit, ways in some:
                    grown[q + hit] += count * ways
        counts = grown
    return tuple(counts)


def _ways(n: int) -> Iterator[int]:
    """C(n, 0), ..., C(n, n), each from the one before."""
    ways = 1
    for q in range(n + 1):
        yield ways
        ways = ways * (n - q) // (q + 1)


def _by_open_groups(a: BitArray) -> FloatArray | None:
    """float64[clients + 1], or None when too many groups are open at once, or 2^-clients leaves the range of float64.

    The array has one axis of length 2 for each open group (contaminated or not) and a last one for the number of malicious
    clients so far; it holds numbers of sets, halved at every client so that they stay in range. Terms are only ever added,
    so rounding stays at a few units of the last place per client.
    """
    n = a.shape[1]
    if n > _MOST_CLIENTS:
        return None
    order = min((np.arange(n), _banded_order(a)), key=lambda candidate: _most_open(a, candidate))
    if (n + 1) << _most_open(a, order) > _MOST_STATES:
        return None
    last = {group: int(np.flatnonzero(row[order])[-1]) for group, row in enumerate(a)}
    axes: list[int] = []
    metric = np.zeros(n + 1)
    metric[0] = 1.0
    for position, client in enumerate(order.tolist()):
        groups = np.flatnonzero(a[:, client]).tolist()
        for group in groups:
            if group not in axes:
                axes.insert(0, group)
                metric = np.stack([metric, np.zeros_like(metric)])
        hit = metric
        for group in groups:  # whatever the group was, now it is contaminated
            hit = hit.sum(axis=axes.index(group), keepdims=True)
        index = tuple(slice(1, 2) if group in groups else slice(None) for group in axes)
        metric = 0.5 * metric
        metric[(*index, slice(1, None))] += 0.5 * hit[..., :-1]
        for group in [group for group in axes if last[group] == position]:
            metric = np.take(metric, 1, axis=axes.index(group))  # a group that stayed negative counts no more
            axes.remove(group)
    totals = np.array([comb(n, q) / 2**n for q in range(n + 1)])
    probability: FloatArray = np.clip(metric / totals, 0.0, 1.0)
    return probability


def _banded_order(a: BitArray) -> IntArray:
    """Clients in an order of small bandwidth (reverse Cuthill-McKee of "who shares a group with whom")."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    members = csr_array(a.astype(np.int32))
    order: IntArray = np.asarray(
        reverse_cuthill_mckee((members.T @ members).tocsr(), symmetric_mode=True), dtype=np.int64
    )
    return order


def _most_open(a: BitArray, order: IntArray) -> int:
    """The most groups that are open at once when the clients come in this order."""
    n = a.shape[1]
    arranged = a[:, order] != 0
    change = np.zeros(n + 1, dtype=np.int64)
    np.add.at(change, arranged.argmax(axis=1), 1)
    np.add.at(change, n - arranged[:, ::-1].argmax(axis=1), -1)
    return int(np.cumsum(change).max())


def _sampled(design: Design, rng: np.random.Generator, samples: int) -> Contamination:
    """One random order of the clients gives one sample for every n_m: how many of the first make all groups contaminated."""
    n, a = design.clients, design.matrix
    needed = np.zeros(n + 1, dtype=np.int64)
    left = samples
    while left:
        rows = min(left, max(1, _CHUNK // n))
        left -= rows
        rank = np.argsort(rng.random((rows, n)), axis=1) + 1  # the place of each client in the order, from 1
        complete = np.zeros(rows, dtype=np.int64)
        for members in a:
            np.maximum(complete, rank[:, members != 0].min(axis=1), out=complete)
        needed += np.bincount(complete, minlength=n + 1)
    hits = np.cumsum(needed)
    probability = hits / samples
    # One imagined hit and miss more: a probability that was never seen is not known to be 0.
    smoothed = (hits + 1.0) / (samples + 2.0)
    error = np.sqrt(smoothed * (1.0 - smoothed) / samples)
    q = np.arange(n + 1)
    never = q * int(a.sum(axis=0).max()) < design.groups  # q clients sit in fewer groups than there are
    always = q > n - int(design.group_sizes.min())  # too few others are left to fill any group
    return Contamination(
        probability=frozen(np.where(never, 0.0, np.where(always, 1.0, probability)), np.float64),
        standard_error=frozen(np.where(never | always, 0.0, error), np.float64),
        exact=False,
    )


@lru_cache(maxsize=32)
def _counts(matrix: bytes, groups: int, clients: int, name: str) -> tuple[tuple[int, ...], ...]:
    a = np.frombuffer(matrix, dtype=np.uint8).reshape(groups, clients)
    if (a.sum(axis=0) <= 1).all():
        return _disjoint_counts(a)
    if groups > MAX_GROUPS:
        raise DesignError(
            f"design {name!r} has {groups} groups; exact counting visits all 2^{groups} sets of groups and is limited to "
            f"{MAX_GROUPS} groups"
        )
    free = _free_clients(a)
    sizes = _set_sizes(groups)
    histogram = np.bincount(sizes * (clients + 1) + free, minlength=(groups + 1) * (clients + 1))
    by_size = histogram.reshape(groups + 1, clients + 1).tolist()
    result = []
    for q in range(clients + 1):
        # moment[t] = sum over sets of q clients of C(Z, t)
        moment = [sum(count * comb(f, q) for f, count in enumerate(row) if count) for row in by_size]
        result.append(
            tuple(
                sum((-1) ** (t - z) * comb(t, z) * moment[t] for t in range(z, groups + 1)) for z in range(groups + 1)
            )
        )
    return tuple(result)


def _disjoint_counts(a: BitArray) -> tuple[tuple[int, ...], ...]:
    """Groups that share nobody: multiply, group by group, the polynomial "negative, or at least one of its s members"."""
    clients = a.shape[1]
    sizes = a.sum(axis=1, dtype=np.int64).tolist()
    free = clients - sum(sizes)
    counts = [[comb(free, q)] for q in range(free + 1)]  # [q][z]
    for size in sizes:
        grown = [[0] * (len(counts[0]) + 1) for _ in range(len(counts) + size)]
        for q, row in enumerate(counts):
            for z, count in enumerate(row):
                grown[q][z + 1] += count
                for hit in range(1, size + 1):
                    grown[q + hit][z] += count * comb(size, hit)
        counts = grown
    return tuple(tuple(row) for row in counts)


def _free_clients(a: BitArray) -> IntArray:
    """int64[2^groups]: for every set T of groups (bit i = group i), the clients that are in none of them."""
    groups = a.shape[0]
    # Subset sums over groups of "column = mask" counts: a client is free of T when its column lies in the complement.
    masks = (np.left_shift(np.int64(1), np.arange(groups, dtype=np.int64)) @ a.astype(np.int64)).astype(np.int64)
    inside = np.bincount(masks, minlength=1 << groups).astype(np.int64)
    for bit in range(groups):
        view = inside.reshape(-1, 2, 1 << bit)
        view[:, 1] += view[:, 0]
    reversed_order: IntArray = inside[::-1]  # complement of T is (2^m - 1) - T
    return reversed_order


def _set_sizes(groups: int) -> IntArray:
    sizes = np.zeros(1, dtype=np.int64)
    for _ in range(groups):
        sizes = np.concatenate([sizes, sizes + 1])
    return sizes
