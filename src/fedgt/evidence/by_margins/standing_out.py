"""Of many classes, those whose margins are looked at pair by pair.

Noise scales are learnt from all pairs for each pair, so that the cost grows with the fourth power of the number of classes.
An attack on a label moves few pairs more than their rows and columns explain: the classes of these are enough, with others
that fill up the number, from which honest noise is learnt.
"""

import numpy as np

from fedgt.evidence.contrast import contrasts
from fedgt.evidence.layer import MOST_CLASSES
from fedgt.types import FloatArray, IntArray

_TINY = np.finfo(np.float64).tiny


def classes_to_compare(margins: FloatArray, weights: FloatArray, classes: IntArray, label: int | None) -> IntArray:
    """int64[...]: positions in `classes`, ascending; all of them, unless there are more than `MOST_CLASSES`.

    Args:
        margins: float64[groups, S, C] of `fedgt.evidence.margins`, of groups that can be compared.
        weights: float64[groups, clients] of the same groups.
        classes: int64[S]: which classes have samples, ascending.
        label: One that must be among them, if it is asked for.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence.by_margins.standing_out import classes_to_compare
        >>> matrix = named_design("graded-15x10-b").matrix
        >>> margins = np.random.default_rng(0).normal(size=(10, 6, 6))
        >>> classes_to_compare(margins, matrix, np.arange(6), None).tolist()  # few classes: all of them
        [0, 1, 2, 3, 4, 5]
    """
    everything = np.arange(len(classes))
    if len(classes) <= MOST_CLASSES:
        return everything
    transform = contrasts(weights, np.ones(weights.shape[1])).transform
    energy = np.zeros((len(classes), len(classes)))
    for contrast in transform:
        moved = np.tensordot(contrast, margins, axes=1)[:, classes]
        energy += (moved - np.diagonal(moved)[:, None]) ** 2
    excess = np.log(np.maximum(energy, _TINY), out=energy)
    np.fill_diagonal(excess, -np.inf)  # one entry of many hardly moves a median
    excess -= np.median(excess, axis=1, keepdims=True)
    excess -= np.median(excess, axis=0, keepdims=True)
    flat = excess.ravel()
    most = np.argpartition(flat, -(MOST_CLASSES**2))[-(MOST_CLASSES**2) :]
    rows, columns = np.divmod(most[np.argsort(-flat[most], kind="stable")], len(classes))
    first = [] if label is None else np.flatnonzero(classes == label).tolist()
    ranked = dict.fromkeys([*first, *np.stack([rows, columns], axis=1).ravel().tolist(), *everything.tolist()])
    return np.sort(np.array(list(ranked)[:MOST_CLASSES], dtype=np.int64))
