"""What the open sums of a test round say: each screen on the means of the groups.

Here, and nowhere else, group sums become features: the classification layer, what the model says about the validation set,
or its margins.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fedgt.design import Design
from fedgt.errors import SpecError
from fedgt.evidence import (
    FEWEST_CLASSES,
    SIGNIFICANT,
    GradedEvidence,
    GradedScreen,
    SecondOpinion,
    class_losses,
    class_steps,
    evidence_of_difference,
    graded_screen,
    label_spread,
    margin_screen,
    margins,
    outputs,
)
from fedgt.federation.settings import Federation, ScreenSettings, Validation
from fedgt.federation.sums import mean_update, plus
from fedgt.grouping import Grouping
from fedgt.screen import ScreenResult, all_negative, cluster_screen, layer_features, measure
from fedgt.secagg import GroupSum
from fedgt.types import FloatArray, Parameters


def check_layer(settings: ScreenSettings, parameters: Parameters, design: Design, validation: Validation) -> None:
    """Refuse before a sum is opened what would fail after it.

    Raises:
        SpecError: If there is no such layer, too few features to compare the groups of the design, or too few labels.
    """
    if settings.layer not in parameters:
        raise SpecError(
            f"classification layer {settings.layer!r} is no tensor of the model; it has {', '.join(parameters)}"
        )
    layer = parameters[settings.layer]
    if settings.kind == "clusters":
        layer_features(layer[None], settings.source_label)
        return
    if settings.kind == "graded" and settings.features == "margins":
        _check_margins(settings, validation)
        return
    if settings.kind == "significant-clusters":
        features, what = layer_features(layer[None], settings.source_label).shape[1], f"layer {settings.layer!r} gives"
    elif settings.features == "weights":
        features, what = layer.size, f"layer {settings.layer!r} gives"
    else:
        features, what = len(np.unique(validation.labels)) + len(layer), "losses and outputs of the classes give"
    contrasts = int(np.linalg.matrix_rank(design.matrix)) - 1
    if contrasts > 1 and features <= contrasts:
        raise SpecError(
            f"{what} {features} features of each group, and design {design.name!r} has {contrasts} contrasts of groups; "
            "more features than contrasts are needed: take a larger layer (or features = 'weights'), fewer groups, or "
            "kind = 'clusters'"
        )


def _check_margins(settings: ScreenSettings, validation: Validation) -> None:
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


def clusters_of(
    federation: Federation,
    sums: Sequence[GroupSum],
    parameters: Parameters,
    grouping: Grouping,
    validation: Validation,
    settings: ScreenSettings,
) -> ScreenResult:
    """The paper's screen, one bit a group; arguments as `graded_of`."""
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
            weights=real_rows(federation, grouping),
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


def graded_of(
    federation: Federation,
    sums: Sequence[GroupSum],
    parameters: Parameters,
    grouping: Grouping,
    validation: Validation,
    settings: ScreenSettings,
) -> GradedScreen:
    """Graded evidence by the features of the settings; on weights, with a second opinion where it can be had.

    Args:
        federation: For the weights and sample counts of the clients.
        sums: Of all groups; those that are not open are erasures.
        parameters: The global model at the start of the round.
        grouping: With the members that each open sum is really over.
        validation: The server's validation set.
        settings: How groups are tested.
    """
    labels = np.asarray(validation.labels)
    layers: list[FloatArray | None] = []
    scores: list[FloatArray | None] = []
    for one in sums:
        update = None if one.total is None else mean_update(one)
        layers.append(None if update is None else update[settings.layer])
        scores.append(
            None if update is None else np.asarray(validation.logits(plus(parameters, update)), dtype=np.float64)
        )
    losses = _stacked([None if one is None else class_losses(one, labels) for one in scores])
    weights, erased = real_rows(federation, grouping), np.array([one.total is None for one in sums])
    samples = [federation.samples[client] for client in grouping.clients]
    by_features = partial(graded_screen, weights=weights, samples=samples, erased=erased, label=settings.source_label)
    if settings.features == "outputs":
        return by_features(_stacked([None if one is None else outputs(one, labels) for one in scores]), losses)
    present, counts = np.unique(labels, return_counts=True)
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
    found = by_features(_stacked(layers), losses)
    if not isinstance(found.evidence, GradedEvidence):
        return found
    if steps is None:
        return replace(found, reason=f"{found.reason}; {_why_no_opinion(validation)}")
    start = margins(np.asarray(validation.logits(parameters), dtype=np.float64), labels)
    opinion = SecondOpinion(
        spread=label_spread(
            margin[found.tested], start, steps=steps, weights=weights[found.tested], samples=samples, counts=counts
        ),
        test=by_margins,
        heard=np.atleast_1d((grouping.design.matrix[found.tested] > 0).any(axis=0)),
    )
    return replace(found, evidence=replace(found.evidence, opinion=opinion))


def _why_no_opinion(validation: Validation) -> str:
    """Why nobody is asked whether the suspects merely own other classes; said, because honest clients may pay for it."""
    if validation.inputs is None:
        cause = "what the classification layer sees is not known (Validation.inputs)"
    elif len(np.unique(validation.labels)) < FEWEST_CLASSES:
        cause = f"the validation set has fewer than {FEWEST_CLASSES} classes"
    else:
        cause = "what a model says or sees is not finite"
    return f"no second opinion, because {cause}: clients that own other classes may be accused"


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


def real_rows(federation: Federation, grouping: Grouping) -> FloatArray:
    """float64[groups, clients]: the real weight of each client in each sum."""
    weights = np.array([federation.weight(client) for client in grouping.clients], dtype=np.float64)
    rows: FloatArray = grouping.design.matrix * weights
    return rows
