"""Attacks on sums that are taken in stages: by a server that wants more, and by clients that change between them.

docs/threat-model.md names these tests line by line.
"""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedgt.engine.journal import RoundJournal
from fedgt.errors import FedGTError, PolicyError, ProtocolError
from fedgt.secagg import ClientSession, RoundPlan, ServerSession
from fedgt.secagg.challenge import seed_hash
from fedgt.secagg.consistency import Equation, misfits
from fedgt.secagg.field import SMALL
from fedgt.secagg.messages import SIGNED_STAGES, STAGES, GroupPart, plan_message, read_stage_message, stage_message
from fedgt.secagg.opening import parcel_for
from secagg_lab import Consortium, allow, answer, make_plan, proposed, read
from slow_cases import slow
from stage_lab import GROUPS, NAMES, PROMISE, SIX, TWO, Bench, exact, state, watched

BOTH = pytest.mark.parametrize("consortium", [SIX, None], ids=["identities", "anonymous"])
SEEDS = (bytes(range(16)), bytes(range(1, 17)), bytes(range(2, 18)))
POISON = [2**15, 0, -7]


def staged(*groups: str, stages: tuple[int, ...] = TWO, seeds: tuple[bytes, ...] = SEEDS) -> RoundPlan:
    return make_plan(*(groups or GROUPS), stages=stages, challenges=tuple(map(seed_hash, seeds[: len(stages)])))


class Played:
    """An honest server and honest sessions, as far as a test wants them."""

    def __init__(self, plan: RoundPlan, consortium: Consortium | None = SIX) -> None:
        self.plan, self.consortium = plan, consortium
        self.people = {name: ClientSession(name) for name in NAMES}
        if consortium is not None:
            self.people = consortium.sessions(plan, policy=PROMISE)
        self.server = ServerSession(
            plan,
            credentials=None if consortium is None else consortium.of_server(),
            seeds=SEEDS[: len(plan.stages)],
        )
        self.down: dict[tuple[int, str], dict[str, bytes]] = {}

    def until(self, stage: int, message: str) -> dict[str, bytes]:
        """The requests of a message of a stage, which nobody has answered yet."""
        following: dict[str, Callable[..., Any]] = {
            "keys": self.server.shares,
            "further": self.server.shares,
            "shares": self.server.masked,
            "agree": self.server.unmask,
            "unmask": self.server.results,
        }
        names = STAGES if self.consortium is None else SIGNED_STAGES
        requests = self.server.keys()
        for number in itertools.count():
            for one in ("further" if number else "keys", *names[1:]):
                self.down[number, one] = requests
                if (number, one) == (stage, message):
                    return requests
                replies = {name: answer(self.people[name], one, request) for name, request in requests.items()}
                if one == "masked":
                    opening = self.server.unmask if self.consortium is None else self.server.agree
                    requests = opening(replies, authorise=allow)
                else:
                    requests = following[one](replies)
            requests = self.server.further()
        raise AssertionError

    def say(self, message: str, client: str, parts: Any = (), attached: bytes = b"", *, at: int = 0) -> bytes:
        """What the server signs."""
        identity = None if self.consortium is None else self.consortium.server
        return stage_message(self.plan, message, client, parts, attached=attached, at=at, identity=identity)


# The questions ----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("stage", "shown"), [(0, 1), (1, 0)])
def test_the_question_of_another_stage_is_answered_by_nobody(
    consortium: Consortium | None, stage: int, shown: int
) -> None:
    """Early it would be known before the vectors of its stage; late it would be answered with the pad of another one."""
    played, message = Played(staged(), consortium), "unmask" if consortium is None else "agree"
    request = played.until(stage, message)["a"]
    asked = read(played.plan, message, "a", request + (b"" if consortium is not None else bytes(64)), at=stage)
    attached = SEEDS[shown] + bytes(asked.attached[16:])
    with pytest.raises(ProtocolError, match="not the one that the plan holds the hash of"):
        answer(played.people["a"], message, played.say(message, "a", asked.parts, attached, at=stage))
    assert played.people["a"].closed


@BOTH
def test_a_question_is_with_nobody_before_the_vectors_of_its_stage(consortium: Consortium | None) -> None:
    played, message = Played(staged(), consortium), "unmask" if consortium is None else "agree"
    played.until(1, message)
    first, last = (0, message), (1, message)
    for place, requests in played.down.items():
        shown = [any(seed in request for request in requests.values()) for seed in SEEDS[:2]]
        assert shown == [place == first, place == last]


