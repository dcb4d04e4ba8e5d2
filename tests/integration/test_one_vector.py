"""One vector for all groups: whoever sends two is seen, nobody else is, and the answers tell nothing (decision 0021).

docs/threat-model.md names these tests line by line. The trials on the designs are in tests/property/test_one_vector_laws.py.
"""

from typing import Any

import numpy as np
import pytest

from fedgt.engine import ClientEndpoint, LocalTransport, TrainedModel, secure_sums
from fedgt.errors import ProtocolError
from fedgt.secagg import ClientSession, FixedPoint, GroupSum, RoundPlan, ServerSession, weiszfeld_encoding
from fedgt.secagg.challenge import SEED_BYTES, draw_seed, field_of, products, seed_hash
from fedgt.secagg.messages import GroupPart, plan_message, read_stage_message, stage_message
from fedgt.secagg.opening import parcel_for
from fedgt.secagg.vector import signed
from fedgt.types import Parameters
from lying_client import LyingClient
from secagg_lab import FOUR, UPDATE, Consortium, allow, drawn, make_plan, play, read
from whole_vector import client_vector

SEED = bytes(range(SEED_BYTES))
GROUPS = ("abcd", "abc", "bcd", "acd")
BOTH = pytest.mark.parametrize("consortium", [FOUR, None], ids=["identities", "anonymous"])
RINGS = pytest.mark.parametrize(
    "encoding",
    [
        FixedPoint(clip=8.0, fraction_bits=16, ring_bits=32),
        FixedPoint(clip=8.0, fraction_bits=16, ring_bits=64),
        FixedPoint(clip=8.0, fraction_bits=45, ring_bits=64),
    ],
    ids=["32 bits", "64 bits", "64 bits, the larger prime"],
)


def asked(*groups: str, seed: bytes = SEED, **changes: Any) -> RoundPlan:
    return make_plan(*(groups or GROUPS), challenges=(seed_hash(seed),), **changes)


def exact(one: GroupSum) -> bool:
    return one.total is not None and np.array_equal(one.total["w"], len(one.members) * UPDATE["w"])


def sessions(plan: RoundPlan, consortium: Consortium | None, **lies: Any) -> dict[str, ClientSession]:
    """Honest sessions, and client a with these lies."""
    if consortium is None:
        return {name: ClientSession(name) for name in plan.clients} | {"a": LyingClient("a", **lies)}
    liar = LyingClient("a", credentials=consortium.of_client("a"), **lies)
    return consortium.sessions(plan) | {"a": liar}


def sums(plan: RoundPlan, consortium: Consortium | None, **lies: Any) -> tuple[GroupSum, ...]:
    _, _, taken = play(plan, consortium, sessions=sessions(plan, consortium, **lies), seed=SEED)
    return taken


def lost(taken: tuple[GroupSum, ...]) -> list[int]:
    return [one.group for one in taken if one.status == "erased"]


# What is seen -----------------------------------------------------------------------------------------------------------


@BOTH
@RINGS
def test_honest_sums_are_exact_and_all_open(consortium: Consortium | None, encoding: FixedPoint) -> None:
    assert all(exact(one) for one in sums(asked(encoding=encoding), consortium))


@BOTH
@RINGS
@pytest.mark.parametrize("where", [(0,), (1,), (3,), (0, 1), (0, 3), (1, 3)])
def test_two_vectors_of_one_client_are_seen_in_every_group_that_its_answer_does_not_fit(
    consortium: Consortium | None, encoding: FixedPoint, where: tuple[int, ...]
) -> None:
    """The poison goes to some groups, in the other ones the client is clean; it answers about the clean vector."""
    plan = asked(encoding=encoding)
    taken = sums(plan, consortium, vectors={group: [2**15, 0, -7] for group in where})
    assert lost(taken) == list(where)
    assert all("one vector of each client" in taken[group].reason for group in where)
    assert not any(one.faults for one in taken), "who of the group it was is not proved"


