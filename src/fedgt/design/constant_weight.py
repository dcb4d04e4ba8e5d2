"""Random designs with fixed margins: every client in exactly w groups, or every group of exactly k members.

Constant column weight spreads the tests evenly over the clients and needs fewer of them than independent entries
(M. Aldridge, O. Johnson and J. Scarlett, "Group testing: an information theory perspective", Foundations and Trends in
Communications and Information Theory 15, 2019, section 2.7; O. Johnson, M. Aldridge and J. Scarlett, "Performance of group
testing algorithms with near-constant tests per item", IEEE Transactions on Information Theory 65, 2019). The other margin is
balanced as well: it differs by at most one. The matrix is drawn by trades between rows that keep both margins (G. Strona et
al., "A fast and unbiased procedure to randomize ecological binary matrices with fixed row and column totals", Nature
Communications 5, 2014), which after enough trades is uniform over all matrices with these margins.
"""

import numpy as np

from fedgt.design.matrix import Design, check_size
from fedgt.errors import DesignError
from fedgt.types import BitArray

_TRADES_PER_GROUP = 8


def constant_column_weight(clients: int, groups: int, *, per_client: int, rng: np.random.Generator) -> Design:
    """A random design with every client in exactly `per_client` groups; group sizes differ by at most one.

    Args:
        clients: n.
        groups: m.
        per_client: w, from 1 to m.
        rng: The source of randomness; the same state gives the same design.

    Raises:
        DesignError: If w is impossible, or n w < m so that a group would stay empty.

    Examples:
        >>> import numpy as np
        >>> from fedgt.design import constant_column_weight
        >>> design = constant_column_weight(12, 6, per_client=3, rng=np.random.default_rng(0))
        >>> design.matrix.sum(axis=0).tolist(), design.matrix.sum(axis=1).tolist()
        ([3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3], [6, 6, 6, 6, 6, 6])
    """
    check_size(clients, groups)
    if clients < 1 or groups < 1 or not 1 <= per_client <= groups:
        raise DesignError(
            f"{clients} clients, {groups} groups, {per_client} groups a client; at least one client and one group are "
            f"needed, and from 1 to {max(groups, 1)} groups a client"
        )
    if clients * per_client < groups:
        raise DesignError(
            f"{clients} clients with {per_client} groups each fill {clients * per_client} places, but there are {groups} "
            f"groups; use at most {clients * per_client} groups, or at least {-(-groups // clients)} groups a client"
        )
    matrix = np.zeros((groups, clients), dtype=np.uint8)
    places = np.arange(clients * per_client)
    matrix[places % groups, places // per_client] = 1
    return Design(
        matrix=_traded(matrix, rng),
        name=f"column-weight-{clients}x{groups}-w{per_client}",
        source=f"random, every client in {per_client} groups (Aldridge, Johnson and Scarlett 2019)",
    )


def constant_row_weight(clients: int, groups: int, *, per_group: int, rng: np.random.Generator) -> Design:
    """A random design with exactly `per_group` members in every group; clients differ by at most one in their groups.

    Args:
        clients: n.
        groups: m.
        per_group: k, from 1 to n.
        rng: The source of randomness; the same state gives the same design.

    Raises:
        DesignError: If k is impossible, or m k < n so that a client would be in no group.

    Examples:
        >>> import numpy as np
        >>> from fedgt.design import constant_row_weight
        >>> design = constant_row_weight(12, 6, per_group=4, rng=np.random.default_rng(0))
        >>> design.matrix.sum(axis=1).tolist()
        [4, 4, 4, 4, 4, 4]
    """
    check_size(clients, groups)
    if clients < 1 or groups < 1 or not 1 <= per_group <= clients:
        raise DesignError(
            f"{clients} clients, {groups} groups, {per_group} members a group; at least one client and one group are "
            f"needed, and from 1 to {max(clients, 1)} members a group"
        )
    if groups * per_group < clients:
        raise DesignError(
            f"{groups} groups of {per_group} have {groups * per_group} places, but there are {clients} clients, and some "
            f"would be in no group; use groups of at least {-(-clients // groups)}, or at least "
            f"{-(-clients // per_group)} groups"
        )
    matrix = np.zeros((groups, clients), dtype=np.uint8)
    places = np.arange(groups * per_group)
    matrix[places // per_group, places % clients] = 1
    return Design(
        matrix=_traded(matrix, rng),
        name=f"row-weight-{clients}x{groups}-k{per_group}",
        source=f"random, every group of {per_group} members (Aldridge, Johnson and Scarlett 2019)",
    )


def _traded(matrix: BitArray, rng: np.random.Generator) -> BitArray:
    """Two rows at a time deal the members that only one of them has anew; both margins stay."""
    groups = len(matrix)
    if groups < 2:
        return matrix
    first = rng.integers(groups, size=_TRADES_PER_GROUP * groups)
    second = (first + rng.integers(1, groups, size=len(first))) % groups
    for one, other in zip(first.tolist(), second.tolist(), strict=True):
        alone = np.flatnonzero(matrix[one] != matrix[other])
        dealt = rng.permutation(matrix[one, alone])
        matrix[one, alone] = dealt
        matrix[other, alone] = 1 - dealt
    return matrix
