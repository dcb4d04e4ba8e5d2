"""A client that breaks the rules of the secure sums round after round: the run goes on, it is found, and nobody else is."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedgt import FederationRun, TrainedModel, Validation
from fedgt.engine import ClientEndpoint, LocalTransport
from fedgt.errors import ProtocolError
from fedgt.federation import Step
from fedgt.secagg import ClientSession
from fedgt.secagg.membership import OWN_BYTES, PARCEL_BYTES, Membership
from fedgt.types import Parameters
from lying_client import Answer, LyingClient

CENTRES = 2.0 * np.eye(4, 12)
LIAR = "site-04"
NAMES = tuple(f"site-{j:02d}" for j in range(15))
FAR = dict.fromkeys(range(12), (2**45,))


class Site:
    """Logistic regression on four clouds of points."""

    def __init__(self, seed: int) -> None:
        labels = np.arange(40) % 4
        self.x = CENTRES[labels] + np.random.default_rng(seed).normal(size=(40, 12))
        self.y = np.eye(4)[labels]

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        weight = np.array(parameters["weight"])
        for _ in range(10):
            chance = np.exp(self.x @ weight.T)
            weight -= 0.1 * (chance / chance.sum(axis=1, keepdims=True) - self.y).T @ self.x / 40
        return TrainedModel(parameters={"weight": weight}, samples=40)


class LyingEndpoint(ClientEndpoint):
    """A `LyingClient` in every session."""

    lies: Mapping[str, Any]

    def _new_session(self) -> ClientSession:
        return LyingClient(self._id, **self.lies)


def people(**lies: Any) -> LocalTransport:
    """Fifteen clients, one of which lies."""
    endpoints = {name: ClientEndpoint(name, Site(j)) for j, name in enumerate(NAMES)}
    liar = LyingEndpoint(LIAR, Site(4))
    liar.lies = lies
    endpoints[LIAR] = liar
    return LocalTransport({name: one.handle for name, one in endpoints.items()})


def held(transport: LocalTransport, *, rounds: int, tests: bool) -> list[Step]:
    labels = np.arange(200) % 4
    x = CENTRES[labels] + np.random.default_rng(99).normal(size=(200, 12))
    own = Validation(labels=labels, logits=lambda p: x @ p["weight"].T, inputs=lambda p: x)
    run = FederationRun(
        transport,
        privacy=4,
        samples=dict.fromkeys(NAMES, 40),
        validation=own if tests else None,
        rounds=rounds,
        seed=1,
    )
    return list(run.rounds({"weight": np.zeros((4, 12))}))


def bad_dealer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parcels for three victims cannot be read."""
    honest = Membership.share_out

    def share_out(self: Membership) -> bytes:
        body = bytearray(honest(self))
        if self.clients[self.position] == LIAR:
            for victim in ("site-00", "site-01", "site-02"):
                if victim in self.clients:
                    there = sorted(self.peers).index(self.clients.index(victim))
                    own = sorted(self.peers).index(self.position) < there
                    body[there * PARCEL_BYTES - (PARCEL_BYTES - OWN_BYTES if own else 0)] ^= 1
        return bytes(body)

    monkeypatch.setattr(Membership, "share_out", share_out)


def complainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that it can read nobody's shares."""
    honest = Membership.open_parcels

    def open_parcels(self: Membership, part: Any, *, tagged: bool) -> None:
        if self.clients[self.position] == LIAR:
            raise ProtocolError("the share from site-00 cannot be read: changed, or made for something else")
        honest(self, part, tagged=tagged)

    monkeypatch.setattr(Membership, "open_parcels", open_parcels)


def excluded(steps: list[Step]) -> tuple[str, ...]:
    return steps[-1].excluded


@pytest.mark.parametrize("how", ["range", "complaints"])
def test_who_spoils_every_training_sum_is_found_and_the_model_goes_on(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "complaints":
        complainer(monkeypatch)
    steps = held(people(vectors=FAR if how == "range" else {}), rounds=10, tests=False)
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
    steps = held(people(), rounds=8, tests=True)
    assert set(excluded(steps)) <= {LIAR}


LIES: dict[str, tuple[Mapping[int, Any], Answer]] = {
    "two vectors": ({0: (2**24,), 3: (2**24,)}, lambda number: number),
    "a false answer": ({}, lambda number: number + 1),
    "two vectors and no answer": ({0: (2**24,), 3: (2**24,)}, lambda number: None),
    "out of range": (FAR, lambda number: number),
}


@pytest.mark.parametrize("lie", LIES)
def test_in_a_run_with_tests_no_honest_client_is_left_out_and_the_run_ends(lie: str) -> None:
    vectors, answer = LIES[lie]
    steps = held(people(vectors=vectors, answer=answer), rounds=6, tests=True)
    assert len(steps) == 6
    assert set(excluded(steps)) <= {LIAR}
    assert steps[0].result.faults


def test_a_false_share_is_proved_and_its_holder_is_left_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Membership.shares_for

    def shares_for(self: Membership, part: Any) -> bytes:
        body = honest(self, part)
        return bytes(byte ^ 1 for byte in body) if self.clients[self.position] == LIAR else body

    monkeypatch.setattr(Membership, "shares_for", shares_for)
    steps = held(people(), rounds=2, tests=False)
    assert steps[0].excluded == (LIAR,)
    assert all(step.result.secure_sums == 1 for step in steps), "it costs nothing"


def test_without_a_liar_nothing_changes() -> None:
    steps = held(people(), rounds=4, tests=True)
    assert excluded(steps) == ()
    assert not any(step.result.faults for step in steps)
