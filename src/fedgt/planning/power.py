"""How many attackers a set of sums finds when honest clients are hardly ever wronged: what rows are worth.

Clients differ independently and equally; each attacker moves its model by `step` standard deviations along one line, the
same for all. What the sums say about a set of clients then depends on their row space alone (`fedgt.planning.margin`). The
likeliest set is accused if it explains the sums better than nobody by a threshold, and the threshold is set so that with
nobody malicious 0.05 honest clients a run are accused.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgt.errors import DesignError
from fedgt.planning.margin import moves_of_rows
from fedgt.planning.ties import all_sets, set_count
from fedgt.types import FloatArray, IntArray, as_numbers

STEP = 4.0
"""The attack by which designs are compared, in standard deviations of one client's model."""

WRONGED = 0.05
"""Honest clients that are accused in a run with nobody malicious."""

_MOST_SETS = 25_000
_NULL = 400  # runs with nobody malicious, for the threshold
_TRIALS = 400  # runs with attackers, over all their numbers
_NO_DIRECTION = 1e-9
_SCORES = 1 << 22  # scores held at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Sampled, with the same attacks and noise for all designs of as many clients.

    Attributes:
        found: The share of the attackers that is accused, over runs with 1 to `n_max` of them, every number alike.
        wronged: Honest clients accused in such a run, in the mean.
        n_max: The most attackers that were tried.

    Examples:
        >>> from fedgt.planning import Power
        >>> Power(found=0.9, wronged=0.1, n_max=3).found
        0.9
    """

    found: float
    wronged: float
    n_max: int


def detection_power(rows: npt.ArrayLike, *, n_max: int | None = None, step: float = STEP, seed: int = 0) -> Power:
    """The power of sums with equal sample counts.

    Args:
        rows: [sums, clients], whole or real numbers that are not negative; at least one sum.
        n_max: The most attackers; None for a third of the clients, less where they have more than 25,000 sets.
        step: The attack.
        seed: Of the noise.

    Raises:
        ShapeError: If the rows are no numbers.
        DesignError: If a sum is empty, or n_max has too many sets.

    Examples:
        >>> from fedgt.design import named_design
        >>> from fedgt.planning import detection_power
        >>> detection_power(named_design("graded-15x10-b").matrix).found > detection_power([[1] * 15]).found
        True
    """
    matrix = as_numbers(rows, "rows")
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all() or (matrix < 0).any():
        raise DesignError(f"rows of shape {matrix.shape}; sums x clients of finite numbers from 0 on are needed")
    if not matrix.any(axis=1).all():
        raise DesignError("rows: a sum has no member; remove it")
    clients = matrix.shape[1]
    most = max([q for q in range(1, clients // 3 + 1) if set_count(clients, q) <= _MOST_SETS], default=1)
    n_max = most if n_max is None else n_max
    if not 1 <= n_max <= clients or set_count(clients, n_max) > _MOST_SETS:
        raise DesignError(f"n_max = {n_max} attackers of {clients} clients; 1 to {most} can be tried")
    rng = np.random.default_rng(seed)
    moves = moves_of_rows(matrix)
    accuser = _Accuser(moves, n_max)
    accuser.calibrate(rng.standard_normal((_NULL, clients)) @ moves)
    found, wronged = [], []
    for size in range(1, n_max + 1):
        runs = max(30, _TRIALS // n_max)
        malicious = np.argsort(np.argsort(rng.random((runs, clients)), axis=1), axis=1) < size
        accused = accuser.accused((step * malicious + rng.standard_normal((runs, clients))) @ moves)
        found.append(float((accused & malicious).sum() / malicious.sum()))
        wronged.append(float((accused & ~malicious).sum() / runs))
    return Power(found=float(np.mean(found)), wronged=float(np.mean(wronged)), n_max=n_max)


class _Accuser:
    """The likeliest set of at most n_max clients, by a score that charges for how many such sets there are."""

    def __init__(self, moves: FloatArray, n_max: int) -> None:
        clients = len(moves)
        sets, self._sizes = all_sets(clients, n_max)
        self._sets = sets != 0
        directions = sets.astype(np.float64) @ moves
        length = np.linalg.norm(directions, axis=1)
        self._seen = length > _NO_DIRECTION
        across = directions / np.where(self._seen, length, 1.0)[:, None]
        self._across = np.ascontiguousarray(across.T, dtype=np.float32)
        self._charge = np.array([math.log(math.comb(clients, q)) for q in range(n_max + 1)])[self._sizes]
        self._threshold = math.inf

    def calibrate(self, seen: FloatArray) -> None:
        """Accuse honest clients as often as `WRONGED` says where these are runs with nobody malicious."""
        score, which = self._best(seen)
        order = np.argsort(-score)
        accused = np.cumsum(self._sizes[which][order]) / len(seen)
        allowed = int(np.searchsorted(accused, WRONGED, side="right"))
        self._threshold = float(score[order][allowed]) if allowed < len(order) else 0.0

    def accused(self, seen: FloatArray) -> npt.NDArray[np.bool_]:
        """bool[runs, clients]."""
        score, which = self._best(seen)
        flags: npt.NDArray[np.bool_] = self._sets[which] & (score > self._threshold)[:, None]
        return flags

    def _best(self, seen: FloatArray) -> tuple[FloatArray, IntArray]:
        score, which = np.empty(len(seen)), np.empty(len(seen), dtype=np.int64)
        step = max(1, _SCORES // len(self._charge))
        for begin in range(0, len(seen), step):
            part = slice(begin, begin + step)
            scores = np.maximum(seen[part].astype(np.float32) @ self._across, 0.0)
            scores = np.where(self._seen, 0.5 * scores * scores - self._charge, -np.inf)
            scores[:, 0] = 0.0  # nobody
            which[part] = np.argmax(scores, axis=1)
            score[part] = np.take_along_axis(scores, which[part, None], axis=1)[:, 0]
        return score, which
