"""Designs for numbers of clients that no code has: shorten or puncture a longer one (n = 10, 20, 50).

The design is the parity-check matrix H. In the terms of MacWilliams and Sloane, chapter 1, section 9:

* a *shortened* code keeps the codewords that are 0 at some places; its parity-check matrix is H without those columns.
  All groups stay, each without the clients that left, and the code keeps its distance. Privacy r falls by at most the number
  of columns taken out.
* a *punctured* code deletes places from its codewords; its parity-check matrix holds the combinations of rows of H over
  GF(2) that are 0 there. Every place costs one group (while the columns are independent), so n - m stays. A combination over
  GF(2) is not one over the reals: compute the privacy r of the result, nothing is inherited.

When the first columns of the matrix of a cyclic code are kept, the punctured one is simply its upper left corner: the rows
are shifts of one another, and each of the last columns is taken out with its last row.
"""

import numpy as np

from fedgt.design.matrix import Design
from fedgt.errors import DesignError
from fedgt.types import BitArray, IntArray

_ATTEMPTS = 20  # choices of columns tried before a random choice is given up


def shortened(design: Design, clients: int, *, rng: np.random.Generator | None = None) -> Design:
    """The design without some of its columns: the parity-check matrix of a shortened code.

    Args:
        design: A longer design.
        clients: How many columns to keep, from 1 to `design.clients`.
        rng: Chooses the columns, which keep their order; the first ones when not given.

    Returns:
        A design with the same number of groups, no empty group, no client in no group, and no two equal groups.

    Raises:
        DesignError: If the number of clients is impossible, or the choice (20 random choices) leaves a group empty, a client
            untested or two groups equal.

    Examples:
        >>> from fedgt.design import named_design, shortened
        >>> design = shortened(named_design("bch-15x8"), 12)
        >>> design.clients, design.groups
        (12, 8)
    """
    return _cut(design, clients, rng, "shortened")


def punctured(design: Design, clients: int, *, rng: np.random.Generator | None = None) -> Design:
    """The design of the punctured code: combinations of rows over GF(2) that are 0 in the columns taken out.

    Args:
        design: A longer design.
        clients: How many columns to keep, from 1 to `design.clients`.
        rng: Chooses the columns, which keep their order; the first ones when not given.

    Returns:
        A design with one group fewer for every independent column taken out; no empty group, no client in no group, and
        no two equal groups.

    Raises:
        DesignError: If the number of clients is impossible, or the choice (20 random choices) leaves no group, an empty
            group, a client untested or two groups equal.

    Examples:
        >>> from fedgt.design import named_design, punctured
        >>> design = punctured(named_design("bch-15x8"), 13)
        >>> design.clients, design.groups
        (13, 6)
    """
    return _cut(design, clients, rng, "punctured")


def _cut(design: Design, clients: int, rng: np.random.Generator | None, how: str) -> Design:
    if not 1 <= clients <= design.clients:
        raise DesignError(
            f"design {design.name!r} has {design.clients} clients and cannot be {how} to {clients}; 1 to "
            f"{design.clients} are possible"
        )
    fault = ""
    for _ in range(1 if rng is None else _ATTEMPTS):
        kept: IntArray = (
            np.arange(clients) if rng is None else np.sort(rng.choice(design.clients, size=clients, replace=False))
        )
        matrix = design.matrix[:, kept] if how == "shortened" else _eliminated(design.matrix, kept)
        fault = _fault(matrix)
        if not fault:
            return Design(
                matrix=matrix,
                name=f"{how}-{clients}x{len(matrix)}-of-{design.name}",
                source=f"{how} (MacWilliams and Sloane, ch. 1.9) from {design.clients} clients: {design.source}",
            )
    raise DesignError(
        f"design {design.name!r} {how} to {clients} clients {fault}; keep more clients, "
        + ("let an rng choose the columns, or " if rng is None else "or ")
        + "start from another design"
    )


def _eliminated(matrix: BitArray, kept: IntArray) -> BitArray:
    """Gauss elimination over GF(2) on the columns that leave, last first; the pivots, the smallest groups, leave as well."""
    rows = matrix.copy()
    for column in np.setdiff1d(np.arange(matrix.shape[1]), kept)[::-1]:
        hit = np.flatnonzero(rows[:, column])
        if hit.size:
            pivot = int(hit[rows[hit].sum(axis=1).argmin()])
            rows[hit] ^= rows[pivot]
            rows = np.delete(rows, pivot, axis=0)
    left: BitArray = rows[:, kept]
    return left


def _fault(matrix: BitArray) -> str:
    if len(matrix) == 0:
        return "has no group left"
    empty, untested = np.flatnonzero(~matrix.any(axis=1)), np.flatnonzero(~matrix.any(axis=0))
    if empty.size:
        return f"leaves group {empty[0]} without members"
    if untested.size:
        return f"leaves client {untested[0]} in no group"
    if len({row.tobytes() for row in matrix}) < len(matrix):
        return "leaves two groups with the same members"
    return ""
