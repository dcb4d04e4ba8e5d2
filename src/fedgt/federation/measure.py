"""What the open sums of a test round say: each screen on the means of the groups."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedgt.decode import Decoding, IndependentPrior, RankedSet, decode, without_evidence
from fedgt.errors import ContradictoryOutcomesError
from fedgt.evidence import (
    SIGNIFICANT,
    GradedDecoding,
    GradedEvidence,
    GradedScreen,
    LabelFinding,
    MarginEvidence,
    acquitted,
    decode_graded,
    evidence_of_difference,
    label_under_attack,
    together,
    unscored,
)
from fedgt.federation.findings import Finding, from_outcomes, from_posterior
from fedgt.federation.group_means import GroupMeans, by_class
from fedgt.federation.participants import Validation
from fedgt.federation.settings import DecodeSettings, ScreenSettings
from fedgt.federation.sums import plus
from fedgt.federation.views import Chosen, chosen, graded_of
from fedgt.grouping import Grouping
from fedgt.screen import ScreenResult, all_negative, cluster_screen, layer_features, measure
from fedgt.types import NEGATIVE, BoolArray, FloatArray, Outcomes, SetEvidence


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
    grown: FloatArray | None = None,
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
        grown: float64[classes]: how the groups have come to differ since earlier rounds; see `first_look.grown`.
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
    graded = graded_of(test, validation, screen, chosen(earlier[0]) if earlier else known, grown)
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
        widest=0 if decoding.max_malicious is not None else (clients - 1) // 2,
    )
    if faults is None or not faults.any():
        return found
    return acquitted(
        found,
        parts,
        faults,
        largest=len(found.count) - 1,
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
                reason=used.noted(
                    f"no significant difference: a line through the groups is {found:.3g} nats more likely than noise, "
                    f"{SIGNIFICANT:.3g} are needed, so all are negative"
                ),
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
    return replace(screened, reason=used.noted(screened.reason))
