"""Sessions of a small consortium without a transport, whose every message a test can change on its way."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgt.errors import ProtocolError
from fedgt.secagg import (
    ClientPolicy,
    ClientSession,
    Credentials,
    FixedPoint,
    GroupSum,
    Identity,
    PrekeyRequest,
    Prekeys,
    Registry,
    RoundPlan,
    ServerSession,
    TensorSpec,
    default_threshold,
)
from fedgt.secagg.agreement import Link, OpenedGroup, chain_of, keys_digest
from fedgt.secagg.membership import PUBLIC_BYTES
from fedgt.secagg.messages import (
    SIGNED_STAGES,
    STAGES,
    GroupPart,
    StageMessage,
    read_stage_message,
    stage_message,
)

UPDATE = {"w": np.array([0.5, -0.25, 1.0])}


@dataclass(frozen=True, kw_only=True)
class Consortium:
    """Identities of a server and its clients, and the registry that they share."""

    server: Identity
    clients: Mapping[str, Identity]

    @classmethod
    def of(cls, names: Iterable[str]) -> "Consortium":
        return cls(server=Identity.generate("server"), clients={name: Identity.generate(name) for name in names})

    @property
    def registry(self) -> Registry:
        return Registry(server=self.server.public, clients={n: one.public for n, one in self.clients.items()})

    def of_client(self, name: str) -> Credentials:
        return Credentials(identity=self.clients[name], registry=self.registry)

    def of_server(self) -> Credentials:
        return Credentials(identity=self.server, registry=self.registry)

    def sessions(self, plan: RoundPlan, **options: Any) -> dict[str, ClientSession]:
        return {name: ClientSession(name, credentials=self.of_client(name), **options) for name in plan.clients}


FOUR = Consortium.of("abcd")
LEAST = ClientPolicy(privacy=2, colluders=0)
"""The weakest promise with which a client that has an identity starts at all."""


def make_plan(*groups: str, **changes: Any) -> RoundPlan:
    members = tuple(tuple(group) for group in groups)
    fields: dict[str, Any] = {
        "run": "run",
        "colluders": 0,
        "round": 2,
        "purpose": "test",
        "groups": members,
        "thresholds": tuple(default_threshold(len(group)) for group in members),
        "weights": {client: 1 for group in members for client in group},
        "encoding": FixedPoint(clip=8.0, fraction_bits=16, ring_bits=32),
        "tensors": (TensorSpec(name="w", shape=(3,)),),
    }
    return RoundPlan(**(fields | changes))


def allow(members: tuple[tuple[str, ...], ...]) -> tuple[str | None, ...]:
    return (None,) * len(members)


def answer(session: ClientSession, stage: str, message: bytes) -> bytes:
    if stage == "masked":
        return session.masked(message, UPDATE)
    reply: bytes = getattr(session, stage)(message)
    return reply


Wire = Callable[[str, str, bytes], bytes | None]


def drawn(plan: RoundPlan) -> dict[str, Prekeys]:
    """Prekeys of every client for the round of a plan."""
    request = PrekeyRequest(run=plan.run, round=plan.round, groups=len(plan.groups))
    return {name: Prekeys.draw(name, request) for name in plan.clients}


def published(prekeys: Mapping[str, Prekeys], consortium: Consortium | None = FOUR) -> dict[str, bytes]:
    return {
        name: one.published(None if consortium is None else consortium.of_client(name)) for name, one in prekeys.items()
    }


def play(
    plan: RoundPlan,
    consortium: Consortium | None = FOUR,
    *,
    sessions: Mapping[str, ClientSession] | None = None,
    prekeys: Mapping[str, Prekeys] | None = None,
    until: str = "results",
    up: Wire = lambda stage, client, reply: reply,
    seed: bytes = b"",
) -> tuple[dict[str, dict[str, bytes]], dict[str, dict[str, bytes]], tuple[GroupSum, ...]]:
    """An honest server; `up` may change or swallow a reply. Requests and replies by stage, and the sums.

    With prekeys stage "begin" stands for the first two. `seed` is that of the plan's challenge.
    """
    if sessions is None:
        sessions = (
            {name: ClientSession(name) for name in plan.clients} if consortium is None else consortium.sessions(plan)
        )
    server = ServerSession(
        plan, credentials=None if consortium is None else consortium.of_server(), seeds=(seed,) if seed else ()
    )
    stages = STAGES if consortium is None else SIGNED_STAGES
    down: dict[str, dict[str, bytes]] = {}
    if prekeys is None:
        down["keys"] = server.keys()
    else:
        stages = ("begin", *stages[2:])
        down["begin"] = server.begin(published(prekeys, consortium))
    back: dict[str, dict[str, bytes]] = {}
    for stage, following in zip(stages, (*stages[1:], "results"), strict=True):
        if stage == until:
            return down, back, ()
        back[stage] = {}
        for client, message in down[stage].items():
            try:
                if stage == "begin" and prekeys is not None:
                    made = sessions[client].begin(message, prekeys[client])
                else:
                    made = answer(sessions[client], stage, message)
                reply = up(stage, client, made)
            except ProtocolError:
                continue
            if reply is not None:
                back[stage][client] = reply
        if following == "results":
            break
        options = {"authorise": allow} if stage == "masked" else {}
        down[following] = getattr(server, following)(back[stage], **options)
    return down, back, server.results(back["unmask"])


def proposed(
    plan: RoundPlan,
    seen: Mapping[str, bytes],
    lists: Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]],
    **changes: Any,
) -> Link:
    """An agreement as a server that lies may propose it: by group, the positions of who is alive and who dropped.

    Args:
        plan: The plan.
        seen: The requests of stage "shares", in which the public keys are.
        lists: Group -> (alive, dropped).
        changes: Fields of the link that are to be other than the first of a chain would have them.
    """
    groups = []
    for index, (alive, dropped) in sorted(lists.items()):
        member = plan.groups[index][alive[0]]
        (part,) = (one for one in read(plan, "shares", member, seen[member]).parts if one.group == index)
        size = len(part.body) // len(part.members)
        keys = {position: part.body[size * order :][:PUBLIC_BYTES] for order, position in enumerate(part.members)}
        present = {position: keys[position] for position in (*alive, *dropped)}
        row = plan.coefficients[index] if plan.coefficients else ()
        coefficients = tuple(row[position] for position in alive) if row else ()
        groups.append(
            OpenedGroup(
                group=index,
                alive=tuple(plan.groups[index][position] for position in alive),
                dropped=tuple(plan.groups[index][position] for position in dropped),
                keys=keys_digest(plan.groups[index], present),
                coefficients=coefficients,
            )
        )
    fields: dict[str, Any] = {
        "number": 1,
        "previous": chain_of(FOUR.registry),
        "plan": plan.digest,
        "run": plan.run,
        "round": plan.round,
        "purpose": plan.purpose,
        "task": plan.task,
        "model": plan.inputs.get("model", ""),
        "weights": {client: plan.weights[client] for one in groups for client in one.alive},
        "groups": tuple(groups),
    }
    return Link(**(fields | changes))


def asked_to_open(
    plan: RoundPlan,
    stage: str,
    client: str,
    lists: Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]],
    attached: bytes,
    server: Identity = FOUR.server,
) -> bytes:
    """A request of stage "agree" or "unmask" about those of the lists in which the client is alive."""
    parts = [
        GroupPart(group=index, members=alive, dropped=dropped)
        for index, (alive, dropped) in sorted(lists.items())
        if client in [plan.groups[index][position] for position in alive]
    ]
    return stage_message(plan, stage, client, parts, attached=attached, identity=server)


def read(plan: RoundPlan, stage: str, client: str, message: bytes, *, at: int = 0) -> StageMessage:
    """A message of a signed session, without checking who signed it: what an eavesdropper does."""
    unsigned = message[:-64]
    return read_stage_message(unsigned, plan=plan, stage=stage, client=client, at=at)
