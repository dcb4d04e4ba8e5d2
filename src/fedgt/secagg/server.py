"""The server's side of one batch of secure sums: five calls, bytes in and bytes out, no I/O.

`keys()`, `shares(...)`, `masked(...)`, `unmask(...)` each return one message per client for the next stage; `results`
returns one `GroupSum` per group. What a client does wrong costs that client, at worst its groups, never an exception.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedgt.errors import ProtocolError
from fedgt.secagg.client import PARCEL_BYTES, PUBLIC_BYTES
from fedgt.secagg.fixed_point import RingArray
from fedgt.secagg.masks import KEY_BYTES, GroupContext, add_mask, pair_seed, seed_commitment, self_seed
from fedgt.secagg.messages import STAGES, GroupPart, plan_message, read_stage_message, stage_message
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.shares import SECRET_BYTES, combine_shares
from fedgt.secagg.vector import read_sum
from fedgt.types import FloatArray

logger = logging.getLogger(__name__)

Authorise: TypeAlias = Callable[[tuple[tuple[str, ...], ...]], tuple[str | None, ...]]
"""Real members per group, in the order of the plan (empty: already lost) -> None to open, or why it is withheld."""

_NO_FAILURES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupSum:
    """What the server learns about one group.

    Attributes:
        group: The number of the group in the plan.
        members: The clients whose input arrived: exactly those that an open sum is over, in the order of the group.
        dropped: Client -> "stage: reason". One that left at the unmask is in `members` as well: its input was in.
        status: "open", or "erased": there is no sum.
        reason: Why the group is erased; empty if it is open.
        total: Tensor name -> float64 array, the sum of weight * update over the members (task "weiszfeld": of
            beta * update); None if erased.
        weight: The sum of the members' weights.
        clipped: How many entries the members clipped, together; 0 if erased.
        beta_total: The sum of the Weiszfeld weights beta; None for task "mean" or if erased.
    """

    group: int
    members: tuple[str, ...]
    dropped: Mapping[str, str]
    status: Literal["open", "erased"]
    reason: str
    total: Mapping[str, FloatArray] | None
    weight: int
    clipped: int
    beta_total: float | None = None


@dataclass(slots=True, kw_only=True)
class _Group:
    """What the server holds of one group while it runs; clients by their position."""

    index: int
    clients: tuple[str, ...]
    threshold: int
    present: set[int]
    reason: str = ""
    dropped: dict[str, str] = field(default_factory=dict)
    public: dict[int, memoryview] = field(default_factory=dict)
    sharers: tuple[int, ...] = ()
    parcels: dict[int, memoryview] = field(default_factory=dict)
    alive: tuple[int, ...] = ()
    total: RingArray | None = None


class ServerSession:
    """All groups of one plan, from the keys to the sums.

    The methods must be called in order. Each takes the replies to the messages that the one before returned (client ->
    bytes) and the failures (client -> reason); a client in neither has not replied.

    Args:
        plan: What is to be summed.
    """

    def __init__(self, plan: RoundPlan) -> None:
        """Everybody is expected."""
        self._plan = plan
        self._groups = [
            _Group(index=index, clients=clients, threshold=threshold, present=set(range(len(clients))))
            for index, (clients, threshold) in enumerate(zip(plan.groups, plan.thresholds, strict=True))
        ]
        self._asked: dict[str, dict[int, int]] = {}
        self._next = 0
        if plan.encoding.warning is not None:
            logger.warning("%s", plan.encoding.warning)

    def keys(self) -> dict[str, bytes]:
        """Stage 1, requests: the plan."""
        self._advance("keys")
        for group in self._groups:
            if not group.clients:
                group.reason = "the group has no clients"
        self._asked = {
            client: {group.index: PUBLIC_BYTES for group in self._groups if client in group.clients}
            for client in self._plan.clients
        }
        message = plan_message(self._plan)
        return dict.fromkeys(self._plan.clients, message)

    def shares(self, replies: Mapping[str, bytes], failures: Mapping[str, str] = _NO_FAILURES) -> dict[str, bytes]:
        """Stage 2, requests: everybody's public keys."""
        self._advance("shares")
        collected = self._collect("keys", replies, failures)
        requests: dict[str, list[GroupPart]] = {}
        for group in self._running():
            group.public = collected[group.index]
            members = tuple(sorted(group.present))
            body = b"".join(group.public[position] for position in members)
            for position in members:
                part = GroupPart(group=group.index, members=members, body=body)
                self._ask(requests, group, position, part, PARCEL_BYTES * (len(members) - 1))
        return self._messages("shares", requests)

    def masked(self, replies: Mapping[str, bytes], failures: Mapping[str, str] = _NO_FAILURES) -> dict[str, bytes]:
        """Stage 3, requests: to each client the encrypted shares that its peers made for it."""
        self._advance("masked")
        published = {group.index: tuple(sorted(group.present)) for group in self._groups}
        collected = self._collect("shares", replies, failures)
        length = self._plan.length * self._plan.encoding.dtype.itemsize
        requests: dict[str, list[GroupPart]] = {}
        for group in self._running():
            group.sharers = tuple(sorted(group.present))
            for receiver in group.sharers:
                parcels = [
                    _parcel(collected[group.index][sender], published[group.index], sender, receiver)
                    for sender in group.sharers
                    if sender != receiver
                ]
                part = GroupPart(group=group.index, members=group.sharers, body=b"".join(parcels))
                self._ask(requests, group, receiver, part, length)
        return self._messages("masked", requests)

    def unmask(
        self, replies: Mapping[str, bytes], failures: Mapping[str, str] = _NO_FAILURES, *, authorise: Authorise
    ) -> dict[str, bytes]:
        """Stage 4, requests: of each group that may be opened, who is alive and who dropped.

        `authorise` is asked once, before any request exists, unless every group is lost already. Every client whose
        input is in gets a message, even if it names no group: it ends that client's session, so that a withheld sum can
        never be opened later.

        Raises:
            ProtocolError: If `authorise` does not answer for each group. What it raises itself is passed on; nothing
                has been opened then.
        """
        self._advance("unmask")
        collected = self._collect("masked", replies, failures)
        finished: dict[str, list[GroupPart]] = {}
        for group in self._groups:
            if group.sharers:
                group.alive = tuple(sorted(group.present & set(collected[group.index])))
            for position in group.alive:
                finished.setdefault(group.clients[position], [])
        running = self._running()
        if running:
            self._authorise(authorise)
        for group in self._running():
            total = np.zeros(self._plan.length, dtype=self._plan.encoding.dtype)
            for position in group.alive:
                total += np.frombuffer(collected[group.index][position], dtype=total.dtype)
            group.total = total
            gone = tuple(sorted(set(group.sharers) - set(group.alive)))
            part = GroupPart(group=group.index, members=group.alive, dropped=gone)
            for position in group.alive:
                self._ask(finished, group, position, part, SECRET_BYTES * len(group.sharers))
        for client in finished:
            self._asked.setdefault(client, {})
        return self._messages("unmask", finished)

    def results(self, replies: Mapping[str, bytes], failures: Mapping[str, str] = _NO_FAILURES) -> tuple[GroupSum, ...]:
        """The sums, one per group of the plan; lost and withheld groups are erasures that say why."""
        self._advance("results")
        running = self._running()
        collected = self._collect("unmask", replies, failures)
        for group in running:
            if not group.reason:
                try:
                    self._open(group, collected[group.index])
                except ProtocolError as error:
                    group.reason = f"unmask: {error}"
        return tuple(self._result(group) for group in self._groups)

    def _advance(self, stage: str) -> None:
        order = (*STAGES, "results")
        if self._next >= len(order) or order[self._next] != stage:
            raise ProtocolError(f"{stage!r} was called out of order: the order is {', '.join(order)}, once each")
        self._next += 1

    def _running(self) -> list[_Group]:
        return [group for group in self._groups if not group.reason]

    def _ask(
        self, requests: dict[str, list[GroupPart]], group: _Group, position: int, part: GroupPart, reply: int
    ) -> None:
        """Queue a part for a client and note how many bytes must come back."""
        client = group.clients[position]
        requests.setdefault(client, []).append(part)
        self._asked.setdefault(client, {})[group.index] = reply

    def _messages(self, stage: str, requests: Mapping[str, list[GroupPart]]) -> dict[str, bytes]:
        return {client: stage_message(self._plan, stage, client, requests[client]) for client in sorted(requests)}

    def _collect(
        self, stage: str, replies: Mapping[str, bytes], failures: Mapping[str, str]
    ) -> dict[int, dict[int, memoryview]]:
        """Read all replies: group -> position -> body. Who gave none leaves its groups, and some groups are lost."""
        asked, self._asked = self._asked, {}
        collected: dict[int, dict[int, memoryview]] = {group.index: {} for group in self._groups}
        for client, lengths in asked.items():
            bodies, problems = self._read_reply(stage, client, lengths, replies, failures)
            for index in lengths:
                group = self._groups[index]
                position = group.clients.index(client)
                if index in bodies:
                    collected[index][position] = bodies[index]
                else:
                    group.dropped[client] = f"{stage}: {problems[index]}"
                    group.present.discard(position)
        for group in self._running():
            if len(group.present) < group.threshold:
                group.reason = (
                    f"{stage}: {len(group.present)} of {len(group.clients)} clients are left, the threshold is "
                    f"{group.threshold} ({'; '.join(f'{client}: {why}' for client, why in group.dropped.items())})"
                )
        return collected

    def _read_reply(
        self,
        stage: str,
        client: str,
        lengths: Mapping[int, int],
        replies: Mapping[str, bytes],
        failures: Mapping[str, str],
    ) -> tuple[dict[int, memoryview], dict[int, str]]:
        """Bodies by group, and for every other group that was asked for the reason why there is none."""
        if client in failures or client not in replies:
            return {}, dict.fromkeys(lengths, failures.get(client, "no reply"))
        try:
            message = read_stage_message(replies[client], plan=self._plan, stage=stage, client=client)
        except ProtocolError as error:
            return {}, dict.fromkeys(lengths, str(error))
        bodies: dict[int, memoryview] = {}
        problems = dict.fromkeys(lengths, "no answer for this group")
        problems |= {index: f"refused: {reason}" for index, reason in message.refused.items()}
        for part in message.parts:
            if part.group not in lengths:
                continue
            if len(part.body) == lengths[part.group]:
                bodies[part.group] = memoryview(part.body)
            else:
                problems[part.group] = f"{len(part.body)} bytes where {lengths[part.group]} are due"
        return bodies, problems

    def _authorise(self, authorise: Authorise) -> None:
        """Ask for every group that could be opened; mark the withheld ones."""
        members = tuple(
            () if group.reason else tuple(group.clients[position] for position in group.alive) for group in self._groups
        )
        answers = authorise(members)
        if len(answers) != len(members):
            raise ProtocolError(f"authorise answered for {len(answers)} groups, {len(members)} were asked about")
        for group, answer in zip(self._groups, answers, strict=True):
            if answer is not None and not group.reason:
                group.reason = f"withheld: {answer}"

    def _open(self, group: _Group, replies: Mapping[int, memoryview]) -> None:
        """Take the masks off the total of a group, in place.

        Raises:
            ProtocolError: If too few shares came, or they do not give the secret that the client committed to.
        """
        total = group.total
        if total is None:
            raise ProtocolError("there is no masked total")
        context = GroupContext.of(self._plan, group.index)
        gone = tuple(position for position in group.sharers if position not in group.alive)
        for order, owner in enumerate((*group.alive, *gone)):
            client = group.clients[owner]
            shares = {
                holder: body[order * SECRET_BYTES : (order + 1) * SECRET_BYTES] for holder, body in replies.items()
            }
            secret = combine_shares(shares, threshold=group.threshold)
            if owner in group.alive:
                if seed_commitment(context, secret, client) != group.public[owner][2 * KEY_BYTES :]:
                    raise ProtocolError(f"the shares of {client} do not give the secret that it committed to")
                add_mask(total, self_seed(context, secret, client), subtract=True)
                continue
            key = X25519PrivateKey.from_private_bytes(secret)
            if key.public_key().public_bytes_raw() != group.public[owner][KEY_BYTES : 2 * KEY_BYTES]:
                raise ProtocolError(f"the shares of {client} do not give the key that it published")
            for peer in group.alive:
                # The peer's input still holds the mask of the pair: added if the peer comes first, else subtracted.
                low, high = sorted((peer, owner))
                pair = (group.clients[low], group.clients[high])
                seed = pair_seed(context, key, group.public[peer][KEY_BYTES : 2 * KEY_BYTES], pair)
                add_mask(total, seed, subtract=peer == low)

    def _result(self, group: _Group) -> GroupSum:
        members = tuple(group.clients[position] for position in group.alive)
        opened = None if group.reason or group.total is None else read_sum(self._plan, group.total)
        return GroupSum(
            group=group.index,
            members=members,
            dropped=MappingProxyType(dict(group.dropped)),
            status="erased" if opened is None else "open",
            reason=group.reason,
            total=None if opened is None else opened.total,
            weight=sum(self._plan.weights[client] for client in members),
            clipped=0 if opened is None else opened.clipped,
            beta_total=None if opened is None else opened.beta_total,
        )


def _parcel(parcels: memoryview, published: tuple[int, ...], sender: int, receiver: int) -> memoryview:
    """The parcel for one receiver, out of a sender's parcels for all that published keys except itself."""
    order = published.index(receiver) - (published.index(sender) < published.index(receiver))
    return parcels[order * PARCEL_BYTES : (order + 1) * PARCEL_BYTES]
