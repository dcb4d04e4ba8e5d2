"""Asking for secure sums and putting them on record: the ledger, the plan, the warnings, and what becomes of a sum."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np

from fedgt.engine import GoOn, SecureSums, fingerprint
from fedgt.engine.announced import announced
from fedgt.errors import SpecError
from fedgt.federation.participants import Federation
from fedgt.secagg import (
    Fault,
    GroupSum,
    RoundPlan,
    default_threshold,
    fit_fixed_point,
    tensor_specs,
    weiszfeld_encoding,
)
from fedgt.types import FloatArray, Parameters

_SHOWN = {
    "complaint": "the shares of one cannot be read, or the other says so falsely",
    "parcels": "too many shares cannot be read, or members say so",
    "range": "the sum is one that its members cannot reach",
    "vectors": "no vector of each client, the same in all its groups, fits the sums",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateRecord:
    """One aggregate that was asked for: what a client may want to know about what the server saw.

    Attributes:
        round: The round of the local models.
        purpose: Why, such as `test-group-3`, `training`, `same-round`.
        members: The clients whose models are in it, sorted.
        weights: Their real weights, in the same order.
        status: `open`, `faulty` (the server has seen it, and uses it for nothing: a member has broken the rules, or was
            missing in a later stage), `erased` (it could not be opened) or `refused` (the ledger said no).
        reason: Why it is not open; empty when it is.
        dropped: Client -> what happened to it.
        model: SHA-256 of the global model that it is about: sums about one model can be combined, whatever their rounds.

    Examples:
        >>> import numpy as np
        >>> from fedgt import FederationRun, TrainedModel
        >>> class Site:
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters=dict(parameters), samples=10)
        >>> sites = {name: Site() for name in ("ada", "bob", "cleo", "dan")}
        >>> run = FederationRun(sites, privacy=4, samples=dict.fromkeys(sites, 10), rounds=1)
        >>> (step,) = run.rounds({"weight": np.zeros(2)})
        >>> record = step.result.records[0]
        >>> record.status, record.members, record.weights
        ('open', ('ada', 'bob', 'cleo', 'dan'), (10.0, 10.0, 10.0, 10.0))
    """

    round: int
    purpose: str
    members: tuple[str, ...]
    weights: tuple[float, ...]
    status: Literal["open", "faulty", "erased", "refused"]
    reason: str
    dropped: Mapping[str, str]
    model: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundResult:
    """What a round leaves behind.

    Attributes:
        parameters: The new global model.
        records: Every aggregate asked for.
        secure_sums: How many sums were opened.
        bytes_up: From the clients, all stages.
        bytes_down: To the clients, all stages.
        clipped: Entries clipped, over all open sums.
        warnings: What the user should know.
        seconds: Stage -> wall-clock seconds, of all sums together.
        faults: Sets of clients with one in each that has broken the rules of the secure sums.
        complaints: Two clients each, one of which has broken them; this has cost no sum.
        silent: Client -> the stage at which it has left a sum by itself, not for shares that it could not read.

    Examples:
        >>> import numpy as np
        >>> from fedgt import FederationRun, TrainedModel
        >>> class Site:
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters=dict(parameters), samples=10)
        >>> sites = {name: Site() for name in ("ada", "bob", "cleo", "dan")}
        >>> run = FederationRun(sites, privacy=4, samples=dict.fromkeys(sites, 10), rounds=1)
        >>> (step,) = run.rounds({"weight": np.zeros(2)})
        >>> step.result.secure_sums, step.result.clipped
        (1, 0)
    """

    parameters: Parameters
    records: tuple[AggregateRecord, ...]
    secure_sums: int
    bytes_up: int
    bytes_down: int
    clipped: int
    warnings: tuple[str, ...]
    seconds: Mapping[str, float]
    faults: tuple[frozenset[str], ...] = ()
    complaints: tuple[frozenset[str], ...] = ()
    silent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Taken:
    """Sums that were asked for, before they became a model."""

    sums: SecureSums
    records: tuple[AggregateRecord, ...]
    warnings: tuple[str, ...]

    @property
    def at_fault(self) -> list[frozenset[str]]:
        """Sets of clients with a liar in each: what groups show, and what single clients are proved to have done."""
        shown = [frozenset(fault.suspects) for fault in self.sums.faults if fault.erases]
        return shown + [frozenset({client}) for one in self.sums.sums for client in one.faults]

    @property
    def silent(self) -> dict[str, str]:
        """Client -> the stage at which it has left; who leaves a sum with a complaint in it may be the victim."""
        victims = {group for fault in self.sums.faults if fault.kind == "parcels" for group in fault.groups}
        left = [one.dropped for one in self.sums.sums if one.group not in victims]
        return {client: why.partition(":")[0] for dropped in left for client, why in dropped.items()}

    def result(self, parameters: Parameters, warnings: Sequence[str]) -> RoundResult:
        """What the round leaves, with the model that these sums became."""
        return RoundResult(
            parameters=parameters,
            records=self.records,
            secure_sums=sum(1 for one in self.sums.sums if one.status == "open"),
            bytes_up=self.sums.bytes_up,
            bytes_down=self.sums.bytes_down,
            clipped=sum(one.clipped for one in self.sums.sums),
            warnings=(*self.warnings, *warnings),
            seconds=self.sums.seconds,
            faults=tuple(self.at_fault),
            complaints=tuple(frozenset(fault.suspects) for fault in self.sums.faults if not fault.erases),
            silent=self.silent,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weiszfeld:
    """A step towards the geometric median: weights that only the clients know.

    Attributes:
        step: Its number in the round, from 0.
        smoothing: nu, in the unit of the update's 2-norm.
        center: Where the step begins, in the space of updates.
    """

    step: int
    smoothing: float
    center: Parameters


def take(
    federation: Federation,
    parameters: Parameters,
    *,
    round: int,
    purpose: str,
    groups: Sequence[tuple[str, ...]],
    test: bool = False,
    override: bool = False,
    weiszfeld: Weiszfeld | None = None,
    stages: Sequence[int] = (),
    go_on: GoOn | None = None,
    coefficients: Sequence[Mapping[str, int]] = (),
) -> Taken:
    """Ask for secure sums over the given groups, the ledger first; what was asked for is on record whatever comes of it.

    Args:
        federation: Who takes part.
        parameters: The global model that the clients start from.
        round: Its number.
        purpose: Why, for the record.
        groups: The members of each sum.
        test: Whether these are test rows, which the cautious account gates too.
        override: The user accepts, by name, that the promise is broken.
        weiszfeld: Sums with weights that the clients compute, instead of those of their sample counts.
        stages: How many groups each stage opens, in their order; empty opens all at once.
        go_on: Asked between two stages whether the next one is opened, with the sums of all until now; None opens the first
            stage only. The clients wait meanwhile.
        coefficients: Of each sum, client -> by which whole number it multiplies its update; empty for none.

    Returns:
        The sums of all groups, or of those of the stages that were opened. Of a test or a later stage, groups that the
        ledger would refuse already are left out from the start: their sums are erasures.
    """
    weights = {client: federation.weight(client) for group in groups for client in group}
    booked = {client: float(weight) for client, weight in weights.items()}
    if weiszfeld is not None:
        # The server does not know the weights: it books rows in general position.
        generic = np.random.default_rng([round, weiszfeld.step]).integers(1, 1 << 20, size=len(weights))
        booked = dict(zip(weights, generic.astype(float).tolist(), strict=True))
    # Local models trained from one global model may be the same again, whatever the round is called.
    models = fingerprint(parameters).hex()
    refused: dict[int, str] = {}
    factors = coefficients or [dict.fromkeys(group, 1) for group in groups]

    def booked_rows(members: Sequence[Sequence[str]]) -> list[dict[str, float]]:
        return [
            {client: a[client] * booked[client] for client in group} for a, group in zip(factors, members, strict=True)
        ]

    later = stages[0] if len(stages) > 1 else 0
    if later or (test and not override):
        # Clients refuse a plan with a sum that breaks the promise as a whole.
        rows = booked_rows(groups)
        foreseen = enumerate(federation.ledger.foresee(rows, models=models, test=test))
        refused = {i: why for i, why in foreseen if why is not None and i >= later and groups[i]}
        groups = [() if i in refused else group for i, group in enumerate(groups)]
    numbered = list(zip(factors, groups, strict=True))
    largest = max((sum(a[client] * weights[client] for client in group) for a, group in numbered), default=0)
    times = max((sum(a[client] for client in group) for a, group in numbered), default=0)
    members = max((len(group) for group in groups), default=0)
    how = federation.sums
    plan = RoundPlan(
        run=federation.run,
        round=round,
        purpose=purpose,
        groups=tuple(groups),
        thresholds=tuple(default_threshold(len(group), colluders=how.colluders) for group in groups),
        weights=weights,
        encoding=fit_fixed_point(
            clip=how.clip,
            fraction_bits=how.fraction_bits,
            weight_sum=max(largest, 1),
            count_sum=sum(array.size for array in parameters.values()) * times,
        )
        if weiszfeld is None
        else weiszfeld_encoding(update_clip=how.clip, smoothing=weiszfeld.smoothing, members=members),
        tensors=tensor_specs(parameters),
        task="mean" if weiszfeld is None else "weiszfeld",
        smoothing=0.0 if weiszfeld is None else weiszfeld.smoothing,
        update_clip=0.0 if weiszfeld is None else how.clip,
        colluders=how.colluders,
        inputs=federation.inputs,
        stages=tuple(stages),
        coefficients=tuple(tuple(a[client] for client in group) for a, group in numbered),
    )

    def authorise(members: tuple[tuple[str, ...], ...]) -> tuple[str | None, ...]:
        rows = booked_rows(members)
        verdicts = federation.ledger.permit(rows, models=models, test=test, override=override)
        refused.update({i: verdict for i, verdict in enumerate(verdicts) if verdict is not None and members[i]})
        return verdicts

    told = federation.on_stage
    sums = federation.take_sums(
        federation.transport if told is None else announced(federation.transport, partial(told, round, purpose)),
        plan,
        parameters,
        authorise=authorise,
        timeout=how.timeout_seconds,
        center=None if weiszfeld is None else weiszfeld.center,
        credentials=federation.credentials,
        agreements=federation.agreements,
        go_on=go_on,
    )
    if told is not None:
        told(round, purpose, "opened")
    known = weights if weiszfeld is None else None
    seen = shown(sums)
    records = tuple(
        _record(
            round,
            purpose if len(groups) == 1 else f"{purpose}-group-{one.group}",
            one,
            None if known is None else {client: factors[one.group][client] * known[client] for client in one.members},
            refused,
            models,
            seen,
        )
        for one in sums.sums
    )
    warnings = [*sums.warnings, *([] if known is None else _dominated(numbered, weights, purpose))]
    for one in sums.sums:
        warnings += [
            f"round {round}, {purpose}, group {one.group}: {client} {what}" for client, what in one.faults.items()
        ]
    warnings += [
        f"round {round}, {purpose}, {'group' if len(fault.groups) == 1 else 'groups'} "
        f"{', '.join(map(str, fault.groups))}: at least one of {', '.join(fault.suspects)} has broken the rules "
        f"({_SHOWN[fault.kind]}){f'; no sum of {_them(fault)} is used' if fault.erases else ''}"
        for fault in sums.faults
    ]
    warnings += [
        f"round {round}, {purpose}, group {one.group}: {one.reason}; it is used for nothing"
        for one in sums.sums
        if one.group in sums.struck
    ]
    clipped = sum(one.clipped for one in sums.sums)
    if clipped:
        warnings.append(
            f"round {round}, {purpose}: {clipped} entries of updates were clipped to +-{how.clip:g}; "
            "raise the clip if the updates are honest"
        )
    return Taken(sums=sums, records=records, warnings=tuple(warnings))


def _them(fault: Fault) -> str:
    return "it" if len(fault.groups) == 1 else "them"


def foreseen(
    federation: Federation,
    parameters: Parameters,
    groups: Sequence[Sequence[str]],
    coefficients: Sequence[Mapping[str, int]],
) -> dict[int, str]:
    """The groups of a test whose sums the ledger would refuse already, and why; nothing is permitted or recorded."""
    rows = [
        {client: float(a[client] * federation.weight(client)) for client in group}
        for a, group in zip(coefficients, groups, strict=True)
    ]
    said = federation.ledger.foresee(rows, models=fingerprint(parameters).hex(), test=True)
    return {i: why for i, why in enumerate(said) if why is not None and groups[i]}


def shown(sums: SecureSums) -> frozenset[int]:
    """The groups whose sums the server has seen although they are none: a fault shows in them, or they were struck."""
    faulty = {group for fault in sums.faults if fault.kind in ("range", "vectors") for group in fault.groups}
    return frozenset(faulty | set(sums.struck))


def _record(
    round: int,
    purpose: str,
    one: GroupSum,
    weights: Mapping[str, int] | None,
    refused: Mapping[int, str],
    model: str,
    seen: Collection[int],
) -> AggregateRecord:
    members = tuple(sorted(one.members))
    lost: Literal["faulty", "erased", "refused"] = "refused" if one.group in refused else "erased"
    return AggregateRecord(
        round=round,
        purpose=purpose,
        members=members,
        weights=() if weights is None else tuple(float(weights[client]) for client in members),
        status="open" if one.status == "open" else "faulty" if one.group in seen else lost,
        reason=one.reason if one.members else refused.get(one.group, one.reason),
        dropped=dict(one.dropped),
        model=model,
    )


def _dominated(
    groups: Sequence[tuple[Mapping[str, int], tuple[str, ...]]], weights: Mapping[str, int], purpose: str
) -> list[str]:
    """A sum in which one weight dwarfs the others hides little of that client (case: weights 1, 1, 1, 100)."""
    warnings = []
    for number, (a, group) in enumerate(groups):
        w = np.array([a[client] * weights[client] for client in group], dtype=np.float64)
        if len(w) < 2:
            continue
        effective = float(w.sum() ** 2 / (w**2).sum())
        if effective < len(w) / 2:
            heaviest = group[int(w.argmax())]
            warnings.append(
                f"{purpose}, group {number}: its weights count like {effective:.2f} equal members instead of {len(w)}; "
                f"client {heaviest} dominates the sum and is nearly visible in it: use weighting = 'equal'"
            )
    return warnings


def mean_update(total: GroupSum) -> dict[str, FloatArray]:
    """The weighted mean update of an opened sum.

    Raises:
        SpecError: If the sum is not open.
    """
    if total.total is None:
        raise SpecError(f"the sum of group {total.group} is not open: {total.reason}")
    return {name: values / total.weight for name, values in total.total.items()}


def plus(
    parameters: Parameters, update: Mapping[str, FloatArray]
) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.floating]]]:
    """The model moved by an update."""
    # Integers, such as the counters of a normalisation layer, are kept as they are.
    return {
        name: (values.astype(np.float64) + update[name]).astype(values.dtype) if values.dtype.kind == "f" else values
        for name, values in parameters.items()
    }


def averaged(parameters: Parameters, sums: Sequence[GroupSum]) -> Parameters:
    """The model moved by the weighted mean over everybody in the sums that are open; as it was if none is."""
    opened = [one for one in sums if one.total is not None]
    weight = sum(one.weight for one in opened)
    means = [(one.weight / weight, mean_update(one)) for one in opened]
    if not means:
        return parameters
    return plus(parameters, {name: np.sum([w * mean[name] for w, mean in means], axis=0) for name in means[0][1]})


def unusable(what: str, total: GroupSum) -> tuple[str, ...]:
    """What to say about a sum that is not open; nothing where it is."""
    if total.total is not None:
        return ()
    reason = total.reason if total.members else f"no usable client ({total.reason or 'nobody takes part'})"
    return (f"{what} is not open, the global model stays as it was: {reason}",)


def joined(first: RoundResult, second: RoundResult) -> RoundResult:
    """Two results of one round as one; the model is that of the second."""
    return RoundResult(
        parameters=second.parameters,
        records=(*first.records, *second.records),
        secure_sums=first.secure_sums + second.secure_sums,
        bytes_up=first.bytes_up + second.bytes_up,
        bytes_down=first.bytes_down + second.bytes_down,
        clipped=first.clipped + second.clipped,
        warnings=(*first.warnings, *second.warnings),
        seconds={
            stage: first.seconds.get(stage, 0.0) + second.seconds.get(stage, 0.0)
            for stage in (*first.seconds, *second.seconds)
        },
        faults=(*first.faults, *second.faults),
        complaints=(*first.complaints, *second.complaints),
        silent={**first.silent, **second.silent},
    )
