"""One client that breaks the rules: it stops nobody, and what it signed wrongly is its own fault.

docs/threat-model.md names these tests line by line.
"""

from typing import Any

import numpy as np
import pytest

from fedgt.errors import ProtocolError
from fedgt.secagg import FixedPoint, GroupSum, RoundPlan, ServerSession, TensorSpec
from fedgt.secagg.frames import pack_in_place
from fedgt.secagg.membership import OWN_BYTES, PARCEL_BYTES, Membership, keys_statement
from fedgt.secagg.messages import GroupPart, StageMessage, stage_message
from fedgt.secagg.shares import PRIME, SHARE_BYTES, combine_shares, split_secret
from fedgt.secagg.vector import require_range
from lying_client import LyingClient
from secagg_lab import FOUR, UPDATE, Wire, make_plan, play, read


def exact(one: GroupSum) -> bool:
    return one.total is not None and np.array_equal(one.total["w"], len(one.members) * UPDATE["w"])


# Key material -----------------------------------------------------------------------------------------------------------

LOW_ORDER = bytes(32)


@pytest.mark.parametrize("what", ["equal", "zero", "another zero"])
@pytest.mark.parametrize("groups", [("abcd",), ("abcd", "abc")])
def test_bad_keys_are_refused_where_they_arrive_and_no_peer_ends_its_session(
    what: str, groups: tuple[str, ...]
) -> None:
    """Signed keys of one client: share key equal to mask key, or a point with which nothing can be agreed."""
    plan = make_plan(*groups)

    def bad(at: str, who: str, reply: bytes) -> bytes:
        if (at, who) != ("keys", "a"):
            return reply
        parts = []
        for part in read(plan, at, who, reply).parts:
            share, mask, rest = bytes(part.body[:32]), bytes(part.body[32:64]), bytes(part.body[64:96])
            public = {
                "equal": share + share + rest,
                "zero": LOW_ORDER + mask + rest,
                "another zero": share + LOW_ORDER + rest,
            }[what]
            context = session_of_a._groups[part.group].context
            signature = FOUR.clients["a"].sign("keys", keys_statement(context, "a", public))
            parts.append(GroupPart(group=part.group, body=public + signature))
        return stage_message(plan, at, who, parts, identity=FOUR.clients["a"])

    sessions = FOUR.sessions(plan)
    session_of_a = sessions["a"]
    _, _, sums = play(plan, sessions=sessions, up=bad)
    for one in sums:
        assert "a" not in one.members
        assert set(one.dropped) == {"a"}
        assert "key" in one.dropped["a"]
    assert exact(sums[0])
    assert all(sessions[name].closed for name in "bcd"), "they have gone to the end"


# Shares -----------------------------------------------------------------------------------------------------------------