@BOTH
def test_an_answer_about_the_poison_erases_the_other_groups_instead(consortium: Consortium | None) -> None:
    """Whatever it answers, its groups with one vector or those with the other one fail: never none."""
    plan = asked()
    poison = np.array([2**15, 0, -7])
    (more,) = products(plan, SEED, [np.append(poison, 0)])
    taken = sums(plan, consortium, vectors={0: poison, 3: poison}, answer=lambda number: number + more)
    assert lost(taken) == [1]
    assert taken[2].status == "open"


@BOTH
def test_a_liar_that_says_nothing_gains_nothing(consortium: Consortium | None) -> None:
    """Its answer is unknown then: of groups that contradict each other all are erased, and the sums without it stay."""
    taken = sums(asked(), consortium, vectors={0: [5, 0, 0]}, answer=lambda number: None)
    assert lost(taken) == [0, 1, 3]
    assert "groups 0, 1, 3" in taken[0].reason
    assert taken[2].status == "open"


@BOTH
def test_another_pad_or_a_false_answer_spoils_only_groups_of_the_liar(consortium: Consortium | None) -> None:
    assert lost(sums(asked(), consortium, pads={1: 1})) == [1]
    assert lost(sums(asked(), consortium, answer=lambda number: number + 1)) == [0, 1, 3]


def test_two_colluders_of_one_group_cannot_take_turns() -> None:
    """One adds what the other takes away: in a group of both the sum does not change, and in the others it does."""
    plan = asked()
    people = sessions(plan, FOUR, vectors={1: [9, 0, 0]})
    people["b"] = LyingClient("b", credentials=FOUR.of_client("b"), vectors={1: [-9, 0, 0]})
    _, _, taken = play(plan, sessions=people, seed=SEED)
    assert not lost(taken), "the sum is the one of two honest vectors: nobody has gained anything"
    people = sessions(plan, FOUR, vectors={1: [9, 0, 0]})
    people["b"] = LyingClient("b", credentials=FOUR.of_client("b"), vectors={1: [-9, 0, 0], 2: [-9, 0, 0]})
    _, _, taken = play(plan, sessions=people, seed=SEED)
    assert lost(taken) == [2]


@pytest.mark.parametrize("stage", ["agree", "unmask"])
def test_an_honest_client_that_leaves_late_costs_no_sum(stage: str) -> None:
    plan = asked()

    def leave(at: str, who: str, reply: bytes) -> bytes | None:
        return None if (at, who) == (stage, "d") else reply

    _, _, taken = play(plan, up=leave, seed=SEED)
    assert all(exact(one) for one in taken)


def test_a_client_that_drops_before_its_vector_is_in_no_equation() -> None:
    def leave(at: str, who: str, reply: bytes) -> bytes | None:
        return None if (at, who) == ("masked", "d") else reply

    for lies, wrong in (({}, []), ({"vectors": {1: [1, 0, 0]}}, [1])):
        plan = asked()
        _, _, taken = play(plan, sessions=sessions(plan, FOUR, **lies), up=leave, seed=SEED)
        assert [one.group for one in taken if "one vector" in one.reason] == wrong
        assert "d" not in taken[0].members


def test_an_answer_that_is_no_number_costs_who_sent_it_and_nobody_else() -> None:
    plan = asked()

    def rubbish(at: str, who: str, reply: bytes) -> bytes:
        if (at, who) != ("agree", "a"):
            return reply
        message = read(plan, at, who, reply)
        attached = bytes(message.attached[:-8]) + b"\xff" * 8
        return stage_message(plan, at, who, message.parts, attached=attached, identity=FOUR.clients["a"])

    _, _, taken = play(plan, up=rubbish, seed=SEED)
    assert taken[0].dropped["a"].startswith("agree")
    assert all(exact(taken[group]) for group in (0, 1, 2))


@BOTH
def test_keys_ahead_make_no_difference(consortium: Consortium | None) -> None:
    plan = asked()
    people = sessions(plan, consortium, vectors={1: [3, 0, 0]})
    _, _, taken = play(plan, consortium, sessions=people, prekeys=drawn(plan), seed=SEED)
    assert lost(taken) == [1]


