"""What a server that lies, colluding clients and somebody on the wire try, and what they get.

docs/threat-model.md names these tests line by line.
"""

import gc
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedgt.errors import ProtocolError, SignatureError, TooFewSharesError
from fedgt.secagg import (
    ClientSession,
    Credentials,
    FixedPoint,
    GroupSum,
    Identity,
    Registry,
    RoundPlan,
    ServerSession,
    TensorSpec,
    default_threshold,
)
from fedgt.secagg.masks import KEY_BYTES, GroupContext, MaskStream, add_mask, mask_scratch, pair_seed, self_seed
from fedgt.secagg.membership import PARCEL_BYTES, survivors_statement
from fedgt.secagg.messages import (
    SIGNED_STAGES,
    STAGES,
    GroupPart,
    StageMessage,
    plan_message,
    read_stage_message,
    stage_message,
)
from fedgt.secagg.shares import SECRET_BYTES, combine_shares

UPDATE = {"w": np.array([0.5, -0.25, 1.0])}


@dataclass(frozen=True, kw_only=True)
class Consortium:
    """Identities of a server and its clients, and the registry that they share."""

    server: Identity
    clients: Mapping[str, Identity]

    @classmethod
    def of(cls, names: str) -> "Consortium":
        return cls(server=Identity.generate("server"), clients={name: Identity.generate(name) for name in names})

    @property
    def registry(self) -> Registry:
        return Registry(server=self.server.public, clients={n: one.public for n, one in self.clients.items()})

    def of_client(self, name: str) -> Credentials:
        return Credentials(identity=self.clients[name], registry=self.registry)

    def of_server(self) -> Credentials:
        return Credentials(identity=self.server, registry=self.registry)

    def sessions(self, plan: RoundPlan, **options: Any) -> dict[str, ClientSession]:
        return {name: ClientSession(name, credentials=self.of_client(name), **options) for name in plan.clients}


FOUR = Consortium.of("abcd")


def make_plan(*groups: str, **changes: Any) -> RoundPlan:
    members = tuple(tuple(group) for group in groups)
    fields: dict[str, Any] = {
        "run": "run",
        "round": 2,
        "purpose": "test",
        "groups": members,
        "thresholds": tuple(default_threshold(len(group)) for group in members),
        "weights": {client: 1 for group in members for client in group},
        "encoding": FixedPoint(clip=8.0, fraction_bits=16, ring_bits=32),
        "tensors": (TensorSpec(name="w", shape=(3,)),),
    }
    return RoundPlan(**(fields | changes))


def allow(members: tuple[tuple[str, ...], ...]) -> tuple[str | None, ...]:
    return (None,) * len(members)


def answer(session: ClientSession, stage: str, message: bytes) -> bytes:
    if stage == "masked":
        return session.masked(message, UPDATE)
    reply: bytes = getattr(session, stage)(message)
    return reply


Wire = Callable[[str, str, bytes], bytes | None]


def play(
    plan: RoundPlan,
    consortium: Consortium | None = FOUR,
    *,
    sessions: Mapping[str, ClientSession] | None = None,
    until: str = "results",
    up: Wire = lambda stage, client, reply: reply,
) -> tuple[dict[str, dict[str, bytes]], dict[str, dict[str, bytes]], tuple[GroupSum, ...]]:
    """An honest server; `up` may change or swallow a reply. Requests and replies by stage, and the sums."""
    if sessions is None:
        sessions = (
            {name: ClientSession(name) for name in plan.clients} if consortium is None else consortium.sessions(plan)
        )
    server = ServerSession(plan, credentials=None if consortium is None else consortium.of_server())
    stages = STAGES if consortium is None else SIGNED_STAGES
    down: dict[str, dict[str, bytes]] = {"keys": server.keys()}
    back: dict[str, dict[str, bytes]] = {}
    for stage, following in zip(stages, (*stages[1:], "results"), strict=True):
        if stage == until:
            return down, back, ()
        back[stage] = {}
        for client, message in down[stage].items():
            try:
                reply = up(stage, client, answer(sessions[client], stage, message))
            except ProtocolError:
                continue
            if reply is not None:
                back[stage][client] = reply
        if following == "results":
            break
        options = {"authorise": allow} if stage == "masked" else {}
        down[following] = getattr(server, following)(back[stage], **options)
    return down, back, server.results(back["unmask"])


