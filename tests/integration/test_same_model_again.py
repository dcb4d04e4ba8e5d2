"""A server that lies about models: the same one again, after restarts, with a changed record, or one that is nearly so.

Every test plays the attack against real endpoints, as the attacker would: the server signs whatever helps it.
docs/threat-model.md names these tests line by line.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt.engine import TrainedModel
from fedgt.engine.round_message import RoundMessage, bound
from fedgt.errors import ProtocolError
from fedgt.secagg import (
    ClientPolicy,
)
from fedgt.secagg.agreement import links_to_json
from fedgt.secagg.messages import plan_message
from promise_liar import EIGHT, MODEL, Liar, far
from slow_cases import slow


@pytest.mark.parametrize("change", [{}, {"round": 2}, {"run": "another"}, {"purpose": "training"}])
def test_one_client_less_about_the_same_model_is_refused(change: dict[str, Any]) -> None:
    """Round 1 sums c0 to c7, round 2 sums c1 to c7: the difference is c0's, whatever round, run and purpose are called."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    assert set(liar.open(liar.plan(EIGHT))) == set(EIGHT)
    trained = {name: len(site.trained) for name, site in liar.sites.items()}
    again = liar.plan(EIGHT[1:], **({"round": 2} | change if change != {"purpose": "training"} else change))
    assert liar.open(again) == {}
    assert all("mix only c0" in liar.refusals[name] for name in EIGHT[1:])
    assert {name: len(site.trained) for name, site in liar.sites.items()} == trained, "refused before anybody trained"


def test_the_same_sum_about_the_same_model_adds_nothing_and_is_answered() -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    for number in (1, 2):
        assert set(liar.open(liar.plan(EIGHT, round=number))) == set(EIGHT)


def test_a_sum_that_was_signed_and_never_opened_counts_as_opened() -> None:
    """The server says that the first round was lost; it may have kept its signatures."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    plan, server, _ = liar.vectors(liar.plan(EIGHT))
    link = liar.link(plan, server, {0: (EIGHT, ())})
    liar.log.append((link, liar.signed(plan, link, EIGHT)))
    assert liar.open(liar.plan(EIGHT[1:], round=2)) == {}


def test_a_record_without_what_was_signed_is_refused() -> None:
    """The server hides the first agreement and begins the chain again."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    assert liar.open(liar.plan(EIGHT))
    liar.log.clear()
    assert liar.open(liar.plan(EIGHT[1:], round=2)) == {}
    _, _, replies = liar.vectors(liar.plan(EIGHT, round=3))
    assert replies == {}, "no vector leaves a client whose record the server does not have"


def test_a_client_that_was_away_learns_what_was_opened_without_it() -> None:
    """Twelve sites: eleven sum without c00, which is back in round 2, and is asked about the first model in round 3."""
    names = tuple(f"c{number:02d}" for number in range(12))
    liar = Liar(names, ClientPolicy(privacy=4))
    assert set(liar.open(liar.plan(names[1:]), models=far(1))) == set(names[1:])
    assert set(liar.open(liar.plan(names, round=2), models=far(2))) == set(names)
    less = [name for name in names if name != "c05"]
    assert liar.open(liar.plan(less, round=3), models=far(1)) == {}
    assert "mix only c00, c05" in liar.refusals["c00"]


@pytest.mark.parametrize("what", ["the first left out", *slow("another order"), "one changed", *slow("one invented")])
def test_missed_agreements_that_were_changed_or_left_out_are_refused(what: str) -> None:
    """What a client has missed must follow its own record, link by link, before it trains."""
    names = tuple(f"c{number:02d}" for number in range(12))
    liar = Liar(names, ClientPolicy(privacy=4))
    for number in (1, 2):
        assert liar.open(liar.plan(names[1:], round=number), models=far(number))
    first, second = liar.log
    invented = (replace(first[0], number=3, previous="0" * 64), first[1])
    forged = {
        "the first left out": [second],
        "another order": [second, first],
        "one changed": [(replace(first[0], purpose="other"), first[1]), second],
        "one invented": [first, second, invented],
    }[what]
    _, _, replies = liar.vectors(liar.plan(names, round=3), far(3), missed=lambda name: links_to_json(forged))
    assert "c00" not in replies
    assert liar.sites["c00"].trained == []
    assert "does not follow" in liar.refusals["c00"]


def test_a_shorter_record_is_as_good_as_a_lie_when_it_comes_to_signing() -> None:
    """The server hides the latest agreement from one client: what that one signs then, nobody else does."""
    names = tuple(f"c{number:02d}" for number in range(12))
    liar = Liar(names, ClientPolicy(privacy=4))
    for number in (1, 2):
        assert liar.open(liar.plan(names[1:], round=number), models=far(number))
    hidden = liar.log.pop()
    plan, server, _ = liar.vectors(liar.plan(names, round=3), far(3), missed=lambda name: links_to_json(liar.log))
    link = liar.link(plan, server, {0: (names, ())})
    signatures = liar.signed(plan, link, names)
    assert set(signatures) == set(), "the others have no session left: their records are longer than the server's"
    assert hidden[0].number == 2


# Restarts and two processes ---------------------------------------------------------------------------------------------


def test_the_account_survives_a_restart_of_everybody(tmp_path: Path) -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=4), folder=tmp_path)
    assert liar.open(liar.plan(EIGHT))
    liar.endpoints = {name: liar.endpoint(name) for name in EIGHT}
    assert liar.open(liar.plan(EIGHT[1:], round=2, run="after a restart")) == {}
    assert all("mix only c0" in liar.refusals[name] for name in EIGHT[1:])


