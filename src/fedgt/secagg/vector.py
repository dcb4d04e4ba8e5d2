"""What lies in the masked vector: the encoded update, what the task adds, and the metrics.

"mean":      weight * u (entries)                     | clipped count
"weiszfeld": beta * u (entries)  | beta               | clipped count

It is one vector for each client, the same in all its groups: `fedgt.secagg.consistency` checks that it is. In a group with
coefficients the whole vector is multiplied, the count as well.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fedgt.errors import ProtocolError, ShapeError
from fedgt.secagg.fixed_point import RingArray
from fedgt.secagg.masks import CHUNK_BYTES
from fedgt.secagg.plan import RoundPlan
from fedgt.types import FloatArray, IntArray

Tensors: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Tensor name -> array of any real dtype."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodedSum:
    """An opened sum, read back.

    Attributes:
        total: Tensor name -> float64 array, the sum of weight * update (task "weiszfeld": of beta * update); zeros for a
            kept tensor, of which nothing was sent.
        clipped: How many entries were clipped, over all members.
        beta_total: The sum of the Weiszfeld weights beta; None for task "mean".
    """

    total: Mapping[str, FloatArray]
    clipped: int
    beta_total: float | None


def require_tensors(tensors: Tensors, plan: RoundPlan, *, owner: str, what: str = "update") -> None:
    """Check names and shapes, and that what is averaged is floating-point.

    Raises:
        ShapeError: If a tensor is missing, extra, of another shape, or of a dtype that cannot be averaged; the message
            names it and its owner.
    """
    agreed = {tensor.name: tensor for tensor in plan.tensors}
    if set(tensors) != set(agreed):
        raise ShapeError(f"client {owner}: the {what} has tensors {sorted(tensors)}, agreed are {sorted(agreed)}")
    for name, spec in agreed.items():
        array = np.asarray(tensors[name])
        if array.shape != spec.shape:
            raise ShapeError(
                f"client {owner}: tensor {name!r} of the {what} has shape {array.shape}, agreed {spec.shape}"
            )
        if array.dtype.kind != "f" and (spec.kind == "mean" or array.dtype.kind not in "iub"):
            raise ShapeError(
                f"client {owner}: tensor {name!r} of the {what} has dtype {array.dtype}: only floating-point tensors are "
                'averaged, integer ones have kind "keep" in the plan'
            )


def flatten(
    update: Tensors, plan: RoundPlan, *, owner: str, what: str = "update", base: Tensors | None = None
) -> FloatArray:
    """The tensors of the plan one after the other, checked by name.

    Args:
        update: Tensor name -> array.
        plan: Says which names and shapes are agreed; kept tensors are left out.
        owner: The client, for the message.
        what: What is being flattened, for the message.
        base: Is taken away from the update, in float64, if given.

    Returns:
        float64[entries].

    Raises:
        ShapeError: As `require_tensors`, or if a value is not finite.
    """
    require_tensors(update, plan, owner=owner, what=what)
    flat = np.empty(plan.entries, dtype=np.float64)
    for start, stop, piece, name in _pieces(plan, update, base, max(plan.entries, 1)):
        _require_finite(piece, name, owner=owner, what=what, whole=(update, base))
        flat[start:stop] = piece
    return flat


def client_chunks(
    plan: RoundPlan,
    client: str,
    update: Tensors,
    center: Tensors | None = None,
    *,
    base: Tensors | None = None,
    wary: bool = False,
) -> Iterator[tuple[int, RingArray]]:
    """The plain vector of one client, before any mask, a piece at a time and in order; the same for all its groups.

    Args:
        plan: The plan.
        client: Whose update it is.
        update: Tensor name -> array.
        center: The current Weiszfeld estimate in the space of updates; for that task only.
        base: Is taken away from the update, in float64, if given: trained and received model need no third array.
        wary: Refuse a Weiszfeld step whose center or smoothing would tell the server this client's weight.

    Yields:
        Where the piece starts, and ring[piece], valid until the next piece (memory is used again).
        Task "mean" needs memory for one piece only, task "weiszfeld" for the whole update in float64.

    Raises:
        ShapeError: As `flatten`.
        ProtocolError: If a center is missing, or given for another task, or `wary` finds a reason.
    """
    if (center is not None) != (plan.task == "weiszfeld"):
        raise ProtocolError(
            f'client {client}: task "{plan.task}" {"needs a center" if center is None else "takes no center"}'
        )
    dtype = plan.encoding.dtype
    if center is None:
        require_tensors(update, plan, owner=client)
        clipped = 0
        step = CHUNK_BYTES // dtype.itemsize
        levels = np.empty(step, dtype=dtype)
        for start, stop, piece, name in _pieces(plan, update, base, step):
            try:
                clipped += plan.encoding.encode_in_place(piece, levels[: stop - start], plan.weights[client])
            except ShapeError:
                _require_finite(piece, name, owner=client, what="update", whole=(update, base))
                raise
            yield start, levels[: stop - start]
        yield plan.entries, np.array([clipped], dtype=dtype)
        return
    flat = flatten(update, plan, owner=client, base=base)
    clipped = int(np.count_nonzero(np.abs(flat) > plan.update_clip))
    point = np.clip(flat, -plan.update_clip, plan.update_clip)
    origin = flatten(center, plan, owner=client, what="center")
    distance = float(np.linalg.norm(origin - point))
    if wary and point.any():  # who has learned nothing has nothing to hide
        _require_secret_weight(plan, client, origin, distance)
    extended = np.append(point, 1.0)
    step = CHUNK_BYTES // dtype.itemsize
    # One scale for all groups, so that each client has one vector; the median is a ratio of two sums and does not see it.
    beta = plan.weights[client] / plan.heaviest / max(plan.smoothing, distance)
    for start in range(0, extended.size, step):
        yield start, plan.encoding.encode(beta * extended[start : start + step])[0]
    yield plan.entries + 1, np.array([clipped], dtype=dtype)


def signed(levels: RingArray) -> IntArray:
    """Elements of the ring as the whole numbers from -2^(bits - 1) that they stand for; the same memory."""
    return levels.view(f"<i{levels.itemsize}")


def scaled(levels: RingArray, factor: int, memory: RingArray) -> RingArray:
    """The vector times a whole number, modulo the ring; the same array if that is 1.

    Args:
        levels: ring[piece].
        factor: The coefficient of the client in a group.
        memory: ring of at least that length; what is returned lies in it.
    """
    if factor == 1:
        return levels
    product: RingArray = np.multiply(levels, levels.dtype.type(factor), out=memory[: levels.size])
    return product


def require_range(plan: RoundPlan, group: int, total: RingArray, members: Iterable[str]) -> None:
    """Check that an unmasked sum is one that its members can reach: whatever else it is, one of them has lied.

    One member may still use the range of its whole group.

    Args:
        plan: The plan.
        group: Its number.
        total: ring[plan.length].
        members: Whose vectors are in it.

    Raises:
        ProtocolError: With what is out of range.
    """
    names = tuple(members)
    weight = len(names) if plan.task == "weiszfeld" else plan.weight_of(group, names)
    reach = plan.encoding.largest * weight
    values = signed(total[:-1])
    # Not by absolute values: the most negative integer has none.
    outside = int(np.count_nonzero((values > reach) | (values < -reach))) if values.size else 0
    if outside:
        raise ProtocolError(
            f"{outside} of {values.size} entries are beyond what its members can reach: at least one of them has sent what "
            "no client of this protocol sends"
        )
    most = plan.entries * plan.times(group, names)
    if int(total[-1]) > most:
        raise ProtocolError(
            f"{int(total[-1])} clipped entries are counted, its members have {most}: at least one of them has lied"
        )


def read_sum(plan: RoundPlan, total: RingArray) -> DecodedSum:
    """The unmasked sum of a group as numbers.

    Args:
        plan: The plan.
        total: ring[plan.length].
    """
    values = plan.encoding.decode(total[:-1])
    values.setflags(write=False)
    tensors: dict[str, FloatArray] = {}
    start = 0
    for tensor in plan.tensors:
        if tensor.kind == "keep":
            kept = np.zeros(tensor.shape)
            kept.setflags(write=False)
            tensors[tensor.name] = kept
            continue
        tensors[tensor.name] = values[start : start + tensor.size].reshape(tensor.shape)
        start += tensor.size
    return DecodedSum(
        total=tensors,
        clipped=int(total[-1]),
        beta_total=float(values[-1]) if plan.task == "weiszfeld" else None,
    )


def _pieces(
    plan: RoundPlan, update: Tensors, base: Tensors | None, step: int
) -> Iterator[tuple[int, int, FloatArray, str]]:
    """(start, stop, float64 piece, tensor name); a piece never crosses tensors and its memory is used again."""
    buffer = np.empty(min(step, max(plan.entries, 1)), dtype=np.float64)
    offset = 0
    for tensor in plan.tensors:
        if tensor.kind == "keep":
            continue
        flat = np.asarray(update[tensor.name]).reshape(-1)
        ground = None if base is None else np.asarray(base[tensor.name]).reshape(-1)
        for start in range(0, tensor.size, step):
            stop = min(start + step, tensor.size)
            piece = buffer[: stop - start]
            piece[:] = flat[start:stop]
            if ground is not None:
                with np.errstate(invalid="ignore"):  # infinity minus infinity: refused by name a moment later
                    piece -= ground[start:stop]
            yield offset + start, offset + stop, piece, tensor.name
        offset += tensor.size


def _require_secret_weight(plan: RoundPlan, client: str, center: FloatArray, distance: float) -> None:
    """What the account of opened sums rests on: the server knows nobody's Weiszfeld weight, and cannot make all equal."""
    if distance <= plan.smoothing:
        raise ProtocolError(
            f"client {client}: its update is no farther from the center than the smoothing {plan.smoothing:g}, so that the "
            "server would know its weight: lower the smoothing"
        )
    # A mean of clipped updates has no larger entry than the clip; the fixed point may add to it.
    if float(np.abs(center).max()) > 2 * plan.update_clip:
        raise ProtocolError(
            f"client {client}: the center is outside the clip {plan.update_clip:g} of all updates: so far away all weights "
            "would be nearly equal"
        )


def _require_finite(
    piece: FloatArray, name: str, *, owner: str, what: str, whole: tuple[Tensors, Tensors | None]
) -> None:
    # The sum of a piece is finite exactly if all its entries are, short of an overflow, which the slow path sorts out.
    with np.errstate(all="ignore"):
        if np.isfinite(piece.sum()):
            return
        update, base = whole
        array = np.asarray(update[name], dtype=np.float64)
        array = array if base is None else array - np.asarray(base[name], dtype=np.float64)
    if wrong := int(np.count_nonzero(~np.isfinite(array))):
        raise ShapeError(f"client {owner}: tensor {name!r} of the {what} has {wrong} entries that are not finite")
