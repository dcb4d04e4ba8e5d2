"""A server that lies, as the attacker would write it, against real endpoints with identities and limits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedgt.engine import ClientEndpoint, TrainedModel
from fedgt.engine.round_message import RoundMessage, bound
from fedgt.errors import FedGTError
from fedgt.secagg import (
    AgreementLog,
    ClientPolicy,
    FixedPoint,
    Identity,
    Link,
    RoundPlan,
    RunTerms,
    ServerSession,
    TensorSpec,
    default_threshold,
)
from fedgt.secagg.agreement import chain_of, signatures_to_json
from fedgt.secagg.messages import GroupPart, read_stage_message, stage_message
from fedgt.types import Parameters
from secagg_lab import Consortium

MODEL: dict[str, Any] = {"w": np.zeros((2, 3))}
Lists = Mapping[int, tuple[Sequence[str], Sequence[str]]]
"""Group -> (who is said to be alive, who is said to have dropped)."""


@dataclass
class Site:
    """Its update is its own, and follows the model: nearly the same model, nearly the same update."""

    name: str
    trained: list[int] = field(default_factory=list)
    eyes: Any = 1.0  # what it sees of the model

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        self.trained.append(round)
        rng = np.random.default_rng(list(self.name.encode()))
        own, follows = rng.normal(size=(2, 3)), rng.normal(size=(2, 2))
        seen = np.clip(parameters["w"], -1e3, 1e3) * self.eyes
        return TrainedModel(parameters={"w": parameters["w"] + own + 0.01 * follows @ seen}, samples=1)


@dataclass
class Liar:
    """A server that has all keys of a server, keeps everything that it was ever sent, and signs what it likes."""

    names: tuple[str, ...]
    policy: ClientPolicy
    colluders: int = 1
    folder: Path | None = None
    terms: RunTerms | None = None

    def __post_init__(self) -> None:
        self.people = Consortium(
            server=Identity.generate("server"), clients={name: Identity.generate(name) for name in self.names}
        )
        self.sites = {name: Site(name) for name in self.names}
        self.endpoints = {name: self.endpoint(name) for name in self.names}
        self.log: list[tuple[Link, dict[str, bytes]]] = []
        self.refusals: dict[str, str] = {}

    def endpoint(self, name: str) -> ClientEndpoint:
        return ClientEndpoint(
            name,
            self.sites[name],
            policy=self.policy,
            terms=self.terms,
            credentials=self.people.of_client(name),
            journal=None if self.folder is None else self.folder / name,
        )

    def plan(self, *groups: Sequence[str], **changes: Any) -> RoundPlan:
        fields: dict[str, Any] = {
            "run": "run",
            "round": 1,
            "purpose": "test",
            "groups": tuple(tuple(group) for group in groups),
            "thresholds": tuple(default_threshold(len(group), colluders=self.colluders) for group in groups),
            "weights": {client: 1 for group in groups for client in group},
            "encoding": FixedPoint(clip=8.0, fraction_bits=16, ring_bits=32),
            "tensors": (TensorSpec(name="w", shape=(2, 3)),),
            "colluders": self.colluders,
        }
        return RoundPlan(**(fields | changes))

    def tell(self, client: str, stage: str, message: bytes) -> bytes | None:
        try:
            return self.endpoints[client].handle(stage, message)
        except FedGTError as error:
            self.refusals[client] = str(error)
            return None

    def vectors(
        self,
        plan: RoundPlan,
        models: Callable[[str], Any] = lambda name: MODEL,
        missed: Callable[[str], bytes] | None = None,
    ) -> tuple[RoundPlan, ServerSession, dict[str, bytes]]:
        """All vectors of a plan, as an honest server would collect them; a model for each client.

        `missed` may lie about the agreements that c00 has not heard of.
        """
        bounds = {name: bound(plan, models(name)) for name in plan.clients}
        plan = bounds[plan.clients[0]]
        record = AgreementLog(self.people.registry)
        for link, _ in self.log:
            record.append(link)
        server = ServerSession(plan, credentials=self.people.of_server(), agreements=record)
        openings = server.keys()
        requests = {
            name: RoundMessage(session=openings[name], parameters=models(name)).to_bytes(identity=self.people.server)
            for name in openings
        }
        requests = server.shares(self.answers("keys", requests))
        requests = server.masked(self.answers("shares", requests))
        if missed is not None and "c00" in requests:
            requests["c00"] = self.reattached(plan, "masked", "c00", requests["c00"], missed("c00"))
        return plan, server, self.answers("masked", requests)

    def reattached(self, plan: RoundPlan, stage: str, client: str, message: bytes, attached: bytes) -> bytes:
        """The same request with something else attached, signed as it should be."""
        read = read_stage_message(message[:-64], plan=plan, stage=stage, client=client)
        return stage_message(plan, stage, client, read.parts, attached=attached, identity=self.people.server)

    def answers(self, stage: str, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = {name: self.tell(name, stage, message) for name, message in requests.items()}
        return {name: reply for name, reply in replies.items() if reply is not None}

    def link(self, plan: RoundPlan, server: ServerSession, lists: Lists, **changes: Any) -> Link:
        """An agreement over these lists, whatever really happened."""
        groups = []
        for index, (alive, dropped) in sorted(lists.items()):
            group = server._groups[index]
            order = [client for client in plan.groups[index] if client in alive]
            gone = [client for client in plan.groups[index] if client in dropped]
            group.alive = tuple(plan.groups[index].index(client) for client in order)
            group.sharers = tuple(sorted(plan.groups[index].index(client) for client in (*order, *gone)))
            groups.append(group.opened(plan))
        head = (len(self.log), self.log[-1][0].digest if self.log else chain_of(self.people.registry))
        fields: dict[str, Any] = {
            "number": head[0] + 1,
            "previous": head[1],
            "plan": plan.digest,
            "run": plan.run,
            "round": plan.round,
            "purpose": plan.purpose,
            "task": plan.task,
            "model": plan.inputs["model"],
            "weights": {client: 1 for one in groups for client in one.alive},
            "groups": tuple(groups),
        }
        return Link(**(fields | changes))

    def signed(self, plan: RoundPlan, link: Link, by: Sequence[str]) -> dict[str, bytes]:
        """Who signs the agreement."""
        signatures = {}
        for name in by:
            parts = [
                GroupPart(
                    group=one.group,
                    members=tuple(plan.groups[one.group].index(client) for client in one.alive),
                    dropped=tuple(plan.groups[one.group].index(client) for client in one.dropped),
                )
                for one in link.groups
                if name in one.alive
            ]
            request = stage_message(plan, "agree", name, parts, attached=link.to_json(), identity=self.people.server)
            reply = self.tell(name, "agree", request)
            if reply is not None:
                message = read_stage_message(reply[:-64], plan=plan, stage="agree", client=name)
                signatures[name] = bytes(message.attached)
        return signatures

    def shares(self, plan: RoundPlan, link: Link, signatures: Mapping[str, bytes]) -> dict[str, tuple[int, ...]]:
        """Who releases shares for which groups."""
        released = {}
        for name in link.weights:
            parts = [
                GroupPart(
                    group=one.group,
                    members=tuple(plan.groups[one.group].index(client) for client in one.alive),
                    dropped=tuple(plan.groups[one.group].index(client) for client in one.dropped),
                )
                for one in link.groups
                if name in one.alive
            ]
            request = stage_message(
                plan, "unmask", name, parts, attached=signatures_to_json(signatures), identity=self.people.server
            )
            reply = self.tell(name, "unmask", request)
            if reply is not None:
                message = read_stage_message(reply[:-64], plan=plan, stage="unmask", client=name)
                released[name] = tuple(part.group for part in message.parts)
        return {name: groups for name, groups in released.items() if groups}

    def open(self, plan: RoundPlan, lists: Lists | None = None, **how: Any) -> dict[str, tuple[int, ...]]:
        """A whole round with these lists (by default the true ones): who released shares of what."""
        plan, server, replies = self.vectors(plan, **how)
        arrived = [name for name in plan.clients if name in replies]
        truth = {
            index: ([name for name in group if name in replies], [name for name in group if name not in replies])
            for index, group in enumerate(plan.groups)
        }
        if not arrived:
            return {}
        link = self.link(plan, server, truth if lists is None else lists)
        signatures = self.signed(plan, link, arrived)
        if not signatures:
            return {}
        self.log.append((link, signatures))
        return self.shares(plan, link, signatures)


CAREFUL = ClientPolicy(privacy=4, minimum_group_size=4, sums_per_round=1)
SITES = tuple(f"s{number}" for number in range(5))
"""Five sites that sit in both groups of the first attack."""
EIGHT = tuple(f"c{number}" for number in range(8))


def far(number: int) -> Callable[[str], Any]:
    """The same model for everybody, far from those of other rounds."""
    return lambda name: {"w": np.full((2, 3), 99.0 * number)}
