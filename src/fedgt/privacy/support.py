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

Two searches share one batched elimination. *Dual*: columns of a null-space basis are dependent exactly when a vector of
the span lives on them, so r is the smallest dependent set of columns; sets of w - 2 columns are eliminated and the last two
found as a parallel pair. *Primal*: the vectors of least support vanish on k - 1 independent columns of the k rows; sets of
k - 2 columns are eliminated and the largest class of parallel columns is counted. The cheaper one is taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, gcd, lcm

import numpy as np
import numpy.typing as npt

from fedgt.errors import PrivacyError, ShapeError
from fedgt.types import IntArray

PRIME = 2_147_483_647
"""2^31 - 1: products of two residues fit into int64."""

MAX_STATES = 12_000_000
"""Sets of columns that one search may eliminate (some minutes); beyond it the answer is a certified interval."""

_CHUNK = 2_000_000  # array elements held at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """A certified statement about the real minimum support r.

    Attributes:
        lower: r is proved to be at least this.
        upper: A vector of this support exists (the certificate), so r is at most this.
        clients: The support of the certificate, ascending 0-based client numbers.
        combination: The certificate b: element i multiplies row i; b times the rows is non-zero on `clients` only.
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


class UnluckyCompressionError(Exception):
    """The random map made a smaller set of columns dependent: nothing may be concluded from this search."""


def minimum_support(rows: npt.ArrayLike, *, enough: int | None = None, max_states: int = MAX_STATES) -> Support | None:
    """The smallest number of clients that any combination of the revealed rows mixes (Proposition 1 of the paper).

    Args:
        rows: float or int [aggregates, clients]: the *real weights* of each revealed sum. Floats count as the exact
            rationals that they are.
        enough: Stop as soon as r >= enough is proved; the answer is then a lower bound and a certificate of a larger or
            equal support. None computes r.
        max_states: Sets of columns to eliminate at most; when it does not suffice, the result is an interval.

    Returns:
        The certified support, or None when nothing is revealed (no rows, or only zero rows).

    Raises:
        ShapeError: If the rows are not a finite two-dimensional array.
        PrivacyError: If the rows lose rank modulo the prime, so that nothing can be certified (never seen).
    """
    array = np.asarray(rows)
    if array.ndim != 2 or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise ShapeError(
            f"revealed rows must be a finite aggregates x clients array, got shape {array.shape} of {array.dtype}"
        )
    if not array.any():
        return None
    scales, exact = zip(*(_integers(row) for row in array.tolist()), strict=True)
    found = _search(exact, enough=enough, max_states=max_states)
    # The certificate was found for the scaled rows; the caller multiplies the rows as given.
    return Support(
        lower=found.lower,
        upper=found.upper,
        clients=found.clients,
        combination=tuple(b * scale for b, scale in zip(found.combination, scales, strict=True)),
    )


def exact_rows(rows: npt.ArrayLike) -> list[list[int]]:
    """The rows scaled to coprime integers, exactly."""
    return [_integers(row)[1] for row in np.asarray(rows).tolist()]


