"""What the server holds of one group, and how it takes the masks off once the clients have released the shares."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedgt.errors import ProtocolError, TooFewSharesError
from fedgt.foreign_text import plain
from fedgt.secagg.agreement import OpenedGroup, keys_digest, stated_coefficients
from fedgt.secagg.challenge import field_of
from fedgt.secagg.fixed_point import RingArray
from fedgt.secagg.masks import KEY_BYTES, GroupContext, add_mask, pad_masks, pair_seed, seed_commitment, self_seed
from fedgt.secagg.membership import HASH_BYTES, OWN_BYTES, PARCEL_BYTES, PUBLIC_BYTES, share_hash
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.shares import SHARE_BYTES, combine_shares


@dataclass(slots=True, kw_only=True)
class ServerGroup:
    """What the server holds of one group while it runs; clients by their position.

    `published_in` is the context in which the members have signed and committed to what they published; `complaints` has
    of each dealer those who cannot read its shares, and `refusing` those of them who take no part for it. `pads` are of the
    stages whose pads the group carries, in order.
    """

    index: int
    published_in: GroupContext
    clients: tuple[str, ...]
    threshold: int
    present: set[int]
    reason: str = ""
    dropped: dict[str, str] = field(default_factory=dict)
    public: dict[int, memoryview] = field(default_factory=dict)
    sharers: tuple[int, ...] = ()
    hashes: dict[int, dict[int, bytes]] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    complaints: dict[int, set[int]] = field(default_factory=dict)
    refusing: set[int] = field(default_factory=set)
    alive: tuple[int, ...] = ()
    total: RingArray | None = None
    pads: list[int] = field(default_factory=list)

    def drop(self, client: str, why: str) -> None:
        """A client takes no part any more."""
        self.dropped[client] = plain(why)
        self.present.discard(self.clients.index(client))

    def require_threshold(self, stage: str) -> None:
        """The group is lost if it still goes on, and with too few clients."""
        if self.reason or len(self.present) >= self.threshold:
            return
        self.reason = (
            f"{stage}: {len(self.present)} of {len(self.clients)} clients are left, the threshold is {self.threshold} "
            f"({'; '.join(f'{client}: {why}' for client, why in self.dropped.items())})"
        )

    def complain(self, client: str, dealers: Collection[int], *, refuses: bool) -> None:
        """A client says that it cannot read the shares of these dealers, and whether it takes no part.

        It has to only if it can read too few. Else it has left by itself, and the group goes on.
        """
        own = self.clients.index(client)
        for dealer in dealers:
            self.complaints.setdefault(dealer, set()).add(own)
        if refuses and len(self.sharers) - len(dealers) < self.threshold:
            self.refusing.add(own)

    def holders(self, dealer: int, there: Collection[int]) -> set[int]:
        """Who of those that are there has not said that it cannot read the shares of a dealer."""
        return set(there) - self.complaints.get(dealer, set())

    @property
    def gone(self) -> tuple[int, ...]:
        """Who has shared but sent no input."""
        return tuple(position for position in self.sharers if position not in self.alive)

    @property
    def members(self) -> tuple[str, ...]:
        """Whose vectors are in the sum, in the order of the group."""
        return tuple(self.clients[position] for position in self.alive)

    def add(self, client: str, vector: RingArray, pads: Sequence[int]) -> None:
        """A client's masked vector and pads have arrived; its total is the sum of all that have."""
        if self.total is None:
            self.total = vector.copy()
        else:
            np.add(self.total, vector, out=self.total)
        self.pads = [sum(pair) for pair in zip(self.pads or [0] * len(pads), pads, strict=True)]
        self.alive = (*self.alive, self.clients.index(client))

    def opened(self, plan: RoundPlan) -> OpenedGroup:
        """What the clients must agree on before this sum is opened."""
        keys = {position: self.public[position][:PUBLIC_BYTES] for position in self.sharers}
        return OpenedGroup(
            group=self.index,
            alive=self.members,
            dropped=tuple(self.clients[position] for position in self.gone),
            keys=keys_digest(self.clients, keys),
            coefficients=stated_coefficients(plan, self.index, self.members),
        )


