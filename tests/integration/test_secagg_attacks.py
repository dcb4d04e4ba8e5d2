"""What a server that lies and clients that collude with it try, and what they get.

docs/threat-model.md names these tests line by line.
"""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedgt.errors import ProtocolError, SignatureError, TooFewSharesError
from fedgt.secagg import (
    ClientSession,
    Identity,
    RoundPlan,
    TensorSpec,
    default_threshold,
    quorum,
)
from fedgt.secagg.agreement import chain_of, signatures_from_json, signatures_to_json
from fedgt.secagg.masks import KEY_BYTES, GroupContext, add_mask, pair_seed, self_seed
from fedgt.secagg.messages import (
    SIGNED_STAGES,
    GroupPart,
    StageMessage,
    plan_message,
    read_stage_message,
    stage_message,
)
from fedgt.secagg.shares import SHARE_BYTES, combine_shares
from secagg_lab import FOUR, UPDATE, Consortium, asked_to_open, make_plan, play, proposed, read


def test_with_identities_the_sums_are_exact() -> None:
    plan = make_plan("abcd", "abc")
    _, _, sums = play(plan)
    for one in sums:
        assert one.status == "open"
        assert one.total is not None
        np.testing.assert_array_equal(one.total["w"], len(one.members) * UPDATE["w"])


@pytest.mark.parametrize("leaves", SIGNED_STAGES)
def test_with_identities_a_client_may_leave_at_every_stage(leaves: str) -> None:
    plan = make_plan("abcd", "abc")
    order = SIGNED_STAGES.index(leaves)
    _, _, sums = play(plan, up=lambda at, who, m: None if who == "c" and SIGNED_STAGES.index(at) >= order else m)
    for one, group in zip(sums, plan.groups, strict=True):
        expected = tuple(client for client in group if client != "c" or order > SIGNED_STAGES.index("masked"))
        assert (one.status, one.members) == ("open", expected)
        assert one.dropped == {"c": f"{leaves}: no reply"}
        assert one.total is not None
        np.testing.assert_array_equal(one.total["w"], len(expected) * UPDATE["w"])


# Key substitution -------------------------------------------------------------------------------------------------


def substituted(plan: RoundPlan, consortium: Consortium | None, message: bytes) -> bytes:
    """The server puts keys of its own in the place of client b's, and lets a colluding client c sign them."""
    identity = None if consortium is None else consortium.server
    (part,) = (read(plan, "shares", "a", message) if identity else _plain(plan, message)).parts
    size = len(part.body) // len(part.members)
    own = b"".join(X25519PrivateKey.generate().public_key().public_bytes_raw() for _ in range(3))
    signature = b"" if consortium is None else consortium.clients["c"].sign("keys", own)
    body = bytes(part.body[:size]) + own + signature + bytes(part.body[2 * size :])
    forged = GroupPart(group=part.group, members=part.members, body=body)
    return stage_message(plan, "shares", "a", [forged], identity=identity)


def _plain(plan: RoundPlan, message: bytes) -> StageMessage:
    return read_stage_message(message, plan=plan, stage="shares", client="a")


def test_a_key_that_the_server_substitutes_is_refused() -> None:
    plan = make_plan("abcd")
    sessions = FOUR.sessions(plan)
    down, _, _ = play(plan, sessions=sessions, until="shares")
    with pytest.raises(SignatureError, match="keys of b is not by its registered key"):
        sessions["a"].shares(substituted(plan, FOUR, down["shares"]["a"]))
    assert sessions["a"].closed


def test_in_anonymous_mode_a_substituted_key_is_not_noticed() -> None:
    """The known limit of anonymous mode, so that nobody takes it for more than it is."""
    plan = make_plan("abcd")
    sessions = {name: ClientSession(name) for name in plan.clients}
    down, _, _ = play(plan, None, sessions=sessions, until="shares")
    assert sessions["a"].shares(substituted(plan, None, down["shares"]["a"]))


# Plans ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signer", [None, "a", "stranger"])
def test_a_plan_that_the_pinned_server_did_not_sign_is_refused(signer: str | None) -> None:
    """Also the downgrade to anonymous mode: a client with credentials never reads an unsigned plan."""
    identity = None if signer is None else FOUR.clients.get(signer, Identity.generate("stranger"))
    session = ClientSession("b", credentials=FOUR.of_client("b"))
    with pytest.raises(SignatureError, match="the server is not by its registered key"):
        session.keys(plan_message(make_plan("abcd"), identity=identity))


