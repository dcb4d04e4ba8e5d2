"""Tests that leave somebody undecided are added up with the next one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faint import Faint
from fedgt import FederationRun, ScreenSettings, TrainedModel
from fedgt.decode import RankedSet
from fedgt.evidence import GradedDecoding, decode_graded
from fedgt.federation import judgement
from fedgt.federation.open_tests import MOST, OpenTests, both_ways
from fedgt.report.audit import audit
from fedgt.types import Parameters, SetEvidence
from slow_cases import slow
from small_run import ATTACKERS, NAMES, START, made, same

WATCHED: dict[str, Any] = {"screen": ScreenSettings(), "rounds": 6}


def sites(**how: Any) -> dict[str, Any]:
    return {name: Faint(name, **how) for name in NAMES}


def held(seed: int, clients: Any = None, **changes: Any) -> tuple[FederationRun, list[Any]]:
    run = made(clients or sites(), **{**WATCHED, "seed": seed, **changes})
    return run, list(run.rounds(START))


def said(
    posterior: dict[int, float], *, named: tuple[int, ...] = (), open_to: tuple[int, ...] = (), clients: int = 4
) -> GradedDecoding:
    """A decoding over some clients."""
    chance = np.full(clients, 1e-3)
    chance[list(posterior)] = list(posterior.values())
    flags = [np.isin(np.arange(clients), one) for one in (named, open_to)]
    nobody = np.zeros(clients, dtype=np.bool_)
    return GradedDecoding(
        posterior=chance,
        log_odds=np.log1p(-chance) - np.log(chance),
        flagged=flags[0],
        harmless=nobody,
        unconfirmed=nobody,
        undecided=flags[1],
        count=np.full(3, 1 / 3),
        against_nobody=0.0,
        best=(RankedSet(clients=(0, 2), probability=0.5), RankedSet(clients=(2,), probability=0.25)),
        attacks=1,
        status="undecided" if open_to else "decided" if named else "nobody",
        reason="an example",
    )


def several(*clients: str, rounds: tuple[int, ...] = (1, 2)) -> OpenTests:
    nothing: Any = object()
    evidence: tuple[SetEvidence, ...] = (nothing,) * len(rounds)
    return OpenTests(clients=clients, evidence=evidence, rounds=rounds)


ABCD = ("a", "b", "c", "d")


def decided(alone: GradedDecoding, together: GradedDecoding, judged: tuple[str, ...] = ABCD) -> GradedDecoding:
    return both_ways(alone, several(*ABCD), judged, lambda: together)


def test_who_names_more_is_followed() -> None:
    one, two = said({0: 0.999}, named=(0,)), said({0: 0.999, 1: 0.999}, named=(0, 1))
    assert decided(two, one) is two
    assert decided(one, two).flagged.tolist() == [True, True, False, False]
    assert "2 tests together" in decided(one, two).reason


def test_what_a_test_leaves_open_by_itself_is_not_cleared_by_those_before_it() -> None:
    """Rounds in which nobody attacked say nothing of this one."""
    alone = said({1: 0.4}, open_to=(1,))
    assert decided(alone, said({})) is alone
    assert decided(alone, said({1: 0.7}, open_to=(1,))).posterior[1] == 0.7


def test_only_who_is_likely_malicious_keeps_a_test_open_that_leaves_nobody_open_by_itself() -> None:
    alone = said({})
    assert decided(alone, said({1: 0.1}, open_to=(1,))) is alone
    assert decided(alone, said({1: 0.6}, open_to=(1,))).undecided[1]


def test_tests_that_explain_nothing_together_are_not_followed() -> None:
    alone = said({1: 0.4}, open_to=(1,))
    assert decided(alone, decode_graded([], clients=4, largest=1)) is alone


def test_only_who_is_still_judged_has_a_verdict() -> None:
    """Client a was named before; the others get what is said about them, in their order."""
    together = said({0: 0.999, 2: 0.99, 3: 0.3}, named=(0, 2), open_to=(3,))
    found = decided(said({}, clients=3), together, ("b", "c", "d"))
    assert found.posterior.tolist() == [1e-3, 0.99, 0.3]
    assert found.flagged.tolist() == [False, True, False]
    assert found.undecided.tolist() == [False, False, True]
    assert found.best == (RankedSet(clients=(1,), probability=0.75),)


def test_a_test_is_added_only_if_it_judges_those_that_the_others_have_judged() -> None:
    tests = several("a", "b", "c")
    assert tests.fits("abc", ())
    assert tests.fits("abc", "a")  # named by one of these tests, and still in its groups
    assert tests.fits("abcd", "d")  # named before them
    assert not tests.fits("abcd", ())  # d has come back
    assert not tests.fits("bc", ())  # a is gone


@pytest.mark.parametrize("seed", [2, *slow(3)])
def test_attackers_that_one_test_cannot_tell_are_named_by_several(seed: int) -> None:
    _, steps = held(seed)
    assert steps[0].excluded == ()
    assert set(steps[-1].excluded) == ATTACKERS
    named = next(step for step in steps if step.excluded)
    assert "tests together" in named.screening.exclusion.reason


def test_who_was_named_first_counts_for_those_who_are_named_later() -> None:
    """Of seed 6 one is named in the first round, and the others in the next, together with what was known of all."""
    _, steps = held(6, rounds=2)
    first, second = steps[:2]
    assert first.excluded == ("c02",)
    assert set(second.excluded) == ATTACKERS
    assert set(second.screening.open_tests.clients) == set(NAMES)
    verdicts = second.screening.exclusion.verdicts
    assert {verdict.client for verdict in verdicts} == set(NAMES) - {"c02"}
    assert {verdict.client for verdict in verdicts if verdict.excluded} == {"c05", "c11"}


def test_the_update_of_who_is_likely_malicious_waits_until_they_are_sure() -> None:
    _, steps = held(2, rounds=2)
    first = steps[0].screening.exclusion
    likely = {one.client for one in first.verdicts if one.posterior > 0.5}
    assert likely == ATTACKERS
    # Classes 2 and 3 are moved towards each other by attackers alone, by 0.7 * 0.3; chance moves them by 0.01 or so.
    moved = steps[0].parameters["weight"]
    assert moved[2, 3] < 0.3 * 0.7 * 3 / 15 / 2


class Spiteful(Faint):
    """Once it is left out, it does what it can to have others suspected."""

    run: Any = None

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        trained = super().train(parameters, round=round)
        if self.run is None or self.name not in self.run.state.excluded:
            return trained
        weight = trained.parameters["weight"].copy()
        weight[[2, 3]] += np.random.default_rng(round).normal(0, 5.0, (2, 6))
        return TrainedModel(parameters={**trained.parameters, "weight": weight}, samples=10)


@pytest.mark.parametrize("seed", [8, *slow(1, 3)])
def test_whoever_was_left_out_cannot_have_others_left_out(seed: int) -> None:
    clients = {name: Spiteful(name) for name in NAMES}
    run = made(clients, **{**WATCHED, "seed": seed, "rounds": 8})
    for one in clients.values():
        one.run = run
    last = list(run.rounds(START))[-1]
    assert set(last.excluded) <= ATTACKERS
    assert last.excluded, "nobody was left out, and nothing was tried"


@pytest.mark.parametrize("seed", [0, *slow(1, 2, 3)])
def test_where_nobody_attacks_tests_that_are_added_up_accuse_nobody(seed: int) -> None:
    _, steps = held(seed, sites(share=0.0), rounds=MOST + 3)
    assert steps[-1].excluded == ()


def test_so_many_tests_go_on_together_and_then_the_next_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody is undecided in every round of seed 9."""
    monkeypatch.setattr(judgement, "MOST", 2)
    run = made(sites(), **{**WATCHED, "seed": 9, "rounds": 4})
    together = [run.state.open_tests.rounds for _ in run.rounds(START) if run.state.open_tests is not None]
    assert together == [(1,), (1, 2), (3,), (3, 4)]


def test_a_restart_goes_on_with_the_tests_that_are_open(tmp_path: Path) -> None:
    """The process ends between two rounds: the result is that of a run which never ended."""
    short = {**WATCHED, "rounds": 2, "seed": 2, "name": "one"}
    whole, _ = held(**short, folder=tmp_path / "whole")
    gone = made(sites(), **short, folder=tmp_path / "gone")
    steps = gone.rounds(START)
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    again = made(sites(), **short, folder=tmp_path / "gone", resume=True)
    list(again.rounds(START))
    assert same(again.result()) == same(whole.result())
    assert {one.id for one in again.result().clients if one.excluded} == ATTACKERS


def test_the_report_decides_them_the_same_way_again(tmp_path: Path) -> None:
    held(2, folder=tmp_path / "run", rounds=3)
    found = audit(tmp_path / "run")["recheck"]
    assert found["status"] == "same", found["reason"]
    assert found["largest_difference"] < 1e-9