@pytest.mark.parametrize("later", [0, 1])
def test_clients_whose_plans_differ_in_one_question_of_any_stage_share_nothing(later: int) -> None:
    """A question for one client alone reads one of its entries, when the first sums are open most of all."""
    other = tuple(bytes(16) if stage == later else seed for stage, seed in enumerate(SEEDS))
    plans = {name: staged(seeds=other if name == "a" else SEEDS) for name in "abc"}
    people = {name: ClientSession(name) for name in "abc"}
    public = {name: people[name].keys(plan_message(plan)) for name, plan in plans.items()}
    keys = b"".join(body(plans[name], "keys", name, public[name]) for name in "abc")
    asked = GroupPart(group=0, members=(0, 1, 2), body=keys)
    parcels = {
        name: body(plan, "shares", name, people[name].shares(stage_message(plan, "shares", name, [asked])))
        for name, plan in plans.items()
    }
    for place, name in enumerate("abc"):
        peers = [peer for peer in range(3) if peer != place]
        got = b"".join(bytes(parcel_for(memoryview(parcels["abc"[peer]]), (0, 1, 2), peer, place)) for peer in peers)
        part = GroupPart(group=0, members=(0, 1, 2), body=got)
        reply = people[name].masked(stage_message(plans[name], "masked", name, [part]), {"w": [0.0, 0.0, 0.0]})  # type: ignore[dict-item]
        said = read_stage_message(reply, plan=plans[name], stage="masked", client=name, in_place=True)
        if name == "a":
            assert "cannot be read" in said.refused[0]
        else:
            assert said.unreadable == {0: (0,)}
            assert not any(people[name]._groups[0].held[0]), "the masks with a stay on"


def body(plan: RoundPlan, stage: str, client: str, message: bytes) -> bytes:
    return bytes(next(one.body for one in read(plan, stage, client, message + bytes(64)).parts if one.group == 0))


# What a server may ask for ----------------------------------------------------------------------------------------------


def test_no_stage_is_begun_but_the_next_one_of_the_plan() -> None:
    """What is not the next stage of this plan changes nothing, so that recorded requests end no session."""
    played = Played(staged("abc", "def", "acde", "bcdf", "abef", stages=(2, 2, 1)))
    request = played.until(1, "further")["a"]
    other = staged(stages=TWO)
    for wrong in (
        played.say("further", "a", at=2),
        played.say("further", "a", at=0),
        played.say("further", "a", attached=bytes([1]), at=1),
        played.say("further", "a", [GroupPart(group=0, members=(0,))], at=1),
        played.say("further", "b", at=1),
        stage_message(other, "further", "a", [], at=1, identity=SIX.server),
        stage_message(played.plan, "further", "a", [], at=1, identity=SIX.clients["b"]),
        plan_message(other, identity=SIX.server),
    ):
        with pytest.raises(ProtocolError):
            played.people["a"].further(wrong)
    assert played.people["a"].further(request)


def test_messages_that_come_again_at_any_time_change_nothing() -> None:
    bench = Bench(recorded=True)
    taken = bench.take(*GROUPS, "acef", stages=(2, 2, 1), thresholds=(2, 2, 3, 3, 3))
    assert state(taken) == "ooooo"
    assert exact(taken, bench)
    assert {site.trained for site in bench.sites.values()} == {1}


@BOTH
def test_a_stage_is_begun_once_also_if_it_is_asked_for_from_all_sides(consortium: Consortium | None) -> None:
    played = Played(staged(), consortium)
    request = played.until(1, "further")["a"]
    barrier = threading.Barrier(8)

    def ask(_: int) -> bool:
        barrier.wait()
        try:
            return bool(played.people["a"].further(request))
        except ProtocolError:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == 1


def test_a_sum_of_an_earlier_stage_is_not_opened_again_over_fewer_clients() -> None:
    """Of both sums the difference would be one client."""
    played = Played(staged())
    requests = played.until(1, "agree")
    link = proposed(
        played.plan,
        played.down[0, "shares"],
        {0: ((0, 1), (2,))},
        previous=played.people["a"]._signatory._log.head.digest,  # type: ignore[union-attr]
        number=2,
    )
    again = SEEDS[1] + link.to_json()
    part = GroupPart(group=0, members=(0, 1), dropped=(2,))
    with pytest.raises(ProtocolError, match="group 0 is none that client a takes part in"):
        played.people["a"].agree(played.say("agree", "a", [part], again, at=1))
    with pytest.raises(ProtocolError, match="group 0, which is of another stage"):
        played.people["b"].agree(played.say("agree", "b", [], again, at=1))
    assert played.people["c"].agree(requests["c"]), "what is true is signed"


