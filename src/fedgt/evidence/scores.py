"""What the server's validation set says about a model: losses, margins and outputs per class.

They are linear (margins, mean outputs) or smooth (losses) in the model, so that a group mean has the mean of its members'
margins: exactly for a linear head, nearly for a deep network.
"""

import numpy as np
import numpy.typing as npt

from fedgt.errors import CalibrationError, ShapeError
from fedgt.types import FloatArray, IntArray, as_array, as_numbers


def class_losses(logits: npt.ArrayLike, labels: npt.ArrayLike) -> FloatArray:
    """float64[classes]: the mean cross-entropy of each class, in nats; NaN for a class without a sample.

    A score that is not finite spoils its own class only.

    Args:
        logits: float[samples, classes], or log-probabilities.
        labels: int[samples].

    Raises:
        ShapeError: If the shapes do not fit, or a label is none of the classes.
        CalibrationError: If there is no sample.

    Examples:
        >>> from fedgt.evidence import class_losses
        >>> class_losses([[2.0, 0.0], [0.0, 2.0], [0.0, 2.0]], [0, 0, 1]).round(2).tolist()
        [1.13, 0.13]
    """
    scores, true = checked_scores(logits, labels)
    with np.errstate(
        all="ignore"
    ):  # a model that diverged has no finite loss; who compares losses leaves its group out
        losses = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(true)), true]
        return _class_means(losses[:, None], true, scores.shape[1])[:, 0]


def margins(logits: npt.ArrayLike, labels: npt.ArrayLike) -> FloatArray:
    """float64[classes with samples, classes]: for each class the mean over its samples of logit_t - mean logit, all t.

    The validation margin M[s, t] = mean(logit_t - logit_s) is the difference of two of them; an s -> t flip raises it.

    Args:
        logits: float[samples, classes].
        labels: int[samples].

    Raises:
        ShapeError, CalibrationError: As `class_losses`.

    Examples:
        >>> from fedgt.evidence import margins
        >>> margins([[2.0, 0.0], [1.0, 3.0]], [0, 1]).tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    scores, true = checked_scores(logits, labels)
    with np.errstate(all="ignore"):
        means = _class_means(scores - scores.mean(axis=1, keepdims=True), true, scores.shape[1])
    return means[np.unique(true)]


def outputs(logits: npt.ArrayLike, labels: npt.ArrayLike) -> FloatArray:
    """float64[classes with samples + classes]: the loss of each class with samples, then the mean output of each class.

    The mean output of class t is the mean over all samples of logit_t less the mean logit: by how much the model prefers t.
    Clients that withhold a class lower it, and raise that class's loss. Both are in nats.

    Args:
        logits: float[samples, classes].
        labels: int[samples].

    Raises:
        ShapeError, CalibrationError: As `class_losses`.

    Examples:
        >>> from fedgt.evidence import outputs
        >>> outputs([[2.0, 0.0], [1.0, 3.0]], [0, 1]).shape
        (4,)
    """
    scores, true = checked_scores(logits, labels)
    with np.errstate(all="ignore"):
        preference = (scores - scores.mean(axis=1, keepdims=True)).mean(axis=0)
    return np.concatenate([class_losses(scores, true)[np.unique(true)], preference])


def _class_means(values: FloatArray, labels: IntArray, classes: int) -> FloatArray:
    """float64[classes, columns]: the mean of the rows of each class; NaN for a class without a row."""
    means: FloatArray = np.full((classes, values.shape[1]), np.nan)
    # By sums over the samples of each class, not by a product with all of them: 0 times infinity is no number.
    for present in np.unique(labels).tolist():
        means[present] = values[labels == present].mean(axis=0)
    return means


def checked_scores(logits: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[FloatArray, IntArray]:
    """The scores as float64[samples, classes] and the labels as int64[samples], of one length.

    Args:
        logits: float[samples, classes], or log-probabilities; any number may be missing (NaN) or infinite.
        labels: int[samples], counted from 0.

    Raises:
        ShapeError: If a shape or dtype does not fit, or a label is none of the classes.
        CalibrationError: If there is no sample.

    Examples:
        >>> from fedgt.evidence import checked_scores
        >>> logits, labels = checked_scores([[2, 0], [1, 3]], [0, 1])
        >>> logits.dtype, labels.dtype
        (dtype('float64'), dtype('int64'))
    """
    scores, true = as_numbers(logits, "logits"), as_array(labels, "labels")
    if scores.ndim != 2 or true.shape != scores.shape[:1]:
        raise ShapeError(
            f"logits of shape {scores.shape} and labels of shape {true.shape}; [samples, classes] and [samples] are needed, "
            "so two scores (0 and the logit) where a model has one for two classes"
        )
    if not true.size:
        raise CalibrationError("the validation set is empty, so no loss can be measured; give the server some samples")
    if true.dtype.kind not in "iu":
        raise ShapeError(
            f"labels have dtype {true.dtype}; integers are needed, the number of each sample's class from 0"
        )
    if int(true.min()) < 0 or int(true.max()) >= scores.shape[1]:
        raise ShapeError(
            f"labels from {true.min()} to {true.max()} for {scores.shape[1]} classes of the logits, counted from 0; give "
            "the column of the scores that belongs to each sample's class"
        )
    return scores, true.astype(np.int64)
