"""Attacks on sums with coefficients: servers that tell clients different ones, and clients that do not keep to theirs.

docs/threat-model.md names these tests line by line.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from fedgt.errors import ModulusOverflowError, PolicyError, ProtocolError, SpecError
from fedgt.secagg import ClientPolicy, ClientSession, FixedPoint, RoundPlan, RunTerms, ServerSession
from fedgt.secagg.challenge import draw_seed, seed_hash
from fedgt.secagg.messages import plan_message, read_stage_message, stage_message
from lying_client import LyingClient
from secagg_lab import FOUR, UPDATE, allow, make_plan, play, proposed

GROUPS = ("abc", "bcd", "abd")
COEFFICIENTS = ((1, 1, 2), (1, 3, 1), (2, 1, 1))
SEED = draw_seed()
LEVELS = np.rint(UPDATE["w"] * 2**16).astype(int)


def weighed(*groups: str, coefficients: tuple[tuple[int, ...], ...] = COEFFICIENTS, **changes: object) -> RoundPlan:
    """A plan over four clients with these coefficients, and a question about everybody's vector."""
    plan = make_plan(*(groups or GROUPS), encoding=FixedPoint(clip=8.0, fraction_bits=16, ring_bits=64), **changes)
    return replace(plan, coefficients=coefficients, challenges=(seed_hash(SEED),))


@pytest.mark.parametrize("consortium", [FOUR, None], ids=["identities", "anonymous"])
def test_each_client_counts_as_often_as_its_coefficient_says(consortium: object) -> None:
    plan = weighed(weights={"a": 1, "b": 2, "c": 3, "d": 4})
    _, _, sums = play(plan, consortium, seed=SEED)  # type: ignore[arg-type]
    for one, row in zip(sums, COEFFICIENTS, strict=True):
        weight = sum(a * plan.weights[client] for a, client in zip(row, one.members, strict=True))
        assert one.total is not None
        assert one.weight == weight
        np.testing.assert_array_equal(one.total["w"], weight * UPDATE["w"])


def test_a_server_that_tells_two_clients_different_coefficients_opens_nothing_of_both() -> None:
    """The difference of two coefficients of one client would be its update. The plan's digest is in every key."""
    plan, other = weighed("abc", coefficients=((1, 1, 2),)), weighed("abc", coefficients=((1, 1, 3),))
    told = {"a": plan, "b": plan, "c": other}
    clients, server = {name: ClientSession(name) for name in told}, ServerSession(plan, seeds=(SEED,))

    def translated(stage: str, messages: Mapping[str, bytes], *, to_clients: bool) -> dict[str, bytes]:
        """The lying server's part: what it sends to one client in the name of one plan it says to another of the other."""
        made = {}
        for name, message in messages.items():
            given, wanted = (plan, told[name]) if to_clients else (told[name], plan)
            seen = read_stage_message(message, plan=given, stage=stage, client=name)
            made[name] = stage_message(wanted, stage, name, seen.parts, seen.refused, attached=bytes(seen.attached))
        return made

    server.keys()  # which nobody is sent
    keys = {name: clients[name].keys(plan_message(told[name])) for name in told}
    asked = translated("shares", server.shares(translated("keys", keys, to_clients=False)), to_clients=True)
    shares = {name: clients[name].shares(message) for name, message in asked.items()}
    asked = translated("masked", server.masked(translated("shares", shares, to_clients=False)), to_clients=True)
    masked = {name: clients[name].masked(message, UPDATE) for name, message in asked.items()}
    told_apart = {"a": {0: (2,)}, "b": {0: (2,)}, "c": {0: (0, 1)}}
    for name, reply in masked.items():
        assert read_stage_message(reply, plan=told[name], stage="masked", client=name).unreadable == told_apart[name]
    # The server hides the complaints, and asks for everything that could open the sum.
    asked = translated(
        "unmask", server.unmask(translated("masked", masked, to_clients=False), authorise=allow), to_clients=True
    )
    shares = {}
    for name, message in asked.items():
        with suppress(ProtocolError):
            shares[name] = clients[name].unmask(message)
    (total,) = server.results(translated("unmask", shares, to_clients=False))
    assert total.status == "erased", "nobody but itself holds a share of the deceived client"


def test_an_agreement_on_other_coefficients_than_the_plan_is_not_signed() -> None:
    """It would falsify the account of everything that is opened later."""
    plan = weighed()
    down, _, _ = play(plan, until="agree", seed=SEED)
    everybody = dict.fromkeys(range(3), ((0, 1, 2), ()))
    true = proposed(plan, down["shares"], everybody)
    for coefficients in ((1, 1, 3), ()):
        lied = replace(true.groups[0], coefficients=coefficients)
        false = replace(true, groups=(lied, *true.groups[1:]))
        with pytest.raises(ProtocolError, match="other coefficients in group 0"):
            false.require_plan(plan)
    true.require_plan(plan)
    assert true.rows == tuple(
        {client: float(a) for client, a in zip(group, row, strict=True)}
        for group, row in zip(GROUPS, COEFFICIENTS, strict=True)
    )
    assert type(true).from_json(true.to_json()) == true


