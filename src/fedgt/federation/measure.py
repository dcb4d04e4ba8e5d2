"""What the open sums of a test round say: each screen on the means of the groups.

Here, and nowhere else, group sums become features: the classification layer, what the model says about the validation set,
or its margins.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from fedgt.decode import Decoding, IndependentPrior, RankedSet, decode, without_evidence
from fedgt.errors import ContradictoryOutcomesError
from fedgt.evidence import (
    FEWEST_CLASSES,
    SIGNIFICANT,
    SOMEBODY,
    GradedDecoding,
    GradedEvidence,
    GradedScreen,
    HonestAccount,
    LabelFinding,
    MarginEvidence,
    SecondOpinion,
    UsableScores,
    acquitted,
    beyond_honest,
    class_losses,
    class_products,
    class_steps,
    decode_graded,
    evidence_of_difference,
    graded_screen,
    label_spread,
    label_under_attack,
    largest_scored,
    left_out,
    margins,
    outputs,
    push_along_mean,
    together,
    too_few,
    unscored,
    usable_scores,
)
from fedgt.evidence.by_margins.second_opinion import MarginTest
from fedgt.evidence.by_margins.spread import MORE_THAN_CHANCE
from fedgt.evidence.by_margins.standing_out import classes_to_compare
from fedgt.federation.findings import Finding, from_outcomes, from_posterior
from fedgt.federation.participants import Federation, Validation
from fedgt.federation.settings import MOST_SETS_BY_MARGINS, DecodeSettings, ScreenSettings
from fedgt.federation.sums import mean_update, plus
from fedgt.grouping import Grouping
from fedgt.screen import ScreenResult, all_negative, cluster_screen, layer_features, measure
from fedgt.secagg import GroupSum
from fedgt.types import NEGATIVE, BoolArray, FloatArray, IntArray, Outcomes, Parameters, SetEvidence

ENOUGH_CLASSES = 6
"""From so many classes on `auto` may compare margins. With fewer, an attack on two classes looks as if half of them were
owned unevenly, and margins have too few pairs to learn from: weights are compared, and margins are the second opinion."""


Chosen = Literal["", "weights", "margins"]
"""What `auto` has chosen in the first test; empty before it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """What the sums of a test say.

    Attributes:
        finding: About each client.
        screen: What the screen found: binary outcomes, or graded evidence.
        decoding: Who is suspected.
        evidence: To be added to that of further tests; None where there is none.
        compared: bool[groups]: which groups are in it.
        clean: bool[groups]: which are free of malicious clients; None where the evidence does not speak about single groups.
        best: The most probable sets of malicious clients, for the choice of further rows.
        repeatable: Whether a further test could tell more. With margins only one that has sums besides: what honest clients
            differ by stays, so that a further look at the same sums makes chance look certain.
        same_again: Whether a further test of the same sums could.
        label: What the attack seems to aim at; None without graded evidence.
    """

    finding: Finding
    screen: ScreenResult | GradedScreen
    decoding: Decoding | GradedDecoding
    evidence: GradedEvidence | MarginEvidence | None
    compared: BoolArray
    clean: BoolArray | None
    best: tuple[RankedSet, ...]
    repeatable: bool
    same_again: bool = False
    label: LabelFinding | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupMeans:
    """What a test compares.

    Attributes:
        start: The global model at the start of the round.
        updates: The mean update of each group; None where no sum is open.
        rows: float64[groups, clients]: the real weight of each client in each sum.
        samples: float64[clients]: the number of samples of each client.
    """

    start: Parameters
    updates: Sequence[Mapping[str, FloatArray] | None]
    rows: FloatArray
    samples: FloatArray

    @property
    def erased(self) -> BoolArray:
        """bool[groups]: which groups have no open sum."""
        return np.array([one is None for one in self.updates])

    def scores(self, validation: Validation) -> UsableScores:
        """What the first model and the mean of each open group say about the samples that they can be compared on."""
        models = [self.start, *(None if one is None else plus(self.start, one) for one in self.updates)]
        return usable_scores(
            [None if one is None else np.asarray(validation.logits(one), dtype=np.float64) for one in models],
            np.asarray(validation.labels),
        )


