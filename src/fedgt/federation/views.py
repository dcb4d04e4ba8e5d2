"""What graded evidence looks at: the classification layer, what models say of the validation set, or their margins.

Here, and nowhere else, group sums become features.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from fedgt.evidence import (
    FEWEST_CLASSES,
    SOMEBODY,
    GradedDecoding,
    GradedEvidence,
    GradedScreen,
    HonestAccount,
    MarginEvidence,
    Push,
    SecondOpinion,
    UsableScores,
    class_losses,
    class_products,
    class_steps,
    decode_graded,
    graded_screen,
    largest_scored,
    left_out,
    margins,
    outputs,
    too_few,
)
from fedgt.evidence.by_margins.honest_account import FEWEST_IMAGES
from fedgt.evidence.by_margins.second_opinion import MarginTest
from fedgt.evidence.by_margins.spread import MORE_THAN_CHANCE, OwnedClasses
from fedgt.evidence.by_margins.standing_out import classes_to_compare
from fedgt.federation.group_means import GroupMeans, by_class
from fedgt.federation.participants import Validation
from fedgt.federation.settings import MOST_SETS_BY_MARGINS, ScreenSettings
from fedgt.types import FloatArray, IntArray, Parameters, SetEvidence

ENOUGH_CLASSES = 6
"""From so many classes on `auto` may compare margins. With fewer, an attack on two classes looks as if half of them were
owned unevenly, and margins have too few pairs to learn from: weights are compared, and margins are the second opinion."""


AS_CHANCE = 1.0
"""As much more unevenly than by chance may others own the classes where suspects are more than margins can consider: these
would clear them all. Label skew of Dirichlet 5.0 gives 2, of 1.0 more than 9 (decision 0046)."""

Chosen = Literal["", "weights", "margins"]
"""What `auto` has chosen in the first test; empty before it."""


def chosen(evidence: SetEvidence) -> Chosen:
    """What was compared; empty where that was for the sake of suspects who went far, and is not to be so in later tests."""
    if isinstance(evidence, MarginEvidence):
        return "margins"
    return "" if isinstance(evidence, GradedEvidence) and evidence.far else "weights"


def graded_of(
    test: GroupMeans,
    validation: Validation,
    settings: ScreenSettings,
    known: Chosen = "",
    grown: FloatArray | None = None,
) -> GradedScreen:
    """Graded evidence by the features of the settings; on weights, with a second opinion where it can be had.

    Args:
        test: The means of the groups.
        validation: The server's validation set.
        settings: What is compared.
        known: What earlier tests have compared: it is compared again where the settings say `auto`.
        grown: float64[classes]: how the groups have come to differ since earlier rounds; see `first_look.grown`.
    """
    used = test.scores(validation)
    if settings.features == "auto" and known:
        settings = settings.model_copy(update={"features": known})
    found = _graded(test, validation, settings, used)
    evidence = found.evidence
    if grown is not None and isinstance(evidence, GradedEvidence) and evidence.compared is None:
        found = replace(found, evidence=evidence.since(grown))
    return replace(found, reason=used.noted(found.reason))


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
    owned = OwnedClasses(
        margins=margin[heard],
        start=margins(first, by_scores.labels)[:, columns],
        steps=steps,
        weights=weights[heard],
        samples=np.array(test.samples) * share,
        counts=counts,
    )
    opinion = SecondOpinion(
        spread=owned.spread(), test=by_margins, heard=np.atleast_1d((weights[heard] != 0).any(axis=0))
    )
    evidence = replace(evidence, opinion=opinion, evenly_owned=opinion.evenly_owned)
    if opinion.evenly_owned or len(present) < ENOUGH_CLASSES:
        return replace(found, evidence=evidence)
    layers = _stacked([updates[group] for group in np.flatnonzero(heard)]).reshape(int(heard.sum()), -1)
    push = Push.of_updates(layers, weights=weights[heard], samples=np.array(test.samples, dtype=np.float64))
    far = _far(evidence, push) if settings.features == "auto" else 0.0
    if far:
        return replace(
            found,
            evidence=replace(evidence, evenly_owned=True, far=True, push=push),
            reason=f"suspects go {_way(1 + far)}, as honest clients seldom do, whatever classes they own: weights are "
            f"compared; {found.reason}",
        )
    return _where_unevenly_owned(replace(found, evidence=evidence), accounted(), owned, settings.features == "auto")


def _where_unevenly_owned(
    by_weights: GradedScreen, by_margins: GradedScreen, owned: OwnedClasses, auto: bool
) -> GradedScreen:
    """Margins, or weights where only the suspects make it look as if clients owned the classes unevenly.

    Args:
        by_weights: What the weights say.
        by_margins: What the margins say.
        owned: Says how unevenly clients own the classes.
        auto: Whether margins may be compared in place of weights.
    """
    weighed, evidence = by_weights.evidence, by_margins.evidence
    account = evidence.account if isinstance(evidence, MarginEvidence) else None
    if isinstance(weighed, GradedEvidence) and isinstance(evidence, MarginEvidence):
        weighed = replace(weighed, account=account, evenly_owned=True, far=True)
        suspects, attacks = _beside_others(weighed, account, owned)
        if account is not None:
            account = replace(account, one_at_most=suspects > 1, owned=owned)
        by_margins = replace(by_margins, evidence=replace(evidence, account=account))
        if suspects > _most_by_margins(weighed.noise.shape[1]):
            return replace(
                by_weights,
                evidence=weighed,
                reason=f"clients own the classes evenly but for {suspects} suspects, who are more than margins can tell: "
                f"weights are compared; {by_weights.reason}",
            )
        if attacks > 1:
            return replace(
                by_weights,
                evidence=replace(weighed, account=account),
                reason=f"clients own the classes evenly but for the suspects of {attacks} attacks, who did what no honest "
                f"client does: weights are compared; {by_weights.reason}",
            )
    if not auto:
        return by_weights
    return replace(by_margins, reason=f"clients own the classes unevenly, so margins are compared; {by_margins.reason}")


def _beside_others(evidence: GradedEvidence, account: HonestAccount | None, owned: OwnedClasses) -> tuple[int, int]:
    """Suspects, where all others own the classes evenly, and attacks that honest clients do not explain together.

    With one attack margins are not misled by owners of few classes. They clear whoever makes another. Where it is not known
    what honest clients send, nobody is excused: margins would not excuse anybody either.
    """
    found = _by_weights(evidence)
    suspects = found.flagged | found.suspicious
    blind = int(suspects.sum()) > _most_by_margins(len(suspects))
    if not suspects.any() or owned.spread(suspects) > (AS_CHANCE if blind else MORE_THAN_CHANCE):
        return 0, 0
    if found.attacks < 2 or (found.flagged.any() and (account is None or not account.explains(suspects))):
        return int(suspects.sum()), found.attacks
    return int(suspects.sum()), 0


def _by_weights(evidence: GradedEvidence) -> GradedDecoding:
    """Whom this evidence suspects by itself."""
    clients = evidence.noise.shape[1]
    return decode_graded([evidence], clients=clients, largest=_most_by_margins(clients), widest=(clients - 1) // 2)


def _most_by_margins(clients: int) -> int:
    """As many attackers can be considered where margins are compared."""
    return max(1, min((clients - 1) // 2, largest_scored(clients, most=MOST_SETS_BY_MARGINS)))


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
    if (fewest := int(np.bincount(by_scores.labels).min())) < FEWEST_IMAGES:
        return replace(
            screen,
            reason=f"{screen.reason}; an honest client that owns few classes may be accused: some class has {fewest} "
            f"validation samples, and {FEWEST_IMAGES} are needed to know it",
        )
    inputs = np.asarray(validation.inputs(start), dtype=np.float64)[by_scores.kept]
    products = class_products(inputs, by_scores.labels) if np.isfinite(inputs).all() else None
    moved = by_margins.margins[tested] - margins(first, by_scores.labels)
    if products is None or not np.isfinite(moved).all():
        return screen
    account = HonestAccount(moved=moved, weights=by_margins.weights[tested], products=products[0], errors=products[1])
    return replace(screen, evidence=replace(evidence, account=account))


def _far(evidence: GradedEvidence, push: Push) -> float:
    """How far those go along the mean update whom weights suspect, in units of the others; 0 if honest ones often do."""
    found = _by_weights(evidence)
    clients = np.arange(evidence.noise.shape[1])
    suspects, nobody = (
        np.isin(clients, found.best[0].clients if found.best else ()),
        np.zeros(len(clients), dtype=np.bool_),
    )
    if found.against_nobody < SOMEBODY or not push.seldom_honest(suspects, nobody):
        return 0.0
    return push.along_mean(suspects, nobody)


def _way(times: float) -> str:
    return f"{abs(times):.1f} times as far as the others, {'along' if times > 0 else 'against'} the mean update"


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


def _stacked(rows: Sequence[FloatArray | None]) -> FloatArray:
    """float64[groups, ...], NaN for groups without an entry."""
    shape = next((row.shape for row in rows if row is not None), (1,))
    stacked = np.full((len(rows), *shape), np.nan)
    for i, row in enumerate(rows):
        if row is not None:
            stacked[i] = row
    return stacked
