"""What somebody between server and clients can try with frames of their own and recorded ones, where TLS is missing.

Nothing that is not authentic, or not due, may end a session, use up prekeys or start a training.
"""

import contextlib
from collections.abc import Mapping
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from flwr.app import Context, Message

import flower_app as app
from fedgt.engine import ClientEndpoint, LocalTransport, PrekeyStore, TrainedModel, secure_sums
from fedgt.engine.hello import hello_frame, read_answer
from fedgt.engine.round_message import RoundMessage, bound
from fedgt.errors import FedGTError, ProtocolError
from fedgt.flower import InProcessGrid, client_app
from fedgt.flower.records import MESSAGE_TYPES, frame_record
from fedgt.secagg import (
    AgreementLog,
    Credentials,
    Identity,
    PrekeyRequest,
    RoundPlan,
    add_to_registry,
    write_private_key,
)
from fedgt.secagg.frames import pack
from fedgt.secagg.messages import GroupPart, begin_message, plan_message, stage_message
from fedgt.types import Parameters
from flower_grid import SMALL, nodes, played
from secagg_lab import FOUR, LEAST, UPDATE, Consortium, allow, make_plan

MODEL: dict[str, Any] = {"w": UPDATE["w"] * 0}
STAGES = ("hello", "keys", "begin", "shares", "masked", "agree", "unmask", "finish")
STRANGERS = Consortium.of("abcd")


class Counted:
    """A client that counts its trainings."""

    def __init__(self) -> None:
        self.trained = 0

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        self.trained += 1
        return TrainedModel(parameters={"w": parameters["w"] + round * UPDATE["w"]}, samples=1)


def forged(plan: RoundPlan, consortium: Consortium | None) -> list[bytes]:
    """A well-formed frame of every kind, unsigned or signed by somebody else's server."""
    identity = None if consortium is None else consortium.server
    request = PrekeyRequest(run=plan.run, round=plan.round, groups=len(plan.groups))
    part = GroupPart(group=0, members=(0, 1, 2, 3))
    frames = [stage_message(plan, stage, "a", [part], identity=identity) for stage in ("shares", "masked", "agree")]
    frames.append(stage_message(plan, "unmask", "a", [part], identity=identity))
    for session in (plan_message(plan, identity=identity), begin_message(plan, [part], identity=identity)):
        frames.append(RoundMessage(session=session, parameters=MODEL).to_bytes(identity=identity))
        frames.append(pack({"kind": "finish", "prekeys": request.entry}, session, identity=identity))
    credentials = None if consortium is None else consortium.of_server()
    return [*frames, hello_frame(credentials, request)[1]]


