"""Who is exposed most, and by which combination of everything revealed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice

import numpy.typing as npt

from fedgt.deadline import NEVER, Deadline
from fedgt.errors import OutOfTimeError, ShapeError
from fedgt.privacy.information_sets import light_supports
from fedgt.privacy.support import (
    MAX_STATES,
    Support,
    affordable,
    confirmed,
    exact_rows,
    minimum_support,
    reduced_modulo,
)
from fedgt.types import IntArray, as_array, as_count

_PERSONAL_SHARE = 50  # the part of the allowed work spent on clients that no least combination contains
_PERSONAL_CANDIDATES = 20_000
_SHARE_OF_R = 0.6  # of the time, if it is limited; the rest is for the clients


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """What everything revealed gives away, against a server that some clients help.

    Attributes:
        support: The minimum support without help, with its certificate.
        r: The number of clients that the most revealing combination mixes once the colluders subtract themselves. Proved.
        clients: The clients that are in some combination of least support, ascending; those of the certificate only where
            the search would take too long (`complete` is then False).
        complete: Whether `clients` lists all of them.
        colluding: How many clients help the server.
        personal: For each client the smallest combination that contains it (without help), with its certificate; an
            interval where the search would take too long; None for a client that is in no revealed row.

    Examples:
        >>> from fedgt import named_design
        >>> from fedgt.privacy import exposure
        >>> found = exposure(named_design("bch-15x8").matrix, colluding=1)
        >>> found.r, found.support.r
        (3, 4)
    """

    support: Support
    r: int
    clients: tuple[int, ...]
    complete: bool
    colluding: int
    personal: tuple[Support | None, ...]


def exposure(
    rows: npt.ArrayLike, *, colluding: int = 0, max_states: int = MAX_STATES, deadline: Deadline = NEVER
) -> Exposure | None:
    """The real minimum support, who it concerns, and what `colluding` clients add.

    Colluders know their own models, so these can be subtracted from any combination. The worst c of them sit in a
    combination of least support and leave r - c others. If r <= c, r - 1 of them leave the last one alone: r becomes
    max(1, r - c).

    Args:
        rows: float or int [aggregates, clients], the real weights of everything revealed about one set of local models.
        colluding: c, from 0 to clients - 1.
        max_states: As for `minimum_support`.
        deadline: The same for time: what is not proved then is an interval.

    Returns:
        None when nothing is revealed.

    Raises:
        ShapeError: If the rows are no finite matrix, or c is out of range.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.privacy import exposure
        >>> rows = named_design("bch-15x8").matrix
        >>> everybody_else = np.ones(15)
        >>> everybody_else[[2, 12]] = 0  # what the paper opens when clients 2 and 12 are flagged
        >>> found = exposure(np.vstack([rows, everybody_else]))
        >>> found.r, found.clients
        (1, (7,))
    """
    array = as_array(rows, "revealed rows")
    as_count(colluding, "colluding", error=ShapeError)
    support = minimum_support(array, max_states=max_states, deadline=deadline.part(_SHARE_OF_R))
    if array.ndim == 2 and not 0 <= colluding < max(array.shape[1], 1):
        raise ShapeError(f"{colluding} colluding clients of {array.shape[1]}; 0 to {array.shape[1] - 1} is needed")
    if support is None:
        return None
    exact, scales = exact_rows(array)
    personal = _first_guess(exact, support)
    complete = False
    try:
        reduced = reduced_modulo(exact, deadline)
        complete = support.exact and affordable(reduced, support.upper, max_states) == support.upper
        complete = complete and _refine(personal, exact, reduced, support.upper, at_most=None, deadline=deadline)
        size = support.upper + 1
        waiting = {j for j, one in enumerate(personal) if one is not None and not one.exact}
        # Where r itself could not be confirmed for everybody (`complete` is False), the lower ends cannot rise.
        while complete and waiting and size < array.shape[1]:
            if affordable(reduced, size, max_states // _PERSONAL_SHARE) < size:
                break
            if not _refine(personal, exact, reduced, size, at_most=_PERSONAL_CANDIDATES, deadline=deadline):
                break
            waiting = {j for j in waiting if not (one := personal[j]) or not one.exact}
            size += 1
    except OutOfTimeError:
        pass  # what was found is found, and each interval is right
    clients = {j for j, one in enumerate(personal) if one is not None and one.upper == support.upper}
    return Exposure(
        support=support,
        r=max(1, support.lower - colluding),
        clients=tuple(sorted(clients | set(support.clients))),
        complete=complete,
        colluding=colluding,
        # The certificates were found for the scaled rows; the caller multiplies the rows as given.
        personal=tuple(
            one and replace(one, combination=tuple(b * s for b, s in zip(one.combination, scales, strict=True)))
            for one in personal
        ),
    )


def _first_guess(exact: Sequence[Sequence[int]], support: Support) -> list[Support | None]:
    """For each client the lightest row that contains it, or the certificate of r."""
    lived = [tuple(j for j, v in enumerate(row) if v) for row in exact]
    guesses: list[Support | None] = []
    for client in range(len(exact[0])):
        holding = [i for i, row in enumerate(exact) if row[client]]
        if not holding:
            guesses.append(None)
            continue
        weight, row = min((len(lived[i]), i) for i in holding)
        guesses.append(
            Support(
                lower=support.lower,
                upper=weight,
                clients=lived[row],
                combination=tuple(Fraction(int(i == row)) for i in range(len(exact))),
            )
        )
    return guesses


def _refine(
    personal: list[Support | None],
    exact: Sequence[Sequence[int]],
    reduced: IntArray,
    size: int,
    *,
    at_most: int | None,
    deadline: Deadline,
) -> bool:
    """Find the combinations of that support which contain clients without a smaller one; whether all were visited.

    The smallest combination that contains a client is of minimal support: any smaller vector on part of it would miss the
    client, and could be subtracted until another client vanishes.
    """
    waiting = {j for j, one in enumerate(personal) if one is not None and one.lower <= size < one.upper}
    candidates = light_supports(reduced, size, deadline) if waiting else iter(())
    seen, rejected = 0, False
    for candidate in islice(candidates, at_most):
        seen += 1
        if waiting.isdisjoint(candidate):
            continue
        found = confirmed(exact, candidate, deadline)
        if found is None:  # light modulo the prime only
            rejected = True
        elif found.upper == size:
            for j in waiting.intersection(found.clients):
                personal[j] = replace(found, lower=size)
            waiting.difference_update(found.clients)
        if not waiting:
            break
    done = not waiting or (not rejected and seen != at_most)
    if done:
        for j, one in enumerate(personal):
            if one is not None and one.upper > size:
                personal[j] = replace(one, lower=max(one.lower, size + 1))
    return done
