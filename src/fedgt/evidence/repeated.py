"""Several tests of the weights, or of the margins, of the same clients: what comes again is not new evidence.

What a client differs by has a part that is the same in every round, `PERSISTS` of its variance, and a part that is drawn
anew: it trains on the same data every time. With N_r the `noise` of round r (see `Contrasts`), contrasts of the rounds r and
s then have the covariance rho N_r N_s^T. The same rows say nearly the same again; other rows say more.

With s_j what client j moves in the contrasts of all tests, and V their covariance, the tests hold s_j^T V^-1 s_j of
information about it instead of |s_j|^2. The quotient, mean of all clients, is the part of the evidence that is new, and the
evidence of all tests is raised to this power. A test of few rows says less: of what is new each test has a share by the
square of its own information, so that a poor test does not weaken a good one.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from fedgt.evidence.by_margins.margin_evidence import MarginEvidence
from fedgt.evidence.weights import GradedEvidence
from fedgt.types import FloatArray

PERSISTS = 0.9
"""The part of the variance of what a client differs by that is the same in every round. Measured between the first three
rounds of linear models: 0.77 to 0.91 where clients are of one population, 0.83 to 0.99 where they differ (decision 0032)."""

Compared = TypeVar("Compared", GradedEvidence, MarginEvidence)


def without_repetition(tests: Sequence[Compared]) -> list[Compared]:
    """The evidence of tests of the same clients, such that it may be added up.

    Examples:
        >>> from fedgt.evidence.repeated import without_repetition
        >>> without_repetition([])
        []
    """
    if len(tests) < 2:
        return list(tests)
    new = part_that_is_new([one.noise for one in tests], [one.damage.shifts for one in tests])
    alone = np.array([float((one.damage.shifts**2).sum()) for one in tests])
    powers = np.minimum(new * alone * alone.sum() / (alone @ alone), 1.0)
    return [one.raised(float(power)) for one, power in zip(tests, powers, strict=True)]


def part_that_is_new(noise: Sequence[FloatArray], shifts: Sequence[FloatArray]) -> float:
    """By which power the evidence of all tests is raised: 1 for one test, little above 1 / tests for the same rows.

    Args:
        noise: float64[contrasts, clients] of each test; see `Contrasts`.
        shifts: float64[contrasts, clients] of each test; see `Contrasts`.

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence.repeated import part_that_is_new
        >>> rows = np.eye(2, 5)
        >>> round(part_that_is_new([rows, rows], [rows, rows]), 2)  # the same rows once more
        0.53
        >>> part_that_is_new([rows, rows[:, ::-1]], [rows, rows[:, ::-1]])  # rows over other clients
        1.0
    """
    joint, moved = np.concatenate(noise), np.concatenate(shifts)
    covariance = PERSISTS * joint @ joint.T + (1.0 - PERSISTS) * np.eye(len(joint))
    apart = np.einsum("kj,kj->j", moved, moved)
    together = np.einsum("kj,kj->j", moved, np.linalg.solve(covariance, moved))
    seen = apart > 0
    return float(np.mean(together[seen] / apart[seen])) if seen.any() else 1.0
