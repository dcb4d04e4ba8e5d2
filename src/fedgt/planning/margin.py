"""How far apart under noise the sets are that graded evidence can tell apart: the margin of a design.

The group sums u = mu 1 + theta P d + e carry the noise of the clients, so e has the known covariance
s^2 P diag(1 / n_j) P^T (client j averages n_j samples of variance s^2). Whitened, and with the unknown level removed, the
move of a set d is the projection of the vector (sqrt(n_j) d_j) onto the row space of A diag(w / sqrt(n)), less its component
along the projection of (sqrt(n_j)): no covariance is inverted, and scaling a group changes nothing.

The margin is the worst pair; how many clients are wrong at a stated noise level depends on all pairs, and is sampled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedgt.design import Design
from fedgt.errors import DesignError
from fedgt.planning.ties import Ties, check_weights
from fedgt.types import BitArray, FloatArray, frozen

MAX_DIRECTIONS = 200_000
"""Directions whose nearest neighbours are searched at most. 15 clients with n_max = 7 take under a second, 30 with n_max = 4
a few seconds."""


_SCORES = 1 << 20  # scores held at once


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Margin:
    """The margin of a design over all sets of at most n_max malicious clients; tied sets count as one direction.

    Attributes:
        angle: The smallest angle between the whitened moves of two sets that are not tied, in radians; pi when there are
            no two directions.
        pair: The two sets that attain it, ascending client numbers each.
        separation: float64[n_max + 1]: for each number of malicious clients the smallest distance between the whitened move
            of such a set and what another set that is not tied with it can explain with a step of its own (at least 0), in
            units of s per unit of theta: with step theta the two are |theta| separation / s standard deviations apart.
            Sets without a direction (nobody; the same fraction of every group) are left out: inf where none is left.

    Examples:
        >>> from fedgt import named_design
        >>> from fedgt.planning import margin, ties
        >>> design = named_design("graded-15x10-b")
        >>> margin(design, ties(design, 2)).separation.round(2).tolist()
        [inf, 0.33, 0.36]
    """

    angle: float
    pair: tuple[tuple[int, ...], tuple[int, ...]]
    separation: FloatArray


def margin(
    design: Design, found: Ties, *, weights: Sequence[int] | None = None, samples: Sequence[int] | None = None
) -> Margin:
    """The smallest distances between the moves of sets that are not tied, exact over all pairs.

    Args:
        design: The groups.
        found: `ties(design, n_max, weights=weights)`.
        weights: The weights of the clients in the sums, positive integers [clients]; None for equal ones.
        samples: How many samples each client's model averages, positive integers [clients]; None for equal ones (s is then
            the standard deviation of one client's model).

    Raises:
        DesignError: If there are more than 200000 directions.
        ShapeError: If weights or samples are not one positive integer per client.

    Examples:
        >>> from fedgt import named_design
        >>> from fedgt.planning import margin, ties
        >>> design = named_design("graded-15x10-b")
        >>> found = margin(design, ties(design, 2))
        >>> round(found.angle, 3), len(found.pair)
        (0.473, 2)
    """
    moves = whitened_moves(design, weights=weights, samples=samples)
    sets = found.sets
    first = found.label == np.arange(len(sets))
    first[found.label[0]] = False  # the empty set and all sets tied with it have no direction
    directed = np.flatnonzero(found.label != found.label[0])
    distinct = np.flatnonzero(first)
    if len(distinct) > MAX_DIRECTIONS:
        raise DesignError(
            f"{len(distinct)} directions of sets of at most {found.n_max} of {design.clients} clients; nearest neighbours "
            f"of at most {MAX_DIRECTIONS} are searched: give the ties of a smaller n_max"
        )
    separation = np.full(found.n_max + 1, np.inf)
    if not len(directed):
        return Margin(angle=math.pi, pair=((), ()), separation=frozen(separation, np.float64))
    points = sets[distinct].astype(np.float64) @ moves
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    angles, nearest = _nearest(points)
    place = np.zeros(len(sets), dtype=np.int64)
    place[distinct] = np.arange(len(distinct))
    length = np.linalg.norm(sets[directed].astype(np.float64) @ moves, axis=1)
    apart = length * np.sin(np.minimum(angles, math.pi / 2))[place[found.label[directed]]]
    np.minimum.at(separation, sets[directed].sum(axis=1), apart)
    closest = int(np.argmin(angles))
    pair = () if nearest is None else (distinct[closest], distinct[nearest[closest]])
    one, other = sorted(tuple(np.flatnonzero(sets[i]).tolist()) for i in pair) or ((), ())
    return Margin(angle=float(angles[closest]), pair=(one, other), separation=frozen(separation, np.float64))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoiseTrials:
    """Attacks and client noise, drawn once so that designs are compared on the same ones.

    Attributes:
        sets: uint8[T, clients]: who is malicious; as many trials of every size 0..n_max.
        noise: float64[T, clients]: standard normal.
    """

    sets: BitArray
    noise: FloatArray


def draw_trials(clients: int, n_max: int, per_size: int, *, rng: np.random.Generator) -> NoiseTrials:
    """Uniform sets of each size 0..n_max, `per_size` of each, with standard normal noise for every client.

    Examples:
        >>> import numpy as np
        >>> from fedgt.planning import draw_trials
        >>> draw_trials(15, 2, 100, rng=np.random.default_rng(0)).sets.shape
        (300, 15)
    """
    sizes = np.repeat(np.arange(n_max + 1), per_size)
    rank = rng.permuted(np.tile(np.arange(clients), (len(sizes), 1)), axis=1)
    return NoiseTrials(
        sets=frozen(rank < sizes[:, None], np.uint8),
        noise=frozen(rng.standard_normal((len(sizes), clients)), np.float64),
    )


def wrong_under_noise(
    design: Design,
    found: Ties,
    trials: NoiseTrials,
    *,
    step: float = 8.0,
    weights: Sequence[int] | None = None,
    samples: Sequence[int] | None = None,
) -> FloatArray:
    """float64[n_max + 1]: the mean number of missed and falsely accused clients for each number of malicious clients.

    The accused set is the one of at most n_max clients with the largest posterior at the best level and step (at least 0):
    noise of known size, n_m uniform, the set uniform given n_m. Among tied sets the smallest is accused.

    Args:
        design: The groups.
        found: `ties(design, n_max, weights=weights)`.
        trials: `draw_trials(clients, n_max, ...)`; 64 of each size take a tenth of a second for 15 clients and n_max = 7.
        step: theta / s, the step per malicious client in standard deviations of one sample of a client (of one client's
            model when `samples` is None).
        weights: As `margin`.
        samples: As `margin`.

    Raises:
        ShapeError: As `margin`.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.planning import draw_trials, ties, wrong_under_noise
        >>> design = named_design("graded-15x10-b")
        >>> trials = draw_trials(15, 2, 100, rng=np.random.default_rng(0))
        >>> wrong_under_noise(design, ties(design, 2), trials).shape  # for no, one and two attackers
        (3,)
    """
    root = np.sqrt(np.asarray(check_weights(design, samples, what="samples"), dtype=np.float64))
    moves = whitened_moves(design, weights=weights, samples=samples)
    seen = (step * trials.sets @ moves + trials.noise @ (moves / root[:, None])).astype(np.float32)
    distinct = np.flatnonzero(found.label == np.arange(len(found.label)))  # the first is nobody malicious
    directions = found.sets[distinct].astype(np.float64) @ moves
    directions[1:] /= np.linalg.norm(directions[1:], axis=1, keepdims=True)
    across = np.ascontiguousarray(directions.T, dtype=np.float32)
    choices = [math.log(math.comb(design.clients, q)) for q in range(found.n_max + 1)]
    penalty = np.array(choices, dtype=np.float32)[found.sets[distinct].sum(axis=1)]
    accused = np.empty(len(seen), dtype=np.int64)
    chunk = max(1, _SCORES // len(distinct))
    for begin in range(0, len(seen), chunk):
        score = np.maximum(seen[begin : begin + chunk] @ across, 0.0)
        score *= score
        score *= np.float32(0.5)
        score -= penalty
        accused[begin : begin + chunk] = np.argmax(score, axis=1)
    wrong = (found.sets[distinct[accused]] != trials.sets).sum(axis=1)
    size = trials.sets.sum(axis=1)
    mean: FloatArray = np.bincount(size, wrong, minlength=found.n_max + 1) / np.bincount(
        size, minlength=found.n_max + 1
    )
    return mean


def whitened_moves(
    design: Design, *, weights: Sequence[int] | None = None, samples: Sequence[int] | None = None
) -> FloatArray:
    """float64[clients, rank]: the whitened, level-free move of each client; that of a set is the sum of its clients'.

    Raises:
        ShapeError: As `margin`.
    """
    root = np.sqrt(np.asarray(check_weights(design, samples, what="samples"), dtype=np.float64))
    rows = design.matrix * np.asarray(check_weights(design, weights), dtype=np.float64) / root
    return _moves(rows, root)


def moves_of_rows(rows: FloatArray) -> FloatArray:
    """float64[clients, rank]: the same of any sums, with equal sample counts; coefficients are allowed."""
    return _moves(rows, np.ones(rows.shape[1]))


def _moves(rows: FloatArray, root: FloatArray) -> FloatArray:
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    _, size, basis = np.linalg.svd(rows, full_matrices=False)
    basis = basis[size > size[0] * max(rows.shape) * np.finfo(np.float64).eps * 64]  # dependent groups add nothing
    level = basis @ root
    level /= np.linalg.norm(level)
    moves: FloatArray = (basis * root).T
    moves -= np.outer(moves @ level, level)
    return moves


def _nearest(points: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """(float64[N] the angle to the nearest other unit vector, int64[N] which one or None if there is only one)."""
    from scipy.spatial import KDTree

    if len(points) < 2:
        return np.full(len(points), math.pi), None
    chord, neighbour = KDTree(points).query(points, k=2)
    # A point is its own nearest; with rounding the order of two nearly equal points may be swapped.
    itself = neighbour[:, 0] == np.arange(len(points))
    chord = np.where(itself, chord[:, 1], chord[:, 0])
    return 2.0 * np.arcsin(np.minimum(chord / 2.0, 1.0)), np.where(itself, neighbour[:, 1], neighbour[:, 0])
