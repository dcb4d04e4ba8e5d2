"""How useful a group's model is: v_i of section IV.D of the paper, measured on the server's validation set.

All functions take predicted and true labels, so that no model code is needed here.
"""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from fedgt.errors import CalibrationError, ShapeError, SpecError
from fedgt.types import IntArray, as_array, as_count

Utility = Literal["recall", "top1", "balanced-accuracy"]
"""The utilities of the paper. For `recall` the server must be told the label under attack (the informed screen)."""

UTILITIES: tuple[Utility, ...] = get_args(Utility)


def measure(
    utility: Utility, predictions: npt.ArrayLike, labels: npt.ArrayLike, *, source_label: int | None = None
) -> float:
    """The chosen utility of one group's model.

    Args:
        utility: Which one.
        predictions: int[samples], the labels that the group's model predicts.
        labels: int[samples], the true labels.
        source_label: The label under attack; needed by `recall`, not looked at by the others.

    Returns:
        A fraction from 0 (useless) to 1.

    Raises:
        SpecError: If there is no such utility, or `recall` is chosen without a source label.
        ShapeError, CalibrationError: As `recall`, `top1_accuracy` and `balanced_accuracy`.

    Examples:
        >>> from fedgt.screen import measure
        >>> measure("recall", predictions=[1, 7, 1, 0], labels=[1, 1, 1, 0], source_label=1)
        0.6666666666666666
    """
    if utility not in UTILITIES:
        raise SpecError(f"unknown utility {utility!r}; choose one of {', '.join(UTILITIES)}")
    if utility == "top1":
        return top1_accuracy(predictions, labels)
    if utility == "balanced-accuracy":
        return balanced_accuracy(predictions, labels)
    if source_label is None:
        raise SpecError(
            "utility 'recall' was asked for without a source label; give the label under attack, "
            "or choose 'top1' or 'balanced-accuracy', which need none"
        )
    return recall(predictions, labels, source_label)


def recall(predictions: npt.ArrayLike, labels: npt.ArrayLike, source_label: int) -> float:
    """The fraction of the source label's samples that are classified correctly (section V of the paper).

    Args:
        predictions: int[samples].
        labels: int[samples], the true labels.
        source_label: The label under attack.

    Raises:
        ShapeError: If the two are not integer vectors of one length.
        SpecError: If the source label is no integer.
        CalibrationError: If there is no sample, or none of the source label.

    Examples:
        >>> from fedgt.screen import recall
        >>> recall([1, 7, 0, 0], labels=[1, 1, 0, 0], source_label=1)
        0.5
    """
    predicted, true = _checked(predictions, labels)
    source_label = as_count(source_label, "source label")
    of_source = true == source_label
    if not of_source.any():
        raise CalibrationError(
            f"source label {source_label} is absent from the validation set (labels present: "
            f"{', '.join(map(str, np.unique(true).tolist()))}), so its recall is undefined; "
            "add samples of that label or choose 'top1' or 'balanced-accuracy'"
        )
    return float((predicted[of_source] == source_label).mean())


def top1_accuracy(predictions: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The fraction of samples that are classified correctly.

    Args:
        predictions: int[samples].
        labels: int[samples], the true labels.

    Raises:
        ShapeError: If the two are not integer vectors of one length.
        CalibrationError: If there is no sample.

    Examples:
        >>> from fedgt.screen import top1_accuracy
        >>> top1_accuracy([1, 7, 0, 0], labels=[1, 1, 0, 0])
        0.75
    """
    predicted, true = _checked(predictions, labels)
    return float((predicted == true).mean())


def balanced_accuracy(predictions: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The mean recall over the classes that are present among the true labels.

    Args:
        predictions: int[samples].
        labels: int[samples], the true labels.

    Raises:
        ShapeError: If the two are not integer vectors of one length.
        CalibrationError: If there is no sample.

    Examples:
        >>> from fedgt.screen import balanced_accuracy
        >>> balanced_accuracy([1, 0, 0, 0], labels=[1, 1, 0, 0])
        0.75
    """
    predicted, true = _checked(predictions, labels)
    _, class_of, sizes = np.unique(true, return_inverse=True, return_counts=True)
    hits = np.bincount(class_of, weights=predicted == true)
    return float((hits / sizes).mean())


def _checked(predictions: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[IntArray, IntArray]:
    """Both as int64 vectors of one positive length."""
    predicted, true = as_array(predictions, "predictions"), as_array(labels, "labels")
    if predicted.ndim != 1 or predicted.shape != true.shape:
        raise ShapeError(
            f"predictions of shape {predicted.shape} and labels of shape {true.shape} were given; "
            "two vectors of one length are needed, one entry per validation sample"
        )
    if predicted.size == 0:
        raise CalibrationError(
            "the validation set is empty, so no utility can be measured; give the server some samples"
        )
    for name, array in (("predictions", predicted), ("labels", true)):
        if not np.issubdtype(array.dtype, np.integer):
            raise ShapeError(
                f"{name} have dtype {array.dtype}; integer class labels are needed (take the argmax of scores)"
            )
    return predicted.astype(np.int64), true.astype(np.int64)