def read(plan: RoundPlan, stage: str, client: str, message: bytes) -> StageMessage:
    """A message of a signed session, without checking who signed it: what an eavesdropper does."""
    unsigned = message[:-64]
    return read_stage_message(unsigned, plan=plan, stage=stage, client=client)


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
            share = bytes(reply.parts[0].body[order * SECRET_BYTES : (order + 1) * SECRET_BYTES])
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
    play(plan, consortium, sessions=sessions, until="agree")
    signatures: dict[int, bytes] = {}
    for position, name in enumerate(FIFTEEN):
        alive, dropped = split_view(position)
        part = GroupPart(group=0, members=alive, dropped=dropped)
        reply = sessions[name].agree(stage_message(plan, "agree", name, [part], identity=consortium.server))
        signatures[position] = bytes(read(plan, "agree", name, reply).parts[0].body)
    for position, name in enumerate(FIFTEEN):
        alive, dropped = split_view(position)
        body = b"".join(signatures[member] for member in alive)
        part = GroupPart(group=0, members=alive, dropped=dropped, body=body)
        reply = sessions[name].unmask(stage_message(plan, "unmask", name, [part], identity=consortium.server))
        message = read(plan, "unmask", name, reply)
        assert message.parts == ()
        assert "agree on who is alive, the threshold is 8" in message.refused[0]


def test_a_survivor_set_that_is_altered_after_the_agreement_is_refused() -> None:
    plan = make_plan("abcd")
    sessions = FOUR.sessions(plan)
    down, _, _ = play(plan, sessions=sessions, until="unmask")
    part = read(plan, "unmask", "a", down["unmask"]["a"]).parts[0]
    assert part.members == (0, 1, 2, 3)
    altered = GroupPart(group=0, members=(0, 1, 2), dropped=(3,), body=part.body[: 3 * 64])
    with pytest.raises(ProtocolError, match="other survivors than it did before"):
        sessions["a"].unmask(stage_message(plan, "unmask", "a", [altered], identity=FOUR.server))


def test_signatures_below_the_threshold_or_from_another_round_open_nothing() -> None:
    plan, earlier = make_plan("abcd"), make_plan("abcd", round=1)
    old, _, _ = play(earlier, until="unmask")
    stale = bytes(read(earlier, "unmask", "a", old["unmask"]["a"]).parts[0].body)
    for body_of in (lambda body: body[: 2 * 64] + bytes(2 * 64), lambda body: stale):
        sessions = FOUR.sessions(plan)
        down, _, _ = play(plan, sessions=sessions, until="unmask")
        part = read(plan, "unmask", "a", down["unmask"]["a"]).parts[0]
        forged = GroupPart(group=0, members=part.members, dropped=(), body=body_of(bytes(part.body)))
        reply = sessions["a"].unmask(stage_message(plan, "unmask", "a", [forged], identity=FOUR.server))
        message = read(plan, "unmask", "a", reply)
        assert message.parts == ()
        assert "agree on who is alive" in message.refused[0]


def test_no_two_lists_of_survivors_can_both_find_a_threshold_that_allows_for_colluders() -> None:
    """Counted out: colluders sign both lists, every other client one of them."""
    for size in range(2, 16):
        for colluders in range(size):
            threshold = default_threshold(size, colluders=colluders)
            assert threshold <= size
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
        assert len(reply.body) == SECRET_BYTES * 4


