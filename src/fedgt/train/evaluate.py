"""How far an attack got: what an experiment measures on the test set, next to the utilities of `fedgt.screen`."""

from fedgt.errors import ShapeError
from fedgt.types import IntArray


def attack_accuracy(predictions: IntArray, labels: IntArray, *, source: int, target: int) -> float:
    """The fraction of samples of the source class that are predicted as the target class (section VI.C of the paper).

    Raises:
        ShapeError: If the lengths differ or no sample has the source label.

    Examples:
        >>> import numpy as np
        >>> from fedgt.train import attack_accuracy
        >>> attack_accuracy(np.array([3, 9, 3, 1]), np.array([9, 9, 3, 1]), source=9, target=3)
        0.5
    """
    if predictions.shape != labels.shape or labels.ndim != 1:
        raise ShapeError(
            f"predictions of shape {predictions.shape} for labels of shape {labels.shape}; "
            "two vectors of one length are needed"
        )
    attacked = predictions[labels == source]
    if not attacked.size:
        raise ShapeError(f"none of the {labels.size} samples has the source label {source}; at least one is needed")
    return float((attacked == target).mean())
