"""What would fail after the first sum is refused before it: the model, the validation set, the promise of the plan.

Sums that cannot be compared are privacy spent for nothing. The first model's scores are there to check the validation set.
"""

import numpy as np

from fedgt.design import Design
from fedgt.errors import CalibrationError, ShapeError, SpecError
from fedgt.evidence import FEWEST_CLASSES, checked_scores, contrasts, unscored
from fedgt.federation.group_means import by_class, real_rows
from fedgt.federation.measure import decoded
from fedgt.federation.participants import Federation, Validation
from fedgt.federation.settings import DecodeSettings, ScreenSettings
from fedgt.grouping import Grouping
from fedgt.privacy import minimum_support
from fedgt.screen import layer_features
from fedgt.types import FloatArray, IntArray, Outcomes, Parameters, as_numbers, require_model


def check_plan(
    federation: Federation, grouping: Grouping, screen: ScreenSettings, decode: DecodeSettings, rounds: int
) -> None:
    """The groups against the promise and the clients.

    Raises:
        SpecError: If the groups are of other clients, their sums would break the promise, no round is left for the test, or
            more attackers are asked for than can be searched.
    """
    if set(grouping.clients) != set(federation.samples):
        differ = sorted(set(grouping.clients) ^ set(federation.samples))
        raise SpecError(f"the groups and the numbers of samples are of different clients: {', '.join(differ)}")
    if screen.round > rounds:
        raise SpecError(f"screen.round = {screen.round}, but there are {rounds} rounds")
    promised = federation.ledger.promised
    support = minimum_support(real_rows(federation, grouping), enough=promised)
    if support is None or support.lower < promised:
        reached = "nothing" if support is None else f"r = {support.upper}"
        raise SpecError(
            f"privacy = {promised}, but the group sums of design {grouping.design.name!r} give {reached} at most; take "
            "another design, or promise less"
        )
    if refusal := federation.ledger.overshare(_rows(federation, grouping)):
        raise SpecError(
            f"the groups of design {grouping.design.name!r}: {refusal}; take another design, or promise a larger share"
        )
    check_decoder(grouping, screen, decode)


def check_decoder(grouping: Grouping, screen: ScreenSettings, decode: DecodeSettings) -> None:
    """What the decoder would refuse after the sums are open it refuses now."""
    if screen.kind == "graded":
        decode.largest_graded(grouping.design.clients, screen.features)
    elif grouping.coefficients is not None:
        raise SpecError(
            f"design {grouping.design.name!r} has coefficients up to {grouping.rows.max()}: one bit a group is for plain "
            "groups; take screen.kind = 'graded', or a design of 0 and 1"
        )
    else:
        decoded(grouping, Outcomes(values=np.zeros(grouping.design.groups, dtype=np.int8)), decode)


def _rows(federation: Federation, grouping: Grouping) -> list[dict[str, float]]:
    groups = map(grouping.factors, range(grouping.design.groups))
    return [{client: float(a * federation.weight(client)) for client, a in group.items()} for group in groups]


def check_test(
    federation: Federation,
    parameters: Parameters,
    grouping: Grouping,
    validation: Validation,
    settings: ScreenSettings,
    *,
    further: bool,
) -> None:
    """Refuse before a sum is opened what would fail after it.

    Args:
        federation: Who takes part.
        parameters: The global model at the start of the round.
        grouping: Who shares a group.
        validation: The server's validation set.
        settings: How groups are tested.
        further: Whether there is evidence of earlier test rounds, so that a few groups may be enough.

    Raises:
        ShapeError, CalibrationError: If the model is no mapping of arrays, labels, scores or inputs do not have the form
            they need, or there are none.
        SpecError: If there is no such layer, the source label has no sample, a client has none, or the groups of the design
            cannot be compared.
    """
    require_model(parameters)
    _check_layer(settings, parameters, grouping.design)
    scores, labels = _scored(validation, parameters)
    _check_orientation(settings, parameters, scores.shape[1])
    present = np.unique(labels[~unscored(scores)])
    needed = settings.kind == "graded" or settings.utility == "recall"
    if settings.source_label is not None and needed and settings.source_label not in present:
        raise SpecError(
            f"source label {settings.source_label} has no sample in the validation set, which has those of labels "
            f"{', '.join(map(str, present.tolist()))}: take some, or leave it out"
        )
    if settings.kind == "graded" and settings.features == "margins" and len(present) < FEWEST_CLASSES:
        raise SpecError(
            f"features = 'margins', but the validation set has samples of {len(present)} classes; {FEWEST_CLASSES} are "
            "needed, because the noise of one pair of classes is learnt from the others: take features = 'weights'"
        )
    weights = np.array([federation.weight(client) for client in grouping.clients], dtype=np.float64)
    samples = np.array([federation.samples[client] for client in grouping.clients], dtype=np.float64)
    poor = next(
        (client for client, w, n in zip(grouping.clients, weights, samples, strict=True) if min(w, n) <= 0), None
    )
    if poor is not None:
        raise SpecError(f"client {poor!r} has {federation.samples[poor]} samples; whoever is tested needs at least 1")
    if settings.kind != "graded":
        return
    equal = settings.features == "margins"
    size = contrasts(grouping.rows * weights, np.ones_like(samples) if equal else samples).size
    if size < 2 and not further:
        raise SpecError(
            f"the groups of design {grouping.design.name!r} have {size} independent differences, and graded evidence "
            "compares at least 2: take more groups (four where sample counts differ), or kind = 'clusters'"
        )
    if settings.features == "outputs":
        _check_features(len(present) + scores.shape[1], "losses and outputs of the classes give", grouping.design)


