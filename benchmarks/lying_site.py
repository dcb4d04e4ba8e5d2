"""Clients that break the rules of the secure sums in every way that is known to us, for `liars.py`.

Each liar also has a poisoned update, and its honest one: it sends either, sum by sum, as its attack says. Nothing here is
used by the defence.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from fedgt.engine import ClientEndpoint
from fedgt.engine.endpoint import Client
from fedgt.errors import ProtocolError
from fedgt.secagg import ClientSession, RoundPlan
from fedgt.secagg.membership import OWN_BYTES, PARCEL_BYTES, Membership
from fedgt.secagg.messages import GroupPart, read_stage_message, stage_message
from fedgt.secagg.shares import PRIME, SHARE_BYTES, split_secret
from fedgt.types import Parameters
from lying_client import shifted

ATTACKS: Final[Mapping[str, str]] = {
    "equivocation": "poison in the sums of a victim, the honest update in the others",
    "unreadable parcels": "shares that two victims cannot read, and poison",
    "bad keys": "share key equal to mask key",
    "false shares": "false shares at the unmask, and poison",
    "range": "anything in the ring",
    "leaves": "no answer at the unmask, and poison",
    "tests only": "spoils its sums of the tests, poison in the others",
    "complaints": "complains of a victim's shares, and poison",
    "bad dealing": "shares that belong to no secret, and poison",
    "now and then": "spoils each sum by the toss of a coin, poison in the others",
    "no answer": "as equivocation, and leaves the challenge unanswered",
}
"""Name -> what a liar does; the first six are those of the issue that these figures are for, the others our own."""

STANDING: Final[Mapping[str, str]] = {
    **ATTACKS,
    "first sums only": "poison in the first sums of a round, the honest update in those that are asked for later",
    "later sums only": "poison in the sums that are asked for later, the honest update in the first ones",
    "wakes and spoils": "honest until round 4, then poison, and spoils all its sums",
    "wakes and equivocates": "honest until round 4, then as equivocation",
}
"""The same where there is a test in every round, or on suspicion, and more that only these know."""

WAKES: Final = 4
"""The first round in which a client does harm that is honest at first."""


class Liar(ClientEndpoint):
    """A client that breaks the rules.

    Args:
        client: Its id.
        poisoned: Trains its poisoned model.
        honest: Trains its honest one.
        attack: One of `STANDING`.
        victims: Whom it is after; the first one most.
        seed: Of its coins.
    """

    def __init__(
        self, client: str, poisoned: Client, honest: Client, *, attack: str, victims: tuple[str, ...], seed: int
    ) -> None:
        """With two models."""
        super().__init__(client, poisoned)
        self.honest, self.attack, self.victims = honest, attack, victims
        self.since = WAKES if attack.startswith("wakes") else 1
        self.rng = np.random.default_rng([seed, int.from_bytes(client.encode()[-4:], "big")])

    def handle(self, stage: str, payload: bytes) -> bytes:
        """See `ClientEndpoint`; keys are changed here."""
        reply = super().handle(stage, payload)
        if stage == "keys" and self.attack == "bad keys" and isinstance(self._session, _LyingSession):
            return self._session.changed("keys", reply, lambda part: bytes(part.body[:32]) * 2 + bytes(part.body[64:]))
        return reply

    def _new_session(self) -> ClientSession:
        return _LyingSession(self._id, self)


class _LyingSession(ClientSession):
    def __init__(self, client: str, liar: Liar) -> None:
        super().__init__(client)
        self._liar = liar
        self._more: npt.NDArray[np.int64] | None = None

    def shares(self, payload: bytes) -> bytes:
        if self._liar.attack == "bad dealing":
            with patch("fedgt.secagg.membership.split_secret", _no_secret):
                return super().shares(payload)
        reply = super().shares(payload)
        if self._liar.attack != "unreadable parcels":
            return reply
        return self.changed("shares", reply, self._unreadable)

    def masked(self, payload: bytes, update: Any, center: Any = None, *, base: Any = None) -> bytes:
        attack, mine = self._liar.attack, self._mine()
        with _complaining(self._client, self._liar.victims[0]) if attack == "complaints" else _nothing():
            reply = super().masked(payload, update, center, base=base)
        if self.plan.round < self._liar.since:
            return reply
        first = set(mine) & set(range(self.plan.stages[0] if len(self.plan.stages) > 1 else len(self.plan.groups)))
        clean: Sequence[int] = ()
        if self.plan.purpose != "test":
            pass
        elif attack in ("equivocation", "no answer", "wakes and equivocates"):
            clean = [group for group in mine if self._liar.victims[0] not in self.plan.groups[group]]
        elif attack == "first sums only":
            clean = [group for group in mine if group not in first]
        elif attack == "later sums only":
            clean = sorted(first)
        if clean:
            return shifted(self, reply, dict.fromkeys(clean, self._to_honest(update, base)), {})
        if attack == "range":
            anything = self._liar.rng.integers(0, 2**self.plan.encoding.ring_bits, self.plan.length, dtype=np.uint64)
            return shifted(self, reply, dict.fromkeys(mine, anything.tolist()), {})
        spoilt = {
            "tests only": mine if self.plan.purpose == "test" else [],
            "wakes and spoils": mine,
            "now and then": [group for group in mine if self._liar.rng.random() < 0.5],
        }.get(attack, [])
        if not spoilt:
            return reply
        if self.plan.challenges:
            return shifted(self, reply, {}, dict.fromkeys(spoilt, 1))
        far = [2 ** (self.plan.encoding.ring_bits - 2)]
        return shifted(self, reply, {group: far for group in spoilt}, {})  # noqa: C420

    def _to_honest(self, update: Any, base: Any) -> list[int]:
        """What makes the honest update of the poisoned one; a later stage of a plan has the vector of its first."""
        if self._more is None:
            honest = self._liar.honest.train(base, round=self.plan.round).parameters
            poisoned = update() if callable(update) else update
            mine, own = (_levels(self.plan, self._client, one, base) for one in (honest, poisoned))
            self._more = mine - own
        more: list[int] = self._more.tolist()
        return more

    def unmask(self, payload: bytes) -> bytes:
        if self._liar.attack == "leaves":
            raise ProtocolError("gone")
        reply = super().unmask(payload)
        if self._liar.attack != "false shares":
            return reply
        return self.changed("unmask", reply, lambda part: bytes(byte ^ 1 for byte in part.body))

    def _answer(self, seed: bytes | memoryview) -> bytes:
        answer = super()._answer(seed)
        return b"" if self._liar.attack == "no answer" else answer

    def _mine(self) -> list[int]:
        return [number for number, members in enumerate(self.plan.groups) if self._client in members]

    def changed(self, stage: str, reply: bytes, change: Callable[[GroupPart], bytes]) -> bytes:
        """A reply with other bodies."""
        at = self._turns.at
        message = read_stage_message(reply, plan=self.plan, stage=stage, client=self._client, at=at)
        parts = [GroupPart(group=part.group, members=part.members, body=change(part)) for part in message.parts]
        return stage_message(self.plan, stage, self._client, parts, attached=bytes(message.attached), at=at)

    def _unreadable(self, part: GroupPart) -> bytes:
        body, members = bytearray(part.body), self.plan.groups[part.group]
        place = members.index(self._client)
        for victim in set(self._liar.victims) & set(members):
            there = members.index(victim)
            body[there * PARCEL_BYTES - (PARCEL_BYTES - OWN_BYTES if place < there else 0)] ^= 1
        return bytes(body)


def _levels(plan: RoundPlan, client: str, model: Parameters, base: Parameters) -> npt.NDArray[np.int64]:
    """The whole numbers that a client would send for a model, and how many entries it clipped."""
    weight, parts, count = plan.weights[client], [], 0
    for tensor in plan.tensors:
        update = np.asarray(model[tensor.name], dtype=np.float64) - np.asarray(base[tensor.name], dtype=np.float64)
        levels, clipped = plan.encoding.encode(update, weight=weight)
        signed = levels.view(np.dtype(f"i{levels.dtype.itemsize}")).astype(np.int64)
        parts.append(signed.ravel())
        count += int(clipped)
    return np.concatenate([*parts, np.array([count])])


def _no_secret(secret: Any, *, threshold: int, count: int) -> tuple[bytes, ...]:
    shares = list(split_secret(secret, threshold=threshold, count=count))
    wrong = (int.from_bytes(shares[-1], "big") + 1) % PRIME
    return (*shares[:-1], wrong.to_bytes(SHARE_BYTES, "big"))


@contextmanager
def _nothing() -> Any:
    yield


@contextmanager
def _complaining(liar: str, victim: str) -> Any:
    """The liar says that it cannot read what the victim has dealt; only its own calls run meanwhile."""
    honest = Membership.open_parcels

    def open_parcels(self: Membership, part: GroupPart, *, tagged: bool) -> tuple[int, ...]:
        found = set(honest(self, part, tagged=tagged))
        if self.clients[self.position] == liar and victim in self.clients:
            found |= {self.clients.index(victim)} & set(part.members)
        return tuple(sorted(found))

    with patch.object(Membership, "open_parcels", open_parcels):
        yield
