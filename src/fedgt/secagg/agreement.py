"""What the clients sign before anything is opened: the member lists of all groups of a plan, as one link of a chain.

A client releases shares only for a link that Q of the N clients of the registry have signed, with 2Q > N + c for c
colluders. So two links of one number can never both find Q signatures, and of two signed links one comes before the other.
Each link holds the digest of the one before, over rounds and runs: whoever signs one has the account of all before it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, TypeAlias, final

from fedgt import strict_json
from fedgt.errors import ProtocolError, SignatureError, SpecError
from fedgt.foreign_text import plain
from fedgt.ids import require_id
from fedgt.secagg.coefficients import plain_or, require_coefficients
from fedgt.secagg.identity import SIGNATURE_BYTES, Identity, Registry, verify
from fedgt.secagg.plan import RoundPlan

Row: TypeAlias = Mapping[str, float]
"""One sum as client -> real weight."""

_LARGEST_LINKS = 2**25


@final
class PlannedSum(dict[str, float]):
    """One sum of a plan as client -> real weight, with how often the clipped entries of each client are counted in it.

    The number of clipped entries travels without a weight, and is multiplied by the coefficient of its sum.

    Examples:
        >>> from fedgt.secagg.agreement import PlannedSum
        >>> PlannedSum({"ada": 100, "bob": 50}, {"ada": 2, "bob": 1})
        {'ada': 200.0, 'bob': 50.0}
    """

    __slots__ = ("counts",)

    def __init__(self, weights: Mapping[str, int], counts: Mapping[str, int]) -> None:
        """Of each client in the sum, its weight and its coefficient."""
        super().__init__({client: float(weights[client] * a) for client, a in counts.items()})
        self.counts = counts


def quorum(clients: int, *, colluders: int) -> int:
    """floor((clients + colluders) / 2) + 1: how many clients must sign a link before anything is opened under it.

    With 2 Q > N + c any two such sets share an honest client, who signs one link of each number and no other.

    Args:
        clients: N, all clients of the registry, whether or not they take part: it must not shrink with those who do.
        colluders: c, how many of them may work together with a server that lies.

    Examples:
        >>> from fedgt.secagg import quorum
        >>> quorum(15, colluders=1)  # signatures under one agreement
        9
    """
    return min((clients + colluders) // 2 + 1, clients)


def chain_of(registry: Registry) -> str:
    """What the first link follows: SHA-256 of who belongs to the consortium, 64 hexadecimal digits."""
    members = sorted((name, key.hex()) for name, key in registry.clients.items())
    return _sha256(["fedgt agreements 1", registry.server.hex(), members])


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedGroup:
    """One sum that is to be opened.

    Attributes:
        group: Its number in the plan.
        alive: The clients whose vectors are in the sum, in the order of the plan.
        dropped: Those that have shared and sent no vector.
        keys: SHA-256 of the public keys of both, so that nobody has shown two peers different keys.
        coefficients: Of those alive, in the same order; empty if all are 1.
    """

    group: int
    alive: tuple[str, ...]
    dropped: tuple[str, ...]
    keys: str
    coefficients: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check; it may come from a message."""
        if type(self.group) is not int or self.group < 0 or not _is_digest(self.keys):
            raise SpecError("a group of an agreement needs a number from 0 and 64 hexadecimal digits about its keys")
        names = (*self.alive, *self.dropped)
        for name in names:
            require_id(name, "client id")
        if not self.alive or len(set(names)) != len(names):
            raise SpecError(f"group {self.group}: somebody must be alive, and nobody may be named twice")
        if self.coefficients and plain_or([self.coefficients]) == ():
            raise SpecError(f"group {self.group}: coefficients that are all 1 are left out of an agreement")
        require_coefficients([self.alive], [self.coefficients] if self.coefficients else (), "mean")

    @property
    def factors(self) -> dict[str, int]:
        """Client -> coefficient, of those alive."""
        return dict(zip(self.alive, self.coefficients or (1,) * len(self.alive), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """All sums of one plan that are to be opened, and the digest of the link before.

    Attributes:
        number: From 1; one more than that of the link before.
        previous: Digest of the link before; of the first link, `chain_of` the registry.
        plan: Digest of the plan.
        run: As in the plan.
        round: As in the plan.
        purpose: As in the plan.
        task: As in the plan.
        model: The hash of the global model, as in the plan.
        weights: Client -> weight, of everybody who is alive in some group.
        groups: The sums, in the order of the plan.

    Examples:
        >>> from fedgt.secagg import Link
        >>> from fedgt.secagg.agreement import OpenedGroup
        >>> digest = "0" * 64
        >>> link = Link(
        ...     number=1,
        ...     previous=digest,
        ...     plan=digest,
        ...     run="example",
        ...     round=1,
        ...     purpose="training",
        ...     task="mean",
        ...     model=digest,
        ...     weights={"ada": 1, "bob": 1},
        ...     groups=(OpenedGroup(group=0, alive=("ada", "bob"), dropped=(), keys=digest),),
        ... )
        >>> Link.from_json(link.to_json()) == link
        True
    """

    number: int
    previous: str
    plan: str
    run: str
    round: int
    purpose: str
    task: str
    model: str
    weights: Mapping[str, int]
    groups: tuple[OpenedGroup, ...]

    def __post_init__(self) -> None:
        """Freeze and check; it may come from a message."""
        object.__setattr__(self, "weights", MappingProxyType(dict(self.weights)))
        for name in (self.run, self.purpose, self.task):
            require_id(name, "name in an agreement")
        for value, least in ((self.number, 1), (self.round, 0)):
            if type(value) is not int or value < least:
                raise SpecError(f"an agreement has number or round {value!r:.40}; an integer from {least} is needed")
        if not all(map(_is_digest, (self.previous, self.plan))) or not (self.model == "" or _is_digest(self.model)):
            raise SpecError("an agreement needs digests of 64 hexadecimal digits")
        numbers = [one.group for one in self.groups]
        if not numbers or numbers != sorted(set(numbers)):
            raise SpecError(f"the groups of an agreement must be ascending and at least one, got {numbers}")
        if set(self.weights) != {client for one in self.groups for client in one.alive}:
            raise SpecError("an agreement needs the weight of every client that is alive, and of no other")
        for client, weight in self.weights.items():
            if type(weight) is not int or weight < 1:
                raise SpecError(f"client {client} has weight {weight!r:.40} in an agreement; at least 1 is needed")

    @classmethod
    def about(cls, plan: RoundPlan, groups: Sequence[OpenedGroup], *, number: int, previous: str) -> "Link":
        """The agreement that these sums of a plan are to be opened."""
        return cls(
            number=number,
            previous=previous,
            plan=plan.digest,
            run=plan.run,
            round=plan.round,
            purpose=plan.purpose,
            task=plan.task,
            model=plan.inputs.get("model", ""),
            weights={client: plan.weights[client] for client in sorted({name for one in groups for name in one.alive})},
            groups=tuple(groups),
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes, 64 hexadecimal digits: what is signed, and what the next link holds."""
        return hashlib.sha256(self.to_json()).hexdigest()

    @property
    def rows(self) -> tuple[Row, ...]:
        """The sums as client -> real weight, for the accounts."""
        return rows_of(self.task, self.plan, self.weights, [one.factors for one in self.groups])

    def require_plan(self, plan: RoundPlan) -> None:
        """Check that these are sums of a plan, with its weights.

        Raises:
            ProtocolError: If something is not as in the plan.
        """
        theirs = (self.plan, self.run, self.round, self.purpose, self.task, self.model)
        ours = (plan.digest, plan.run, plan.round, plan.purpose, plan.task, plan.inputs.get("model", ""))
        if theirs != ours:
            raise ProtocolError("the agreement is about another plan")
        if any(plan.weights.get(client) != weight for client, weight in self.weights.items()):
            raise ProtocolError("the agreement has other weights than the plan")
        for one in self.groups:
            if one.group >= len(plan.groups):
                raise ProtocolError(f"the agreement opens group {one.group}, the plan has {len(plan.groups)}")
            named = {*one.alive, *one.dropped}
            group = plan.groups[one.group]
            if not named <= set(group) or list(one.alive) != [client for client in group if client in one.alive]:
                raise ProtocolError(
                    f"the agreement names others in group {one.group} than the plan, or in another order"
                )
            factors = plan.factors(one.group)
            if any(factors[client] != factor for client, factor in one.factors.items()):
                raise ProtocolError(f"the agreement has other coefficients in group {one.group} than the plan")
            if len(one.alive) < plan.thresholds[one.group]:
                raise ProtocolError(f"group {one.group} is to be opened over fewer clients than its threshold")

    def to_json(self) -> bytes:
        """The canonical bytes: JSON with sorted keys and no spaces."""
        content: dict[str, object] = {field.name: getattr(self, field.name) for field in fields(self)}
        content["weights"] = dict(self.weights)
        content["groups"] = [
            [one.group, one.alive, one.dropped, one.keys, *([one.coefficients] if one.coefficients else [])]
            for one in self.groups
        ]
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, payload: bytes | memoryview | str) -> "Link":
        """Read what `to_json` wrote, and nothing else.

        Raises:
            ProtocolError: If the bytes are not the canonical form of a valid link.
        """
        text = payload.encode() if isinstance(payload, str) else bytes(payload)
        try:
            raw: dict[str, Any] = strict_json.parse(text)
            groups = tuple(
                OpenedGroup(
                    group=group,
                    alive=tuple(alive),
                    dropped=tuple(dropped),
                    keys=keys,
                    coefficients=tuple(more[0]) if more else (),
                )
                for group, alive, dropped, keys, *more in raw.pop("groups")
            )
            link = cls(groups=groups, **raw)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ProtocolError(f"not a valid agreement: {plain(error)}") from error
        if link.to_json() != text:
            raise ProtocolError("not a valid agreement: the bytes are not in canonical form")
        return link

    def sign(self, identity: Identity) -> bytes:
        """The 64 bytes by which a client agrees."""
        return identity.sign("agreement", bytes.fromhex(self.digest))

    def require_signed(self, registry: Registry, client: str, signature: bytes | memoryview) -> None:
        """Check one signature.

        Raises:
            SignatureError: If it is not by the registered key of this client over this link.
        """
        verify(registry.client_key(client), "agreement", bytes.fromhex(self.digest), signature, signer=client)


def rows_of(task: str, plan: str, weights: Mapping[str, int], groups: Iterable[Mapping[str, int]]) -> tuple[Row, ...]:
    """Sums as client -> real weight.

    Of a Weiszfeld sum only the clients know the weights. They are those of the mean times one factor for each client, the
    same in all groups of the plan. The server has a say in the factors: a far center makes them nearly equal. So such a
    sum counts twice, with factors in general position and with equal ones.

    Args:
        task: Of the plan.
        plan: Its digest; factors in general position follow from it, the same for everybody.
        weights: Client -> weight.
        groups: Of each sum, client -> coefficient; empty groups are left out.
    """
    chosen = [group for group in groups if group]
    rows: list[Row] = [PlannedSum(weights, group) for group in chosen]
    if task != "mean":
        factors = {client: _general(plan, client) for group in chosen for client in group}
        rows += [{client: float(weights[client] * factors[client]) for client in group} for group in chosen]
    return tuple(rows)


def planned_rows(plan: RoundPlan, *, since: int = 0) -> tuple[Row, ...]:
    """The sums of a plan, from a stage on, if nobody drops, as client -> real weight."""
    numbers = range(plan.of_stage(since).start, len(plan.groups))
    return rows_of(plan.task, plan.digest, plan.weights, map(plan.factors, numbers))


def stated_coefficients(plan: RoundPlan, group: int, alive: Sequence[str]) -> tuple[int, ...]:
    """Those of the clients that are alive in a group, as an agreement states them: none if all are 1."""
    factors = plan.factors(group)
    found = plain_or([[factors[client] for client in alive]])
    return found[0] if found else ()


def valid_signatures(link: Link, registry: Registry, signatures: Mapping[str, bytes]) -> dict[str, bytes]:
    """Those that are by registered clients over this very link."""
    valid = {}
    for client, signature in signatures.items():
        try:
            link.require_signed(registry, client, signature)
        except SignatureError:
            continue
        valid[client] = signature
    return valid


def signatures_to_json(signatures: Mapping[str, bytes]) -> bytes:
    """Client -> signature as JSON."""
    content = {client: signature.hex() for client, signature in signatures.items()}
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def signatures_from_json(payload: bytes | memoryview, *, registry: Registry) -> dict[str, bytes]:
    """Read what `signatures_to_json` wrote; nothing is verified yet.

    Raises:
        ProtocolError: If it is anything else, or has more entries than the registry has clients.
    """
    if len(payload) > len(registry.clients) * 2048:
        raise ProtocolError(f"malformed message: {len(payload)} bytes of signatures of {len(registry.clients)} clients")
    try:
        raw = strict_json.parse(bytes(payload))
        signatures = {client: bytes.fromhex(text) for client, text in raw.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError("malformed message: signatures are needed, client by client") from error
    if any(len(signature) != SIGNATURE_BYTES for signature in signatures.values()):
        raise ProtocolError(f"malformed message: a signature has {SIGNATURE_BYTES} bytes")
    return signatures


def links_to_json(links: Sequence[tuple[Link, Mapping[str, bytes]]]) -> bytes:
    """Links with the signatures that are known, for a client that missed them; nothing for none."""
    if not links:
        return b""
    content = [[link.to_json().decode(), signatures_to_json(signatures).decode()] for link, signatures in links]
    return json.dumps(content, separators=(",", ":")).encode()


def links_from_json(payload: bytes | memoryview, *, registry: Registry) -> list[tuple[Link, dict[str, bytes]]]:
    """Read what `links_to_json` wrote.

    Raises:
        ProtocolError: If it is anything else.
    """
    if not payload:
        return []
    if len(payload) > _LARGEST_LINKS:
        raise ProtocolError(f"malformed message: {len(payload)} bytes of agreements")
    try:
        return [
            (Link.from_json(link), signatures_from_json(signatures.encode(), registry=registry))
            for link, signatures in strict_json.parse(bytes(payload))
        ]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError("malformed message: agreements are needed, each with its signatures") from error


def keys_digest(clients: Sequence[str], keys: Mapping[int, bytes | memoryview]) -> str:
    """SHA-256 of the public keys of a group's sharers, by position and name."""
    transcript = hashlib.sha256()
    for position in sorted(keys):
        name = clients[position].encode()
        transcript.update(position.to_bytes(4, "big") + len(name).to_bytes(4, "big") + name)
        transcript.update(keys[position])
    return transcript.hexdigest()


def _general(plan: str, client: str) -> int:
    return 1 + int(_sha256([plan, client])[:5], 16)


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def _sha256(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
