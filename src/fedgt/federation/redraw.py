"""Who shares a group in the test after one with faults: whoever was not heard, apart from those who may be the liar.

The same groups again would be spoilt again, and would say nothing new about who did it. New groups cost what the cautious
account has left, so a part of it is reserved when the first test is planned: `reserved_rows`. Other further tests do not
touch it. Every sum of 0s and 1s in the span of what may be opened anyway costs nothing, and few clients have many of them.
"""

from dataclasses import dataclass

import numpy as np

from fedgt.design import Design
from fedgt.federation.next_rows import confusion, drawn_row, keeps_promise, sieved
from fedgt.planning import SPARE
from fedgt.types import BoolArray, FloatArray

RESERVED = SPARE
"""Independent rows of the cautious account that are kept for tests after a fault, where the first test leaves so many."""

_FEWEST_ROWS = 3
LISTED = 16
"""Clients up to which all sums in a span are listed."""

_DRAWN = 12
_BLOCKS = 60
_TRIES = 30
_HOPELESS = 3
_OUTSIDE = 1e-9
_UNSUSPECTED = 0.1
"""What it is worth to hear a client again that nobody suspects, beside one that no test has heard."""


def reserved_rows(
    first: FloatArray, weights: FloatArray, *, privacy: int, rng: np.random.Generator, rows: int = RESERVED
) -> FloatArray:
    """The rows that are reserved beside those of the first test; fewer where the promise does not allow so many.

    Args:
        first: float64[groups, clients], the real rows of the first test.
        weights: float64[clients], of each client in a sum.
        privacy: The promised r, kept by all of them together.
        rng: Draws them; equal generators give equal rows, so that nobody has to remember them.
        rows: How many to reserve.

    Returns:
        float64[up to rows, clients], real rows that are independent of those of the first test.
    """
    everybody, found = np.arange(len(weights)), np.empty((0, len(weights)))
    # Each group that is drawn is proved; where there is no sieve a proof takes long, and near the bound none is ever met.
    failed, most = 0, _TRIES * rows if sieved(weights, privacy) else _HOPELESS
    for _ in range(_TRIES * rows):
        held = np.vstack([first, found])
        rank = np.linalg.matrix_rank(held)
        if len(found) == rows or rank > len(weights) - privacy:  # as many independent rows as the promise allows
            break
        row = drawn_row(held, weights, everybody, privacy=privacy, rng=rng)
        failed += row is None
        if failed == most:
            break
        if row is not None and np.linalg.matrix_rank(np.vstack([held, row * weights])) > rank:
            found = np.vstack([found, row * weights])
    return found


def keep_promise_together(known: FloatArray, planned: FloatArray, privacy: int) -> FloatArray:
    """The known rows and those of the planned ones that keep the promise beside them.

    All planned ones do, unless clients have left sums that are open: then other rows than the planned ones are known.

    Args:
        known: float64[rows, clients], what is open.
        planned: float64[rows, clients].
        privacy: The promised r.
    """
    together = np.vstack([known, planned])
    if keeps_promise(together, privacy):
        return together
    for row in planned:
        if keeps_promise(more := np.vstack([known, row]), privacy):
            known = more
    return known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Room:
    """What the groups of a test after a fault are chosen from.

    Attributes:
        faults: bool[faults, clients], the clients among whom each fault has a liar.
        open_to: float64[rows, clients], the real rows that are open, planned or reserved: their span keeps the promise.
        weights: float64[clients], of each client in a sum.
        allowed: bool[clients], who may take part.
        privacy: The promised r.
        groups: The most rows.
        rng: Draws candidates where there are too many clients to list them.
    """

    faults: BoolArray
    open_to: FloatArray
    weights: FloatArray
    allowed: BoolArray
    privacy: int
    groups: int
    rng: np.random.Generator


