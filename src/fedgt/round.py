"""One round of federated learning with group testing, readable as the paper's algorithm (section III).

Training round:  secure sum over the kept clients -> new global model.
Test round:      one secure sum per group -> screen -> decode -> exclude -> global model from what is already revealed.

Nothing is opened before the ledger was asked. What the server learns is in the records: every aggregate with its members,
its real weights and its status.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedgt.aggregates import RoundResult, joined, mean_update, plus, take, unusable
from fedgt.decode import Decoding, GradedDecoding, IndependentPrior, decode, decode_graded, without_evidence
from fedgt.design import Design
from fedgt.errors import ContradictoryOutcomesError, SpecError
from fedgt.exclude import Exclusion, exclude, exclude_graded
from fedgt.federation import DecodeSettings, Federation, ScreenSettings, Validation
from fedgt.grouping import Grouping
from fedgt.privacy import SpanMean, best_in_span, largest_kept_sum
from fedgt.screen import (
    FEWEST_CLASSES,
    SIGNIFICANT,
    GradedEvidence,
    GradedScreen,
    LabelFinding,
    MarginEvidence,
    ScreenResult,
    SecondOpinion,
    all_negative,
    class_losses,
    class_steps,
    cluster_screen,
    evidence_of_difference,
    graded_screen,
    label_spread,
    label_under_attack,
    layer_features,
    margin_screen,
    margins,
    measure,
)
from fedgt.secagg import GroupSum
from fedgt.types import FloatArray, LayeredEvidence, Outcomes, Parameters

_MOST_NOISE = 4.0
"""A mean from revealed sums with more than this many times the variance of the plain mean is not worth a step."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScreeningRound:
    """A test round: what it leaves behind, and the decision with its evidence.

    Attributes:
        result: The new global model and what was opened.
        grouping: Who sat where, with the members that each opened sum is really over.
        screen: What the screen found: binary outcomes, or graded evidence.
        decoding: Who is suspected.
        exclusion: What follows.
        final: What follows if no further test round can be held: then undecided clients are decided.
        label: What the attack seems to aim at; None without graded evidence.
    """

    result: RoundResult
    grouping: Grouping
    screen: ScreenResult | GradedScreen
    decoding: Decoding | GradedDecoding
    exclusion: Exclusion
    final: Exclusion
    label: LabelFinding | None = None

    @property
    def evidence(self) -> GradedEvidence | MarginEvidence | None:
        """Graded evidence of this round, to be added to that of the next; None where there is none."""
        return self.screen.evidence if isinstance(self.screen, GradedScreen) else None

    @property
    def heard(self) -> dict[str, int]:
        """Client -> in how many sums of the evidence it is."""
        if not isinstance(self.screen, GradedScreen) or self.screen.evidence is None:
            return {}
        counts = self.grouping.design.matrix[self.screen.tested].sum(axis=0).tolist()
        return dict(zip(self.grouping.clients, counts, strict=True))

    @property
    def undecided(self) -> bool:
        """Whether another test round could decide more.

        Never with margins: what honest clients differ by stays, so that a further look makes chance look certain.
        """
        persists = isinstance(self.evidence, MarginEvidence)
        return isinstance(self.decoding, GradedDecoding) and bool(self.decoding.undecided.any()) and not persists