def open_group(plan: RoundPlan, group: ServerGroup, replies: Mapping[int, memoryview]) -> None:
    """Take the masks off the total of a group, in place, and off its pads if the plan has a challenge.

    A released share that is not the one of its hash is left out, and its holder is named: it has seen the same hash before
    it masked, and has not complained. Shares that are right by their hashes and belong to no secret, or to another one than
    was committed to, name their dealer.

    Args:
        plan: The plan.
        group: What was collected of it; `faults` is added to.
        replies: Position -> the shares that it released, in the order alive, gone.

    Raises:
        ProtocolError: If too few good shares came, or a dealer's shares are not those of its secret.
    """
    total = group.total
    if total is None:
        raise ProtocolError("there is no masked total")
    context = GroupContext.of(plan, group.index)
    secrets = {
        owner: _rebuilt(context, group, owner, order, replies)
        for order, owner in enumerate((*group.alive, *group.gone))
    }
    masks = [(self_seed(context, secrets[owner], group.clients[owner]), True) for owner in group.alive]
    for owner in group.gone:
        key = X25519PrivateKey.from_private_bytes(secrets[owner])
        for peer in group.alive:
            # The peer's input still holds the mask of the pair: added if the peer comes first, else subtracted.
            low, high = sorted((peer, owner))
            pair = (group.clients[low], group.clients[high])
            seeds = pair_seed(context, key, group.public[peer][KEY_BYTES : 2 * KEY_BYTES], pair)
            masks.append((seeds, peer == low))
    chosen = field_of(plan)
    for seeds, subtract in masks:
        add_mask(total, seeds, subtract=subtract)
        if chosen is not None:
            for lane, mask in enumerate(pad_masks(chosen, seeds)):
                group.pads[lane] += -mask if subtract else mask


def _rebuilt(
    context: GroupContext, group: ServerGroup, owner: int, order: int, replies: Mapping[int, memoryview]
) -> bytes:
    """The secret of one owner from the good shares: its self-mask secret, or the mask key of one that dropped."""
    dealer, alive = group.clients[owner], owner in group.alive
    good = {}
    for holder in group.holders(owner, replies):
        body = replies[holder]
        share, name = body[order * SHARE_BYTES : (order + 1) * SHARE_BYTES], group.clients[holder]
        expected = group.hashes[owner][holder][HASH_BYTES if alive else 0 :][:HASH_BYTES]
        if share_hash(context, "self-mask" if alive else "mask key", dealer, name, share) == expected:
            good[holder] = share
        else:
            group.faults[name] = f"released a share of {dealer} that is not the one it was given"
    try:
        secret = combine_shares(good, threshold=group.threshold)
    except TooFewSharesError as error:
        raise ProtocolError(f"{len(good)} good shares of {dealer}, {group.threshold} are needed") from error
    except ProtocolError as error:
        group.faults[dealer] = "dealt shares that belong to no secret"
        raise ProtocolError(f"the shares that {dealer} dealt belong to no secret") from error
    if alive:
        right = seed_commitment(group.published_in, secret, dealer) == group.public[owner][2 * KEY_BYTES : PUBLIC_BYTES]
    else:
        key = X25519PrivateKey.from_private_bytes(secret)
        right = key.public_key().public_bytes_raw() == group.public[owner][KEY_BYTES : 2 * KEY_BYTES]
    if not right:
        group.faults[dealer] = "dealt shares of another secret than it committed to"
        raise ProtocolError(f"the shares that {dealer} dealt do not give the secret that it committed to")
    return secret


def parcel_for(parcels: memoryview, published: tuple[int, ...], sender: int, receiver: int) -> memoryview:
    """The parcel for one receiver with its hashes, out of what a sender shared among all that published keys."""
    start = _start(published, sender, receiver)
    return parcels[start : start + PARCEL_BYTES]


def hashes_for(parcels: memoryview, published: tuple[int, ...], sender: int, holder: int) -> bytes:
    """The two hashes of what a sender gave to a holder, itself included."""
    stop = _start(published, sender, holder) + (OWN_BYTES if sender == holder else PARCEL_BYTES)
    return bytes(parcels[stop - OWN_BYTES : stop])


def _start(published: tuple[int, ...], sender: int, receiver: int) -> int:
    order = published.index(receiver)
    own = published.index(sender) < order
    return order * PARCEL_BYTES - (PARCEL_BYTES - OWN_BYTES if own else 0)
