"""By which whole numbers clients multiply their vectors before these are masked: the coefficients of a plan (decision 0030).

They are public, the same for everybody, and part of the plan: its digest is in every key, so that clients which were told
different ones share no key. A plan in which all of them are 1 holds none.
"""

from collections.abc import Sequence

from fedgt.errors import SpecError
from fedgt.types import LARGEST_COEFFICIENT


def plain_or(coefficients: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """The same, or nothing if all are 1: a plan has one form, and without coefficients the one that it always had."""
    given = tuple(tuple(row) for row in coefficients)
    return () if all(type(one) is int and one == 1 for row in given for one in row) else given


def require_coefficients(groups: Sequence[Sequence[str]], coefficients: Sequence[Sequence[int]], task: str) -> None:
    """Check the coefficients of a plan.

    Args:
        groups: Its groups.
        coefficients: Of each group one a client, in its order; empty for none.
        task: As in the plan.

    Raises:
        SpecError: If they do not fit the groups, one is no whole number from 1 to 255, or the task has no use for them.
    """
    if not coefficients:
        return
    if task != "mean":
        raise SpecError(f'coefficients belong to task "mean": those of task "{task}" are the clients\' own')
    if [len(row) for row in coefficients] != [len(group) for group in groups]:
        raise SpecError("coefficients: every group needs one for each of its clients, in its order")
    for group, row in enumerate(coefficients):
        for one in row:
            if type(one) is not int or not 1 <= one <= LARGEST_COEFFICIENT:
                raise SpecError(
                    f"group {group}: coefficient {one!r:.40}; a whole number from 1 to {LARGEST_COEFFICIENT} is needed"
                )
