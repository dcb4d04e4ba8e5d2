"""The real minimum support r of everything that was revealed: what Proposition 1 of the paper is about.

A server that knows sums u = A c can form every combination b A c. The privacy of a client is the number of clients that
the most revealing combination mixes: the smallest number of non-zero entries of a non-zero vector in the *real* row
span of A. (Over GF(2) the answer differs: [[1,1,0],[1,0,1],[0,1,1]] has distance 2 there and real r = 1.)

How it is computed, exactly. The rows are taken as the rational numbers that they are, and searched modulo a large prime p:

* If the rank modulo p equals the rank over the rationals, every rational vector of the span, scaled to coprime integers,
  stays a non-zero vector of the span modulo p with no larger support. So "no vector of support w modulo p" *proves* that
  there is none over the rationals. The rank is checked by exact elimination when it falls short of the number of rows.
* A small support found modulo p is a candidate only; it counts when exact elimination confirms it, and that elimination
  gives the certificate b.

The search is that of `information_sets`. A random one comes first, so that the exhaustive one, which costs the more the
larger the support that it must rule out, starts from a good certificate. Smaller supports are ruled out before larger ones
where that is cheap, so that a deadline leaves a proof of what was done.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd, lcm

import numpy as np
import numpy.typing as npt

from fedgt.deadline import NEVER, Deadline
from fedgt.errors import OutOfTimeError, PrivacyError, ShapeError
from fedgt.privacy.information_sets import light_supports, sampled_support, search_cost
from fedgt.privacy.modular import PRIME, reduced_rows
from fedgt.types import IntArray, as_array

MAX_STATES = 100_000_000
"""Vectors that one search may look at, about (a minute for 50 clients); beyond it the answer is a certified interval."""

_LARGEST_COST = 5_000_000_000.0  # array elements of one search, whatever the number of clients: half a minute
_CHEAP_COST = 3_000_000.0  # array elements: an exhaustive search below it needs no good certificate to start from
_COST_PER_BASE = 1_000_000.0  # of the exhaustive search for each random information set tried before it
_MOST_BASES = 2048
_CHEAPER = 8.0  # a smaller support is ruled out first where that costs so many times less


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """A certified statement about the real minimum support r.

    Attributes:
        lower: r is proved to be at least this.
        upper: A vector of this support exists (the certificate), so r is at most this.
        clients: The support of the certificate, ascending 0-based client numbers.
        combination: The certificate b: element i multiplies row i; b times the rows is non-zero on `clients` only.

    Examples:
        >>> from fedgt import minimum_support, named_design
        >>> support = minimum_support(named_design("bch-15x8").matrix)
        >>> support.r, support.exact, len(support.clients)
        (4, True, 4)
    """

    lower: int
    upper: int
    clients: tuple[int, ...]
    combination: tuple[Fraction, ...]

    @property
    def exact(self) -> bool:
        """Whether r is known, not only bounded."""
        return self.lower == self.upper

    @property
    def r(self) -> int:
        """The privacy that may be claimed: r itself when exact, else its proved lower bound."""
        return self.lower


def minimum_support(
    rows: npt.ArrayLike, *, enough: int | None = None, max_states: int = MAX_STATES, deadline: Deadline = NEVER
) -> Support | None:
    """The smallest number of clients that any combination of the revealed rows mixes (Proposition 1 of the paper).

    Args:
        rows: float or int [aggregates, clients]: the *real weights* of each revealed sum. Floats count as the exact
            rationals that they are.
        enough: Stop as soon as r >= enough is proved; the answer is then a lower bound and a certificate of a larger or
            equal support. None computes r.
        max_states: Vectors to look at, about; when it does not suffice, the result is an interval.
        deadline: The same for time. Accounts go without, so that everybody comes to the same one.

    Returns:
        The certified support, or None when nothing is revealed (no rows, or only zero rows).

    Raises:
        ShapeError: If the rows are not a finite two-dimensional array.
        PrivacyError: If the rows lose rank modulo the prime, so that nothing can be certified (never seen).

    Examples:
        >>> from fedgt import minimum_support
        >>> support = minimum_support([[1, 1, 0], [1, 0, 1], [0, 1, 1]])
        >>> support.r, support.clients, [str(part) for part in support.combination]
        (1, (0,), ['1/2', '1/2', '-1/2'])
    """
    array = as_array(rows, "revealed rows")
    if array.ndim != 2 or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise ShapeError(
            f"revealed rows must be a finite aggregates x clients array, got shape {array.shape} of {array.dtype}"
        )
    if not array.any():
        return None
    alone = np.flatnonzero((array != 0).sum(axis=1) == 1)
    if alone.size:  # a client alone: nothing is smaller
        return Support(
            lower=1,
            upper=1,
            clients=(int((array[alone[0]] != 0).argmax()),),
            combination=tuple(Fraction(int(i == alone[0])) for i in range(len(array))),
        )
    exact, scales = exact_rows(array)
    found = _search(exact, enough=enough, max_states=max_states, deadline=deadline)
    # The certificate was found for the scaled rows; the caller multiplies the rows as given.
    return Support(
        lower=found.lower,
        upper=found.upper,
        clients=found.clients,
        combination=tuple(b * scale for b, scale in zip(found.combination, scales, strict=True)),
    )


def exact_rows(rows: npt.ArrayLike) -> tuple[list[list[int]], list[Fraction]]:
    """(The rows scaled to coprime integers, exactly; the scales)."""
    scales, exact = zip(*(_integers(row) for row in np.asarray(rows).tolist()), strict=True)
    return list(exact), list(scales)


def reduced_modulo(exact: Sequence[Sequence[int]], deadline: Deadline = NEVER) -> IntArray:
    """int64[rank, n]: the row space in reduced echelon form modulo the prime; its rank is that over the rationals.

    Every column is first divided by the greatest common divisor of its entries (a client's weight, when all rows use one
    weighting): that changes neither the supports nor the rank, and a weight that is a multiple of the prime does no harm.

    Raises:
        PrivacyError: If the prime lowers the rank.
        OutOfTimeError: If the deadline passed.
    """
    reduced, _ = reduced_rows(_residues(exact))
    if len(reduced) < len(exact) and (rank := _exact_rank(exact, deadline)) != len(reduced):
        raise PrivacyError(
            f"the rank of the revealed rows is {rank}, but {len(reduced)} modulo {PRIME}; the exact search cannot be "
            "certified with this prime: scale the weights to smaller integers"
        )
    return reduced


def affordable(reduced: IntArray, budget: int, max_states: int) -> int:
    """The largest support, up to `budget`, of which all vectors can be listed by looking at `max_states` vectors."""
    k, n = reduced.shape
    most = min(float(max_states) * n, _LARGEST_COST)
    if budget <= 0 or search_cost(k, n, budget) <= most:
        return max(budget, 0)
    possible, impossible = 0, budget  # larger supports cost more
    while impossible - possible > 1:
        middle = (possible + impossible) // 2
        if search_cost(k, n, middle) <= most:
            possible = middle
        else:
            impossible = middle
    return possible


def _search(exact: Sequence[Sequence[int]], *, enough: int | None, max_states: int, deadline: Deadline) -> Support:
    best, proved = _lightest_row(exact), 0  # every support up to `proved` is ruled out
    if best.upper == 1:
        return best  # a sum of one client: nothing can be lighter, and a large elimination is spared
    try:
        reduced = reduced_modulo(exact, deadline)
        n = reduced.shape[1]
        goal = n + 1 if enough is None else enough
        best = _guessed(exact, reduced, min(best.upper, goal) - 1, max_states, deadline) or best
        budget = affordable(reduced, min(best.upper, goal) - 1, max_states)
        while proved < budget:
            found, rejected = None, False
            step = _step(reduced, proved, budget)
            for candidate in light_supports(reduced, step, deadline):
                found = confirmed(exact, candidate, deadline)
                if found is not None:
                    break
                rejected = True
            if found is not None:
                best, budget = found, found.upper - 1
            elif rejected:  # light modulo p, not over the rationals: that support cannot be ruled out with this prime
                budget = step - 1
            else:
                proved = step
    except OutOfTimeError:
        pass  # what is proved is proved
    return replace(best, lower=proved + 1)


def _guessed(
    exact: Sequence[Sequence[int]], reduced: IntArray, wanted: int, max_states: int, deadline: Deadline
) -> Support | None:
    """A good certificate to start from, where the exhaustive search is dear."""
    k, n = reduced.shape
    cost = search_cost(k, n, wanted)
    if cost <= _CHEAP_COST:
        return None
    # A base costs some eliminations and all pairs of rows; the random search takes no more than the exhaustive one may.
    of_one = 4.0 * n * k * (k + (k + 1) / 2)
    affordable_bases = min(float(max_states) * n, _LARGEST_COST) / of_one
    bases = int(min(np.clip(cost / _COST_PER_BASE, 8, _MOST_BASES), max(1.0, affordable_bases)))
    sampled = sampled_support(reduced, wanted, bases=bases, rng=np.random.default_rng(0), deadline=deadline)
    return None if sampled is None else confirmed(exact, sampled, deadline)


def _step(reduced: IntArray, proved: int, budget: int) -> int:
    """The support to rule out next: the budget, or less as long as that costs next to nothing beside it."""
    k, n = reduced.shape
    step = budget
    while (cost := search_cost(k, n, step)) > _CHEAP_COST:
        cheaper = [w for w in range(proved + 1, step) if search_cost(k, n, w) * _CHEAPER <= cost]
        if not cheaper:
            break
        step = cheaper[-1]
    return step


def _lightest_row(exact: Sequence[Sequence[int]]) -> Support:
    weights = [sum(1 for v in row if v) for row in exact]
    lightest = min((weight, i) for i, weight in enumerate(weights) if weight)[1]
    return Support(
        lower=1,
        upper=weights[lightest],
        clients=tuple(j for j, v in enumerate(exact[lightest]) if v),
        combination=tuple(Fraction(int(i == lightest)) for i in range(len(exact))),
    )


def _residues(rows: Sequence[Sequence[int]]) -> IntArray:
    common = [gcd(*column) or 1 for column in zip(*rows, strict=True)]
    return np.array([[v // c % PRIME for v, c in zip(row, common, strict=True)] for row in rows], dtype=np.int64)


def _integers(row: Sequence[float]) -> tuple[Fraction, list[int]]:
    """A scale, and the row times it in coprime integers; a float is the dyadic rational that it is."""
    if all(v == int(v) for v in row):  # whole numbers, mostly
        whole = [int(v) for v in row]
        common = gcd(*whole) or 1
        return Fraction(1, common), [v // common for v in whole]
    exact = [Fraction(v) for v in row]
    scale = Fraction(lcm(*(v.denominator for v in exact)), gcd(*(v.numerator for v in exact)) or 1)
    scaled = [v * scale for v in exact]
    common = gcd(*(int(v) for v in scaled)) or 1
    return scale / common, [int(v) // common for v in scaled]


def confirmed(exact: Sequence[Sequence[int]], support: Sequence[int], deadline: Deadline = NEVER) -> Support | None:
    """A certificate that some non-zero combination of the rows lives on `support`, or None: exact elimination."""
    inside = set(support)
    outside = [j for j in range(len(exact[0])) if j not in inside]
    order = [*outside, *support]
    rows, rank = _eliminated(
        [[row[j] for j in order] + [int(i == index) for i in range(len(exact))] for index, row in enumerate(exact)],
        len(outside),
        deadline,
    )
    for row in rows[rank:]:
        values = row[len(outside) : len(order)]
        if any(values):
            clients = tuple(sorted(j for j, v in zip(support, values, strict=True) if v))
            first = values[list(support).index(clients[0])]
            return Support(
                lower=1,
                upper=len(clients),
                clients=clients,
                combination=tuple(Fraction(b, first) for b in row[len(order) :]),
            )
    return None


def combinations_within(
    exact: Sequence[Sequence[int]], clients: Sequence[int]
) -> tuple[list[list[int]], list[list[int]]]:
    """(A basis of the vectors of the span that are zero for everybody else, the combinations of rows that give them)."""
    n = len(exact[0])
    inside = set(clients)
    outside = [j for j in range(n) if j not in inside]
    augmented = [
        [row[j] for j in outside] + list(row) + [int(i == index) for i in range(len(exact))]
        for index, row in enumerate(exact)
    ]
    reduced, rank = _eliminated(augmented, len(outside))
    # Dependent rows end as zero vectors; a second elimination brings them to the bottom.
    rest, rank = _eliminated([_coprime(row[len(outside) :]) for row in reduced[rank:]], n)
    rest = [_coprime(row) for row in rest[:rank]]
    return [row[:n] for row in rest], [row[n:] for row in rest]


def _exact_rank(exact: Sequence[Sequence[int]], deadline: Deadline) -> int:
    return _eliminated([list(row) for row in exact], len(exact[0]), deadline)[1]


def _eliminated(rows: list[list[int]], columns: int, deadline: Deadline = NEVER) -> tuple[list[list[int]], int]:
    """(Echelon form in the first columns, the rank there), by Bareiss' elimination, which stays in the integers."""
    start, previous = 0, 1
    for column in range(columns):
        deadline.check()
        pivot = next((i for i in range(start, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[start], rows[pivot] = rows[pivot], rows[start]
        top = rows[start]
        lead = top[column]
        for i in range(start + 1, len(rows)):
            factor = rows[i][column]
            rows[i] = [(lead * a - factor * b) // previous for a, b in zip(rows[i], top, strict=True)]
        start, previous = start + 1, lead
        if start == len(rows):
            break
    return rows, start


def _coprime(row: Sequence[int]) -> list[int]:
    common = gcd(*row) or 1
    return [v // common for v in row]