def _check_layer(settings: ScreenSettings, parameters: Parameters, design: Design) -> None:
    if settings.layer not in parameters:
        raise SpecError(
            f"classification layer {settings.layer!r} is no tensor of the model; it has {', '.join(parameters)}: name the "
            "last one that is [classes, inputs] as ScreenSettings(layer=...), in a specification as screen.layer"
        )
    kind = parameters[settings.layer].dtype
    layer = as_numbers(parameters[settings.layer], f"the entries of layer {settings.layer!r}")
    if layer.ndim == 0 or not layer.size or kind.kind != "f":
        raise SpecError(
            f"classification layer {settings.layer!r} has shape {layer.shape} and dtype {kind}; the weights [classes, "
            f"inputs] are needed: name another tensor of {', '.join(parameters)}"
        )
    what = f"layer {settings.layer!r} gives"
    if settings.kind != "graded":
        features = layer_features(by_class(layer[None]), settings.source_label).shape[1]
        if settings.kind == "significant-clusters":
            _check_features(features, what, design)
    elif settings.features in ("auto", "weights"):
        _check_features(layer.size, what, design)


def _check_orientation(settings: ScreenSettings, parameters: Parameters, classes: int) -> None:
    """Rows of another meaning than classes would be compared without a word, and tell much less."""
    shape = parameters[settings.layer].shape
    if len(shape) == 2 and shape[0] != classes == shape[1]:
        raise SpecError(
            f"classification layer {settings.layer!r} has shape {list(shape)}, and the model has {classes} classes: "
            "[classes, inputs] is needed. Send its transpose: Keras and scikit-learn keep it the other way round"
        )


def _check_features(features: int, what: str, design: Design) -> None:
    # Whoever leaves makes groups of another rank: as many groups as there are may be independent.
    if design.groups > 2 and features < design.groups:
        raise SpecError(
            f"{what} {features} features of each group, and design {design.name!r} has {design.groups} groups; more "
            "features than differences of groups are needed: take fewer groups, or features = 'auto' with a layer of more "
            "weights"
        )


def _scored(validation: Validation, parameters: Parameters) -> tuple[FloatArray, IntArray]:
    """The scores of the first model and the labels, if they fit."""
    logits = validation.logits(parameters)
    if np.ndim(logits) == 2 and np.shape(logits)[1] < 2:
        raise ShapeError(
            f"Validation.logits gives {np.shape(logits)[1]} score per sample; one per class is needed, at least 2: for a "
            "model with one logit give [0, logit]"
        )
    try:
        scores, labels = checked_scores(logits, validation.labels)
    except (ShapeError, CalibrationError) as error:
        raise type(error)(f"the validation set does not fit the model: {error}") from error
    if unscored(scores).all():
        raise ShapeError("the model gives no validation sample a finite score: nothing that it becomes could be tested")
    if validation.inputs is not None:
        seen = as_numbers(validation.inputs(parameters), "Validation.inputs")
        if seen.ndim != 2 or len(seen) != len(labels):
            raise ShapeError(
                f"Validation.inputs gives shape {seen.shape} for {len(labels)} samples; [samples, features] is needed, what "
                "the classification layer sees of each"
            )
    return scores, labels
