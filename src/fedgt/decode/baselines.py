"""What others do with the same outcomes: the classical group-testing decoders, and the paper's published decision tables."""

import numpy as np
import numpy.typing as npt

from fedgt.design import Design
from fedgt.errors import SpecError
from fedgt.types import NEGATIVE, POSITIVE, BoolArray, IntArray

PUBLISHED_COUNTS = (5, 5, 5, 4, 3, 3, 2, 1, 0)
"""n_m-hat of the authors' published code for 0..8 negative groups of the 15 x 8 design."""

PUBLISHED_THRESHOLDS = {1: -1.0, 2: -1.2, 3: -0.5, 4: 0.0, 5: 0.0}
"""Delta of the authors' published code for each n_m-hat of the 15 x 8 design."""


def combinatorial(design: Design, outcomes: npt.NDArray[np.int8]) -> BoolArray:
    """bool[B, clients], COMP: everybody who is in some tested group and in no negative one is flagged.

    Chan, Che, Jaggi and Saligrama 2011. Without test errors nobody malicious is missed.

    Examples:
        >>> import numpy as np
        >>> from fedgt import from_matrix
        >>> from fedgt.decode import combinatorial
        >>> combinatorial(from_matrix([[1, 1, 0], [0, 1, 1]]), np.array([[0, 1]], dtype=np.int8)).tolist()
        [[False, False, True]]
    """
    matrix = design.matrix.astype(np.int64)
    cleared = (outcomes == NEGATIVE).astype(np.int64) @ matrix > 0
    tested = (outcomes != -1).astype(np.int64) @ matrix > 0
    flagged: BoolArray = np.logical_and(tested, ~cleared)
    return flagged


def definite(design: Design, outcomes: npt.NDArray[np.int8]) -> BoolArray:
    """bool[B, clients], DD: of those, only clients that are the only possible culprit of some positive group.

    Aldridge, Baldassini and Johnson 2014. Without test errors nobody benign is flagged.

    Examples:
        >>> import numpy as np
        >>> from fedgt import from_matrix
        >>> from fedgt.decode import definite
        >>> definite(from_matrix([[1, 1, 0], [0, 1, 1]]), np.array([[0, 1], [1, 1]], dtype=np.int8)).tolist()
        [[False, False, True], [False, False, False]]
    """
    possible = combinatorial(design, outcomes)
    matrix = design.matrix.astype(np.int64)
    culprits = possible.astype(np.int64) @ matrix.T  # [B, groups]
    alone = np.logical_and(outcomes == POSITIVE, culprits == 1)
    flagged: BoolArray = np.logical_and(possible, alone.astype(np.int64) @ matrix > 0)
    return flagged


def published_estimate(design: Design, outcomes: npt.NDArray[np.int8]) -> IntArray:
    """int64[B]: the published n_m-hat.

    Raises:
        SpecError: If the design is not the published one, or an outcome is erased (the tables know neither).
    """
    if design.groups != len(PUBLISHED_COUNTS) - 1 or design.clients != 15:
        raise SpecError(
            f"the published tables are for 15 clients in 8 groups with all outcomes, design {design.name!r} has "
            f"{design.clients} in {design.groups} with an outcome"
        )
    if (outcomes == -1).any():
        raise SpecError("the published tables know no erased outcomes; take another strategy")
    estimates: IntArray = np.asarray(PUBLISHED_COUNTS, dtype=np.int64)[(outcomes == NEGATIVE).sum(axis=1)]
    return estimates
