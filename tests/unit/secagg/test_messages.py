"""Frames and stage messages: what is written is read, and nothing else."""

import json
from typing import Any

import pytest

from fedgt.errors import ProtocolError
from fedgt.secagg import FixedPoint, RoundPlan, TensorSpec
from fedgt.secagg.frames import pack, unpack
from fedgt.secagg.messages import GroupPart, plan_message, read_plan_message, read_stage_message, stage_message

PLAN = RoundPlan(
    run="run",
    colluders=0,
    round=2,
    purpose="test",
    groups=(("a", "b", "c"), ("b", "c")),
    thresholds=(2, 2),
    weights={"a": 1, "b": 1, "c": 1},
    encoding=FixedPoint(clip=1.0, fraction_bits=10, ring_bits=32),
    tensors=(TensorSpec(name="w", shape=(2,)),),
)
PARTS = [
    GroupPart(group=0, members=(0, 1), dropped=(2,), body=b"12345"),
    GroupPart(group=1, members=(0, 1), body=b"678"),
]


def rewritten(**changes: Any) -> bytes:
    """A valid masked message with some header fields changed."""
    header, body = unpack(stage_message(PLAN, "masked", "b", PARTS), kind="stage")
    return pack({name: value for name, value in (header | changes).items() if value is not ...}, body)


def test_a_stage_message_is_read_as_it_was_written() -> None:
    message = read_stage_message(
        stage_message(PLAN, "masked", "b", PARTS, {1: "too small"}), plan=PLAN, stage="masked", client="b"
    )
    assert [(p.group, p.members, p.dropped, bytes(p.body)) for p in message.parts] == [
        (0, (0, 1), (2,), b"12345"),
        (1, (0, 1), (), b"678"),
    ]
    assert message.refused == {1: "too small"}
    assert (message.run, message.round, message.purpose, message.plan) == ("run", 2, "test", PLAN.digest)


def test_a_plan_message_is_read_as_it_was_written() -> None:
    assert read_plan_message(plan_message(PLAN)) == PLAN


def test_a_reason_is_cut_to_a_bounded_length() -> None:
    message = stage_message(PLAN, "masked", "b", [], {0: "x" * 10_000})
    assert len(read_stage_message(message, plan=PLAN, stage="masked", client="b").refused[0]) == 300


@pytest.mark.parametrize(
    "changes",
    [
        {"run": "other"},
        {"round": 3},
        {"round": 2.0},
        {"purpose": "training"},
        {"plan": "0" * 64},
        {"stage": "unmask"},
        {"client": "c"},
        {"extra": 1},
        {"refused": ...},
        {"parts": {}},
        {"parts": [[0, [0, 1], [2], 5]]},
        {"parts": [[0, [0, 1], [2], 9]]},
        {"parts": [[0, [0, 1], [2], -1], [1, [], [], 9]]},
        {"parts": [[0, [0, 1], [2], 5], [0, [0, 1], [], 3]]},
        {"parts": [[2, [0, 1], [], 5], [1, [0, 1], [], 3]]},
        {"parts": [[0, [0, 0], [], 5], [1, [0, 1], [], 3]]},
        {"parts": [[0, [1, 0], [], 5], [1, [0, 1], [], 3]]},
        {"parts": [[0, [0, 3], [], 5], [1, [0, 1], [], 3]]},
        {"parts": [[0, [True], [], 5], [1, [0, 1], [], 3]]},
        {"parts": [[0, "01", [], 5], [1, [0, 1], [], 3]]},
        {"parts": [[0, [0, 1], 5], [1, [0, 1], [], 3]]},
        {"refused": [[0, "a"], [0, "b"]]},
        {"refused": [[7, "a"]]},
        {"refused": [[0, "a" * 301]]},
        {"refused": [[0, 1]]},
        {"refused": {}},
    ],
)
def test_a_stage_message_that_does_not_belong_here_is_a_protocol_error(changes: dict[str, Any]) -> None:
    read_stage_message(rewritten(), plan=PLAN, stage="masked", client="b")
    with pytest.raises(ProtocolError):
        read_stage_message(rewritten(**changes), plan=PLAN, stage="masked", client="b")


def frame(text: bytes) -> bytes:
    return b"FGT1" + len(text).to_bytes(4, "big") + text


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"FGT1",
        b"FGT0" + bytes(4),
        frame(b""),
        frame(b"[]"),
        frame(b"{"),
        frame(b"[" * 100_000),
        frame(b'{"kind":"stage","kind":"stage"}'),
        frame(b'{"kind":"stage","x":NaN}'),
        frame(b'{"kind":"plan"}'),
        frame(b"\xff\xfe"),
        frame(b'{"kind":"stage"}')[:-1],
        b"FGT1" + b"\xff" * 4 + b"{}",
    ],
)
def test_a_frame_that_is_broken_is_a_protocol_error(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack(payload, kind="stage")


def test_text_is_no_frame() -> None:
    text: Any = json.dumps({"kind": "stage"})
    with pytest.raises(ProtocolError):
        unpack(text, kind="stage")


def test_a_plan_message_with_more_in_its_header_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        read_plan_message(pack({"kind": "plan", "more": 1}, PLAN.to_json()))
