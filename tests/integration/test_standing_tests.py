"""A test in every round: whoever attacks later is named in that round, and its poison is in no global model."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt import DecodeSettings, FederationRun, ScreenSettings, TrainedModel
from fedgt.errors import RunHaltedError, SpecError
from fedgt.evidence import GradedDecoding, decode_graded
from fedgt.experiment import make_spec, run, run_into
from fedgt.federation import Step
from fedgt.types import Parameters
from sleepers import Sleeper, harm, held
from slow_cases import slow
from small_run import ATTACKERS, NAMES, START, made

EVERY = ScreenSettings(schedule="every-round")


def sites(wakes: int = 3, **how: Any) -> dict[str, Any]:
    return {name: Sleeper(name, wakes=wakes, **how) for name in NAMES}


def standing(who: Mapping[str, Any] | None = None, **changes: Any) -> FederationRun:
    return made(who or sites(), **({"rounds": 4, "screen": EVERY} | changes))


def test_sleepers_are_named_in_the_round_they_wake_and_their_poison_is_in_no_model() -> None:
    run = standing()
    steps = held(run)
    assert [step.purpose for step in steps] == ["test"] * 4
    assert [set(step.excluded) for step in steps] == [set(), set(), ATTACKERS, ATTACKERS]
    assert all(harm(step.parameters) < 0.1 for step in steps)
    # Without a test in the round they wake they have their way: the harm that is measured here is real.
    assert harm(held(made(sites(), rounds=4))[-1].parameters) > 0.1
    named = {client.id: client.decided_in for client in run.result().clients if client.excluded}
    assert named == dict.fromkeys(ATTACKERS, 3)


def unexplained_at_first(monkeypatch: pytest.MonkeyPatch, tests: int) -> None:
    """No set explains what so many tests see by themselves."""
    seen: list[None] = []

    def decode(evidence: Any, **options: Any) -> GradedDecoding:
        found = decode_graded(evidence, **options)
        if len(evidence) > 1 or len(seen) >= tests:
            return found
        seen.append(None)
        nobody, nothing = np.zeros(len(found.posterior), dtype=np.bool_), np.full(len(found.posterior), np.nan)
        reason = "no set explains it"
        return replace(
            found,
            posterior=nothing,
            log_odds=nothing,
            flagged=nobody,
            undecided=~nobody,
            status="unexplained",
            reason=reason,
        )

    monkeypatch.setattr("fedgt.federation.measure.decode_graded", decode)


@pytest.mark.parametrize("schedule", ["every-round", "on-suspicion"])
def test_a_first_test_that_no_set_explains_loses_its_round_and_is_held_again(
    schedule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    unexplained_at_first(monkeypatch, 1)
    run = standing(sites(wakes=1), screen=ScreenSettings(schedule=schedule))
    steps = held(run)
    np.testing.assert_array_equal(steps[0].parameters["weight"], START["weight"])
    assert not steps[0].excluded
    assert [set(step.excluded) for step in steps[1:]] == [ATTACKERS] * 3
    assert all(harm(step.parameters) < 0.1 for step in steps[1:])
    assert not any(record.status == "refused" for step in steps for record in step.result.records)


@pytest.mark.parametrize("schedule", ["every-round", "on-suspicion"])
def test_first_tests_that_no_set_explains_stop_the_run_with_the_third(
    schedule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    unexplained_at_first(monkeypatch, 99)
    monkeypatch.setattr("fedgt.federation.judgement.both_ways", lambda alone, *_: alone)
    run = standing(sites(wakes=1), screen=ScreenSettings(schedule=schedule))
    rounds = run.rounds(START)
    for _ in range(2):
        np.testing.assert_array_equal(next(rounds).parameters["weight"], START["weight"])
    with pytest.raises(RunHaltedError, match="no set explains it; the run stops here, as the policy says") as halt:
        next(rounds)
    assert isinstance(halt.value.step, Step)
    np.testing.assert_array_equal(halt.value.step.parameters["weight"], START["weight"])
    assert run.result().status == "stopped"


@pytest.mark.parametrize(
    ("partition", "compared"), [("iid", "the strongest line"), ("dirichlet", "most unusual: label")]
)
def test_all_tests_compare_what_the_first_has_chosen(partition: str, compared: str) -> None:
    """Where clients own the classes unevenly margins are compared, also in late rounds, in which that does not show."""
    content = {"seed": 3, "privacy": 4, "data": {"name": "digits", "partition": partition}, "federation": {"rounds": 3}}
    training = {"learning_rate": 0.05, "batch_size": 8, "local_epochs": 5}
    spec = make_spec({**content, "training": training}, {"screen.schedule": "every-round"})
    assert [compared in test.screen_reason for test in run(spec).tests] == [True] * 3


def test_the_model_of_a_quiet_round_is_nearly_the_mean_of_everybody() -> None:
    honest = {name: Sleeper(name, wakes=99) for name in NAMES}
    tested, plain = held(standing(honest, rounds=2)), held(made(honest, validation=None, rounds=2))
    for one, other in zip(tested, plain, strict=True):
        np.testing.assert_allclose(one.parameters["weight"], other.parameters["weight"], atol=0.02)


def test_nothing_that_an_excluded_client_sends_changes_a_model_or_a_verdict() -> None:
    """It goes on in its groups, so that the rows stay the same; here it sends nothing, or as much as it may."""
    runs = [held(standing(sites(later=later, named=3))) for later in (0.0, 100.0)]
    for steps in runs:
        assert all(set(step.members) == set(NAMES) for step in steps)
        assert [set(step.excluded) for step in steps][2:] == [ATTACKERS] * 2
    for others in runs[1:]:
        for one, other in zip(runs[0], others, strict=True):
            np.testing.assert_allclose(one.parameters["weight"], other.parameters["weight"], rtol=0, atol=1e-7)
            said, told = (
                [(v.client, v.verdict, v.excluded, round(v.posterior, 4)) for v in step.verdicts]
                for step in (one, other)
            )
            assert said == told


def test_the_account_of_all_test_rows_stays_as_it_is_after_the_first_round() -> None:
    run = standing()
    accounts = []
    for step in run.rounds(START):
        account = run.federation.ledger.account()
        accounts.append((account.strict, account.cautious, account.with_training))
        assert all(record.status == "open" for record in step.result.records)
        assert len(step.result.records) == 10
    assert accounts == accounts[:1] * 4
    assert accounts[0][1] is not None
    assert accounts[0][1] >= 4


def asked(step: Step) -> set[tuple[str, ...]]:
    return {record.members for record in step.result.records if record.members}


def test_a_group_whose_member_is_away_is_not_asked_for_without_it() -> None:
    """A former sum less one member would be that member's update, if updates repeat."""
    away = {2: {"c07"}, 3: {"c07", "c08"}}
    run = standing(present=lambda number: set(NAMES) - away.get(number, set()))
    steps = held(run)
    every = asked(steps[0])
    assert len(every) == 10
    for step in steps:
        gone = away.get(step.round, set())
        assert asked(step) & every == {group for group in every if not gone & set(group)}
        # Where few sums leave somebody undecided, the next test has others beside them, with all their members.
        assert not [group for group in asked(step) if gone & set(group)]
        assert not [group for group in asked(step) - every if any(set(group) < set(one) for one in every)]
        assert not [record for record in step.result.records if record.status == "refused"]
    account = run.federation.ledger.account()
    assert account.cautious is not None
    assert account.cautious >= 4


