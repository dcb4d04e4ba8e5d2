"""One round of federated learning with group testing, readable as the paper's algorithm (section III).

Training round:  secure sum over the kept clients -> new global model.
Test round:      one secure sum per group -> screen -> decode -> exclude -> global model from what is already revealed.

Nothing is opened before the ledger was asked. What the server learns is in the records: every aggregate with its members,
its real weights and its status.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedgt.decode import Decoding, IndependentPrior, decode, without_evidence
from fedgt.design import Design
from fedgt.engine import SecureSums, secure_sums
from fedgt.errors import ContradictoryOutcomesError, SpecError
from fedgt.exclude import Exclusion, exclude
from fedgt.federation import DecodeSettings, Federation, ScreenSettings, Validation
from fedgt.grouping import Grouping
from fedgt.screen import ScreenResult, cluster_screen, layer_features, measure
from fedgt.secagg import GroupSum, RoundPlan, default_threshold, fit_fixed_point, tensor_specs
from fedgt.types import FloatArray, Outcomes, Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateRecord:
    """One aggregate that was asked for: what a client may want to know about what the server saw.

    Attributes:
        round: The round of the local models.
        purpose: Why, such as `test-group-3`, `training`, `same-round`.
        members: The clients whose models are in it, sorted.
        weights: Their real weights, in the same order.
        status: `open`, `erased` (it could not be opened) or `refused` (the ledger said no).
        reason: Why it is not open; empty when it is.
        dropped: Client -> what happened to it.
    """

    round: int
    purpose: str
    members: tuple[str, ...]
    weights: tuple[float, ...]
    status: Literal["open", "erased", "refused"]
    reason: str
    dropped: Mapping[str, str]


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
    """

    parameters: Parameters
    records: tuple[AggregateRecord, ...]
    secure_sums: int
    bytes_up: int
    bytes_down: int
    clipped: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScreeningRound:
    """A test round: what it leaves behind, and the decision with its evidence."""

    result: RoundResult
    screen: ScreenResult
    decoding: Decoding
    exclusion: Exclusion


def training_round(
    federation: Federation, parameters: Parameters, *, round: int, members: Sequence[str]
) -> RoundResult:
    """Secure FedAvg over the given clients: the new model is the old one plus the weighted mean update.

    If the sum cannot be opened (nobody answers, too few are left, the ledger refuses), the model stays as it is and the
    result says why.
    """
    taken = _take(federation, parameters, round=round, purpose="training", groups=[tuple(sorted(members))], test=False)
    (total,) = taken.sums.sums
    updated = parameters if total.total is None else _plus(parameters, _mean_update(total))
    return taken.result(updated, _unusable("the training sum", total))


def screening_round(
    federation: Federation,
    parameters: Parameters,
    *,
    round: int,
    grouping: Grouping,
    present: Sequence[str],
    validation: Validation,
    screen: ScreenSettings,
    decoding: DecodeSettings,
    prior: IndependentPrior | None = None,
) -> ScreeningRound:
    """The group test: sums of all groups, screen, decode, exclude, and a global model that reveals nothing more.

    Args:
        federation: Who takes part.
        parameters: The global model at the start of the round.
        round: Its number; names the set of local models for the ledger.
        grouping: Who shares a group.
        present: The clients that take part; an absent client enters no group.
        validation: The server's validation set.
        screen: How groups are tested.
        decoding: How suspects are named, and the policies.
        prior: A prevalence per column of the design, when the user has one.
    """
    _check_layer(screen, parameters)
    groups = [grouping.members(i, present) for i in range(grouping.design.groups)]
    taken = _take(federation, parameters, round=round, purpose="test", groups=groups, test=True)
    # An outcome speaks about those whose models are in the sum, not about those who were to be in it.
    real = _real_grouping(grouping, taken.sums.sums)
    tested = _screen(taken.sums.sums, parameters, real, validation, screen)
    found = _decoded(real, tested.outcomes, decoding, prior)
    decision = exclude(
        real,
        tested.outcomes,
        found,
        on_undecidable=decoding.on_undecidable,
        on_untested=decoding.on_untested,
        silent=_silent(grouping, present, taken.sums.sums),
    )
    updated = _from_negative_groups(parameters, taken.sums.sums, tested)
    result = taken.result(updated, ())
    if decoding.after_test == "same-round" and not decision.halt:
        kept = tuple(client for client in decision.kept if client in set(present))
        again = _take(
            federation,
            parameters,
            round=round,
            purpose="same-round",
            groups=[kept],
            test=False,
            override=decoding.below_promise,
        )
        (total,) = again.sums.sums
        updated = updated if total.total is None else _plus(parameters, _mean_update(total))
        result = _joined(result, again.result(updated, _unusable("the same-round sum", total)))
    return ScreeningRound(result=result, screen=tested, decoding=found, exclusion=decision)