def group_means(
    federation: Federation, sums: Sequence[GroupSum], parameters: Parameters, grouping: Grouping
) -> GroupMeans:
    """What the sums of a test give to compare.

    Args:
        federation: For the weights and sample counts of the clients.
        sums: Of all groups; those that are not open are erasures.
        parameters: The global model at the start of the round.
        grouping: With the members that each open sum is really over.
    """
    return GroupMeans(
        start=parameters,
        updates=[None if one.total is None else mean_update(one) for one in sums],
        rows=real_rows(federation, grouping),
        samples=np.array([federation.samples[client] for client in grouping.clients], dtype=np.float64),
    )


def measured(
    test: GroupMeans,
    grouping: Grouping,
    validation: Validation,
    screen: ScreenSettings,
    decoding: DecodeSettings,
    earlier: Sequence[SetEvidence] = (),
    heard: Mapping[str, int] | None = None,
    seed: int = 0,
    faults: Sequence[Collection[str]] = (),
    control: Callable[[GradedDecoding], GradedDecoding] | None = None,
    known: Chosen = "",
) -> Measured:
    """Screen and decode, by the kind that the settings name.

    Args:
        test: The means of the groups.
        grouping: Who is in them.
        validation: The server's validation set.
        screen: How groups are tested.
        decoding: How suspects are named.
        earlier: Evidence of earlier tests about the same columns.
        heard: Client -> in how many sums of that evidence it is.
        seed: Of the clusters' starting positions.
        faults: Sets of clients with at least one in each that has broken the rules of the sums, in this test or before; of
            graded evidence they may explain by others what it says about a client.
        control: Takes back what graded evidence is not sure enough of, where tests are many.
        known: What an earlier test has compared whose evidence is not added up.
    """
    if screen.kind != "graded":
        binary = clusters_of(test, validation, screen, seed)
        accused = decoded(grouping, binary.outcomes, decoding)
        return Measured(
            finding=from_outcomes(grouping, binary.outcomes, accused),
            screen=binary,
            decoding=accused,
            evidence=None,
            compared=np.zeros(len(test.rows), dtype=np.bool_),
            clean=np.equal(binary.outcomes.values, NEGATIVE),
            best=(),
            repeatable=False,
        )
    graded = graded_of(test, validation, screen, chosen(earlier[0]) if earlier else known)
    evidence = graded.evidence
    found = suspects(
        earlier if evidence is None else [*earlier, evidence],
        len(grouping.clients),
        screen=screen,
        decoding=decoding,
        faults=np.array([[client in one for client in grouping.clients] for one in faults], dtype=np.bool_),
    )
    found = found if control is None else control(found)
    by_margins = screen.features == "margins" or isinstance(evidence, MarginEvidence)
    return Measured(
        finding=from_posterior(grouping, graded.tested, found, heard),
        screen=graded,
        decoding=found,
        evidence=evidence,
        compared=graded.tested if evidence is not None else np.zeros(len(test.rows), dtype=np.bool_),
        clean=None,
        best=found.best,
        repeatable=not by_margins or not faults,
        same_again=not by_margins,
        label=label_under_attack(evidence.damage, found.posterior)
        if evidence is not None and found.flagged.any()
        else None,
    )


def suspects(
    evidence: Sequence[SetEvidence],
    clients: int,
    *,
    screen: ScreenSettings,
    decoding: DecodeSettings,
    faults: BoolArray | None = None,
) -> GradedDecoding:
    """Whom graded evidence of one or more tests accuses, by the settings, and the faults do not explain by others."""
    by_margins = any(isinstance(one, MarginEvidence) for one in evidence)
    parts, largest = together(evidence), decoding.largest_graded(clients, screen.features, by_margins=by_margins)
    found = decode_graded(
        parts,
        clients=clients,
        largest=largest,
        nobody=decoding.nobody,
        beta=decoding.beta,
        undecided=decoding.undecided,
    )
    if faults is None or not faults.any():
        return found
    return acquitted(
        found,
        parts,
        faults,
        largest=largest,
        nobody=decoding.nobody,
        beta=decoding.beta,
    )


def decoded(grouping: Grouping, outcomes: Outcomes, settings: DecodeSettings) -> Decoding:
    """Whom binary outcomes accuse; outcomes that contradict each other are no evidence against anybody."""
    known = settings.prevalence
    prior = None if known is None else IndependentPrior.uniform(grouping.design.clients, known)
    try:
        return decode(grouping.design, outcomes, prior=prior, **settings.binary)
    except ContradictoryOutcomesError as error:
        return without_evidence(grouping.design.clients, settings.binary_strategy, "contradictory", str(error))


