"""Six clients whose sums are taken in stages, over real endpoints; a test loses messages, lies, and restarts."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt.engine import ClientEndpoint, Failure, LocalTransport, SecureSums, TrainedModel, secure_sums
from fedgt.engine.journal import RoundJournal
from fedgt.errors import ProtocolError
from fedgt.secagg import AgreementLog, ClientPolicy, ClientSession, RunTerms
from fedgt.secagg.challenge import field_of, products
from fedgt.types import Parameters
from lying_client import LyingClient
from secagg_lab import Consortium, allow, make_plan

NAMES = "abcdef"
SIX = Consortium.of(NAMES)
GROUPS = ("abc", "def", "acde", "bcdf")
"""A partition, and two rows that keep r = 2, also if anybody is absent from them."""
TWO = (2, 2)
MODEL: Parameters = {"w": np.zeros(3)}
PROMISE = ClientPolicy(privacy=2, colluders=0)

Lost = Callable[[int, str, str], bool]
"""(stage of the plan, message, client) -> whether the client's answer is lost."""


class Site:
    """Counts how often it trains."""

    def __init__(self, name: str) -> None:
        self.update = np.array([1.0, -2.0, 0.5]) * (1 + NAMES.index(name)) / 7
        self.trained = 0

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        self.trained += 1
        return TrainedModel(parameters={"w": parameters["w"] + self.update * round}, samples=1)


class StagedLiar(LyingClient):
    """A `LyingClient` that answers the question of each stage about a vector of its choice.

    Args:
        about: Stage -> what is added to its own vector, as whole numbers; None says nothing.
    """

    def __init__(self, client: str, *, about: Mapping[int, Any], **lies: Any) -> None:
        super().__init__(client, **lies)
        self._about = about

    def _answer(self, seed: bytes | memoryview) -> bytes:
        honest, chosen = super()._answer(seed), field_of(self.plan)
        added = self._about.get(self._turns.at, [])
        if added is None or chosen is None:
            return b""
        vector = np.zeros(self.plan.length, dtype=np.int64)
        vector[: len(added)] = added
        return chosen.to_bytes(chosen.from_bytes(honest) + products(self.plan, seed, [vector])[0])


@dataclass
class Bench:
    """A federation of six.

    Attributes:
        consortium: Identities; None is anonymous mode.
        policy: Of all clients.
        folder: Where the clients keep journals; None keeps them in memory.
        liars: Client -> the arguments of its `StagedLiar`.
        terms: What all clients have agreed on.
        recorded: Whether all messages of the round come once more before each new one.
    """

    consortium: Consortium | None = SIX
    policy: ClientPolicy = PROMISE
    folder: Path | None = None
    liars: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    terms: RunTerms | None = None
    recorded: bool = False

    def __post_init__(self) -> None:
        self.sites = {name: Site(name) for name in NAMES}
        self.endpoints = {name: self.endpoint(name) for name in NAMES}
        self.record = None if self.consortium is None else AgreementLog(self.consortium.registry)
        self.messages: list[tuple[int, str, str, bytes]] = []
        """(stage of the plan, message, client, request), in order."""

    def endpoint(self, name: str) -> ClientEndpoint:
        """Of a client whose process starts anew."""
        options: dict[str, Any] = {
            "policy": self.policy,
            "terms": self.terms,
            "credentials": None if self.consortium is None else self.consortium.of_client(name),
            "journal": None if self.folder is None else self.folder / name,
        }
        if name not in self.liars:
            return ClientEndpoint(name, self.sites[name], **options)
        return _LyingEndpoint(self.liars[name], name, self.sites[name], **options)

    def restart(self, name: str) -> None:
        """The process of a client ends, and another one begins."""
        self.endpoints[name] = self.endpoint(name)

    def again(self, stage: int) -> None:
        """Whatever was sent in this round comes once more; nobody answers it."""
        for _, message, client, request in self.messages:
            with pytest.raises(ProtocolError):
                self.endpoints[client].handle(message, request)

    def take(
        self,
        *groups: str,
        stages: tuple[int, ...] = TWO,
        lost: Lost = lambda stage, message, client: False,
        go_on: Callable[[SecureSums], bool] | None = lambda opened: True,
        authorise: Any = allow,
        **plan: Any,
    ) -> SecureSums:
        """The sums of a round."""
        return secure_sums(
            _Wire(self, lost),
            make_plan(*(groups or GROUPS), stages=stages, **({"round": 1} | plan)),
            MODEL,
            authorise=authorise,
            timeout=20.0,
            credentials=None if self.consortium is None else self.consortium.of_server(),
            agreements=self.record,
            go_on=go_on,
        )

    def rounds_of(self, name: str) -> RoundJournal:
        """The journal of a client as another of its processes sees it."""
        assert self.folder is not None
        return RoundJournal(self.folder / name)


class _LyingEndpoint(ClientEndpoint):
    def __init__(self, lies: Mapping[str, Any], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lies = lies

    def _new_session(self) -> ClientSession:
        return StagedLiar(
            self._id,
            policy=self._policy,
            credentials=self._credentials,
            agreements=self._log,
            **{"about": {}, **self._lies},
        )


class _Wire:
    """A `StreamingTransport` that loses what it is told to."""

    def __init__(self, bench: Bench, lost: Lost) -> None:
        self.bench, self.lost, self.stage = bench, lost, 0

    def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        return dict(self.replies(stage, messages, timeout))

    def replies(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        self.stage += stage == "further"
        handlers = {name: one.handle for name, one in self.bench.endpoints.items()}
        if self.bench.recorded:
            self.bench.again(self.stage)
        self.bench.messages += [(self.stage, stage, client, message) for client, message in messages.items()]
        for client, reply in LocalTransport(handlers).replies(stage, messages, timeout):
            if self.lost(self.stage, stage, client):
                yield client, Failure(client=client, reason="lost on its way")
            else:
                yield client, reply


def watched(seen: list[str]) -> Callable[[SecureSums], bool]:
    """Goes on always, and writes down what was open."""

    def go_on(opened: SecureSums) -> bool:
        seen.append(state(opened))
        return True

    return go_on


def state(sums: SecureSums) -> str:
    """One letter a group: open, struck, or erased."""
    return "".join("s" if one.group in sums.struck else one.status[0] for one in sums.sums)


def exact(sums: SecureSums, bench: Bench, round: int = 1) -> bool:
    """Whether every open sum is that of its members' updates, as far as the fixed point goes."""
    return all(
        np.allclose(one.total["w"], sum(bench.sites[name].update * round for name in one.members), atol=1e-4)
        for one in sums.sums
        if one.total is not None
    )
