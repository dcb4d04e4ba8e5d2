"""Every parser against hostile bytes: a checked value or one kind of error, never another exception, never much memory."""

import copy
import json
import secrets
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fedgt.engine.journal import RoundJournal
from fedgt.engine.round_message import RoundMessage
from fedgt.errors import ProtocolError, SignatureError, SpecError
from fedgt.secagg import (
    ClientSession,
    Credentials,
    FixedPoint,
    Identity,
    Registry,
    RoundPlan,
    ServerSession,
    TensorSpec,
)
from fedgt.secagg.frames import Sender, pack, unpack
from fedgt.secagg.messages import SIGNED_STAGES, read_plan_message, read_stage_message

NAMES = "abc"
SERVER = Identity.generate("server")
CLIENTS = {name: Identity.generate(name) for name in NAMES}
REGISTRY = Registry(server=SERVER.public, clients={name: one.public for name, one in CLIENTS.items()})
PLAN = RoundPlan(
    run="fuzz",
    colluders=0,
    round=1,
    purpose="test",
    groups=(tuple(NAMES), ("a", "b")),
    thresholds=(2, 2),
    weights={"a": 1, "b": 2, "c": 3},
    encoding=FixedPoint(clip=1.0, fraction_bits=10, ring_bits=32),
    tensors=(TensorSpec(name="w", shape=(2,)), TensorSpec(name="n", shape=(), kind="keep")),
)
UPDATE = {"w": np.array([0.5, -0.5]), "n": np.array(3)}


def sessions() -> dict[str, ClientSession]:
    return {
        name: ClientSession(name, credentials=Credentials(identity=CLIENTS[name], registry=REGISTRY)) for name in NAMES
    }


def answer(session: ClientSession, stage: str, message: bytes) -> bytes:
    if stage == "masked":
        return session.masked(message, UPDATE)
    reply: bytes = getattr(session, stage)(message)
    return reply


def conversation() -> list[tuple[str, bytes, bytes]]:
    """Stage, request to a and reply of a, of one whole signed session."""
    clients = sessions()
    server = ServerSession(PLAN, credentials=Credentials(identity=SERVER, registry=REGISTRY))
    requests = server.keys()
    kept = []
    for stage, following in zip(SIGNED_STAGES, (*SIGNED_STAGES[1:], "results"), strict=True):
        replies = {name: answer(clients[name], stage, message) for name, message in requests.items()}
        kept.append((stage, requests["a"], replies["a"]))
        options = {"authorise": lambda members: (None,) * len(members)} if stage == "masked" else {}
        if following != "results":
            requests = getattr(server, following)(replies, **options)
    return kept


CONVERSATION = conversation()


@st.composite
def changed(draw: st.DrawFn, message: bytes) -> bytes:
    """The message with bytes changed, cut off or added, never itself."""
    spoilt = bytearray(message)
    for _ in range(draw(st.integers(0, 3))):
        spoilt[draw(st.integers(0, len(spoilt) - 1))] = draw(st.integers(0, 255))
    result = bytes(spoilt[: draw(st.integers(0, len(spoilt)))]) + draw(st.binary(max_size=8))
    return result if result != message else result + b"\0"


def read_request(stage: str, message: bytes, sender: Sender) -> object:
    if stage == "keys":
        return read_plan_message(message, sender=sender)
    return read_stage_message(message, plan=PLAN, stage=stage, client="a", sender=sender)


@given(data=st.data())
@settings(max_examples=150)
def test_no_changed_message_of_a_signed_session_is_ever_read(data: st.DataObject) -> None:
    stage, request, reply = data.draw(st.sampled_from(CONVERSATION))
    server, client = Sender(name="the server", public=SERVER.public), Sender(name="a", public=CLIENTS["a"].public)
    spoilt = data.draw(changed(request))
    with pytest.raises(ProtocolError):
        read_request(stage, spoilt, server)
    if stage != "masked":  # its body has tags of its own, checked by the server session
        spoilt = data.draw(changed(reply))
        with pytest.raises(ProtocolError):
            read_stage_message(spoilt, plan=PLAN, stage=stage, client="a", sender=client)


@given(data=st.data())
@settings(max_examples=2 * settings().max_examples)
def test_a_masked_message_that_was_changed_anywhere_never_reaches_a_sum(data: st.DataObject) -> None:
    clients = sessions()
    server = ServerSession(PLAN, credentials=Credentials(identity=SERVER, registry=REGISTRY))
    requests = server.shares({name: clients[name].keys(message) for name, message in server.keys().items()})
    requests = server.masked({name: clients[name].shares(message) for name, message in requests.items()})
    replies = {name: clients[name].masked(message, UPDATE) for name, message in requests.items()}
    replies["a"] = data.draw(changed(replies["a"]))
    requests = server.agree(replies, authorise=lambda members: (None,) * len(members))
    requests = server.unmask({name: clients[name].agree(message) for name, message in requests.items()})
    sums = server.results({name: clients[name].unmask(message) for name, message in requests.items()})
    for one in sums:
        # Group parts that were not touched may survive; what is open is exact over whoever is in it.
        if one.total is not None:
            weight = sum(PLAN.weights[name] for name in one.members)
            np.testing.assert_array_equal(one.total["w"], weight * UPDATE["w"])
    assert any("a" in one.dropped for one in sums)


