"""Decisions with reasons."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedgt.decode import Decoding, decode
from fedgt.design import from_matrix, named_design
from fedgt.errors import DesignError
from fedgt.federation import DecodeSettings, Exclusion, from_outcomes
from fedgt.federation.verdicts import exclude as decide
from fedgt.grouping import Grouping, assign
from fedgt.types import ErrorRates, Outcomes

RATES = ErrorRates.symmetric(0.05)
GROUPING = assign(named_design("bch-15x8"), [f"client-{i:02d}" for i in range(15)], rng=np.random.default_rng(3))


def exclude(
    grouping: Grouping,
    outcomes: Outcomes,
    decoding: Decoding,
    *,
    silent: Mapping[str, str] | None = None,
    **policies: Any,
) -> Exclusion:
    return decide(grouping, from_outcomes(grouping, outcomes, decoding), DecodeSettings(**policies), silent=silent)


def test_an_accused_client_is_excluded_with_its_groups_as_the_reason() -> None:
    outcomes = Outcomes(values=GROUPING.design.matrix[:, 4].astype(np.int8))
    exclusion = exclude(GROUPING, outcomes, decode(GROUPING.design, outcomes, rates=RATES))
    assert exclusion.excluded == (GROUPING.clients[4],)
    assert not exclusion.halt
    verdict = exclusion.verdicts[4]
    assert verdict.verdict == "exclude"
    assert verdict.reason == f"{len(verdict.groups)} of its {len(verdict.groups)} tested groups positive"
    assert verdict.posterior > 0.5
    assert len(exclusion.kept) == 14


def test_all_groups_positive_stops_by_default_and_never_silently_keeps_everybody() -> None:
    """Case 38."""
    outcomes = Outcomes.parse("1" * 8)
    decoding = decode(GROUPING.design, outcomes, rates=RATES, strategy="count")
    stopped = exclude(GROUPING, outcomes, decoding)
    assert stopped.halt
    assert "the run stops here" in stopped.reason
    assert {v.verdict for v in stopped.verdicts} == {"undecided"}
    kept = exclude(GROUPING, outcomes, decoding, on_undecidable="keep-all")
    assert not kept.halt
    assert kept.excluded == ()
    assert "everybody is kept, as the policy says" in kept.reason
    followed = exclude(GROUPING, outcomes, decoding, on_undecidable="follow-decoder")
    assert len(followed.excluded) == decoding.estimated_malicious == 5


def test_following_a_decoder_that_flags_everybody_stops_because_nobody_is_left() -> None:
    grouping = Grouping(design=from_matrix([[1, 1]]), clients=("a", "b"))
    outcomes = Outcomes.parse("1")
    decoding = decode(grouping.design, outcomes, rates=RATES, strategy="bayes", largest=2, beta=0.9)
    assert decoding.flagged.all()
    exclusion = exclude(grouping, outcomes, decoding, on_undecidable="follow-decoder")
    assert exclusion.halt
    assert "nobody is left" in exclusion.reason


def test_a_client_in_no_group_is_untested_and_kept() -> None:
    grouping = Grouping(design=from_matrix([[1, 1, 0], [1, 0, 0]]), clients=("a", "b", "c"))
    outcomes = Outcomes.parse("0?")
    exclusion = exclude(grouping, outcomes, decode(grouping.design, outcomes, rates=RATES))
    assert exclusion.verdicts[2].verdict == "untested"
    assert exclusion.verdicts[2].reason == "in no group; kept, as the policy says"
    assert "1 not opened" in exclusion.verdicts[0].reason
    assert not exclusion.verdicts[2].excluded


def test_falling_silent_in_the_test_is_no_way_around_it_unless_the_policy_says_so() -> None:
    grouping = Grouping(design=from_matrix([[1, 1, 0], [0, 0, 1]]), clients=("a", "b", "c"))
    outcomes = Outcomes.parse("0?")
    decoding = decode(grouping.design, outcomes, rates=RATES)
    silent = {"c": "masked: timeout"}
    assert exclude(grouping, outcomes, decoding, silent=silent).excluded == ("c",)
    assert exclude(grouping, outcomes, decoding, silent=silent, on_untested="keep").excluded == ()
    assert exclude(grouping, outcomes, decoding).excluded == ()  # lost through others: kept
    assert exclude(grouping, outcomes, decoding, on_untested="exclude").excluded == ("c",)
    verdict = exclude(grouping, outcomes, decoding, silent=silent).verdicts[2]
    assert verdict.verdict == "untested"
    assert "took no part in the test: masked: timeout; left out" in verdict.reason


def test_with_no_outcome_at_all_the_policy_decides() -> None:
    outcomes = Outcomes.parse("?" * 8)
    decoding = decode(GROUPING.design, outcomes, rates=RATES)
    assert decoding.estimated_malicious is None
    assert exclude(GROUPING, outcomes, decoding).halt
    kept = exclude(GROUPING, outcomes, decoding, on_undecidable="keep-all", silent=dict.fromkeys(GROUPING.clients, "x"))
    assert not kept.halt
    assert kept.excluded == ()


def test_a_tie_is_told_to_both_sides_of_it() -> None:
    grouping = Grouping(design=from_matrix([[1, 1, 0, 0], [0, 0, 1, 1]]), clients=("a", "b", "c", "d"))
    outcomes = Outcomes.parse("10")
    decoding = decode(grouping.design, outcomes, rates=RATES, strategy="count", largest=1)
    verdicts = exclude(grouping, outcomes, decoding).verdicts
    assert "as suspicious as b" in verdicts[0].reason
    assert "as suspicious as a" in verdicts[1].reason


def test_seats_do_not_depend_on_the_order_of_registration() -> None:
    """Case 31."""
    names = [f"hospital-{i}" for i in range(15)]
    first = assign(named_design("bch-15x8"), names, rng=np.random.default_rng(7))
    second = assign(named_design("bch-15x8"), names[::-1], rng=np.random.default_rng(7))
    assert first.clients == second.clients


def test_an_absent_client_enters_no_group() -> None:
    """Case 36."""
    absent = GROUPING.clients[3]
    present = set(GROUPING.clients) - {absent}
    members = [GROUPING.members(i, present) for i in range(8)]
    assert all(absent not in group for group in members)
    assert [len(group) for group in members] == [3, 4, 3, 3, 4, 4, 4, 4]
    assert GROUPING.groups_of(absent) == (0, 2, 3)


def test_the_same_participant_twice_and_a_wrong_number_of_clients_are_errors() -> None:
    """Case 37."""
    with pytest.raises(DesignError, match="registered twice"):
        assign(named_design("bch-15x8"), ["a"] * 15, rng=np.random.default_rng(0))
    with pytest.raises(DesignError, match="is for 15 clients, 3 are registered"):
        Grouping(design=named_design("bch-15x8"), clients=("a", "b", "c"))