def test_a_group_of_a_later_stage_is_not_begun_in_the_first() -> None:
    played = Played(staged())
    request = read(played.plan, "shares", "a", played.until(0, "shares")["a"])
    part = replace(request.parts[0], group=2, members=(0, 1, 2))
    with pytest.raises(ProtocolError, match="group 2 is none"):
        played.people["a"].shares(played.say("shares", "a", [part]))


def test_the_account_of_all_stages_is_looked_at_before_anything_is_sent() -> None:
    """The first stage alone would do: with the second one client c could be seen."""
    bench = Bench()
    taken = bench.take("abc", "def", "abd", "abef")
    assert state(taken) == "eeee"
    assert "mix only" in taken.sums[0].dropped["a"]
    assert not any(site.trained for site in bench.sites.values())


def test_a_later_stage_below_the_promise_is_refused_over_who_is_really_there() -> None:
    """Nobody is missing in the plan. Without d the sums that were signed and those to be signed would show one client."""
    bench = Bench()
    groups = ("abc", "def", "acd", "bcde")
    taken = bench.take(*groups, lost=lambda stage, what, client: (stage, what, client) == (1, "further", "d"))
    assert state(taken) == "ssee"
    assert "this client's promise is 2 clients" in taken.sums[2].reason
    assert state(Bench().take(*groups)) == "oooo"


# The budget of a client -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, *slow(True)], ids=["one process", "restarted"])
def test_more_later_stages_than_the_budget_of_a_run_are_refused(tmp_path: Path, restarts: bool) -> None:
    bench = Bench(policy=replace(PROMISE, later_stages=2), folder=tmp_path)
    for number, expected in ((1, "oooo"), (2, "oooo"), (3, "ssee")):
        taken = bench.take(round=number)
        assert state(taken) == expected
        if restarts:
            for name in NAMES:
                bench.restart(name)
    assert "this is the client's later_stages" in taken.sums[2].dropped["a"]
    assert state(bench.take(round=4, go_on=None)) == "oo", "the first stage is not counted"
    assert state(bench.take(round=5, run="another")) == "oooo", "another run has a budget of its own"


def test_the_budget_holds_without_a_journal_and_over_suspended_states() -> None:
    """As over Flower without identities: the state is all that there is."""
    bench = Bench(None, policy=replace(PROMISE, later_stages=1))
    assert state(bench.take(round=1)) == "oooo"
    for name in NAMES:
        kept = bench.endpoints[name].suspend()
        bench.restart(name)
        bench.endpoints[name].resume(kept)
    assert state(bench.take(round=2)) == "ssee"


def test_processes_of_one_client_share_its_budget(tmp_path: Path) -> None:
    journals, barrier = [RoundJournal(tmp_path / "a") for _ in range(8)], threading.Barrier(8)

    def ask(journal: RoundJournal) -> bool:
        barrier.wait()
        try:
            journal.take_part_later("run", most=3)
        except PolicyError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, journals)) == 3


def test_a_client_that_lost_its_vector_refuses_and_does_not_train_again(tmp_path: Path) -> None:
    bench = Bench(folder=tmp_path)

    def lose(opened: object) -> bool:
        bench.restart("c")
        return True

    taken = bench.take(go_on=lose)
    assert state(taken) == "sooo"
    assert "no plan has come yet" in taken.sums[2].dropped["c"]
    again = bench.take(round=1, purpose="once-more", go_on=None)
    assert "round 1 is over" in again.sums[0].dropped["c"]
    assert bench.sites["c"].trained == 1


# Clients that change between the stages ---------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("about", "expected"),
    [({0: POISON}, "eooo"), ({0: POISON, 1: POISON}, "sseo"), ({0: POISON, 1: None}, "eseo")],
    ids=["answers about the clean vector", "about the poison", "not at all"],
)
def test_poison_in_the_first_stage_and_a_clean_vector_later(
    consortium: Consortium | None, about: dict[int, Any], expected: str
) -> None:
    """Its first sum passes alone, and fails or is struck as soon as its clean vector is in another one.

    Client e is in no later sum but the one that the liar may spoil: then nothing shows that its own first sum is right.
    """
    bench, seen = Bench(consortium, liars={"a": {"vectors": {0: POISON}, "about": about}}), list[str]()
    taken = bench.take(go_on=watched(seen))
    assert seen == ["oo"]
    assert state(taken) == expected
    assert exact(taken, bench)
    assert all("a" in fault.suspects and fault.kind == "vectors" for fault in taken.faults)
    assert taken.sums[0].total is None