def test_who_is_away_in_a_later_round_stays_and_who_is_away_in_the_first_is_left_out_by_the_policy() -> None:
    run = standing(present=lambda number: set(NAMES) - ({"c07"} if number == 2 else set()), rounds=2)
    steps = held(run)
    assert "c07" not in steps[-1].excluded
    assert any("kept without evidence: c07" in warning for warning in steps[1].warnings)
    first = held(standing(present=lambda number: set(NAMES) - ({"c07"} if number == 1 else set()), rounds=3))
    assert [set(step.excluded) for step in first][-1] == ATTACKERS | {"c07"}
    # It was in no sum that was opened, so nothing keeps it in the groups.
    assert all("c07" not in step.members for step in first)


def test_a_round_that_cannot_be_judged_is_lost_and_says_so_and_the_run_goes_on() -> None:
    """Four of fifteen are in every group but two, and two groups cannot be compared."""
    away = {"c01", "c03", "c06", "c10"}
    steps = held(standing(sites(wakes=4), present=lambda number: set(NAMES) - (away if number == 3 else set())))
    before, lost, after = steps[1:4]
    np.testing.assert_array_equal(lost.parameters["weight"], before.parameters["weight"])
    assert any("round 3 is lost" in warning for warning in lost.result.warnings)
    assert not lost.excluded
    assert set(after.excluded) == ATTACKERS