def test_two_plans_for_one_round_are_detected_before_anything_is_shared() -> None:
    """Split plans: a hears of other weights than b does."""
    one, other = make_plan("abcd"), make_plan("abcd", weights={"a": 1, "b": 1, "c": 1, "d": 500})
    sessions = FOUR.sessions(one)
    replies = {
        name: sessions[name].keys(plan_message(other if name == "a" else one, identity=FOUR.server)) for name in "abcd"
    }
    bodies = {
        name: read(other if name == "a" else one, "keys", name, reply).parts[0].body for name, reply in replies.items()
    }
    part = GroupPart(group=0, members=(0, 1, 2, 3), body=b"".join(bytes(body) for body in bodies.values()))
    for name, plan in (("a", other), ("b", one)):
        with pytest.raises(SignatureError, match="is not by its registered key"):
            sessions[name].shares(stage_message(plan, "shares", name, [part], identity=FOUR.server))


# Who is alive -----------------------------------------------------------------------------------------------------

FIFTEEN = "abcdefghijklmno"


def split_view(position: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Alive and dropped as client `position` hears it: at least 8 alive each, yet only clients 0 and 1 are alive to all.

    Clients 2 to 14 stand in a ring and each hears that the seven after it dropped; clients 0 and 1 hear seven and six.
    So every one of 2 to 14 is dropped for eight clients, as many as the threshold.
    """
    if position == 0:
        dropped = tuple(range(2, 9))
    elif position == 1:
        dropped = tuple(range(9, 15))
    else:
        dropped = tuple(sorted(2 + (position - 2 + step) % 13 for step in range(1, 8)))
    return tuple(p for p in range(15) if p not in dropped), dropped


def test_split_views_open_a_sum_of_two_in_anonymous_mode() -> None:
    """Why the agree stage exists: 15 clients that each want 8 in a sum, and a server that lies about who is alive."""
    plan = make_plan(FIFTEEN, tensors=(TensorSpec(name="w", shape=(3,)),))
    sessions = {name: ClientSession(name, minimum_group_size=8) for name in FIFTEEN}
    down, back, _ = play(plan, None, sessions=sessions, until="unmask")
    shares: dict[tuple[str, int], dict[int, bytes]] = {}
    for position, name in enumerate(FIFTEEN):
        alive, dropped = split_view(position)
        assert len(alive) >= 8
        request = stage_message(plan, "unmask", name, [GroupPart(group=0, members=alive, dropped=dropped)])
        reply = read_stage_message(sessions[name].unmask(request), plan=plan, stage="unmask", client=name)
        for order, owner in enumerate((*alive, *dropped)):
            share = bytes(reply.parts[0].body[order * SHARE_BYTES : (order + 1) * SHARE_BYTES])
            shares.setdefault(("own" if owner in alive else "key", owner), {})[position] = share
    vectors = {
        name: np.frombuffer(
            read_stage_message(back["masked"][name], plan=plan, stage="masked", client=name).parts[0].body, dtype="<u4"
        )
        for name in "ab"
    }
    total = vectors["a"] + vectors["b"]
    context = GroupContext.of(plan, 0)
    keys = read_stage_message(down["shares"]["a"], plan=plan, stage="shares", client="a").parts[0].body
    for owner in (0, 1):
        secret = combine_shares(shares["own", owner], threshold=8)
        add_mask(total, self_seed(context, secret, FIFTEEN[owner]), subtract=True)
    for owner in range(2, 15):
        key = X25519PrivateKey.from_private_bytes(combine_shares(shares["key", owner], threshold=8))
        for victim in (0, 1):
            public = keys[victim * 96 + KEY_BYTES : victim * 96 + 2 * KEY_BYTES]
            add_mask(total, pair_seed(context, key, public, (FIFTEEN[victim], FIFTEEN[owner])), subtract=True)
    np.testing.assert_array_equal(plan.encoding.decode(total[:-1]), 2 * UPDATE["w"])


def test_split_views_open_nothing_with_identities() -> None:
    plan = make_plan(FIFTEEN)
    consortium = Consortium.of(FIFTEEN)
    sessions = consortium.sessions(plan, minimum_group_size=8)
    down, _, _ = play(plan, consortium, sessions=sessions, until="agree")
    signatures: dict[str, bytes] = {}
    for position, name in enumerate(FIFTEEN):
        lists = {0: split_view(position)}
        link = proposed(plan, down["shares"], lists, previous=chain_of(consortium.registry))
        request = asked_to_open(plan, "agree", name, lists, link.to_json(), consortium.server)
        signatures[name] = bytes(read(plan, "agree", name, sessions[name].agree(request)).attached)
    for position, name in enumerate(FIFTEEN):
        request = asked_to_open(
            plan, "unmask", name, {0: split_view(position)}, signatures_to_json(signatures), consortium.server
        )
        with pytest.raises(SignatureError, match="of 15 clients of the registry agree on who is alive, 8 are needed"):
            sessions[name].unmask(request)


ALL, THREE = {0: ((0, 1, 2, 3), ())}, {0: ((0, 1, 2), (3,))}


def test_a_survivor_set_that_is_altered_after_the_agreement_is_refused() -> None:
    plan = make_plan("abcd")
    sessions = FOUR.sessions(plan)
    down, _, _ = play(plan, sessions=sessions, until="unmask")
    signed = read(plan, "unmask", "a", down["unmask"]["a"])
    assert signed.parts[0].members == (0, 1, 2, 3)
    with pytest.raises(ProtocolError, match="other survivors than the agreement"):
        sessions["a"].unmask(asked_to_open(plan, "unmask", "a", THREE, bytes(signed.attached)))


def test_signatures_below_the_quorum_or_from_another_round_open_nothing() -> None:
    plan, earlier = make_plan("abcd"), make_plan("abcd", round=1)
    old, _, _ = play(earlier, until="unmask")
    stale = bytes(read(earlier, "unmask", "a", old["unmask"]["a"]).attached)
    for signatures_of in (lambda good: good[:2], lambda good: [*good[:2], ("c", bytes(64))], lambda good: None):
        sessions = FOUR.sessions(plan)
        down, _, _ = play(plan, sessions=sessions, until="unmask")
        attached = bytes(read(plan, "unmask", "a", down["unmask"]["a"]).attached)
        good = sorted(signatures_from_json(attached, registry=FOUR.registry).items())
        chosen = signatures_of(good)
        forged = stale if chosen is None else signatures_to_json(dict(chosen))
        with pytest.raises(SignatureError, match="agree on who is alive, 3 are needed"):
            sessions["a"].unmask(asked_to_open(plan, "unmask", "a", ALL, forged))


def test_no_two_agreements_of_one_number_can_both_find_a_quorum() -> None:
    """Counted out: colluders sign both, every other client one of them; thresholds of groups follow the same rule."""
    for size in range(2, 16):
        for colluders in range(size):
            threshold = default_threshold(size, colluders=colluders)
            assert threshold == quorum(size, colluders=colluders) <= size
            assert not any(
                honest + colluders >= threshold and size - colluders - honest + colluders >= threshold
                for honest in range(size - colluders + 1)
            )


def test_of_no_client_both_secrets_are_released() -> None:
    """Both shares of one node: over all replies, each owner's shares are of one kind."""
    plan = make_plan("abcd")
    down, back, (one,) = play(plan, up=lambda at, who, m: None if (at, who) == ("masked", "d") else m)
    assert one.members == ("a", "b", "c")
    for name in "abc":
        request = read(plan, "unmask", name, down["unmask"][name]).parts[0]
        reply = read(plan, "unmask", name, back["unmask"][name]).parts[0]
        assert (request.members, request.dropped) == ((0, 1, 2), (3,))
        assert len(reply.body) == SHARE_BYTES * 4


def test_colluders_below_the_threshold_cannot_recover_a_secret() -> None:
    plan = make_plan("abcd")
    sessions = FOUR.sessions(plan)
    play(plan, sessions=sessions, until="unmask")
    known = {1: bytes(sessions["b"]._groups[0].held[0]), 2: bytes(sessions["c"]._groups[0].held[0])}
    secret = bytes(sessions["a"]._groups[0].secret)
    with pytest.raises(TooFewSharesError):
        combine_shares({p: share[SHARE_BYTES:] for p, share in known.items()}, threshold=3)
    guess = combine_shares({p: share[SHARE_BYTES:] for p, share in known.items()}, threshold=2)
    assert guess != secret


def test_a_late_input_of_a_client_that_was_declared_dropped_stays_hidden() -> None:
    """Its pair masks are known to the server then; its own mask is not."""
    plan = make_plan("abcd", tensors=(TensorSpec(name="w", shape=(3,)),))
    late: dict[str, bytes] = {}

    def hold(stage: str, client: str, reply: bytes) -> bytes | None:
        if (stage, client) == ("masked", "d"):
            late[client] = reply
            return None
        return reply

    down, back, (one,) = play(plan, up=hold)
    assert one.members == ("a", "b", "c")
    shares = {}
    for position, name in enumerate("abc"):
        body = read(plan, "unmask", name, back["unmask"][name]).parts[0].body
        shares[position] = bytes(body[3 * SHARE_BYTES :])
    key = X25519PrivateKey.from_private_bytes(combine_shares(shares, threshold=3))
    vector = np.frombuffer(read(plan, "masked", "d", late["d"]).parts[0].body[:16], dtype="<u4").copy()
    keys = read(plan, "shares", "a", down["shares"]["a"]).parts[0].body
    size = len(keys) // 4
    for peer in range(3):
        public = keys[peer * size + KEY_BYTES : peer * size + 2 * KEY_BYTES]
        seed = pair_seed(GroupContext.of(plan, 0), key, public, ("abcd"[peer], "d"))
        add_mask(vector, seed)  # d comes last in every pair, so it subtracted
    assert np.abs(plan.encoding.decode(vector[:-1]) - UPDATE["w"]).min() > 1e-3
