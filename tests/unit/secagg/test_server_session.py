"""The server recovers every group that can be recovered, says why the others are lost, and asks before it opens."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedgt.errors import PrivacyError, ProtocolError
from fedgt.secagg import (
    Authorise,
    ClientSession,
    GroupSum,
    RoundPlan,
    ServerSession,
    TensorSpec,
    default_threshold,
    fit_fixed_point,
    weiszfeld_encoding,
)
from fedgt.secagg.messages import GroupPart, read_stage_message, stage_message

STAGES = ("keys", "shares", "masked", "unmask")
# The 15x8 design of DESIGN.md: row i has ones at {0, 1, 3, 7} + i; client 3 sits in groups 0, 2 and 3.
ROWS = tuple(tuple(f"c{start + offset:02d}" for offset in (0, 1, 3, 7)) for start in range(8))

Tamper = Callable[[str, str, bytes], bytes | None]


def allow(members: tuple[tuple[str, ...], ...]) -> tuple[str | None, ...]:
    return (None,) * len(members)


def plan(groups: tuple[tuple[str, ...], ...], weights: dict[str, int] | None = None, **changes: Any) -> RoundPlan:
    chosen = weights or {client: 1 for group in groups for client in group}
    fields: dict[str, Any] = {
        "run": "run",
        "colluders": 0,
        "round": 0,
        "purpose": "test",
        "groups": groups,
        "thresholds": tuple(default_threshold(len(group)) for group in groups),
        "weights": chosen,
        "encoding": fit_fixed_point(clip=8.0, fraction_bits=16, weight_sum=max(1, sum(chosen.values()))),
        "tensors": (TensorSpec(name="w", shape=(2, 2)), TensorSpec(name="b", shape=(1,))),
    }
    return RoundPlan(**(fields | changes))


def update_of(client: str) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    number = float(int(client[1:]))
    return {"w": np.array([[number, 1.0], [-number, 0.0]]) / 4, "b": np.array([number / 8])}


def run(
    agreed: RoundPlan,
    *,
    tamper: Tamper = lambda stage, client, reply: reply,
    authorise: Authorise = allow,
    sent: dict[str, dict[str, bytes]] | None = None,
    minimum: int = 2,
    update: Callable[[str], dict[str, Any]] = update_of,
) -> tuple[GroupSum, ...]:
    """A whole session; `tamper` may change a reply or swallow it (None); `sent` collects the server's messages."""
    clients = {client: ClientSession(client, minimum_group_size=minimum) for client in agreed.clients}
    server = ServerSession(agreed)
    requests = server.keys()
    for stage in STAGES:
        if sent is not None:
            sent[stage] = requests
        replies: dict[str, bytes] = {}
        failures: dict[str, str] = {}
        for client, message in requests.items():
            session = clients[client]
            reply = session.masked(message, update(client)) if stage == "masked" else getattr(session, stage)(message)
            changed = tamper(stage, client, reply)
            if changed is None:
                failures[client] = "timeout"
            else:
                replies[client] = changed
        if stage == "keys":
            requests = server.shares(replies, failures)
        elif stage == "shares":
            requests = server.masked(replies, failures)
        elif stage == "masked":
            requests = server.unmask(replies, failures, authorise=authorise)
    return server.results(replies, failures)


def leaves(client: str, stage: str) -> Tamper:
    return lambda at, who, reply: None if who == client and STAGES.index(at) >= STAGES.index(stage) else reply


def assert_exact(result: GroupSum, agreed: RoundPlan) -> None:
    """An open sum is the plain sum over exactly its members."""
    assert result.status == "open"
    assert result.reason == ""
    assert result.total is not None
    for name in ("w", "b"):
        expected = sum(agreed.weights[client] * update_of(client)[name] for client in result.members)
        np.testing.assert_allclose(result.total[name], expected, rtol=0, atol=result.weight * agreed.encoding.step / 2)
    assert result.weight == sum(agreed.weights[client] for client in result.members)


def test_all_groups_of_a_round_are_summed_together() -> None:
    agreed = plan(ROWS)
    results = run(agreed)
    assert [result.members for result in results] == list(ROWS)
    for index, result in enumerate(results):
        assert result.group == index
        assert result.dropped == {}
        assert result.clipped == 0
        assert_exact(result, agreed)