def null_space_of(exact: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """(int64[n - k, n] a basis of what is orthogonal to the rows, int64[k, n] the rows reduced), modulo p."""
    independent = [exact[i] for i in _independent_rows(exact)]
    reduced, pivots = _reduce(np.array([[v % PRIME for v in row] for row in independent], dtype=np.int64))
    return _null_space(reduced, pivots), reduced


def _search(exact: Sequence[Sequence[int]], *, enough: int | None, max_states: int) -> Support:
    null, reduced = null_space_of(exact)
    k, n = reduced.shape
    lightest = min(range(len(exact)), key=lambda i: (_weight(exact[i]) or n + 1, i))
    best = confirmed(exact, tuple(j for j, v in enumerate(exact[lightest]) if v))
    if best is None:  # pragma: no cover - a row is in its own span
        raise PrivacyError("a revealed row is not in its own span")
    target = n + 1 if enough is None else enough
    states, size = 0, 1
    while size < best.upper and size < target:
        dual, primal = comb(n, max(size - 2, 0)), comb(n, max(k - 2, 0))
        if primal <= dual:
            if states + primal > max_states:
                break
            return _primal(exact, reduced, best)
        if states + dual > max_states:
            break
        states += dual
        rejected = False
        try:
            for candidate in dependent_sets(null, size):
                found = confirmed(exact, candidate)
                if found is not None:
                    return _with_lower(found, found.upper)
                rejected = True
        except UnluckyCompressionError:
            rejected = True
        if rejected:  # dependent modulo p, not over the rationals: larger sets can no longer be ruled out
            break
        size += 1
    return _with_lower(best, min(size, best.upper))


def _primal(exact: Sequence[Sequence[int]], reduced: IntArray, best: Support) -> Support:
    """Minimum support by counting zeros over all sets of k - 2 eliminated columns.

    The least support modulo p is a proved lower bound; candidates are confirmed from the lightest on.
    """
    best_so_far = best
    rejected: list[int] = []
    for support in _light_supports(reduced, best.upper):
        if len(support) >= best_so_far.upper:
            continue
        found = confirmed(exact, support)
        if found is None:
            rejected.append(len(support))
        else:
            best_so_far = found
    lower = min([best_so_far.upper, *rejected])
    return _with_lower(best_so_far, lower)


def _with_lower(support: Support, lower: int) -> Support:
    return Support(lower=lower, upper=support.upper, clients=support.clients, combination=support.combination)


def _weight(row: Sequence[int]) -> int:
    return sum(1 for v in row if v)


def _integers(row: Sequence[float]) -> tuple[Fraction, list[int]]:
    """A scale, and the row times it in coprime integers; a float is the dyadic rational that it is."""
    exact = [Fraction(v) for v in row]
    scale = Fraction(lcm(*(v.denominator for v in exact)), gcd(*(v.numerator for v in exact)) or 1)
    scaled = [v * scale for v in exact]
    common = gcd(*(int(v) for v in scaled)) or 1
    return scale / common, [int(v) // common for v in scaled]


def _independent_rows(exact: Sequence[Sequence[int]]) -> list[int]:
    """Indices of a maximal set of rows that is independent over the rationals and, by construction, modulo p."""
    residues = np.array([[v % PRIME for v in row] for row in exact], dtype=np.int64)
    _, pivots = _reduce(residues.T.copy())
    if len(pivots) == len(exact):
        return list(pivots)
    # Fewer pivots than rows: either the rows are dependent, or p is unlucky. Exact elimination tells.
    kept: list[int] = []
    basis: list[list[Fraction]] = []
    for index, row in enumerate(exact):
        rest = [Fraction(v) for v in row]
        for vector in basis:
            lead = next(j for j, v in enumerate(vector) if v)
            if rest[lead]:
                factor = rest[lead] / vector[lead]
                rest = [a - factor * b for a, b in zip(rest, vector, strict=True)]
        if any(rest):
            basis.append(rest)
            kept.append(index)
    if len(kept) != len(pivots):
        raise PrivacyError(
            f"the rank of the revealed rows is {len(kept)}, but {len(pivots)} modulo {PRIME}; the exact search cannot be "
            "certified with this prime: scale the weights to smaller integers"
        )
    return kept


def confirmed(exact: Sequence[Sequence[int]], support: Sequence[int]) -> Support | None:
    """A certificate that some non-zero combination of the rows lives on `support`, or None: exact elimination."""
    inside = set(support)
    n = len(exact[0])
    outside = [j for j in range(n) if j not in inside]
    rows = [
        [Fraction(row[j]) for j in (*outside, *support)] + [Fraction(int(i == index)) for i in range(len(exact))]
        for index, row in enumerate(exact)
    ]
    start = 0
    for column in range(len(outside)):
        pivot = next((i for i in range(start, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[start], rows[pivot] = rows[pivot], rows[start]
        for i in range(start + 1, len(rows)):
            if rows[i][column]:
                factor = rows[i][column] / rows[start][column]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[start], strict=True)]
        start += 1
    for row in rows[start:]:
        values = row[len(outside) : n]
        if any(values):
            clients = tuple(sorted(support[i] for i, v in enumerate(values) if v))
            first = values[list(support).index(clients[0])]
            return Support(
                lower=1,
                upper=len(clients),
                clients=clients,
                combination=tuple(b / first for b in row[n:]),
            )
    return None


def _reduce(matrix: IntArray) -> tuple[IntArray, tuple[int, ...]]:
    """Reduced row echelon form modulo p, zero rows removed, and the pivot columns."""
    rows = matrix.copy()
    pivots: list[int] = []
    for column in range(rows.shape[1]):
        start = len(pivots)
        nonzero = np.flatnonzero(rows[start:, column])
        if nonzero.size == 0:
            continue
        rows[[start, start + nonzero[0]]] = rows[[start + nonzero[0], start]]
        rows[start] = rows[start] * pow(int(rows[start, column]), PRIME - 2, PRIME) % PRIME
        factors = rows[:, column].copy()
        factors[start] = 0
        rows = (rows - factors[:, None] * rows[start]) % PRIME
        pivots.append(column)
        if len(pivots) == rows.shape[0]:
            break
    return rows[: len(pivots)], tuple(pivots)


def _null_space(reduced: IntArray, pivots: tuple[int, ...]) -> IntArray:
    """int64[n - k, n]: a basis N of the vectors orthogonal to the span, modulo p."""
    k, n = reduced.shape
    free = [j for j in range(n) if j not in pivots]
    basis = np.zeros((n - k, n), dtype=np.int64)
    basis[np.arange(n - k), free] = 1
    basis[:, list(pivots)] = (-reduced[:, free].T) % PRIME
    return basis


def dependent_sets(null: IntArray, size: int) -> Iterator[tuple[int, ...]]:
    """Candidate sets of `size` columns of N that are dependent modulo p; none is missed.

    N is first compressed to `size` rows by a random map: dependent columns stay dependent, so nothing is lost, and what
    becomes dependent by accident is sorted out by the exact confirmation.
    """
    n = null.shape[1]
    if null.shape[0] == 0 or size == 1:
        yield from ((int(j),) for j in np.flatnonzero(~null.any(axis=0)))
        return
    rows = null
    if null.shape[0] > size:
        mix = np.random.default_rng(size).integers(1, PRIME, size=(size, null.shape[0]), dtype=np.int64)
        rows = np.zeros((size, n), dtype=np.int64)
        for i in range(null.shape[0]):
            rows = (rows + mix[:, i : i + 1] * null[i]) % PRIME
    if rows.shape[0] < size:  # more columns than rows are always dependent: pad, so that the last step sees two rows
        rows = np.concatenate([rows, np.zeros((size - rows.shape[0], n), dtype=np.int64)])
    for chosen, rest in eliminations(rows, size - 2, ordered=True):
        last = chosen[:, -1] if size > 2 else np.full(len(chosen), -1)
        ratio = ratios(rest)
        # Columns up to the last chosen one are out: a set is visited in ascending order only.
        columns = np.arange(n)
        ratio = np.where(columns > last[:, None], ratio, -2 - columns)
        zero = (ratio == ZERO_COLUMN).any(axis=1)
        order = np.argsort(ratio, axis=1, kind="stable")
        ranked = np.take_along_axis(ratio, order, axis=1)
        pairs = (ranked[:, 1:] == ranked[:, :-1]) & (ranked[:, 1:] >= 0)
        for row, position in np.argwhere(pairs):
            yield (*map(int, chosen[row]), *sorted(map(int, order[row, position : position + 2])))
        if zero.any():
            raise UnluckyCompressionError


def _light_supports(reduced: IntArray, below: int) -> Iterator[tuple[int, ...]]:
    """Supports of vectors of the span modulo p with fewer than `below` entries, each the lightest of its search set."""
    k, n = reduced.shape
    if k == 1:
        yield tuple(np.flatnonzero(reduced[0]).tolist())
        return
    best = below
    for chosen, rest in eliminations(reduced, k - 2, ordered=False):
        ratio = ratios(rest)
        order = np.sort(ratio, axis=1)
        zeros = (order == ZERO_COLUMN).sum(axis=1)
        # The largest class of equal ratios, by run lengths along the sorted rows.
        run = np.ones(len(chosen), dtype=np.int64)
        longest = np.zeros(len(chosen), dtype=np.int64)
        value = np.full(len(chosen), ZERO_COLUMN, dtype=np.int64)
        for j in range(n):
            same = (j > 0) & (order[:, j] == order[:, j - 1])
            run = np.where(same, run + 1, 1)
            better = (order[:, j] != ZERO_COLUMN) & (run > longest)
            longest = np.where(better, run, longest)
            value = np.where(better, order[:, j], value)
        weight = n - zeros - longest
        for row in np.flatnonzero(weight < best):
            if weight[row] < best:
                best = int(weight[row])
                yield tuple(np.flatnonzero((ratio[row] != ZERO_COLUMN) & (ratio[row] != value[row])).tolist())


ZERO_COLUMN = -1  # the ratio symbol of a zero column
_INFINITE = PRIME  # the ratio symbol of a column (x, 0)


def ratios(pairs: IntArray) -> IntArray:
    """int64[B, n] from int64[B, 2, n]: x / y modulo p for every column (x, y); equal exactly for parallel columns."""
    x, y = pairs[:, 0], pairs[:, 1]
    ratio = x * _inverses(np.where(y == 0, 1, y)) % PRIME
    ratio = np.where(y == 0, _INFINITE, ratio)
    symbols: IntArray = np.where((x == 0) & (y == 0), ZERO_COLUMN, ratio)
    return symbols


def _inverses(values: IntArray) -> IntArray:
    """Modular inverses along the last axis with one exponentiation per row (Montgomery's trick); entries non-zero."""
    n = values.shape[-1]
    prefix = np.ones_like(values)
    for j in range(1, n):
        prefix[..., j] = prefix[..., j - 1] * values[..., j - 1] % PRIME
    running = _powers(prefix[..., -1] * values[..., -1] % PRIME)
    inverse = np.empty_like(values)
    for j in range(n - 1, -1, -1):
        inverse[..., j] = running * prefix[..., j] % PRIME
        running = running * values[..., j] % PRIME
    return inverse


def _powers(values: IntArray) -> IntArray:
    """values^(p - 2) modulo p: inverses by Fermat's little theorem."""
    result = np.ones_like(values)
    base, exponent = values.copy(), PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * base % PRIME
        base = base * base % PRIME
        exponent >>= 1
    return result


def eliminations(rows: IntArray, count: int, *, ordered: bool) -> Iterator[tuple[IntArray, IntArray]]:
    """Eliminate every independent set of `count` columns, in ascending order, a chunk at a time.

    Args:
        rows: int64[q, n], q >= count + 2.
        count: Columns to eliminate.
        ordered: Leave room for two more columns behind the last one (the dual search completes a set upwards).

    Yields:
        (int64[B, count] the columns, int64[B, 2, n] what is left of the rows; only the first two of the rest are kept).
    """
    n = rows.shape[1]
    room = 2 if ordered else 0
    stack: list[tuple[IntArray, IntArray]] = [(np.zeros((1, 0), dtype=np.int64), rows[None])]
    while stack:
        chosen, left = stack.pop()
        depth = chosen.shape[1]
        if depth == count:
            yield chosen, left[:, :2]
            continue
        last = chosen[:, -1] if depth else np.array([-1])
        columns = np.arange(n)
        limit = n - room - (count - depth - 1)
        ahead, alive = columns > last[:, None], left.any(axis=1)
        if ordered and (ahead & ~alive).any():
            raise UnluckyCompressionError
        allowed = ahead & (columns < limit) & alive
        parents, children = np.nonzero(allowed)
        step = max(1, _CHUNK // (left.shape[1] * n))
        for begin in range(0, len(parents), step):
            b, c = parents[begin : begin + step], children[begin : begin + step]
            stack.append((np.concatenate([chosen[b], c[:, None]], axis=1), _eliminated(left[b], c)))


def _eliminated(left: IntArray, column: IntArray) -> IntArray:
    """Each [q, n] block without its column's direction: int64[B, q - 1, n]."""
    each = np.arange(len(column))
    values = left[each, :, column]
    pivot = np.argmax(values != 0, axis=1)
    inverse = _inverses(values[each, pivot][:, None])[:, 0]
    pivot_row = left[each, pivot] * inverse[:, None] % PRIME
    rest = (left - values[:, :, None] * pivot_row[:, None, :]) % PRIME
    rest[each, pivot] = rest[:, -1]
    shorter: IntArray = rest[:, :-1]
    return shorter
