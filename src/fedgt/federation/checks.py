"""What would fail after the first sum is refused before it: the model, the validation set, the promise of the plan."""

from collections.abc import Mapping

import numpy as np

from fedgt.errors import ShapeError, SpecError
from fedgt.federation.measure import check_layer, real_rows
from fedgt.federation.settings import DecodeSettings, Federation, ScreenSettings, Validation
from fedgt.grouping import Grouping
from fedgt.privacy import minimum_support
from fedgt.types import Parameters


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
    if screen.kind == "graded":
        decode.largest_graded(grouping.design.clients, screen.features)


def check_model(parameters: object) -> None:
    """The first global model.

    Raises:
        ShapeError: If it is no mapping from names to numeric arrays.
    """
    if not isinstance(parameters, Mapping) or not parameters:
        raise ShapeError(
            f"the model is a {type(parameters).__name__}; a dict of arrays is needed: tensor name -> array"
        )
    for name, array in parameters.items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            raise ShapeError(f"tensor {name!r} of the model is a {type(array).__name__}; a numpy array is needed")
    if not any(array.dtype.kind == "f" for array in parameters.values()):
        raise ShapeError(f"no tensor of the model ({', '.join(parameters)}) is floating-point: nothing can be averaged")


def check_validation(
    parameters: Parameters, validation: Validation, screen: ScreenSettings, grouping: Grouping
) -> None:
    """The validation set, seen through the first global model.

    Raises:
        ShapeError: If labels, scores or inputs do not have the form they need.
        SpecError: If the classification layer does not exist or does not suit the groups, or the source label has no sample.
    """
    labels = np.asarray(validation.labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size or labels.min() < 0:
        raise ShapeError(
            f"Validation.labels have shape {labels.shape} and dtype {labels.dtype}; class numbers from 0 are needed, one "
            "per sample"
        )
    scores = np.asarray(validation.logits(parameters))
    classes = int(labels.max()) + 1
    if scores.ndim != 2 or scores.dtype.kind != "f" or len(scores) != len(labels) or scores.shape[1] < classes:
        raise ShapeError(
            f"Validation.logits gives shape {scores.shape} and dtype {scores.dtype}; floating-point scores of every class "
            f"are needed for {len(labels)} samples with labels up to {classes - 1}"
        )
    if not np.isfinite(scores).all():
        raise ShapeError("Validation.logits of the first global model are not all finite")
    if validation.inputs is not None:
        inputs = np.asarray(validation.inputs(parameters))
        if inputs.ndim != 2 or inputs.dtype.kind not in "fiu" or len(inputs) != len(labels):
            raise ShapeError(
                f"Validation.inputs gives shape {inputs.shape}; what the classification layer sees of {len(labels)} samples "
                "is needed, [samples, features]"
            )
    needed = screen.kind == "graded" or screen.measured.needs_source_label
    if screen.source_label is not None and needed and screen.source_label not in labels:
        raise SpecError(
            f"screen.source_label = {screen.source_label} has no sample in the validation set (labels present: "
            f"{', '.join(map(str, np.unique(labels).tolist()))}); take more, or leave it out"
        )
    check_layer(screen, parameters, grouping.design, validation)