def clusters_of(test: GroupMeans, validation: Validation, settings: ScreenSettings, seed: int) -> ScreenResult:
    """The paper's screen, one bit a group."""
    utilities = np.full(len(test.rows), np.nan)
    layers = np.full((len(test.rows), *test.start[settings.layer].shape), np.nan)
    for i, update in enumerate(test.updates):
        if update is not None:
            layers[i] = plus(test.start, update)[settings.layer]
    used = test.scores(validation)
    for i, scores in enumerate(used.models[1:]):
        # A model without a score predicts nothing: its group is left out.
        if scores is not None and not unscored(scores).any():
            utilities[i] = measure(
                settings.measured, scores.argmax(axis=1), used.labels, source_label=settings.source_label
            )
    features = layer_features(by_class(layers), settings.source_label)
    if settings.kind == "significant-clusters":
        found = evidence_of_difference(features, weights=test.rows, samples=test.samples, erased=test.erased)
        if found < SIGNIFICANT:
            return all_negative(
                features,
                utilities,
                erased=test.erased,
                reason=f"no significant difference: a line through the groups is {found:.3g} nats more likely than noise, "
                f"{SIGNIFICANT:.3g} are needed, so all are negative{_also(used.note)}",
            )
    screened = cluster_screen(
        features,
        utilities,
        erased=test.erased,
        max_group_size=int((test.rows > 0).sum(axis=1).max()),
        silhouette_threshold=settings.silhouette_threshold,
        restarts=settings.restarts,
        seed=seed,
    )
    return replace(screened, reason=screened.reason + _also(used.note))


def chosen(evidence: SetEvidence) -> Chosen:
    """What was compared; empty where that was for the sake of suspects who went far, and is not to be so in later tests."""
    if isinstance(evidence, MarginEvidence):
        return "margins"
    return "" if isinstance(evidence, GradedEvidence) and evidence.far else "weights"


def graded_of(test: GroupMeans, validation: Validation, settings: ScreenSettings, known: Chosen = "") -> GradedScreen:
    """Graded evidence by the features of the settings; on weights, with a second opinion where it can be had.

    Args:
        test: The means of the groups.
        validation: The server's validation set.
        settings: What is compared.
        known: What earlier tests have compared: it is compared again where the settings say `auto`.
    """
    used = test.scores(validation)
    if settings.features == "auto" and known:
        settings = settings.model_copy(update={"features": known})
    found = _graded(test, validation, settings, used)
    return replace(found, reason=found.reason + _also(used.note))