def redrawn(liar: FloatArray, unheard: BoolArray, room: Room, *, beside: BoolArray | None = None) -> Design | None:
    """Groups for the test after a fault, or None where no three can be had.

    A sum is worth the clients that it hears if everybody who is suspected spoils what it is in. So whoever was not heard
    sits with clients that nobody suspects, and of several suspects one sits in each sum. A sum that holds all suspects of
    a fault holds its liar.

    Args:
        liar: float64[clients], the posterior of each to be a liar.
        unheard: bool[clients], who is in no sum that could be used.
        room: What they are chosen from.
        beside: bool[rows, clients], groups that the test has anyway: others are chosen, and one is enough.
    """
    matrix = possible_rows(room)
    fewest = _FEWEST_ROWS
    if beside is not None:
        fewest = 1
        matrix = matrix[~(matrix[:, None] == beside[None]).all(axis=2).any(axis=1)]
    honest = np.where(matrix, 1.0 - np.minimum(liar, 1.0 - _OUTSIDE), 1.0)
    others = honest.prod(axis=1, keepdims=True) / honest  # that of a sum's other members nobody is a liar
    others[_holds_a_liar(matrix, room.faults)] *= _UNSUSPECTED
    wanted = np.where(unheard, 1.0, np.maximum(liar, _UNSUSPECTED))
    chosen: list[int] = []
    held, heard = room.open_to, np.zeros(len(liar))
    while len(chosen) < room.groups:
        worth = (np.where(matrix, others, 0.0) * wanted / (1.0 + heard)).sum(axis=1)
        worth[chosen] = 0.0
        # Whoever was not heard comes first.
        first = matrix[:, unheard & (heard == 0)].any(axis=1) & (worth > 0)
        worth[~first] *= not first.any()
        best = next((one for one in np.argsort(-worth) if _all_free(matrix[[one]], held, room)), None)
        if best is None or worth[best] <= 0:
            break
        chosen.append(int(best))
        held, heard = np.vstack([held, matrix[best] * room.weights]), heard + matrix[best]
    if len(chosen) < fewest:
        return None
    rows = matrix[chosen].astype(np.uint8)
    return Design(matrix=rows, name=f"redrawn-{len(liar)}x{len(rows)}", source="chosen by the posterior over liars")


def told_apart(sets: BoolArray, probabilities: FloatArray, room: Room) -> Design | None:
    """Groups that tell apart whom the sums that are left cannot, or None where no three can be had.

    Whoever spoils the sums that would tell it from somebody else is as suspicious as this one. The new groups are chosen as
    those of any further test, but out of sums that keep the promise with what is reserved, and without those that were
    spoilt already.

    Args:
        sets: bool[B, clients], sets of malicious clients that are still possible.
        probabilities: float64[B], how probable each is.
        room: What they are chosen from.
    """
    matrix = possible_rows(room)
    matrix = matrix[~_holds_a_liar(matrix, room.faults)]
    best: tuple[float, BoolArray] | None = None
    for _ in range(_BLOCKS if len(matrix) >= _FEWEST_ROWS and len(sets) >= 2 else 0):
        block = matrix[room.rng.permutation(len(matrix))[: room.groups]]
        cost = confusion(block * room.weights, sets, probabilities)
        if (best is None or cost < best[0]) and _all_free(block, room.open_to, room):
            best = cost, block
    if best is None:
        return None
    rows = best[1].astype(np.uint8)
    return Design(matrix=rows, name=f"told-apart-{len(room.weights)}x{len(rows)}", source="chosen by posterior")


def _holds_a_liar(matrix: BoolArray, faults: BoolArray) -> BoolArray:
    """bool[rows]: whether a row holds all suspects of a fault."""
    held: BoolArray = (matrix.astype(np.int64) @ faults.T.astype(np.int64) == faults.sum(axis=1)).any(axis=1)
    return held


def _all_free(block: BoolArray, held: FloatArray, room: Room) -> bool:
    few = len(room.weights) <= LISTED
    return few or keeps_promise(np.vstack([held, block * room.weights]), room.privacy)


def possible_rows(room: Room) -> BoolArray:
    """bool[candidates, clients]: sums of those who may take part, each of which keeps the promise.

    Args:
        room: Of up to `LISTED` clients all sums in its span are listed.
    """
    weights, privacy = room.weights, room.privacy
    patterns, clients = room.open_to / weights, len(weights)
    if clients <= LISTED:
        every = ((np.arange(1, 2**clients)[:, None] >> np.arange(clients)) & 1).astype(np.bool_)
        left = every - (every @ np.linalg.pinv(patterns)) @ patterns
        found = every[np.abs(left).max(axis=1) < 1e-7]
    else:
        known = patterns[((np.abs(patterns) < _OUTSIDE) | (np.abs(patterns - 1.0) < _OUTSIDE)).all(axis=1)]
        able = np.flatnonzero(room.allowed)
        drawn = [drawn_row(patterns * weights, weights, able, privacy=privacy, rng=room.rng) for _ in range(_DRAWN)]
        found = np.array([*known, *(one for one in drawn if one is not None)]).reshape(-1, clients) > 0.5
    missing = found[:, ~room.allowed].any(axis=1)
    possible: BoolArray = np.unique(found[~missing & (found.sum(axis=1) >= privacy)], axis=0)
    return possible
