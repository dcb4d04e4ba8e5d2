"""The client's side of one batch of secure sums: four calls, bytes in and bytes out, no I/O.

Double masking after Bonawitz et al. 2017 (Practical secure aggregation for privacy-preserving machine learning), one
independent instance per group. Whatever breaks the protocol ends the session: it never answers again.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedgt.errors import ProtocolError
from fedgt.secagg.masks import (
    KEY_BYTES,
    TAG_BYTES,
    GroupContext,
    add_mask,
    decrypt_share,
    encrypt_share,
    pair_seed,
    seed_commitment,
    self_seed,
)
from fedgt.secagg.messages import STAGES, GroupPart, StageMessage, read_plan_message, read_stage_message, stage_message
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.shares import SECRET_BYTES, split_secret
from fedgt.secagg.vector import client_vectors

PUBLIC_BYTES = 3 * KEY_BYTES
"""Public key for shares | public key for masks | commitment to the self-mask secret."""
PARCEL_BYTES = 2 * SECRET_BYTES + TAG_BYTES
"""Encrypted: share of the mask key | share of the self-mask secret."""


@dataclass(slots=True, kw_only=True)
class _Membership:
    """The secrets of one client in one group."""

    context: GroupContext
    clients: tuple[str, ...]
    position: int
    threshold: int
    share_key: X25519PrivateKey
    mask_key: X25519PrivateKey
    secret: bytearray
    public: bytes
    peers: dict[int, memoryview] = field(default_factory=dict)
    held: dict[int, bytearray] = field(default_factory=dict)

    def forget(self) -> None:
        """Overwrite what Python lets us overwrite."""
        for buffer in (self.secret, *self.held.values()):
            buffer[:] = bytes(len(buffer))
        self.held.clear()
        self.peers.clear()


class ClientSession:
    """One client in all its groups of one plan.

    The four methods must be called once each, in order; each takes the server's bytes and returns the client's. A group
    that this client cannot accept is refused alone (the server hears why); everything that the protocol forbids raises
    `ProtocolError` and ends the session. After the unmask, or such an end, keys and shares are gone: bytearrays are
    zeroed; the private keys inside `cryptography` and short-lived `bytes` copies are only released, not overwritten.

    Args:
        client: This client's id.
        minimum_group_size: Refuse to take part in, or help to open, a sum over fewer clients than this.

    Raises:
        ProtocolError: If the minimum is below 1.
    """

    def __init__(self, client: str, *, minimum_group_size: int = 2) -> None:
        """Nothing is drawn before the plan is known."""
        if minimum_group_size < 1:
            raise ProtocolError(f"minimum_group_size is {minimum_group_size}; at least 1 is needed")
        self._client = client
        self._minimum = minimum_group_size
        self._plan: RoundPlan | None = None
        self._groups: dict[int, _Membership] = {}
        self._next = 0

    @property
    def plan(self) -> RoundPlan:
        """The plan of the keys request.

        Raises:
            ProtocolError: Before the keys stage.
        """
        if self._plan is None:
            raise ProtocolError("this session has no plan yet: the keys stage comes first")
        return self._plan

    @property
    def closed(self) -> bool:
        """Whether the session is over and its secrets are gone."""
        return self._next >= len(STAGES)

    def close(self) -> None:
        """End the session and forget its secrets."""
        for membership in self._groups.values():
            membership.forget()
        self._groups.clear()
        self._next = len(STAGES)

    def keys(self, payload: bytes) -> bytes:
        """Stage 1: read the plan, make fresh keys for each of this client's groups, publish the public halves.

        Raises:
            ProtocolError: If the plan is not valid, does not name this client, or all its groups are too small.
        """
        return self._run("keys", lambda: self._keys(payload))

    def shares(self, payload: bytes) -> bytes:
        """Stage 2: share both secrets of each group among the clients that published keys.

        Raises:
            ProtocolError: If the request is malformed or not of this session.
        """
        return self._run("shares", lambda: self._shares(payload))

    def masked(
        self,
        payload: bytes,
        update: Mapping[str, npt.NDArray[np.floating]],
        center: Mapping[str, npt.NDArray[np.floating]] | None = None,
    ) -> bytes:
        """Stage 3: the update, encoded and masked against the clients that shared.

        Args:
            payload: The server's message.
            update: Tensor name -> finite array of the agreed shape.
            center: The current Weiszfeld estimate; for that task only.

        Raises:
            ProtocolError: If the request is malformed or not of this session.
            ShapeError: If the update does not fit the plan or is not finite; the message names the tensor.
        """
        return self._run("masked", lambda: self._masked(payload, update, center))

    def unmask(self, payload: bytes) -> bytes:
        """Stage 4: of each group that may be opened, the shares that open it; then forget everything.

        For a client whose input is in, the share of its self-mask secret; for one that dropped, of its mask key; never
        both.

        Raises:
            ProtocolError: If the request is malformed, not of this session, or asks for what must stay secret.
        """
        reply = self._run("unmask", lambda: self._unmask(payload))
        self.close()
        return reply

    def _run(self, stage: str, answer: Callable[[], bytes]) -> bytes:
        """Each stage once and in order; any error ends the session."""
        if self.closed or STAGES[self._next] != stage:
            state = "the session is over" if self.closed else f"the next stage is {STAGES[self._next]!r}"
            self.close()
            raise ProtocolError(f"client {self._client}: stage {stage!r} is refused, {state}; each stage runs once")
        self._next += 1
        try:
            return answer()
        except BaseException:
            self.close()
            raise

    def _keys(self, payload: bytes) -> bytes:
        plan = read_plan_message(payload)
        mine = [index for index, group in enumerate(plan.groups) if self._client in group]
        if not mine:
            raise ProtocolError(f"client {self._client} is in no group of the plan")
        parts: list[GroupPart] = []
        refused: dict[int, str] = {}
        for index in mine:
            clients = plan.groups[index]
            if reason := self._too_small(len(clients)):
                refused[index] = reason
                continue
            self._groups[index] = membership = _draw_membership(plan, index, self._client)
            parts.append(GroupPart(group=index, body=membership.public))
        if not parts:
            raise ProtocolError(f"client {self._client} refuses every group: {next(iter(refused.values()))}")
        self._plan = plan
        return stage_message(plan, "keys", self._client, parts, refused)

    def _shares(self, payload: bytes) -> bytes:
        message = self._read("shares", payload)
        parts: list[GroupPart] = []
        refused: dict[int, str] = {}
        for part in message.parts:
            membership = self._groups[part.group]
            membership.peers = _read_public_keys(part, membership)
            if reason := self._too_few(part.group, len(part.members)):
                self._refuse(part.group, reason, refused)
                continue
            parts.append(GroupPart(group=part.group, body=_share_out(membership)))
        return stage_message(self.plan, "shares", self._client, parts, refused)

    def _masked(
        self,
        payload: bytes,
        update: Mapping[str, npt.NDArray[np.floating]],
        center: Mapping[str, npt.NDArray[np.floating]] | None,
    ) -> bytes:
        message = self._read("masked", payload)
        refused: dict[int, str] = {}
        for part in message.parts:
            membership = self._groups[part.group]
            if not set(part.members) <= set(membership.peers):
                raise ProtocolError(f"group {part.group}: a client has shared that published no keys")
            if reason := self._too_few(part.group, len(part.members)):
                self._refuse(part.group, reason, refused)
                continue
            try:
                _open_parcels(part, membership)
            except ProtocolError as error:
                self._refuse(part.group, str(error), refused)
        vectors = client_vectors(self.plan, self._client, self._groups, update, center)
        parts = []
        for index, membership in self._groups.items():
            vector = vectors[index]
            add_mask(vector, self_seed(membership.context, membership.secret, self._client))
            for peer in membership.held:
                if peer != membership.position:
                    low, high = sorted((peer, membership.position))
                    pair = (membership.clients[low], membership.clients[high])
                    public = membership.peers[peer][KEY_BYTES : 2 * KEY_BYTES]
                    seed = pair_seed(membership.context, membership.mask_key, public, pair)
                    add_mask(vector, seed, subtract=membership.position == high)
            parts.append(GroupPart(group=index, body=vector.view(np.uint8).data))
        return stage_message(self.plan, "masked", self._client, parts, refused)

    def _unmask(self, payload: bytes) -> bytes:
        message = self._read("unmask", payload)
        parts: list[GroupPart] = []
        refused: dict[int, str] = {}
        for part in message.parts:
            membership = self._groups[part.group]
            alive, dropped = set(part.members), set(part.dropped)
            if alive & dropped:
                both = membership.clients[min(alive & dropped)]
                raise ProtocolError(f"group {part.group}: client {both} is said to be both alive and dropped")
            if alive | dropped != set(membership.held):
                raise ProtocolError(f"group {part.group}: alive and dropped are not the clients that shared")
            if reason := self._too_few(part.group, len(alive)):
                refused[part.group] = reason
                continue
            pieces = [membership.held[position][SECRET_BYTES:] for position in part.members]
            pieces += [membership.held[position][:SECRET_BYTES] for position in part.dropped]
            parts.append(GroupPart(group=part.group, body=b"".join(pieces)))
        return stage_message(self.plan, "unmask", self._client, parts, refused)

    def _read(self, stage: str, payload: bytes) -> StageMessage:
        """Parse a request and check what holds in each stage; groups it does not mention are over."""
        message = read_stage_message(payload, plan=self.plan, stage=stage, client=self._client)
        if message.refused:
            raise ProtocolError("a server message cannot refuse groups")
        for part in message.parts:
            if part.group not in self._groups:
                raise ProtocolError(f"group {part.group} is none that client {self._client} takes part in")
            if self._groups[part.group].position not in part.members:
                raise ProtocolError(f"group {part.group}: client {self._client} itself is missing from its members")
            if part.dropped and stage != "unmask":
                raise ProtocolError(f"group {part.group}: dropped clients are named only at the unmask")
            if part.body and stage == "unmask":
                raise ProtocolError(f"group {part.group}: an unmask request has no body")
        for index in set(self._groups) - {part.group for part in message.parts}:
            self._groups.pop(index).forget()
        return message

    def _refuse(self, group: int, reason: str, refused: dict[int, str]) -> None:
        self._groups.pop(group).forget()
        refused[group] = reason

    def _too_small(self, size: int) -> str | None:
        if size >= self._minimum:
            return None
        return f"a sum over {size} client(s) is below this client's minimum of {self._minimum}"

    def _too_few(self, group: int, present: int) -> str | None:
        threshold = self.plan.thresholds[group]
        if present < threshold:
            return f"{present} client(s) are left, the threshold is {threshold}"
        return self._too_small(present)


def _draw_membership(plan: RoundPlan, index: int, client: str) -> _Membership:
    """Fresh keys and a fresh self-mask secret, from the operating system."""
    context = GroupContext.of(plan, index)
    share_key, mask_key = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    secret = bytearray(os.urandom(SECRET_BYTES))
    public = (
        share_key.public_key().public_bytes_raw()
        + mask_key.public_key().public_bytes_raw()
        + seed_commitment(context, secret, client)
    )
    clients = plan.groups[index]
    return _Membership(
        context=context,
        clients=clients,
        position=clients.index(client),
        threshold=plan.thresholds[index],
        share_key=share_key,
        mask_key=mask_key,
        secret=secret,
        public=public,
    )


def _read_public_keys(part: GroupPart, membership: _Membership) -> dict[int, memoryview]:
    """Position -> the 96 public bytes; own ones unchanged, no key twice."""
    body = memoryview(part.body)
    if len(body) != PUBLIC_BYTES * len(part.members):
        raise ProtocolError(f"group {part.group}: {len(body)} bytes for the public keys of {len(part.members)} clients")
    peers = {
        position: body[order * PUBLIC_BYTES : (order + 1) * PUBLIC_BYTES] for order, position in enumerate(part.members)
    }
    if peers[membership.position] != membership.public:
        raise ProtocolError(f"group {part.group}: the server shows other keys for this client than it published")
    keys = [bytes(public[start : start + KEY_BYTES]) for public in peers.values() for start in (0, KEY_BYTES)]
    if len(set(keys)) != len(keys):
        raise ProtocolError(f"group {part.group}: two clients have the same public key")
    return peers


def _share_out(membership: _Membership) -> bytes:
    """One encrypted parcel per peer, in the order of positions; the client's own shares stay here."""
    count = len(membership.clients)
    key_shares = split_secret(membership.mask_key.private_bytes_raw(), threshold=membership.threshold, count=count)
    secret_shares = split_secret(membership.secret, threshold=membership.threshold, count=count)
    membership.held[membership.position] = bytearray(
        key_shares[membership.position] + secret_shares[membership.position]
    )
    return b"".join(
        encrypt_share(
            membership.context,
            membership.share_key,
            public[:KEY_BYTES],
            sender=membership.clients[membership.position],
            receiver=membership.clients[peer],
            share=key_shares[peer] + secret_shares[peer],
        )
        for peer, public in membership.peers.items()
        if peer != membership.position
    )


def _open_parcels(part: GroupPart, membership: _Membership) -> None:
    """Decrypt what the peers have shared; nobody's input is masked before all shares are readable."""
    senders = [position for position in part.members if position != membership.position]
    body = memoryview(part.body)
    if len(body) != PARCEL_BYTES * len(senders):
        raise ProtocolError(f"group {part.group}: {len(body)} bytes for the shares of {len(senders)} clients")
    for order, position in enumerate(senders):
        membership.held[position] = decrypt_share(
            membership.context,
            membership.share_key,
            membership.peers[position][:KEY_BYTES],
            sender=membership.clients[position],
            receiver=membership.clients[membership.position],
            ciphertext=body[order * PARCEL_BYTES : (order + 1) * PARCEL_BYTES],
        )