def test_weights_act_on_the_updates_and_not_on_the_masks() -> None:
    """Case 11: weights 10, 1000, 1 on vectors 1, 2, 3."""
    agreed = plan((("c1", "c2", "c3"),), {"c1": 10, "c2": 1000, "c3": 1}, tensors=(TensorSpec(name="v", shape=(1,)),))
    (result,) = run(agreed, update=lambda client: {"v": np.array([float(client[1:])])})
    assert result.total is not None
    assert result.total["v"].tolist() == [2013.0]
    assert result.weight == 1011
    assert result.total["v"][0] / result.weight == pytest.approx(1.99110, abs=5e-6)


@pytest.mark.parametrize("stage", STAGES)
def test_a_client_that_leaves_is_recovered_from_where_the_promise_allows_three_members(stage: str) -> None:
    """Case 12 with r = 3."""
    agreed = plan(ROWS)
    results = run(agreed, tamper=leaves("c03", stage))
    for index, result in enumerate(results):
        assert_exact(result, agreed)
        touched = index in (0, 2, 3)
        assert result.dropped == ({"c03": f"{stage}: timeout"} if touched else {})
        assert len(result.members) == (3 if touched and stage != "unmask" else 4)
        assert ("c03" in result.members) == (touched and stage == "unmask")


@pytest.mark.parametrize("stage", STAGES)
def test_a_client_that_leaves_makes_erasures_where_the_promise_needs_four_members(stage: str) -> None:
    """Case 12 with r = 4; whoever leaves at the unmask has given its input, and nothing is lost."""
    agreed = plan(ROWS)

    def four(members: tuple[tuple[str, ...], ...]) -> tuple[str | None, ...]:
        return tuple(None if len(group) >= 4 else "fewer than 4 members" for group in members)

    sent: dict[str, dict[str, bytes]] = {}
    results = run(agreed, tamper=leaves("c03", stage), authorise=four, sent=sent)
    for index, result in enumerate(results):
        if index in (0, 2, 3) and stage != "unmask":
            assert result.status == "erased"
            assert result.reason == "withheld: fewer than 4 members"
            assert result.total is None
            assert len(result.members) == 3
            for client in result.members:
                message = read_stage_message(sent["unmask"][client], plan=agreed, stage="unmask", client=client)
                assert index not in {part.group for part in message.parts}
        else:
            assert_exact(result, agreed)


def test_authorise_sees_the_real_members_before_any_unmask_request() -> None:
    seen: list[tuple[tuple[str, ...], ...]] = []

    def record(members: tuple[tuple[str, ...], ...]) -> tuple[str | None, ...]:
        seen.append(members)
        return (None,) * len(members)

    agreed = plan((("c1", "c2", "c3"), ("c1", "c4"), ("c2", "c3", "c4")))
    results = run(agreed, tamper=leaves("c1", "masked"), authorise=record)
    assert seen == [(("c2", "c3"), (), ("c2", "c3", "c4"))]
    assert [result.status for result in results] == ["open", "erased", "open"]


def test_a_group_that_was_lost_keeps_its_reason_when_it_is_withheld_too() -> None:
    results = run(
        plan((("c1", "c2"), ("c2", "c3"))),
        tamper=leaves("c1", "masked"),
        authorise=lambda members: ("no",) * len(members),
    )
    assert results[0].reason.startswith("masked: 1 of 2 clients are left")
    assert results[1].reason == "withheld: no"


def test_an_authorisation_that_raises_opens_nothing() -> None:
    def broken(members: tuple[tuple[str, ...], ...]) -> tuple[str | None, ...]:
        raise PrivacyError("no")

    sent: dict[str, dict[str, bytes]] = {}
    with pytest.raises(PrivacyError):
        run(plan(ROWS), authorise=broken, sent=sent)
    assert "unmask" not in sent
    with pytest.raises(ProtocolError, match="answered for 0 groups, 8"):
        run(plan(ROWS), authorise=lambda members: ())


