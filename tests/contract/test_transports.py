"""One suite for every transport: a reply or a failure for each client, whatever the clients do."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from fedgt.engine import Failure, LocalTransport, Transport
from fedgt.errors import ProtocolError, SpecError

Handler = Callable[[str, bytes], bytes]
Make = Callable[[Mapping[str, Handler]], Transport]


@pytest.fixture(params=[1, 2, 4])
def make(request: pytest.FixtureRequest) -> Make:
    workers: int = request.param
    return lambda handlers: LocalTransport(handlers, workers=workers)


@pytest.fixture
def hang() -> Iterator[Handler]:
    """A client that says nothing before the test is over."""
    over = threading.Event()

    def wait(stage: str, message: bytes) -> bytes:
        over.wait(30)
        return b"late"

    yield wait
    over.set()


def echo(stage: str, message: bytes) -> bytes:
    return stage.encode() + b":" + message


def test_every_client_gets_its_own_message_and_stage(make: Make) -> None:
    transport = make({"b": echo, "a": echo, "c": echo})
    assert transport.exchange("keys", {"c": b"3", "a": b"1"}, 5.0) == {"c": b"keys:3", "a": b"keys:1"}
    assert transport.exchange("shares", {}, 5.0) == {}


def test_what_a_client_raises_is_its_failure_and_nobody_elses(make: Make) -> None:
    def refuse(stage: str, message: bytes) -> bytes:
        raise ProtocolError("a repeated stage")

    def crash(stage: str, message: bytes) -> bytes:
        raise ZeroDivisionError("division by zero")

    def leave(stage: str, message: bytes) -> bytes:
        raise SystemExit(1)

    transport = make({"a": refuse, "b": crash, "c": leave, "d": echo})
    assert transport.exchange("keys", dict.fromkeys("abcd", b""), 5.0) == {
        "a": Failure(client="a", reason="a repeated stage"),
        "b": Failure(client="b", reason="ZeroDivisionError: division by zero"),
        "c": Failure(client="c", reason="SystemExit: 1"),
        "d": b"keys:",
    }


def test_a_client_that_hangs_is_a_failure_and_the_others_are_served(make: Make, hang: Handler) -> None:
    transport = make({"a": hang, "b": echo, "c": echo})
    replies = transport.exchange("keys", dict.fromkeys("abc", b""), 0.05)
    assert replies["a"] == Failure(client="a", reason="timeout: no reply within 0.05 s")
    assert replies["b"] == replies["c"] == b"keys:"
    again = transport.exchange("shares", dict.fromkeys("abc", b""), 0.05)
    assert again["a"] == Failure(client="a", reason="still busy with an earlier message")
    assert again["b"] == b"shares:"


def test_all_clients_may_hang(make: Make, hang: Handler) -> None:
    replies = make(dict.fromkeys("abc", hang)).exchange("keys", dict.fromkeys("abc", b""), 0.02)
    assert all(isinstance(reply, Failure) for reply in replies.values())
    assert list(replies) == ["a", "b", "c"]


def test_a_late_reply_never_reaches_a_later_stage(make: Make) -> None:
    def slow(stage: str, message: bytes) -> bytes:
        if stage == "keys":
            time.sleep(0.1)
        return stage.encode()

    transport = make({"a": slow})
    assert isinstance(transport.exchange("keys", {"a": b""}, 0.01)["a"], Failure)
    time.sleep(0.3)
    assert transport.exchange("shares", {"a": b""}, 5.0)["a"] == b"shares"


def test_an_unknown_client_is_a_failure(make: Make) -> None:
    assert make({}).exchange("keys", {"z": b""}, 1.0) == {
        "z": Failure(client="z", reason="no such client is connected")
    }


def test_a_reply_that_is_not_bytes_is_a_failure(make: Make) -> None:
    def text(stage: str, message: bytes) -> bytes:
        return "text"  # type: ignore[return-value]

    assert make({"a": text}).exchange("keys", {"a": b""}, 5.0) == {
        "a": Failure(client="a", reason="replied with str, bytes are needed")
    }


def test_a_transport_without_workers_is_refused() -> None:
    with pytest.raises(SpecError, match="workers"):
        LocalTransport({}, workers=0)
