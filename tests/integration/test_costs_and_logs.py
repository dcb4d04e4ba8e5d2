"""What strangers' bytes may cost, and what their words may do to a log or a report."""

import json
import logging
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from flwr.app import Context, Message

import flower_app as app
from fedgt.engine import Failure, LocalTransport
from fedgt.engine.hello import hello_frame, read_answer, read_hello
from fedgt.engine.prekey_store import read_finish, read_finished
from fedgt.engine.round_message import RoundMessage
from fedgt.engine.suspended_endpoint import Suspended
from fedgt.errors import ProtocolError
from fedgt.flower import InProcessGrid
from fedgt.secagg import PrekeyRequest, RoundPlan, ServerSession
from fedgt.secagg.agreement import Link, links_from_json, signatures_from_json
from fedgt.secagg.frames import Sender, pack
from fedgt.secagg.messages import read_begin_message, read_plan_message, read_stage_message
from fedgt.secagg.prekeys import read_prekeys
from flower_grid import SMALL, nodes, over
from secagg_lab import FOUR, allow, make_plan, play

PLAN = make_plan("abcd", "abc")
LARGE = 3_200_000
HOSTILE = "\x1b[2J\r\n2026-01-01 INFO all is well \u202e" + "x" * 5_000_000


def stage(**changes: object) -> dict[str, object]:
    usual = {"kind": "stage", "stage": "masked", "client": "a", "plan": PLAN.digest, "run": "run", "round": 2}
    return {**usual, "purpose": "test", "parts": [], "refused": [], "unreadable": [], "attached": 0, **changes}


def read_stage(payload: bytes, sender: Sender | None = None) -> object:
    return read_stage_message(payload, plan=PLAN, stage="masked", client="a", sender=sender)


def raw(text: bytes, body: bytes = b"") -> bytes:
    return b"FGT1" + struct.pack(">I", len(text)) + text + body


def entries(kind: str, **fields: object) -> bytes:
    return pack({"kind": kind, **fields})