def test_two_processes_of_one_client_do_not_both_answer_a_round(tmp_path: Path) -> None:
    """Both have read the journal before either writes it."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4), folder=tmp_path)
    twin = liar.endpoint("c0")
    plan = bound(liar.plan(EIGHT), MODEL)
    opening = RoundMessage(session=plan_message(plan, identity=liar.people.server), parameters=MODEL)
    message = opening.to_bytes(identity=liar.people.server)
    liar.endpoints["c0"].handle("keys", message)
    with pytest.raises(ProtocolError, match="is over"):
        twin.handle("keys", message)


def test_two_processes_of_one_client_do_not_sign_two_agreements(tmp_path: Path) -> None:
    """Two rounds, both sessions open: whichever signs first is the only one."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4), folder=tmp_path)
    one, server, _ = liar.vectors(liar.plan(EIGHT))
    kept = liar.endpoints
    liar.endpoints = {name: liar.endpoint(name) for name in EIGHT}
    two, second, _ = liar.vectors(liar.plan(EIGHT, round=2), far(2))
    link = liar.link(two, second, {0: (EIGHT, ())})
    assert len(liar.signed(two, link, EIGHT)) == 8
    liar.endpoints = kept
    first = liar.link(one, server, {0: (EIGHT, ())})
    assert liar.signed(one, first, EIGHT) == {}
    assert all("does not follow" in liar.refusals[name] for name in EIGHT)


# Different and nearly equal models --------------------------------------------------------------------------------------


def test_a_model_of_its_own_for_one_client_is_noticed_before_anybody_trains() -> None:
    """Seven get a model whose units are dead, so that the sum of eight is the update of the eighth."""
    liar = Liar(EIGHT, ClientPolicy(privacy=8))
    dead = {"w": np.full((2, 3), -1e6)}
    plan = bound(liar.plan(EIGHT), dead)
    for name in EIGHT:
        model = MODEL if name == "c7" else dead
        opening = RoundMessage(session=plan_message(plan, identity=liar.people.server), parameters=model)
        liar.tell(name, "keys", opening.to_bytes(identity=liar.people.server))
    assert set(liar.refusals) == {"c7"}
    assert "another model than this client has" in liar.refusals["c7"]
    assert all(site.trained == [] for site in liar.sites.values())


def test_two_plans_for_two_models_do_not_read_each_others_shares() -> None:
    """Each client gets the plan that fits its model: the plans differ, and so do all keys that follow from them."""
    liar = Liar(EIGHT, ClientPolicy(privacy=8))
    with pytest.raises(AssertionError):
        assert liar.open(liar.plan(EIGHT), models=lambda name: far(1 if name == "c7" else 0)(name))
    assert all(site.trained == [] for site in liar.sites.values())


@pytest.mark.parametrize("step", [5e-324, 1e-12, 1e-3])
def test_a_model_that_is_nearly_one_that_was_answered_counts_as_the_same(step: float) -> None:
    """One bit makes a new fingerprint, and nearly the same local model."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    assert liar.open(liar.plan(EIGHT))
    near = {"w": np.array(MODEL["w"])}
    near["w"][0, 0] = step
    trained = {name: list(site.trained) for name, site in liar.sites.items()}
    assert liar.open(liar.plan(EIGHT[1:], round=2), models=lambda name: near) == {}
    assert all("mix only c0" in liar.refusals[name] for name in EIGHT[1:])
    assert {name: list(site.trained) for name, site in liar.sites.items()} == trained, "refused before anybody trained"
    assert set(liar.open(liar.plan(EIGHT, round=3), models=lambda name: near)) == set(EIGHT), "the same sum again"


def test_a_model_that_differs_only_where_it_does_not_matter_counts_as_the_same() -> None:
    """A column that no site has data for is moved far away: the model is another one, the update is the same."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    for site in liar.sites.values():
        site.eyes = np.array([1.0, 1.0, 0.0])
    assert liar.open(liar.plan(EIGHT))
    moved = {"w": MODEL["w"] + np.array([0.0, 0.0, 500.0])}
    assert liar.open(liar.plan(EIGHT[1:], round=2), models=lambda name: moved) == {}
    assert all("mix only c0" in liar.refusals[name] for name in EIGHT[1:])


def test_a_near_model_is_known_to_a_client_that_restarted_and_in_another_run(tmp_path: Path) -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=4), folder=tmp_path)
    assert liar.open(liar.plan(EIGHT))
    liar.endpoints = {name: liar.endpoint(name) for name in EIGHT}
    near = {"w": MODEL["w"] + 1e-9}
    assert liar.open(liar.plan(EIGHT[1:], run="another"), models=lambda name: near) == {}
    assert all("mix only c0" in liar.refusals[name] for name in EIGHT[1:])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_is_not_finite_hides_no_near_one(value: float) -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    assert liar.open(liar.plan(EIGHT))
    strange = {"w": np.array(MODEL["w"])}
    strange["w"][1, 2] = value
    assert liar.open(liar.plan(EIGHT[1:], round=2), models=lambda name: strange) == {}
    assert liar.log[1:] == [], "nobody has signed anything about it"


def test_a_small_update_in_between_does_not_widen_what_is_near() -> None:
    """The server first sends a model from which nobody learns anything, so that the last update is nothing."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    assert liar.open(liar.plan(EIGHT))
    for site in liar.sites.values():
        site.train = lambda parameters, *, round: TrainedModel(parameters=dict(parameters), samples=1)  # type: ignore[method-assign]
    assert liar.open(liar.plan(EIGHT, round=2), models=far(5))
    near = {"w": MODEL["w"] + 1e-9}
    assert liar.open(liar.plan(EIGHT[1:], round=3), models=lambda name: near) == {}
