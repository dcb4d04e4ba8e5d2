"""The client refuses what would expose it, and forgets its secrets."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedgt.errors import ProtocolError, ShapeError
from fedgt.secagg import ClientPolicy, ClientSession, RoundPlan, ServerSession, TensorSpec
from fedgt.secagg.messages import GroupPart, plan_message, read_stage_message, stage_message
from secagg_lab import UPDATE
from secagg_lab import make_plan as plan

STAGES = ("keys", "shares", "masked", "unmask")


def until(agreed: RoundPlan, stage: str) -> tuple[dict[str, ClientSession], dict[str, bytes]]:
    """Clients that have answered everything before a stage, and the server's honest messages for that stage."""
    clients = {client: ClientSession(client) for client in agreed.clients}
    server = ServerSession(agreed)
    requests = server.keys()
    if stage == "keys":
        return clients, requests
    requests = server.shares({client: clients[client].keys(message) for client, message in requests.items()})
    if stage == "shares":
        return clients, requests
    requests = server.masked({client: clients[client].shares(message) for client, message in requests.items()})
    if stage == "masked":
        return clients, requests
    replies = {client: clients[client].masked(message, UPDATE) for client, message in requests.items()}
    return clients, server.unmask(replies, authorise=lambda members: (None,) * len(members))


def answer(session: ClientSession, stage: str, message: bytes) -> bytes:
    if stage == "masked":
        return session.masked(message, UPDATE)
    reply: bytes = getattr(session, stage)(message)
    return reply


def forged(agreed: RoundPlan, stage: str, message: bytes, change: Callable[[GroupPart], GroupPart]) -> bytes:
    parsed = read_stage_message(message, plan=agreed, stage=stage, client="a")
    return stage_message(agreed, stage, "a", [change(part) for part in parsed.parts])


def test_a_group_below_the_clients_own_minimum_is_refused_and_the_others_go_on() -> None:
    agreed = plan("abcd", "ab")
    session = ClientSession("a", minimum_group_size=3)
    reply = read_stage_message(session.keys(plan_message(agreed)), plan=agreed, stage="keys", client="a")
    assert [part.group for part in reply.parts] == [0]
    assert "2 client(s)" in reply.refused[1]
    assert "minimum of 3" in reply.refused[1]


def test_a_client_whose_groups_are_all_too_small_refuses_the_plan() -> None:
    with pytest.raises(ProtocolError, match="minimum of 2"):
        ClientSession("a").keys(plan_message(plan("a")))
    ClientSession("a", minimum_group_size=1).keys(plan_message(plan("a")))
    with pytest.raises(ProtocolError, match="at least 1"):
        ClientSession("a", minimum_group_size=0)


def test_a_plan_without_the_client_is_refused() -> None:
    with pytest.raises(ProtocolError, match="in no group"):
        ClientSession("z").keys(plan_message(plan("abc")))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"thresholds":[2]', b'"thresholds":[1]'),
        (b'["a","b","c"]', b'["a","b","a"]'),
    ],
)
def test_a_plan_with_a_low_threshold_or_with_duplicate_ids_is_refused(old: bytes, new: bytes) -> None:
    message = plan_message(plan("abc"))
    assert old in message
    with pytest.raises(ProtocolError, match="not a valid plan"):
        ClientSession("a").keys(message.replace(old, new))


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_is_answered_once(stage: str) -> None:
    clients, requests = until(plan("abc", "ab"), stage)
    answer(clients["a"], stage, requests["a"])
    with pytest.raises(ProtocolError, match="each stage runs once"):
        answer(clients["a"], stage, requests["a"])


@pytest.mark.parametrize("stage", STAGES[1:])
def test_a_stage_is_not_answered_before_its_turn(stage: str) -> None:
    _, requests = until(plan("abc"), stage)
    session = ClientSession("a")
    with pytest.raises(ProtocolError, match="each stage runs once"):
        answer(session, stage, requests["a"])
    assert session.keys(plan_message(plan("abc")))


@pytest.mark.parametrize("stage", STAGES[1:])
@pytest.mark.parametrize("change", [{"run": "other"}, {"round": 3}, {"purpose": "training"}])
def test_a_message_of_another_run_round_or_purpose_is_refused(stage: str, change: dict[str, Any]) -> None:
    clients, _ = until(plan("abc"), stage)
    _, requests = until(plan("abc", **change), stage)
    with pytest.raises(ProtocolError, match="wrong message"):
        answer(clients["a"], stage, requests["a"])


@pytest.mark.parametrize("stage", STAGES[1:])
def test_a_group_from_which_the_client_itself_is_missing_is_refused(stage: str) -> None:
    agreed = plan("abc")
    clients, requests = until(agreed, stage)
    message = forged(agreed, stage, requests["a"], lambda p: GroupPart(group=p.group, members=(1, 2), body=p.body))
    with pytest.raises(ProtocolError, match="itself is missing"):
        answer(clients["a"], stage, message)


@pytest.mark.parametrize("stage", STAGES[1:])
def test_a_group_that_the_client_has_not_joined_is_refused(stage: str) -> None:
    agreed = plan("abc", "bc")
    clients, requests = until(agreed, stage)
    parts = read_stage_message(requests["b"], plan=agreed, stage=stage, client="b").parts
    with pytest.raises(ProtocolError, match="is none that client a takes part in"):
        answer(clients["a"], stage, stage_message(agreed, stage, "a", parts))