def _graded(test: GroupMeans, validation: Validation, settings: ScreenSettings, used: UsableScores) -> GradedScreen:
    labels, scores = used.labels, used.models[1:]
    losses = _stacked([None if one is None else class_losses(one, labels) for one in scores])
    label, weights, erased = settings.source_label, test.rows, test.erased
    by_features = partial(graded_screen, weights=weights, samples=test.samples, erased=erased, label=label)
    if settings.features == "outputs":
        return by_features(_stacked([None if one is None else outputs(one, labels) for one in scores]), losses)
    by_scores = used.exact()
    present, counts = np.unique(by_scores.labels, return_counts=True)
    asked = label is None or label in present
    if settings.features == "margins" and (erased.all() or len(present) < FEWEST_CLASSES or not asked):
        nothing = np.zeros(len(test.rows), dtype=np.bool_)
        few = "; too few classes have a sample that all models score, without probabilities of 0"
        omitted = left_out(erased, nothing, nothing) + ("" if erased.all() else few)
        return too_few(nothing, np.full(len(test.rows), np.nan), omitted)
    margin = np.full((len(test.rows), len(present), losses.shape[1]), np.nan)
    for group, one_score in enumerate(by_scores.models[1:]):
        if one_score is not None and len(present):
            margin[group] = margins(one_score, by_scores.labels)
    finite = ~erased & np.isfinite(margin).all(axis=(1, 2))
    chosen = classes_to_compare(margin[finite], weights[finite], present, label)
    of = None
    share = float(counts[chosen].sum() / max(counts.sum(), 1))
    if len(chosen) < len(present):
        of, present, counts = losses.shape[1], present[chosen], counts[chosen]
        by_scores, margin = by_scores.of_classes(present), margin[:, chosen][:, :, present]
    columns = np.arange(losses.shape[1]) if of is None else present
    steps = None
    if settings.features == "margins" or len(present) >= FEWEST_CLASSES:
        steps = _steps(test.start, by_scores, validation, columns)
    by_margins = MarginTest(
        margins=margin,
        class_losses=losses,
        classes=present,
        weights=weights,
        erased=erased,
        steps=steps,
        label=label,
        of=of,
    )
    accounted = partial(_accounted, by_margins=by_margins, by_scores=by_scores, start=test.start, validation=validation)
    if settings.features == "margins":
        return accounted()
    updates = [None if one is None else one[settings.layer] for one in test.updates]
    found = by_features(by_class(_stacked(updates)), losses)
    evidence = found.evidence
    if not isinstance(evidence, GradedEvidence):
        return found
    first = by_scores.models[0]
    if steps is None or first is None or not asked:
        return replace(found, reason=f"{found.reason}; {_why_no_opinion(validation)}")
    heard = found.tested
    spread = partial(
        label_spread,
        margin[heard],
        margins(first, by_scores.labels)[:, columns],
        steps=steps,
        weights=weights[heard],
        samples=np.array(test.samples) * share,
        counts=counts,
    )
    opinion = SecondOpinion(spread=spread(), test=by_margins, heard=np.atleast_1d((weights[heard] != 0).any(axis=0)))
    evidence = replace(evidence, opinion=opinion, evenly_owned=opinion.evenly_owned)
    if opinion.evenly_owned or len(present) < ENOUGH_CLASSES:
        return replace(found, evidence=evidence)
    layers = _stacked([updates[group] for group in np.flatnonzero(heard)]).reshape(int(heard.sum()), -1)
    far = _far(evidence, layers, weights[heard], test.samples) if settings.features == "auto" else 0.0
    if far:
        return replace(
            found,
            evidence=replace(evidence, evenly_owned=True, far=True),
            reason=f"suspects go {1 + far:.1f} times as far along the mean update as the others, as no honest client does, "
            f"whatever classes it owns: weights are compared; {found.reason}",
        )
    return _where_unevenly_owned(replace(found, evidence=evidence), accounted(), spread, settings.features == "auto")


def _where_unevenly_owned(
    by_weights: GradedScreen, by_margins: GradedScreen, spread: Callable[..., float], auto: bool
) -> GradedScreen:
    """Margins, or weights where only the suspects make it look as if clients owned the classes unevenly.

    Args:
        by_weights: What the weights say.
        by_margins: What the margins say.
        spread: How unevenly clients own the classes, `aside` being set aside; see `label_spread`.
        auto: Whether margins may be compared in place of weights.
    """
    weighed, evidence = by_weights.evidence, by_margins.evidence
    account = evidence.account if isinstance(evidence, MarginEvidence) else None
    if isinstance(weighed, GradedEvidence) and isinstance(evidence, MarginEvidence) and account is not None:
        weighed = replace(weighed, account=account, evenly_owned=True, far=True)
        suspects, attacks = _beside_others(weighed, account, spread)
        if suspects > 1:
            account = replace(account, one_at_most=True)
            by_margins = replace(by_margins, evidence=replace(evidence, account=account))
        if attacks > 1:
            return replace(
                by_weights,
                evidence=weighed,
                reason=f"clients own the classes evenly but for the suspects of {attacks} attacks, who did what no honest "
                f"client does: weights are compared; {by_weights.reason}",
            )
    if not auto:
        return by_weights
    return replace(by_margins, reason=f"clients own the classes unevenly, so margins are compared; {by_margins.reason}")


def _beside_others(evidence: GradedEvidence, account: HonestAccount, spread: Callable[..., float]) -> tuple[int, int]:
    """Suspects, where all others own the classes evenly, and attacks that honest clients do not explain together.

    With one attack margins are not misled by owners of few classes. They clear whoever makes another.
    """
    found = _by_weights(evidence)
    suspects = found.flagged | found.suspicious
    if not suspects.any() or spread(aside=suspects) > MORE_THAN_CHANCE:
        return 0, 0
    explained = found.attacks > 1 and (not found.flagged.any() or account.explains(suspects))
    return int(suspects.sum()), 0 if explained else found.attacks


