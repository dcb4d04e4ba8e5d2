"""Sets that a line points to, by least squares: clients may belong to a set in part, which makes the best ones easy to find.

Of 25 clients twelve attackers are one set of five million, and no smaller set explains what they do: a search that goes from
set to set passes them by. A set moves the sums along the line as far as it can, and across it not at all. With parts between
0 and 1 this is a least squares problem with bounds. Where contrasts are more than about half as many as clients, its
solution is the set itself.
"""

import numpy as np
from scipy.optimize import lsq_linear

from fedgt.types import BoolArray, FloatArray

_ACROSS = 3.0
"""Weight of what a set moves across the line against how far it moves along it; from 1 to 30 the sets were the same."""


def relaxed_sets(shifts: FloatArray, direction: FloatArray, largest: int) -> BoolArray:
    """Two sets of each size from 1 to `largest`, one for each way along the line.

    Args:
        shifts: float64[contrasts, clients]; see `Contrasts`.
        direction: float64[contrasts]: the line, of unit length.
        largest: The largest size.

    Returns:
        bool[2 * largest, clients].

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence.relaxed import relaxed_sets
        >>> shifts = np.random.default_rng(0).normal(size=(8, 12))
        >>> line = shifts[:, [1, 4, 7]].sum(axis=1)
        >>> sets = relaxed_sets(shifts, line / np.linalg.norm(line), 5)
        >>> [1, 4, 7] in [np.flatnonzero(one).tolist() for one in sets]
        True
    """
    clients = shifts.shape[1]
    along = direction @ shifts
    far, weight = float(np.abs(along).sum()), _ACROSS * float(np.abs(shifts).max())
    rows = np.vstack([_ACROSS * (shifts - np.outer(direction, along)), along, np.full(clients, weight)])
    sets = np.zeros((largest, 2, clients), dtype=np.bool_)
    for size in range(1, largest + 1):
        for number, sign in enumerate((1.0, -1.0)):
            wanted = np.concatenate([np.zeros(len(shifts)), [sign * far, weight * size]])
            parts = lsq_linear(rows, wanted, bounds=(0.0, 1.0), method="bvls").x
            sets[size - 1, number, np.argsort(-parts, kind="stable")[:size]] = True
    return sets.reshape(-1, clients)
