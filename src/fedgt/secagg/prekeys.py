"""Keys that a client publishes one round ahead, so that the round itself begins with the shares: one round trip less.

They are prekeys as in Marlinspike and Perrin 2016 (The X3DH key agreement protocol): fresh, and used once. The plan of their
round is not known yet, so they are signed for a run, a round and the number of a group. The plan enters where keys are
derived: clients that were given different plans still cannot read each other's shares. See decision 0014.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedgt.errors import ProtocolError
from fedgt.ids import is_id
from fedgt.secagg.frames import pack, unpack
from fedgt.secagg.identity import Credentials
from fedgt.secagg.masks import KEY_BYTES, GroupContext
from fedgt.secagg.membership import PUBLIC_BYTES, GroupKeys, Membership, public_bytes
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.shares import SECRET_BYTES

MOST_PREKEYS = 4096
"""Groups for which a client publishes keys at most; some 0.1 ms of computing each."""

_KIND, _HELD = "prekeys", "held-prekeys"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrekeyRequest:
    """For which sums keys are wanted.

    Attributes:
        run: The name of the run.
        round: The coming round.
        groups: How many groups its plan may have; a client does not know yet in which of them it will be.

    Raises:
        ProtocolError: If it is anything but a name, a number and a number from 1 to `MOST_PREKEYS`.

    Examples:
        >>> from fedgt.secagg import PrekeyRequest
        >>> PrekeyRequest(run="example", round=2, groups=8).groups
        8
    """

    run: str
    round: int
    groups: int

    def __post_init__(self) -> None:
        """Check: it may come from a message."""
        right = is_id(self.run) and type(self.round) is int and type(self.groups) is int
        if not right or self.round < 0 or not 1 <= self.groups <= MOST_PREKEYS:
            raise ProtocolError(
                f"prekeys for {self.groups!r:.20} groups of round {self.round!r:.20} of {self.run!r:.80}: a run, a "
                f"round from 0 and 1 to {MOST_PREKEYS} groups are needed"
            )

    @property
    def entry(self) -> list[object]:
        """As it stands in a header."""
        return [self.run, self.round, self.groups]

    @classmethod
    def from_entry(cls, entry: object) -> "PrekeyRequest":
        """Read `entry`.

        Raises:
            ProtocolError: If it is anything else.
        """
        if not isinstance(entry, list) or len(entry) != 3:
            raise ProtocolError("malformed message: prekeys are asked for by run, round and number of groups")
        return cls(run=entry[0], round=entry[1], groups=entry[2])


class Prekeys:
    """The secrets behind one client's prekeys for one round.

    Args:
        client: Whose they are.
        request: For which run and round.
        keys: Number of the group -> keys.

    Examples:
        >>> from fedgt.secagg import PrekeyRequest, Prekeys
        >>> prekeys = Prekeys.draw("ada", PrekeyRequest(run="example", round=2, groups=3))
        >>> len(prekeys.published(None)) > 0  # the public halves; with credentials each is signed
        True
    """

    def __init__(self, client: str, request: PrekeyRequest, keys: Mapping[int, GroupKeys]) -> None:
        """Hold them."""
        self._client = client
        self._request = request
        self._keys = dict(keys)
        self._spent = False

    @classmethod
    def draw(cls, client: str, request: PrekeyRequest) -> "Prekeys":
        """Fresh keys for every group that is asked for, from the operating system."""
        contexts = (GroupContext.ahead(request.run, request.round, group) for group in range(request.groups))
        return cls(client, request, {group: GroupKeys.draw(context, client) for group, context in enumerate(contexts)})

    def published(self, credentials: Credentials | None) -> bytes:
        """The message with the public halves; each is signed by itself, because peers get them, too."""
        run, number = self._request.run, self._request.round
        return pack(
            {"kind": _KIND, "client": self._client, "for": self._request.entry},
            *(
                keys.published(GroupContext.ahead(run, number, group), self._client, credentials)
                for group, keys in self._keys.items()
            ),
        )

    @property
    def request(self) -> PrekeyRequest:
        """For which run and round."""
        return self._request

    @property
    def spent(self) -> bool:
        """Whether a plan has taken them: they serve no other."""
        return self._spent

    def spend(self, plan: RoundPlan) -> None:
        """Keep them for this plan alone; they stay as they are if they are not for its round.

        Raises:
            ProtocolError: If they are for another run or round, for fewer groups, or spent.
        """
        for_it = (plan.run, plan.round) == (self._request.run, self._request.round)
        if self._spent or not for_it or plan.stages[0] > self._request.groups:
            raise ProtocolError(
                f"client {self._client} has published keys for {self._request.groups} groups of round "
                f"{self._request.round} of run {self._request.run!r}, each to be used once; the plan has "
                f"{plan.stages[0]} groups in round {plan.round} of {plan.run!r}"
            )
        self._spent = True

    def answers(self, request: PrekeyRequest) -> bool:
        """Whether a request is for these keys, or for some of them: then the same are published again."""
        return (
            not self._spent
            and request.groups <= self._request.groups
            and (request.run, request.round) == (self._request.run, self._request.round)
        )

    def membership(self, plan: RoundPlan, index: int) -> Membership:
        """The client in a group of the plan that has spent the keys, with those of the group, which are gone from here.

        Raises:
            ProtocolError: If there are none for this group any more.
        """
        if index not in self._keys:
            raise ProtocolError(f"client {self._client} has no prekeys for group {index}, or no longer")
        return Membership.of(plan, index, self._client, self._keys.pop(index))

    def forget(self) -> None:
        """Overwrite what Python lets us overwrite."""
        for keys in self._keys.values():
            keys.secret[:] = bytes(SECRET_BYTES)
        self._keys.clear()
        self._spent = True

    def to_bytes(self) -> bytes:
        """All of it, secrets in clear, for another process to go on with; this object forgets it."""
        pieces: list[bytes] = [
            piece
            for one in self._keys.values()
            for piece in (
                one.share_key.private_bytes_raw(),
                one.mask_key.private_bytes_raw(),
                bytes(one.secret),
                one.public,
            )
        ]
        held = pack({"kind": _HELD, "client": self._client, "for": self._request.entry}, *pieces)
        self.forget()
        return held

    @classmethod
    def from_bytes(cls, payload: bytes, *, client: str) -> "Prekeys":
        """Read what `to_bytes` wrote.

        Raises:
            ProtocolError: If the bytes are not the prekeys of this client.
        """
        header, body = unpack(payload, kind=_HELD)
        request = PrekeyRequest.from_entry(header.get("for"))
        size = 2 * KEY_BYTES + SECRET_BYTES + PUBLIC_BYTES
        if header.get("client") != client or len(body) != request.groups * size:
            raise ProtocolError(f"client {client}: these are not its prekeys")
        keys = {}
        for group in range(request.groups):
            one = bytes(body[group * size : (group + 1) * size])
            rest = one[2 * KEY_BYTES :]
            keys[group] = GroupKeys(
                share_key=X25519PrivateKey.from_private_bytes(one[:KEY_BYTES]),
                mask_key=X25519PrivateKey.from_private_bytes(one[KEY_BYTES : 2 * KEY_BYTES]),
                secret=bytearray(rest[:SECRET_BYTES]),
                public=rest[SECRET_BYTES:],
            )
        return cls(client, request, keys)


def read_prekeys(
    payload: bytes, *, client: str, plan: RoundPlan, credentials: Credentials | None
) -> tuple[memoryview, ...]:
    """What a client has published, per group, for the round of a plan; signatures are checked where a key is used.

    Raises:
        ProtocolError: If it is malformed, another client's, for another run or round, or for fewer groups.
    """
    header, body = unpack(payload, kind=_KIND, body_bytes=MOST_PREKEYS * public_bytes(credentials))
    request = PrekeyRequest.from_entry(header.get("for"))
    if header.get("client") != client:
        raise ProtocolError(f"the prekeys are those of {header.get('client')!r:.80}")
    if (request.run, request.round) != (plan.run, plan.round) or request.groups < plan.stages[0]:
        raise ProtocolError(
            f"its prekeys are for {request.groups} groups of round {request.round} of run {request.run!r:.80}, the plan "
            f"has {plan.stages[0]} in round {plan.round} of {plan.run!r:.80}"
        )
    size = public_bytes(credentials)
    if len(body) != request.groups * size:
        raise ProtocolError(f"{len(body)} bytes for the prekeys of {request.groups} groups")
    return tuple(body[group * size : (group + 1) * size] for group in range(request.groups))