def _by_weights(evidence: GradedEvidence) -> GradedDecoding:
    """Whom this evidence suspects by itself."""
    clients = evidence.noise.shape[1]
    largest = max(1, min((clients - 1) // 2, largest_scored(clients, most=MOST_SETS_BY_MARGINS)))
    return decode_graded([evidence], clients=clients, largest=largest)


def _accounted(
    *, by_margins: MarginTest, by_scores: UsableScores, start: Parameters, validation: Validation
) -> GradedScreen:
    """What the margins say, with what is needed to ask whether honest clients could have sent the sums, where that is known.

    It is known where every class has samples, all of them are compared, and it is known what the classification layer sees.
    """
    screen, first = by_margins(), by_scores.models[0]
    evidence, tested = screen.evidence, screen.tested
    every = by_margins.of is None and len(by_margins.classes) == by_margins.margins.shape[2]
    if not isinstance(evidence, MarginEvidence) or not every or first is None or validation.inputs is None:
        return screen
    inputs = np.asarray(validation.inputs(start), dtype=np.float64)[by_scores.kept]
    products = class_products(inputs, by_scores.labels) if np.isfinite(inputs).all() else None
    moved = by_margins.margins[tested] - margins(first, by_scores.labels)
    if products is None or not np.isfinite(moved).all():
        return screen
    account = HonestAccount(moved=moved, weights=by_margins.weights[tested], products=products[0], errors=products[1])
    return replace(screen, evidence=replace(evidence, account=account))


def _far(evidence: GradedEvidence, updates: FloatArray, weights: FloatArray, samples: FloatArray) -> float:
    """How far those go along the mean update whom weights suspect, in units of the others; 0 if honest ones might."""
    found = _by_weights(evidence)
    suspects = np.isin(np.arange(weights.shape[1]), found.best[0].clients if found.best else ())
    if found.against_nobody < SOMEBODY or not suspects.any():
        return 0.0
    push = push_along_mean(updates, weights, samples, suspects)
    return push if beyond_honest(push, samples, suspects) else 0.0


def _why_no_opinion(validation: Validation) -> str:
    """Why nobody is asked whether the suspects merely own other classes; said, because honest clients may pay for it."""
    if validation.inputs is None:
        cause = "what the classification layer sees is not known (Validation.inputs)"
    elif len(np.unique(validation.labels)) < FEWEST_CLASSES:
        cause = f"the validation set has fewer than {FEWEST_CLASSES} classes"
    else:
        cause = "what the models say or see is not finite (probabilities of 0)"
    return f"no second opinion, because {cause}: clients that own other classes may be accused"


def _steps(parameters: Parameters, used: UsableScores, validation: Validation, columns: IntArray) -> FloatArray | None:
    """How training on whole classes moves the margins of these columns; None where the layer's inputs are not known."""
    start, whole = used.models[0], [one for one in used.models[1:] if one is not None and np.isfinite(one).all()]
    if validation.inputs is None or start is None or not whole:
        return None
    # From half way, so that the step is that of a whole round: from where it starts to the mean of where groups end.
    halfway = (start + np.mean(whole, axis=0)) / 2
    inputs = np.asarray(validation.inputs(parameters), dtype=np.float64)[used.kept]
    if not (np.isfinite(halfway).all() and np.isfinite(inputs).all()):
        return None
    return class_steps(halfway, inputs, used.labels)[:, :, columns]


def _also(note: str) -> str:
    return f"; {note}" if note else ""


def _stacked(rows: Sequence[FloatArray | None]) -> FloatArray:
    """float64[groups, ...], NaN for groups without an entry."""
    shape = next((row.shape for row in rows if row is not None), (1,))
    stacked = np.full((len(rows), *shape), np.nan)
    for i, row in enumerate(rows):
        if row is not None:
            stacked[i] = row
    return stacked


def by_class(layers: FloatArray) -> FloatArray:
    """float[groups, classes, inputs] of layers with more dimensions, as those of a convolution; others as they are."""
    return layers.reshape(*layers.shape[:2], -1) if layers.ndim > 3 else layers


def real_rows(federation: Federation, grouping: Grouping) -> FloatArray:
    """float64[groups, clients]: the real weight of each client in each sum."""
    weights = np.array([federation.weight(client) for client in grouping.clients], dtype=np.float64)
    rows: FloatArray = grouping.rows * weights
    return rows
