"""The messages of the protocol: the plan, and one message per client and stage for all its groups together.

Whatever arrives may be hostile: every parser here either returns a checked value or raises `ProtocolError`.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from fedgt.errors import ProtocolError
from fedgt.foreign_text import LONGEST, plain
from fedgt.secagg.challenge import pad_bytes
from fedgt.secagg.fixed_point import RingArray
from fedgt.secagg.frames import SMALL_HEADER, Sender, pack, pack_in_place, unpack
from fedgt.secagg.identity import Identity
from fedgt.secagg.masks import TAG_BYTES
from fedgt.secagg.plan import RoundPlan

STAGES = ("keys", "shares", "masked", "unmask")
"""The messages of anonymous mode."""
SIGNED_STAGES = ("keys", "shares", "masked", "agree", "unmask")
"""The messages with identities: before they open anything the clients agree, by signature, on who is alive."""


def order_of(plan: RoundPlan, *, signed: bool) -> tuple[str, ...]:
    """The messages of a plan in their order: "further" stands for "keys" in every stage of the plan but the first."""
    once = SIGNED_STAGES if signed else STAGES
    return (*once, *("further", *once[1:]) * (len(plan.stages) - 1))


_NOTHING: Mapping[int, tuple[int, ...]] = MappingProxyType({})
_ATTACHED_BYTES = 2**20  # signatures of a registry, at most
_MISSED_BYTES = 2**25  # agreements that a client has missed, at most
_JSON_BYTES = 12  # of one character, at most
_MEMBER_BYTES = 2**8  # of body for one member of a group, at most: its keys, shares and signatures


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """What a stage message says about one group.

    Attributes:
        group: The number of the group in the plan.
        members: Positions in the plan's group, ascending: whom the server counts as present (empty in replies).
        dropped: Positions, ascending: who has shared but sent no input (only in agree and unmask requests).
        body: Raw bytes, whose layout the stage defines.
    """

    group: int
    members: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    body: bytes | memoryview = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMessage:
    """The one message that a client gets or sends in a stage, for all its groups together.

    Attributes:
        stage: One of `SIGNED_STAGES`, or "further".
        client: The client that the message is for, or comes from.
        plan: The digest of the plan, 64 hexadecimal digits.
        run: As in the plan.
        round: As in the plan.
        purpose: As in the plan.
        at: The stage of the plan, the first is 0: a message of one stage is worth nothing in another.
        parts: The groups that go on.
        refused: Group number -> why this client takes no part in it any more (only in replies).
        unreadable: Group number -> the peers whose shares this client cannot read, by position (only in replies of masked).
        attached: What is about no single group: where a client's agreements end (reply of shares), those that it missed
            (request of masked), the one to sign (request of agree), its signature (reply), all signatures (request of
            unmask). If the plan has a challenge, its seed comes first in the request of agree, and the answer last in
            the reply; in anonymous mode they ride on unmask, and nothing else is attached.
    """

    stage: str
    client: str
    plan: str
    run: str
    round: int
    purpose: str
    parts: tuple[GroupPart, ...]
    at: int = 0
    refused: Mapping[int, str] = field(default_factory=dict)
    unreadable: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    attached: bytes | memoryview = b""

    @property
    def header(self) -> dict[str, object]:
        """What stands before the bodies."""
        return {
            "kind": "stage",
            "stage": self.stage,
            "client": self.client,
            "plan": self.plan,
            "run": self.run,
            "round": self.round,
            "purpose": self.purpose,
            "at": self.at,
            "parts": [[part.group, part.members, part.dropped, len(part.body)] for part in self.parts],
            "refused": [[group, plain(reason)] for group, reason in sorted(self.refused.items())],
            "unreadable": sorted(self.unreadable.items()),
            "attached": len(self.attached),
        }


def stage_message(
    plan: RoundPlan,
    stage: str,
    client: str,
    parts: Sequence[GroupPart],
    refused: Mapping[int, str] | None = None,
    *,
    attached: bytes = b"",
    at: int = 0,
    identity: Identity | None = None,
) -> bytes:
    """The bytes of a stage message under a plan, signed if there is an identity."""
    message = _stage_message(plan, stage, client, parts, refused or {}, attached, at=at)
    return pack(message.header, attached, *(part.body for part in parts), identity=identity)


def masked_message(
    plan: RoundPlan,
    client: str,
    groups: Sequence[int],
    refused: Mapping[int, str],
    fill: Callable[[Mapping[int, RingArray]], Mapping[int, bytes]],
    *,
    unreadable: Mapping[int, tuple[int, ...]] = _NOTHING,
    at: int = 0,
    identity: Identity | None = None,
) -> bytes:
    """A client's reply of the masked stage, whose vectors are computed inside the message itself.

    Args:
        plan: The plan.
        client: Who replies.
        groups: Which groups get a vector.
        refused: As in `StageMessage`.
        fill: Gets group number -> zeroed ring[plan.length], a view of the message, writes the masked vectors and returns
            group number -> what follows its vector: the masked pads if the plan has a challenge, and with an identity the
            16-byte tag of all.
        unreadable: As in `StageMessage`.
        at: As in `StageMessage`.
        identity: Signs the header.
    """
    dtype = plan.encoding.dtype
    vector = plan.length * dtype.itemsize
    tag = 0 if identity is None else TAG_BYTES
    widths = [vector + pad_bytes(plan, group) + tag for group in groups]
    header = replace(_stage_message(plan, "masked", client, [], refused, at=at), unreadable=dict(unreadable)).header
    header["parts"] = [[group, (), (), width] for group, width in zip(groups, widths, strict=True)]

    def write(body: memoryview) -> None:
        stops = list(itertools.accumulate(widths))
        parts = {group: body[stop - width : stop] for group, width, stop in zip(groups, widths, stops, strict=True)}
        ends = fill({group: np.frombuffer(part[:vector], dtype=dtype) for group, part in parts.items()})
        for group, end in ends.items():
            parts[group][vector:] = end

    return pack_in_place(header, sum(widths), write, identity=identity)


def _stage_message(
    plan: RoundPlan,
    stage: str,
    client: str,
    parts: Sequence[GroupPart],
    refused: Mapping[int, str],
    attached: bytes | memoryview = b"",
    *,
    at: int = 0,
) -> StageMessage:
    return StageMessage(
        stage=stage,
        client=client,
        plan=plan.digest,
        run=plan.run,
        round=plan.round,
        purpose=plan.purpose,
        parts=tuple(parts),
        at=at,
        refused=dict(refused),
        attached=attached,
    )


def read_stage_message(
    payload: bytes,
    *,
    plan: RoundPlan,
    stage: str,
    client: str,
    at: int = 0,
    sender: Sender | None = None,
    in_place: bool = False,
) -> StageMessage:
    """Parse a stage message and check that it belongs to this plan, stage and client.

    Args:
        payload: The message.
        plan: The plan.
        stage: Which stage it must be of.
        client: Which client it must be for, or from.
        at: Which stage of the plan it must be of.
        sender: Whose signature it must carry; None in anonymous mode.
        in_place: It comes from `masked_message`.

    Raises:
        SignatureError: If the signature is not the sender's.
        ProtocolError: If it is malformed, of another run, round, purpose, plan or stage, for or from another client,
            or names groups or positions that the plan does not have.
    """
    header_bytes, body_bytes = _largest(plan, client, vectors=stage == "masked")
    body_bytes += _largest_attached(plan, stage, in_place=in_place)
    header, body = unpack(
        payload, kind="stage", sender=sender, in_place=in_place, header_bytes=header_bytes, body_bytes=body_bytes
    )
    expected = {
        "kind": "stage",
        "stage": stage,
        "client": client,
        "plan": plan.digest,
        "run": plan.run,
        "round": plan.round,
        "purpose": plan.purpose,
        "at": at,
    }
    if set(header) != {*expected, "parts", "refused", "unreadable", "attached"}:
        raise ProtocolError("malformed message: the header has other fields than a stage message has")
    for name, value in expected.items():
        if type(header[name]) is not type(value) or header[name] != value:
            raise ProtocolError(f"wrong message: {name} is {header[name]!r:.120}, expected {value!r}")
    start = header["attached"]
    _require_index(start, len(body) + 1)
    parts, refused = _read_parts(header["parts"], body[start:], plan), _read_refused(header["refused"], plan)
    unreadable = _read_unreadable(header["unreadable"], plan, client)
    if not set(unreadable) <= {*refused, *(part.group for part in parts)} or (unreadable and stage != "masked"):
        raise ProtocolError("malformed message: a client complains of shares where it has none")
    message = _stage_message(plan, stage, client, parts, refused, body[:start], at=at)
    return replace(message, unreadable=unreadable)


def _read_parts(entries: object, body: memoryview, plan: RoundPlan) -> tuple[GroupPart, ...]:
    if not isinstance(entries, list) or len(entries) > len(plan.groups):
        raise ProtocolError(f"malformed message: parts is not a list of at most {len(plan.groups)} entries")
    parts = []
    start = 0
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 4:
            raise ProtocolError("malformed message: a part needs a group, members, dropped and a length")
        group, members, dropped, length = entry
        _require_index(group, len(plan.groups))
        _require_index(length, len(body) - start + 1)
        size = len(plan.groups[group])
        parts.append(
            GroupPart(
                group=group,
                members=_read_positions(members, size),
                dropped=_read_positions(dropped, size),
                body=body[start : start + length],
            )
        )
        start += length
    if start != len(body):
        raise ProtocolError(f"malformed message: {len(body) - start} bytes after the last part")
    if len({part.group for part in parts}) != len(parts):
        raise ProtocolError("malformed message: a group occurs twice")
    return tuple(parts)


def _read_positions(entries: object, size: int) -> tuple[int, ...]:
    if not isinstance(entries, list) or len(entries) > size:
        raise ProtocolError(f"malformed message: positions are not a list of at most {size} entries")
    for position in entries:
        _require_index(position, size)
    if any(later <= earlier for earlier, later in itertools.pairwise(entries)):
        raise ProtocolError(f"malformed message: positions {entries} are not ascending (a client occurs twice?)")
    return tuple(entries)


def _read_refused(entries: object, plan: RoundPlan) -> dict[int, str]:
    refused: dict[int, str] = {}
    if not isinstance(entries, list) or len(entries) > len(plan.groups):
        raise ProtocolError(f"malformed message: refused is not a list of at most {len(plan.groups)} entries")
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[1], str):
            raise ProtocolError("malformed message: a refusal needs a group and a reason")
        _require_index(entry[0], len(plan.groups))
        if entry[0] in refused or len(entry[1]) > LONGEST:
            raise ProtocolError("malformed message: a group is refused twice, or a reason is too long")
        refused[entry[0]] = plain(entry[1])
    return refused


def _read_unreadable(entries: object, plan: RoundPlan, client: str) -> dict[int, tuple[int, ...]]:
    unreadable: dict[int, tuple[int, ...]] = {}
    if not isinstance(entries, list) or len(entries) > len(plan.groups):
        raise ProtocolError(f"malformed message: unreadable is not a list of at most {len(plan.groups)} entries")
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 2:
            raise ProtocolError("malformed message: a complaint needs a group and positions")
        _require_index(entry[0], len(plan.groups))
        members = plan.groups[entry[0]]
        positions = _read_positions(entry[1], len(members))
        if entry[0] in unreadable or not positions or client in [members[position] for position in positions]:
            raise ProtocolError("malformed message: a complaint is made twice, of nobody, or of oneself")
        unreadable[entry[0]] = positions
    return unreadable


def _largest(plan: RoundPlan, client: str, *, vectors: bool) -> tuple[int, int]:
    """The bytes of header and body that a stage message for or from a client has at most, whatever it says."""
    header, body = SMALL_HEADER, 0
    for group in plan.groups:
        header += 64 + 3 * len(group) * (len(str(len(group))) + 1)
        body += _MEMBER_BYTES * (len(group) + 1)
        if client in group:
            header += 64 + _JSON_BYTES * LONGEST
            body += plan.length * plan.encoding.dtype.itemsize if vectors else 0
    return header, body


def _largest_attached(plan: RoundPlan, stage: str, *, in_place: bool) -> int:
    """The bytes that may be attached: agreements that a client missed may be many, the rest is as large as the plan."""
    if stage == "masked":
        return 0 if in_place else _MISSED_BYTES
    return _ATTACHED_BYTES + 4 * len(plan.to_json()) if stage in ("shares", "agree", "unmask") else 0


def _require_index(value: object, stop: int) -> None:
    if type(value) is not int or not 0 <= value < stop:
        raise ProtocolError(f"malformed message: {value!r:.40} is not an integer from 0 to {stop - 1}")


def plan_message(plan: RoundPlan, *, identity: Identity | None = None) -> bytes:
    """The keys request: the plan itself, signed by the server if it has an identity."""
    return pack({"kind": "plan"}, plan.to_json(), identity=identity)


def read_plan_message(payload: bytes, *, sender: Sender | None = None) -> RoundPlan:
    """Parse a keys request.

    Raises:
        SignatureError: If the signature is not the sender's.
        ProtocolError: If it is malformed or its plan is not valid.
    """
    header, body = unpack(payload, kind="plan", sender=sender)
    if set(header) != {"kind"}:
        raise ProtocolError("malformed message: the header has other fields than a plan message has")
    return RoundPlan.from_json(body)


def begin_message(plan: RoundPlan, parts: Sequence[GroupPart], *, identity: Identity | None = None) -> bytes:
    """The request of stage "begin", the same for all clients: the plan, and per group who published prekeys, and these."""
    text = plan.to_json()
    entries = [[part.group, part.members, part.dropped, len(part.body)] for part in parts]
    header = {"kind": "begin", "plan": len(text), "parts": entries}
    return pack(header, text, *(part.body for part in parts), identity=identity)


def read_begin_message(payload: bytes, *, sender: Sender | None = None) -> tuple[RoundPlan, dict[int, GroupPart]]:
    """Parse a request of stage "begin": the plan, and the parts by their groups.

    Raises:
        SignatureError: If the signature is not the sender's.
        ProtocolError: If it is malformed or its plan is not valid.
    """
    # The keys of a member are far longer than the number of its position.
    header, body = unpack(payload, kind="begin", sender=sender, header_bytes=SMALL_HEADER + len(payload) // 8)
    if set(header) != {"kind", "plan", "parts"}:
        raise ProtocolError("malformed message: the header has other fields than a begin message has")
    _require_index(header["plan"], len(body) + 1)
    plan = RoundPlan.from_json(body[: header["plan"]])
    parts = _read_parts(header["parts"], body[header["plan"] :], plan)
    if any(part.dropped for part in parts):
        raise ProtocolError("malformed message: nobody has dropped before the shares")
    return plan, {part.group: part for part in parts}