def json_values(*, finite: bool) -> st.SearchStrategy[object]:
    floats = st.floats(allow_nan=False, allow_infinity=False) if finite else st.floats()
    return st.recursive(
        st.none() | st.booleans() | st.integers() | floats | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    )


def paths(content: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(content, dict):
        found += [more for key, value in content.items() for more in paths(value, (*path, key))]
    if isinstance(content, list):
        found += [more for key, value in enumerate(content) for more in paths(value, (*path, key))]
    return found


@given(data=st.data())
@settings(max_examples=5 * settings().max_examples)
def test_a_plan_with_anything_in_any_place_is_a_plan_or_a_protocol_error(data: st.DataObject) -> None:
    content = json.loads(PLAN.to_json())
    path = data.draw(st.sampled_from(paths(content)))
    inside = content
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = data.draw(json_values(finite=False))
    payload = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    try:
        plan = RoundPlan.from_json(payload)
    except ProtocolError:
        return
    assert plan.to_json() == payload


HEADERS = [
    json.loads(message[8 : 8 + struct.unpack(">I", message[4:8])[0]])
    for pair in CONVERSATION
    for message in pair[1:]
    if pair[0] != "keys" or message is pair[2]
]


@given(data=st.data())
@settings(max_examples=5 * settings().max_examples)
def test_a_header_with_anything_in_any_place_is_a_message_or_a_protocol_error(data: st.DataObject) -> None:
    header = copy.deepcopy(data.draw(st.sampled_from(HEADERS)))
    path = data.draw(st.sampled_from(paths(header)))
    inside: Any = header
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = data.draw(json_values(finite=True))
    body = b"\0" * sum(part[3] for part in HEADERS[0]["parts"])
    try:
        message = read_stage_message(pack(header, body), plan=PLAN, stage=header["stage"], client="a")
    except ProtocolError:
        return
    assert message.run == "fuzz"


MODEL_FRAME = RoundMessage(session=b"plan", parameters=UPDATE).to_bytes()


@given(data=st.data())
@settings(max_examples=5 * settings().max_examples)
@example(data=None)
def test_a_round_message_with_anything_in_its_header_is_one_or_a_protocol_error(data: st.DataObject | None) -> None:
    header, body = unpack(MODEL_FRAME, kind="round")
    if data is None:
        assert list(RoundMessage.from_bytes(MODEL_FRAME).parameters) == ["w", "n"]
        return
    path = data.draw(st.sampled_from(paths(header)))
    inside: Any = header
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = data.draw(json_values(finite=True))
    try:
        message = RoundMessage.from_bytes(pack(header, body))
    except ProtocolError:
        return
    assert sum(array.size for array in message.parameters.values()) <= 4


def frame(text: bytes, body: bytes = b"") -> bytes:
    return b"FGT1" + struct.pack(">I", len(text)) + text + body


def shaped(*lengths: int) -> bytes:
    header = {"kind": "round", "session": 0, "parameters": [["w", "f8", list(lengths)]], "center": None}
    return frame(json.dumps(header).encode())


@pytest.mark.parametrize(
    ("payload", "parse"),
    [
        (b"FGT1\xff\xff\xff\xff" + b"{" * 1000, lambda payload: unpack(payload, kind="stage")),
        (frame(b"[" * 2_000_000), lambda payload: unpack(payload, kind="stage")),
        (frame(b'{"kind":' + b"9" * 1_000_000 + b"}"), lambda payload: unpack(payload, kind="stage")),
        (frame(b" " * 5_000_000), lambda payload: unpack(payload, kind="stage")),
        (shaped(2**40), RoundMessage.from_bytes),
        (shaped(2**62, 2**62), RoundMessage.from_bytes),
        (shaped(0, 2**62), RoundMessage.from_bytes),
        (frame(b'{"kind":"plan"}', b" " * (2**24 + 1)), read_plan_message),
    ],
)
def test_a_message_that_claims_to_be_large_costs_no_more_than_itself(
    payload: bytes, parse: Callable[[bytes], object]
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            parse(payload)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(payload) + 2**21


def test_a_signature_of_another_message_kind_is_no_signature() -> None:
    sender = Sender(name="a", public=CLIENTS["a"].public)
    message = pack({"kind": "stage"}, b"body", identity=CLIENTS["a"])
    unpack(message, kind="stage", sender=sender)
    with pytest.raises(SignatureError):
        unpack(message, kind="stage", sender=sender, in_place=True)
    with pytest.raises(ProtocolError):
        unpack(message[:40], kind="stage", sender=sender)


@given(content=st.binary(max_size=80) | st.text(alphabet='["run", 0-9]\n', max_size=40).map(str.encode))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_journal_with_rubbish_is_a_spec_error_or_a_journal(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / secrets.token_hex(8)
    path.write_bytes(content)
    try:
        journal = RoundJournal(path)
    except SpecError:
        return
    journal.begin("run", 7, "test")
    assert RoundJournal(path).latest("run") == max(7, journal.latest("run"))
