"""Do the groups differ at all? Asked before clustering, because k-means always finds clusters, in noise too."""

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError
from fedgt.evidence.contrast import contrasts
from fedgt.evidence.line import shift_evidence
from fedgt.screen.projection import usable_rows
from fedgt.types import FloatArray, as_flags, as_numbers

SIGNIFICANT = 3.0
"""Nats by which a line through the group means must be more likely than noise: about 20 to 1."""


def evidence_of_difference(
    layer: FloatArray, *, weights: npt.ArrayLike, samples: npt.ArrayLike, erased: npt.ArrayLike
) -> float:
    """By how many nats the group means differ along some line rather than by honest training noise.

    Args:
        layer: float64[groups, features] of each group mean; rows that are erased or not finite are left out.
        weights: float[groups, clients], the real weight of each client in each sum.
        samples: float[clients], sample counts.
        erased: bool[groups].

    Returns:
        The evidence; 0 where too few groups can be compared, -inf where all are equal.

    Raises:
        ShapeError: If the shapes do not fit, or there are not more features than groups.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import SIGNIFICANT, evidence_of_difference
        >>> matrix, rng = named_design("bch-15x8").matrix, np.random.default_rng(0)
        >>> means = matrix @ rng.normal(size=(15, 200))  # honest clients only
        >>> nats = evidence_of_difference(means, weights=matrix, samples=[100] * 15, erased=[False] * 8)
        >>> nats < SIGNIFICANT
        True
    """
    means, closed, w = as_numbers(layer, "group means"), as_flags(erased, "erasures"), as_numbers(weights, "weights")
    if means.ndim != 2 or closed.shape != means.shape[:1] or w.ndim != 2 or len(w) != len(means):
        raise ShapeError(
            f"group means {means.shape}, weights {w.shape} and erasures {closed.shape}: one row or entry per group is "
            "needed in each"
        )
    usable = usable_rows(means) & ~closed
    parts = contrasts(w[usable], samples)
    if parts.size < 2:
        return 0.0
    rows = means[usable] - means[usable].mean(axis=0)
    line = shift_evidence(parts.transform @ (rows @ rows.T) @ parts.transform.T, parts.shifts, features=rows.shape[1])
    return -np.inf if line is None else line.line - line.nobody