@pytest.mark.parametrize(
    "lies",
    [
        {"vectors": {0: LEVELS}},  # three times instead of twice
        {"vectors": {0: -LEVELS}},  # it forgets its coefficient
        {"vectors": {1: LEVELS}, "pads": {1: 1}},
        {"pads": {0: 1}},
    ],
)
def test_a_client_that_multiplies_by_something_else_is_seen(lies: Mapping[str, object]) -> None:
    plan = weighed()
    sessions = FOUR.sessions(plan)
    sessions["c"] = LyingClient("c", credentials=FOUR.of_client("c"), **lies)  # type: ignore[arg-type]
    _, _, sums = play(plan, sessions=sessions, seed=SEED)
    spoilt = set(lies.get("vectors", {}) or {}) | set(lies.get("pads", {}) or {})  # type: ignore[call-overload]
    for one in sums:
        assert (one.status == "erased") == (one.group in spoilt), one.reason
        assert one.status == "open" or "does not fit one vector" in one.reason


def test_a_sum_beyond_what_the_coefficients_allow_is_no_sum() -> None:
    """The limit of a group is the largest entry times the sum of coefficient * weight."""
    plan = weighed()
    largest = plan.encoding.largest
    sessions = FOUR.sessions(plan)
    beyond = {0: [4 * largest + 1 - int(4 * LEVELS[0]), 0, 0]}
    sessions["c"] = LyingClient("c", credentials=FOUR.of_client("c"), vectors=beyond)
    _, _, sums = play(plan, sessions=sessions, seed=SEED)
    assert sums[0].status == "erased"
    assert "1 of 3 entries are beyond what its members can reach" in sums[0].reason
    assert [one.status for one in sums[1:]] == ["open", "open"]


def test_a_coefficient_that_makes_a_client_stand_out_is_refused_by_it() -> None:
    """250 times its update in one sum: the server would hardly see the others."""
    plan = weighed("abcd", "abcd", coefficients=((1, 1, 1, 250), (1, 1, 1, 1)))
    policy = ClientPolicy(privacy=2, colluders=0)
    assert "250 is more than 20 times" in (policy.refusal(plan, 0, "d") or "")
    assert policy.refusal(plan, 1, "d") is None
    assert policy.refusal(plan, 0, "a") is None


def test_a_client_keeps_its_promise_over_coefficients() -> None:
    """The same members twice, with other coefficients: the difference of the two sums is one client's update."""
    same = weighed("abcd", "abcd", coefficients=((1, 1, 1, 1), (1, 1, 1, 2)))
    for client in FOUR.sessions(same, policy=ClientPolicy(privacy=2, colluders=0)).values():
        with pytest.raises(PolicyError, match="to mix only d; this"):
            client.keys(plan_message(same, identity=FOUR.server))
    multiple = weighed("abcd", "abcd", coefficients=((1, 1, 1, 1), (3, 3, 3, 3)))  # tells nothing more
    for client in FOUR.sessions(multiple, policy=ClientPolicy(privacy=2, colluders=0)).values():
        client.keys(plan_message(multiple, identity=FOUR.server))


def test_pinned_coefficients_cannot_change_during_a_run() -> None:
    plan = weighed()
    terms = RunTerms.of(plan, design=True)
    terms.require(plan)
    terms.require(make_plan("abcd", encoding=plan.encoding))  # a training round has one sum, without coefficients
    for other in (weighed(coefficients=((1, 1, 3), *COEFFICIENTS[1:])), weighed(coefficients=())):
        with pytest.raises(PolicyError, match="coefficients of group 0 changed: of c"):
            terms.require(other)
    with pytest.raises(PolicyError, match="for a single sum"):
        terms.require(weighed("abcd", coefficients=((1, 1, 1, 2),), weights=dict.fromkeys("abcd", 1)))
    plain = RunTerms.of(replace(plan, coefficients=()), design=True)
    assert "coefficients" not in plain.to_json(), "terms without coefficients have the digest that they always had"
    assert terms.digest != plain.digest


@pytest.mark.parametrize(
    ("coefficients", "message"),
    [
        (((1, 2), (1, 1, 1), (1, 1, 1)), "one for each of its clients"),
        (((1, 1, 2),), "one for each of its clients"),
        (((0, 1, 2), (1, 1, 1), (1, 1, 1)), "from 1 to 255"),
        (((-1, 1, 2), (1, 1, 1), (1, 1, 1)), "from 1 to 255"),
        (((1, 1, 256), (1, 1, 1), (1, 1, 1)), "from 1 to 255"),
        (((1, 1, True), (1, 1, 2), (1, 1, 1)), "from 1 to 255"),
        (((1, 1, 2.0), (1, 1, 1), (1, 1, 1)), "from 1 to 255"),
    ],
)
def test_coefficients_that_are_none_are_refused(coefficients: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        weighed(coefficients=coefficients)  # type: ignore[arg-type]


def test_a_plan_has_one_form_with_and_without_coefficients() -> None:
    """All 1 is none: the bytes of a plan without coefficients are what they always were."""
    plain = weighed(coefficients=())
    assert weighed(coefficients=((1, 1, 1),) * 3).to_json() == plain.to_json()
    assert b"coefficients" not in plain.to_json()
    assert RoundPlan.from_json(weighed().to_json()) == weighed()
    ones = weighed().to_json().replace(b"[[1,1,2],[1,3,1],[2,1,1]]", b"[[1,1,1],[1,1,1],[1,1,1]]")
    assert ones != weighed().to_json()
    with pytest.raises(ProtocolError, match="canonical"):
        RoundPlan.from_json(ones)


def test_the_ring_has_room_for_what_the_coefficients_make_of_a_sum() -> None:
    narrow = FixedPoint(clip=8.0, fraction_bits=26, ring_bits=32)  # one step less than four clients of weight 1
    make_plan("abc", encoding=narrow)
    with pytest.raises(ModulusOverflowError, match="sum of weights 4 x largest entry"):
        make_plan("abc", encoding=narrow, coefficients=((1, 1, 2),))
