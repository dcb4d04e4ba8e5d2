"""Bytes on the wire: a bounded JSON header, then raw binary; no pickle.

frame = magic (4 bytes) | header length (4 bytes, big-endian) | header (a JSON object) | body

Whatever arrives may be hostile: every parser here either returns a checked value or raises `ProtocolError`.
"""

import itertools
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedgt.errors import ProtocolError
from fedgt.secagg.plan import RoundPlan

STAGES = ("keys", "shares", "masked", "unmask")

_MAGIC = b"FGT1"
_PREFIX = struct.Struct(">4sI")
_LARGEST_HEADER = 2**24
_LARGEST_FRAME = 2**33
_LONGEST_REASON = 300


def pack(header: Mapping[str, object], *bodies: bytes | memoryview) -> bytes:
    """One frame: the header and the bodies one after the other."""
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return b"".join((_PREFIX.pack(_MAGIC, len(text)), text, *bodies))


def unpack(payload: bytes, *, kind: str) -> tuple[dict[str, Any], memoryview]:
    """Header and body of a frame whose header says `kind`.

    Raises:
        ProtocolError: If the bytes are not such a frame.
    """
    if not isinstance(payload, bytes | bytearray | memoryview) or not _PREFIX.size <= len(payload) <= _LARGEST_FRAME:
        raise ProtocolError("malformed message: too short, too long or not bytes")
    view = memoryview(payload)
    magic, length = _PREFIX.unpack_from(view)
    if magic != _MAGIC or length > min(_LARGEST_HEADER, len(view) - _PREFIX.size):
        raise ProtocolError("malformed message: the frame does not begin as this protocol's do, or is cut off")
    body = _PREFIX.size + length
    try:
        header = json.loads(
            bytes(view[_PREFIX.size : body]), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"malformed message: the header is not JSON ({error})") from error
    if not isinstance(header, dict) or header.get("kind") != kind:
        raise ProtocolError(f"malformed message: a {kind!r} message was expected")
    return header, view[body:]


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key occurs twice")
    return content


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """What a stage message says about one group.

    Attributes:
        group: The number of the group in the plan.
        members: Positions in the plan's group, ascending: whom the server counts as present (empty in replies).
        dropped: Positions, ascending: who has shared but sent no input (only in unmask requests).
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
        stage: "keys", "shares", "masked" or "unmask".
        client: The client that the message is for, or comes from.
        plan: The digest of the plan, 64 hexadecimal digits.
        run: As in the plan.
        round: As in the plan.
        purpose: As in the plan.
        parts: The groups that go on.
        refused: Group number -> why this client takes no part in it any more (only in replies).
    """

    stage: str
    client: str
    plan: str
    run: str
    round: int
    purpose: str
    parts: tuple[GroupPart, ...]
    refused: Mapping[int, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The frame."""
        header = {
            "kind": "stage",
            "stage": self.stage,
            "client": self.client,
            "plan": self.plan,
            "run": self.run,
            "round": self.round,
            "purpose": self.purpose,
            "parts": [[part.group, part.members, part.dropped, len(part.body)] for part in self.parts],
            "refused": [[group, reason[:_LONGEST_REASON]] for group, reason in sorted(self.refused.items())],
        }
        return pack(header, *(part.body for part in self.parts))


def stage_message(
    plan: RoundPlan, stage: str, client: str, parts: Sequence[GroupPart], refused: Mapping[int, str] | None = None
) -> bytes:
    """The bytes of a stage message under a plan."""
    return StageMessage(
        stage=stage,
        client=client,
        plan=plan.digest,
        run=plan.run,
        round=plan.round,
        purpose=plan.purpose,
        parts=tuple(parts),
        refused=dict(refused or {}),
    ).to_bytes()


def read_stage_message(payload: bytes, *, plan: RoundPlan, stage: str, client: str) -> StageMessage:
    """Parse a stage message and check that it belongs to this plan, stage and client.

    Raises:
        ProtocolError: If it is malformed, of another run, round, purpose, plan or stage, for or from another client,
            or names groups or positions that the plan does not have.
    """
    header, body = unpack(payload, kind="stage")
    expected = {
        "kind": "stage",
        "stage": stage,
        "client": client,
        "plan": plan.digest,
        "run": plan.run,
        "round": plan.round,
        "purpose": plan.purpose,
    }
    if set(header) != {*expected, "parts", "refused"}:
        raise ProtocolError("malformed message: the header has other fields than a stage message has")
    for name, value in expected.items():
        if type(header[name]) is not type(value) or header[name] != value:
            raise ProtocolError(f"wrong message: {name} is {header[name]!r:.120}, expected {value!r}")
    return StageMessage(
        stage=stage,
        client=client,
        plan=plan.digest,
        run=plan.run,
        round=plan.round,
        purpose=plan.purpose,
        parts=_read_parts(header["parts"], body, plan),
        refused=_read_refused(header["refused"], plan),
    )


def _read_parts(entries: object, body: memoryview, plan: RoundPlan) -> tuple[GroupPart, ...]:
    if not isinstance(entries, list):
        raise ProtocolError("malformed message: parts is not a list")
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
    if not isinstance(entries, list):
        raise ProtocolError("malformed message: positions are not a list")
    for position in entries:
        _require_index(position, size)
    if any(later <= earlier for earlier, later in itertools.pairwise(entries)):
        raise ProtocolError(f"malformed message: positions {entries} are not ascending (a client occurs twice?)")
    return tuple(entries)


def _read_refused(entries: object, plan: RoundPlan) -> dict[int, str]:
    refused: dict[int, str] = {}
    if not isinstance(entries, list):
        raise ProtocolError("malformed message: refused is not a list")
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[1], str):
            raise ProtocolError("malformed message: a refusal needs a group and a reason")
        _require_index(entry[0], len(plan.groups))
        if entry[0] in refused or len(entry[1]) > _LONGEST_REASON:
            raise ProtocolError("malformed message: a group is refused twice, or a reason is too long")
        refused[entry[0]] = entry[1]
    return refused


def _require_index(value: object, stop: int) -> None:
    if type(value) is not int or not 0 <= value < stop:
        raise ProtocolError(f"malformed message: {value!r:.40} is not an integer from 0 to {stop - 1}")


def plan_message(plan: RoundPlan) -> bytes:
    """The keys request: the plan itself."""
    return pack({"kind": "plan"}, plan.to_json())


def read_plan_message(payload: bytes) -> RoundPlan:
    """Parse a keys request.

    Raises:
        ProtocolError: If it is malformed or its plan is not valid.
    """
    header, body = unpack(payload, kind="plan")
    if set(header) != {"kind"}:
        raise ProtocolError("malformed message: the header has other fields than a plan message has")
    return RoundPlan.from_json(bytes(body))
