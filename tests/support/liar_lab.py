"""Fifteen clients of one process, one or more of which break the rules of the secure sums, in whole runs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from fedgt import FederationRun, TrainedModel, Validation
from fedgt.engine import ClientEndpoint, LocalTransport
from fedgt.federation import DecodeSettings, ScreenSettings, Step
from fedgt.secagg import ClientSession, RoundPlan
from fedgt.secagg.membership import OWN_BYTES, PARCEL_BYTES, Membership
from fedgt.types import Parameters
from lying_client import LyingClient
from lying_site import Liar

CENTRES = 2.0 * np.eye(4, 12)
LIAR = "site-04"
NAMES = tuple(f"site-{j:02d}" for j in range(15))
FAR = dict.fromkeys(range(12), (2**45,))

Lies = Callable[[RoundPlan], Mapping[str, Any]]
"""What a client does in a plan, as the arguments of `LyingClient`."""


class Site:
    """Logistic regression on four clouds of points; a malicious one takes class 0 for class 1."""

    def __init__(self, seed: int, *, poisons: bool = False) -> None:
        labels = np.arange(40) % 4
        self.x = CENTRES[labels] + np.random.default_rng(seed).normal(size=(40, 12))
        self.y = np.eye(4)[np.where(poisons & (labels == 0), 1, labels)]

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        weight = np.array(parameters["weight"])
        for _ in range(10):
            chance = np.exp(self.x @ weight.T)
            weight -= 0.1 * (chance / chance.sum(axis=1, keepdims=True) - self.y).T @ self.x / 40
        return TrainedModel(parameters={"weight": weight}, samples=40)


class LyingEndpoint(ClientEndpoint):
    """A `LyingClient` in every session; by its plan it decides what to do."""

    lies: Lies

    def _new_session(self) -> ClientSession:
        return _Deciding(self._id, self.lies)


class _Deciding(LyingClient):
    def __init__(self, client: str, lies: Lies) -> None:
        super().__init__(client)
        self._decide = lies

    def masked(self, *args: Any, **options: Any) -> bytes:
        chosen = dict(self._decide(self.plan))
        self._vectors, self._pads = chosen.get("vectors", {}), chosen.get("pads", {})
        self._lie, self._leaves = chosen.get("answer", lambda number: number), chosen.get("leaves", ())
        return super().masked(*args, **options)


def people(liars: Mapping[str, Lies], *, poison: bool = False, names: Sequence[str] = NAMES) -> LocalTransport:
    """Fifteen clients, or those of other names, of which these lie, and poison if it is said."""
    endpoints: dict[str, ClientEndpoint] = {name: ClientEndpoint(name, Site(j)) for j, name in enumerate(names)}
    for name, lies in liars.items():
        liar = LyingEndpoint(name, Site(NAMES.index(name), poisons=poison))
        liar.lies = lies
        endpoints[name] = liar
    return LocalTransport({name: one.handle for name, one in endpoints.items()})


def attackers(attack: str, names: Collection[str], *, poison: bool = True) -> LocalTransport:
    """Fifteen clients, of which these do what `lying_site.ATTACKS` says; their victims are the first two others."""
    victims = tuple(name for name in NAMES if name not in names)[:2]
    endpoints: dict[str, ClientEndpoint] = {name: ClientEndpoint(name, Site(j)) for j, name in enumerate(NAMES)}
    for name in names:
        poisoned, honest = Site(NAMES.index(name), poisons=poison), Site(NAMES.index(name))
        endpoints[name] = Liar(name, poisoned, honest, attack=attack, victims=victims, seed=1)
    return LocalTransport({name: one.handle for name, one in endpoints.items()})


def always(**lies: Any) -> Lies:
    """The same in every plan."""
    return lambda plan: lies


def spoils_tests(own: str, *, but: Collection[int] = (), until: int = 10**6) -> Lies:
    """In tests another pad in each of its groups: they are at fault. It sends its update to all other sums."""

    def lies(plan: RoundPlan) -> dict[str, Any]:
        if plan.purpose != "test" or plan.round > until:
            return {}
        return {"pads": {g: 1 for g, members in enumerate(plan.groups) if own in members and g not in but}}

    return lies


def run_of(
    transport: LocalTransport,
    *,
    rounds: int,
    tests: bool,
    names: Sequence[str] = NAMES,
    screen: ScreenSettings | None = None,
    more: Mapping[str, Any] | None = None,
    **policies: Any,
) -> FederationRun:
    """A run over these clients, with one test on a validation set or without, and more arguments of `FederationRun`."""
    labels = np.arange(200) % 4
    x = CENTRES[labels] + np.random.default_rng(99).normal(size=(200, 12))
    own = Validation(labels=labels, logits=lambda p: x @ p["weight"].T, inputs=lambda p: x)
    return FederationRun(
        transport,
        privacy=4,
        samples=dict.fromkeys(names, 40),
        validation=own if tests else None,
        rounds=rounds,
        screen=ScreenSettings(schedule="first") if screen is None else screen,
        decode=DecodeSettings(**policies),
        seed=1,
        **(more or {}),
    )


def held(transport: LocalTransport, *, rounds: int, tests: bool, **policies: Any) -> list[Step]:
    """All rounds of such a run."""
    run = run_of(transport, rounds=rounds, tests=tests, **policies)
    return list(run.rounds({"weight": np.zeros((4, 12))}))


def complaining(monkeypatch: pytest.MonkeyPatch, about: Mapping[str, Collection[str]]) -> None:
    """These clients say in every sum that they cannot read the shares of those."""
    honest = Membership.open_parcels

    def open_parcels(self: Membership, part: Any, *, tagged: bool) -> tuple[int, ...]:
        found, me = set(honest(self, part, tagged=tagged)), self.clients[self.position]
        named = {position for position in part.members if self.clients[position] in about.get(me, ())}
        return tuple(sorted((found | named) - {self.position}))

    monkeypatch.setattr(Membership, "open_parcels", open_parcels)


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
