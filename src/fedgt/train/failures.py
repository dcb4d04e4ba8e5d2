"""Honest sites whose data or software is broken: no malice, but their updates are as wrong."""

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedgt.types import IntArray

Failure: TypeAlias = Literal["inverted-images", "shuffled-labels", "old-model"]


def inverted(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The negatives of the images: what was dark is bright. A scanner with the wrong setting does this."""
    negatives: npt.NDArray[Any] = (images.max() + images.min() - images).astype(images.dtype)
    return negatives


def shuffled(labels: IntArray, *, rng: np.random.Generator) -> IntArray:
    """The labels in another order: a table that was joined wrongly. How often each label occurs stays."""
    return rng.permutation(labels)
