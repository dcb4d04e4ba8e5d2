"""What somebody on the wire, or with a memory of earlier rounds, tries: replays, forgeries, keys; and what it gets.

docs/threat-model.md names these tests line by line.
"""

import gc
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedgt.errors import ProtocolError, SignatureError
from fedgt.secagg import (
    TensorSpec,
)
from fedgt.secagg.masks import KEY_BYTES, MaskStream, mask_scratch, pair_seed
from fedgt.secagg.membership import shared_bytes
from fedgt.secagg.messages import (
    SIGNED_STAGES,
    GroupPart,
    stage_message,
)
from fedgt.secagg.shares import SHARE_BYTES, combine_shares
from secagg_lab import FOUR, UPDATE, answer, make_plan, play, proposed, read

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
    assert answer(sessions["a"], stage, message)


# Keys -------------------------------------------------------------------------------------------------------------


def seeds_of_rounds(monkeypatch: pytest.MonkeyPatch, rounds: range, *groups: str) -> list[bytes]:
    seeds: list[bytes] = []

    class Spy(MaskStream):
        def __init__(self, seed: bytes, *, subtract: bool = False) -> None:
            seeds.append(seed)
            super().__init__(seed, subtract=subtract)

    monkeypatch.setattr("fedgt.secagg.masking.MaskStream", Spy)
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
    """Against the search for seeds of few bits: 256 bits each for vector and pad, all balanced, no two prefixes alike."""
    seeds = sorted(set(seeds_of_rounds(monkeypatch, range(40), "abcd", "abcd")))
    assert {len(seed) for seed in seeds} == {64}
    bits = np.unpackbits(np.frombuffer(b"".join(seeds), dtype=np.uint8)).reshape(len(seeds), 512)
    spread = 6 * np.sqrt(len(seeds)) / 2
    assert np.abs(bits.sum(axis=0) - len(seeds) / 2).max() < spread
    ones, both = bits.sum(axis=0), bits.T.astype(np.float64) @ bits
    together = (ones[:, None] + ones - 2 * both)[np.triu_indices(512, 1)]  # how often one bit is set without the other
    assert np.abs(together - len(seeds) / 2).max() < spread
    assert len({half for seed in seeds for half in (seed[:8], seed[32:40])}) == 2 * len(seeds)


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
    assert len(parcels) == shared_bytes(4)
    assert not any(bytes(share)[:SHARE_BYTES] in bytes(parcels) for share in membership.held.values())


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
    masks = [one.masks()[1 + [peer for peer in one.held if peer != one.position].index(0)] for one in known]
    streams = [MaskStream(seeds, subtract=subtract) for seeds, subtract in masks]
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
    key = combine_shares(
        {p: bytes(sessions[n]._groups[0].held[0])[:SHARE_BYTES] for p, n in enumerate("abcd")}, threshold=3
    )
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
    """Its frame is in order, its signature on the keys or on the agreement is not."""
    plan = make_plan("abcd")

    def spoil(at: str, who: str, reply: bytes) -> bytes:
        if (at, who) != (stage, "a"):
            return reply
        message = read(plan, at, who, reply)
        signed = bytes(message.attached if at == "agree" else message.parts[0].body)
        spoilt = signed[:-1] + bytes([signed[-1] ^ 1])
        part = GroupPart(group=0, body=b"" if at == "agree" else spoilt)
        attached = spoilt if at == "agree" else b""
        return stage_message(plan, at, who, [part], attached=attached, identity=FOUR.clients["a"])

    _, _, (one,) = play(plan, up=spoil)
    assert one.status == "open"
    what = "keys" if stage == "keys" else "agreement"
    assert one.dropped == {"a": f"{stage}: the signature on the {what} of a is not by its registered key"}
    assert ("a" in one.members) == (stage == "agree")


def test_what_is_signed_names_everything_that_is_to_be_opened() -> None:
    """Lists, keys that were shown, model, plan, and what was signed before: no two of them share a signature."""
    plan = make_plan("abcd")
    down, _, _ = play(plan, until="agree")
    everybody, three = {0: ((0, 1, 2, 3), ())}, {0: ((0, 1, 2), (3,))}
    link = proposed(plan, down["shares"], everybody)
    (group,) = link.groups
    digests = {
        link.digest,
        proposed(plan, down["shares"], three).digest,
        proposed(plan, down["shares"], {0: ((0, 1, 2), ())}).digest,
        proposed(plan, down["shares"], everybody, groups=(replace(group, keys="0" * 64),)).digest,
        proposed(plan, down["shares"], everybody, model="0" * 64).digest,
        replace(link, plan="0" * 64).digest,
        proposed(plan, down["shares"], everybody, number=2).digest,
        proposed(plan, down["shares"], everybody, previous="0" * 64).digest,
        proposed(plan, down["shares"], everybody, weights={**link.weights, "a": 2}).digest,
    }
    assert len(digests) == 9