def training_round(
    federation: Federation, parameters: Parameters, *, round: int, members: Sequence[str]
) -> RoundResult:
    """Secure FedAvg over the given clients: the new model is the old one plus the weighted mean update.

    If the sum cannot be opened (nobody answers, too few are left, the ledger refuses), the model stays as it is and the
    result says why.
    """
    taken = take(federation, parameters, round=round, purpose="training", groups=[tuple(sorted(members))], test=False)
    (total,) = taken.sums.sums
    updated = parameters if total.total is None else plus(parameters, mean_update(total))
    return taken.result(updated, unusable("the training sum", total))


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
    earlier: Sequence[LayeredEvidence] = (),
    heard: Mapping[str, int] | None = None,
    last: bool = True,
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
        prior: A prevalence per column of the design, when the user has one (binary screens).
        earlier: Graded evidence of earlier test rounds about the same columns.
        heard: Client -> in how many sums of that evidence it is: it is tested, whether or not it is in a sum of this round.
        last: Whether no further test round follows: then undecided clients are decided.
    """
    _check_layer(screen, parameters, grouping.design, validation)
    largest = decoding.largest_graded(grouping.design.clients, screen.features) if screen.kind == "graded" else 0
    groups = [grouping.members(i, present) for i in range(grouping.design.groups)]
    taken = take(federation, parameters, round=round, purpose="test", groups=groups, test=True)
    sums = taken.sums.sums
    # An outcome speaks about those whose models are in the sum, not about those who were to be in it.
    real = _real_grouping(grouping, sums)
    silent = _silent(grouping, present, sums)
    label = None
    tested: ScreenResult | GradedScreen
    found: Decoding | GradedDecoding
    if screen.kind == "graded":
        tested = _graded(federation, sums, parameters, real, validation, screen)
        evidence = [*earlier, *([tested.evidence] if tested.evidence is not None else [])]
        found = decode_graded(
            evidence,
            clients=real.design.clients,
            largest=largest,
            nobody=decoding.nobody,
            beta=decoding.beta,
            undecided=decoding.undecided,
        )
        if tested.evidence is not None and found.flagged.any():
            label = label_under_attack(tested.evidence.damage, found.posterior)
        decide = partial(
            exclude_graded,
            real,
            tested.tested,
            found,
            on_undecided=decoding.on_undecided,
            on_undecidable=decoding.on_undecidable,
            on_untested=decoding.on_untested,
            silent=silent,
            heard=heard,
        )
        final = decide(last=True)
        decision = final if last or isinstance(tested.evidence, MarginEvidence) else decide(last=False)
    else:
        tested = _clusters(federation, sums, parameters, real, validation, screen)
        found = _decoded(real, tested.outcomes, decoding, prior)
        decision = final = exclude(
            real,
            tested.outcomes,
            found,
            on_undecidable=decoding.on_undecidable,
            on_untested=decoding.on_untested,
            silent=silent,
        )
    kept = tuple(client for client in decision.kept if client in set(present))
    updated, note = _revealed_mean(federation, parameters, sums, real, kept, tested, decoding)
    result = taken.result(updated, note)
    if decoding.after_test in ("same-round", "largest-sum") and not decision.halt:
        result = _one_more_sum(federation, parameters, result, sums, real, kept, decoding, round=round)
    return ScreeningRound(
        result=result, grouping=real, screen=tested, decoding=found, exclusion=decision, final=final, label=label
    )


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


def _check_layer(settings: ScreenSettings, parameters: Parameters, design: Design, validation: Validation) -> None:
    """What would fail after the sums are open must fail before."""
    if settings.layer not in parameters:
        raise SpecError(
            f"classification layer {settings.layer!r} is no tensor of the model; it has {', '.join(parameters)}"
        )
    layer = parameters[settings.layer]
    if settings.kind == "clusters":
        layer_features(layer[None], settings.source_label)
        return
    if settings.kind == "significant-clusters":
        features = layer_features(layer[None], settings.source_label).shape[1]
    elif settings.features != "margins":
        features = layer.size
    else:
        present = len(np.unique(validation.labels))
        if present < FEWEST_CLASSES:
            raise SpecError(
                f"features = 'margins', but the validation set has samples of {present} classes; {FEWEST_CLASSES} are "
                "needed, because the noise of one pair of classes is learnt from the others: take features = 'weights'"
            )
        if settings.source_label is not None and settings.source_label not in validation.labels:
            raise SpecError(
                f"source label {settings.source_label} has no sample in the validation set; take some, or leave it out"
            )
        return
    contrasts = int(np.linalg.matrix_rank(design.matrix)) - 1
    if contrasts > 1 and features <= contrasts:
        raise SpecError(
            f"layer {settings.layer!r} gives {features} features of each group, and design {design.name!r} has {contrasts} "
            "contrasts of groups; more features than contrasts are needed: take a larger layer, fewer groups, or "
            "kind = 'clusters'"
        )


def _clusters(
    federation: Federation,
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
            mean = plus(parameters, mean_update(one))
            layers[i] = mean[settings.layer]
            utilities[i] = measure(
                settings.measured, validation.predict(mean), validation.labels, source_label=settings.source_label
            )
    erased = np.array([one.total is None for one in sums])
    features = layer_features(layers, settings.source_label)
    if settings.kind == "significant-clusters":
        found = evidence_of_difference(
            features,
            weights=_rows(federation, grouping),
            samples=[federation.samples[client] for client in grouping.clients],
            erased=erased,
        )
        if found < SIGNIFICANT:
            return all_negative(
                features,
                utilities,
                erased=erased,
                reason=f"no significant difference: a line through the groups is {found:.3g} nats more likely than noise, "
                f"{SIGNIFICANT:.3g} are needed, so all are negative",
            )
    return cluster_screen(
        features,
        utilities,
        erased=erased,
        max_group_size=int(grouping.design.group_sizes.max()),
        silhouette_threshold=settings.silhouette_threshold,
        restarts=settings.restarts,
        seed=settings.seed,
    )


def _graded(
    federation: Federation,
    sums: Sequence[GroupSum],
    parameters: Parameters,
    grouping: Grouping,
    validation: Validation,
    settings: ScreenSettings,
) -> GradedScreen:
    labels = np.asarray(validation.labels)
    features: list[FloatArray | None] = []
    scores: list[FloatArray | None] = []
    for one in sums:
        update = None if one.total is None else mean_update(one)
        features.append(None if update is None else update[settings.layer])
        scores.append(
            None if update is None else np.asarray(validation.logits(plus(parameters, update)), dtype=np.float64)
        )
    losses = _stacked([None if one is None else class_losses(one, labels) for one in scores])
    weights, erased = _rows(federation, grouping), np.array([one.total is None for one in sums])
    present, counts = np.unique(labels, return_counts=True)
    samples = [federation.samples[client] for client in grouping.clients]
    if erased.all() and settings.features == "margins":
        losses = np.full((len(sums), int(present[-1]) + 1), np.nan)
    margin = np.full((len(sums), len(present), losses.shape[1]), np.nan)
    for group, one_score in enumerate(scores):
        if one_score is not None:
            margin[group] = margins(one_score, labels)
    steps = None
    if settings.features == "margins" or len(present) >= FEWEST_CLASSES:
        steps = _steps(parameters, scores, validation)
    by_margins = partial(
        margin_screen,
        margin,
        losses,
        classes=present,
        weights=weights,
        erased=erased,
        steps=steps,
        label=settings.source_label,
    )
    if settings.features == "margins":
        return by_margins()
    found = graded_screen(
        _stacked(features), losses, weights=weights, samples=samples, erased=erased, label=settings.source_label
    )
    if not isinstance(found.evidence, GradedEvidence) or steps is None:
        return found
    start = margins(np.asarray(validation.logits(parameters), dtype=np.float64), labels)
    opinion = SecondOpinion(
        spread=label_spread(
            margin[found.tested], start, steps=steps, weights=weights[found.tested], samples=samples, counts=counts
        ),
        test=by_margins,
        heard=np.atleast_1d((grouping.design.matrix[found.tested] > 0).any(axis=0)),
    )
    return replace(found, evidence=replace(found.evidence, opinion=opinion))


def _steps(parameters: Parameters, scores: Sequence[FloatArray | None], validation: Validation) -> FloatArray | None:
    """How training on whole classes moves the margins; None where the inputs of the classification layer are not known."""
    whole = [one for one in scores if one is not None and np.isfinite(one).all()]
    if validation.inputs is None or not whole:
        return None
    # From half way, so that the step is that of a whole round: from where it starts to the mean of where groups end.
    start = np.asarray(validation.logits(parameters), dtype=np.float64)
    halfway = (start + np.mean(whole, axis=0)) / 2
    inputs = np.asarray(validation.inputs(parameters), dtype=np.float64)
    if not (np.isfinite(halfway).all() and np.isfinite(inputs).all()):
        return None
    return class_steps(halfway, inputs, np.asarray(validation.labels))


def _stacked(rows: Sequence[FloatArray | None]) -> FloatArray:
    """float64[groups, ...], NaN for groups without an entry."""
    shape = next((row.shape for row in rows if row is not None), (1,))
    stacked = np.full((len(rows), *shape), np.nan)
    for i, row in enumerate(rows):
        if row is not None:
            stacked[i] = row
    return stacked


def _rows(federation: Federation, grouping: Grouping) -> FloatArray:
    """float64[groups, clients]: the real weight of each client in each sum."""
    weights = np.array([federation.weight(client) for client in grouping.clients], dtype=np.float64)
    rows: FloatArray = grouping.design.matrix * weights
    return rows


def _revealed_mean(
    federation: Federation,
    parameters: Parameters,
    sums: Sequence[GroupSum],
    grouping: Grouping,
    kept: Sequence[str],
    tested: ScreenResult | GradedScreen,
    decoding: DecodeSettings,
) -> tuple[Parameters, tuple[str, ...]]:
    """A mean of kept clients from sums that are open already, so that it reveals nothing more, and a note."""
    opened = [i for i, one in enumerate(sums) if one.total is not None]
    if not opened or not kept:
        return parameters, ()
    binary = tested if isinstance(tested, ScreenResult) else None
    best = None
    if binary is None or decoding.after_test != "negative-groups":
        column = {client: j for j, client in enumerate(grouping.clients)}
        target = np.zeros(len(grouping.clients))
        rows = _rows(federation, grouping)[opened]
        for client in kept:
            if rows[:, column[client]].any():
                target[column[client]] = federation.weight(client)
        best = _nearest(rows, target, subtract=binary is None) if target.any() else None
    if best is not None:
        coefficients = {i: float(b) for i, b in zip(opened, best.coefficients, strict=True) if b}
    elif binary is not None:
        clean = [i for i in opened if binary.outcomes.values[i] == 0]
        coefficients = dict.fromkeys(clean, 1.0 / max(sum(sums[i].weight for i in clean), 1))
        if not clean:
            return parameters, ("no group is clean, the global model stays as it was",)
    else:
        return parameters, (
            "no combination of the opened sums is free of the excluded clients and near the mean of the others: the "
            "global model stays as it was for this round",
        )
    update = {name: np.sum([b * _total(sums[i])[name] for i, b in coefficients.items()], axis=0) for name in parameters}
    return plus(parameters, update), ()


def _nearest(rows: FloatArray, target: FloatArray, *, subtract: bool) -> SpanMean | None:
    """A mean in the span without negative weights, or, if sums may be subtracted, with some where they cost little noise.

    One bit a group misses many an attacker; one that is subtracted does as much harm as one that is added, and the sums
    that must be subtracted are those of groups that tested positive.
    """
    best = best_in_span(rows, target=target, nonnegative=True)
    if best is None and subtract:
        best = best_in_span(rows, target=target)
    return best if best is not None and best.amplification <= _MOST_NOISE else None


def _total(one: GroupSum) -> Mapping[str, FloatArray]:
    if one.total is None:
        raise SpecError(f"the sum of group {one.group} is not open: {one.reason}")
    return one.total


def _one_more_sum(
    federation: Federation,
    parameters: Parameters,
    result: RoundResult,
    sums: Sequence[GroupSum],
    grouping: Grouping,
    kept: tuple[str, ...],
    decoding: DecodeSettings,
    *,
    round: int,
) -> RoundResult:
    """A sum of the same local models over the kept clients (the paper), or over as many of them as the promise allows."""
    members = kept
    if decoding.after_test == "largest-sum":
        column = {client: j for j, client in enumerate(grouping.clients)}
        opened = [i for i, one in enumerate(sums) if one.total is not None]
        found = largest_kept_sum(
            _rows(federation, grouping)[opened],
            weights=[federation.weight(client) for client in grouping.clients],
            kept=[column[client] for client in kept],
            privacy=federation.ledger.promised,
        )
        if found is None:
            return result
        members = tuple(sorted(grouping.clients[j] for j in found.clients))
    again = take(
        federation,
        parameters,
        round=round,
        purpose=decoding.after_test,
        groups=[members],
        test=False,
        override=decoding.below_promise,
    )
    (total,) = again.sums.sums
    updated = result.parameters if total.total is None else plus(parameters, mean_update(total))
    return joined(result, again.result(updated, unusable(f"the {decoding.after_test} sum", total)))