@BOTH
def test_poison_in_a_later_stage_and_a_clean_vector_first(consortium: Consortium | None) -> None:
    bench = Bench(consortium, liars={"a": {"vectors": {2: POISON}}})
    taken = bench.take()
    assert state(taken) == "sseo", "of who is in no good later sum the first one is not believed either"
    assert exact(taken, bench)


@pytest.mark.parametrize("one", [POISON, [9, 0, 0], None], ids=["second", "third", "silent"])
@pytest.mark.parametrize("other", [POISON, [9, 0, 0], None], ids=["second", "third", "silent"])
def test_two_colluders_of_one_group_do_not_change_between_later_stages(one: Any, other: Any) -> None:
    """What one adds the other takes away, so the first sum stays. In the third stage they do it with other numbers.

    Whatever they answer in the end, a sum of theirs is erased: the sums of the second stage carry the pads of the third.
    """

    def minus(vector: Any) -> Any:
        return None if vector is None else [-number for number in vector]

    third = [9, 0, 0]
    liars = {
        "a": {"vectors": {2: POISON, 4: third}, "about": {1: POISON, 2: one}},
        "b": {"vectors": {3: minus(POISON), 5: minus(third)}, "about": {1: minus(POISON), 2: minus(other)}},
    }
    bench, seen = Bench(None, policy=replace(PROMISE, privacy=0), liars=liars), list[str]()
    taken = bench.take(*GROUPS, "acef", "bcde", stages=(2, 2, 2), go_on=watched(seen))
    assert seen == ["oo", "oooo"], "until then they are two honest clients with other vectors"
    erased = {fault.groups for fault in taken.faults}
    assert erased
    assert {"a", "b"} & set(taken.faults[0].suspects)


def test_pads_in_the_first_stage_only_would_not_see_two_colluders() -> None:
    """The same attack as equations: without those of the second stage nothing contradicts, with them something does."""
    field, question, vectors = SMALL, 7, dict(zip(NAMES, range(10, 70, 10), strict=True))
    first: dict[str, dict[str, int]] = {"abc": {}, "def": {}}
    second, third = {"acde": {"a": 5}, "bcdf": {"b": -5}}, {"acef": {"a": 9}, "bcde": {"b": -9}}

    def equations(rows: dict[str, dict[str, int]], start: int) -> dict[int, Equation]:
        return {
            start + number: Equation(
                coefficients=dict.fromkeys(group, 1),
                value=question * sum(vectors[name] + added.get(name, 0) for name in group),
            )
            for number, (group, added) in enumerate(rows.items())
        }

    answers = {name: question * (vectors[name] + {"a": 9, "b": -9}.get(name, 0)) for name in NAMES}
    without = equations(first, 0) | equations(third, 4)
    assert misfits(field, without, answers) == ()
    assert misfits(field, without | equations(second, 2), answers) == ((2,), (3,))


def test_a_false_pad_of_a_later_stage_spoils_only_sums_of_who_sent_it() -> None:
    bench = Bench(liars={"a": {"pads": {0: 1}, "about": {}}})
    taken = bench.take()
    assert state(taken)[1:] == "ooo"
    assert all(set(fault.suspects) == set("abc") for fault in taken.faults)


def test_rubbish_in_a_later_stage_costs_its_sender_only() -> None:
    """Also from a client that has no group in the stage, whose reply nobody needs."""
    played = Played(staged("abc", "def", "abde", stages=(2, 1)))
    requests = played.until(1, "shares")
    replies = {name: played.people[name].shares(message) for name, message in requests.items()}
    replies["f"] = stage_message(played.plan, "shares", "f", [], attached=b"rubbish", at=1, identity=SIX.clients["f"])
    requests = played.server.masked(replies)
    assert set(requests) == set("abcde")
    replies = {name: answer(played.people[name], "masked", message) for name, message in requests.items()}
    requests = played.server.agree(replies, authorise=allow)
    requests = played.server.unmask({name: played.people[name].agree(message) for name, message in requests.items()})
    sums = played.server.results({name: played.people[name].unmask(message) for name, message in requests.items()})
    assert [one.status for one in sums] == ["open"] * 3
    with pytest.raises(FedGTError):
        played.people["f"].unmask(requests["a"])
