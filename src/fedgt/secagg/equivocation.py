"""Does every client send one and the same vector to all its groups? What a rank check on redundant rows can see.

Masks hide a client's vector, so nobody can compare what it gave to two groups. Only if the rows of the opened sums are
linearly dependent is there an equation that equal vectors satisfy and different ones may not: y^T S = 0 for each y with
y^T A = 0, where A holds the real weights and S the sums. Encoding is deterministic, so honest sums satisfy it to the last
bit of float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError
from fedgt.secagg.group_sum import GroupSum
from fedgt.secagg.plan import RoundPlan
from fedgt.types import FloatArray

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RedundancyCheck:
    """What the redundant rows of one batch of sums say.

    Attributes:
        redundant: How many equations there are: open rows minus their rank. With none the check sees nothing.
        residual: The largest |y^T S| over the equations (y of unit length) and entries, in the unit of the sums.
        tolerance: What rounding in float64 can make of it.
    """

    redundant: int
    residual: float
    tolerance: float

    @property
    def equivocation(self) -> bool:
        """Whether some client has certainly sent different vectors to different groups. False proves nothing."""
        return self.redundant > 0 and self.residual > self.tolerance


def redundancy_check(plan: RoundPlan, sums: Sequence[GroupSum]) -> RedundancyCheck:
    """Check the open sums of a plan against each other.

    Args:
        plan: The plan, of task "mean": in a Weiszfeld sum a client's weight differs from group to group.
        sums: Its sums, as the server session returned them.

    Raises:
        ShapeError: If the task is another one.
    """
    if plan.task != "mean":
        raise ShapeError(f'a redundancy check needs sums of task "mean", got {plan.task!r}')
    opened = [one for one in sums if one.total is not None]
    column = {client: number for number, client in enumerate(plan.clients)}
    weights = np.zeros((len(opened), len(column)))
    for row, one in enumerate(opened):
        for client in one.members:
            weights[row, column[client]] = plan.weights[client]
    equations = left_null_space(weights)
    residual = scale = 0.0
    for tensor in plan.tensors:
        if tensor.kind == "keep" or not opened or not tensor.size:
            continue
        stacked = np.array([one.total[tensor.name].ravel() for one in opened if one.total is not None])
        scale = max(scale, float(np.abs(stacked).max()))
        if equations.size:
            residual = max(residual, float(np.abs(equations @ stacked).max()))
    return RedundancyCheck(
        redundant=len(equations), residual=residual, tolerance=_ROUNDING * scale * max(len(opened), 1)
    )


def visible_equivocation(matrix: npt.ArrayLike) -> tuple[int, int]:
    """In how many of the ways in which single clients can equivocate the check sees something.

    A client in k groups can differ from itself in k - 1 independent ways; those that satisfy every equation are invisible.

    Args:
        matrix: float[groups, clients], the real weights of the opened sums.

    Returns:
        The visible and all independent ways, summed over the clients.
    """
    weights = np.asarray(matrix, dtype=np.float64)
    equations = left_null_space(weights)
    visible = possible = 0
    for weight in weights.T:
        groups = np.flatnonzero(weight)
        possible += max(len(groups) - 1, 0)
        if equations.size and groups.size:
            visible += int(np.linalg.matrix_rank(equations[:, groups]))
    return visible, possible


def left_null_space(matrix: FloatArray) -> FloatArray:
    """Orthonormal rows y with y^T matrix = 0: float64[rows - rank, rows]."""
    if not matrix.size:
        return np.zeros((0, matrix.shape[0]))
    left, values, _ = np.linalg.svd(matrix)
    rank = int((values > values.max(initial=0.0) * max(matrix.shape) * np.finfo(np.float64).eps).sum())
    return np.asarray(left[:, rank:].T, dtype=np.float64)
