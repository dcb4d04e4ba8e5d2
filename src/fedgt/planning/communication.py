"""What one round of group tests costs: secure sums, messages and bytes, as the paper counts and as this protocol sends.

The paper (section IV.E) takes a secure aggregation whose cost is linear in clients times model size (LightSecAgg), so that a
test round costs m x max |P_j| model transfers, against n for one sum over everybody: a ratio of 32/15 for the 15 x 8 design.
Ours is counted to the byte from the message formats of `fedgt.secagg` and `fedgt.engine`: the same frames are built with
bodies that are counted instead of sent. A test compares it with the bytes of real rounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedgt.defaults import CLIP, COLLUDERS, FRACTION_BITS
from fedgt.design import Design, single_group
from fedgt.secagg import FixedPoint, Link, RoundPlan, TensorSpec, default_threshold, fit_fixed_point
from fedgt.secagg.agreement import OpenedGroup, signatures_to_json, stated_coefficients
from fedgt.secagg.agreement_log import Head, head_bytes
from fedgt.secagg.challenge import SEED_BYTES, field_of, pad_bytes
from fedgt.secagg.frames import pack
from fedgt.secagg.identity import SIGNATURE_BYTES
from fedgt.secagg.masks import KEY_BYTES, TAG_BYTES
from fedgt.secagg.membership import PARCEL_BYTES, PUBLIC_BYTES, shared_bytes
from fedgt.secagg.messages import SIGNED_STAGES, STAGES, StageMessage, plan_message
from fedgt.secagg.shares import SHARE_BYTES

PAPER_MODEL = (TensorSpec(name="weight", shape=(10, 784)), TensorSpec(name="bias", shape=(10,)))
"""The one-layer network that the paper trains on MNIST: 7,850 entries."""

_NO_DIGEST = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """The cost of one batch of secure sums when everybody answers.

    Attributes:
        secure_sums: How many sums the server opens.
        messages: Messages of all stages, requests and replies together.
        bytes_up: Bytes that all clients send.
        bytes_down: Bytes that the server sends.
        client_up: The most that one client sends.
        paper_ratio: m x max |P_j|, the model transfers as section IV.E counts them, over n, one secure sum of everybody.
        ratio: Our bytes, up and down, over those of one sum of everybody in the same protocol.

    Examples:
        >>> from fedgt import named_design
        >>> from fedgt.planning import communication
        >>> one_sum, eight = (communication(named_design(name)) for name in ("single-group-15", "bch-15x8"))
        >>> eight.bytes_up > one_sum.bytes_up
        True
    """

    secure_sums: int
    messages: int
    bytes_up: int
    bytes_down: int
    client_up: int
    paper_ratio: float
    ratio: float


def communication(
    design: Design,
    *,
    tensors: Sequence[TensorSpec] = PAPER_MODEL,
    signed: bool = True,
) -> Communication:
    """The cost of one test round of a design when nobody drops.

    Args:
        design: m groups of n clients.
        tensors: The model; all its tensors are floats, which the server sends with 4 bytes.
        signed: With identities (five stages), or anonymous mode (four); keys are published in the round.

    Examples:
        >>> from fedgt import named_design
        >>> from fedgt.planning import communication
        >>> cost = communication(named_design("bch-15x8"))
        >>> cost.secure_sums, cost.client_up > 100_000  # bytes that one client sends
        (8, True)
    """
    width = max(2, len(str(design.clients - 1)))
    ids = tuple(f"client-{j:0{width}d}" for j in range(design.clients))  # the lengths of names count

    def cost(chosen: Design) -> tuple[Mapping[str, int], Mapping[str, int], int]:
        largest = int(chosen.group_sizes.max())
        entries = sum(tensor.sent for tensor in tensors)
        encoding = fit_fixed_point(
            clip=CLIP, fraction_bits=FRACTION_BITS, weight_sum=largest, count_sum=entries * largest
        )
        return plan_bytes(_plan(chosen, ids, tensors, encoding), signed=signed)

    up, down, messages = cost(design)
    all_up, all_down, _ = cost(single_group(design.clients))
    largest = int(design.group_sizes.max())
    return Communication(
        secure_sums=design.groups,
        messages=messages,
        bytes_up=sum(up.values()),
        bytes_down=sum(down.values()),
        client_up=max(up.values()),
        paper_ratio=design.groups * largest / design.clients,
        ratio=(sum(up.values()) + sum(down.values())) / (sum(all_up.values()) + sum(all_down.values())),
    )


def plan_bytes(plan: RoundPlan, *, signed: bool) -> tuple[Mapping[str, int], Mapping[str, int], int]:
    """Client -> bytes it sends, client -> bytes it receives, and the number of messages, when everybody answers.

    With identities nobody has missed an agreement, and this is the first one.

    Args:
        plan: What is summed ("mean" only).
        signed: With identities, or in anonymous mode.
    """
    challenges = (_NO_DIGEST,) if plan.shares_clients else ()
    plan = replace(plan, inputs={**plan.inputs, "model": _NO_DIGEST}, challenges=challenges)
    signature = SIGNATURE_BYTES if signed else 0
    public = PUBLIC_BYTES + signature
    vector = plan.length * plan.encoding.dtype.itemsize + (TAG_BYTES if signed else 0)
    stages = SIGNED_STAGES if signed else STAGES
    attached = _attached(plan) if signed else {"unmask": _question(plan)}
    opening = _opening(plan, signature)
    up, down = dict.fromkeys(plan.clients, 0), dict.fromkeys(plan.clients, opening)
    for client in plan.clients:
        groups = [group for group, members in enumerate(plan.groups) if client in members]
        sizes = {group: len(plan.groups[group]) for group in groups}
        replies = {
            "keys": dict.fromkeys(groups, public),
            "shares": {group: shared_bytes(size) for group, size in sizes.items()},
            "masked": {group: vector + pad_bytes(plan, group) for group in groups},
            "agree": dict.fromkeys(groups, 0),
            "unmask": {group: SHARE_BYTES * size for group, size in sizes.items()},
        }
        requests = {
            "shares": {group: public * size for group, size in sizes.items()},
            "masked": {
                group: (KEY_BYTES if signed else 0) + PARCEL_BYTES * (size - 1) for group, size in sizes.items()
            },
            "agree": dict.fromkeys(groups, 0),
            "unmask": dict.fromkeys(groups, 0),
        }
        for stage in stages:
            sent, received = attached.get(stage, (0, 0))
            up[client] += _stage_bytes(plan, stage, client, replies[stage], sent, signature, named=False)
            if stage in requests:
                down[client] += _stage_bytes(plan, stage, client, requests[stage], received, signature, named=True)
    return up, down, 2 * len(stages) * len(plan.clients)


def _question(plan: RoundPlan) -> tuple[int, int]:
    """Bytes of the answer to the plan's challenge, and of its seed."""
    chosen = field_of(plan)
    return (0, 0) if chosen is None else (chosen.size, SEED_BYTES)


