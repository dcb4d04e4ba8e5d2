"""Sets of clients that are too many to score all: the small ones all, larger ones grown from the best, the rest sampled.

A set that explains the sums has subsets that explain more than others do, as long as evidence adds up client by client. So
the best sets of one size, and whoever may join them, are where the best sets of the next size are looked for; then members
are exchanged for others while that helps. What is found this way counts exactly. All other sets of a size count by a uniform
sample of them, so that many sets of little evidence each have their due against nobody at all.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

import numpy as np

from fedgt.types import BoolArray, FloatArray, IntArray

_KEPT = 200
"""As many of the best sets of a size are grown. Chosen like the other numbers here on seeds 900 and 901 of 25 clients, where
all sets were scored beside (decision 0044)."""

_EXCHANGED, _TURNS = 4, 10
"""Of so many of the best sets members are exchanged, so often at most."""

_SAMPLED = 10_000
"""As many sets stand for those of a size that were not found."""


class Piece(NamedTuple):
    """Sets of one size.

    Attributes:
        size: Of each.
        sets: bool[B, clients].
        scores: float64[B]: log of prior times likelihood.
        times: Log of how many sets each of them stands for: 0 where it stands for itself.
    """

    size: int
    sets: BoolArray
    scores: FloatArray
    times: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Among:
    """Which sets there are: those that together with the clients they are beside have no more than the largest size.

    Attributes:
        clients: n.
        largest: The largest size.
        beside: int64[...]: clients that are in it in any case.
    """

    clients: int
    largest: int
    beside: IntArray

    @property
    def spare(self) -> int:
        """How many clients may be beside these."""
        return self.largest - len(self.beside)

    def ways(self, size: int) -> list[int]:
        """How many sets of this size have 0, 1, ... members besides."""
        known = len(self.beside)
        return [
            comb(known, size - others) * comb(self.clients - known, others) if size >= others else 0
            for others in range(min(self.spare, self.clients - known) + 1)
        ]

    def holds(self, sets: BoolArray) -> BoolArray:
        """bool[B]: which sets are among them."""
        others = np.delete(sets, self.beside, axis=1)
        fits: BoolArray = others.sum(axis=1) <= self.spare
        return fits

    def drawn(self, size: int, count: int, rng: np.random.Generator) -> BoolArray:
        """bool[count, clients]: sets of this size, uniformly."""
        ways = self.ways(size)
        total = sum(ways)
        numbers = rng.multinomial(count, [one / total for one in ways])
        outside = np.delete(np.arange(self.clients), self.beside)
        sets = np.zeros((count, self.clients), dtype=np.bool_)
        start = 0
        for others, number in enumerate(numbers.tolist()):
            rows = np.arange(start, start + number)[:, None]
            for places, members in ((outside, others), (self.beside, size - others)):
                if number and members > 0:
                    sets[rows, places[rng.random((number, len(places))).argsort(axis=1)[:, :members]]] = True
            start += number
        return sets


def grown_sets(
    small: Iterable[Piece],
    score: Callable[[int, BoolArray], FloatArray],
    among: Among,
    *,
    rng: np.random.Generator,
    pointed: BoolArray,
) -> Iterator[Piece]:
    """Pieces that stand for all sets.

    Args:
        small: All sets up to some size, in the order of sizes; passed on.
        score: Scores sets of a size.
        among: Which sets there are.
        rng: Draws those that stand for others.
        pointed: bool[B, clients]: sets of any size that are looked at besides, each with its own size.
    """
    last: list[Piece] = []
    for piece in small:
        if last and piece.size != last[-1].size:
            last.clear()
        last.append(piece)
        yield piece
    smaller = np.concatenate([one.sets for one in last])
    worth = np.concatenate([one.scores for one in last])
    for size in range(last[-1].size + 1, among.largest + 1):
        sets = _extended(smaller[_best(worth, _KEPT)], among)
        if len(pointed):
            sets = _different(np.concatenate([sets, pointed[pointed.sum(axis=1) == size]]), among)
        drawn = _different(among.drawn(size, _SAMPLED, rng), among)
        drawn = drawn[~np.isin(codes(drawn), codes(sets))]
        # Together, because evidence looks more closely at the nearest of many sets, which takes the time.
        both = score(size, np.concatenate([sets, drawn]))
        of_drawn = both[len(sets) :]
        # What is drawn may lie nearer than what is grown, where no smaller set explains anything.
        near = _best(of_drawn, _KEPT)
        starts, worth = np.concatenate([sets, drawn[near]]), np.concatenate([both[: len(sets)], of_drawn[near]])
        sets, worth = _exchanged(starts, worth, score, size, among)
        yield Piece(size, sets, worth)
        others = ~np.isin(codes(drawn), codes(sets))
        rest, number = sum(among.ways(size)) - len(sets), int(others.sum())
        if rest and number:
            yield Piece(size, drawn[others], of_drawn[others], float(np.log(rest) - np.log(number)))
        smaller = sets


def codes(sets: BoolArray) -> np.ndarray:
    """[B]: a number for each set, or bytes where clients are too many for one."""
    packed = np.packbits(sets, axis=1)
    padded = np.zeros((len(packed), -(-packed.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    kind = np.dtype(np.uint64) if padded.shape[1] == 8 else np.dtype((np.bytes_, padded.shape[1]))
    return padded.view(kind)[:, 0]


def _best(scores: FloatArray, count: int) -> IntArray:
    return np.argsort(-scores, kind="stable")[:count]


def _different(sets: BoolArray, among: Among) -> BoolArray:
    allowed = sets[among.holds(sets)]
    return allowed[np.unique(codes(allowed), return_index=True)[1]]


def _extended(sets: BoolArray, among: Among) -> BoolArray:
    """bool[B, clients]: these sets with one client more."""
    which, client = np.nonzero(~sets)
    larger = sets[which]
    larger[np.arange(len(client)), client] = True
    return _different(larger, among)


def _exchanged(
    sets: BoolArray, worth: FloatArray, score: Callable[[int, BoolArray], FloatArray], size: int, among: Among
) -> tuple[BoolArray, FloatArray]:
    """These sets, and those that come of the best ones by exchanging one member each, as long as there are new best ones."""
    done: set[bytes] = set()
    for _ in range(_TURNS):
        best = [one for one in sets[_best(worth, _EXCHANGED)] if one.tobytes() not in done]
        done |= {one.tobytes() for one in best}
        if not best:
            break
        near = _different(np.concatenate([_neighbours(one) for one in best]), among)
        near = near[~np.isin(codes(near), codes(sets))]
        if len(near):
            sets, worth = np.concatenate([sets, near]), np.concatenate([worth, score(size, near)])
    return sets, worth


def _neighbours(one: BoolArray) -> BoolArray:
    """bool[B, clients]: with one member exchanged."""
    inside, outside = np.flatnonzero(one), np.flatnonzero(~one)
    leaves, joins = (place.ravel() for place in np.meshgrid(inside, outside, indexing="ij"))
    near = np.repeat(one[None], len(leaves), axis=0)
    rows = np.arange(len(leaves))
    near[rows, leaves] = False
    near[rows, joins] = True
    return near
