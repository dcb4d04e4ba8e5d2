"""A hostile network as a state machine: messages are lost, doubled, reordered, spoilt and replayed at will.

The invariant: a sum is exact over its stated members, or it is an erasure with a reason; it is never over fewer members
than the floor; and a round always ends.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fedgt.errors import ProtocolError
from fedgt.secagg import (
    ClientSession,
    Credentials,
    FixedPoint,
    GroupSum,
    Identity,
    PrekeyRequest,
    Prekeys,
    Registry,
    RoundPlan,
    ServerSession,
    TensorSpec,
    default_threshold,
)
from fedgt.secagg.messages import SIGNED_STAGES, STAGES

NAMES = "abcdef"
GROUPS = (tuple("abcd"), tuple("cdef"), tuple("abcdef"), tuple("bdf"))
FLOOR = 3
SERVER = Identity.generate("server")
CLIENTS = {name: Identity.generate(name) for name in NAMES}
REGISTRY = Registry(server=SERVER.public, clients={name: one.public for name, one in CLIENTS.items()})


def make_plan(number: int) -> RoundPlan:
    return RoundPlan(
        run="machine",
        colluders=0,
        round=number,
        purpose="test",
        groups=GROUPS,
        thresholds=tuple(default_threshold(len(group)) for group in GROUPS),
        weights={name: position + 1 for position, name in enumerate(NAMES)},
        encoding=FixedPoint(clip=8.0, fraction_bits=12, ring_bits=32),
        tensors=(TensorSpec(name="w", shape=(2,)),),
    )


def update_of(name: str, number: int) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    return {"w": np.array([NAMES.index(name) / 4, number / 8 - 1])}


class Network(RuleBasedStateMachine):
    """One server, six clients, and whatever hypothesis does to the messages between them."""

    @initialize(signed=st.booleans(), ahead=st.booleans(), minimum=st.integers(1, 4))
    def begin(self, signed: bool, ahead: bool, minimum: int) -> None:
        self.signed = signed
        self.ahead = ahead
        self.minimum = minimum
        self.number = -1
        self.log: list[tuple[str, bytes]] = []
        self.next_round()

    def next_round(self) -> None:
        self.number += 1
        self.plan = make_plan(self.number)
        self.sessions = {
            name: ClientSession(name, minimum_group_size=self.minimum, credentials=self.credentials(CLIENTS[name]))
            for name in NAMES
        }
        self.server = ServerSession(self.plan, credentials=self.credentials(SERVER))
        self.stages = SIGNED_STAGES if self.signed else STAGES
        self.stage = 0
        self.requests: Mapping[str, bytes]
        if self.ahead:
            self.stages = ("begin", *self.stages[2:])
            request = PrekeyRequest(run="machine", round=self.number, groups=len(GROUPS))
            self.prekeys = {name: Prekeys.draw(name, request) for name in NAMES}
            self.requests = self.server.begin(
                {name: one.published(self.credentials(CLIENTS[name])) for name, one in self.prekeys.items()}
            )
        else:
            self.requests = self.server.keys()
        self.inbox: dict[str, bytes] = {}
        self.begun: set[str] = set()
        self.asked: list[tuple[tuple[str, ...], ...]] = []

    def credentials(self, identity: Identity) -> Credentials | None:
        return Credentials(identity=identity, registry=REGISTRY) if self.signed else None

    def authorise(self, members: tuple[tuple[str, ...], ...]) -> tuple[str | None, ...]:
        self.asked.append(members)
        return tuple(None if len(group) >= FLOOR else "below the floor" for group in members)

    def hand(self, name: str, stage: str, message: bytes) -> bytes | None:
        """Give a message to a client; whatever it dislikes it says in one way only, and no stage is answered then."""
        session = self.sessions[name]
        due = session._turns.next
        try:
            if stage == "masked":
                reply = session.masked(message, update_of(name, self.number))
            elif stage == "begin":
                reply = session.begin(message, self.prekeys[name])
            else:
                reply = getattr(session, stage)(message)
        except ProtocolError:
            assert session.closed or session._turns.next == due
            return None
        self.begun.add(name)
        self.log.append((stage, message))
        self.log.append((stage, reply))
        return reply

    @rule(names=st.sets(st.sampled_from(NAMES)))
    def deliver(self, names: set[str]) -> None:
        """A client gets its message, or gets it once more."""
        for name in sorted(names & set(self.requests)):
            reply = self.hand(name, self.stages[self.stage], self.requests[name])
            if reply is not None:
                self.inbox[name] = reply

    @rule()
    def deliver_to_all(self) -> None:
        self.deliver(set(NAMES) - set(self.inbox))

    @rule(name=st.sampled_from(NAMES))
    def lose(self, name: str) -> None:
        self.inbox.pop(name, None)

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def spoil(self, name: str, data: st.DataObject) -> None:
        """One bit of a reply flips. Without signatures a flipped bit of a vector is a client's own business."""
        if name in self.inbox and (self.signed or self.stages[self.stage] != "masked"):
            message = bytearray(self.inbox[name])
            message[data.draw(st.integers(0, len(message) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            self.inbox[name] = bytes(message)

    @precondition(lambda self: self.log)
    @rule(name=st.sampled_from(NAMES), data=st.data())
    def replay_to_client(self, name: str, data: st.DataObject) -> None:
        stage, message = data.draw(st.sampled_from(self.log))
        # A fresh session takes any plan, and a late one for its prekeys: the endpoint around it remembers past rounds.
        fresh = stage in ("keys", "begin") and name not in self.begun
        assert self.hand(name, stage, message) is None or message == self.requests.get(name) or fresh

    @precondition(lambda self: self.log)
    @rule(name=st.sampled_from(NAMES), data=st.data())
    def replay_to_server(self, name: str, data: st.DataObject) -> None:
        _, message = data.draw(st.sampled_from(self.log))
        if name not in self.inbox and name in self.requests:
            self.inbox[name] = message

    @rule(name=st.sampled_from(NAMES))
    def stream_early(self, name: str) -> None:
        """The server takes a masked input as it arrives; at any other time it refuses."""
        if name in self.inbox:
            due = self.stages[self.stage] == "masked"
            try:
                self.server.receive(name, self.inbox[name])
            except ProtocolError:
                return
            assert due

    @rule()
    def close_stage(self) -> None:
        """The timeout: what is in the inbox counts, the rest is dropped; messages that are under way are lost."""
        self.stage += 1
        if self.stage == len(self.stages):
            self.check(self.server.results(self.inbox))
            self.next_round()
            return
        options = {"authorise": self.authorise} if self.stages[self.stage - 1] == "masked" else {}
        self.requests = getattr(self.server, self.stages[self.stage])(self.inbox, **options)
        self.inbox = {}

    def check(self, sums: tuple[GroupSum, ...]) -> None:
        assert len(sums) == len(GROUPS)
        for one, threshold in zip(sums, self.plan.thresholds, strict=True):
            if one.status == "erased":
                assert one.total is None
                assert one.reason
                continue
            assert len(one.members) >= max(FLOOR, threshold, self.minimum)
            assert one.members == self.asked[0][one.group]
            assert one.total is not None
            expected = sum(self.plan.weights[n] * update_of(n, self.number)["w"] for n in one.members)
            np.testing.assert_array_equal(one.total["w"], expected)

    def teardown(self) -> None:
        """It always ends, whatever happened before."""
        if hasattr(self, "server"):
            for _ in range(len(self.stages) - self.stage):
                self.close_stage()


TestNetwork = Network.TestCase
TestNetwork.settings = settings(max_examples=3 * settings().max_examples, stateful_step_count=40, deadline=None)