def _attached(plan: RoundPlan) -> dict[str, tuple[int, int]]:
    """Stage -> bytes of what is about no single group, in the reply and in the request."""
    answer, seed = _question(plan)
    signatures = signatures_to_json(dict.fromkeys(plan.clients, bytes(SIGNATURE_BYTES)))
    opened = [
        OpenedGroup(
            group=index, alive=group, dropped=(), keys=_NO_DIGEST, coefficients=stated_coefficients(plan, index, group)
        )
        for index, group in enumerate(plan.groups)
        if group
    ]
    link = Link.about(plan, opened, number=1, previous=_NO_DIGEST)
    return {
        "shares": (len(head_bytes(Head(0, _NO_DIGEST))), 0),
        "agree": (SIGNATURE_BYTES + answer, seed + len(link.to_json())),
        "unmask": (0, len(signatures)),
    }


def _stage_bytes(
    plan: RoundPlan,
    stage: str,
    client: str,
    bodies: Mapping[int, int],
    attached: int,
    signature: int,
    *,
    named: bool,
) -> int:
    """The length of one stage message whose bodies have these lengths; requests name the members by position."""
    message = StageMessage(
        stage=stage,
        client=client,
        plan=plan.digest,
        run=plan.run,
        round=plan.round,
        purpose=plan.purpose,
        parts=(),
    )
    parts = [
        [group, list(range(len(plan.groups[group]))) if named else [], [], length] for group, length in bodies.items()
    ]
    header = {**message.header, "parts": parts, "attached": attached}
    return len(pack(header)) + attached + sum(bodies.values()) + signature


def _opening(plan: RoundPlan, signature: int) -> int:
    """The length of the first message: the plan and the model, whose arrays are counted and not made."""
    session = len(plan_message(plan)) + signature
    # One entry per tensor says name, dtype and shape; an array of the right shape costs no memory.
    described = [[tensor.name, "f4", list(tensor.shape)] for tensor in plan.tensors]
    header = {"kind": "round", "session": session, "parameters": described, "center": None}
    return len(pack(header)) + session + sum(4 * tensor.size for tensor in plan.tensors) + signature


def _plan(design: Design, ids: tuple[str, ...], tensors: Sequence[TensorSpec], encoding: FixedPoint) -> RoundPlan:
    groups = tuple(tuple(ids[j] for j in design.members(group)) for group in range(design.groups))
    return RoundPlan(
        run="run",
        round=0,
        purpose="test",
        groups=groups,
        thresholds=tuple(default_threshold(len(group), colluders=COLLUDERS) for group in groups),
        weights=dict.fromkeys(ids, 1),
        encoding=encoding,
        tensors=tuple(tensors),
    )