def test_who_was_left_out_from_the_beginning_is_never_asked() -> None:
    steps = held(standing(excluded=["c14"], rounds=3))
    assert all("c14" not in step.members for step in steps)
    assert set(steps[-1].excluded) == ATTACKERS | {"c14"}


@pytest.mark.slow
@pytest.mark.parametrize("stops", [1, 2, 3])
def test_a_run_that_is_resumed_ends_as_one_that_never_stopped(stops: int, tmp_path: Path) -> None:
    whole = standing(folder=tmp_path / "whole")
    last = held(whole)[-1]
    folder = tmp_path / "stopped"
    first = standing(folder=folder)
    list(islice(first.rounds(START), stops))
    first.close()
    second = standing(folder=folder, resume=True)
    after = held(second)[-1]
    np.testing.assert_array_equal(after.parameters["weight"], last.parameters["weight"])
    same = (
        one.result().model_dump(exclude={"cpu_seconds", "spec_hash", "aggregates", "rounds"}) for one in (whole, second)
    )
    assert next(same) == next(same)


@pytest.mark.slow
def test_a_simulated_run_names_sleepers_and_the_folder_goes_on(tmp_path: Path) -> None:
    spec = make_spec(
        {
            "privacy": 4,
            "seed": 1001,
            "federation": {"rounds": 3},
            "attack": {"kind": "label-permutation", "malicious": 3, "first_round": 2},
            "screen": {"schedule": "every-round"},
        }
    )

    class Stopped(Exception):
        pass

    def stop(finished: int, *_: Any) -> None:
        if finished == 2:
            raise Stopped

    with pytest.raises(Stopped):
        run_into(spec, tmp_path / "run", on_round=stop)
    result = run_into(spec, tmp_path / "run", resume=True)
    left_out = {client.id: client.decided_in for client in result.clients if client.excluded}
    assert left_out == {client.id: 2 for client in result.clients if client.truth == "malicious"}
    assert len(left_out) == 3
    assert [row.round for row in result.tests] == [1, 2, 3]
    assert result.privacy.cautious == 4
    again = run(spec)
    assert again.model_dump(exclude={"cpu_seconds"}) == result.model_dump(exclude={"cpu_seconds"})


def test_a_schedule_that_does_not_fit_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(ValueError, match="needs graded evidence"):
        ScreenSettings(schedule="every-round", kind="clusters")
    with pytest.raises(ValueError, match="begins in round 1"):
        ScreenSettings(schedule="every-round", round=2)
    with pytest.raises(SpecError, match="leave out test_rounds"):
        standing(test_rounds=[2])
    with pytest.raises(SpecError, match="give one"):
        made(validation=None, screen=EVERY)


class Alike(Sleeper):
    """All send the same in the first round, so that nothing can be compared."""

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        return Sleeper("c00").train(parameters, round=1) if round == 1 else super().train(parameters, round=round)


def test_the_first_test_follows_the_policies_and_one_that_says_nothing_is_none() -> None:
    alike = {name: Alike(name, wakes=2) for name in NAMES}
    with pytest.raises(RunHaltedError, match="no groups could be compared"):
        held(standing(alike))
    steps = held(standing(alike, decode=DecodeSettings(on_undecidable="keep-all")))
    np.testing.assert_array_equal(steps[0].parameters["weight"], START["weight"])
    assert any("round 1 is lost" in warning for warning in steps[0].result.warnings)
    assert [set(step.excluded) for step in steps] == [set(), *[ATTACKERS] * 3]


@pytest.mark.slow
def test_excluded_clients_that_stop_taking_part_cost_groups_and_nobody_else_is_blamed() -> None:
    steps = held(standing(present=lambda number: set(NAMES) - (ATTACKERS if number >= 4 else set()), rounds=5))
    assert all(set(step.excluded) == ATTACKERS for step in steps[2:])
    for step in steps[3:]:
        assert all(not ATTACKERS & set(members) for members in asked(step))
        assert len(asked(step)) < 5
        assert harm(step.parameters) < 0.1


@pytest.mark.parametrize("after_test", [*slow("largest-sum"), "same-round"])
def test_one_more_sum_of_the_round_is_without_those_who_were_named(after_test: Any) -> None:
    decode = DecodeSettings(after_test=after_test, allow_below_promise=True)
    steps = held(standing(decode=decode))
    assert set(steps[-1].excluded) == ATTACKERS
    for step in steps[2:]:
        further = [record for record in step.result.records if record.purpose == after_test and record.status == "open"]
        assert all(not ATTACKERS & set(record.members) for record in further)
    assert all(harm(step.parameters) < 0.1 for step in steps)
