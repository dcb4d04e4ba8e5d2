"""Further rows for another test round: they must break the tie that is left, and keep the promise if updates repeat.

What two test rounds reveal is counted in the cautious account as if the local models were the same, so that it can hold at
most n - r + 1 independent rows. The new rows are judged by the sets of clients that the evidence so far leaves open: pairs
of them that the new sums move along clearly different lines can be told apart.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedgt.design import Design
from fedgt.errors import ShapeError, SpecError
from fedgt.privacy import minimum_support
from fedgt.types import BoolArray, FloatArray

_ANGLE = 0.1
"""Squared sine between two lines from which they count as clearly different."""

_DRAWS_PER_ROW, _PROVED_PER_ROW = 40, 10
"""Groups that are drawn for a row; fewer where each is proved, which takes some 50 milliseconds."""

_HOPELESS = 3
"""Blocks that all broke the promise before the search gives up: where rows can be had, most draws have them."""

_MOST_SUPPORTS, _FEW_SUPPORTS = 60_000, 10_000
"""Sets of privacy - 1 clients up to which rows are sifted by all of them at once, in floating point: near the bound, where
most groups are refused, and elsewhere."""

_OUTSIDE = 1e-9
"""Squared sine from which a vector is outside a subspace; what is let through is checked exactly."""


def next_rows(
    revealed: npt.ArrayLike,
    sets: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    *,
    privacy: int,
    rows: int = 4,
    candidates: int = 20,
    allowed: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    fewest: int = 0,
    rng: np.random.Generator,
) -> Design | None:
    """Choose who shares a group in another test round.

    Args:
        revealed: float[groups, clients], the real weights of all test rows so far.
        sets: bool[B, clients], sets of malicious clients that are still possible.
        probabilities: float[B], how probable each is; they need not add up to 1.
        privacy: The promised r, kept by the old and new rows together.
        rows: The most rows to add; three at least are needed to tell lines apart.
        candidates: How many blocks of rows to draw and compare.
        allowed: bool[clients], who may take part; everybody if not given.
        weights: float[clients], the real weight of each client in a sum; equal if not given.
        fewest: So many of those who may take part must be in some group, or all of them: a quorum, where groups are agreed.
        rng: Draws them; equal generators give equal rows.

    Returns:
        The new groups; None where no three rows keep the promise, or nothing is open.

    Raises:
        ShapeError: If the shapes do not fit.
        SpecError: If a number is out of range.
    """
    old, open_sets = np.atleast_2d(np.asarray(revealed, dtype=np.float64)), np.asarray(sets, dtype=np.bool_)
    chances = np.asarray(probabilities, dtype=np.float64)
    clients = old.shape[1]
    able = np.ones(clients, dtype=np.bool_) if allowed is None else np.asarray(allowed, dtype=np.bool_)
    weight = np.ones(clients) if weights is None else np.asarray(weights, dtype=np.float64)
    if open_sets.ndim != 2 or open_sets.shape[1] != clients or chances.shape != (len(open_sets),):
        raise ShapeError(f"sets {open_sets.shape} with probabilities {chances.shape} for {clients} clients")
    if able.shape != (clients,) or weight.shape != (clients,):
        raise ShapeError(f"{able.shape} and {weight.shape} entries for {clients} clients; one each is needed")
    if privacy < 1 or rows < 1 or candidates < 1:
        raise SpecError(f"privacy {privacy}, {rows} rows, {candidates} candidates: positive numbers are needed")
    held = minimum_support(old, enough=privacy)
    if len(open_sets) < 2 or rows < 3 or (held is not None and held.lower < privacy):
        return None
    least = min(fewest, int(able.sum()))
    if not _bounded(old, privacy) and not _sifted(old, weight, privacy):
        # Far from the bound most groups keep the promise: the best of many are proved, not each one.
        free = [_draw(old, weight, able, privacy=privacy, rows=rows, rng=rng, proved=False) for _ in range(candidates)]
        blocks = [one for one in free if one is not None and int(one.any(axis=0).sum()) >= least]
        blocks.sort(key=lambda one: confusion(one * weight, open_sets, chances))
        for one in blocks[:_HOPELESS]:
            if keeps_promise(np.vstack([old, one * weight]), privacy):
                return _named(one)
    best: tuple[float, FloatArray] | None = None
    for drawn in range(candidates):
        if drawn == _HOPELESS and best is None:
            break
        block = _draw(old, weight, able, privacy=privacy, rows=rows, rng=rng)
        if block is None or int(block.any(axis=0).sum()) < least:
            continue
        cost = confusion(block * weight, open_sets, chances)
        if (best is None or cost < best[0]) and keeps_promise(np.vstack([old, block * weight]), privacy):
            best = cost, block
    return None if best is None else _named(best[1])


def _named(block: FloatArray) -> Design:
    groups, clients = block.shape
    return Design(matrix=block.astype(np.uint8), name=f"next-rows-{clients}x{groups}", source="chosen by posterior")


def confusion(rows: FloatArray, sets: BoolArray, probabilities: FloatArray) -> float:
    """Expected wrong clients if lines closer than about `_ANGLE` cannot be told apart: what `next_rows` minimises.

    Args:
        rows: float64[groups, clients], real weights of the new sums.
        sets: bool[B, clients].
        probabilities: float64[B].
    """
    shares = rows / np.maximum(rows.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    moved = sets.astype(np.float64) @ shares.T
    moved -= moved.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(moved, axis=1)
    unit = moved / np.where(lengths > 1e-9, lengths, 1.0)[:, None]
    # A set that moves nothing is like any other: the new sums say nothing about it.
    cosine = np.where((lengths[:, None] > 1e-9) & (lengths[None] > 1e-9), unit @ unit.T, 1.0)
    alike = np.exp(-np.maximum(1.0 - cosine, 0.0) / _ANGLE)
    apart = (sets[:, None] != sets[None]).sum(axis=2)
    return float(np.einsum("a,b,ab,ab->", probabilities, probabilities, alike, apart))


def drawn_row(
    held: FloatArray, weight: FloatArray, available: npt.NDArray[np.int64], *, privacy: int, rng: np.random.Generator
) -> FloatArray | None:
    """float64[clients] of 0 and 1: a random group that keeps the promise together with the held rows; None if none is met.

    Args:
        held: float64[groups, clients], real weights of the rows so far.
        weight: float64[clients], of each client in a sum.
        available: The columns that may take part.
        privacy: The promised r.
        rng: Draws the group.
    """
    sizes = privacy, max(privacy, int(0.7 * len(available)))
    return _drawn(_test_of(held, weight, privacy), available, held.shape[1], sizes, rng)


def _draw(
    old: FloatArray,
    weight: FloatArray,
    able: BoolArray,
    *,
    privacy: int,
    rows: int,
    rng: np.random.Generator,
    proved: bool = True,
) -> FloatArray | None:
    """float64[3 to rows, clients] of 0 and 1: random groups that keep the promise together with the old rows, if proved.

    No group is a combination of the others: the same one again would have nothing to be compared with.
    """
    available = np.flatnonzero(able)
    smallest, largest = privacy, max(privacy, int(0.7 * len(available)))
    if len(available) <= privacy:
        return None
    block: list[FloatArray] = []
    held = old
    for _ in range(rows):
        test = _test_of(held, weight, privacy) if proved else _ANY_ROW
        row = _drawn(test, available, held.shape[1], (smallest, largest), rng, apart=np.array(block))
        if row is None:
            break
        block.append(row)
        held = np.vstack([held, row * weight])
    return np.array(block) if len(block) >= 3 else None


class _Test(NamedTuple):
    """What says whether a row keeps the promise beside those that are held, and how many rows are worth trying."""

    passes: Callable[[FloatArray], bool]
    draws: int = _DRAWS_PER_ROW


_ANY_ROW = _Test(lambda _: True)


def _drawn(
    test: _Test,
    available: npt.NDArray[np.int64],
    clients: int,
    sizes: tuple[int, int],
    rng: np.random.Generator,
    *,
    apart: FloatArray | None = None,
) -> FloatArray | None:
    """float64[clients] of 0 and 1: a random group that passes, and is no combination of those it is to be apart from."""
    for _ in range(test.draws):
        row = np.zeros(clients)
        row[rng.choice(available, int(rng.integers(sizes[0], sizes[1] + 1)), replace=False)] = 1.0
        repeats = apart is not None and len(apart) and np.linalg.matrix_rank(np.vstack([apart, row])) <= len(apart)
        if not repeats and test.passes(row):
            return row
    return None


def _test_of(held: FloatArray, weight: FloatArray, privacy: int) -> _Test:
    """At the bound, or with few small sets, up to rounding, which is fast; else by proof."""
    if _bounded(held, privacy):
        outside = _outside(held) * weight
        return _Test(
            lambda row: float(np.square(outside @ row).sum()) <= _OUTSIDE * float(np.square(row * weight).sum())
        )
    if _sifted(held, weight, privacy):
        return _Test(_sieve((held / weight).tobytes(), held.shape, privacy).passes)
    return _Test(lambda row: keeps_promise(np.vstack([held, row * weight]), privacy), _PROVED_PER_ROW)


def _bounded(held: FloatArray, privacy: int) -> bool:
    """Whether only combinations of these rows can be added: no more independent sums promise as much (Singleton)."""
    return len(_outside(held)) < privacy


def _outside(held: FloatArray) -> FloatArray:
    """float64[clients - rank, clients]: an orthonormal basis of what is orthogonal to these rows."""
    _, scale, right = np.linalg.svd(held)
    return right[int((scale > _OUTSIDE * scale.max(initial=0.0)).sum()) :]


def sieved(weight: FloatArray, privacy: int) -> bool:
    """Whether rows are tried against all small sets at once, which is fast; else each takes longer, or is proved.

    Args:
        weight: float64[clients], of each client in a sum.
        privacy: The promised r.
    """
    return _listed(weight, privacy, _FEW_SUPPORTS)


def _sifted(held: FloatArray, weight: FloatArray, privacy: int) -> bool:
    return _listed(weight, privacy, _MOST_SUPPORTS if len(_outside(held)) < 2 * privacy else _FEW_SUPPORTS)


def _listed(weight: FloatArray, privacy: int, most: int) -> bool:
    return privacy > 1 and comb(len(weight), privacy - 1) <= most and bool((weight > 0).all())


def keeps_promise(rows: FloatArray, privacy: int) -> bool:
    """Whether no combination of the rows mixes fewer clients than promised.

    Args:
        rows: float64[groups, clients], real weights.
        privacy: The promised r.
    """
    found = minimum_support(rows, enough=privacy)
    return found is not None and found.lower >= privacy


class _Sieve:
    """Which rows would reveal a combination of fewer than `privacy` clients, given rows that do not.

    With N a basis of the vectors orthogonal to the held rows, a vector v is a combination of these and the new row exactly
    when N v is parallel to N row; for v of a small support S, N v lies in the span of the columns S of N.
    """

    def __init__(self, held: FloatArray, privacy: int) -> None:
        """Prepare the spans of all sets of privacy - 1 clients."""
        clients = held.shape[1]
        self._null = _outside(held)
        chosen = np.array(list(combinations(range(clients), privacy - 1)), dtype=np.int64)
        left, size, _ = np.linalg.svd(self._null[:, chosen].transpose(1, 0, 2), full_matrices=False)
        # The held rows keep the promise, but columns may still depend on each other within rounding.
        self._spans = left * (size > 1e-9)[:, None]

    def passes(self, row: FloatArray) -> bool:
        """Whether the promise still holds with this row, up to rounding."""
        moved = self._null @ row
        size = float(moved @ moved)
        if size <= _OUTSIDE * float(row @ row):
            return True  # a combination of held rows reveals nothing new
        within = np.einsum("sij,i->sj", self._spans, moved)
        return bool((size - np.einsum("sj,sj->s", within, within)).min() > _OUTSIDE * size)


@lru_cache(maxsize=8)
def _sieve(content: bytes, shape: tuple[int, int], privacy: int) -> _Sieve:
    """Rows are drawn again and again beside the same ones."""
    return _Sieve(np.frombuffer(content).reshape(shape), privacy)
