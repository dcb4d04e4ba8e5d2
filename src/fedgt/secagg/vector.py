"""What lies in the masked vector: the encoded update, what the task adds, and the metrics; nothing travels beside it.

"mean":      weight * u (entries)                     | clipped count
"weiszfeld": beta * u (entries)  | beta               | clipped count
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgt.errors import ProtocolError, ShapeError
from fedgt.secagg.fixed_point import RingArray
from fedgt.secagg.plan import RoundPlan
from fedgt.types import FloatArray, frozen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodedSum:
    """An opened sum, read back.

    Attributes:
        total: Tensor name -> float64 array, the sum of weight * update (task "weiszfeld": of beta * update).
        clipped: How many entries were clipped, over all members.
        beta_total: The sum of the Weiszfeld weights beta; None for task "mean".
    """

    total: Mapping[str, FloatArray]
    clipped: int
    beta_total: float | None


def flatten(
    update: Mapping[str, npt.NDArray[np.floating]], plan: RoundPlan, *, owner: str, what: str = "update"
) -> FloatArray:
    """The tensors of the plan one after the other, checked by name.

    Args:
        update: Tensor name -> array.
        plan: Says which names and shapes are agreed.
        owner: The client, for the message.
        what: What is being flattened, for the message.

    Returns:
        float64[entries].

    Raises:
        ShapeError: If a tensor is missing, extra, of another shape or not finite.
    """
    agreed = {tensor.name: tensor.shape for tensor in plan.tensors}
    if set(update) != set(agreed):
        raise ShapeError(f"client {owner}: the {what} has tensors {sorted(update)}, agreed are {sorted(agreed)}")
    pieces = []
    for name, shape in agreed.items():
        array = np.asarray(update[name], dtype=np.float64)
        if array.shape != shape:
            raise ShapeError(f"client {owner}: tensor {name!r} of the {what} has shape {array.shape}, agreed {shape}")
        if not np.isfinite(array).all():
            wrong = int(np.count_nonzero(~np.isfinite(array)))
            raise ShapeError(f"client {owner}: tensor {name!r} of the {what} has {wrong} entries that are not finite")
        pieces.append(array.ravel())
    return np.concatenate(pieces)


def client_vectors(
    plan: RoundPlan,
    client: str,
    groups: Iterable[int],
    update: Mapping[str, npt.NDArray[np.floating]],
    center: Mapping[str, npt.NDArray[np.floating]] | None = None,
) -> dict[int, RingArray]:
    """The plain vectors of one client, before any mask.

    Args:
        plan: The plan.
        client: Whose update it is.
        groups: For which groups.
        update: Tensor name -> array.
        center: The current Weiszfeld estimate in the space of updates; for that task only.

    Returns:
        Group number -> a new ring vector of length `plan.length`.

    Raises:
        ShapeError: As `flatten`.
        ProtocolError: If a center is missing, or given for another task.
    """
    if (center is not None) != (plan.task == "weiszfeld"):
        raise ProtocolError(
            f'client {client}: task "{plan.task}" {"needs a center" if center is None else "takes no center"}'
        )
    flat = flatten(update, plan, owner=client)
    if center is None:
        levels, clipped = plan.encoding.encode(flat, plan.weights[client])
        vector = _with_count(levels, clipped)
        return {group: vector.copy() for group in groups}
    clipped = int(np.count_nonzero(np.abs(flat) > plan.update_clip))
    point = np.clip(flat, -plan.update_clip, plan.update_clip)
    distance = float(np.linalg.norm(flatten(center, plan, owner=client, what="center") - point))
    vectors = {}
    for group in groups:
        alpha = plan.weights[client] / sum(plan.weights[member] for member in plan.groups[group])
        beta = alpha / max(plan.smoothing, distance)
        levels, _ = plan.encoding.encode(beta * np.append(point, 1.0))
        vectors[group] = _with_count(levels, clipped)
    return vectors


def _with_count(levels: RingArray, clipped: int) -> RingArray:
    return np.concatenate((levels, np.array([clipped], dtype=levels.dtype)))


def read_sum(plan: RoundPlan, total: RingArray) -> DecodedSum:
    """The unmasked sum of a group as numbers.

    Args:
        plan: The plan.
        total: ring[plan.length].
    """
    values = plan.encoding.decode(total[:-1])
    tensors: dict[str, FloatArray] = {}
    start = 0
    for tensor in plan.tensors:
        piece = values[start : start + tensor.size].reshape(tensor.shape)
        tensors[tensor.name] = np.asarray(frozen(piece, np.float64), dtype=np.float64)
        start += tensor.size
    return DecodedSum(
        total=tensors,
        clipped=int(total[-1]),
        beta_total=float(values[-1]) if plan.task == "weiszfeld" else None,
    )
