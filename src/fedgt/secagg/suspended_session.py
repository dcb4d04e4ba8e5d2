"""A client session as bytes, for engines that start a fresh process per message: what it needs to go on, and no more.

The bytes hold the private keys, the secrets and the shares of one session in clear. Keep them where only the client can
read them, resume them once, and forget them then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedgt.errors import ProtocolError
from fedgt.foreign_text import plain
from fedgt.secagg.agreement import Link
from fedgt.secagg.challenge import Committed, narrowest
from fedgt.secagg.frames import pack, unpack
from fedgt.secagg.masks import KEY_BYTES, GroupContext
from fedgt.secagg.membership import PAIR_BYTES, PUBLIC_BYTES, Membership
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.shares import SECRET_BYTES

_KIND = "suspended-session"
_PAD_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SuspendedSession:
    """What a session is between two messages.

    Attributes:
        plan: Its plan.
        stage: The number of the next stage.
        groups: Group number -> the client's membership.
        signed: The agreement that it has signed, if it has.
        akin: The hashes of the models that count as the plan's own.
        committed: The vector that it has masked, and the pads of the questions that it has not answered yet, if any.
    """

    plan: RoundPlan
    stage: int
    groups: Mapping[int, Membership]
    signed: Link | None
    akin: frozenset[str]
    committed: Committed | None

    def to_bytes(self, client: str) -> bytes:
        """One frame: the plan, and per group the two private keys, the own secret, peers' public bytes and held shares."""
        signed = b"" if self.signed is None else self.signed.to_json()
        body: list[bytes | memoryview] = [self.plan.to_json(), signed]
        entries: list[object] = []
        for index, one in self.groups.items():
            entries.append([index, list(one.peers), list(one.held), len(one.tag_key)])
            body += [one.share_key.private_bytes_raw(), one.mask_key.private_bytes_raw(), bytes(one.secret), one.public]
            body += [one.tag_key, *one.peers.values(), *(bytes(share) for share in one.held.values())]
        if self.committed is not None and self.committed.vector.size:
            body += [pad.to_bytes(_PAD_BYTES, "big") for pad in self.committed.pads.values()]
            body.append(self.committed.vector.tobytes())
        header = {
            "kind": _KIND,
            "client": client,
            "plan": len(body[0]),
            "signed": len(signed),
            "stage": self.stage,
            "groups": entries,
            "akin": sorted(self.akin),
            "pads": [] if self.committed is None else list(self.committed.pads),
        }
        return pack(header, *body)

    @classmethod
    def from_bytes(cls, payload: bytes, *, client: str) -> "SuspendedSession":
        """Read what `to_bytes` wrote.

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
            groups = {entry[0]: _membership(plan, client, entry, taken) for entry in header["groups"]}
            return cls(
                plan=plan,
                stage=int(header["stage"]),
                groups=groups,
                signed=Link.from_json(signed) if signed else None,
                akin=frozenset(header["akin"]),
                committed=_committed(plan, header["pads"], taken) if taken.left else None,
            )
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ProtocolError(f"client {client}: the suspended session cannot be read: {plain(error)}") from error


def _membership(plan: RoundPlan, client: str, entry: Any, taken: "_Reader") -> Membership:
    index, peers, held, tagged = entry
    share_key, mask_key = (X25519PrivateKey.from_private_bytes(taken(KEY_BYTES)) for _ in range(2))
    return Membership(
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


def _committed(plan: RoundPlan, stages: list[int], taken: "_Reader") -> Committed:
    pads = {int(stage): int.from_bytes(taken(_PAD_BYTES), "big") for stage in stages}
    dtype = narrowest(plan)
    return Committed(np.frombuffer(bytearray(taken(plan.length * dtype.itemsize)), dtype=dtype), pads)


class _Reader:
    """Takes pieces off the front of a body."""

    def __init__(self, body: memoryview) -> None:
        self._rest = body

    @property
    def left(self) -> int:
        """How many bytes are not taken yet."""
        return len(self._rest)

    def __call__(self, length: int) -> bytes:
        if length > len(self._rest):
            raise ValueError("it is cut off")
        piece, self._rest = bytes(self._rest[:length]), self._rest[length:]
        return piece
