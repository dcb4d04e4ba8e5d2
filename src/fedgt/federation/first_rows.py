"""Which sums of a test a round begins with: as few as make a good model and still let groups be compared."""

from functools import lru_cache
from itertools import combinations

import numpy as np

from fedgt.privacy import best_in_span
from fedgt.types import BoolArray, FloatArray

_MORE_NOISE = 1.25
"""The model of the first sums may have so many times the variance of the one that all sums would give."""

_RANK = 1e-9

_MOST_TRIED = 20_000
"""Sets of sums that are looked at; where no good one is among them, a round begins with all sums."""


def first_rows(rows: FloatArray, *, weights: FloatArray, aside: BoolArray) -> tuple[int, ...]:
    """The numbers of the sums to begin with, ascending.

    Everybody is in one of them, because a vector is fixed with the first sum that it enters. The mean of those who are not
    set aside is nearly as good as that of all sums, and two comparisons of groups are left. Of the smallest such sets, the
    one with the fewest uploads.

    Args:
        rows: float64[groups, clients], the real weights; a group that is not asked for has none.
        weights: float64[clients], of each client in the model.
        aside: bool[clients]: who is excluded, but goes on in its groups.

    Returns:
        All groups that are asked for, where fewer would not do.

    Examples:
        >>> import numpy as np
        >>> from fedgt.federation.first_rows import first_rows
        >>> rows = np.array([[1, 1, 1, 0, 0, 0], [0, 1, 1, 0, 1, 0], [0, 0, 0, 1, 1, 1], [1, 0, 0, 1, 0, 1]], dtype=float)
        >>> first_rows(rows, weights=np.ones(6), aside=np.zeros(6, dtype=bool))
        (0, 1, 2)
    """
    wanted = np.where(np.asarray(aside, dtype=np.bool_), 0.0, np.asarray(weights, dtype=np.float64))
    return _found(np.ascontiguousarray(rows, dtype=np.float64).tobytes(), rows.shape, wanted.tobytes())


@lru_cache(maxsize=64)
def _found(content: bytes, shape: tuple[int, int], wanted: bytes) -> tuple[int, ...]:
    rows = np.frombuffer(content, dtype=np.float64).reshape(shape)
    asked = tuple(np.flatnonzero(rows.any(axis=1)).tolist())
    there = rows.any(axis=0)
    target = np.where(there, np.frombuffer(wanted, dtype=np.float64), 0.0)
    aside: BoolArray = there & (target == 0.0)
    if not target.any():
        return asked
    whole = best_in_span(rows[list(asked)], target=target)
    if whole is None:
        return asked
    tried = 0
    for size in range(2, len(asked)):
        best: tuple[int, tuple[int, ...]] | None = None
        for chosen in combinations(asked, size):
            tried += 1
            part = rows[list(chosen)]
            uploads = int((part > 0).sum())
            if not part[:, there].any(axis=0).all() or (best is not None and uploads >= best[0]):
                continue
            if _comparisons(part, aside) < 2:
                continue
            found = best_in_span(part, target=target)
            if found is not None and found.amplification <= _MORE_NOISE * whole.amplification:
                best = uploads, chosen
        if best is not None:
            return best[1]
        if tried > _MOST_TRIED:
            break
    return asked


def _comparisons(rows: FloatArray, aside: BoolArray) -> int:
    """How many independent differences of group means are left when the updates of some clients cancel."""
    shares = rows / rows.sum(axis=1, keepdims=True)
    lengths = np.linalg.svd(shares[:, aside], compute_uv=False) if aside.any() else np.zeros(0)
    cancelled = int((lengths > _RANK * lengths.max(initial=0.0)).sum())
    return int(np.linalg.matrix_rank(rows)) - cancelled - 1
