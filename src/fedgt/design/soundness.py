"""Is a design fit for use under a promise? Its faults in words, before anybody trains a model for it.

A `Design` refuses what is no assignment at all: entries that are not 0 or 1, an empty matrix, a group without members. What
is an assignment, but one that somebody would regret, is named here.
"""

import numpy as np

from fedgt.design.matrix import Design
from fedgt.errors import DesignError


def faults(design: Design, *, privacy: int = 1) -> tuple[str, ...]:
    """What is wrong with a design, a sentence each with what to do; empty when nothing is.

    * a client in no group, of whom nothing can be said;
    * a group with fewer members than the promised r, whose sum alone breaks the promise (a group of one shows a model);
    * groups with the same members, of which all but one cost a secure sum and reveal nothing.

    More groups than clients, one group, and one client are no faults as such: whether they keep the promise over all
    combinations of groups is for `fedgt.privacy.minimum_support` to say.

    Args:
        design: m groups of n clients.
        privacy: The promised r: every combination of revealed sums mixes at least so many clients.

    Raises:
        DesignError: If the promise is impossible for that many clients.

    Examples:
        >>> from fedgt.design import faults, from_matrix
        >>> for fault in faults(from_matrix([[1, 1, 0], [0, 1, 1]]), privacy=3):
        ...     print(fault)
        group 0 has 2 members (clients 0, 1), fewer than the promised r = 3; enlarge it, or promise at most 2
        group 1 has 2 members (clients 1, 2), fewer than the promised r = 3; enlarge it, or promise at most 2
    """
    if not 1 <= privacy <= design.clients:
        raise DesignError(
            f"privacy r = {privacy} for {design.clients} clients; from 1 (no promise) to {design.clients} (one group of "
            "everybody) are possible"
        )
    found = []
    if design.untested:
        found.append(
            f"{_listed('client', design.untested)} in no group, never tested; add to a group, or leave out of the federation"
        )
    sizes = design.group_sizes
    small = np.flatnonzero(sizes < privacy).tolist()
    found += [
        f"group {group} has {sizes[group]} member{'s' if sizes[group] > 1 else ''} "
        f"({_listed('client', design.members(group))}), fewer than the promised r = {privacy}; enlarge it, or "
        f"promise at most {sizes.min()}"
        for group in small
    ]
    found += [f"{_listed('group', same)} have the same members; keep one of them" for same in design.identical_groups]
    return tuple(found)


def _listed(what: str, numbers: tuple[int, ...]) -> str:
    return f"{what}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
