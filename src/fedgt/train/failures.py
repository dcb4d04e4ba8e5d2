"""Honest sites whose data or software is broken: no malice, but their updates are as wrong."""

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedgt.types import IntArray

Failure: TypeAlias = Literal["inverted-images", "shuffled-labels", "old-model"]


def inverted(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The negatives of the images: what was dark is bright. A scanner with the wrong setting does this.

    Example:
        >>> import numpy as np
        >>> inverted(np.array([[0.0, 0.25, 1.0]])).tolist()
        [[1.0, 0.75, 0.0]]
    """
    negatives: npt.NDArray[Any] = (images.max() + images.min() - images).astype(images.dtype)
    return negatives


def shuffled(labels: IntArray, *, rng: np.random.Generator) -> IntArray:
    """The labels in another order: a table that was joined wrongly. How often each label occurs stays.

    Example:
        >>> import numpy as np
        >>> sorted(shuffled(np.array([4, 4, 7]), rng=np.random.default_rng(0)).tolist())
        [4, 4, 7]
    """
    return rng.permutation(labels)
