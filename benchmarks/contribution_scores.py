"""A score for every client from the utilities of group sums, and how well such scores find attackers.

After "Detect & Score" (arXiv 2506.23583), which joins FedGT's groups with the scores of QI (Pejo and Biczok, arXiv
2007.06236). QI looks at rounds with changing participants: who takes part in a round that does better than the one before
gains a point, who took part in the worse one loses a point. Here all groups of one test round are compared instead.
"""

import numpy as np
from sklearn.metrics import roc_auc_score

from fedgt.errors import ShapeError
from fedgt.types import BitArray, BoolArray, FloatArray


def mean_difference(utilities: FloatArray, matrix: BitArray) -> FloatArray:
    """The mean utility of a client's groups less that of the others.

    Args:
        utilities: float64[groups], larger is better.
        matrix: uint8[groups, clients]: who is in which group.

    Returns:
        float64[clients], larger is better. A client of no group, or of all, has 0.

    Raises:
        ShapeError: If the lengths differ.
    """
    members = _members(utilities, matrix)
    inside = members.sum(axis=0)
    outside = len(members) - inside
    both = (inside > 0) & (outside > 0)
    means_in = utilities @ members / np.maximum(inside, 1)
    means_out = utilities @ (1.0 - members) / np.maximum(outside, 1)
    return np.where(both, means_in - means_out, 0.0)


def pair_points(utilities: FloatArray, matrix: BitArray) -> FloatArray:
    """Points for every pair of groups: one for who is in the better group only, minus one for who is in the worse only.

    Equal groups give no points. Arguments, result and errors are those of `mean_difference`.
    """
    members = _members(utilities, matrix)
    better = np.sign(utilities[:, None] - utilities[None, :])
    points: FloatArray = better.sum(axis=1) @ members
    return points


def attackers_auc(scores: FloatArray, malicious: BoolArray) -> float | None:
    """The chance that an attacker scores below an honest client, ties counting half; None without attackers or honest ones.

    Args:
        scores: float64[clients], larger is better.
        malicious: bool[clients], the truth.
    """
    if not malicious.any() or malicious.all():
        return None
    return float(roc_auc_score(malicious, -scores))


def errors_of_lowest(scores: FloatArray, malicious: BoolArray) -> float:
    """Attackers kept when as many clients go as there are attackers, the lowest scores first; so many honest ones go too.

    Args:
        scores: float64[clients], larger is better.
        malicious: bool[clients], the truth.

    Returns:
        The expected number if clients of equal score go in random order.
    """
    count = int(malicious.sum())
    if not count:
        return 0.0
    last = np.sort(scores)[count - 1]
    surely, tied = scores < last, scores == last
    share = (count - int(surely.sum())) / int(tied.sum())
    return count - float((malicious & surely).sum() + share * (malicious & tied).sum())


def _members(utilities: FloatArray, matrix: BitArray) -> FloatArray:
    if utilities.ndim != 1 or matrix.ndim != 2 or len(utilities) != len(matrix):
        raise ShapeError(
            f"utilities of shape {utilities.shape} for a matrix of shape {matrix.shape}; one utility for each row of "
            "groups x clients is needed"
        )
    return matrix.astype(np.float64)
