"""How many groups stay clean: exact counts over all sets of malicious clients (section III.B of the paper).

Everything follows from one histogram. For a set T of groups let free(T) be the number of clients in none of them. The
number of ways to place q malicious clients so that at least the groups of T stay negative is C(free(T), q); summing over
T by size gives the binomial moments of Z, the number of negative groups, and inclusion-exclusion gives its exact
distribution. All arithmetic on counts is in Python integers.
"""

from fractions import Fraction
from functools import lru_cache
from math import comb

import numpy as np

from fedgt.design.matrix import Design
from fedgt.errors import DesignError
from fedgt.types import FloatArray, IntArray, frozen

MAX_GROUPS = 22
"""Exact counting visits all 2^m sets of groups; beyond this it would take minutes and gigabytes."""


def countable(design: Design) -> bool:
    """Whether the sets of malicious clients can be counted exactly: at most 22 groups, or groups that share nobody."""
    return design.groups <= MAX_GROUPS or bool((design.matrix.sum(axis=0) <= 1).all())


def negative_group_counts(design: Design) -> tuple[tuple[int, ...], ...]:
    """The exact number of sets of q malicious clients that leave exactly z groups negative.

    Args:
        design: At most 22 groups.

    Returns:
        Element [q][z] for q = 0..clients and z = 0..groups; row q sums to C(clients, q).

    Raises:
        DesignError: If there are more than 22 groups and they overlap.
    """
    return _counts(design.matrix.tobytes(), design.groups, design.clients, design.name)


def negative_group_distribution(design: Design) -> FloatArray:
    """float64[clients + 1, groups + 1]: P(Z = z | n_m = q), the likelihood of equation (z_cond_nm) of the paper."""
    n = design.clients
    rows = [[count / comb(n, q) for count in row] for q, row in enumerate(negative_group_counts(design))]
    table: FloatArray = frozen(rows, np.float64)
    return table


def all_contaminated(design: Design) -> FloatArray:
    """float64[clients + 1]: P(all groups contaminated | n_m = q), q = 0..clients (equation (prop_hist) of the paper)."""
    column: FloatArray = negative_group_distribution(design)[:, 0]
    return column


def max_malicious(design: Design, kappa: float = 0.2) -> int:
    """n_m^max: the largest n_m with P(all groups contaminated | n_m) <= kappa (equation (prop_hist) of the paper).

    Raises:
        DesignError: If kappa is not a probability, or there are more than 22 groups.
    """
    if not 0.0 <= kappa <= 1.0:
        raise DesignError(f"kappa = {kappa}; a probability from 0 to 1 is needed")
    limit, n = Fraction(kappa), design.clients
    counts = negative_group_counts(design)
    return max(q for q in range(n + 1) if Fraction(counts[q][0], comb(n, q)) <= limit)


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


def _disjoint_counts(a: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> tuple[tuple[int, ...], ...]:
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


def _free_clients(a: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> IntArray:
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
