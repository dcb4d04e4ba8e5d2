"""Clients that a test has left out come back when later tests would have named them and do not; once, and for no other."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from fedgt import DecodeSettings, FederationRun, ScreenSettings, TrainedModel, Validation
from fedgt.federation import Step
from fedgt.federation.hearing import Hearing
from fedgt.federation.liars import Suspicions
from fedgt.federation.trial import Trial
from fedgt.report import audit
from fedgt.types import Parameters
from sleepers import harm
from slow_cases import slow
from small_run import ATTACKERS, NAMES, made

PUSH = 2.0
"""What one attacker has to push in a test, in units of the honest spread; a little more than in these runs."""

WIDE = 60
"""Inputs of the model: honest clients differ in so many ways a class that a test of these few sums is sure."""

START: dict[str, Any] = {"weight": np.zeros((4, WIDE)), "bias": np.zeros(4)}
IMAGES = np.eye(WIDE)[np.arange(48) % 4] + np.random.default_rng(0).normal(0, 0.02, (48, WIDE))
VALIDATION = Validation(
    logits=lambda model: IMAGES @ np.asarray(model["weight"]).T, labels=np.arange(48) % 4, inputs=lambda _: IMAGES
)


@dataclass
class Napping:
    """Three exchange two classes in some rounds, and send something wild in others."""

    name: str
    attacks: Collection[int] = ()
    wild: Collection[int] = ()

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        rng = np.random.default_rng([round, NAMES.index(self.name)])
        moved = 0.3 * np.eye(4, WIDE) + rng.normal(0, 0.01, (4, WIDE))
        if self.name in ATTACKERS and round in self.attacks:
            moved[[2, 3]] = moved[[3, 2]]
        if self.name in ATTACKERS and round in self.wild:
            moved += rng.normal(0, 50.0, moved.shape)
        weight = np.asarray(parameters["weight"]) + moved
        return TrainedModel(parameters={**parameters, "weight": weight}, samples=10)


def sites(attacks: Collection[int], **how: Any) -> dict[str, Any]:
    return {name: Napping(name, attacks=attacks, **how) for name in NAMES}


def screen(after: int, schedule: Any = "every-round", **more: Any) -> ScreenSettings:
    return ScreenSettings(schedule=schedule, readmit_after=after, **more)


def run_of(who: Mapping[str, Any], after: int = 2, **changes: Any) -> FederationRun:
    return made(who, **({"rounds": 4, "screen": screen(after), "validation": VALIDATION} | changes))


def wronged(run: FederationRun, client: str = "c07", push: float = PUSH) -> None:
    """A false alarm of the last test, as if the run had come to it by itself."""
    state = run.state
    trials = {client: Trial(named_in=state.round, push=push)} if run.screen.readmit_after else {}
    said = replace(state.verdicts[client], verdict="exclude", excluded=True)
    run._state = replace(
        state,
        excluded=state.excluded | {client},
        verdicts=MappingProxyType({**state.verdicts, client: said}),
        trials=MappingProxyType({**state.trials, **trials}),
        looks=(),
    )


def held(run: FederationRun, wrong: int = 0, **how: Any) -> list[Step]:
    """All rounds; after one of them an honest client is left out."""
    steps = []
    run.begin(START)
    while (coming := run.coming()) is not None:
        steps.append(run.hold(coming))
        if coming.round == wrong:
            wronged(run, **how)
    return steps


def out(steps: list[Step]) -> list[set[str]]:
    return [set(step.excluded) for step in steps]


def hearing(step: Step, client: str) -> Hearing:
    assert step.screening is not None
    return step.screening.hearings[client]


EVER = range(1, 99)


def test_an_honest_client_comes_back_and_attackers_that_go_on_do_not() -> None:
    run = run_of(sites(EVER))
    steps = held(run, wrong=1)
    assert out(steps) == [ATTACKERS, ATTACKERS | {"c07"}, ATTACKERS, ATTACKERS]
    assert all(hearing(step, one).says == "accused" for step in steps[1:] for one in ATTACKERS)
    result = run.result()
    (row,) = result.readmissions
    assert (row.client, row.round, row.named_in, row.cleared_in) == ("c07", 3, 1, (2, 3))
    told = "c07 is back: left out in round 1, and cleared by the tests of rounds 2 and 3"
    assert [one for one in result.warnings if told in one and "round 3" in one]
    (client,) = (one for one in result.clients if one.id == "c07")
    assert not client.excluded
    assert all("c07" not in (step.readmitted if step.round != 3 else ()) for step in steps)
    assert harm(steps[-1].parameters) < 0.1


def test_by_default_nobody_comes_back_and_nobody_is_judged_twice() -> None:
    run = run_of(sites([1]), after=0)
    steps = held(run, wrong=1)
    assert out(steps)[1:] == [ATTACKERS | {"c07"}] * 3
    assert all(step.screening is not None and not step.screening.hearings for step in steps)
    assert not run.result().readmissions


def test_who_attacks_after_it_came_back_is_named_in_that_round_and_never_comes_back_again() -> None:
    """It behaves while it is watched: nothing can be seen then. Its second attack is in no model, and was its last."""
    run = run_of(sites([1, 5]), rounds=7)
    steps = held(run)
    assert out(steps) == [*[ATTACKERS] * 2, set(), set(), *[ATTACKERS] * 3]
    assert all(harm(step.parameters) < 0.1 for step in steps)
    assert len(run.result().readmissions) == 3
    assert all(step.screening is not None and not step.screening.hearings for step in steps[5:])
    named = {one.id: one.decided_in for one in run.result().clients if one.excluded}
    assert named == dict.fromkeys(ATTACKERS, 5)


def test_the_same_sums_are_asked_for_and_the_others_are_judged_as_ever() -> None:
    runs = [run_of(sites(EVER), after=after) for after in (0, 2)]
    both = [held(run, wrong=1) for run in runs]
    for one, other in zip(*both, strict=True):
        asked = [
            [(row.purpose, row.members, row.weights, row.status) for row in step.result.records]
            for step in (one, other)
        ]
        assert asked[0] == asked[1]
        assert one.members == other.members
    accounts = [run.federation.ledger.account() for run in runs]
    assert accounts[0] == accounts[1]
    for one, other in zip(both[0][:3], both[1][:3], strict=True):
        assert one.screening is not None
        assert other.screening is not None
        assert one.screening.exclusion == other.screening.exclusion
        np.testing.assert_array_equal(one.parameters["weight"], other.parameters["weight"])
    # From the round after on it has its weight in the model.
    assert not np.array_equal(both[0][3].parameters["weight"], both[1][3].parameters["weight"])


def test_what_other_excluded_clients_send_says_nothing_about_a_client() -> None:
    said = []
    for wild in ((), (2, 3)):
        steps = held(run_of(sites([1], wild=wild), rounds=3), wrong=1)
        said.append([hearing(step, "c07") for step in steps[1:]])
        assert "c07" not in steps[2].excluded
        assert (set(steps[2].excluded) >= ATTACKERS) == bool(wild)
    for one, other in zip(*said, strict=True):
        assert one.says == other.says == "cleared"
        assert one.posterior == pytest.approx(other.posterior, rel=1e-3)


@pytest.mark.parametrize("push", [0.5, *slow(float("inf"))])
def test_a_test_that_sees_less_than_the_one_that_named_a_client_clears_nobody(push: float) -> None:
    """Nor does any where it is not known how much that one saw."""
    steps = held(run_of(sites([])), wrong=1, push=push)
    assert [hearing(step, "c07").says for step in steps[1:]] == ["not said"] * 3
    assert out(steps)[1:] == [{"c07"}] * 3


def test_who_is_away_begins_anew() -> None:
    run = run_of(sites([]), rounds=5, present=lambda number: set(NAMES) - ({"c07"} if number == 3 else set()))
    steps = held(run, wrong=1)
    assert [hearing(step, "c07").says for step in steps[1:5]] == ["cleared", "accused", "cleared", "cleared"]
    assert out(steps) == [set(), *[{"c07"}] * 3, set()]


def test_who_was_left_out_for_another_reason_than_evidence_does_not_come_back() -> None:
    """Here by its absence from the first test; it takes part in no sum, and whoever broke rules does not either."""
    run = run_of(sites([]), present=lambda number: set(NAMES) - ({"c07"} if number == 1 else set()))
    steps = held(run)
    assert out(steps) == [{"c07"}] * 4
    assert not run.state.trials


@pytest.mark.parametrize("explained", [False, *slow(True)])
def test_who_may_have_broken_the_rules_meanwhile_stays_out(explained: bool) -> None:
    run = run_of(sites(EVER))
    run.begin(START)
    for number in range(1, 5):
        coming = run.coming()
        assert coming is not None
        step = run.hold(coming)
        if number == 1:
            wronged(run)
            suspects = frozenset({"c07", "c02"} if explained else {"c07", "c03"})
            run._state = replace(run.state, suspicions=Suspicions(sets=(suspects,)))
    # c02 was left out, too, and may have been the liar; c03 was not.
    assert ("c07" in step.excluded) != explained


def test_on_suspicion_quiet_rounds_say_nothing_and_a_return_is_followed_by_a_test() -> None:
    quiet = screen(2, "on-suspicion", unannounced=0.0)
    run = run_of(sites([1]), screen=quiet, rounds=5)
    steps = held(run)
    assert [step.purpose for step in steps] == ["test", "test", *["training"] * 3]
    assert out(steps) == [ATTACKERS] * 5
    assert all(trial.cleared_in == (2,) for trial in run.state.trials.values())
    run = run_of(sites([1, 4]), screen=screen(2, "on-suspicion", unannounced=1.0), rounds=5)
    steps = held(run)
    assert out(steps) == [ATTACKERS, ATTACKERS, set(), ATTACKERS, ATTACKERS]
    assert run.result().tests[3].opened_for == "somebody has come back"
    assert all(harm(step.parameters) < 0.1 for step in steps)


@pytest.mark.parametrize("stops", [3, *slow(2, 4)])
def test_a_run_that_is_resumed_goes_on_counting(stops: int, tmp_path: Path) -> None:
    whole = run_of(sites([1, 5]), rounds=5, after=3, folder=tmp_path / "whole")
    last = list(whole.rounds(START))[-1]
    first = run_of(sites([1, 5]), rounds=5, after=3, folder=tmp_path / "stopped")
    list(islice(first.rounds(START), stops))
    first.close()
    second = run_of(sites([1, 5]), rounds=5, after=3, folder=tmp_path / "stopped", resume=True)
    after = list(second.rounds(START))[-1]
    np.testing.assert_array_equal(after.parameters["weight"], last.parameters["weight"])
    other = {"cpu_seconds", "spec_hash", "aggregates", "rounds"}
    results = [one.result().model_dump(exclude=other) for one in (whole, second)]
    assert results[0] == results[1]
    assert [row["cleared_in"] for row in results[0]["readmissions"]] == [(2, 3, 4)] * 3
    assert {one["id"] for one in results[0]["clients"] if one["excluded"]} == ATTACKERS
    report = audit(tmp_path / "stopped")
    assert report["recheck"]["status"] == "same"
    assert sum("is back" in one for one in report["incidents"]["warnings"]) == 3


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"readmit_after": 3, "schedule": "first"}, "none follows"),
        ({"readmit_after": 1, "schedule": "every-round"}, "one test is too little"),
        ({"readmit_after": -1, "schedule": "every-round"}, "at least 0"),
    ],
)
def test_a_number_of_tests_that_could_clear_nobody_is_refused(options: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ScreenSettings(**options)


def test_suspicious_clients_that_the_policy_leaves_out_are_on_trial_too() -> None:
    decode = DecodeSettings(on_suspicious="exclude")
    run = run_of(sites([1]), rounds=2, decode=decode)
    held(run)
    assert set(run.state.trials) == ATTACKERS
