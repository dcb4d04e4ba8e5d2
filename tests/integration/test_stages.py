"""Sums of one set of local models in several stages: what a later stage adds, and what its absences cost (decision 0026)."""

from typing import Any

import pytest

from fedgt.errors import ProtocolError, SpecError
from fedgt.secagg import ClientSession, RoundPlan, RunTerms, ServerSession
from fedgt.secagg.challenge import seed_hash
from fedgt.secagg.messages import plan_message
from secagg_lab import Consortium, allow, answer, make_plan
from stage_lab import GROUPS, NAMES, SIX, TWO, Bench, exact, state, watched

BOTH = pytest.mark.parametrize("consortium", [SIX, None], ids=["identities", "anonymous"])
SEEDS = (bytes(range(16)), bytes(range(1, 17)))


# What a stage adds ------------------------------------------------------------------------------------------------------


@BOTH
def test_a_later_stage_opens_the_other_sums_of_the_same_local_models(consortium: Consortium | None) -> None:
    bench, seen = Bench(consortium), list[str]()
    taken = bench.take(go_on=watched(seen))
    assert (seen, state(taken)) == (["oo"], "oooo")
    assert exact(taken, bench)
    assert {site.trained for site in bench.sites.values()} == {1}, "nobody trains twice"


@BOTH
def test_the_first_stage_alone_costs_no_message_of_another(consortium: Consortium | None) -> None:
    for go_on in (None, lambda opened: False):
        bench = Bench(consortium)
        taken = bench.take(go_on=go_on)
        assert state(taken) == "oo"
        assert {stage for stage, *_ in bench.messages} == {0}
        assert taken.bytes_down == sum(len(message) for *_, message in bench.messages)


@BOTH
def test_three_stages_and_a_stage_without_some_of_the_clients(consortium: Consortium | None) -> None:
    """Client f is in no group of the second stage, and answers its question all the same."""
    bench, asked = Bench(consortium), list[str]()
    groups = ("abc", "def", "abde", "acdf")
    taken = bench.take(*groups, stages=(2, 1, 1), go_on=watched(asked))
    assert (asked, state(taken)) == (["oo", "ooo"], "oooo")
    assert exact(taken, bench)
    assert {client for stage, message, client, _ in bench.messages if (stage, message) == (1, "unmask")} == set(NAMES)


def test_each_stage_asks_who_may_be_opened_about_its_own_groups() -> None:
    asked = []

    def authorise(members: tuple[tuple[str, ...], ...]) -> tuple[str | None, ...]:
        asked.append(tuple(map("".join, members)))
        return (None, None, "not this one", None)

    taken = Bench().take(authorise=authorise)
    assert asked == [("abc", "def", "", ""), ("", "", *GROUPS[2:])]
    assert state(taken) == "sseo"


# What an absence costs --------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("message", ["further", "shares", "masked"])
def test_who_leaves_between_two_stages_takes_its_first_sum_with_it(consortium: Consortium | None, message: str) -> None:
    """Nothing shows that the sum holds the vector that it would have given later; its peers are not blamed."""
    bench = Bench(consortium)
    taken = bench.take(lost=lambda stage, what, client: (stage, what, client) == (1, message, "c"))
    assert state(taken) == "sooo"
    assert "c is in no open sum of stage 2" in taken.sums[0].reason
    assert not taken.faults
    assert not any(one.faults for one in taken.sums)
    assert exact(taken, bench)
    assert taken.sums[2].dropped["c"].startswith(message)


@BOTH
def test_who_left_in_the_first_stage_is_asked_nothing_in_the_second(consortium: Consortium | None) -> None:
    bench = Bench(consortium)
    taken = bench.take(lost=lambda stage, what, client: (stage, what, client) == (0, "unmask", "c"))
    assert not [one for one in bench.messages if one[0] == 1 and one[2] == "c"]
    assert state(taken) == "sooo"
    assert taken.sums[2].dropped["c"] == "unmask: lost on its way", "where it has left, and why"


@BOTH
def test_who_falls_silent_after_its_vector_costs_no_sum(consortium: Consortium | None) -> None:
    message = "unmask" if consortium is None else "agree"
    bench = Bench(consortium)
    taken = bench.take(lost=lambda stage, what, client: (stage, what, client) == (1, message, "c"))
    assert state(taken) == "oooo"
    assert exact(taken, bench)


def test_a_first_sum_that_was_lost_keeps_nobody_from_the_second_stage() -> None:
    """Two of its three members leave before the vectors, and the third one gives its vector in the second stage."""
    bench = Bench()
    taken = bench.take(
        lost=lambda stage, what, client: (stage, what) == (0, "shares") and client in "ab",
    )
    assert state(taken) == "eo" + "oo"
    assert taken.sums[2].members == tuple("cde")
    assert exact(taken, bench)


def test_a_stage_of_which_nothing_may_be_opened_strikes_the_sums_that_it_was_to_look_at() -> None:
    taken = Bench().take(authorise=lambda members: tuple("no" if len(one) > 3 else None for one in members))
    assert state(taken) == "ssee"


