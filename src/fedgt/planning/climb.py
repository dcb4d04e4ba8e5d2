"""Small improvements: from a design to a better one by single moves, for binary outcomes."""

from collections.abc import Callable, Sequence

import numpy as np

from fedgt.deadline import Deadline
from fedgt.design import Design, from_matrix
from fedgt.planning.demands import Demands
from fedgt.planning.evaluation import objective, private

Progress = Callable[[int, int], None]
"""(steps done, all steps)."""

_STARTS = 2
_SECOND_SHARE = 4  # the best start gets three quarters of the moves
_TRADE = 3  # kinds of moves: three in five an exchange within a group, then a trade, then one client joins or leaves


class Steps:
    """Counts what was tried, and tells whoever wants to know."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        """Nothing is done yet."""
        self._progress, self._total, self.count = progress, total, 0

    def done(self, count: int = 1) -> None:
        """So many more."""
        if count == 0:
            return
        self.count += count
        if self._progress is not None:
            self._progress(self.count, self._total)


def climbed(
    demands: Demands,
    starts: Sequence[Design],
    moves: int,
    rng: np.random.Generator,
    steps: Steps,
    deadline: Deadline,
) -> list[Design]:
    """Improve the best designs of one number of groups by single moves; only what became better comes back."""
    if not starts or moves == 0 or starts[0].groups == 1 or deadline.passed():
        return []
    scored: list[tuple[tuple[float, float], int, Design]] = []
    for design in starts:
        scored.append((objective(design, demands), len(scored), design))
        if deadline.passed():
            break
    improved = []
    ranked = sorted(scored)[:_STARTS]
    for number, (reached, _, start) in enumerate(ranked):
        second = moves // _SECOND_SHARE if len(ranked) > 1 else 0
        best, score = start, reached
        for _ in range(moves - second if number == 0 else second):
            if deadline.passed():
                break
            changed = _changed(best, demands.privacy, rng)
            steps.done()
            if changed is None:
                continue
            now = objective(changed, demands)
            if now < score and private(changed, demands.privacy):
                best, score = changed, now
        if best is not start:
            improved.append(
                from_matrix(
                    best.matrix,
                    name=f"searched-{best.clients}x{best.groups}-{number}",
                    source=f"single moves from {start.name} ({start.source})",
                )
            )
    return improved


def _changed(design: Design, privacy: int, rng: np.random.Generator) -> Design | None:
    """A small change; None where it does not apply, leaves a client in no group, or makes a group too small.

    Mostly a client takes the place of another in a group, or two groups trade a client each; sometimes one joins or leaves.
    Where n_m^max binds, group sizes are as small as they may be, and only the first two lead on.
    """
    matrix = design.matrix.copy()
    kind = int(rng.integers(5))
    group = int(rng.integers(design.groups))
    if kind == _TRADE:
        other = int(rng.integers(design.groups))
        given, taken = np.flatnonzero(matrix[group] > matrix[other]), np.flatnonzero(matrix[group] < matrix[other])
        if not given.size or not taken.size:
            return None
        moved = [rng.choice(given), rng.choice(taken)]
        matrix[np.ix_([group, other], moved)] ^= 1
    else:
        inside, outside = np.flatnonzero(matrix[group]), np.flatnonzero(matrix[group] == 0)
        leaves = kind < _TRADE or bool(rng.integers(2))
        joins = kind < _TRADE or not leaves
        if leaves and inside.size:
            matrix[group, rng.choice(inside)] = 0
        if joins and outside.size:
            matrix[group, rng.choice(outside)] = 1
    if matrix[group].sum() < privacy or (matrix.sum(axis=0) == 0).any():
        return None
    return from_matrix(matrix, name=design.name, source=design.source)