def test_a_withheld_group_can_never_be_opened_later() -> None:
    agreed = plan((("c1", "c2", "c3"),))
    clients = {client: ClientSession(client) for client in agreed.clients}
    server = ServerSession(agreed)
    requests = server.shares({client: clients[client].keys(message) for client, message in server.keys().items()})
    requests = server.masked({client: clients[client].shares(message) for client, message in requests.items()})
    replies = {client: clients[client].masked(message, update_of(client)) for client, message in requests.items()}
    requests = server.unmask(replies, authorise=lambda members: ("no",))
    for client, message in requests.items():
        reply = read_stage_message(clients[client].unmask(message), plan=agreed, stage="unmask", client=client)
        assert reply.parts == ()
        late = stage_message(agreed, "unmask", client, [GroupPart(group=0, members=(0, 1, 2))])
        with pytest.raises(ProtocolError, match="the session is over"):
            clients[client].unmask(late)


def test_a_missing_client_is_detected_and_no_numbers_are_returned() -> None:
    """Case 13, below the threshold; above it the sum is over exactly its members (case 12)."""
    agreed = plan((("c1", "c2", "c3"),), thresholds=(3,))
    for stage in STAGES:
        (result,) = run(agreed, tamper=leaves("c2", stage))
        assert result.status == "erased"
        assert result.total is None
        assert "threshold" in result.reason or "shares" in result.reason
        assert result.dropped == {"c2": f"{stage}: timeout"}


def test_a_failed_group_never_stops_the_others() -> None:
    agreed = plan((("c1", "c2"), ("c3", "c4"), ()), thresholds=(2, 2, 1))
    results = run(agreed, tamper=leaves("c1", "masked"))
    assert [result.status for result in results] == ["erased", "open", "erased"]
    assert "c1: masked: timeout" in results[0].reason
    assert results[2].reason == "the group has no clients"
    assert_exact(results[1], agreed)


@pytest.mark.parametrize("stage", STAGES)
def test_when_all_are_lost_all_groups_are_erasures_that_name_every_client(stage: str) -> None:
    """Case 10."""

    def never(members: tuple[tuple[str, ...], ...]) -> tuple[str | None, ...]:
        raise AssertionError("nothing is left to authorise")

    results = run(
        plan(ROWS),
        tamper=lambda at, who, reply: None if at == stage else reply,
        authorise=allow if stage == "unmask" else never,
    )
    for result, group in zip(results, ROWS, strict=True):
        assert result.status == "erased"
        assert result.dropped == dict.fromkeys(group, f"{stage}: timeout")


def test_a_group_of_one_works_when_the_client_agrees() -> None:
    agreed = plan((("c5",), ("c1", "c2")))
    results = run(agreed, minimum=1)
    for result in results:
        assert_exact(result, agreed)


def test_a_group_that_its_clients_find_too_small_is_an_erasure_and_the_others_go_on() -> None:
    agreed = plan((("c1", "c2"), ("c1", "c2", "c3")))
    small, large = run(agreed, minimum=3)
    assert small.status == "erased"
    assert small.dropped["c1"] == "keys: refused: a sum over 2 client(s) is below this client's minimum of 3"
    assert_exact(large, agreed)


@pytest.mark.parametrize("stage", STAGES)
def test_rubbish_from_a_client_costs_this_client_only(stage: str) -> None:
    agreed = plan((("c1", "c2", "c3"), ("c2", "c3", "c4")))
    for rubbish in (b"", b"rubbish", b"FGT1" + bytes(4)):
        results = run(
            agreed,
            tamper=lambda at, who, reply, bad=rubbish: bad if (at, who) == (stage, "c1") else reply,  # type: ignore[misc]
        )
        for result in results:
            assert_exact(result, agreed)
        assert list(results[0].dropped) == ["c1"]
        assert results[0].dropped["c1"].startswith(f"{stage}: malformed")
        assert results[1].dropped == {}


def test_bodies_of_the_wrong_length_cost_their_group_only() -> None:
    agreed = plan((("c1", "c2", "c3"), ("c1", "c2", "c4")))

    def shorten(stage: str, client: str, reply: bytes) -> bytes:
        if (stage, client) != ("masked", "c1"):
            return reply
        parts = list(read_stage_message(reply, plan=agreed, stage=stage, client=client).parts)
        parts[0] = GroupPart(group=0, body=parts[0].body[:-4])
        return stage_message(agreed, stage, client, parts)

    results = run(agreed, tamper=shorten)
    assert results[0].dropped == {"c1": "masked: 20 bytes where 24 are due"}
    assert results[1].members == ("c1", "c2", "c4")
    for result in results:
        assert_exact(result, agreed)