def test_weiszfeld_sums_of_two_groups_have_one_scale_and_are_checked() -> None:
    """The weight of a client used to depend on who else is in the group, so that honest clients sent two vectors."""
    plan = asked(
        task="weiszfeld",
        smoothing=1e-3,
        update_clip=8.0,
        weights={"a": 1, "b": 2, "c": 3, "d": 4},
        encoding=weiszfeld_encoding(update_clip=8.0, smoothing=1e-3, members=4),
    )

    def run(liar: LyingClient) -> tuple[GroupSum, ...]:
        people = {name: ClientSession(name) for name in "bcd"} | {"a": liar}
        server = ServerSession(plan, seeds=(SEED,))
        center = {"w": np.zeros(3)}
        requests = server.shares({name: people[name].keys(message) for name, message in server.keys().items()})
        requests = server.masked({name: people[name].shares(message) for name, message in requests.items()})
        replies = {name: people[name].masked(message, UPDATE, center) for name, message in requests.items()}
        requests = server.unmask(replies, authorise=allow)
        return server.results({name: people[name].unmask(message) for name, message in requests.items()})

    assert not lost(run(LyingClient("a")))
    assert lost(run(LyingClient("a", vectors={3: [0, 1, 0]}))) == [3]


# Through the whole engine -----------------------------------------------------------------------------------------------


class Site:
    """Moves the model by what it is told."""

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        return TrainedModel(parameters={"w": parameters["w"] + UPDATE["w"]}, samples=1)


class LyingEndpoint(ClientEndpoint):
    """As `LyingClient`, behind a transport."""

    def _new_session(self) -> ClientSession:
        return LyingClient(self._id, vectors={1: [1, 0, 0]})


def test_the_engine_asks_by_itself_where_a_client_is_in_two_groups() -> None:
    people = {name: ClientEndpoint(name, Site()) for name in "bcd"} | {"a": LyingEndpoint("a", Site())}
    transport = LocalTransport({name: one.handle for name, one in people.items()})
    model = {"w": np.zeros(3)}
    taken = secure_sums(transport, make_plan(*GROUPS), model, authorise=allow, timeout=20.0)
    assert lost(taken.sums) == [1]
    (fault,) = taken.faults
    assert (fault.kind, fault.groups, fault.suspects) == ("vectors", (1,), ("a", "b", "c"))
    alone = secure_sums(transport, make_plan("abcd", round=3), model, authorise=allow, timeout=20.0)
    assert not lost(alone.sums), "one group alone checks nobody"


def test_it_costs_fewer_than_200_bytes_a_group() -> None:
    def size(plan: RoundPlan, seed: bytes) -> int:
        down, up, _ = play(plan, seed=seed)
        return sum(len(message) for part in (down, up) for stage in part.values() for message in stage.values())

    many = ("abcd", "abc", "abd", "acd", "bcd")
    more = size(asked(*many), SEED) - size(make_plan(*many), b"")
    assert 0 < more < 200 * sum(map(len, many))


# What is not told -------------------------------------------------------------------------------------------------------


def test_a_challenge_for_one_client_alone_would_read_one_of_its_entries() -> None:
    """The attack that the hash in the plan is for, carried out on answers that no client gives, and then refused.

    The server unmasks the sum of everybody, as it may. From the answers of the others to the common challenge it knows what
    client a would answer, and from the answer of a to a challenge of its own the difference: one entry of a's vector.
    """
    plan = asked("abcd", "abcd")
    kept = {name: signed(client_vector(plan, name, {"w": UPDATE["w"] * (1 + "abcd".index(name))})) for name in "abcd"}
    chosen = field_of(plan)
    assert chosen is not None
    pads = {name: chosen.draw() for name in "abcd"}
    value = {name: products(plan, SEED, [kept[name]])[0] + pads[name] for name in "abcd"}
    pad = sum(pads.values())
    total = np.sum(list(kept.values()), axis=0)
    other = value["a"] + int(kept["a"][0])  # asked for c + (1, 0, 0, ...)
    expected = products(plan, SEED, [total])[0] + pad - sum(value[name] for name in "bcd")
    assert (other - expected) % chosen.prime == kept["a"][0] == 2**15
    for seed in (bytes(SEED_BYTES), SEED[:-1] + b"\0"):
        people = FOUR.sessions(plan)
        down, _, _ = play(plan, sessions=people, until="agree", seed=SEED)
        message = read(plan, "agree", "a", down["agree"]["a"])
        attached = seed + bytes(message.attached[SEED_BYTES:])
        lying = stage_message(plan, "agree", "a", message.parts, attached=attached, identity=FOUR.server)
        with pytest.raises(ProtocolError, match="not the one that the plan holds the hash of"):
            people["a"].agree(lying)
        assert people["a"].closed, "it is asked once, and its vector is gone"


