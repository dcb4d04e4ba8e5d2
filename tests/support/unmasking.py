"""What a lying server can unmask by then: the secrets that it can put together, and the sums that follow.

Kept apart from the server itself, so that it does not rest on what the server was told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedgt.engine import TrainedModel
from fedgt.privacy import minimum_support
from fedgt.secagg import ClientSession, RoundPlan
from fedgt.secagg.masks import KEY_BYTES, GroupContext, add_mask, pair_seed, self_seed
from fedgt.secagg.shares import SHARE_BYTES, combine_shares
from fedgt.types import Parameters

SIZE = 2
DEAD = -1e6
"""A model of this value teaches nobody anything: updates are zero, and known."""


def model(kind: float, shift: float = 0.0) -> dict[str, Any]:
    """A global model; those of other kinds are far away, a small shift makes one that is nearly the same."""
    values = np.full(SIZE, 100.0 * kind)
    values[0] += shift
    return {"w": values}


@dataclass
class LocalData:
    """One client's training: an update that follows from who it is and, roughly, from the model."""

    name: str
    samples: int = 1
    trained: list[float] = field(default_factory=list)

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        kind = float(np.round(parameters["w"][-1] / 100.0))
        self.trained.append(kind)
        own = {name: np.array(values) for name, values in parameters.items()}
        own["w"] = own["w"] + self.update(kind)
        return TrainedModel(parameters=own, samples=self.samples)

    def update(self, kind: float) -> Any:
        if kind * 100 <= DEAD:
            return np.zeros(SIZE)
        return np.random.default_rng([*self.name.encode(), int(kind)]).normal(size=SIZE)


@dataclass(eq=False)
class Attempt:
    """One plan as the server has played it, and all that came back."""

    plan: RoundPlan
    sent: Mapping[str, Any]
    center: Mapping[str, Any] | None = None
    process: int = 0
    ahead: bool = False
    bad: dict[str, ClientSession] = field(default_factory=dict)
    keys: dict[int, dict[int, bytes]] = field(default_factory=dict)
    told: dict[int, tuple[int, ...]] = field(default_factory=dict)
    parcels: dict[int, dict[int, bytes]] = field(default_factory=dict)
    heads: dict[str, Any] = field(default_factory=dict)
    seen: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    vectors: dict[tuple[int, int], Any] = field(default_factory=dict)
    shares: dict[tuple[int, int, str], dict[int, bytes]] = field(default_factory=dict)
    others: dict[str, float] = field(default_factory=dict)
    stage: int = 0

    @property
    def kind(self) -> float:
        """The kind of the model that the plan names."""
        return float(np.round(self.sent["w"][-1] / 100.0))

    def sharers(self, group: int) -> tuple[int, ...]:
        return tuple(sorted(self.parcels.get(group, ())))