def test_a_peer_that_is_both_alive_and_dropped_is_refused() -> None:
    agreed = plan("abc")
    clients, requests = until(agreed, "unmask")
    message = forged(
        agreed, "unmask", requests["a"], lambda p: GroupPart(group=p.group, members=(0, 1, 2), dropped=(2,))
    )
    with pytest.raises(ProtocolError, match="client c is said to be both alive and dropped"):
        clients["a"].unmask(message)
    with pytest.raises(ProtocolError, match="the session is over"):
        clients["a"].unmask(requests["a"])


def test_a_peer_that_is_neither_alive_nor_dropped_is_refused() -> None:
    agreed = plan("abc")
    clients, requests = until(agreed, "unmask")
    message = forged(agreed, "unmask", requests["a"], lambda p: GroupPart(group=p.group, members=(0, 1)))
    with pytest.raises(ProtocolError, match="not the clients that shared"):
        clients["a"].unmask(message)


def test_a_sum_below_the_minimum_or_the_threshold_is_not_opened() -> None:
    for size, minimum in ((2, 3), (1, 1)):
        agreed = plan("abc")
        clients, requests = until(agreed, "unmask")
        clients["a"]._policy = ClientPolicy(minimum_group_size=minimum)
        message = forged(
            agreed,
            "unmask",
            requests["a"],
            lambda p, size=size: GroupPart(  # type: ignore[misc]
                group=p.group, members=tuple(range(size)), dropped=tuple(range(size, 3))
            ),
        )
        reply = read_stage_message(clients["a"].unmask(message), plan=agreed, stage="unmask", client="a")
        assert reply.parts == ()
        assert list(reply.refused) == [0]


def test_other_public_keys_than_the_client_published_are_refused() -> None:
    agreed = plan("abc")
    clients, requests = until(agreed, "shares")
    message = forged(
        agreed,
        "shares",
        requests["a"],
        lambda p: GroupPart(group=p.group, members=p.members, body=bytes([p.body[0] ^ 1]) + bytes(p.body[1:])),
    )
    with pytest.raises(ProtocolError, match="other keys"):
        clients["a"].shares(message)


def test_two_clients_with_the_same_public_key_are_refused() -> None:
    """One more form of case 37."""
    agreed = plan("abc")
    clients, requests = until(agreed, "shares")
    message = forged(
        agreed,
        "shares",
        requests["a"],
        lambda p: GroupPart(group=p.group, members=p.members, body=bytes(p.body[:192]) + bytes(p.body[96:192])),
    )
    with pytest.raises(ProtocolError, match="same public key"):
        clients["a"].shares(message)


def test_a_share_that_was_changed_is_complained_of_and_too_few_cost_their_group_only() -> None:
    agreed = plan("abc", "ab", "ab")
    clients, requests = until(agreed, "masked")

    def change(part: GroupPart) -> GroupPart:
        body = bytes([part.body[0] ^ 1]) + bytes(part.body[1:]) if part.group < 2 else part.body
        return GroupPart(group=part.group, members=part.members, body=body)

    message = forged(agreed, "masked", requests["a"], change)
    reply = read_stage_message(clients["a"].masked(message, UPDATE), plan=agreed, stage="masked", client="a")
    assert [part.group for part in reply.parts] == [0, 2], "of three it reads two, as many as open a sum"
    assert reply.unreadable == {0: (1,), 1: (1,)}
    assert reply.refused == {1: "the shares of b cannot be read"}


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"w": np.array([np.nan, 1.0, 2.0])}, "client a: tensor 'w' of the update has 1 entries that are not finite"),
        ({"w": np.zeros(4)}, r"client a: tensor 'w' of the update has shape \(4,\), agreed \(3,\)"),
        ({"v": np.zeros(3)}, r"client a: the update has tensors \['v'\]"),
    ],
)
def test_an_update_that_does_not_fit_is_refused_by_name(update: dict[str, Any], message: str) -> None:
    """Cases 3, 20 and 29."""
    clients, requests = until(plan("abc"), "masked")
    with pytest.raises(ShapeError, match=message):
        clients["a"].masked(requests["a"], update)
    assert clients["a"].closed


def test_secrets_are_overwritten_and_dropped_after_the_unmask() -> None:
    clients, requests = until(plan("abc", "ab"), "unmask")
    memberships = list(clients["a"]._groups.values())
    secrets = [membership.secret for membership in memberships]
    held = [share for membership in memberships for share in membership.held.values()]
    assert all(any(buffer) for buffer in secrets + held)
    clients["a"].unmask(requests["a"])
    assert not any(any(buffer) for buffer in secrets + held)
    assert clients["a"].closed
    assert clients["a"]._groups == {}


def test_a_masked_vector_looks_nothing_like_the_plain_one() -> None:
    """Equal plain entries give bytes that are uniform (chi-squared, 255 degrees of freedom) and uncorrelated."""
    length = 20_000
    agreed = plan("abc", "abc", tensors=(TensorSpec(name="w", shape=(length,)),))
    sessions, requests = until(agreed, "masked")
    update = {"w": np.full(length, 0.5)}
    reply = read_stage_message(sessions["a"].masked(requests["a"], update), plan=agreed, stage="masked", client="a")
    vectors = [np.frombuffer(part.body, dtype="<u4") for part in reply.parts]
    plain = agreed.encoding.encode(update["w"])[0]
    for vector in vectors:
        counts = np.bincount(np.frombuffer(vector.tobytes(), dtype=np.uint8), minlength=256)
        expected = 4 * (length + 1) / 256
        statistic = float(((counts - expected) ** 2 / expected).sum())
        assert 255 - 8 * np.sqrt(2 * 255) < statistic < 255 + 8 * np.sqrt(2 * 255)
        assert np.count_nonzero(vector[:-1] == plain) < 10
    # The same update in two groups: the difference is masked as well.
    assert np.unique(vectors[0] - vectors[1]).size > length * 0.99