def _decoded(
    grouping: Grouping, outcomes: Outcomes, settings: DecodeSettings, prior: IndependentPrior | None
) -> Decoding:
    try:
        return decode(
            grouping.design,
            outcomes,
            rates=settings.rates,
            strategy=settings.strategy,
            prior=prior,
            beta=settings.beta,
            kappa=settings.kappa,
            largest=settings.largest,
            estimator=settings.estimator,
            method=settings.method,
        )
    except ContradictoryOutcomesError as error:
        return without_evidence(grouping.design.clients, settings.strategy, "contradictory", str(error))


def _real_grouping(grouping: Grouping, sums: Sequence[GroupSum]) -> Grouping:
    """The same seats, with the members that each opened sum is really over; rows of sums that are not open stay."""
    matrix = grouping.design.matrix.copy()
    column = {client: j for j, client in enumerate(grouping.clients)}
    for one in sums:
        if one.total is not None:
            matrix[one.group] = 0
            matrix[one.group, [column[client] for client in one.members]] = 1
    design = Design(matrix=matrix, name=grouping.design.name, source=grouping.design.source)
    return Grouping(design=design, clients=grouping.clients)


def _silent(grouping: Grouping, present: Sequence[str], sums: Sequence[GroupSum]) -> dict[str, str]:
    """Clients of the design whose model is in no sum through their own doing, with what happened to them."""
    there = set(present)
    reasons = {client: "absent" for client in grouping.clients if client not in there}
    for one in sums:
        for client, reason in one.dropped.items():
            if client not in one.members:
                reasons.setdefault(client, reason)
    return reasons


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Taken:
    """Sums that were asked for, before they became a model."""

    sums: SecureSums
    records: tuple[AggregateRecord, ...]
    warnings: tuple[str, ...]

    def result(self, parameters: Parameters, warnings: Sequence[str]) -> RoundResult:
        return RoundResult(
            parameters=parameters,
            records=self.records,
            secure_sums=sum(1 for one in self.sums.sums if one.status == "open"),
            bytes_up=self.sums.bytes_up,
            bytes_down=self.sums.bytes_down,
            clipped=sum(one.clipped for one in self.sums.sums),
            warnings=(*self.warnings, *warnings),
        )


def _take(
    federation: Federation,
    parameters: Parameters,
    *,
    round: int,
    purpose: str,
    groups: Sequence[tuple[str, ...]],
    test: bool,
    override: bool = False,
) -> _Taken:
    weights = {client: federation.weight(client) for group in groups for client in group}
    largest = max((sum(weights[client] for client in group) for group in groups), default=0)
    entries = sum(array.size for array in parameters.values())
    plan = RoundPlan(
        run=federation.run,
        round=round,
        purpose=purpose,
        groups=tuple(groups),
        thresholds=tuple(default_threshold(len(group)) for group in groups),
        weights=weights,
        encoding=fit_fixed_point(
            clip=federation.clip,
            fraction_bits=federation.fraction_bits,
            weight_sum=max(largest, 1),
            count_sum=entries * max((len(group) for group in groups), default=0),
        ),
        tensors=tensor_specs(parameters),
    )
    refused: dict[int, str] = {}

    def authorise(members: tuple[tuple[str, ...], ...]) -> tuple[str | None, ...]:
        rows = [{client: float(weights[client]) for client in group} for group in members]
        verdicts = federation.ledger.permit(rows, models=f"round-{round}", test=test, override=override)
        refused.update({i: verdict for i, verdict in enumerate(verdicts) if verdict is not None and members[i]})
        return verdicts

    sums = secure_sums(
        federation.transport,
        plan,
        parameters,
        authorise=authorise,
        timeout=federation.timeout,
        credentials=federation.credentials,
    )
    records = tuple(
        _record(round, purpose if len(groups) == 1 else f"{purpose}-group-{one.group}", one, weights, refused)
        for one in sums.sums
    )
    warnings = [*sums.warnings, *_dominated(groups, weights, purpose)]
    clipped = sum(one.clipped for one in sums.sums)
    if clipped:
        warnings.append(
            f"round {round}, {purpose}: {clipped} entries of updates were clipped to +-{federation.clip:g}; "
            "raise the clip if the updates are honest"
        )
    return _Taken(sums=sums, records=records, warnings=tuple(warnings))


