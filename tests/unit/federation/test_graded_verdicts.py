"""Decisions with reasons, from a posterior of graded evidence."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedgt.decode import RankedSet
from fedgt.design import from_matrix
from fedgt.errors import RunHaltedError, SpecError
from fedgt.evidence import GradedDecoding
from fedgt.evidence.decoding import GradedStatus
from fedgt.federation import DecodeSettings, Exclusion, exclude, from_posterior
from fedgt.grouping import Grouping
from fedgt.types import BoolArray

GROUPING = Grouping(
    design=from_matrix([[1, 1, 0, 1, 0], [0, 1, 1, 1, 0], [1, 0, 1, 1, 0]]), clients=("ann", "bob", "cyd", "dan", "eve")
)
ALL = np.ones(3, dtype=np.bool_)


def decoding(*posterior: float, best: tuple[tuple[int, ...], ...] = ((3,),), beta: float = 0.5) -> GradedDecoding:
    p = np.array(posterior)
    undecided = (p >= 0.1) & (p <= 0.9)
    return GradedDecoding(
        posterior=p,
        log_odds=np.log1p(-p) - np.log(p),
        flagged=p > 1 - beta,
        harmless=np.zeros(len(p), dtype=np.bool_),
        unconfirmed=np.zeros(len(p), dtype=np.bool_),
        undecided=undecided,
        count=np.array([0.1, 0.9, 0.0]),
        against_nobody=4.0,
        best=tuple(RankedSet(clients=one, probability=1 / len(best)) for one in best),
        attacks=1,
        status="undecided" if undecided.any() else "decided",
        reason="as the sums say",
    )


DECIDED = decoding(0.001, 0.00001, 0.001, 0.99999, 0.001)
TIED = decoding(0.001, 0.55, 0.45, 0.99, 0.001, best=((1, 3), (2, 3)))
UNEXPLAINED = replace(
    decoding(0.1, 0.1, 0.1, 0.1, 0.1),
    status="unexplained",
    posterior=np.full(5, np.nan),
    log_odds=np.full(5, np.nan),
    flagged=np.zeros(5, dtype=np.bool_),
    undecided=np.ones(5, dtype=np.bool_),
)
NOTHING = replace(UNEXPLAINED, status="no-evidence", undecided=np.zeros(5, dtype=np.bool_))


def exclude_graded(
    grouping: Grouping,
    tested: BoolArray,
    decoding: GradedDecoding,
    *,
    last: bool,
    silent: Mapping[str, str] | None = None,
    heard: Mapping[str, int] | None = None,
    **policies: Any,
) -> Exclusion:
    found = from_posterior(grouping, tested, decoding, heard)
    return exclude(grouping, found, DecodeSettings(**policies), last=last, silent=silent)


def test_who_is_accused_is_left_out_with_its_sums_and_probability_as_the_reason() -> None:
    found = exclude_graded(GROUPING, ALL, DECIDED, last=True)
    assert found.excluded == ("dan",)
    assert found.kept == ("ann", "bob", "cyd", "eve")
    assert not found.halt
    assert found.reason == "as the sums say; left out: dan"
    assert [v.verdict for v in found.verdicts] == ["keep", "keep", "keep", "exclude", "untested"]
    dan = found.verdicts[3]
    assert dan.reason.startswith("the 3 sums it is in")
    assert "above 99.99 %" in dan.reason
    assert dan.groups == (0, 1, 2)
    assert "the 2 sums it is in" in found.verdicts[0].reason
    assert "0.10 %" in found.verdicts[0].reason
    assert "below 0.01 %" in found.verdicts[1].reason


def test_only_tested_groups_count() -> None:
    found = exclude_graded(GROUPING, np.array([False, True, False]), DECIDED, last=True)
    assert found.verdicts[0].verdict == "untested"
    assert "none of its groups has an outcome; kept" in found.verdicts[0].reason
    assert "the 1 sums it is in" in found.verdicts[3].reason


@pytest.mark.parametrize(
    ("last", "policy", "excluded", "again"),
    [
        (False, "test-again", ("dan",), True),
        (True, "test-again", ("bob", "dan"), False),
        (False, "decide", ("bob", "dan"), False),
        (True, "decide", ("bob", "dan"), False),
        (False, "keep", ("dan",), False),
        (True, "keep", ("dan",), False),
    ],
)
def test_undecided_clients_wait_are_decided_or_kept_as_the_policy_says(
    last: bool, policy: str, excluded: tuple[str, ...], again: bool
) -> None:
    found = exclude_graded(GROUPING, ALL, TIED, last=last, on_undecided=policy)
    assert found.excluded == excluded
    assert ("another test round is asked for" in found.reason) == again
    bob, cyd = found.verdicts[1], found.verdicts[2]
    assert (bob.verdict, cyd.verdict) == ("exclude (uncertain)" if "bob" in excluded else "undecided", "undecided")
    ends = ("left out at minimum expected cost", "kept for now")
    assert bob.reason.endswith(ends[0] if "bob" in excluded else ends[1])
    assert cyd.reason.endswith(ends[1])


def test_the_reason_names_the_rivals_of_an_undecided_client() -> None:
    verdicts = exclude_graded(GROUPING, ALL, TIED, last=False).verdicts
    assert "malicious with probability 0.55; cyd would explain the same sums" in verdicts[1].reason
    assert "malicious with probability 0.45; bob would explain the same sums" in verdicts[2].reason
    pair = decoding(0.001, 0.55, 0.45, 0.45, 0.001, best=((1,), (2, 3)))
    assert "cyd and dan would explain" in exclude_graded(GROUPING, ALL, pair, last=False).verdicts[1].reason
    alone = decoding(0.001, 0.55, 0.001, 0.99, 0.001, best=((1, 3), (3,)))
    assert "its absence would explain" in exclude_graded(GROUPING, ALL, alone, last=False).verdicts[1].reason
    unlisted = decoding(0.001, 0.55, 0.001, 0.99, 0.001, best=((1, 3),))
    reason = exclude_graded(GROUPING, ALL, unlisted, last=False).verdicts[1].reason
    assert reason == "malicious with probability 0.55; kept for now"


@pytest.mark.parametrize("found", [UNEXPLAINED, NOTHING])
def test_where_nobody_can_be_named_the_policy_stops_or_keeps_everybody(found: GradedDecoding) -> None:
    silent = {"eve": "masked: timeout"}
    stopped = exclude_graded(GROUPING, ALL, found, last=True, silent=silent, on_untested="exclude")
    assert stopped.halt
    assert stopped.excluded == ()
    assert "the run stops here, as the policy says" in stopped.reason
    assert [v.verdict for v in stopped.verdicts] == ["undecided"] * 4 + ["untested"]
    kept = exclude_graded(GROUPING, ALL, found, last=True, on_undecidable="keep-all")
    assert not kept.halt
    assert kept.excluded == ()
    assert "everybody is kept" in kept.reason
    followed = exclude_graded(GROUPING, ALL, found, last=True, on_undecidable="follow-decoder")
    assert (followed.halt, followed.excluded) == (False, ())  # there is no accusation to follow


@pytest.mark.parametrize(
    ("found", "policies", "halt"),
    [
        (UNEXPLAINED, {}, False),
        (UNEXPLAINED, {"on_undecided": "keep"}, True),
        (UNEXPLAINED, {"on_undecided": "decide"}, True),
        (NOTHING, {}, True),
    ],
)
def test_where_no_set_explains_the_sums_the_run_stops_after_the_last_test(
    found: GradedDecoding, policies: dict[str, Any], halt: bool
) -> None:
    """A run with one attacker was stopped after its first test, and the third test would have named it."""
    first = exclude_graded(GROUPING, ALL, found, last=False, **policies)
    assert (first.halt, first.excluded) == (halt, ())
    assert ("another test round is asked for" in first.reason) is not halt


@pytest.mark.parametrize(
    ("policy", "silent", "excluded"),
    [
        ("exclude-silent", {}, False),
        ("exclude-silent", {"eve": "absent"}, True),
        ("keep", {"eve": "absent"}, False),
        ("exclude", {}, True),
    ],
)
def test_a_client_without_a_tested_group_is_kept_or_left_out_as_the_policy_says(
    policy: str, silent: dict[str, str], excluded: bool
) -> None:
    found = exclude_graded(GROUPING, ALL, DECIDED, last=True, on_untested=policy, silent=silent)
    eve = found.verdicts[4]
    assert (eve.verdict, eve.excluded) == ("untested", excluded)
    assert ("took no part in the test: absent" in eve.reason) == bool(silent)
    assert eve.reason.endswith("left out, as the policy says" if excluded else "kept, as the policy says")


def test_who_was_in_a_sum_of_an_earlier_test_round_is_tested() -> None:
    """A further round holds few clients; the posterior is about all that were ever in a sum."""
    sure = decoding(0.001, 0.001, 0.001, 0.001, 0.97, best=((4,),))
    found = exclude_graded(GROUPING, ALL, sure, last=True, heard={"eve": 2, "ann": 1})
    assert found.excluded == ("eve",)
    assert found.verdicts[4].verdict == "exclude"
    assert "the 2 sums it is in" in found.verdicts[4].reason
    assert "the 3 sums it is in" in found.verdicts[0].reason
    cleared = exclude_graded(GROUPING, ALL, DECIDED, last=True, heard={"eve": 2}, silent={"eve": "absent"})
    assert (cleared.verdicts[4].verdict, cleared.verdicts[4].excluded) == ("keep", False)


@pytest.mark.parametrize(("policy", "excluded"), [("exclude-silent", True), ("exclude", True), ("keep", False)])
def test_falling_silent_in_a_further_test_is_no_way_out_for_an_undecided_client(policy: str, excluded: bool) -> None:
    open_ = decoding(0.001, 0.001, 0.001, 0.99, 0.3, best=((3,), (3, 4)))
    found = exclude_graded(
        GROUPING,
        ALL,
        open_,
        last=False,
        heard={"eve": 3},
        silent={"eve": "masked: timeout"},
        on_untested=policy,
    )
    eve = found.verdicts[4]
    assert (eve.verdict, eve.excluded) == ("exclude (uncertain)" if excluded else "undecided", excluded)
    assert ("took no part in the further test: masked: timeout; left out" in eve.reason) == excluded


def test_when_everybody_is_left_out_the_run_stops() -> None:
    everybody = decoding(0.99, 0.99, 0.99, 0.99, 0.99)
    found = exclude_graded(GROUPING, ALL, everybody, last=True, on_untested="exclude")
    assert found.halt
    with pytest.raises(RunHaltedError, match="nobody is left"):
        _ = found.kept
    assert "nobody is left, so the run stops" in found.reason


@pytest.mark.parametrize(
    ("setting", "choices"),
    [
        ("on_undecided", "test-again, decide, keep"),
        ("on_undecidable", "stop, keep-all, follow-decoder"),
        ("on_untested", "keep, exclude-silent, exclude"),
        ("on_suspicious", "keep, exclude, stop"),
    ],
)
def test_an_unknown_policy_lists_the_choices(setting: str, choices: str) -> None:
    with pytest.raises(SpecError, match=choices):
        DecodeSettings(**{setting: "maybe"})


def test_a_verdict_carries_posterior_and_log_odds_of_its_client() -> None:
    found = exclude_graded(GROUPING, ALL, TIED, last=True)
    of: npt.NDArray[np.float64] = TIED.posterior
    assert [v.posterior for v in found.verdicts] == of.tolist()
    assert [v.log_odds for v in found.verdicts] == TIED.log_odds.tolist()


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("harmless", "no validation loss rises with it; kept, as the policy says"),
        ("nobody", "not sure enough that anybody is; kept"),
    ],
)
def test_a_suspect_who_is_not_accused_is_kept_and_not_called_unsuspicious(status: GradedStatus, said: str) -> None:
    """Its posterior is near one, given that somebody attacks."""
    nobody = np.zeros(5, dtype=np.bool_)
    found = exclude_graded(
        GROUPING,
        ALL,
        replace(DECIDED, status=status, flagged=nobody, harmless=DECIDED.flagged & (status == "harmless")),
        last=True,
    )
    assert found.excluded == ()
    dan = found.verdicts[3]
    assert dan.verdict == ("suspicious" if status == "harmless" else "undecided")
    assert said in dan.reason
    assert found.verdicts[0].verdict == "keep"


@pytest.mark.parametrize("last", [True, False])
def test_a_suspect_whom_the_second_opinion_does_not_confirm_is_kept(last: bool) -> None:
    """One of two suspects is confirmed, the other one owns other classes."""
    both = decoding(0.001, 0.00001, 0.99999, 0.99999, 0.001, best=((2, 3),))
    only = np.arange(5) == 3
    found = exclude_graded(GROUPING, ALL, replace(both, flagged=only, unconfirmed=np.arange(5) == 2), last=last)
    assert found.excluded == (GROUPING.clients[3],)
    assert found.verdicts[2].verdict == "suspicious"
    assert "the margins do not confirm that it mislabels; kept, as the policy says" in found.verdicts[2].reason


SUSPICIOUS = replace(
    DECIDED, status="harmless", flagged=np.zeros(5, dtype=np.bool_), harmless=DECIDED.flagged, reason="no loss rises"
)


@pytest.mark.parametrize(
    ("policy", "excluded", "halt"), [("keep", (), False), ("exclude", ("dan",), False), ("stop", (), True)]
)
def test_what_becomes_of_suspicious_clients_is_the_users_policy(
    policy: str, excluded: tuple[str, ...], halt: bool
) -> None:
    found = exclude_graded(GROUPING, ALL, SUSPICIOUS, last=True, on_suspicious=policy)
    assert (found.excluded, found.halt) == (excluded, halt)
    assert found.verdicts[3].verdict == "suspicious"
    assert "suspicious: dan" in found.reason
    assert ("somebody looks at those who are suspicious" in found.reason) == halt
    if halt:
        with pytest.raises(RunHaltedError, match="suspicious: dan"):
            _ = found.kept


@pytest.mark.parametrize("policy", ["exclude", "stop"])
def test_nobody_is_left_out_and_nothing_stops_for_suspicion_while_a_further_test_is_asked_for(policy: str) -> None:
    open_ = replace(SUSPICIOUS, undecided=np.arange(5) == 1, status="undecided")
    waiting = exclude_graded(GROUPING, ALL, open_, last=False, on_suspicious=policy)
    assert (waiting.excluded, waiting.halt) == ((), False)
    ended = exclude_graded(GROUPING, ALL, open_, last=True, on_suspicious=policy)
    assert (ended.excluded, ended.halt) == ((("dan",), False) if policy == "exclude" else ((), True))
