"""A client session as bytes, for engines that start a fresh process per message: what it needs to go on, and no more.

The bytes hold the private keys, the secrets and the shares of one session in clear. Keep them where only the client can
read them, resume them once, and forget them then.
"""

from collections.abc import Iterable, Mapping

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedgt.errors import ProtocolError
from fedgt.foreign_text import plain
from fedgt.secagg.agreement import Link
from fedgt.secagg.frames import pack, unpack
from fedgt.secagg.masks import KEY_BYTES, GroupContext
from fedgt.secagg.membership import PAIR_BYTES, PUBLIC_BYTES, Membership
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.shares import SECRET_BYTES

_KIND = "suspended-session"


def suspended_session(
    client: str, plan: RoundPlan, stage: int, groups: Mapping[int, Membership], link: Link | None, akin: Iterable[str]
) -> bytes:
    """One frame: the plan, and per group the two private keys, the own secret, peers' public bytes and held shares.

    Args:
        client: Whose session it is.
        plan: Its plan.
        stage: The number of the next stage.
        groups: Group number -> the client's membership.
        link: The agreement that it has signed, if it has.
        akin: The hashes of the models that count as the plan's own.
    """
    signed = b"" if link is None else link.to_json()
    body: list[bytes | memoryview] = [plan.to_json(), signed]
    entries: list[object] = []
    for index, one in groups.items():
        entries.append([index, list(one.peers), list(one.held), len(one.tag_key)])
        body += [one.share_key.private_bytes_raw(), one.mask_key.private_bytes_raw(), bytes(one.secret), one.public]
        body += [one.tag_key, *one.peers.values(), *(bytes(share) for share in one.held.values())]
    header = {
        "kind": _KIND,
        "client": client,
        "plan": len(body[0]),
        "signed": len(signed),
        "stage": stage,
        "groups": entries,
        "akin": sorted(akin),
    }
    return pack(header, *body)


def resumed_session(
    client: str, payload: bytes
) -> tuple[RoundPlan, int, dict[int, Membership], Link | None, frozenset[str]]:
    """What `suspended_session` wrote: plan, number of the next stage, memberships, what was signed, akin models.

    Raises:
        ProtocolError: If the bytes are not a suspended session of this client.
    """
    # It is this client's own: as long as its groups need.
    header, body = unpack(payload, kind=_KIND, header_bytes=len(payload))
    try:
        if header["client"] != client:
            raise ProtocolError(f"client {client}: the suspended session is that of {header['client']!r:.80}")
        taken = _Reader(body)
        plan = RoundPlan.from_json(taken(header["plan"]))
        signed = taken(header["signed"])
        groups = {}
        for index, peers, held, tagged in header["groups"]:
            share_key, mask_key = (X25519PrivateKey.from_private_bytes(taken(KEY_BYTES)) for _ in range(2))
            groups[index] = Membership(
                context=GroupContext.of(plan, index),
                clients=plan.groups[index],
                position=plan.groups[index].index(client),
                threshold=plan.thresholds[index],
                share_key=share_key,
                mask_key=mask_key,
                secret=bytearray(taken(SECRET_BYTES)),
                public=taken(PUBLIC_BYTES),
                tag_key=taken(tagged),
                peers={position: memoryview(taken(PUBLIC_BYTES)) for position in peers},
                held={position: bytearray(taken(PAIR_BYTES)) for position in held},
            )
        return plan, int(header["stage"]), groups, Link.from_json(signed) if signed else None, frozenset(header["akin"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ProtocolError(f"client {client}: the suspended session cannot be read: {plain(error)}") from error


class _Reader:
    """Takes pieces off the front of a body."""

    def __init__(self, body: memoryview) -> None:
        self._rest = body

    def __call__(self, length: int) -> bytes:
        if length > len(self._rest):
            raise ValueError("it is cut off")
        piece, self._rest = bytes(self._rest[:length]), self._rest[length:]
        return piece
