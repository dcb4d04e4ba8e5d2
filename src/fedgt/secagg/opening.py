"""What the server holds of one group, and how it takes the masks off once the clients have released the shares."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedgt.errors import ProtocolError
from fedgt.secagg.agreement import OpenedGroup, keys_digest
from fedgt.secagg.fixed_point import RingArray
from fedgt.secagg.masks import KEY_BYTES, GroupContext, add_mask, pair_seed, seed_commitment, self_seed
from fedgt.secagg.membership import PARCEL_BYTES, PUBLIC_BYTES
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.shares import SECRET_BYTES, combine_shares


@dataclass(slots=True, kw_only=True)
class ServerGroup:
    """What the server holds of one group while it runs; clients by their position.

    `published_in` is the context in which the members have signed and committed to what they published.
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
    parcels: dict[int, memoryview] = field(default_factory=dict)
    alive: tuple[int, ...] = ()
    total: RingArray | None = None

    @property
    def gone(self) -> tuple[int, ...]:
        """Who has shared but sent no input."""
        return tuple(position for position in self.sharers if position not in self.alive)

    @property
    def opened(self) -> OpenedGroup:
        """What the clients must agree on before this sum is opened."""
        keys = {position: self.public[position][:PUBLIC_BYTES] for position in self.sharers}
        return OpenedGroup(
            group=self.index,
            alive=tuple(self.clients[position] for position in self.alive),
            dropped=tuple(self.clients[position] for position in self.gone),
            keys=keys_digest(self.clients, keys),
        )


def open_group(plan: RoundPlan, group: ServerGroup, replies: Mapping[int, memoryview]) -> None:
    """Take the masks off the total of a group, in place.

    Args:
        plan: The plan.
        group: What was collected of it.
        replies: Position -> the shares that it released, in the order alive, gone.

    Raises:
        ProtocolError: If too few shares came, or they do not give the secret that the client committed to.
    """
    total = group.total
    if total is None:
        raise ProtocolError("there is no masked total")
    context = GroupContext.of(plan, group.index)
    for order, owner in enumerate((*group.alive, *group.gone)):
        client = group.clients[owner]
        shares = {holder: body[order * SECRET_BYTES : (order + 1) * SECRET_BYTES] for holder, body in replies.items()}
        secret = combine_shares(shares, threshold=group.threshold)
        if owner in group.alive:
            if seed_commitment(group.published_in, secret, client) != group.public[owner][2 * KEY_BYTES : PUBLIC_BYTES]:
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


def parcel_for(parcels: memoryview, published: tuple[int, ...], sender: int, receiver: int) -> memoryview:
    """The parcel for one receiver, out of a sender's parcels for all that published keys except itself."""
    order = published.index(receiver) - (published.index(sender) < published.index(receiver))
    return parcels[order * PARCEL_BYTES : (order + 1) * PARCEL_BYTES]
