"""Who is exposed most: the clients that some least combination of everything revealed contains."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError
from fedgt.privacy.support import (
    MAX_STATES,
    ZERO_COLUMN,
    Support,
    UnluckyCompressionError,
    confirmed,
    dependent_sets,
    eliminations,
    exact_rows,
    minimum_support,
    null_space_of,
    ratios,
)
from fedgt.types import IntArray


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
    """

    support: Support
    r: int
    clients: tuple[int, ...]
    complete: bool
    colluding: int


def exposure(rows: npt.ArrayLike, *, colluding: int = 0, max_states: int = MAX_STATES) -> Exposure | None:
    """The real minimum support, who it concerns, and what `colluding` clients add.

    Colluders know their own models, so these can be subtracted from any combination. The worst c of them sit in a
    combination of least support and leave r - c others. If r <= c, r - 1 of them leave the last one alone: r becomes
    max(1, r - c).

    Args:
        rows: float or int [aggregates, clients], the real weights of everything revealed about one set of local models.
        colluding: c, from 0 to clients - 1.
        max_states: As for `minimum_support`.

    Returns:
        None when nothing is revealed.

    Raises:
        ShapeError: If the rows are no finite matrix, or c is out of range.
    """
    array = np.asarray(rows)
    support = minimum_support(array, max_states=max_states)
    if array.ndim == 2 and not 0 <= colluding < max(array.shape[1], 1):
        raise ShapeError(f"{colluding} colluding clients of {array.shape[1]}; 0 to {array.shape[1] - 1} is needed")
    if support is None:
        return None
    clients, complete = set(support.clients), False
    if support.exact:
        exact = exact_rows(array)
        candidates = _least_sets(exact, support.upper, max_states)
        if candidates is not None:
            complete = True
            try:
                for candidate in candidates:
                    if not clients.issuperset(candidate) and (found := confirmed(exact, candidate)) is not None:
                        clients |= set(found.clients) if found.upper == support.upper else set()
            except UnluckyCompressionError:  # pragma: no cover - once in billions of searches
                complete = False
    return Exposure(
        support=support,
        r=max(1, support.lower - colluding),
        clients=tuple(sorted(clients)),
        complete=complete,
        colluding=colluding,
    )


def _least_sets(exact: Sequence[Sequence[int]], size: int, max_states: int) -> Iterator[tuple[int, ...]] | None:
    """Candidates for every combination of that support; None when there are too many sets to visit."""
    null, reduced = null_space_of(exact)
    k, n = reduced.shape
    dual, primal = comb(n, max(size - 2, 0)), comb(n, max(k - 2, 0))
    if min(dual, primal) > max_states:
        return None
    return dependent_sets(null, size) if dual < primal else _all_of_weight(reduced, size)


def _all_of_weight(reduced: IntArray, weight: int) -> Iterator[tuple[int, ...]]:
    """Every support of that size of a vector of the span modulo p, by its zeros."""
    k = reduced.shape[0]
    if k == 1:
        yield tuple(np.flatnonzero(reduced[0]).tolist())
        return
    for _, rest in eliminations(reduced, k - 2, ordered=False):
        symbols = ratios(rest)
        for row in symbols:
            values, counts = np.unique(row[row != ZERO_COLUMN], return_counts=True)
            light = values[len(row[row != ZERO_COLUMN]) - counts == weight]
            for value in light.tolist():
                yield tuple(np.flatnonzero((row != ZERO_COLUMN) & (row != value)).tolist())