A = Sender(name="a", public=FOUR.clients["a"].public)
MANY_PARTS = stage(parts=[[0, [0], [], 0]] * (LARGE // 11))


@pytest.mark.parametrize(
    ("payload", "parse"),
    [
        (pack(MANY_PARTS), read_stage),
        (pack(MANY_PARTS, identity=FOUR.clients["a"]), lambda payload: read_stage(payload, A)),
        (pack(stage(parts=[[]] * (LARGE // 3))), read_stage),
        (pack(stage(parts=[[0, [0] * (LARGE // 2), [], 0]])), read_stage),
        (pack(stage(parts=[[0, [], list(range(LARGE // 6)), 0]])), read_stage),
        (pack(stage(refused=[[0, "x"]] * (LARGE // 8))), read_stage),
        (pack(stage(refused=[[0, "x" * LARGE]])), read_stage),
        (pack(stage(run="x" * LARGE)), read_stage),
        (pack(stage() | {f"field {number}": 0 for number in range(LARGE // 16)}), read_stage),
        (pack(stage(), bytes(20 * LARGE), identity=FOUR.clients["a"]), lambda payload: read_stage(payload, A)),
        (raw(b'{"kind":"stage","parts":' + b"[" * LARGE), read_stage),
        (
            entries("hello", nonce="x" * LARGE, version="1", prekeys=None),
            lambda p: read_hello(p, client="a", credentials=None),
        ),
        (entries("hello-answer", client="x" * LARGE, nonce="n"), lambda p: read_answer(p, nonce="n", credentials=None)),
        (
            pack({"kind": "hello-answer", "client": "a", "nonce": "n"}, bytes(20 * LARGE), identity=FOUR.clients["a"]),
            lambda p: read_answer(p, nonce="n", credentials=FOUR.of_server()),
        ),
        (entries("finish", prekeys=["r"] * (LARGE // 4)), lambda p: read_finish(p, sender=None)),
        (entries("finished", unmask=[0] * (LARGE // 2)), read_finished),
        (entries("plan", more=[[]] * (LARGE // 3)), read_plan_message),
        (entries("begin", plan=0, parts=[[0, [0], [], 0]] * (LARGE // 11)), read_begin_message),
        (
            entries("round", session=0, parameters=[["w", "f8", [0]]] * (LARGE // 15), center=None),
            RoundMessage.from_bytes,
        ),
        (
            entries("prekeys", client="a", **{"for": [0] * (LARGE // 2)}),
            lambda p: read_prekeys(p, client="a", plan=PLAN, credentials=None),
        ),
        (
            pack(stage(stage="agree", attached=20 * LARGE), bytes(20 * LARGE), identity=FOUR.clients["a"]),
            lambda p: read_stage_message(p, plan=PLAN, stage="agree", client="a", sender=A),
        ),
        (b"{" + b'"a":"00",' * (LARGE // 9), lambda p: signatures_from_json(p, registry=FOUR.registry)),
        (b"[" * 2**26, lambda p: links_from_json(p, registry=FOUR.registry)),
        (entries("suspended-endpoint", known=[[]] * (LARGE // 3)), lambda p: Suspended.from_bytes(p, client="a")),
    ],
)
def test_a_large_message_is_refused_in_milliseconds(payload: bytes, parse: Callable[[bytes], object]) -> None:
    """A stage message with 3.2 MB of parts took 1.5 s of CPU time."""
    assert len(payload) > 3_000_000
    best = 1.0
    for _ in range(3):
        began = time.process_time()
        with pytest.raises(ProtocolError) as caught:
            parse(payload)
        best = min(best, time.process_time() - began)
    assert best < 0.01
    assert len(str(caught.value)) < 400


def changed_plan(change: Callable[[dict[str, Any]], None]) -> bytes:
    content = json.loads(PLAN.to_json())
    change(content)
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def test_a_plan_that_repeats_a_name_does_not_cost_the_square_of_its_length() -> None:
    """Of 160,000 bytes: nine seconds before."""

    def repeat(content: dict[str, Any]) -> None:
        content["groups"] = [["a", "b"] * 20_000] * 2
        content["thresholds"] = [30_000] * 2

    began = time.process_time()
    with pytest.raises(ProtocolError, match="more than once"):
        RoundPlan.from_json(changed_plan(repeat))
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    "payload",
    [
        raw(b'{"kind":"stage","parts":[[[[[[[[[[]]]]]]]]]]}'),
        raw(b'{"kind":"stage","round":' + b"9" * 4000 + b"}"),
        raw(b'{"kind":"stage","kind":"stage"}'),
        raw(b'{"kind":"stage","round":NaN}'),
        raw('{"kind":"stage"}'.encode("utf-16")),
        raw("\ufeff{}".encode()),
    ],
)
def test_json_that_is_deep_or_has_endless_numbers_or_keys_twice_is_not_read(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="is not JSON"):
        read_stage(payload)


def test_the_words_of_a_server_reach_the_log_of_a_client_in_one_printable_line() -> None:
    def field(content: dict[str, Any]) -> None:
        content["encoding"][HOSTILE[:1000]] = 1

    agreement = json.dumps({"groups": [], HOSTILE[:1000]: 1}).encode()
    for read in (lambda: RoundPlan.from_json(changed_plan(field)), lambda: Link.from_json(agreement)):
        with pytest.raises(ProtocolError) as caught:
            read()
        assert "[2J" in str(caught.value)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 400


def test_the_reason_with_which_a_client_refuses_a_group_is_one_printable_line() -> None:
    header = stage(stage="keys", at=0, refused=[[0, HOSTILE[:300]]])
    forged = pack(header, identity=FOUR.clients["a"])
    _, _, sums = play(PLAN, up=lambda at, who, reply: forged if (at, who) == ("keys", "a") else reply)
    assert sums[0].dropped["a"].startswith("keys: refused: \ufffd[2J")
    assert all(reason.isprintable() for one in sums for reason in one.dropped.values())


def test_what_a_transport_says_of_a_client_is_short_and_printable_wherever_it_is_kept() -> None:
    def broken(stage: str, payload: bytes) -> bytes:
        raise OSError(HOSTILE)

    assert Failure(client="a", reason=HOSTILE).reason.isprintable()
    (failure,) = LocalTransport({"a": broken}).exchange("keys", {"a": b""}, 5.0).values()
    assert isinstance(failure, Failure)
    assert failure.reason.isprintable()
    assert len(failure.reason) <= 300
    server = ServerSession(PLAN, credentials=FOUR.of_server())
    server.keys()
    server.shares({}, {"a": HOSTILE})
    server.masked({})
    server.agree({}, authorise=allow)
    server.unmask({})
    for one in server.results({}):
        assert one.reason.isprintable()
        assert all(len(reason) <= 300 and reason.isprintable() for reason in one.dropped.values())


def test_a_name_that_would_forge_a_line_of_the_log_is_not_taken_from_a_node() -> None:
    nonce, _ = hello_frame(None)
    for name in ("a\nINFO all is well", "a\x1b[2J", "", "a" * 201):
        answer = pack({"kind": "hello-answer", "nonce": nonce, "client": name})
        with pytest.raises(ProtocolError):
            read_answer(answer, nonce=nonce, credentials=None)
        with pytest.raises(ProtocolError):
            PrekeyRequest(run=name, round=1, groups=1)


@pytest.mark.parametrize("at", ["query.fedgt_hello", "query.fedgt_begin", "train.fedgt_masked"])
def test_an_error_of_a_flower_node_with_five_megabytes_of_escapes_is_one_short_line(
    at: str, caplog: pytest.LogCaptureFixture
) -> None:
    def hostile(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 4 and message.metadata.message_type == at:
            raise RuntimeError(HOSTILE)
        return app.client(message, context)

    with caplog.at_level(logging.INFO, logger="fedgt"):
        transport, run = over(InProcessGrid(hostile, nodes(5), SMALL), SMALL | {"rounds": 1})
        (record,) = run.rounds(app.initial())
    said = [
        *transport.roster.refused.values(),
        *(text for one in record.result.records for text in one.dropped.values()),
    ]
    assert any("[2J" in text for text in said)
    lines = [line.getMessage() for line in caplog.records if line.name.startswith("fedgt")]
    assert any("[2J" in line for line in lines)
    for text in (*said, *lines, *record.result.warnings):
        assert text.isprintable()
        assert len(text) < 2000
