"""Laws of the secure sums: what is opened is the plain sum over the stated members, and nothing breaks it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.engine import ClientEndpoint, Failure, LocalTransport, TrainedModel, secure_sums
from fedgt.engine.round_message import RoundMessage
from fedgt.errors import ProtocolError
from fedgt.secagg import ClientSession, GroupSum, RoundPlan, ServerSession, TensorSpec, default_threshold
from fedgt.secagg.fixed_point import RING_BITS, FixedPoint
from fedgt.secagg.frames import unpack
from fedgt.secagg.messages import read_plan_message, read_stage_message
from fedgt.secagg.vector import read_sum
from fedgt.types import FloatArray, Parameters
from whole_vector import client_vector

STAGES = ("keys", "shares", "masked", "unmask")
SHAPE = (2, 3)
CLIP = 4.0


@dataclass(frozen=True, kw_only=True, eq=False)
class PlaintextSum:
    """The oracle: the same sums in clear. It exists in the tests only."""

    plan: RoundPlan
    updates: Mapping[str, FloatArray]

    def ring(self, group: int, members: tuple[str, ...]) -> list[int]:
        """The sum of the encoded vectors with Python integers, modulo the ring."""
        modulus = 2**self.plan.encoding.ring_bits
        vectors = [client_vector(self.plan, client, {"w": self.updates[client]}).tolist() for client in members]
        factors = [self.factor(group, client) for client in members]
        return [
            sum(a * value for a, value in zip(factors, column, strict=True)) % modulus
            for column in zip(*vectors, strict=True)
        ]

    def factor(self, group: int, client: str) -> int:
        """The coefficient of a client in a group, read off the plan by hand."""
        if not self.plan.coefficients:
            return 1
        return self.plan.coefficients[group][self.plan.groups[group].index(client)]

    def real(self, group: int, members: tuple[str, ...]) -> FloatArray:
        """The sum of coefficient * weight * clipped update, in float64."""
        total = np.zeros(SHAPE)
        for client in members:
            weight = self.factor(group, client) * self.plan.weights[client]
            total = total + weight * np.clip(self.updates[client], -CLIP, CLIP)
        return total

    def assert_exact(self, result: GroupSum) -> None:
        """An open sum is the plain one modulo the ring, and within half a step times the weights of the real one."""
        assert result.total is not None
        assert result.members
        modular = np.array(self.ring(result.group, result.members), dtype=np.uint64).astype(self.plan.encoding.dtype)
        plain = read_sum(self.plan, modular)
        np.testing.assert_array_equal(result.total["w"], plain.total["w"])
        assert result.clipped == plain.clipped
        factors = {client: self.factor(result.group, client) for client in result.members}
        clipped = {client: int((np.abs(self.updates[client]) > CLIP).sum()) for client in result.members}
        assert result.clipped == sum(factors[client] * clipped[client] for client in result.members)
        assert result.weight == sum(factors[client] * self.plan.weights[client] for client in result.members)
        bound = result.weight * self.plan.encoding.step / 2
        rounding = 1e-12 * result.weight * CLIP
        np.testing.assert_allclose(
            result.total["w"], self.real(result.group, result.members), rtol=0, atol=bound + rounding
        )


class Trained:
    """Returns the received model plus a given update."""

    def __init__(self, update: FloatArray, samples: int) -> None:
        self.update, self.samples = update, samples

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        return TrainedModel(parameters={"w": parameters["w"] + self.update}, samples=self.samples)


class Dropping:
    """Drops clients by schedule: client -> the stage at which it leaves."""

    def __init__(self, inner: LocalTransport, schedule: Mapping[str, str]) -> None:
        self.inner, self.schedule = inner, schedule

    def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        left = {c for c, leaves in self.schedule.items() if STAGES.index(leaves) <= STAGES.index(stage)}
        replies = self.inner.exchange(stage, {c: m for c, m in messages.items() if c not in left}, timeout)
        return replies | {client: Failure(client=client, reason="left") for client in messages if client in left}


def make_plan(
    groups: tuple[tuple[str, ...], ...],
    weights: Mapping[str, int],
    ring_bits: int,
    coefficients: tuple[tuple[int, ...], ...] = (),
) -> RoundPlan:
    """A plan with as many fraction bits as the ring has room for."""
    rows = coefficients or tuple((1,) * len(group) for group in groups)
    largest = max(
        sum(a * weights[client] for a, client in zip(row, group, strict=True))
        for row, group in zip(rows, groups, strict=True)
    )
    bits = max(f for f in range(41) if largest * round(CLIP * 2.0**f) < 2 ** (ring_bits - 1))
    return RoundPlan(
        run="law",
        colluders=0,
        round=0,
        purpose="test",
        groups=groups,
        thresholds=tuple(default_threshold(len(group)) for group in groups),
        weights=weights,
        encoding=FixedPoint(clip=CLIP, fraction_bits=bits, ring_bits=ring_bits),
        tensors=(TensorSpec(name="w", shape=SHAPE),),
        coefficients=coefficients,
    )


@st.composite
def rounds(draw: st.DrawFn) -> PlaintextSum:
    """Groups of any overlap, weights, coefficients or none, either ring, and updates of which some are clipped."""
    clients = [f"c{number}" for number in range(draw(st.integers(2, 7)))]
    groups = draw(st.lists(st.lists(st.sampled_from(clients), min_size=1, unique=True), min_size=1, max_size=4))
    weights = {client: draw(st.integers(1, 10_000)) for client in clients}
    most = draw(st.sampled_from([1, 3, 255]))
    coefficients = tuple(tuple(draw(st.integers(1, most)) for _ in group) for group in groups)
    ring = draw(st.sampled_from(RING_BITS if most < 255 else RING_BITS[1:]))
    plan = make_plan(tuple(map(tuple, groups)), weights, ring, coefficients)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return PlaintextSum(plan=plan, updates={client: rng.normal(scale=2.0, size=SHAPE) for client in clients})


def sums(case: PlaintextSum, schedule: Mapping[str, str]) -> tuple[GroupSum, ...]:
    handlers = {
        client: ClientEndpoint(client, Trained(case.updates[client], weight), minimum_group_size=1).handle
        for client, weight in case.plan.weights.items()
    }
    transport = Dropping(LocalTransport(handlers), schedule)
    return secure_sums(
        transport,
        case.plan,
        {"w": np.zeros(SHAPE)},
        authorise=lambda members: (None,) * len(members),
        timeout=30.0,
    ).sums


@given(rounds())
def test_the_secure_sum_is_the_plain_sum(case: PlaintextSum) -> None:
    for result, group in zip(sums(case, {}), case.plan.groups, strict=True):
        assert result.members == group
        assert result.dropped == {}
        case.assert_exact(result)


@given(rounds(), st.data())
def test_whoever_leaves_whenever_each_group_is_exact_over_its_members_or_erased(
    case: PlaintextSum, data: st.DataObject
) -> None:
    leavers = data.draw(st.sets(st.sampled_from(sorted(case.updates))))
    schedule = {client: data.draw(st.sampled_from(STAGES)) for client in sorted(leavers)}
    for result, group, threshold in zip(sums(case, schedule), case.plan.groups, case.plan.thresholds, strict=True):
        given_input = tuple(client for client in group if schedule.get(client, "unmask") == "unmask")
        helping = tuple(client for client in group if client not in schedule)
        if len(helping) >= threshold:
            assert result.status == "open"
            assert result.members == given_input
            case.assert_exact(result)
        else:
            assert result.status == "erased"
            assert result.total is None
            assert "threshold" in result.reason or "shares" in result.reason
        # A stage that the group does not reach any more asks nobody: only earlier leavers can be named.
        assert set(result.dropped) <= set(group) & set(schedule)
        assert all(result.dropped[client] == f"{schedule[client]}: left" for client in result.dropped)
        assert {client for client in group if schedule.get(client) == "keys"} <= set(result.dropped)


@given(rounds(), st.permutations(range(7)))
@settings(max_examples=20)
def test_renaming_clients_changes_no_sum(case: PlaintextSum, order: list[int]) -> None:
    names = {client: f"x{order[number]}" for number, client in enumerate(sorted(case.updates))}
    renamed = PlaintextSum(
        plan=make_plan(
            tuple(tuple(names[client] for client in group) for group in case.plan.groups),
            {names[client]: weight for client, weight in case.plan.weights.items()},
            case.plan.encoding.ring_bits,
            case.plan.coefficients,
        ),
        updates={names[client]: update for client, update in case.updates.items()},
    )
    for one, other in zip(sums(case, {}), sums(renamed, {}), strict=True):
        assert one.total is not None
        assert other.total is not None
        np.testing.assert_array_equal(one.total["w"], other.total["w"])


PLAN = make_plan((("a", "b", "c"),), {"a": 1, "b": 2, "c": 3}, 32)


def honest() -> list[bytes]:
    """One message of every kind, in both directions."""
    clients = {client: ClientSession(client) for client in PLAN.clients}
    server = ServerSession(PLAN)
    kept: list[bytes] = []
    requests = server.keys()
    replies = {client: clients[client].keys(message) for client, message in requests.items()}
    kept += [requests["a"], replies["a"]]
    requests = server.shares(replies)
    replies = {client: clients[client].shares(message) for client, message in requests.items()}
    kept += [requests["a"], replies["a"]]
    requests = server.masked(replies)
    update = {"w": np.ones(SHAPE)}
    replies = {client: clients[client].masked(message, update) for client, message in requests.items()}
    kept += [requests["a"], replies["a"]]
    requests = server.unmask(replies, authorise=lambda members: (None,) * len(members))
    kept += [requests["a"], clients["a"].unmask(requests["a"])]
    kept.append(RoundMessage(session=kept[0], parameters={"w": np.ones(SHAPE)}).to_bytes())
    return kept


MESSAGES = honest()


@st.composite
def rubbish(draw: st.DrawFn) -> bytes:
    """Random bytes, or a real message with a few bytes changed, cut or added."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=200))
    message = bytearray(draw(st.sampled_from(MESSAGES)))
    for _ in range(draw(st.integers(0, 4))):
        message[draw(st.integers(0, len(message) - 1))] = draw(st.integers(0, 255))
    return bytes(message[: draw(st.integers(0, len(message)))]) + draw(st.binary(max_size=20))