@BOTH
def test_nobody_answers_twice(consortium: Consortium | None) -> None:
    plan = asked()
    stage = "unmask" if consortium is None else "agree"
    people = {name: ClientSession(name) for name in "abcd"} if consortium is None else consortium.sessions(plan)
    down, _, _ = play(plan, consortium, sessions=people, until=stage, seed=SEED)
    committed = people["a"]._committed
    assert committed is not None
    vector = committed.vector
    getattr(people["a"], stage)(down[stage]["a"])
    assert not vector.any(), "it is overwritten"
    with pytest.raises(ProtocolError):
        getattr(people["a"], stage)(down[stage]["a"])
    with pytest.raises(ProtocolError, match="answered already"):
        committed.answer(plan, SEED)


def test_clients_that_were_given_two_challenges_cannot_even_share() -> None:
    """The hash enters every key: with another challenge it is another plan, and nothing of its shares can be read.

    The one refuses. The others mask with it all the same, and nobody holds a share that would take these masks off.
    """
    plans = {name: asked("abcd", seed=SEED if name == "a" else bytes(SEED_BYTES)) for name in "abcd"}
    people = {name: ClientSession(name) for name in "abcd"}
    public = {name: people[name].keys(plan_message(plan)) for name, plan in plans.items()}
    keys = b"".join(body(plans[name], "keys", name, public[name]) for name in "abcd")
    parcels = {}
    for name, plan in plans.items():
        asked_for = GroupPart(group=0, members=(0, 1, 2, 3), body=keys)
        parcels[name] = body(
            plan, "shares", name, people[name].shares(stage_message(plan, "shares", name, [asked_for]))
        )
    for place, name in enumerate("abcd"):
        got = b"".join(
            bytes(parcel_for(memoryview(parcels[peer]), (0, 1, 2, 3), position, place))
            for position, peer in enumerate("abcd")
            if peer != name
        )
        part = GroupPart(group=0, members=(0, 1, 2, 3), body=got)
        reply = people[name].masked(stage_message(plans[name], "masked", name, [part]), UPDATE)
        message = read_stage_message(reply, plan=plans[name], stage="masked", client=name, in_place=True)
        if name == "a":
            assert not message.parts
            assert "cannot be read" in message.refused[0]
            assert message.unreadable == {0: (1, 2, 3)}
        else:
            assert message.unreadable == {0: (0,)}
            assert not any(people[name]._groups[0].held[0])


def body(plan: RoundPlan, stage: str, client: str, message: bytes) -> bytes:
    (part,) = read_stage_message(message, plan=plan, stage=stage, client=client).parts
    return bytes(part.body)


def test_the_seed_is_with_nobody_before_all_vectors_are_in() -> None:
    plan = asked()
    down, up, _ = play(plan, until="agree", seed=SEED)
    early = [
        message for part in (down, up) for stage in ("keys", "shares", "masked") for message in part[stage].values()
    ]
    assert not any(SEED in message for message in early)
    assert all(SEED in message for message in down["agree"].values())


def test_a_session_that_lost_its_vector_refuses() -> None:
    plan = asked()
    people = FOUR.sessions(plan)
    down, _, _ = play(plan, sessions=people, until="agree", seed=SEED)
    people["a"]._committed = None
    with pytest.raises(ProtocolError, match="no vector any more"):
        people["a"].agree(down["agree"]["a"])


def test_a_server_cannot_begin_with_a_seed_that_is_not_the_plans() -> None:
    with pytest.raises(ProtocolError, match="hash"):
        ServerSession(asked(), seeds=(draw_seed(),))
    with pytest.raises(ProtocolError, match="hash"):
        ServerSession(asked())
    with pytest.raises(ProtocolError, match="hash"):
        ServerSession(make_plan("abcd"), seeds=(SEED,))
