"""Plain groups for any federation: first a partition, then row by row the group that adds most and keeps r.

At the bound n - r + 1 such groups are rare; `searched_design` has those that are known, and a construction with coefficients
reaches it always (`fedgt.design.reed_solomon`). Short of the bound they are found in a second or two.
"""

from functools import lru_cache

import numpy as np

from fedgt.design import StagedDesign, searched_design, searched_designs
from fedgt.errors import DesignError
from fedgt.privacy import minimum_support
from fedgt.types import FloatArray, IntArray

FIRST_STAGE = 3
"""Groups of the partition, if each can have as many members as the promise says."""

_TRIES = 60  # draws of one row
_NEW = 1e-6  # less of a row outside the span of the others is rounding
_ENOUGH = 8  # of them that keep r, among which the best is taken
_SMALLEST, _LARGEST = 0.25, 0.45  # of the clients are in a later group


@lru_cache(maxsize=64)
def nested_groups(clients: int, privacy: int, *, groups: int, uploads: int = 8, seed: int = 0) -> StagedDesign:
    """Rows whose every part keeps r, as many of the wanted ones as were found.

    Args:
        clients: n, at least 2.
        privacy: r, from 1 to n.
        groups: The most rows, which are never more than n - r + 1.
        uploads: In how many groups a client may be at most.
        seed: Of the draws; the same numbers give the same rows.

    Returns:
        0/1 rows. The first stage is a partition into three groups of at least r, two if there are fewer clients, or one; the
        second stage is the rest.

    Raises:
        DesignError: If a number is out of its range.

    Examples:
        >>> from fedgt.planning import nested_groups
        >>> design = nested_groups(12, 3, groups=8)
        >>> design.stages, design.largest_entry
        ((3, 5), 1)
    """
    if clients < 2 or not 1 <= privacy <= clients:
        raise DesignError(
            f"privacy {privacy} of {clients} clients; 1 to the number of clients, at least 2, is possible"
        )
    if groups < 1 or uploads < 1:
        raise DesignError(f"{groups} groups with {uploads} uploads a client; at least 1 of each is needed")
    groups = min(groups, clients - privacy + 1)
    for name in searched_designs():
        known = searched_design(name)
        design = known.design
        same = (design.clients, known.privacy, design.largest_entry) == (clients, privacy, 1)
        if same and len(design.stages) > 1 and design.groups == groups and design.uploads.max() <= uploads:
            return design
    first = min(FIRST_STAGE, clients // privacy, groups)
    rows: list[IntArray] = [(np.arange(clients) % first == group).astype(np.int64) for group in range(first)]
    rng = np.random.default_rng([seed, clients, privacy])
    while len(rows) < groups:
        added = _best_row(np.array(rows), privacy, uploads, rng)
        if added is None:
            break
        rows.append(added)
    return StagedDesign(
        matrix=np.array(rows),
        stages=(first,) if len(rows) == first else (first, len(rows) - first),
        name=f"nested-{clients}x{len(rows)}-r{privacy}",
        source=f"a partition, then groups that keep r = {privacy}, drawn with seed {seed}",
    )


def _best_row(rows: IntArray, privacy: int, uploads: int, rng: np.random.Generator) -> IntArray | None:
    """Of some random groups that keep r the one that points furthest out of the span of those that are there."""
    clients = rows.shape[1]
    used = rows.sum(axis=0)
    free = np.flatnonzero(used < uploads)
    smallest = max(privacy, round(_SMALLEST * clients))
    largest = min(max(smallest, round(_LARGEST * clients)), len(free))
    if smallest > largest:
        return None
    basis = np.linalg.qr(rows.T.astype(np.float64))[0].T
    best: IntArray | None = None
    most, keeping = _NEW, 0
    for _ in range(_TRIES):
        size = int(rng.integers(smallest, largest + 1))
        # Who is in few groups so far is more likely to be drawn.
        order = np.argsort(used[free] + rng.gumbel(size=len(free)) * 1.5)
        row = np.zeros(clients, dtype=np.int64)
        row[free[order[:size]]] = 1
        gain = _outside(basis, row)
        if gain <= most or not _keeps(rows, row, privacy):
            continue
        best, most, keeping = row, gain, keeping + 1
        if keeping == _ENOUGH:
            break
    return best


def _outside(basis: FloatArray, row: IntArray) -> float:
    """How much of a row, of length 1, is no combination of the others."""
    unit = row / np.linalg.norm(row)
    # Rounded, so that rows that are equally good are so on every machine, whatever its linear algebra.
    return round(float(np.linalg.norm(unit - basis.T @ (basis @ unit))), 9)


def _keeps(rows: IntArray, row: IntArray, privacy: int) -> bool:
    for sign in (1, -1):  # most bad rows show beside one other row
        mixed = np.count_nonzero(rows + sign * row, axis=1)
        if ((mixed > 0) & (mixed < privacy)).any() or not mixed.all():
            return False
    support = minimum_support(np.vstack([rows, row]), enough=privacy)
    return support is not None and support.lower >= privacy
