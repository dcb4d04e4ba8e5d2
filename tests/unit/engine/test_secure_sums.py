"""The whole exchange over a transport: results, byte counts, and independence of workers and order."""

import logging
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedgt.engine import ClientEndpoint, Failure, LocalTransport, SecureSums, TrainedModel, Transport, secure_sums
from fedgt.errors import ShapeError
from fedgt.secagg import FixedPoint, RoundPlan, TensorSpec, default_threshold
from fedgt.types import Parameters

IDS = tuple(f"c{number:02d}" for number in range(15))
ROWS = tuple(tuple(IDS[start + offset] for offset in (0, 1, 3, 7)) for start in range(8))
MODEL = {"w": np.zeros((3, 4))}


class Constant:
    def __init__(self, value: float) -> None:
        self.value = value

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        return TrainedModel(parameters={"w": parameters["w"] + self.value}, samples=1)


def plan(groups: tuple[tuple[str, ...], ...] = ROWS, **changes: Any) -> RoundPlan:
    fields: dict[str, Any] = {
        "run": "run",
        "colluders": 0,
        "round": 0,
        "purpose": "test",
        "groups": groups,
        "thresholds": tuple(default_threshold(len(group)) for group in groups),
        "weights": dict.fromkeys(IDS, 1),
        "encoding": FixedPoint(clip=8.0, fraction_bits=16, ring_bits=32),
        "tensors": (TensorSpec(name="w", shape=(3, 4)),),
    }
    return RoundPlan(**(fields | changes))


def local(workers: int = 1, ids: tuple[str, ...] = IDS) -> LocalTransport:
    """Fresh endpoints; client number i returns i / 7 in every entry."""
    return LocalTransport(
        {name: ClientEndpoint(name, Constant(IDS.index(name) / 7)).handle for name in ids}, workers=workers
    )


def take(transport: Transport, agreed: RoundPlan, *, timeout: float = 10.0) -> SecureSums:
    return secure_sums(transport, agreed, MODEL, authorise=lambda members: (None,) * len(members), timeout=timeout)


class Counting:
    """Counts what really passes."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.up = self.down = 0
        self.stages: list[tuple[str, int]] = []

    def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        replies = self.inner.exchange(stage, messages, timeout)
        self.stages.append((stage, len(messages)))
        self.down += sum(map(len, messages.values()))
        self.up += sum(len(reply) for reply in replies.values() if isinstance(reply, bytes))
        return replies


def test_there_is_one_message_per_client_and_stage_and_every_byte_is_counted() -> None:
    transport = Counting(local())
    result = take(transport, plan())
    assert transport.stages == [("keys", 15), ("shares", 15), ("masked", 15), ("unmask", 15)]
    assert (result.bytes_up, result.bytes_down) == (transport.up, transport.down)
    assert set(result.seconds) == {"keys", "shares", "masked", "unmask"}
    assert result.warnings == ()
    for group, members in zip(result.sums, ROWS, strict=True):
        assert group.members == members
        assert group.total is not None
        expected = sum(IDS.index(name) / 7 for name in members)
        np.testing.assert_allclose(group.total["w"], np.full((3, 4), expected), rtol=0, atol=4 * 2.0**-17)


def test_neither_workers_nor_the_order_of_registration_change_a_bit() -> None:
    """Case 31."""
    results = [
        [
            None if group.total is None else group.total["w"].tobytes()
            for group in take(local(workers, ids), plan()).sums
        ]
        for workers, ids in ((1, IDS), (2, IDS), (4, IDS), (1, IDS[::-1]))
    ]
    assert results[0][0] is not None
    assert all(result == results[0] for result in results)


def test_a_client_that_hangs_is_dropped_and_the_round_goes_on() -> None:
    over = threading.Event()

    class Hangs(Constant):
        def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
            over.wait(30)
            return super().train(parameters, round=round)

    handlers = {name: ClientEndpoint(name, Constant(1.0)).handle for name in IDS[1:]}
    handlers[IDS[0]] = ClientEndpoint(IDS[0], Hangs(1.0)).handle
    result = take(LocalTransport(handlers), plan(), timeout=0.5)
    over.set()
    assert result.sums[0].members == ROWS[0][1:]
    assert result.sums[0].dropped == {IDS[0]: "masked: timeout: no reply within 0.5 s"}
    assert all(group.status == "open" for group in result.sums)


def test_when_nobody_is_there_all_groups_are_erasures() -> None:
    """Case 10."""
    result = take(LocalTransport({}), plan())
    assert [group.status for group in result.sums] == ["erased"] * 8
    assert result.sums[0].dropped == dict.fromkeys(ROWS[0], "keys: no such client is connected")
    assert result.bytes_up == 0


def test_a_transport_that_forgets_a_client_makes_it_a_dropout() -> None:
    class Forgetful(Counting):
        def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
            replies = super().exchange(stage, messages, timeout)
            replies.pop(IDS[0], None)
            return replies | {"stranger": b"hello"}

    result = take(Forgetful(local()), plan())
    assert result.sums[0].dropped == {IDS[0]: "keys: no reply"}
    assert result.sums[0].status == "open"


def test_a_coarse_encoding_is_told_in_the_result_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Case 7, in round 0."""
    with caplog.at_level(logging.WARNING):
        result = take(local(), plan(encoding=FixedPoint(clip=3.0, fraction_bits=1, ring_bits=32)))
    assert result.sums[0].status == "open"
    assert "13 levels" in result.warnings[0]
    assert "13 levels" in caplog.text


def test_parameters_or_a_center_that_are_not_the_plans_are_refused_before_anything_is_sent() -> None:
    transport = Counting(local())
    for parameters, center, message in (
        ({"w": np.zeros((4, 3))}, None, "make the plan from the parameters"),
        (MODEL, MODEL, "takes no center"),
    ):
        with pytest.raises(ShapeError, match=message):
            secure_sums(transport, plan(), parameters, authorise=lambda members: (), timeout=1.0, center=center)
    assert transport.stages == []