def test_colluders_below_the_threshold_cannot_recover_a_secret() -> None:
    plan = make_plan("abcd")
    sessions = FOUR.sessions(plan)
    play(plan, sessions=sessions, until="unmask")
    known = {1: bytes(sessions["b"]._groups[0].held[0]), 2: bytes(sessions["c"]._groups[0].held[0])}
    secret = bytes(sessions["a"]._groups[0].secret)
    with pytest.raises(TooFewSharesError):
        combine_shares({p: share[SECRET_BYTES:] for p, share in known.items()}, threshold=3)
    guess = combine_shares({p: share[SECRET_BYTES:] for p, share in known.items()}, threshold=2)
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
        shares[position] = bytes(body[3 * SECRET_BYTES :])
    key = X25519PrivateKey.from_private_bytes(combine_shares(shares, threshold=3))
    vector = np.frombuffer(read(plan, "masked", "d", late["d"]).parts[0].body[:16], dtype="<u4").copy()
    keys = read(plan, "shares", "a", down["shares"]["a"]).parts[0].body
    size = len(keys) // 4
    for peer in range(3):
        public = keys[peer * size + KEY_BYTES : peer * size + 2 * KEY_BYTES]
        seed = pair_seed(GroupContext.of(plan, 0), key, public, ("abcd"[peer], "d"))
        add_mask(vector, seed)  # d comes last in every pair, so it subtracted
    assert np.abs(plan.encoding.decode(vector[:-1]) - UPDATE["w"]).min() > 1e-3


# Replays and forgeries --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", SIGNED_STAGES[1:])
@pytest.mark.parametrize("change", [{"run": "earlier"}, {"round": 1}, {"purpose": "training"}])
def test_a_replayed_message_of_another_run_round_or_purpose_is_refused(stage: str, change: dict[str, Any]) -> None:
    plan, earlier = make_plan("abcd"), make_plan("abcd", **change)
    down, back, _ = play(earlier)
    sessions = FOUR.sessions(plan)
    play(plan, sessions=sessions, until=stage)
    with pytest.raises(ProtocolError, match="wrong message"):
        answer(sessions["a"], stage, down[stage]["a"])
    # And to the server: whoever replays what client a once said only makes a drop out.
    replayed = back[stage]["a"]
    _, _, (one,) = play(plan, up=lambda at, who, m: replayed if (at, who) == (stage, "a") else m)
    assert "wrong message" in one.dropped["a"]
    assert one.status == "open"


@pytest.mark.parametrize("stage", SIGNED_STAGES)
def test_a_forged_message_costs_at_most_its_alleged_sender(stage: str) -> None:
    """Somebody on the wire, or client b, answers in the place of a."""
    plan = make_plan("abcd")

    def forge(at: str, who: str, reply: bytes) -> bytes:
        if (at, who) != (stage, "a"):
            return reply
        parts = read(plan, at, who, reply).parts
        return stage_message(plan, at, who, parts, identity=FOUR.clients["b"])

    _, _, (one,) = play(plan, up=forge)
    assert "of a is not by its registered key" in one.dropped["a"]
    assert one.status == "open"
    assert one.total is not None
    np.testing.assert_array_equal(one.total["w"], len(one.members) * UPDATE["w"])


def test_a_masked_vector_that_is_changed_on_its_way_is_left_out() -> None:
    plan = make_plan("abcd", "abc")

    def flip(stage: str, client: str, reply: bytes) -> bytes:
        if (stage, client) != ("masked", "a"):
            return reply
        return reply[:-70] + bytes([reply[-70] ^ 1]) + reply[-69:]  # in the tag of the last group

    _, _, (whole, touched) = play(plan, up=flip)
    assert whole.members == ("a", "b", "c", "d")
    assert touched.members == ("b", "c")
    assert touched.dropped == {"a": "masked: the masked vector was changed on its way"}
    assert touched.total is not None
    np.testing.assert_array_equal(touched.total["w"], 2 * UPDATE["w"])


@pytest.mark.parametrize("stage", SIGNED_STAGES)
def test_a_server_message_that_is_changed_on_its_way_is_refused(stage: str) -> None:
    plan = make_plan("abcd")
    sessions = FOUR.sessions(plan)
    down, _, _ = play(plan, sessions=sessions, until=stage)
    message = down[stage]["a"]
    middle = len(message) - 100
    with pytest.raises(SignatureError, match="the server"):
        answer(sessions["a"], stage, message[:middle] + bytes([message[middle] ^ 1]) + message[middle + 1 :])
    assert sessions["a"].closed


# Keys -------------------------------------------------------------------------------------------------------------


