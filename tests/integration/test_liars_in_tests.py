"""A client that breaks the rules in the tests, or leaves again and again, to stay untested and train on.

docs/threat-model.md names these tests line by line.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt import FederationRun
from fedgt.secagg import ClientSession, RoundPlan
from fedgt.types import Parameters
from liar_lab import LIAR, NAMES, always, attackers, bad_dealer, held, people, run_of, spoils_tests
from lying_site import ATTACKS
from slow_cases import slow

START: Parameters = {"weight": np.zeros((4, 12))}
OTHER = "site-09"
TYPICAL = ("equivocation", "false shares", "tests only", "no answer")
"""The attacks that are always tried."""


def test_who_spoils_just_its_sums_of_the_tests_does_not_train_on() -> None:
    """It was "untested; kept" with a warning, and poisoned every other round."""
    run = run_of(people({LIAR: spoils_tests(LIAR)}, poison=True), rounds=6, tests=True)
    steps = list(run.rounds(START))
    assert steps[0].purpose == "test"
    assert steps[1].purpose == "test", "groups are drawn anew at once"
    trained = [step for step in steps if step.purpose == "training"]
    assert trained
    for step in trained:
        assert LIAR not in step.members
        assert len(step.members) == 14
        assert step.result.secure_sums
    assert set(steps[-1].excluded) <= {LIAR}
    assert LIAR in run.state.waiting | run.state.excluded
    told = [warning for warning in steps[0].warnings if "does not train until a test hears it" in warning]
    assert len(told) == 1
    assert told[0].startswith(LIAR)


def test_the_groups_of_the_next_test_are_others_and_keep_the_promise() -> None:
    run = run_of(people({LIAR: spoils_tests(LIAR)}), rounds=3, tests=True)
    steps = list(run.rounds(START))
    first, second = (step.screening.grouping.design for step in steps[:2] if step.screening is not None)
    assert second.name.startswith("redrawn")
    assert not {tuple(row) for row in second.matrix.tolist()} <= {tuple(row) for row in first.matrix.tolist()}
    assert not any(record.status == "refused" for step in steps for record in step.result.records)
    cautious = run.federation.ledger.account().cautious
    assert cautious is not None
    assert cautious >= 4


def test_whoever_waits_trains_again_once_a_test_has_heard_it() -> None:
    """It spoils its sums in the first test only, or its network does."""
    tests = []

    def lies(plan: RoundPlan) -> dict[str, Any]:
        tests.append(plan.purpose)
        return dict(spoils_tests(LIAR)(plan)) if tests.count("test") <= 1 else {}

    run = run_of(people({LIAR: lies}), rounds=5, tests=True)
    steps = list(run.rounds(START))
    assert not run.state.waiting
    assert not steps[-1].excluded
    assert all(LIAR in step.members for step in steps if step.purpose == "training")


def test_two_that_spoil_the_tests_get_nobody_left_out_and_the_run_ends() -> None:
    liars = {name: spoils_tests(name) for name in (LIAR, OTHER)}
    run = run_of(people(liars, poison=True), rounds=6, tests=True)
    steps = list(run.rounds(START))
    assert len(steps) == 6
    assert set(steps[-1].excluded) <= set(liars)
    assert set(liars) <= run.state.waiting | run.state.excluded
    assert all(len(step.members) >= 8 for step in steps)


def test_the_policy_keep_lets_them_train() -> None:
    run = run_of(people({LIAR: spoils_tests(LIAR)}), rounds=5, tests=True, on_untested="keep")
    steps = list(run.rounds(START))
    assert not run.state.waiting
    assert all(LIAR in step.members for step in steps)


@pytest.mark.slow
def test_a_run_that_goes_on_from_its_folder_knows_who_waits(tmp_path: Path) -> None:
    transport = people({LIAR: spoils_tests(LIAR)})
    whole = run_of(transport, rounds=6, tests=True)
    how: dict[str, Any] = {"privacy": 4, "samples": dict.fromkeys(NAMES, 40), "rounds": 6, "seed": 1, "name": "waits"}
    how["validation"] = whole.validation
    run = FederationRun(transport, folder=tmp_path / "run", **how)
    steps = run.rounds(START)
    next(steps)
    waiting = run.state.waiting
    assert waiting == {LIAR}
    run.close()
    again = FederationRun(transport, folder=tmp_path / "run", resume=True, **how)
    again.begin(START)
    assert again.state.waiting == waiting
    assert again.state.suspicions.missing == run.state.suspicions.missing
    assert all(LIAR not in step.members for step in again.rounds(START) if step.purpose == "training")


@pytest.mark.parametrize(
    "attack", [one if one in TYPICAL else pytest.param(one, marks=pytest.mark.slow) for one in ATTACKS]
)
def test_no_attack_of_one_client_gets_anybody_else_left_out_or_stops_the_run(attack: str) -> None:
    run = run_of(attackers(attack, [LIAR]), rounds=4, tests=True)
    steps = list(run.rounds(START))
    assert len(steps) == 4
    assert set(steps[-1].excluded) <= {LIAR}
    assert run.state.waiting <= {LIAR}


def test_two_who_deal_badly_in_nearly_all_sums_do_not_stop_the_run() -> None:
    """No test could be made of what they left, so that the run ended; they are named, and left out."""
    steps = list(run_of(attackers("bad dealing", [LIAR, OTHER]), rounds=3, tests=True).rounds(START))
    assert len(steps) == 3
    assert steps[0].excluded == (LIAR, OTHER)
    assert steps[-1].result.secure_sums


@pytest.mark.parametrize("liars", [[LIAR], [LIAR, OTHER]], ids=["one", "two"])
def test_who_gives_no_answer_and_spoils_its_sums_waits(liars: list[str]) -> None:
    """Many sums are at fault together then, and the faults suspect nobody in particular: it used to train on."""
    run = run_of(attackers("no answer", liars), rounds=4, tests=True)
    steps = list(run.rounds(START))
    trained = [step for step in steps if step.purpose == "training"]
    assert steps[0].result.faults
    for step in trained:
        assert not {name for name in liars if step.screening is None} & set(step.members) or not run.state.waiting
    assert set(run.state.waiting) <= set(liars)
    assert set(steps[-1].excluded) <= set(liars)


# Leaving ----------------------------------------------------------------------------------------------------------------


class Gone(Exception):
    """The client says nothing."""


def leaves_at(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = getattr(ClientSession, stage)

    def leave(self: ClientSession, *args: Any, **options: Any) -> bytes:
        if self._client == LIAR:
            raise Gone
        answer: bytes = honest(self, *args, **options)
        return answer

    monkeypatch.setattr(ClientSession, stage, leave)


@pytest.mark.parametrize("stage", [*slow("keys", "shares", "masked"), "unmask"])
def test_a_client_that_always_leaves_at_one_stage_is_reported(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving at the unmask was noticed by nobody: its vector is in every sum."""
    leaves_at(stage, monkeypatch)
    steps = held(people({}), rounds=4, tests=False)
    said = [[warning for warning in step.warnings if warning.startswith(LIAR)] for step in steps]
    assert [len(one) for one in said] == [0, 0, 1, 1]
    assert f"left the secure sums at stage '{stage}' in 3 of its last 6 rounds" in said[2][0]
    assert steps[-1].excluded == ()


def test_the_policy_leaves_out_who_always_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves_at("unmask", monkeypatch)
    steps = held(people({}), rounds=5, tests=False, on_silent="exclude")
    assert steps[2].excluded == (LIAR,)
    assert [one.client for one in steps[2].verdicts] == [LIAR]
    assert all(LIAR not in step.members for step in steps[3:])


def test_the_victims_of_a_bad_dealer_are_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """They leave each sum that they share with it, because they cannot read what it has dealt."""
    bad_dealer(monkeypatch)
    steps = held(people({LIAR: always()}), rounds=6, tests=False, on_silent="exclude")
    assert set(steps[-1].excluded) <= {LIAR}
    assert not any(step.result.silent for step in steps)
