"""A server that lies, has the keys of the clients that collude with it, and keeps whatever it was ever sent.

It plays the stages one by one against real endpoints, with any plan, model, member list, agreement and record that it
likes. `revealed` is what it can unmask by then; `unmasked` does so, with the shares that it really has.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedgt.engine import ClientEndpoint
from fedgt.engine.hello import hello_frame, read_answer
from fedgt.engine.round_message import RoundMessage, bound
from fedgt.errors import FedGTError
from fedgt.secagg import (
    ClientPolicy,
    ClientSession,
    Credentials,
    FixedPoint,
    Identity,
    Link,
    PrekeyRequest,
    Prekeys,
    RoundPlan,
    RunTerms,
    TensorSpec,
    default_threshold,
    weiszfeld_encoding,
)
from fedgt.secagg.agreement import OpenedGroup, chain_of, keys_digest, links_to_json, signatures_to_json
from fedgt.secagg.agreement_log import read_head
from fedgt.secagg.challenge import SEED_BYTES, seed_hash
from fedgt.secagg.identity import SIGNATURE_BYTES
from fedgt.secagg.membership import PUBLIC_BYTES
from fedgt.secagg.messages import (
    GroupPart,
    StageMessage,
    begin_message,
    order_of,
    plan_message,
    read_stage_message,
    stage_message,
)
from fedgt.secagg.opening import parcel_for
from fedgt.secagg.policy import ANONYMOUS
from fedgt.secagg.prekeys import read_prekeys
from fedgt.secagg.shares import SHARE_BYTES
from secagg_lab import Consortium
from unmasking import DEAD, SIZE, Attempt, LocalData, Unmasking, least_mixed, model

OBLIGING = replace(ANONYMOUS, last_round=10**40)
"""Of a client that colludes: it does what it is told."""
Lists = Mapping[int, tuple[Collection[str], Collection[str]]]
"""Group -> (who is said to be alive, who is said to have dropped)."""


def seed_of(stage: int) -> bytes:
    """Of the question of a stage: whoever lies need not draw it."""
    return bytes([stage]) * SEED_BYTES


class LyingServer(Unmasking):
    """See the module.

    Args:
        names: All clients of the registry.
        bad: Those that collude.
        policy: Of the honest ones.
        folder: Where the honest ones keep journals; None: in memory.
        samples: Client -> samples; 1 by default.
        options: More for each endpoint, such as terms or inputs.
    """

    def __init__(
        self,
        names: Sequence[str],
        policy: ClientPolicy,
        *,
        bad: Sequence[str] = (),
        colluders: int | None = None,
        folder: Path | None = None,
        samples: Mapping[str, int] | None = None,
        terms: RunTerms | None = None,
        people: Consortium | None = None,
        **options: Any,
    ) -> None:
        self.names = tuple(names)
        self.bad = tuple(bad)
        self.honest = tuple(name for name in names if name not in self.bad)
        self.colluders = policy.colluders if colluders is None else colluders
        self.policy = policy
        self.folder = folder
        self.terms = terms
        self.options = options
        self.people = people or Consortium(
            server=Identity.generate("server"), clients={name: Identity.generate(name) for name in names}
        )
        self.registry = self.people.registry
        self.data = {name: LocalData(name, (samples or {}).get(name, 1)) for name in names}
        self.endpoints: dict[tuple[str, int], ClientEndpoint] = {}
        self.attempts: list[Attempt] = []
        self.known: dict[str, tuple[Link, dict[str, bytes]]] = {}
        self.head: Link | None = None
        self.refusals: dict[str, str] = {}
        """Client -> why it was the first time that it refused something of the latest plan."""

    # Plans and endpoints ------------------------------------------------------------------------------------------------

    def credentials(self, identity: Identity) -> Credentials:
        return Credentials(identity=identity, registry=self.registry)

    def endpoint(self, name: str, process: int = 0) -> ClientEndpoint:
        """The endpoint of a client in one of its processes; made when it is first needed."""
        if (name, process) not in self.endpoints:
            self.endpoints[name, process] = self.fresh(name)
        return self.endpoints[name, process]

    def fresh(self, name: str) -> ClientEndpoint:
        return ClientEndpoint(
            name,
            self.data[name],
            policy=self.policy,
            terms=self.terms,
            credentials=self.credentials(self.people.clients[name]),
            journal=None if self.folder is None else self.folder / name,
            **self.options,
        )

    def plan(self, *groups: Sequence[str], **changes: Any) -> RoundPlan:
        rows = tuple(tuple(group) for group in groups)
        fields: dict[str, Any] = {
            "run": "run",
            "round": 1,
            "purpose": "test",
            "groups": rows,
            "thresholds": tuple(default_threshold(len(group), colluders=self.colluders) for group in rows),
            "weights": {client: 1 for group in rows for client in group},
            "encoding": FixedPoint(clip=8.0, fraction_bits=16, ring_bits=32),
            "tensors": (TensorSpec(name="w", shape=(SIZE,)),),
            "colluders": self.colluders,
        }
        if changes.get("task") == "weiszfeld":
            smoothing = changes.setdefault("smoothing", 1e-6)
            clip = changes.setdefault("update_clip", 8.0)
            fields["encoding"] = weiszfeld_encoding(update_clip=clip, smoothing=smoothing, members=max(map(len, rows)))
        return RoundPlan(**(fields | changes))

    def tell(self, client: str, stage: str, message: bytes, process: int = 0) -> bytes | None:
        try:
            return self.endpoint(client, process).handle(stage, message)
        except FedGTError as error:
            self.refusals.setdefault(client, str(error))
            return None

    # The stages ---------------------------------------------------------------------------------------------------------

    def begin(
        self,
        plan: RoundPlan,
        sent: Mapping[str, Any],
        *,
        center: Mapping[str, Any] | None = None,
        others: Callable[[str], Mapping[str, Any]] | None = None,
        silent: Collection[str] = (),
        process: int = 0,
        ahead: bool = False,
        extra: Mapping[str, str] | None = None,
    ) -> Attempt:
        """Keys or prekeys, and the plan. `others` gives single clients another model than the plan names."""
        self.refusals.clear()
        if plan.task == "weiszfeld" and center is None:
            center = {"w": np.zeros(SIZE)}
        if len(plan.stages) > 1:
            plan = replace(plan, challenges=tuple(seed_hash(seed_of(stage)) for stage in range(len(plan.stages))))
        plan = replace(plan, inputs={**plan.inputs, **(extra or {})})
        plan = bound(plan, sent, center)
        attempt = Attempt(plan=plan, sent=sent, center=center, process=process, ahead=ahead)
        self.attempts.append(attempt)
        attempt.bad = {
            name: ClientSession(
                name, minimum_group_size=1, policy=OBLIGING, credentials=self.credentials(self.people.clients[name])
            )
            for name in self.bad
            if name in plan.clients
        }
        chosen = [name for name in plan.clients if name not in silent]
        if ahead:
            self._publish_ahead(attempt, chosen, others)
        else:
            self._publish(attempt, chosen, others)
        return attempt

    def opening(
        self, attempt: Attempt, session: bytes, client: str, others: Callable[[str], Mapping[str, Any]] | None
    ) -> bytes:
        sent = attempt.sent if others is None else others(client)
        attempt.others[client] = float(np.round(sent["w"][-1] / 100.0))
        message = RoundMessage(session=session, parameters=sent, center=attempt.center)
        return message.to_bytes(identity=self.people.server)

    def _publish(self, attempt: Attempt, chosen: Sequence[str], others: Any) -> None:
        session = plan_message(attempt.plan, identity=self.people.server)
        for name in chosen:
            reply: bytes | None
            if name in attempt.bad:
                reply = attempt.bad[name].keys(session)
            else:
                reply = self.tell(name, "keys", self.opening(attempt, session, name, others), attempt.process)
            if reply is not None:
                for part in self.read(attempt, "keys", name, reply).parts:
                    position = attempt.plan.groups[part.group].index(name)
                    attempt.keys.setdefault(part.group, {})[position] = bytes(part.body)

    def _publish_ahead(self, attempt: Attempt, chosen: Sequence[str], others: Any) -> None:
        plan = attempt.plan
        request = PrekeyRequest(run=plan.run, round=plan.round, groups=len(plan.groups))
        nonce, question = hello_frame(self.credentials(self.people.server), request)
        drawn: dict[str, Prekeys] = {}
        for name in chosen:
            if name in attempt.bad:
                drawn[name] = Prekeys.draw(name, request)
                published: bytes | None = drawn[name].published(self.credentials(self.people.clients[name]))
            else:
                answer = self.tell(name, "hello", question, attempt.process)
                published = (
                    None
                    if answer is None
                    else read_answer(answer, nonce=nonce, credentials=self.credentials(self.people.server)).prekeys
                )
            if published is None:
                continue
            keys = read_prekeys(published, client=name, plan=plan, credentials=self.credentials(self.people.server))
            for index, group in enumerate(plan.groups):
                if name in group:
                    attempt.keys.setdefault(index, {})[group.index(name)] = bytes(keys[index])
        session = begin_message(
            plan, [self._keys_part(attempt, index) for index in attempt.keys], identity=self.people.server
        )
        for name in chosen:
            reply: bytes | None
            if name in drawn:
                reply = attempt.bad[name].begin(session, drawn[name])
            else:
                reply = self.tell(name, "begin", self.opening(attempt, session, name, others), attempt.process)
            if reply is not None:
                self._take_parcels(attempt, name, reply)

    def _keys_part(self, attempt: Attempt, index: int) -> GroupPart:
        members = tuple(sorted(attempt.keys[index]))
        attempt.told[index] = members
        return GroupPart(
            group=index, members=members, body=b"".join(attempt.keys[index][position] for position in members)
        )

    def further(self, attempt: Attempt, *, silent: Collection[str] = ()) -> None:
        """The next stage of a plan begins; those that collude do as they are told, whatever was or was not opened."""
        attempt.stage += 1
        attempt.ahead = False
        for name in attempt.plan.clients:
            if name in attempt.bad:
                session = attempt.bad[name]
                session._turns.next = order_of(attempt.plan, signed=True).index("further")
            if name in silent:
                continue
            reply = self.ask(attempt, "further", name, [])
            if reply is not None:
                for part in self.read(attempt, "further", name, reply).parts:
                    position = attempt.plan.groups[part.group].index(name)
                    attempt.keys.setdefault(part.group, {})[position] = bytes(part.body)

    def now(self, attempt: Attempt, groups: Collection[int]) -> list[int]:
        """Those of some groups that are of the stage that runs."""
        return [index for index in attempt.plan.of_stage(attempt.stage) if index in groups]

    def share(self, attempt: Attempt, *, silent: Collection[str] = ()) -> None:
        """Everybody's keys go out, encrypted shares come back."""
        if attempt.ahead:
            return
        parts = [self._keys_part(attempt, index) for index in self.now(attempt, attempt.keys)]
        for name in attempt.plan.clients:
            mine = [part for part in parts if self.place(attempt, part.group, name) in part.members]
            if name in silent or not (mine or attempt.stage):
                continue
            reply = self.ask(attempt, "shares", name, mine)
            if reply is not None:
                self._take_parcels(attempt, name, reply)

    def _take_parcels(self, attempt: Attempt, name: str, reply: bytes) -> None:
        message = self.read(attempt, "shares", name, reply)
        attempt.heads[name] = read_head(message.attached)
        for part in message.parts:
            position = attempt.plan.groups[part.group].index(name)
            attempt.parcels.setdefault(part.group, {})[position] = bytes(part.body)

    def mask(
        self,
        attempt: Attempt,
        *,
        silent: Collection[str] = (),
        hidden: Mapping[str, Collection[str]] | None = None,
        missed: Callable[[str], bytes] | None = None,
    ) -> None:
        """Shares go out, vectors come back. `hidden` keeps peers from single clients, `missed` lies about the record."""
        server = X25519PrivateKey.generate().public_key().public_bytes_raw()
        for name in attempt.plan.clients:
            parts = []
            for index in self.now(attempt, attempt.parcels):
                here = self.place(attempt, index, name)
                group = attempt.plan.groups[index]
                members = tuple(p for p in attempt.sharers(index) if group[p] not in (hidden or {}).get(name, ()))
                if here not in members:
                    continue
                body = b"".join(
                    parcel_for(memoryview(attempt.parcels[index][other]), attempt.told[index], other, here)
                    for other in members
                    if other != here
                )
                parts.append(GroupPart(group=index, members=members, body=server + body))
            if name in silent or not (parts or (attempt.stage and name in attempt.heads)):
                continue
            attached = b"" if name in attempt.bad else self.missed(attempt, name) if missed is None else missed(name)
            reply = self.ask(attempt, "masked", name, parts, attached)
            if reply is None:
                continue
            for part in self.read(attempt, "masked", name, reply).parts:
                here = attempt.plan.groups[part.group].index(name)
                vector = np.frombuffer(bytes(part.body), dtype=attempt.plan.encoding.dtype, count=attempt.plan.length)
                attempt.vectors[part.group, here] = vector
                attempt.seen[part.group, here] = next(one.members for one in parts if one.group == part.group)

    def missed(self, attempt: Attempt, name: str) -> bytes:
        """What a client has not heard of on the way to the server's head; nothing if its record is another."""
        path, link = [], self.head
        while link is not None and link.digest != attempt.heads[name].digest:
            path.append(self.known[link.digest])
            link = self.known[link.previous][0] if link.previous in self.known else None
        start = attempt.heads[name].number == 0
        return links_to_json(path[::-1]) if link is not None or start else b""

    def link(self, attempt: Attempt, lists: Lists, *, after: Link | None = None, **changes: Any) -> Link:
        """An agreement over these lists, whatever really happened; by default it follows the server's head."""
        plan = attempt.plan
        groups = []
        for index, (alive, dropped) in sorted(lists.items()):
            order, gone = ([name for name in plan.groups[index] if name in some] for some in (alive, dropped))
            keys = {
                plan.groups[index].index(name): attempt.keys[index][plan.groups[index].index(name)][:PUBLIC_BYTES]
                for name in (*order, *gone)
            }
            groups.append(
                OpenedGroup(
                    group=index,
                    alive=tuple(order),
                    dropped=tuple(gone),
                    keys=keys_digest(plan.groups[index], keys),
                )
            )
        before = self.head if after is None else after
        fields: dict[str, Any] = {
            "number": 1 if before is None else before.number + 1,
            "previous": chain_of(self.registry) if before is None else before.digest,
            "plan": plan.digest,
            "run": plan.run,
            "round": plan.round,
            "purpose": plan.purpose,
            "task": plan.task,
            "model": plan.inputs["model"],
            "weights": {name: plan.weights[name] for one in groups for name in one.alive},
            "groups": tuple(groups),
        }
        return Link(**(fields | changes))

    def truth(self, attempt: Attempt, groups: Collection[int] | None = None) -> Lists:
        """Who is really alive and who dropped, of the groups that can be opened."""
        plan, lists = attempt.plan, {}
        for index in self.now(attempt, attempt.parcels):
            sent = [p for p in attempt.sharers(index) if (index, p) in attempt.vectors]
            if len(sent) >= plan.thresholds[index] and (groups is None or index in groups):
                gone = [p for p in attempt.sharers(index) if p not in sent]
                lists[index] = ([plan.groups[index][p] for p in sent], [plan.groups[index][p] for p in gone])
        return lists

    def sign(self, attempt: Attempt, link: Link, by: Collection[str] | None = None) -> dict[str, bytes]:
        """Who signs; those that collude always do."""
        signatures = {name: link.sign(self.people.clients[name]) for name in self.bad}
        for name in attempt.heads if by is None else sorted(set(by) & set(self.names)):
            if name in self.bad:
                continue
            seed = seed_of(attempt.stage) if attempt.plan.challenges else b""
            reply = self.ask(attempt, "agree", name, self.lists_of(attempt, link, name), seed + link.to_json())
            if reply is not None:
                signatures[name] = bytes(self.read(attempt, "agree", name, reply).attached)[:SIGNATURE_BYTES]
        before = self.known.get(link.digest, (link, {}))[1]
        self.known[link.digest] = (link, {**before, **signatures})
        return self.known[link.digest][1]

    def unmask(
        self, attempt: Attempt, link: Link, signatures: Mapping[str, bytes] | None = None
    ) -> dict[str, tuple[int, ...]]:
        """Ask all that are alive for their shares; honest client -> the groups that it has released shares for."""
        signatures = self.known[link.digest][1] if signatures is None else signatures
        released = {}
        for name in attempt.heads if attempt.plan.challenges else link.weights:
            if name in self.bad:
                continue
            parts = self.lists_of(attempt, link, name)
            reply = self.ask(attempt, "unmask", name, parts, signatures_to_json(signatures))
            if reply is None:
                continue
            groups = []
            for part in self.read(attempt, "unmask", name, reply).parts:
                asked = next(one for one in parts if one.group == part.group)
                self._keep(attempt, asked, self.place(attempt, part.group, name), bytes(part.body))
                groups.append(part.group)
            if groups:
                released[name] = tuple(groups)
        return released

    def _keep(self, attempt: Attempt, part: GroupPart, holder: int, body: bytes) -> None:
        for order, owner in enumerate((*part.members, *part.dropped)):
            what = "own" if owner in part.members else "mask"
            share = body[order * SHARE_BYTES : (order + 1) * SHARE_BYTES]
            attempt.shares.setdefault((part.group, owner, what), {})[holder] = share

    def play(self, plan: RoundPlan, sent: Mapping[str, Any] | None = None, **how: Any) -> Attempt:
        """As an honest server would, up to the vectors."""
        attempt = self.begin(plan, model(1) if sent is None else sent, **how)
        self.share(attempt)
        self.mask(attempt)
        return attempt

    def open(
        self, attempt: Attempt, lists: Lists | None = None, by: Collection[str] | None = None
    ) -> dict[str, tuple[int, ...]]:
        """Agreement and shares, with the lists given or the true ones; the server goes on from there."""
        lists = self.truth(attempt) if lists is None else lists
        if not lists:
            return {}
        link = self.link(attempt, lists)
        if set(self.sign(attempt, link, by)) - set(self.bad):
            self.head = link
        return self.unmask(attempt, link)

    # Messages -----------------------------------------------------------------------------------------------------------

    def ask(
        self, attempt: Attempt, stage: str, name: str, parts: Sequence[GroupPart], attached: bytes = b""
    ) -> bytes | None:
        message = stage_message(
            attempt.plan, stage, name, parts, attached=attached, at=attempt.stage, identity=self.people.server
        )
        if name not in attempt.bad:
            return self.tell(name, stage, message, attempt.process)
        session = attempt.bad[name]
        try:
            if stage == "masked":
                return session.masked(message, {"w": self.data[name].update(attempt.kind)}, attempt.center)
            reply: bytes = getattr(session, stage)(message)
        except FedGTError:
            return None
        return reply

    def read(self, attempt: Attempt, stage: str, name: str, reply: bytes) -> StageMessage:
        return read_stage_message(
            reply[:-64], plan=attempt.plan, stage=stage, client=name, at=attempt.stage, in_place=stage == "masked"
        )

    def lists_of(self, attempt: Attempt, link: Link, name: str) -> list[GroupPart]:
        """The part of an agreement that one client is asked about."""
        places = [attempt.plan.groups[one.group] for one in link.groups]
        return [
            GroupPart(
                group=one.group,
                members=tuple(group.index(client) for client in one.alive),
                dropped=tuple(group.index(client) for client in one.dropped),
            )
            for one, group in zip(link.groups, places, strict=True)
            if name in one.alive
        ]

    def place(self, attempt: Attempt, group: int, name: str) -> int:
        return attempt.plan.groups[group].index(name) if name in attempt.plan.groups[group] else -1


__all__ = ["DEAD", "Attempt", "LocalData", "LyingServer", "least_mixed", "model"]
