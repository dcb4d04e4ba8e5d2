"""How weak an attack a test would still have named: the power of the sums that were really opened.

A test that accuses nobody says little unless it says what it would have seen. So the test is simulated in the space of its
contrasts (`fedgt.evidence.contrast`): attackers sit at random places and push together by the same length, honest clients
scatter in as many independent directions as those of the run did, and all sets of a few clients are scored as graded
evidence scores them, with attackers of equal strength. The smallest push with which all attackers are named in 9 of 10
placements is what the test could see. Whether losses show harm, and what a second opinion says, is not simulated.

Margins compare one number a client, whose spread among honest clients is learnt beforehand: there the direction is known.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from fedgt.errors import ShapeError
from fedgt.evidence import sparse_prior
from fedgt.evidence.decide import SOMEBODY
from fedgt.evidence.line import STRENGTH_SPREADS, TEMPER, line_evidence, log_sum
from fedgt.evidence.weights import HONEST_LINE
from fedgt.planning.ties import all_sets, set_count
from fedgt.types import BoolArray, FloatArray, as_numbers

WANTED = 0.9
"""The share of placements in which all attackers must be named."""

_PLACEMENTS = 50
_PUSHES = 0.02 * 1.1 ** np.arange(90)
"""In units of the honest spread, from a hundredth to a hundred; a step is a tenth."""

_MOST_SETS = 5_000  # what a tenth of a second scores; sets with one client more than attack are suspected, too
_STRENGTH = 10.0  # of a push, in deviations of an honest client, where one number is compared
_MOST_DIRECTIONS = 2_000  # beyond it only the size of the sample grows
_NO_DIRECTION = 1e-9
_NAMED = 0.5 + 1e-6  # twins, whom no sum tells apart, have a half each


def smallest_named_shift(
    shifts: npt.ArrayLike,
    *,
    attackers: int,
    directions: float | None = None,
    largest: int | None = None,
    placements: int = _PLACEMENTS,
    seed: int = 0,
    who: int | None = None,
) -> float | None:
    """The smallest common push with which all attackers are named in 9 of 10 placements.

    Args:
        shifts: float[contrasts, clients]; see `fedgt.evidence.Contrasts`. Attackers are placed among the clients that move
            any contrast.
        attackers: How many push together.
        directions: In how many independent directions honest clients differ (`effective_features`), taken to two digits;
            None if one number a client is compared, as with margins.
        largest: The most attackers that the test considers; a minority where it is not given.
        placements: How many are drawn.
        seed: Of the placements and the noise.
        who: The column of a client that is an attacker in every placement; None asks about no one in particular.

    Returns:
        The length of the push in units of the honest spread, which is the typical distance of an honest client's model from
        the mean; None where not even a hundred times this spread is named, there are too many sets to score, or `who` moves
        no contrast.

    Raises:
        ShapeError: If the shifts are no matrix of finite numbers, or there are not so many clients.

    Examples:
        >>> from fedgt import named_design
        >>> from fedgt.evidence import contrasts
        >>> from fedgt.planning import smallest_named_shift
        >>> ten = contrasts(named_design("graded-15x10-b").matrix, [100] * 15).shifts
        >>> eight = contrasts(named_design("graded-15x8-b").matrix, [100] * 15).shifts
        >>> with_ten, with_eight = (smallest_named_shift(one, directions=100, attackers=3) for one in (ten, eight))
        >>> with_ten < with_eight  # more sums see weaker attacks
        True
    """
    columns = as_numbers(shifts, "shifts")
    if columns.ndim != 2 or not np.isfinite(columns).all():
        raise ShapeError(f"shifts of shape {columns.shape}; contrasts x clients of finite numbers are needed")
    moves = np.linalg.norm(columns, axis=0) > _NO_DIRECTION
    if who is not None and not moves[who]:
        return None
    first = None if who is None else int(moves[:who].sum())
    columns = columns[:, moves]
    contrasts, clients = columns.shape
    if attackers < 1 or placements < 1:
        raise ShapeError(f"{attackers} attackers in {placements} placements; 1 or more of both are needed")
    largest = (clients - 1) // 2 if largest is None else min(largest, clients)
    most = min(attackers + 1, largest)
    if set_count(clients, most) > _MOST_SETS:
        most = attackers
    if contrasts < 2 or attackers > most or set_count(clients, most) > _MOST_SETS:
        return None
    if directions is not None:
        directions = float(f"{max(directions, contrasts + 1):.2g}")
    return _smallest(columns.tobytes(), columns.shape, attackers, directions, most, largest, placements, seed, first)


@lru_cache(maxsize=64)
def _smallest(
    content: bytes,
    shape: tuple[int, int],
    attackers: int,
    directions: float | None,
    most: int,
    largest: int,
    placements: int,
    seed: int,
    who: int | None,
) -> float | None:
    """Tests in every round ask again and again for the same rows."""
    columns = np.frombuffer(content).reshape(shape)
    rng = np.random.default_rng(seed)
    order = rng.random((placements, shape[1]))
    if who is not None:
        order[:, who] = -1.0
    placed = np.argsort(np.argsort(order, axis=1), axis=1) < attackers
    candidates = _Candidates(columns, most, largest)
    test = _KnownLine(candidates, placed, rng) if directions is None else _AnyLine(candidates, placed, rng, directions)
    low, high = -1, len(_PUSHES)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if test.named(float(_PUSHES[middle])).mean() >= WANTED else (middle, high)
    return None if high == len(_PUSHES) else round(float(_PUSHES[high]), 2)


class _Candidates:
    """The sets of clients that are suspected, and how they move the contrasts.

    Attributes:
        columns: float64[contrasts, clients].
        members: float64[sets, clients].
        unit: float64[contrasts, sets]: where each set moves them, of unit length.
        length: float64[sets]: how far.
        spread: float64[sets]: the summed squared lengths of its clients' columns, in units of its own.
        prior: float64[sets]: log-probability.
        nobody: Log-probability that nobody is malicious.
    """

    def __init__(self, columns: FloatArray, most: int, largest: int) -> None:
        self.columns = columns
        clients = columns.shape[1]
        sets, sizes = _sets(clients, most)
        along = sets @ columns.T
        squared = np.einsum("bk,bk->b", along, along)
        able = squared > _NO_DIRECTION
        self.members, self.length = sets[able], np.sqrt(squared[able])
        self.unit = np.ascontiguousarray((along[able] / self.length[:, None]).T)
        self.spread = self.members @ np.einsum("kj,kj->j", columns, columns) / squared[able]
        weights = sparse_prior(clients, largest).weights
        ways = [gammaln(clients + 1) - gammaln(q + 1) - gammaln(clients - q + 1) for q in range(most + 1)]
        self.prior = (np.log(weights[: most + 1]) - ways)[sizes[able]]
        self.nobody = float(np.log(weights[0]))

    def named(self, score: FloatArray, honest: FloatArray, placed: BoolArray) -> BoolArray:
        """bool[runs]: whether all attackers are named, by float64[runs, sets] and the log-likelihood of nobody."""
        score = score + self.prior
        peak = score.max(axis=1, keepdims=True)
        weights = np.exp(score - peak)
        total = weights.sum(axis=1)
        against = peak[:, 0] + np.log(total) - honest - self.nobody
        chance = 1.0 / (1.0 + np.exp(-np.clip(against, -700.0, 700.0)))
        posterior = weights @ self.members * (chance / total)[:, None]
        named: BoolArray = (against >= SOMEBODY) & np.where(placed, posterior > _NAMED, True).all(axis=1)
        return named


class _AnyLine:
    """A test that has to find the direction of the push, decided many times at once; see `GradedEvidence`."""

    def __init__(self, candidates: _Candidates, placed: BoolArray, rng: np.random.Generator, directions: float) -> None:
        contrasts = len(candidates.columns)
        self._candidates, self._placed = candidates, placed
        self._directions = min(max(round(directions), contrasts + 1), _MOST_DIRECTIONS)
        honest = rng.standard_normal((len(placed), contrasts, self._directions))
        self._along, self._gram = honest[:, :, 0], honest @ honest.transpose(0, 2, 1)

    def named(self, push: float) -> BoolArray:
        """bool[runs]: whether all attackers are named if they push so far, in units of the honest spread."""
        shift = push * self._directions**0.5 * (self._placed @ self._candidates.columns.T)
        cross = np.einsum("rk,rl->rkl", shift, self._along)
        gram = self._gram + cross + cross.transpose(0, 2, 1) + np.einsum("rk,rl->rkl", shift, shift)
        contrasts = gram.shape[1]
        values, vectors = np.linalg.eigh(gram)
        rest = values[:, :-1].mean(axis=1)
        signal = np.maximum((values[:, -1] - rest) / rest, 10.0**-0.5)
        variance = ((1.0 + 1.0 / signal) / (TEMPER * self._directions * signal))[:, None]
        some = line_evidence(gram, features=self._directions)
        across = np.maximum(1.0 - np.square(vectors[:, :, -1] @ self._candidates.unit), 0.0)
        fits = []
        for spread, probability in STRENGTH_SPREADS:
            wide = variance + spread**2 / contrasts * self._candidates.spread
            fits.append(-0.5 * across / wide - 0.5 * (contrasts - 1) * np.log(wide / variance) + np.log(probability))
        half_sphere = np.log(np.pi) * contrasts / 2 - gammaln(contrasts / 2)
        scattered = (contrasts - 1) / 2 * np.log(2 * np.pi * variance[:, 0]) - half_sphere
        nobody = np.logaddexp(np.log(1.0 - HONEST_LINE), np.log(HONEST_LINE) + some + np.minimum(scattered, 0.0))
        return self._candidates.named(log_sum(np.stack(fits)) + some[:, None], nobody, self._placed)


class _KnownLine:
    """A test of one number a client, decided many times at once; see `MarginEvidence`."""

    def __init__(self, candidates: _Candidates, placed: BoolArray, rng: np.random.Generator) -> None:
        self._candidates, self._placed = candidates, placed
        self._honest = rng.standard_normal((len(placed), len(candidates.columns)))

    def named(self, push: float) -> BoolArray:
        """bool[runs]: as of `_AnyLine`."""
        seen = self._honest + push * (self._placed @ self._candidates.columns.T)
        # Strengths that are normal, instead of the few that margins are scored with: a finer grid says the same.
        scale = 1.0 + np.square(_STRENGTH * self._candidates.length)
        along = np.maximum(seen @ self._candidates.unit, 0.0)
        score = 0.5 * np.square(along) * (1.0 - 1.0 / scale) - 0.5 * np.log(scale)
        return self._candidates.named(score, np.zeros(len(seen)), self._placed)


@lru_cache(maxsize=8)
def _sets(clients: int, most: int) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """float64[B, clients] and int64[B]: every set of at most so many clients but the empty one, and its size."""
    sets, sizes = all_sets(clients, most)
    return sets[1:].astype(np.float64), sizes[1:]