# What is kept, and for how long -----------------------------------------------------------------------------------------


def committed(bench: Bench) -> list[Any]:
    """What the clients keep."""
    return [getattr(one._session, "_committed", None) for one in bench.endpoints.values()]


@BOTH
def test_a_vector_is_kept_until_the_last_question_and_overwritten_then(consortium: Consortium | None) -> None:
    bench = Bench(consortium)
    kept: list[Any] = []

    def look(opened: object) -> bool:
        kept.extend(committed(bench))
        assert all(list(one.pads) == [1] for one in kept)
        kept[:] = [one.vector for one in kept]
        assert all(vector.any() for vector in kept)
        return True

    bench.take(go_on=look)
    assert len(kept) == len(NAMES)
    assert not any(vector.any() for vector in kept)
    assert all(one._session is not None and one._session.closed for one in bench.endpoints.values())


@BOTH
def test_the_next_plan_ends_what_a_later_stage_was_kept_for(consortium: Consortium | None) -> None:
    bench = Bench(consortium)
    bench.take(go_on=None)
    vectors = [one.vector for one in committed(bench)]
    assert all(vector.any() for vector in vectors)
    bench.take(go_on=None, round=2)
    assert not any(vector.any() for vector in vectors)


@BOTH
def test_a_session_goes_on_in_another_process_between_two_stages(consortium: Consortium | None) -> None:
    """As over Flower, where every message starts one: the vector is in the suspended state, and nothing is trained again."""
    bench = Bench(consortium)

    def moved(opened: object) -> bool:
        for name in NAMES:
            suspended = bench.endpoints[name].suspend()
            bench.restart(name)
            bench.endpoints[name].resume(suspended)
        return True

    taken = bench.take(go_on=moved)
    assert state(taken) == "oooo"
    assert exact(taken, bench)
    assert {site.trained for site in bench.sites.values()} == {1}


# What a plan may say ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stages": (2, 1)}, "add up to 4"),
        ({"stages": (4, 0)}, "positive"),
        ({"stages": (4.0,)}, "positive"),
        ({"stages": (True, 3)}, "positive"),
        ({"stages": (2, 2), "challenges": (seed_hash(SEEDS[0]),)}, "one of its own"),
        ({"stages": (2, 2), "challenges": (seed_hash(SEEDS[0]),) * 2}, "one of its own"),
        ({"stages": (1, 3)}, "in a later stage only"),
    ],
)
def test_a_plan_whose_stages_make_no_sense_is_none(changes: dict[str, tuple[int, ...]], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        make_plan(*GROUPS, **changes)


def test_a_plan_with_stages_is_read_as_it_was_written() -> None:
    plan = make_plan(*GROUPS, stages=TWO, challenges=tuple(map(seed_hash, SEEDS)))
    assert RoundPlan.from_json(plan.to_json()) == plan
    assert [list(plan.of_stage(stage)) for stage in (0, 1)] == [[0, 1], [2, 3]]
    assert make_plan(*GROUPS).stages == (4,)


def test_terms_that_pin_the_rows_allow_their_stages_and_no_other_rows() -> None:
    """Rows that the server leaves out of a plan, for who is absent, are empty groups of it."""
    pinned = RunTerms.of(make_plan(*GROUPS), design=True)
    for groups, expected in ((GROUPS, "oooo"), ((*GROUPS[:3], ""), "oooe"), (("abc", "def", "acde", "abde"), "eeee")):
        bench = Bench(terms=pinned)
        taken = bench.take(*groups)
        assert state(taken) == expected
    assert "does not belong to group 3" in taken.sums[0].dropped["a"]


def test_stages_without_a_question_each_are_refused_on_both_sides() -> None:
    plan = make_plan(*GROUPS, stages=TWO)
    with pytest.raises(ProtocolError, match="one seed a stage"):
        ServerSession(plan)
    with pytest.raises(ProtocolError, match="a challenge for each"):
        ClientSession("a").keys(plan_message(plan))


def test_a_server_goes_on_after_results_only_and_not_after_the_last_stage() -> None:
    plan = make_plan(*GROUPS, stages=TWO, challenges=tuple(map(seed_hash, SEEDS)))
    server, people = ServerSession(plan, seeds=SEEDS), {name: ClientSession(name) for name in NAMES}
    with pytest.raises(ProtocolError, match="out of order"):
        server.further()
    requests = server.keys()
    for number, first in enumerate(("keys", "further")):
        for stage, following in ((first, server.shares), ("shares", server.masked)):
            requests = following({name: answer(people[name], stage, message) for name, message in requests.items()})
        replies = {name: answer(people[name], "masked", message) for name, message in requests.items()}
        requests = server.unmask(replies, authorise=allow)
        sums = server.results({name: people[name].unmask(message) for name, message in requests.items()})
        assert len(sums) == 2 + 2 * number
        if number == 0:
            requests = server.further()
    with pytest.raises(ProtocolError, match="out of order"):
        server.further()