def seeds_of_rounds(monkeypatch: pytest.MonkeyPatch, rounds: range, *groups: str) -> list[bytes]:
    seeds: list[bytes] = []

    class Spy(MaskStream):
        def __init__(self, seed: bytes, *, subtract: bool = False) -> None:
            seeds.append(seed)
            super().__init__(seed, subtract=subtract)

    monkeypatch.setattr("fedgt.secagg.membership.MaskStream", Spy)
    for number in rounds:
        _, _, sums = play(make_plan(*groups, round=number))
        assert all(one.status == "open" for one in sums)
    return seeds


def test_no_mask_is_used_in_two_groups_or_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same four clients in two equal groups: each own seed once, each pair's seed at its two ends."""
    rounds = range(6)
    used = Counter(seeds_of_rounds(monkeypatch, rounds, "abcd", "abcd"))
    groups = 2 * len(rounds)
    assert Counter(used.values()) == {1: 4 * groups, 2: 6 * groups}


def test_seeds_have_the_full_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the search for seeds of few bits: 256 bits each, every bit balanced, no two prefixes alike."""
    seeds = sorted(set(seeds_of_rounds(monkeypatch, range(40), "abcd", "abcd")))
    assert {len(seed) for seed in seeds} == {32}
    bits = np.unpackbits(np.frombuffer(b"".join(seeds), dtype=np.uint8)).reshape(len(seeds), 256)
    spread = 6 * np.sqrt(len(seeds)) / 2
    assert np.abs(bits.sum(axis=0) - len(seeds) / 2).max() < spread
    together = (bits[:, :, None] ^ bits[:, None, :]).sum(axis=0)[np.triu_indices(256, 1)]
    assert np.abs(together - len(seeds) / 2).max() < spread
    assert len({seed[:8] for seed in seeds}) == len(seeds)


def reachable(root: object) -> list[object]:
    found: dict[int, object] = {}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in found or isinstance(one, type) or callable(one):
            continue
        found[id(one)] = one
        waiting += gc.get_referents(one)
    return list(found.values())


def test_no_key_or_share_can_be_read_from_a_client_after_the_round() -> None:
    plan = make_plan("abcd")
    sessions = FOUR.sessions(plan)
    down, _, _ = play(plan, sessions=sessions, until="unmask")
    session = sessions["a"]
    (membership,) = session._groups.values()
    secrets = [bytes(membership.secret), membership.mask_key.private_bytes_raw(), *map(bytes, membership.held.values())]
    before = reachable(session)
    assert sum(isinstance(one, X25519PrivateKey) for one in before) == 2
    del membership, before
    session.unmask(down["unmask"]["a"])
    after = reachable(session)
    assert not any(isinstance(one, X25519PrivateKey) for one in after)
    kept = [bytes(one) for one in after if isinstance(one, bytes | bytearray | memoryview)]
    assert not any(secret in one for secret in secrets for one in kept)


def test_what_a_client_sends_and_receives_contains_none_of_its_secrets() -> None:
    plan = make_plan("abcd")
    sessions = FOUR.sessions(plan)
    down, back, _ = play(plan, sessions=sessions, until="unmask")
    membership = sessions["a"]._groups[0]
    secrets = [
        bytes(membership.secret),
        membership.mask_key.private_bytes_raw(),
        membership.share_key.private_bytes_raw(),
    ]
    wire = [message for stage in (*down.values(), *back.values()) for message in stage.values()]
    assert not any(secret in message for secret in secrets for message in wire)
    parcels = read(plan, "shares", "a", back["shares"]["a"]).parts[0].body
    assert len(parcels) == 3 * PARCEL_BYTES
    assert not any(bytes(share)[:SECRET_BYTES] in bytes(parcels) for share in membership.held.values())


def test_without_one_honest_peer_nothing_hides_and_with_one_everything_does() -> None:
    """All peers but one collude: their pair masks come off, the last one and the own mask stay on."""
    plan = make_plan("abcd", tensors=(TensorSpec(name="w", shape=(4000,)),))
    update = {"w": np.full(4000, 0.5)}
    sessions = FOUR.sessions(plan)
    down, _, _ = play(plan, sessions=sessions, until="masked")
    for name in "cd":
        sessions[name].masked(down["masked"][name], update)
    known = [sessions[name]._groups[0] for name in "cd"]
    # The own mask comes first, then one for each peer in the order in which its shares are held.
    streams = [one.mask_streams()[1 + [peer for peer in one.held if peer != one.position].index(0)] for one in known]
    masked = read(plan, "masked", "a", sessions["a"].masked(down["masked"]["a"], update)).parts[0]
    vector = np.frombuffer(masked.body[:16000], dtype="<u4").copy()
    scratch = mask_scratch()
    for stream in streams:
        stream.apply(vector, scratch)  # a added the mask, c and d subtract it
    counts = np.bincount(vector.view(np.uint8), minlength=256)
    statistic = float(((counts - 62.5) ** 2 / 62.5).sum())
    assert abs(statistic - 255) < 8 * np.sqrt(2 * 255)
    assert np.count_nonzero(vector == plan.encoding.encode(update["w"])[0]) < 5


def test_a_mask_key_that_is_rebuilt_in_one_group_is_worth_nothing_in_another() -> None:
    """Client a is declared dropped in group 0 and is alive in group 1 (decision 0006)."""
    plan = make_plan("abcd", "abcd")
    sessions = FOUR.sessions(plan)
    play(plan, sessions=sessions, until="unmask")
    first, second = (sessions["a"]._groups[group] for group in (0, 1))
    key = combine_shares({p: bytes(sessions[n]._groups[0].held[0])[:32] for p, n in enumerate("abcd")}, threshold=3)
    assert key == first.mask_key.private_bytes_raw()
    assert key != second.mask_key.private_bytes_raw()
    rebuilt = X25519PrivateKey.from_private_bytes(key)
    for peer in (1, 2, 3):
        pair = ("a", "abcd"[peer])
        for public in (first.peers[peer][KEY_BYTES : 2 * KEY_BYTES], second.peers[peer][KEY_BYTES : 2 * KEY_BYTES]):
            seed = pair_seed(second.context, rebuilt, public, pair)
            assert seed != pair_seed(
                second.context, second.mask_key, second.peers[peer][KEY_BYTES : 2 * KEY_BYTES], pair
            )


@pytest.mark.parametrize("stage", ["keys", "agree"])
def test_a_client_that_signs_rubbish_is_left_out_before_its_peers_see_it(stage: str) -> None:
    """Its frame is in order, its signature on the keys or on the list of survivors is not."""
    plan = make_plan("abcd")

    def spoil(at: str, who: str, reply: bytes) -> bytes:
        if (at, who) != (stage, "a"):
            return reply
        (part,) = read(plan, at, who, reply).parts
        body = bytes(part.body[:-1]) + bytes([part.body[-1] ^ 1])
        return stage_message(plan, at, who, [GroupPart(group=0, body=body)], identity=FOUR.clients["a"])

    _, _, (one,) = play(plan, up=spoil)
    assert one.status == "open"
    what = "keys" if stage == "keys" else "survivors"
    assert one.dropped == {"a": f"{stage}: the signature on the {what} of a is not by its registered key"}
    assert ("a" in one.members) == (stage == "agree")


def test_what_is_signed_about_survivors_names_the_keys_that_this_client_was_shown() -> None:
    """A colluding client that signed two sets of keys for two peers splits them: their signatures do not fit together."""
    context = GroupContext.of(make_plan("abcd"), 0)
    keys = {position: bytes([position]) * 96 for position in range(4)}
    statements = {
        survivors_statement(context, (0, 1, 2), (3,), keys),
        survivors_statement(context, (0, 1, 2), (3,), keys | {2: bytes(96)}),
        survivors_statement(context, (0, 1, 2), (), {p: key for p, key in keys.items() if p != 3}),
        survivors_statement(context, (0, 1, 3), (2,), keys),
        survivors_statement(GroupContext.of(make_plan("abcd", round=3), 0), (0, 1, 2), (3,), keys),
    }
    assert len(statements) == 5
