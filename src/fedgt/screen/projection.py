"""Where a group's model lies: p_i of section IV.D of the paper, the first principal component of the group means."""

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError
from fedgt.types import BoolArray, FloatArray, as_count, as_numbers

LARGEST_USABLE = 1e150
"""Beyond this size the square of a number leaves the range of doubles, so it counts as not finite."""

_ROUNDING = 1e-12
"""A spread below this fraction of the largest row is rounding of the group means, not a direction."""


def layer_features(weights: npt.ArrayLike, source_label: int | None = None) -> FloatArray:
    """What the principal component is taken of: the weights into the source label, or the whole layer flattened.

    The paper takes the former against targeted attacks and the latter against untargeted ones. Biases are left out.

    Args:
        weights: float[groups, classes, inputs], the weight matrix of the classification layer of each group mean.
        source_label: The label under attack, or None for the whole layer.

    Returns:
        float[groups, inputs] with a source label, float[groups, classes * inputs] without one.

    Raises:
        ShapeError: If the weights are not three-dimensional or the source label is none of the classes.

    Examples:
        >>> import numpy as np
        >>> from fedgt.screen import layer_features
        >>> layers = np.arange(24.0).reshape(2, 3, 4)  # two groups, three classes, four inputs
        >>> layer_features(layers).shape, layer_features(layers, source_label=1).tolist()
        ((2, 12), [[4.0, 5.0, 6.0, 7.0], [16.0, 17.0, 18.0, 19.0]])
    """
    array = as_numbers(weights, "classification layers")
    if array.ndim != 3:
        raise ShapeError(
            f"classification layers of shape {array.shape} were given; (groups, classes, inputs) is needed"
        )
    if source_label is None:
        return array.reshape(array.shape[0], -1)
    if not 0 <= as_count(source_label, "source label", error=ShapeError) < array.shape[1]:
        raise ShapeError(
            f"source label {source_label} was given, the classification layer has the classes 0 to {array.shape[1] - 1}"
        )
    return array[:, source_label, :]


def usable_rows(layer: FloatArray) -> BoolArray:
    """bool[groups]: the rows of float[groups, features] without NaN, infinity or entry beyond `LARGEST_USABLE`."""
    usable: BoolArray = np.all(np.abs(layer) < LARGEST_USABLE, axis=1)
    return usable


def first_component(means_layer: npt.ArrayLike) -> FloatArray:
    """The score of each group on the first principal component of all of them.

    Rows are centred, not scaled. The sign is the one that makes the largest loading (the first of them, in the order of
    the features) positive; it follows the features, so renaming groups does not change it, and clustering does not
    depend on it. With two or more equal largest singular values the component is one of several equally good ones.
    Time grows as m^2 D and memory as m D, for m groups and D features.

    Args:
        means_layer: float[groups, features]; rows that are not usable (see `usable_rows`) are left out.

    Returns:
        float64[groups], in the unit of the weights; NaN for the groups left out; 0 for all others if they differ by no
        more than rounding.

    Raises:
        ShapeError: If the layer is not a matrix with at least one feature.

    Examples:
        >>> from fedgt.screen import first_component
        >>> first_component([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]]).round(3).tolist()
        [-1.0, 0.0, 1.0]
    """
    layer = as_numbers(means_layer, "group means")
    if layer.ndim != 2 or layer.shape[1] == 0:
        raise ShapeError(f"group means of shape {layer.shape} were given; (groups, features) with a feature is needed")
    scores = np.full(layer.shape[0], np.nan)
    usable = usable_rows(layer)
    if not usable.any():
        return scores
    rows = layer[usable]
    centred = rows - rows.mean(axis=0)
    # The small side: the first eigenvector of the m x m Gram matrix, carried back to the features.
    loadings = np.linalg.eigh(centred @ centred.T).eigenvectors[:, -1] @ centred
    singular_value = float(np.linalg.norm(loadings))
    if singular_value <= _ROUNDING * float(np.linalg.norm(rows, axis=1).max()):
        scores[usable] = 0.0
        return scores
    sign = 1.0 if loadings[np.abs(loadings).argmax()] > 0 else -1.0
    scores[usable] = centred @ (loadings * (sign / singular_value))
    return scores