def spoilt(message: bytes) -> list[bytes]:
    """The message, changed on its way."""
    flipped = [bytes([*message[:at], message[at] ^ 1, *message[at + 1 :]]) for at in (9, len(message) // 2, -65)[:2]]
    return [*flipped, message[:-1], message + b"\0", message[:-64], message[:-64] + bytes(64)]


class Besieged:
    """An endpoint that gets everything an attacker can think of before each message that is due."""

    def __init__(self, name: str, plans: tuple[RoundPlan, ...], credentials: Credentials) -> None:
        self.client = Counted()
        self.endpoint = ClientEndpoint(name, self.client, policy=LEAST, credentials=credentials)
        self.junk = [b"", b"rubbish", b"FGT1" + bytes(500)]
        self.junk += [frame for plan in plans for who in (None, STRANGERS) for frame in forged(plan, who)]
        self.seen: list[tuple[str, bytes]] = []
        self.refused = 0

    def handle(self, stage: str, payload: bytes) -> bytes:
        before = self.client.trained
        for kind in STAGES:
            for junk in [*self.junk, *spoilt(payload)]:
                with pytest.raises((FedGTError, ValueError)):
                    self.endpoint.handle(kind, junk)
                self.refused += 1
        for old, recorded in self.seen:
            for kind in {old, stage}:
                self.replayed(kind, recorded)
        assert self.client.trained == before
        reply = self.endpoint.handle(stage, payload)
        assert self.client.trained == before + (stage == "masked")
        self.seen.append((stage, payload))
        return reply

    def replayed(self, stage: str, recorded: bytes) -> None:
        """Only a question for a name may be answered twice."""
        if stage == "hello":
            with contextlib.suppress(ProtocolError):
                self.endpoint.handle(stage, recorded)
            return
        with pytest.raises(ProtocolError):
            self.endpoint.handle(stage, recorded)


@pytest.mark.parametrize("ahead", [False, True])
def test_frames_that_are_not_authentic_or_not_due_change_nothing(ahead: bool) -> None:
    """Two rounds under siege: everybody is in every sum, and each client is trained once a round."""
    plans = (make_plan("abcd", "ab", round=1), make_plan("abcd", round=2))
    log = AgreementLog(FOUR.registry)
    people = {name: Besieged(name, plans, FOUR.of_client(name)) for name in "abcd"}
    transport = LocalTransport({name: one.handle for name, one in people.items()})
    prekeys = PrekeyStore(request=PrekeyRequest(run="run", round=1, groups=2)) if ahead else None
    if prekeys is not None:
        nonce, question = hello_frame(FOUR.of_server(), prekeys.request)
        for name, reply in transport.exchange("hello", dict.fromkeys("abcd", question), 20.0).items():
            assert isinstance(reply, bytes)
            prekeys.published[name] = read_answer(reply, nonce=nonce, credentials=FOUR.of_server()).prekeys
    for plan in plans:
        if prekeys is not None:
            prekeys.request = PrekeyRequest(run="run", round=plan.round + 1, groups=1)
        result = secure_sums(
            transport,
            plan,
            MODEL,
            authorise=allow,
            timeout=20.0,
            credentials=FOUR.of_server(),
            agreements=log,
            prekeys=prekeys,
        )
        for one, group in zip(result.sums, plan.groups, strict=True):
            assert (one.members, one.dropped) == (group, {})
            assert one.total is not None
            assert one.total["w"].tolist() == (len(group) * plan.round * UPDATE["w"]).tolist()
    assert [one.client.trained for one in people.values()] == [2, 2, 2, 2]
    assert min(one.refused for one in people.values()) > 1000


def endpoint() -> tuple[ClientEndpoint, Counted]:
    client = Counted()
    return ClientEndpoint("a", client, policy=LEAST, credentials=FOUR.of_client("a")), client


def asked(one: ClientEndpoint, question: bytes, nonce: str) -> bytes:
    return read_answer(one.handle("hello", question), nonce=nonce, credentials=FOUR.of_server()).prekeys


def test_a_hello_that_arrives_twice_gets_the_same_answer() -> None:
    one, _ = endpoint()
    nonce, question = hello_frame(FOUR.of_server(), PrekeyRequest(run="run", round=1, groups=3))
    assert one.handle("hello", question) == one.handle("hello", question)
    again, repeated = hello_frame(FOUR.of_server(), PrekeyRequest(run="run", round=1, groups=3))
    fewer, smaller = hello_frame(FOUR.of_server(), PrekeyRequest(run="run", round=1, groups=2))
    assert asked(one, question, nonce) == asked(one, repeated, again) == asked(one, smaller, fewer)


def test_a_recorded_hello_of_an_earlier_round_does_not_replace_the_prekeys() -> None:
    one, _ = endpoint()
    first, early = hello_frame(FOUR.of_server(), PrekeyRequest(run="run", round=1, groups=1))
    second, late = hello_frame(FOUR.of_server(), PrekeyRequest(run="run", round=2, groups=1))
    asked(one, early, first)
    published = asked(one, late, second)
    with pytest.raises(ProtocolError, match="a later round has begun or is prepared"):
        one.handle("hello", early)
    assert asked(one, late, second) == published


def test_prekeys_are_not_spent_on_a_plan_of_another_round() -> None:
    one, _ = endpoint()
    nonce, question = hello_frame(FOUR.of_server(), PrekeyRequest(run="run", round=2, groups=1))
    published = asked(one, question, nonce)
    for changes in ({"round": 1}, {"round": 3}, {"run": "other"}):
        recorded = begin_message(make_plan("abcd", **changes), [], identity=FOUR.server)
        frame = RoundMessage(session=recorded, parameters=MODEL).to_bytes(identity=FOUR.server)
        with pytest.raises(ProtocolError, match="has published keys for"):
            one.handle("begin", frame)
    assert asked(one, question, nonce) == published


def test_an_authentic_request_that_is_false_ends_the_session_before_anything_is_trained() -> None:
    """Only the pinned server can do this: its message names a client as present whose share is missing."""
    plan = bound(make_plan("abcd"), MODEL)
    one, client = endpoint()
    opening = plan_message(plan, identity=FOUR.server)
    one.handle("keys", RoundMessage(session=opening, parameters=MODEL).to_bytes(identity=FOUR.server))
    false = stage_message(plan, "shares", "a", [GroupPart(group=0, members=(0, 1, 2, 3))], identity=FOUR.server)
    with pytest.raises(ProtocolError, match="bytes for the public keys"):
        one.handle("shares", false)
    with pytest.raises(ProtocolError, match="the session is over"):
        one.handle("shares", false)
    assert client.trained == 0


def test_a_site_with_a_broken_training_is_out_of_this_round_only() -> None:
    class Broken(Counted):
        def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
            super().train(parameters, round=round)
            raise OSError("disk full")

    clients: Mapping[str, Counted] = {name: Broken() if name == "d" else Counted() for name in "abcd"}
    transport = LocalTransport(
        {n: ClientEndpoint(n, one, policy=LEAST, credentials=FOUR.of_client(n)).handle for n, one in clients.items()}
    )
    log = AgreementLog(FOUR.registry)
    for number in (1, 2):
        result = secure_sums(
            transport,
            make_plan("abcd", round=number),
            {"w": MODEL["w"] + number},
            authorise=allow,
            timeout=20.0,
            credentials=FOUR.of_server(),
            agreements=log,
        )
        assert result.sums[0].members == ("a", "b", "c")
        assert "disk full" in result.sums[0].dropped["d"]
    assert clients["d"].trained == 2


# Over Flower ----------------------------------------------------------------------------------------------------------


def keyed(folder: Path) -> dict[int, dict[str, Any]]:
    """Five nodes with keys, registry and journal of their own; the server's key lies beside them."""
    (folder / "policy.toml").write_text("privacy = 2\ncolluders = 0\n")
    server = Identity.generate("server")
    add_to_registry(folder / "consortium.toml", server, server=True)
    write_private_key(folder / "server.pem", server)
    places = nodes(5)
    for node, config in places.items():
        identity = Identity.generate(f"client-{config['partition-id']}")
        add_to_registry(folder / "consortium.toml", identity, server=False)
        write_private_key(folder / f"{node}.pem", identity)
        config["fedgt-key"], config["fedgt-registry"] = str(folder / f"{node}.pem"), str(folder / "consortium.toml")
        config["fedgt-journal"] = str(folder / f"{node}.journal")
        config["fedgt-policy"] = str(folder / "policy.toml")
    return places


def test_junk_messages_to_flower_nodes_change_no_number(tmp_path: Path) -> None:
    """Every message finds a fresh process; before each come frames that the server did not sign."""
    trainings: dict[str, list[tuple[int, int]]] = {"plain": [], "besieged": []}
    attacked: list[str] = []

    def train(parameters: Parameters, round: int, context: Context) -> TrainedModel:
        run = "besieged" if "fedgt-key" in context.node_config else "plain"
        trainings[run].append((context.node_id, round))
        return app.train(parameters, round, context)

    client = client_app(train)
    # Every message is preceded by each kind, and in turn by each frame.
    junk = cycle([b"rubbish", *forged(make_plan("abcd"), None), *forged(make_plan("abcd"), STRANGERS)])

    def besieged(message: Message, context: Context) -> Message:
        for kind in MESSAGE_TYPES.values():
            for frame in islice(junk, 1):
                with pytest.raises(FedGTError):
                    client(grid.message(frame_record(frame), context.node_id, kind), context)
        attacked.append(message.metadata.message_type)
        return client(message, context)

    places = keyed(tmp_path)
    config = SMALL | {"keys": str(tmp_path)}
    grid = InProcessGrid(besieged, places, config)
    rounds = played(grid, config)
    plain = played(InProcessGrid(client, nodes(5), SMALL), SMALL)
    assert [app.digest(one.parameters) for one in rounds] == [app.digest(one.parameters) for one in plain]
    assert sorted(trainings["besieged"]) == sorted(trainings["plain"])
    later = {
        MESSAGE_TYPES["further"],
        MESSAGE_TYPES["shares"],
    }  # of plans with several stages, which this run has none of
    assert set(attacked) == set(MESSAGE_TYPES.values()) - later
    # Each message that was authentic leaves one file beside the journal, and so does each plan; the others leave none.
    used = [one for node in places for one in (tmp_path / f"{node}.journal.used").iterdir()]
    assert 0 < len(used) <= len(attacked) + len(places) * len(rounds)


# Without identities -----------------------------------------------------------------------------------------------------


def test_bytes_that_cannot_be_read_change_nothing_even_without_identities() -> None:
    """Nobody is authentic there, so a well-formed lie ends a session; rubbish does not."""
    plan = make_plan("abcd", "abc", round=1)
    clients = {name: Counted() for name in "abcd"}
    endpoints = {name: ClientEndpoint(name, one) for name, one in clients.items()}

    def besieged(name: str, stage: str, payload: bytes) -> bytes:
        for kind in STAGES:
            for rubbish in (b"", b"rubbish", b"FGT1" + bytes(500), payload[:-1], payload[: len(payload) // 2]):
                with pytest.raises(ProtocolError):
                    endpoints[name].handle(kind, rubbish)
        assert clients[name].trained == (stage == "unmask")
        return endpoints[name].handle(stage, payload)

    transport = LocalTransport({name: partial(besieged, name) for name in "abcd"})
    for one in secure_sums(transport, plan, MODEL, authorise=allow, timeout=20.0).sums:
        assert one.dropped == {}
        assert one.total is not None
        assert one.total["w"].tolist() == (len(one.members) * UPDATE["w"]).tolist()
    assert [one.trained for one in clients.values()] == [1, 1, 1, 1]
