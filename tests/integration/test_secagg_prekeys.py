"""Keys that are published one round ahead: the same sums with a round trip less, and what a server can try with them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedgt.engine import ClientEndpoint, Failure, LocalTransport, PrekeyStore, TrainedModel, Transport, secure_sums
from fedgt.engine.hello import hello_frame, read_answer
from fedgt.engine.prekey_store import finish_message, read_finish, read_finished
from fedgt.engine.round_message import RoundMessage, bound
from fedgt.errors import ProtocolError, SignatureError
from fedgt.secagg import AgreementLog, ClientPolicy, Credentials, PrekeyRequest, Prekeys, RoundPlan, ServerSession
from fedgt.secagg.masks import GroupContext
from fedgt.secagg.membership import public_bytes
from fedgt.secagg.messages import SIGNED_STAGES, GroupPart, begin_message, read_begin_message, stage_message
from fedgt.secagg.opening import parcel_for
from fedgt.secagg.prekeys import MOST_PREKEYS, read_prekeys
from fedgt.types import Parameters
from secagg_lab import FOUR, LEAST, UPDATE, Consortium, allow, drawn, make_plan, play, published, read

AHEAD = ("begin", *SIGNED_STAGES[2:])


# The same sums ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("consortium", [FOUR, None])
def test_the_sums_are_those_of_keys_in_the_round(consortium: Consortium | None) -> None:
    plan = make_plan("abcd", "abc", "bcd")
    _, _, plain = play(plan, consortium)
    _, _, ahead = play(plan, consortium, prekeys=drawn(plan))
    for one, other in zip(plain, ahead, strict=True):
        assert (one.status, one.members, one.dropped) == (other.status, other.members, other.dropped)
        assert one.total is not None
        assert other.total is not None
        np.testing.assert_array_equal(one.total["w"], other.total["w"])


@pytest.mark.parametrize("leaves", AHEAD)
def test_a_client_may_leave_at_every_stage(leaves: str) -> None:
    plan = make_plan("abcd", "abc")
    order = AHEAD.index(leaves)
    _, _, sums = play(
        plan, prekeys=drawn(plan), up=lambda at, who, m: None if who == "c" and AHEAD.index(at) >= order else m
    )
    for one, group in zip(sums, plan.groups, strict=True):
        expected = tuple(client for client in group if client != "c" or order > AHEAD.index("masked"))
        assert (one.status, one.members) == ("open", expected)
        # The server counts what begin brings back, the shares.
        assert one.dropped == {"c": f"{'shares' if leaves == 'begin' else leaves}: no reply"}
        assert one.total is not None
        np.testing.assert_array_equal(one.total["w"], len(expected) * UPDATE["w"])


def test_who_has_published_nothing_or_rubbish_is_left_out_with_the_reason() -> None:
    plan = make_plan("abcd")
    other = make_plan("abcd", round=1)
    for message, reason in (
        (None, "it has published no keys for this round"),
        (b"rubbish", "malformed message"),
        (published(drawn(other))["d"], "its prekeys are for 1 groups of round 1"),
        (published(drawn(plan))["c"], "the prekeys are those of 'c'"),
        (Prekeys.draw("d", request_for(plan)).published(FOUR.of_client("c")), "is not by its registered key"),
        (published(drawn(plan))["d"][:-1], "bytes for the prekeys of 1 groups"),
    ):
        server = ServerSession(plan, credentials=FOUR.of_server())
        given = {name: one for name, one in published(drawn(plan)).items() if name != "d"}
        requests = server.begin(given if message is None else given | {"d": message})
        assert set(requests) == set("abc")
        _, parts = read_begin_message(next(iter(requests.values()))[:-64])
        assert parts[0].members == (0, 1, 2)
        server.masked({})
        assert reason in server._groups[0].dropped["d"]


def test_a_group_below_its_threshold_is_lost_before_anybody_shares() -> None:
    plan = make_plan("abcd", "abc")
    server = ServerSession(plan, credentials=FOUR.of_server())
    given = published(drawn(plan))
    requests = server.begin({name: given[name] for name in "ad"})
    assert requests == {}


def request_for(plan: RoundPlan) -> PrekeyRequest:
    return PrekeyRequest(run=plan.run, round=plan.round, groups=len(plan.groups))


# What a server can try ----------------------------------------------------------------------------------------------


def of_first_group(plan: RoundPlan, name: str, message: bytes) -> bytes:
    return bytes(read_prekeys(message, client=name, plan=plan, credentials=FOUR.of_server())[0])


def begun(plan: RoundPlan, prekeys: Mapping[str, Prekeys], **changes: bytes) -> bytes:
    """A server's begin message, in which it may put other public bytes for the first group's members."""
    bodies = {name: of_first_group(plan, name, published(prekeys)[name]) for name in plan.groups[0]}
    part = GroupPart(group=0, members=tuple(range(len(plan.groups[0]))), body=b"".join((bodies | changes).values()))
    return begin_message(plan, [part], identity=FOUR.server)


def test_a_prekey_that_the_server_substitutes_is_refused() -> None:
    plan = make_plan("abcd")
    prekeys = drawn(plan)
    own = b"".join(X25519PrivateKey.generate().public_key().public_bytes_raw() for _ in range(3))
    context = GroupContext.ahead(plan.run, plan.round, 0)
    by_colluder = own + FOUR.clients["c"].sign("keys", context.info("keys", "b") + own)
    session = FOUR.sessions(plan)["a"]
    with pytest.raises(SignatureError, match="keys of b is not by its registered key"):
        session.begin(begun(plan, prekeys, b=by_colluder), prekeys["a"])
    assert session.closed


@pytest.mark.parametrize("change", [{"run": "before"}, {"round": 1}])
def test_a_prekey_of_another_run_or_round_is_refused(change: dict[str, Any]) -> None:
    plan, before = make_plan("abcd"), make_plan("abcd", **change)
    old = of_first_group(before, "b", published(drawn(before))["b"])
    prekeys = drawn(plan)
    with pytest.raises(SignatureError, match="keys of b is not by its registered key"):
        FOUR.sessions(plan)["a"].begin(begun(plan, prekeys, b=old), prekeys["a"])


def test_a_prekey_of_another_group_is_refused() -> None:
    plan = make_plan("abcd", "abcd")
    prekeys = drawn(plan)
    (_, second) = read_prekeys(published(prekeys)["b"], client="b", plan=plan, credentials=FOUR.of_server())
    with pytest.raises(SignatureError, match="keys of b is not by its registered key"):
        FOUR.sessions(plan)["a"].begin(begun(plan, prekeys, b=bytes(second)), prekeys["a"])


def test_own_prekeys_that_were_changed_or_left_out_give_nothing() -> None:
    plan = make_plan("abcd")
    prekeys, others = drawn(plan), drawn(plan)
    stale = of_first_group(plan, "a", published(others)["a"])
    with pytest.raises(ProtocolError, match="shows other keys for this client"):
        FOUR.sessions(plan)["a"].begin(begun(plan, prekeys, a=stale), prekeys["a"])
    prekeys = drawn(plan)
    _, parts = read_begin_message(begun(plan, prekeys)[:-64])
    size = public_bytes(FOUR.of_server())
    without = GroupPart(group=0, members=(1, 2, 3), body=bytes(parts[0].body[size:]))
    session = FOUR.sessions(plan)["a"]
    reply = session.begin(begin_message(plan, [without], identity=FOUR.server), prekeys["a"])
    assert read(plan, "shares", "a", reply).parts == ()


def test_clients_with_two_plans_for_one_round_cannot_read_each_others_shares() -> None:
    """Prekeys are signed before there is a plan: what a split view would gain ends where the shares are read."""
    one, other = make_plan("abcd"), make_plan("abcd", weights={"a": 1, "b": 1, "c": 1, "d": 500})
    prekeys = drawn(one)
    sessions = FOUR.sessions(one)
    begins = {name: begun(other if name == "a" else one, prekeys) for name in "abcd"}
    shared = {name: sessions[name].begin(begins[name], prekeys[name]) for name in "abcd"}
    parcels = {name: read(other if name == "a" else one, "shares", name, shared[name]).parts[0].body for name in "abcd"}
    key = X25519PrivateKey.generate().public_key().public_bytes_raw()
    for name, plan in (("a", other), ("b", one)):
        position = "abcd".index(name)
        body = [key]
        for sender in range(4):
            if sender != position:
                shared_out = memoryview(parcels["abcd"[sender]])
                body.append(bytes(parcel_for(shared_out, (0, 1, 2, 3), sender, position)))
        part = GroupPart(group=0, members=(0, 1, 2, 3), body=b"".join(body))
        reply = sessions[name].masked(stage_message(plan, "masked", name, [part], identity=FOUR.server), UPDATE)
        if name == "a":
            assert b"the shares of b, c, d cannot be read" in reply
            assert b'"parts":[]' in reply
        else:
            assert b'"unreadable":[[0,[0]]]' in reply
            assert not any(sessions[name]._groups[0].held[0]), "the masks with a stay on"


def test_a_begin_message_that_is_not_the_pinned_servers_is_refused() -> None:
    plan = make_plan("abcd")
    prekeys = drawn(plan)
    stranger = Consortium.of("abcd")
    forged = begin_message(plan, [], identity=stranger.server)
    with pytest.raises(SignatureError):
        FOUR.sessions(plan)["a"].begin(forged, prekeys["a"])


def test_begin_is_answered_once_and_only_as_the_first_stage() -> None:
    plan = make_plan("abcd")
    prekeys = drawn(plan)
    message = begun(plan, prekeys)
    session = FOUR.sessions(plan)["a"]
    session.begin(message, prekeys["a"])
    with pytest.raises(ProtocolError, match="each stage runs once"):
        session.begin(message, prekeys["a"])
    again = FOUR.sessions(plan)["a"]
    with pytest.raises(ProtocolError, match="has published keys for 1 groups of round 2"):
        again.begin(message, prekeys["a"])  # used up by the first session


def test_a_policy_refuses_one_group_and_the_others_go_on() -> None:
    plan = make_plan("abcd", "ab", thresholds=(3, 2))
    sessions = FOUR.sessions(plan) | FOUR.sessions(
        make_plan("ab"), policy=ClientPolicy(minimum_group_size=3, colluders=0)
    )
    _, _, sums = play(plan, sessions=sessions, prekeys=drawn(plan))
    assert [one.status for one in sums] == ["open", "erased"]
    assert "refused" in sums[1].dropped["a"]


# The engine ---------------------------------------------------------------------------------------------------------

MODEL: dict[str, Any] = {"w": np.zeros(3)}


class Shift:
    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        return TrainedModel(parameters={"w": parameters["w"] + UPDATE["w"]}, samples=1)


class Amnesia:
    """Every message finds a fresh endpoint with nothing but the bytes of the one before."""

    def __init__(self, name: str, credentials: Credentials | None) -> None:
        self.name, self.credentials, self.state = name, credentials, b""

    def handle(self, stage: str, payload: bytes) -> bytes:
        endpoint = ClientEndpoint(self.name, Shift(), policy=LEAST, credentials=self.credentials)
        if self.state:
            endpoint.resume(self.state)
        try:
            return endpoint.handle(stage, payload)
        finally:
            self.state = endpoint.suspend()


class Counting:
    def __init__(self, inner: Transport) -> None:
        self.inner, self.stages = inner, list[str]()

    def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        self.stages.append(stage)
        return self.inner.exchange(stage, messages, timeout)


def store(transport: Transport, plan: RoundPlan, credentials: Credentials | None) -> PrekeyStore:
    prekeys = PrekeyStore(request=request_for(plan))
    nonce, question = hello_frame(credentials, prekeys.request)
    for name, reply in transport.exchange("hello", dict.fromkeys(plan.clients, question), 5.0).items():
        assert isinstance(reply, bytes)
        prekeys.published[name] = read_answer(reply, nonce=nonce, credentials=credentials).prekeys
    return prekeys


@pytest.mark.parametrize("consortium", [FOUR, None])
def test_rounds_follow_each_other_with_one_trip_less(consortium: Consortium | None) -> None:
    """Fresh endpoints for every message; the keys of a round come with the last replies of the round before."""
    serves = None if consortium is None else consortium.of_server()
    people = {name: Amnesia(name, None if consortium is None else consortium.of_client(name)) for name in "abcd"}
    transport = Counting(LocalTransport({name: one.handle for name, one in people.items()}))
    first, second = make_plan("abcd", "ab", round=1), make_plan("abcd", round=2)
    log = None if consortium is None else AgreementLog(consortium.registry)
    prekeys = store(transport, first, serves)
    seen = []
    for plan, following in ((first, request_for(second)), (second, None)):
        prekeys.request = following
        sums = secure_sums(
            transport,
            plan,
            MODEL,
            authorise=allow,
            timeout=5.0,
            credentials=serves,
            agreements=log,
            prekeys=prekeys,
        )
        for one in sums.sums:
            assert one.total is not None
            np.testing.assert_array_equal(one.total["w"], len(one.members) * UPDATE["w"])
        seen.append(dict(prekeys.published))
    stages = ["begin", "masked", *(["agree"] if consortium else []), "finish"]
    assert transport.stages == ["hello", *stages, *stages]
    assert set(seen[0]) == set("abcd")
    assert seen[1] == {}
    assert all(b'"session": 0, "prekeys": 0' in one.state for one in people.values())  # no key is left


def test_an_endpoint_without_prekeys_or_with_used_ones_refuses() -> None:
    plan = bound(make_plan("abcd"), MODEL)
    endpoint = ClientEndpoint("a", Shift(), policy=LEAST, credentials=FOUR.of_client("a"))
    nonce, question = hello_frame(FOUR.of_server(), request_for(plan))
    session = begun(plan, drawn(plan))
    opening = RoundMessage(session=session, parameters=MODEL).to_bytes(identity=FOUR.server)
    with pytest.raises(ProtocolError, match="no prekeys are held"):
        endpoint.handle("begin", opening)
    mine = read_answer(endpoint.handle("hello", question), nonce=nonce, credentials=FOUR.of_server()).prekeys
    session = begun(plan, drawn(plan), a=of_first_group(plan, "a", mine))
    opening = RoundMessage(session=session, parameters=MODEL).to_bytes(identity=FOUR.server)
    assert endpoint.handle("begin", opening)
    with pytest.raises(ProtocolError, match="no prekeys are held"):
        endpoint.handle("begin", opening)


# Bytes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        ["r", 1],
        ["r", -1, 1],
        ["r", 1, 0],
        ["r", 1, MOST_PREKEYS + 1],
        [1, 1, 1],
        ["r", True, 1],
        ["r", 1, 1.0],
    ],
)
def test_a_request_for_prekeys_that_makes_no_sense_is_refused(entry: object) -> None:
    with pytest.raises(ProtocolError):
        PrekeyRequest.from_entry(entry)


def test_finish_messages_make_the_round_trip_and_spoilt_ones_are_refused() -> None:
    request = PrekeyRequest(run="run", round=3, groups=2)
    for one in (request, None):
        assert read_finish(finish_message(b"unmask", one, identity=None), sender=None) == (b"unmask", one)
    for payload in (b"", b"rubbish", finish_message(b"x", None, identity=None)):
        with pytest.raises(ProtocolError):
            read_finished(payload)
    kept = PrekeyStore(request=request)
    assert kept.replies({"a": b"rubbish"}) == {}
    assert kept.published == {}


def test_held_prekeys_make_the_round_trip_and_are_forgotten_by_the_object_that_wrote_them() -> None:
    plan = make_plan("abcd", "abc")
    one = Prekeys.draw("a", request_for(plan))
    public = one.published(None)
    held = one.to_bytes()
    with pytest.raises(ProtocolError):
        one.membership(plan, 0)
    again = Prekeys.from_bytes(held, client="a")
    assert again.published(None) == public
    assert again.membership(plan, 1).public in public
    with pytest.raises(ProtocolError, match="not its prekeys"):
        Prekeys.from_bytes(held, client="b")
    with pytest.raises(ProtocolError):
        Prekeys.from_bytes(held[:-1], client="a")


def test_what_is_published_holds_no_secret() -> None:
    plan = make_plan("abcd")
    one = Prekeys.draw("a", request_for(plan))
    membership = one.membership(plan, 0)
    message = Prekeys("a", request_for(plan), {}).published(None)
    for secret in (
        bytes(membership.secret),
        membership.share_key.private_bytes_raw(),
        membership.mask_key.private_bytes_raw(),
    ):
        assert secret not in membership.public + message
