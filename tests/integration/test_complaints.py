"""Complaints about shares, true and false, in whole runs: nobody is left out for one, and none costs a sum.

docs/threat-model.md names these tests line by line.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt import FederationRun
from fedgt.secagg import ClientSession, ServerSession
from fedgt.secagg.membership import Membership
from liar_lab import LIAR, NAMES, attackers, complaining, held, people, run_of
from secagg_lab import FOUR, UPDATE, allow, answer, make_plan
from slow_cases import slow

OTHER, VICTIM = "site-09", "site-00"
AGAINST: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "one liar": {LIAR: (VICTIM,)},
    "two liars": {LIAR: (VICTIM,), OTHER: (VICTIM,)},
    "two liars, of two victims": {LIAR: (VICTIM, "site-01"), OTHER: (VICTIM, "site-01")},
    "two liars, of each other and a victim": {LIAR: (OTHER, VICTIM), OTHER: (LIAR, VICTIM)},
}


@pytest.mark.parametrize("tests", [True, False], ids=["tests", "training"])
@pytest.mark.parametrize("who", [*list(AGAINST)[:2], *slow(*list(AGAINST)[2:])])
def test_false_complaints_cost_no_sum_and_get_nobody_left_out(
    who: str, tests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Round after round, in all groups at once. One bad dealer alone would explain the complaints of two liars."""
    complaining(monkeypatch, AGAINST[who])
    steps = held(people({}), rounds=6, tests=tests)
    for step in steps:
        assert step.excluded == ()
        assert not step.result.faults
        assert step.result.complaints
        assert all(record.status == "open" for record in step.result.records)
        assert set(step.members) == set(NAMES), "nobody waits"
    assert any("the shares of one cannot be read, or the other says so falsely" in w for w in steps[0].result.warnings)


@pytest.mark.parametrize("attack", ["complaints", "unreadable parcels"])
@pytest.mark.parametrize("liars", [[LIAR], *slow([LIAR, OTHER])], ids=["one", "two"])
def test_poisoners_that_complain_or_deal_badly_are_left_out_by_the_tests(attack: str, liars: list[str]) -> None:
    """What they did used to erase most sums of the tests, so that they trained on, and their victims waited."""
    run = run_of(attackers(attack, liars), rounds=3, tests=True)
    steps = list(run.rounds({"weight": np.zeros((4, 12))}))
    assert all(record.status == "open" for record in steps[0].result.records)
    assert steps[0].result.complaints
    assert set(steps[-1].excluded) == set(liars)
    assert not run.state.waiting


@pytest.mark.parametrize("deals", [False, True], ids=["complains of three", "deals badly to three"])
def test_who_is_in_complaints_with_three_others_has_lied(deals: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    others = ("site-00", "site-01", "site-02")
    complaining(monkeypatch, dict.fromkeys(others, (LIAR,)) if deals else {LIAR: others})
    steps = held(people({}), rounds=2, tests=False)
    assert steps[0].excluded == (LIAR,)
    assert steps[0].result.secure_sums == 1, "the sum is as good as any"
    assert "broken the rules of the secure sums" in steps[0].verdicts[0].reason


def test_complaints_are_remembered_over_a_restart_and_frame_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One liar complains before the restart of server and clients, its accomplice after it."""
    model = {"weight": np.zeros((4, 12))}
    how: dict[str, Any] = {
        "privacy": 4,
        "samples": dict.fromkeys(NAMES, 40),
        "rounds": 6,
        "seed": 1,
        "name": "complain",
    }
    with monkeypatch.context() as patched:
        complaining(patched, {LIAR: (VICTIM,)})
        run = FederationRun(people({}), folder=tmp_path / "run", **how)
        steps = run.rounds(model)
        next(steps), next(steps)
        known = run.state.suspicions
        run.close()
    complaining(monkeypatch, {OTHER: (VICTIM,)})
    again = FederationRun(people({}), folder=tmp_path / "run", resume=True, **how)
    again.begin(model)
    assert again.state.suspicions == known
    assert known.sets == (frozenset({LIAR, VICTIM}),)
    last = list(again.rounds(model))[-1]
    assert set(again.state.suspicions.sets) == {frozenset({LIAR, VICTIM}), frozenset({OTHER, VICTIM})}
    assert last.excluded == ()
    assert VICTIM in last.members


@pytest.mark.parametrize("suspended", [False, True])
def test_who_has_complained_is_not_named_for_the_share_that_it_does_not_hold(
    suspended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has zeros in its place, also in a process that goes on from a suspended state."""
    complaining(monkeypatch, {"b": ("a",)})
    honest = Membership.open_parcels

    def open_parcels(self: Membership, part: Any, *, tagged: bool) -> tuple[int, ...]:
        found = honest(self, part, tagged=tagged)
        for position in found:
            self.held[position] = bytearray(len(self.held[position]))
        return found

    monkeypatch.setattr(Membership, "open_parcels", open_parcels)
    plan = make_plan("abcd")
    server, sessions = ServerSession(plan, credentials=FOUR.of_server()), FOUR.sessions(plan)
    asked = server.keys()
    for stage, following in (("keys", "shares"), ("shares", "masked"), ("masked", "agree"), ("agree", "unmask")):
        replies = {name: answer(sessions[name], stage, message) for name, message in asked.items()}
        asked = getattr(server, following)(replies, **({"authorise": allow} if following == "agree" else {}))
        if suspended:
            for name, session in sessions.items():
                sessions[name] = ClientSession(name, credentials=FOUR.of_client(name))
                sessions[name].resume(session.suspend())
    (one,) = server.results({name: answer(sessions[name], "unmask", message) for name, message in asked.items()})
    assert one.total is not None
    assert np.array_equal(one.total["w"], 4 * UPDATE["w"])
    assert not one.faults
    assert [(fault.kind, fault.suspects) for fault in server.faults] == [("complaint", ("a", "b"))]