@given(rubbish(), st.sampled_from(STAGES))
@settings(max_examples=400)
def test_rubbish_is_a_protocol_error_to_every_parser_or_a_message(payload: bytes, stage: str) -> None:
    parsers = (
        lambda: unpack(payload, kind="stage"),
        lambda: RoundPlan.from_json(payload),
        lambda: read_plan_message(payload),
        lambda: read_stage_message(payload, plan=PLAN, stage=stage, client="a"),
        lambda: RoundMessage.from_bytes(payload),
    )
    refused = 0
    for parse in parsers:
        try:
            parse()
        except ProtocolError:
            refused += 1
    # No two formats overlap, except that a stage message is a frame.
    assert refused >= len(parsers) - 2


@given(rubbish(), st.sampled_from(STAGES[1:]))
@settings(max_examples=150)
def test_rubbish_never_makes_a_client_fail_in_another_way(payload: bytes, stage: str) -> None:
    session = ClientSession("a")
    session.keys(MESSAGES[0])
    session._turns.next = STAGES.index(stage)
    update = ({"w": np.ones(SHAPE)},) if stage == "masked" else ()
    with pytest.raises(ProtocolError):
        getattr(session, stage)(payload, *update)
    assert session.closed or session._turns.next == STAGES.index(stage)


def parses(payload: bytes, stage: str, client: str) -> bool:
    try:
        read_stage_message(payload, plan=PLAN, stage=stage, client=client)
    except ProtocolError:
        return False
    return True


