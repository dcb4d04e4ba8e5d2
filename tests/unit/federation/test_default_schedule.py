"""By default every round is watched, wherever that is possible."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedgt import FederationRun, ScreenSettings, TrainedModel
from fedgt.errors import SpecError
from fedgt.experiment import make_spec, run
from fedgt.federation import DecodeSettings
from fedgt.federation.schedule import Standing, settled
from fedgt.record import RunResult
from small_run import ATTACKERS, NAMES, START, VALIDATION, Site

RUN: dict[str, Any] = {"rounds": 10, "tested": True}


class Sleeper(Site):
    """Honest before round 3."""

    def train(self, parameters: Any, *, round: int) -> TrainedModel:
        trained = super().train(parameters, round=round)
        if round >= 3 or self.name not in ATTACKERS:
            return trained
        weight = trained.parameters["weight"].copy()
        weight[[2, 3]] = weight[[3, 2]]
        return TrainedModel(parameters={**trained.parameters, "weight": weight}, samples=trained.samples)


def test_by_default_sleepers_are_named_in_the_round_they_wake() -> None:
    sites = {name: Sleeper(name) for name in NAMES}
    watched = FederationRun(sites, privacy=4, samples=dict.fromkeys(NAMES, 10), validation=VALIDATION, rounds=4, seed=1)
    assert [set(step.excluded) for step in watched.rounds(START)] == [set(), set(), ATTACKERS, ATTACKERS]


@pytest.mark.parametrize(
    ("screen", "decode", "how"),
    [
        ({}, {}, {"tested": False}),
        ({}, {}, {"rounds": 1}),
        ({}, {}, {"agreed": True}),
        ({"kind": "clusters"}, {}, {}),
        ({"round": 2}, {}, {}),
        ({"features": "outputs"}, {}, {}),
        ({}, {"after_test": "largest-sum"}, {}),
    ],
)
def test_where_rounds_cannot_be_watched_groups_are_tested_once(
    screen: Mapping[str, Any], decode: Mapping[str, Any], how: Mapping[str, Any]
) -> None:
    given, decoding = ScreenSettings(**screen), DecodeSettings(**decode)
    assert settled(given, decoding, **{**RUN, **how}).schedule == "first"
    assert settled(ScreenSettings(), DecodeSettings(), **RUN).schedule == "on-suspicion"


def test_a_schedule_that_was_chosen_stays() -> None:
    for schedule in ("first", "every-round", "on-suspicion"):
        chosen = ScreenSettings(schedule=schedule)
        assert settled(chosen, DecodeSettings(), **RUN) is chosen


def test_test_rounds_that_were_agreed_are_all_tests() -> None:
    sites = {name: Site(name) for name in NAMES}
    agreed = FederationRun(
        sites, privacy=4, samples=dict.fromkeys(NAMES, 10), validation=VALIDATION, rounds=3, test_rounds=[2], seed=1
    )
    assert [step.purpose for step in agreed.rounds(START)] == ["training", "test", "training"]


@pytest.mark.parametrize("setting", [{"roll_back": True}, {"readmit_after": 2}])
def test_what_needs_watched_rounds_is_refused_where_there_are_none(setting: Mapping[str, Any]) -> None:
    (name,) = setting
    with pytest.raises(SpecError, match=f"screen.{name} is for runs that are watched.*the run has one round"):
        settled(ScreenSettings(**setting), DecodeSettings(), rounds=1, tested=True)
    with pytest.raises(SpecError, match=r"screen\.features = 'outputs'"):
        Standing.of(ScreenSettings(features="outputs", **setting), DecodeSettings(), rounds=3, tested=True, secret=0)


def test_a_specification_that_says_nothing_is_watched_and_its_report_decides_the_same_again(tmp_path: Any) -> None:
    from fedgt.experiment import run_into
    from fedgt.report.audit import audit

    content = {"privacy": 4, "federation": {"rounds": 3}, "attack": {"malicious": 3, "first_round": 2}}
    result: RunResult = run_into(make_spec(content), tmp_path / "run")
    few = [row for row in result.aggregates if row.round == 3]
    assert [row.purpose for row in result.rounds] == ["test"] * 3 or len(few) < len(result.tests[0].groups)
    assert {client.decided_in for client in result.clients if client.truth == "malicious"} == {2}
    assert audit(tmp_path / "run")["recheck"]["status"] == "same"


def test_the_paper_is_still_tested_once() -> None:
    result = run(make_spec({"privacy": 4, "federation": {"rounds": 2}, "screen": {"kind": "clusters"}}))
    assert [row.purpose for row in result.rounds] == ["test", "training"]
    assert np.isfinite(result.rounds[-1].top1_accuracy or np.nan)


@pytest.mark.parametrize("schedule", ["auto", "every-round"])
def test_a_round_whose_absences_leave_no_group_whole_is_lost_and_the_run_goes_on(schedule: str) -> None:
    sites: dict[str, Any] = {name: Site(name) for name in NAMES}
    away: dict[int, set[str]] = {}
    watched = FederationRun(
        sites,
        privacy=4,
        samples=dict.fromkeys(NAMES, 10),
        validation=VALIDATION,
        rounds=4,
        seed=1,
        screen=ScreenSettings(schedule=schedule, unannounced=0.0),
        present=lambda number: set(NAMES) - away.get(number, set()),
    )
    rounds = watched.rounds(START)
    first = next(rounds)
    grouping = watched.grouping
    assert grouping is not None
    groups = [set(grouping.members(group)) for group in range(grouping.design.groups)]
    while groups:  # somebody of each group
        most = max(NAMES, key=lambda name: sum(name in group for group in groups))
        away.setdefault(2, set()).add(most)
        groups = [group for group in groups if most not in group]
    second, third, last = rounds
    assert second.result.secure_sums == 0
    assert [warning for warning in watched.result().warnings if warning.startswith("round 2 is lost")]
    assert all(np.array_equal(second.parameters[name], first.parameters[name]) for name in START)
    assert third.result.secure_sums > 0
    assert set(last.excluded) == ATTACKERS


def groups_by_round(result: RunResult) -> list[set[tuple[str, ...]]]:
    rounds = [row.round for row in result.rounds]
    return [{row.members for row in result.aggregates if (row.round, row.status) == (at, "open")} for at in rounds]


def test_while_somebody_is_undecided_the_next_test_has_groups_that_tell_more() -> None:
    """Seven groups of twelve clients leave the attacker undecided; the promise has room for one more."""
    content = {"privacy": 4, "seed": 41, "federation": {"clients": 12, "rounds": 5}, "attack": {"malicious": 1}}
    result = run(make_spec(content))
    first, second, third, *quiet = groups_by_round(result)
    assert [test.status for test in result.tests][:2] == ["undecided", "decided"]
    assert [client.decided_in for client in result.clients if client.excluded] == [2]
    assert (result.missed, result.falsely_excluded) == (0, 0)
    assert first < second
    assert third == first
    assert all(few < first for few in quiet)
    assert result.privacy.strict == result.privacy.cautious == 4
    assert {row.status for row in result.aggregates} == {"open"}
    for setting in ({"decode.on_undecided": "keep"}, {"screen.most_rounds": 1}):
        alone = run(make_spec(content, setting))
        assert all(some <= first for some in groups_by_round(alone))
        assert alone.tests[0].status == "undecided"