def _record(
    round: int, purpose: str, one: GroupSum, weights: Mapping[str, int], refused: Mapping[int, str]
) -> AggregateRecord:
    members = tuple(sorted(one.members))
    return AggregateRecord(
        round=round,
        purpose=purpose,
        members=members,
        weights=tuple(float(weights[client]) for client in members),
        status="open" if one.status == "open" else "refused" if one.group in refused else "erased",
        reason=one.reason,
        dropped=dict(one.dropped),
    )


def _dominated(groups: Sequence[tuple[str, ...]], weights: Mapping[str, int], purpose: str) -> list[str]:
    """A sum in which one weight dwarfs the others hides little of that client (case: weights 1, 1, 1, 100)."""
    warnings = []
    for number, group in enumerate(groups):
        w = np.array([weights[client] for client in group], dtype=np.float64)
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


def _mean_update(total: GroupSum) -> dict[str, FloatArray]:
    if total.total is None:
        raise SpecError(f"the sum of group {total.group} is not open: {total.reason}")
    return {name: values / total.weight for name, values in total.total.items()}


def _plus(
    parameters: Parameters, update: Mapping[str, FloatArray]
) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.floating]]]:
    # Integers, such as the counters of a normalisation layer, are kept as they are.
    return {
        name: (values.astype(np.float64) + update[name]).astype(values.dtype) if values.dtype.kind == "f" else values
        for name, values in parameters.items()
    }


def _unusable(what: str, total: GroupSum) -> tuple[str, ...]:
    if total.total is not None:
        return ()
    reason = total.reason if total.members else f"no usable client ({total.reason or 'nobody takes part'})"
    return (f"{what} is not open, the global model stays as it was: {reason}",)


def _check_layer(settings: ScreenSettings, parameters: Parameters) -> None:
    """What would fail after the sums are open must fail before."""
    if settings.layer not in parameters:
        raise SpecError(
            f"classification layer {settings.layer!r} is no tensor of the model; it has {', '.join(parameters)}"
        )
    layer_features(parameters[settings.layer][None], settings.source_label)


def _screen(
    sums: Sequence[GroupSum],
    parameters: Parameters,
    grouping: Grouping,
    validation: Validation,
    settings: ScreenSettings,
) -> ScreenResult:
    utilities = np.full(len(sums), np.nan)
    layers = np.full((len(sums), *parameters[settings.layer].shape), np.nan)
    for i, one in enumerate(sums):
        if one.total is not None:
            mean = _plus(parameters, _mean_update(one))
            layers[i] = mean[settings.layer]
            utilities[i] = measure(
                settings.utility, validation.predict(mean), validation.labels, source_label=settings.source_label
            )
    return cluster_screen(
        layer_features(layers, settings.source_label),
        utilities,
        erased=np.array([one.total is None for one in sums]),
        max_group_size=int(grouping.design.group_sizes.max()),
        silhouette_threshold=settings.silhouette_threshold,
        restarts=settings.restarts,
        seed=settings.seed,
    )


def _from_negative_groups(parameters: Parameters, sums: Sequence[GroupSum], tested: ScreenResult) -> Parameters:
    """The weighted mean over the negative groups: a combination of sums already opened, so it reveals nothing more.

    With no negative group the global model stays as it was.
    """
    clean = [
        one for one, t in zip(sums, tested.outcomes.values.tolist(), strict=True) if t == 0 and one.total is not None
    ]
    weight = sum(one.weight for one in clean)
    if not clean:
        return parameters
    update = {
        name: np.sum([one.total[name] for one in clean if one.total is not None], axis=0) / weight
        for name in parameters
    }
    return _plus(parameters, update)


def _joined(first: RoundResult, second: RoundResult) -> RoundResult:
    return RoundResult(
        parameters=second.parameters,
        records=(*first.records, *second.records),
        secure_sums=first.secure_sums + second.secure_sums,
        bytes_up=first.bytes_up + second.bytes_up,
        bytes_down=first.bytes_down + second.bytes_down,
        clipped=first.clipped + second.clipped,
        warnings=(*first.warnings, *second.warnings),
    )
