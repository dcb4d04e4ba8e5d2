"""A client that breaks the rules of the secure sums round after round: the run goes on, it is found, and nobody else is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt import FederationRun
from fedgt.federation import Step
from fedgt.secagg.membership import Membership
from liar_lab import FAR, LIAR, NAMES, always, bad_dealer, held, people
from lying_client import Answer
from slow_cases import slow


def excluded(steps: list[Step]) -> tuple[str, ...]:
    return steps[-1].excluded


def test_who_spoils_every_training_sum_is_found_and_the_model_goes_on() -> None:
    steps = held(people({LIAR: always(vectors=FAR)}), rounds=10, tests=False)
    assert excluded(steps) == (LIAR,)
    (verdict,) = (one for step in steps for one in step.verdicts)
    assert (verdict.client, verdict.verdict) == (LIAR, "exclude")
    assert verdict.posterior > 0.98
    assert "broken the rules of the secure sums" in verdict.reason
    assert steps[0].result.secure_sums == 0, "one sum of all is lost"
    assert all(step.result.secure_sums == 2 for step in steps[1:5]), "then one of three"
    assert not np.array_equal(steps[1].parameters["weight"], steps[0].parameters["weight"])
    assert len(steps[-1].members) == 14
    assert any("at least one of" in warning for warning in steps[0].result.warnings)


def test_the_victims_of_a_dealer_are_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They leave the groups that they share with it, and used to be excluded as silent."""
    bad_dealer(monkeypatch)
    steps = held(people({}), rounds=8, tests=True)
    assert set(excluded(steps)) <= {LIAR}


LIES: dict[str, tuple[Mapping[int, Any], Answer]] = {
    "two vectors": ({0: (2**24,), 3: (2**24,)}, lambda number: number),
    "a false answer": ({}, lambda number: number + 1),
    "two vectors and no answer": ({0: (2**24,), 3: (2**24,)}, lambda number: None),
    "out of range": (FAR, lambda number: number),
}


@pytest.mark.parametrize(
    "lie", ["two vectors", *slow("a false answer"), "two vectors and no answer", *slow("out of range")]
)
def test_in_a_run_with_tests_no_honest_client_is_left_out_and_the_run_ends(lie: str) -> None:
    vectors, answer = LIES[lie]
    steps = held(people({LIAR: always(vectors=vectors, answer=answer)}), rounds=6, tests=True)
    assert len(steps) == 6
    assert set(excluded(steps)) <= {LIAR}
    assert steps[0].result.faults


def test_a_false_share_is_proved_and_its_holder_is_left_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Membership.shares_for

    def shares_for(self: Membership, part: Any) -> bytes:
        body = honest(self, part)
        return bytes(byte ^ 1 for byte in body) if self.clients[self.position] == LIAR else body

    monkeypatch.setattr(Membership, "shares_for", shares_for)
    steps = held(people({}), rounds=2, tests=False)
    assert steps[0].excluded == (LIAR,)
    assert all(step.result.secure_sums == 1 for step in steps), "it costs nothing"


def test_without_a_liar_nothing_changes() -> None:
    steps = held(people({}), rounds=4, tests=True)
    assert excluded(steps) == ()
    assert not any(step.result.faults for step in steps)


def test_a_run_that_goes_on_from_its_folder_remembers_the_faults(tmp_path: Path) -> None:
    transport, model = people({LIAR: always(vectors=FAR)}), {"weight": np.zeros((4, 12))}
    how: dict[str, Any] = {"privacy": 4, "samples": dict.fromkeys(NAMES, 40), "rounds": 10, "seed": 1, "name": "liars"}
    run = FederationRun(transport, folder=tmp_path / "run", **how)
    steps = run.rounds(model)
    for _ in range(3):
        next(steps)
    known = run.state.suspicions
    run.close()
    again = FederationRun(transport, folder=tmp_path / "run", resume=True, **how)
    again.begin(model)
    assert again.state.suspicions == known
    assert len(known.sets) == 2
    assert list(again.rounds(model))[-1].excluded == (LIAR,)