def dealing(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Client a deals badly, in its own code, everything else as it should be."""
    honest = Membership.share_out

    def share_out(self: Membership) -> bytes:
        if self.clients[self.position] != "a":
            return honest(self)
        split = split_secret

        def bad(secret: Any, *, threshold: int, count: int) -> tuple[bytes, ...]:
            if how == "another secret":
                return split(bytes(31) + b"\x07", threshold=threshold, count=count)
            shares = list(split(secret, threshold=threshold, count=count))
            wrong = (int.from_bytes(shares[-1], "big") + 1) % PRIME
            return (*shares[:-1], wrong.to_bytes(SHARE_BYTES, "big"))

        with monkeypatch.context() as patched:
            patched.setattr("fedgt.secagg.membership.split_secret", bad)
            return honest(self)

    monkeypatch.setattr(Membership, "share_out", share_out)


@pytest.mark.parametrize("how", ["another secret", "no polynomial"])
def test_whoever_deals_badly_is_named_and_nobody_else(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    dealing(monkeypatch, how)
    plan = make_plan("abcd", "bcd")
    _, _, sums = play(plan)
    assert dict(sums[0].faults).keys() == {"a"}
    assert sums[0].status == "erased"
    assert "that a dealt" in sums[0].reason
    assert sums[1].status == "open"
    assert not sums[1].faults


@pytest.mark.parametrize("liar", "abcd")
def test_a_false_share_costs_nothing_and_names_its_holder_wherever_it_sits(liar: str) -> None:
    """It used to lose every round for a liar among the lowest positions, and to name the first honest client."""
    plan = make_plan("abcd")

    def lie(at: str, who: str, reply: bytes) -> bytes:
        if (at, who) != ("unmask", liar):
            return reply
        (part,) = read(plan, at, who, reply).parts
        body = bytes(byte ^ 1 for byte in part.body)
        return stage_message(plan, at, who, [GroupPart(group=0, body=body)], identity=FOUR.clients[liar])

    _, _, (one,) = play(plan, up=lie)
    assert exact(one)
    assert set(one.faults) == {liar}


def spoilt(plan: RoundPlan, dealer: str, victims: str, *, signed: bool = True) -> Wire:
    """A dealer whose parcels these victims cannot read, in all groups; the hashes are those of good shares."""
    identity = FOUR.clients[dealer] if signed else None

    def spoil(at: str, who: str, reply: bytes) -> bytes:
        if (at, who) != ("shares", dealer):
            return reply
        message = read(plan, at, who, reply if signed else reply + bytes(64))
        parts = []
        for part in message.parts:
            body, place = bytearray(part.body), plan.groups[part.group].index(dealer)
            for victim in set(victims) & set(plan.groups[part.group]):
                there = plan.groups[part.group].index(victim)
                body[there * PARCEL_BYTES - (PARCEL_BYTES - OWN_BYTES if place < there else 0)] ^= 1
            parts.append(GroupPart(group=part.group, body=bytes(body)))
        return stage_message(plan, at, who, parts, attached=bytes(message.attached), identity=identity)

    return spoil


def faults_of(plan: RoundPlan, back: Any) -> list[tuple[str, tuple[int, ...], str]]:
    """What a server finds that gets the same replies, in anonymous mode."""
    session = ServerSession(plan)
    session.keys(), session.shares(back["keys"]), session.masked(back["shares"])
    session.unmask(back["masked"], authorise=lambda members: (None,) * len(members))
    session.results(back["unmask"])
    return [(one.kind, one.groups, "".join(one.suspects)) for one in session.faults]


def test_a_parcel_that_cannot_be_read_costs_nothing_while_enough_shares_are_good() -> None:
    """Of the two clients one has lied, and nothing says which. With too many such parcels the group is given up."""
    plan = make_plan("abcd", "bcd", "abc")
    _, back, sums = play(plan, None, up=spoilt(plan, "a", "bd", signed=False))
    assert [one.status for one in sums] == ["erased", "open", "open"]
    assert "too many members cannot read the shares of a" in sums[0].reason
    assert exact(sums[1])
    assert exact(sums[2])
    assert not any(one.faults for one in sums)
    assert not any(one.dropped for one in sums)
    assert faults_of(plan, back) == [
        ("complaint", (0, 2), "ab"),
        ("complaint", (0,), "ad"),
        ("parcels", (0,), "abcd"),
    ]


def test_a_member_that_can_read_too_few_shares_takes_no_part_and_the_group_is_given_up() -> None:
    """Else the dealers could choose whose updates are in the sums beside their own."""
    plan = make_plan("abcd")

    def both(at: str, who: str, reply: bytes) -> bytes | None:
        return spoilt(plan, who, "b", signed=False)(at, who, reply) if who in "ac" else reply

    _, back, (one,) = play(plan, None, up=both)
    assert one.status == "erased"
    assert faults_of(plan, back) == [
        ("complaint", (0,), "ab"),
        ("complaint", (0,), "bc"),
        ("parcels", (0,), "abcd"),
    ]


def test_who_takes_no_part_for_one_share_that_it_cannot_read_has_left_by_itself() -> None:
    """An honest client goes on then. The group does, too: else one complaint would cost it."""
    plan = make_plan("abcd")

    def up(at: str, who: str, reply: bytes) -> bytes | None:
        if (at, who) != ("masked", "b"):
            return reply
        said = StageMessage(
            stage="masked",
            client="b",
            plan=plan.digest,
            run=plan.run,
            round=plan.round,
            purpose=plan.purpose,
            parts=(),
            refused={0: "the shares of a cannot be read"},
            unreadable={0: (0,)},
        )
        return pack_in_place(said.header, 0, lambda body: None)

    _, back, (one,) = play(plan, None, up=up)
    assert exact(one)
    assert one.members == ("a", "c", "d")
    assert faults_of(plan, back) == [("complaint", (0,), "ab")]


def test_who_complains_of_a_dealer_and_who_leaves_at_the_end_cost_the_sum_together() -> None:
    """It could be opened without the complaint, so it is at fault; whoever has left may be out of reach."""
    plan = make_plan("abcd")

    def up(at: str, who: str, reply: bytes) -> bytes | None:
        return b"" if (at, who) == ("unmask", "c") else spoilt(plan, "a", "b", signed=False)(at, who, reply)

    _, back, (one,) = play(plan, None, up=up)
    assert one.status == "erased"
    assert "too many members cannot read the shares of a" in one.reason
    assert faults_of(plan, back) == [("complaint", (0,), "ab"), ("parcels", (0,), "abcd")]


@pytest.mark.parametrize("complains", ["the victim", "a liar"])
def test_a_false_complaint_looks_like_a_true_one(complains: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So neither can frame the other: the server learns the same from both."""
    plan = make_plan("abcd", "bcd")
    up: Wire = lambda at, who, reply: reply  # noqa: E731
    if complains == "the victim":
        up = spoilt(plan, "a", "b", signed=False)
    else:
        honest = Membership.open_parcels

        def complain(self: Membership, part: GroupPart, *, tagged: bool) -> tuple[int, ...]:
            honest(self, part, tagged=tagged)
            return (0,) if self.clients[self.position] == "b" and "a" in self.clients else ()

        monkeypatch.setattr(Membership, "open_parcels", complain)
    _, back, sums = play(plan, None, up=up)
    assert all(exact(one) and not one.dropped and not one.faults for one in sums)
    assert faults_of(plan, back) == [("complaint", (0,), "ab")]


# Range ------------------------------------------------------------------------------------------------------------------


def uniform(plan: RoundPlan, seed: int) -> list[int]:
    """Anything in the ring, to be added to what a client should send."""
    draw = np.random.default_rng(seed).integers(0, 2**plan.encoding.ring_bits, plan.length, dtype=plan.encoding.dtype)
    return [int(number) for number in draw]


@pytest.mark.parametrize("ring_bits", [32, 64])
def test_a_sum_that_its_members_cannot_reach_is_no_sum(ring_bits: int) -> None:
    """A client that sends anything in the ring: the model would be noise, and every entry a thousand times too large."""
    plan = make_plan(
        "abcd",
        "bcd",
        encoding=FixedPoint(clip=8.0, fraction_bits=16, ring_bits=ring_bits),
        tensors=(TensorSpec(name="w", shape=(3,)),),
    )
    for seed in range(20):
        liar = LyingClient("a", credentials=FOUR.of_client("a"), vectors={0: uniform(plan, seed)})
        _, _, sums = play(plan, sessions=FOUR.sessions(plan) | {"a": liar})
        assert sums[0].status == "erased"
        assert "at least one of them has" in sums[0].reason
        assert not sums[0].faults, "the group is at fault; who of it is not proved"
        assert exact(sums[1])


@pytest.mark.parametrize(("clip", "bits"), [(0.4, 2), (8.0, 16), (1e-3, 30)])
@pytest.mark.parametrize("weights", [{"a": 1, "b": 1}, {"a": 3, "b": 500}])
@pytest.mark.parametrize("coefficients", [(1, 1), (3, 255)])
def test_honest_sums_are_never_out_of_range(
    clip: float, bits: int, weights: dict[str, int], coefficients: tuple[int, int]
) -> None:
    """At the very ends: the largest encoded entry, such as 0.5 for a clip of 0.4 with two bits, of every member."""
    plan = make_plan(
        "ab",
        weights=weights,
        encoding=FixedPoint(clip=clip, fraction_bits=bits, ring_bits=64),
        tensors=(TensorSpec(name="w", shape=(4,)),),
        coefficients=(coefficients,),
    )
    for ends in ([clip, -clip, 0.0, clip], [100 * clip, -100 * clip, 3 * clip, clip]):
        total = np.zeros(plan.length, dtype=plan.encoding.dtype)
        for name, a in zip("ab", coefficients, strict=True):
            levels, clipped = plan.encoding.encode(np.array(ends), weight=a * weights[name])
            total[:-1] += levels
            total[-1] += np.uint64(a * clipped)
        require_range(plan, 0, total, "ab")
        beyond = total.copy()
        beyond[0] += np.uint64(1)
        with pytest.raises(ProtocolError, match="1 of 4 entries"):
            require_range(plan, 0, beyond, "ab")
        counted = total.copy()
        counted[-1] = 4 * sum(coefficients) + 1
        with pytest.raises(ProtocolError, match="clipped entries are counted"):
            require_range(plan, 0, counted, "ab")


# Sharing over the prime field -------------------------------------------------------------------------------------------


def test_shares_are_those_of_the_textbook() -> None:
    """Solved as a linear system modulo the prime, for all sizes that groups have."""
    from sympy import Matrix, isprime

    assert isprime(PRIME)
    for count in (1, 2, 3, 5, 8, 15):
        for threshold in range(1, min(count, 6) + 1):
            secret = np.random.default_rng([count, threshold]).bytes(32)
            shares = split_secret(secret, threshold=threshold, count=count)
            points = list(range(count))[-threshold:]
            system = Matrix([[pow(p + 1, k, PRIME) for k in range(threshold)] for p in points])
            solved = system.inv_mod(PRIME) * Matrix([int.from_bytes(shares[p], "big") for p in points])
            assert int(solved[0]) % PRIME == int.from_bytes(secret, "big")
            assert combine_shares({p: shares[p] for p in points}, threshold=threshold) == secret
            assert combine_shares(dict(enumerate(shares)), threshold=threshold) == secret