@pytest.mark.parametrize("gone", [None, "c4"])
def test_a_false_share_names_who_released_it_and_costs_nothing_while_enough_are_good(gone: str | None) -> None:
    agreed = plan((("c1", "c2", "c3", "c4"),))

    def lie(stage: str, client: str, reply: bytes) -> bytes | None:
        if client == gone and stage in ("masked", "unmask"):
            return None
        if (stage, client) != ("unmask", "c1"):
            return reply
        (part,) = read_stage_message(reply, plan=agreed, stage=stage, client=client).parts
        body = bytes(part.body)
        false = body[:-1] + bytes([body[-1] ^ 1])
        return stage_message(agreed, stage, client, [GroupPart(group=0, body=false)])

    (result,) = run(agreed, tamper=lie)
    assert dict(result.faults) == {"c1": "released a share of c4 that is not the one it was given"}
    if gone is None:
        assert_exact(result, agreed)
        return
    # With c4 away three are left, and three are needed.
    assert result.status == "erased"
    assert result.total is None
    assert "2 good shares of c4, 3 are needed" in result.reason


def test_clipped_entries_are_counted_inside_the_sum() -> None:
    """Case 1."""
    agreed = plan((("c1", "c2", "c3"),), tensors=(TensorSpec(name="v", shape=(4,)),))
    (result,) = run(agreed, update=lambda client: {"v": np.array([0.5, 7.9, 9.0, 100.0])})
    assert result.clipped == 6
    assert result.total is not None
    np.testing.assert_allclose(result.total["v"], [1.5, 23.7, 24.0, 24.0], atol=3 * agreed.encoding.step / 2)


def test_a_weiszfeld_sum_gives_the_weighted_updates_and_their_weights() -> None:
    """Pillutla et al. 2022, equation of the smoothed step, against the plain formula."""
    group = ("c1", "c2", "c3")
    weights = {"c1": 1, "c2": 2, "c3": 5}
    agreed = plan(
        (group,),
        weights,
        task="weiszfeld",
        smoothing=1e-6,
        update_clip=8.0,
        encoding=weiszfeld_encoding(update_clip=8.0, smoothing=1e-6, members=3),
        tensors=(TensorSpec(name="v", shape=(2,)),),
    )
    updates = {"c1": np.array([0.0, 0.0]), "c2": np.array([1.0, 9.0]), "c3": np.array([3.0, -4.0])}
    center = {"v": np.zeros(2)}
    clients = {client: ClientSession(client) for client in group}
    server = ServerSession(agreed)
    requests = server.shares({client: clients[client].keys(message) for client, message in server.keys().items()})
    requests = server.masked({client: clients[client].shares(message) for client, message in requests.items()})
    replies = {
        client: clients[client].masked(message, {"v": updates[client]}, center) for client, message in requests.items()
    }
    requests = server.unmask(replies, authorise=allow)
    (result,) = server.results({client: clients[client].unmask(message) for client, message in requests.items()})
    clipped = {client: np.clip(update, -8.0, 8.0) for client, update in updates.items()}
    beta = {client: weights[client] / 8 / max(1e-6, float(np.linalg.norm(clipped[client]))) for client in group}
    assert beta["c1"] == 125_000
    assert result.beta_total == pytest.approx(sum(beta.values()), abs=1e-6)
    assert result.total is not None
    np.testing.assert_allclose(result.total["v"], sum(beta[c] * clipped[c] for c in group), rtol=0, atol=1e-6)
    assert result.clipped == 1
    assert result.weight == 8


def test_the_server_refuses_to_be_called_out_of_order() -> None:
    server = ServerSession(plan(ROWS))
    with pytest.raises(ProtocolError, match="out of order"):
        server.shares({})
    server.keys()
    with pytest.raises(ProtocolError, match="out of order"):
        server.keys()


def test_the_totals_of_a_sum_are_read_only() -> None:
    result = run(plan(ROWS))[0]
    assert result.total is not None
    with pytest.raises(ValueError, match="read-only"):
        result.total["w"][0, 0] = 1.0