@given(st.dictionaries(st.sampled_from(PLAN.clients), rubbish()), st.sampled_from(STAGES))
@settings(max_examples=150)
def test_rubbish_never_makes_the_server_fail(bad: dict[str, bytes], stage: str) -> None:
    clients = {client: ClientSession(client) for client in PLAN.clients}
    server = ServerSession(PLAN)

    def replies(at: str, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        update = {"w": np.ones(SHAPE)}
        good = {
            client: clients[client].masked(message, update) if at == "masked" else getattr(clients[client], at)(message)
            for client, message in requests.items()
            if not (client in bad and STAGES.index(at) >= STAGES.index(stage))
        }
        return good | (bad if at == stage else {})

    requests = server.shares(replies("keys", server.keys()))
    requests = server.masked(replies("shares", requests))
    requests = server.unmask(replies("masked", requests), authorise=lambda members: (None,) * len(members))
    (result,) = server.results(replies("unmask", requests))
    if any(parses(payload, stage, client) for client, payload in bad.items()):
        return  # Not rubbish after all: a client may send any vector, so nothing is known about the sum.
    assert result.status == ("open" if len(bad) <= 1 else "erased")
    if result.total is not None:
        np.testing.assert_array_equal(result.total["w"], np.full(SHAPE, float(result.weight)))