class Unmasking:
    """The half of a lying server that only looks at what came back."""

    bad: tuple[str, ...]
    honest: tuple[str, ...]
    data: Mapping[str, LocalData]
    attempts: list[Attempt]

    def shares_of(self, attempt: Attempt, group: int, owner: int, what: str) -> dict[int, bytes]:
        """Holder -> share of a client's self-mask secret ("own") or mask key ("mask"), released or held by a colluder."""
        shares = dict(attempt.shares.get((group, owner, what), {}))
        for session in attempt.bad.values():
            membership = session._groups.get(group)
            if membership is not None and owner in membership.held:
                half = membership.held[owner]
                shares[membership.position] = bytes(half[SHARE_BYTES:] if what == "own" else half[:SHARE_BYTES])
        return shares

    def knows(self, attempt: Attempt, group: int, owner: int, what: str) -> bool:
        """Whether the server can put a secret together, or has it from a colluder."""
        if attempt.plan.groups[group][owner] in attempt.bad:
            return group in attempt.bad[attempt.plan.groups[group][owner]]._groups
        return len(self.shares_of(attempt, group, owner, what)) >= attempt.plan.thresholds[group]

    def secret(self, attempt: Attempt, group: int, owner: int, what: str) -> bytes:
        """Put it together."""
        name = attempt.plan.groups[group][owner]
        if name in attempt.bad:
            one = attempt.bad[name]._groups[group]
            return bytes(one.secret) if what == "own" else one.mask_key.private_bytes_raw()
        shares = self.shares_of(attempt, group, owner, what)
        return combine_shares(shares, threshold=attempt.plan.thresholds[group])

    def components(self, attempt: Attempt, group: int) -> list[tuple[int, ...]]:
        """Honest members whose vectors can only be unmasked together, and can be: all else about them is known."""
        names = attempt.plan.groups[group]
        good = [p for (index, p) in attempt.vectors if index == group and names[p] in self.honest]
        own = {p: self.knows(attempt, group, p, "own") for p in good}
        if not any(own.values()):
            return []
        keyed = {p for p in range(len(names)) if self.knows(attempt, group, p, "mask")}
        found, left = [], set(good)
        while left:
            todo, part, whole = [left.pop()], set(), True
            while todo:
                here = todo.pop()
                part.add(here)
                whole &= own.get(here, False)
                for peer in attempt.seen[group, here]:
                    if peer == here or here in keyed or peer in keyed:
                        continue
                    if (group, peer) not in attempt.vectors or here not in attempt.seen.get((group, peer), ()):
                        whole = False
                    elif peer not in part:
                        todo.append(peer)
            left -= part
            if whole:
                found.append(tuple(sorted(part)))
        return found

    def unmasked(self, attempt: Attempt, group: int, members: Sequence[int]) -> Any:
        """The plain ring vector: the sum of these members' inputs, by the secrets that the server has put together."""
        plan, names = attempt.plan, attempt.plan.groups[group]
        context = GroupContext.of(plan, group)
        total = np.zeros(plan.length, dtype=plan.encoding.dtype)
        for here in members:
            np.add(total, attempt.vectors[group, here], out=total)
            own = self.secret(attempt, group, here, "own")
            add_mask(total, self_seed(context, own, names[here]), subtract=True)
            for peer in attempt.seen[group, here]:
                if peer == here or peer in members:
                    continue
                low, high = sorted((here, peer))
                holder, other = (here, peer) if self.knows(attempt, group, here, "mask") else (peer, here)
                key = self.secret(attempt, group, holder, "mask")
                public = attempt.keys[group][other][KEY_BYTES : 2 * KEY_BYTES]
                seed = pair_seed(context, X25519PrivateKey.from_private_bytes(key), public, (names[low], names[high]))
                add_mask(total, seed, subtract=here == low)
        return total

    def factor(self, attempt: Attempt, name: str) -> float:
        """What a client's update is multiplied with in the sums of a plan, up to one factor for each group."""
        plan = attempt.plan
        if plan.task == "mean":
            return float(plan.weights[name])
        assert attempt.center is not None
        point = np.clip(self.data[name].update(attempt.kind), -plan.update_clip, plan.update_clip)
        distance = float(np.linalg.norm(attempt.center["w"] - point))
        return float(plan.weights[name]) / max(plan.smoothing, distance)

    def revealed(self) -> list[dict[tuple[str, float], float]]:
        """Every sum that can be unmasked by now: (honest client, kind of its model) -> real weight."""
        rows = []
        for attempt in self.attempts:
            for group in sorted({index for index, _ in attempt.vectors}):
                for members in self.components(attempt, group):
                    clients = [attempt.plan.groups[group][p] for p in members]
                    kinds = {name: self.trained(attempt, name) for name in clients}
                    rows.append({(name, kinds[name]): self.factor(attempt, name) for name in clients})
                    # The number of clipped entries is in every sum, without a weight.
                    rows.append({(f"{name} clipped", kinds[name]): 1.0 for name in clients})
        return [{who: weight for who, weight in row.items() if who[1] * 100 > DEAD} for row in rows]

    def trained(self, attempt: Attempt, name: str) -> float:
        """The kind of model that a client has really trained from in an attempt."""
        return attempt.others.get(name, attempt.kind)


def least_mixed(rows: Sequence[Mapping[tuple[str, float], float]]) -> int | None:
    """The fewest honest clients that a combination of sums mixes; None for no sums."""
    columns = sorted({who for row in rows for who in row})
    if not columns:
        return None
    matrix = np.zeros((len(rows), len(columns)))
    for number, row in enumerate(rows):
        for who, weight in row.items():
            matrix[number, columns.index(who)] = weight
    support = minimum_support(matrix)
    return None if support is None else support.lower
