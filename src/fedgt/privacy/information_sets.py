"""Every light vector of a row space, by information sets: the search behind the minimum support.

An *information set* is a set of columns on which the k rows are invertible. No non-zero vector of the span vanishes on one.
Write the rows systematically (a unit matrix on the set): a vector with t non-zero entries there is a combination of t
rows. When information sets B_1, ..., B_m are searched up to t_1, ..., t_m entries and nothing is found, any vector left
has at least t_i + 1 non-zero entries on each B_i. If column j lies in c_j of them, the c_j over its support sum to at least
sum (t_i + 1): its support is no smaller than the number of the largest c_j that reach this sum.

This is the Brouwer-Zimmermann algorithm for the minimum distance of a linear code (K.-H. Zimmermann, "Integral Hecke
modules, integral generalized Reed-Muller codes, and linear codes", 1996; M. Grassl, "Searching for linear codes with large
minimum distance", 2006). A finite code lists the coefficients of t rows; here the field is (almost) infinite, so the span
of the t rows on the other columns is searched by the same algorithm again, with what is left of the allowed support. It
ends with one row, whose weight is counted, or two, where the largest classes of parallel columns tell.

All statements of this module are about the field of the prime; `support` says what they prove over the rationals.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations, islice
from math import comb

import numpy as np

from fedgt.deadline import NEVER, Deadline
from fedgt.privacy.modular import PRIME, ZERO_COLUMN, inverses, ratios, residues
from fedgt.types import BoolArray, FloatArray, IntArray

_CHUNK = 400_000  # array elements held at once: they should fit into the processor's cache
_SAMPLES_AT_ONCE = 32
_CHEAP = 300_000.0  # array elements: below it the number of information sets is not worth a thought


def light_supports(reduced: IntArray, budget: int, deadline: Deadline = NEVER) -> Iterator[tuple[int, ...]]:
    """Sets of at most `budget` columns that carry a non-zero vector of the span.

    Every vector of *minimal* support (no other vector lives on part of it) with at most `budget` entries is listed by its
    support. Other sets may be listed too; each carries a vector.

    Args:
        reduced: int64[k, n], independent rows modulo the prime in reduced echelon form.
        budget: The largest support wanted.
        deadline: When to give up.

    Raises:
        OutOfTimeError: If it passes before all are listed.
    """
    n = reduced.shape[1]
    if budget == 1:  # a unit vector of the span has to be one of the rows
        yield from ((int(row.argmax()),) for row in reduced != 0 if row.sum() == 1)
        return
    yield from _visit(reduced[None], np.arange(n)[None], np.zeros((1, 0), dtype=np.int64), budget, deadline)


def search_cost(rows: int, columns: int, budget: int) -> float:
    """Array elements that `light_supports` handles, about, if the information sets can be spread evenly."""
    return _plan(rows, columns, budget)[0]


def sampled_support(
    reduced: IntArray, budget: int, *, bases: int, rng: np.random.Generator, deadline: Deadline = NEVER
) -> tuple[int, ...] | None:
    """The smallest support found among one or two rows over random information sets; None if none fits the budget.

    Information set decoding (Lee and Brickell, 1988): it proves nothing, and is right more often than not.
    """
    k, n = reduced.shape
    best: tuple[int, ...] | None = None
    for begin in range(0, bases, _SAMPLES_AT_ONCE):
        if deadline.passed():
            break
        batch = min(_SAMPLES_AT_ONCE, bases - begin)
        form = _Form.of(
            np.broadcast_to(reduced, (batch, k, n)),
            np.broadcast_to(np.arange(n), (batch, n)),
            rng.random((batch, n)),
        )
        for size in range(1, min(2, k) + 1):
            light = _combined(form, np.zeros((batch, 0), dtype=np.int64), size, budget - size, deadline)
            found = min(light, key=len, default=None)
            if found is not None:
                best, budget = found, len(found) - 1
    return best


def _visit(
    block: IntArray, columns: IntArray, inside: IntArray, budget: int, deadline: Deadline
) -> Iterator[tuple[int, ...]]:
    """Column sets, `inside` included, that carry a vector of the span of a block with at most `budget` entries in it.

    Args:
        block: int64[B, t, n], what is left of t rows on the columns not yet decided on.
        columns: int64[B, n], which these are.
        inside: int64[B, u], the columns already in the support.
        budget: How many more may come.
        deadline: When to give up.
    """
    if budget < 0:
        return
    t, n = block.shape[1:]
    step = max(1, _CHUNK // max(1, t * n))
    for begin in range(0, len(block), step):
        deadline.check()
        part = slice(begin, begin + step)
        if t == 1:
            yield from _single(block[part, 0], columns[part], inside[part], budget)
        elif t == 2:
            x, y = block[part, 0], block[part, 1]
            yield from _parallel(ratios(x, y, inverses(y)), columns[part], inside[part], budget)
        else:
            yield from _by_bases(block[part], columns[part], inside[part], budget, deadline)


def _by_bases(
    block: IntArray, columns: IntArray, inside: IntArray, budget: int, deadline: Deadline
) -> Iterator[tuple[int, ...]]:
    """The algorithm of the module text for a batch of blocks, each with its own information sets."""
    t, n = block.shape[1:]
    if n < t:  # dependent rows, as below
        yield from (tuple(row) for row in inside.tolist())
        return
    cover = np.zeros((len(block), n))
    forms: list[_Form] = []
    cost, planned = _plan(t, n, budget)
    choose = len(block) == 1 and cost > _CHEAP
    for _ in range(_most_bases(t, n) if choose else planned):
        form = _Form.of(block, columns, cover)
        if not form.full.all():
            # Dependent rows: some vector lives on `inside` alone, and no minimal support goes beyond it.
            yield from (tuple(row) for row in inside[~form.full].tolist())
            block, columns, inside = block[form.full], columns[form.full], inside[form.full]
            cover = cover[form.full]
            forms = [earlier.only(form.full) for earlier in forms]
            form = form.only(form.full)
        np.put_along_axis(cover, form.places, np.take_along_axis(cover, form.places, axis=1) + 1, axis=1)
        forms.append(form)
    if choose and len(block) == 1:
        forms, cover = _best_number(forms, n, budget)
    heaviest = -np.sort(-cover, axis=1)[:, :budget].sum(axis=1)
    proved = np.full(len(block), len(forms))  # sum of (t_i + 1): no vector vanishes on an information set
    for size in range(1, min(t, budget) + 1):
        for form in forms:
            open_ = proved <= heaviest
            if not open_.any():
                return
            yield from _combined(form.only(open_), inside[open_], size, budget - size, deadline)
            proved[open_] += 1


class _Form:
    """A batch of blocks in systematic form, up to a factor per row."""

    __slots__ = ("columns", "full", "pivots", "places", "rest")

    def __init__(self, rest: IntArray, columns: IntArray, pivots: IntArray, places: IntArray, full: BoolArray) -> None:
        """Keep the parts.

        Args:
            rest: int64[B, t, n - t], the rows outside the information set.
            columns: int64[B, n - t], the columns outside.
            pivots: int64[B, t], the column in which row i alone is not zero.
            places: int64[B, t], its position in the block.
            full: bool[B], whether the t rows are independent; the rest is meaningless where not.
        """
        self.rest, self.columns, self.pivots, self.places, self.full = rest, columns, pivots, places, full

    def only(self, rows: BoolArray) -> "_Form":
        """Some of the blocks."""
        if rows.all():
            return self
        return _Form(self.rest[rows], self.columns[rows], self.pivots[rows], self.places[rows], self.full[rows])

    @classmethod
    def of(cls, block: IntArray, columns: IntArray, priority: FloatArray) -> "_Form":
        """Gauss-Jordan elimination that prefers columns with a small priority as pivots; n >= t."""
        size, t, n = block.shape
        work = block.copy()
        each = np.arange(size)
        places = np.zeros((size, t), dtype=np.int64)
        full = np.ones(size, dtype=bool)
        order = priority.astype(np.float64)
        for i in range(t):
            usable = (work[:, i:] != 0).any(axis=1)
            place = np.where(usable, order, np.inf).argmin(axis=1)
            full &= usable[each, place]
            order[each, place] = np.inf
            places[:, i] = place
            row = i + (work[each, i:, place] != 0).argmax(axis=1)
            pivot_row = work[each, row].copy()
            work[each, row] = work[:, i]
            work[:, i] = pivot_row
            factors = work[each, :, place]
            factors[:, i] = 0
            # Fraction-free: rows are scaled by the pivot instead of dividing by it.
            pivot = np.where(full, pivot_row[each, place], 1)
            work = residues(work * pivot[:, None, None] + (PRIME - factors)[:, :, None] * pivot_row[:, None, :])
        outside = np.ones((size, n), dtype=bool)
        np.put_along_axis(outside, places, False, axis=1)
        keep = np.argsort(~outside, axis=1, kind="stable")[:, : n - t]
        return cls(
            np.take_along_axis(work, keep[:, None, :], axis=2),
            np.take_along_axis(columns, keep, axis=1),
            np.take_along_axis(columns, places, axis=1),
            places,
            full,
        )


def _combined(form: _Form, inside: IntArray, size: int, budget: int, deadline: Deadline) -> Iterator[tuple[int, ...]]:
    """Light vectors in the span of every `size` rows of a systematic form."""
    if budget < 0 or not len(form.rest):
        return
    blocks, t, n = form.rest.shape
    subsets = combinations(range(t), size)
    inverse = inverses(form.rest) if size == 2 else form.rest
    step = max(1, _CHUNK // max(1, blocks * size * n))
    while chosen := list(islice(subsets, step)):
        deadline.check()
        taken = np.array(chosen)
        count = blocks * len(taken)
        columns = np.repeat(form.columns, len(taken), axis=0)
        within = np.concatenate(
            [np.repeat(inside, len(taken), axis=0), form.pivots[:, taken].reshape(count, size)], axis=1
        )
        if size == 2:
            x, y, z = form.rest[:, taken[:, 0]], form.rest[:, taken[:, 1]], inverse[:, taken[:, 1]]
            yield from _parallel(ratios(x, y, z).reshape(count, n), columns, within, budget)
        else:
            yield from _visit(form.rest[:, taken].reshape(count, size, n), columns, within, budget, deadline)


def _single(row: IntArray, columns: IntArray, inside: IntArray, budget: int) -> Iterator[tuple[int, ...]]:
    """One row each: its support."""
    there = row != 0
    for b in np.flatnonzero(there.sum(axis=1) <= budget):
        yield (*inside[b].tolist(), *columns[b, there[b]].tolist())


def _parallel(symbols: IntArray, columns: IntArray, inside: IntArray, budget: int) -> Iterator[tuple[int, ...]]:
    """Two rows each, given by their ratios: a combination vanishes on one class of parallel columns."""
    n = symbols.shape[1]
    present = (symbols != ZERO_COLUMN).sum(axis=1)
    ranked = np.sort(symbols, axis=1)
    for there in np.unique(present).tolist():
        least = max(1, there - budget)  # the class must be as large as this
        rows = np.flatnonzero(present == there)
        if there == 0:
            hits = rows
        else:
            window = ranked[rows, n - there :]
            hits = rows[(window[:, least - 1 :] == window[:, : there - least + 1]).any(axis=1)]
        for b in hits:
            values, counts = np.unique(symbols[b][symbols[b] != ZERO_COLUMN], return_counts=True)
            if not len(values):
                yield tuple(inside[b].tolist())
            for value in values[counts >= least].tolist():
                left = (symbols[b] != ZERO_COLUMN) & (symbols[b] != value)
                yield (*inside[b].tolist(), *columns[b, left].tolist())


def _most_bases(t: int, n: int) -> int:
    return max(1, min(12, 3 * -(-n // t)))


def _best_number(forms: list[_Form], n: int, budget: int) -> tuple[list[_Form], FloatArray]:
    """How many of the information sets of one block to use, from the coverage that they really have."""
    t = forms[0].rest.shape[1]
    best, cover, chosen = np.inf, np.zeros((1, n)), (1, np.zeros((1, n)))
    for m, form in enumerate(forms, start=1):
        cover = cover.copy()
        cover[0, form.places[0]] += 1
        cost = _schedule(t, n, budget, m, int((-np.sort(-cover[0])[:budget]).sum()))
        if cost < best:
            best, chosen = cost, (m, cover)
    return forms[: chosen[0]], chosen[1]


@cache
def _plan(t: int, n: int, budget: int) -> tuple[float, int]:
    """(cost, number of information sets), for evenly spread information sets."""
    if budget < 0 or n < t or t <= 2:
        return (0.0 if budget < 0 else float(max(1, n) * (1 if t == 1 else 12)), 1)
    options = []
    for m in range(1, _most_bases(t, n) + 1):
        each, more = divmod(m * t, n)
        options.append((_schedule(t, n, budget, m, each * budget + min(budget, more)), m))
    return min(options)


def _schedule(t: int, n: int, budget: int, m: int, heaviest: int) -> float:
    """The cost of raising sum (t_i + 1) above what `budget` columns can cover."""
    cost, proved = float(m * t * t * n * 3), m
    for size in range(1, min(t, budget) + 1):
        steps = min(m, heaviest + 1 - proved)
        if steps <= 0:
            break
        cost += steps * comb(t, size) * _plan(size, n - t, budget - size)[0]
        proved += steps
    return cost
