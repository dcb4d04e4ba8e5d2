"""One client in one group: its secrets, and what it does with them at each stage."""

import hashlib
import os
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedgt.errors import ProtocolError
from fedgt.secagg.agreement import keys_digest
from fedgt.secagg.identity import SIGNATURE_BYTES, Credentials, verify
from fedgt.secagg.masks import (
    KEY_BYTES,
    TAG_BYTES,
    GroupContext,
    decrypt_share,
    encrypt_share,
    pair_seed,
    seed_commitment,
    self_seed,
    tag_key,
)
from fedgt.secagg.messages import GroupPart
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.shares import SECRET_BYTES, SHARE_BYTES, split_secret

PUBLIC_BYTES = 3 * KEY_BYTES
"""Public key for shares | public key for masks | commitment to the self-mask secret."""
HASH_BYTES = 16
PAIR_BYTES = 2 * SHARE_BYTES
"""Share of the mask key | share of the self-mask secret: what one client holds of another."""
PARCEL_BYTES = PAIR_BYTES + TAG_BYTES + 2 * HASH_BYTES
"""The pair encrypted | the hashes of both shares in clear, by which a share that is released can be checked."""
OWN_BYTES = 2 * HASH_BYTES
"""Of the shares that a client keeps itself, only the hashes travel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKeys:
    """The fresh secrets of one client for one group, and what it publishes of them."""

    share_key: X25519PrivateKey = field(repr=False)
    mask_key: X25519PrivateKey = field(repr=False)
    secret: bytearray = field(repr=False)
    public: bytes

    @classmethod
    def draw(cls, context: GroupContext, client: str) -> "GroupKeys":
        """Fresh keys and a fresh self-mask secret, from the operating system."""
        share_key, mask_key = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        secret = bytearray(os.urandom(SECRET_BYTES))
        return cls(
            share_key=share_key,
            mask_key=mask_key,
            secret=secret,
            public=share_key.public_key().public_bytes_raw()
            + mask_key.public_key().public_bytes_raw()
            + seed_commitment(context, secret, client),
        )

    def published(self, context: GroupContext, client: str, credentials: Credentials | None) -> bytes:
        """The public bytes, signed if there is an identity: peers need not believe the server."""
        if credentials is None:
            return self.public
        return self.public + credentials.identity.sign("keys", keys_statement(context, client, self.public))


@dataclass(slots=True, kw_only=True)
class Membership:
    """The secrets of one client in one group; peers by their position in the group."""

    context: GroupContext
    clients: tuple[str, ...]
    position: int
    threshold: int
    share_key: X25519PrivateKey = field(repr=False)
    mask_key: X25519PrivateKey = field(repr=False)
    secret: bytearray = field(repr=False)
    public: bytes
    peers: dict[int, memoryview] = field(default_factory=dict)
    held: dict[int, bytearray] = field(default_factory=dict, repr=False)
    tag_key: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, plan: RoundPlan, index: int, client: str, keys: GroupKeys) -> "Membership":
        """A client in a group of a plan, with keys that are used for nothing else."""
        clients = plan.groups[index]
        return cls(
            context=GroupContext.of(plan, index),
            clients=clients,
            position=clients.index(client),
            threshold=plan.thresholds[index],
            share_key=keys.share_key,
            mask_key=keys.mask_key,
            secret=keys.secret,
            public=keys.public,
        )

    def forget(self) -> None:
        """Overwrite what Python lets us overwrite."""
        for buffer in (self.secret, *self.held.values()):
            buffer[:] = bytes(len(buffer))
        self.held.clear()
        self.peers.clear()

    def read_public_keys(
        self, part: GroupPart, credentials: Credentials | None, *, signed_in: GroupContext | None = None
    ) -> None:
        """Take the peers' public keys: own ones unchanged, no key twice, each signed by its pinned owner.

        Args:
            part: The server's message.
            credentials: The keys that are trusted; None in anonymous mode.
            signed_in: The context of the signatures, if it is not that of the group itself (prekeys).

        Raises:
            ProtocolError: If one of these does not hold.
        """
        size = public_bytes(credentials)
        body = memoryview(part.body)
        if len(body) != size * len(part.members):
            raise ProtocolError(
                f"group {part.group}: {len(body)} bytes for the public keys of {len(part.members)} clients"
            )
        for order, position in enumerate(part.members):
            signed = body[order * size : (order + 1) * size]
            if credentials is not None and position != self.position:
                verify_keys(credentials, signed_in or self.context, self.clients[position], signed)
            self.peers[position] = signed[:PUBLIC_BYTES]
        if self.peers[self.position] != self.public:
            raise ProtocolError(f"group {part.group}: the server shows other keys for this client than it published")
        keys = [bytes(public[start : start + KEY_BYTES]) for public in self.peers.values() for start in (0, KEY_BYTES)]
        if len(set(keys)) != len(keys):
            raise ProtocolError(f"group {part.group}: two clients have the same public key")

    def share_out(self) -> bytes:
        """By position: per peer its encrypted parcel and hashes; of the own shares, which stay here, the hashes."""
        count = len(self.clients)
        key_shares = split_secret(self.mask_key.private_bytes_raw(), threshold=self.threshold, count=count)
        secret_shares = split_secret(self.secret, threshold=self.threshold, count=count)
        self.held[self.position] = bytearray(key_shares[self.position] + secret_shares[self.position])
        me = self.clients[self.position]
        pieces = []
        for peer, public in self.peers.items():
            them, pair = self.clients[peer], key_shares[peer] + secret_shares[peer]
            if peer != self.position:
                to = public[:KEY_BYTES]
                pieces.append(encrypt_share(self.context, self.share_key, to, sender=me, receiver=them, share=pair))
            pieces.append(pair_hashes(self.context, me, them, pair))
        return b"".join(pieces)

    def open_parcels(self, part: GroupPart, *, tagged: bool) -> tuple[int, ...]:
        """Decrypt what the peers have shared.

        Where a share cannot be read, or is not the one that its dealer has published the hash of, zeros are held in its
        place: the client masks with that peer all the same, and the server leaves its share of it out.

        Args:
            part: The server's key for the tag (32 bytes, if `tagged`), then a parcel from every peer.
            tagged: Whether the masked vector will carry a tag.

        Returns:
            Whose shares cannot be read, ascending.

        Raises:
            ProtocolError: If the parcels are not those of all peers.
        """
        senders = [position for position in part.members if position != self.position]
        start = KEY_BYTES if tagged else 0
        server, body = memoryview(part.body)[:start], memoryview(part.body)[start:]
        if len(part.body) != start + PARCEL_BYTES * len(senders):
            raise ProtocolError(f"group {part.group}: {len(part.body)} bytes for the shares of {len(senders)} clients")
        if tagged:
            self.tag_key = tag_key(self.context, self.share_key, server, self.clients[self.position])
        unreadable: list[int] = []
        for order, position in enumerate(senders):
            sender, me = self.clients[position], self.clients[self.position]
            parcel = body[order * PARCEL_BYTES : (order + 1) * PARCEL_BYTES]
            try:
                pair = decrypt_share(
                    self.context,
                    self.share_key,
                    self.peers[position][:KEY_BYTES],
                    sender=sender,
                    receiver=me,
                    ciphertext=parcel[: -2 * HASH_BYTES],
                )
            except ProtocolError:
                pair = bytearray()
            if len(pair) != PAIR_BYTES or pair_hashes(self.context, sender, me, pair) != parcel[-2 * HASH_BYTES :]:
                unreadable.append(position)
                pair = bytearray(PAIR_BYTES)
            self.held[position] = pair
        return tuple(unreadable)

    def masks(self) -> list[tuple[bytes, bool]]:
        """(seeds, whether it is taken away): the own mask, and one with each peer that shared.

        It is added if this client comes first in the group, else taken away.
        """
        masks = [(self_seed(self.context, self.secret, self.clients[self.position]), False)]
        for peer in self.held:
            if peer != self.position:
                low, high = sorted((peer, self.position))
                public = self.peers[peer][KEY_BYTES : 2 * KEY_BYTES]
                seeds = pair_seed(self.context, self.mask_key, public, (self.clients[low], self.clients[high]))
                masks.append((seeds, self.position == high))
        return masks

    def require_survivors(self, part: GroupPart) -> None:
        """Everybody who shared is either alive or dropped.

        Raises:
            ProtocolError: If somebody is both or neither.
        """
        alive, dropped = set(part.members), set(part.dropped)
        if alive & dropped:
            both = self.clients[min(alive & dropped)]
            raise ProtocolError(f"group {part.group}: client {both} is said to be both alive and dropped")
        if alive | dropped != set(self.held):
            raise ProtocolError(f"group {part.group}: alive and dropped are not the clients that shared")

    def shares_for(self, part: GroupPart) -> bytes:
        """Of each member that is alive the share of its own secret, of each that dropped that of its mask key."""
        pieces = [self.held[position][SHARE_BYTES:] for position in part.members]
        pieces += [self.held[position][:SHARE_BYTES] for position in part.dropped]
        return b"".join(pieces)

    @property
    def keys(self) -> str:
        """The digest of the keys of all that shared, as this client was shown them."""
        return keys_digest(self.clients, {position: self.peers[position] for position in self.held})


def with_fresh_keys(
    plan: RoundPlan, index: int, client: str, credentials: Credentials | None
) -> tuple[Membership, GroupPart]:
    """A client in a group of a plan, with keys that are drawn now, and what it publishes of them."""
    context = GroupContext.of(plan, index)
    keys = GroupKeys.draw(context, client)
    published = GroupPart(group=index, body=keys.published(context, client, credentials))
    return Membership.of(plan, index, client, keys), published


def shared_bytes(members: int) -> int:
    """The number of bytes in which a client shares its secrets among so many members of a group, itself included."""
    return PARCEL_BYTES * (members - 1) + OWN_BYTES


def pair_hashes(context: GroupContext, dealer: str, holder: str, pair: bytes | bytearray) -> bytes:
    """Hashes of either share of a pair. Shares are random elements of a large field, so hashes reveal nothing of them."""
    return b"".join(
        share_hash(context, use, dealer, holder, pair[start : start + SHARE_BYTES])
        for use, start in (("mask key", 0), ("self-mask", SHARE_BYTES))
    )


def share_hash(
    context: GroupContext, use: str, dealer: str, holder: str, share: bytes | bytearray | memoryview
) -> bytes:
    """The first half of the SHA-256 of one share, bound to its group, its use, its dealer and its holder."""
    return hashlib.sha256(context.info("share hash", use, dealer, holder) + bytes(share)).digest()[:HASH_BYTES]


def public_bytes(credentials: Credentials | None) -> int:
    """The number of bytes that each member publishes per group."""
    return PUBLIC_BYTES + (0 if credentials is None else SIGNATURE_BYTES)


def require_usable(own: X25519PrivateKey, public: bytes | memoryview) -> None:
    """Check that both public keys of a client can be agreed with, and are two.

    Raises:
        ProtocolError: If they are equal, or one is no usable point: peers would end their sessions over it.
    """
    first, second = (bytes(public[start : start + KEY_BYTES]) for start in (0, KEY_BYTES))
    if first == second:
        raise ProtocolError("its two public keys are the same")
    for key in (first, second):
        try:
            own.exchange(X25519PublicKey.from_public_bytes(key))
        except ValueError as error:
            raise ProtocolError("a public key of it is not a usable X25519 point") from error


def keys_statement(context: GroupContext, client: str, public: bytes | memoryview) -> bytes:
    """What a client signs when it publishes keys: for this plan (prekeys: none yet), run, round, purpose and group."""
    return context.info("keys", client) + bytes(public)


def verify_keys(credentials: Credentials, context: GroupContext, client: str, signed: bytes | memoryview) -> None:
    """Check the signature on a client's public bytes.

    Raises:
        SignatureError: If they are not the pinned client's, or were made for something else.
    """
    public, signature = signed[:PUBLIC_BYTES], signed[PUBLIC_BYTES:]
    statement = keys_statement(context, client, public)
    verify(credentials.registry.client_key(client), "keys", statement, signature, signer=client)
