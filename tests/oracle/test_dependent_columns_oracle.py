"""Sets whose clients move the groups alike, against arithmetic of 80 digits."""

import mpmath as mp
import numpy as np
import pytest

from fedgt.evidence import contrasts
from fedgt.evidence.line import STRENGTH_SPREADS, ShiftEvidence
from fedgt.types import BoolArray, FloatArray
from small_rounds import FIVE_INDEPENDENT, THREE_OF_FIVE, TWO_PARTITIONS


def slow(shifts: FloatArray, direction: FloatArray, variance: float, chosen: BoolArray) -> float:
    """Log of the normal density of the direction with the length along the set integrated out, over a perfect fit's."""
    columns, u, noise = mp.matrix(shifts[:, chosen].tolist()), mp.matrix(direction.tolist()), mp.mpf(variance)
    k = columns.rows
    towards = columns * mp.ones(columns.cols, 1)
    squared = (towards.T * towards)[0]
    total = mp.mpf(0)
    for number, (deviation, probability) in enumerate(STRENGTH_SPREADS):
        spread = mp.mpf(deviation) ** 2 / squared
        scatter = columns * columns.T
        trace = mp.fsum(scatter[i, i] for i in range(k))
        varied = scatter if number else mp.eye(k) * trace / k
        covariance = noise * mp.eye(k) + spread * varied
        inverse = covariance**-1
        along = (towards.T * inverse * towards)[0] / squared
        met = (towards.T * inverse * u)[0] / mp.sqrt(squared)
        left = (u.T * inverse * u)[0] - met**2 / along
        log = (k - 1) * mp.log(noise) / 2 - (mp.log(mp.det(covariance)) + mp.log(along) + left) / 2
        total += mp.mpf(probability) * mp.exp(log)
    return float(mp.log(total))


@pytest.mark.parametrize(
    "variance", [1e-18, *(pytest.param(one, marks=pytest.mark.slow) for one in (1e-12, 1e-6, 1e-2))]
)
@pytest.mark.parametrize("matrix", [THREE_OF_FIVE, TWO_PARTITIONS, FIVE_INDEPENDENT])
def test_dependent_columns_have_the_density_of_exact_arithmetic(matrix: FloatArray, variance: float) -> None:
    rng = np.random.default_rng(5)
    parts = contrasts(matrix, np.full(15, 100.0))
    seen = 0
    with mp.workdps(80):
        for trial in range(40):
            chosen = np.zeros(15, dtype=np.bool_)
            chosen[rng.choice(15, rng.integers(1, 8), replace=False)] = True
            strengths = 1.0 + (0.3 * rng.normal(size=15) if trial % 2 else 0.0)
            towards = parts.shifts @ (chosen * strengths)
            if np.linalg.norm(towards) < 1e-6:
                continue
            direction = towards / np.linalg.norm(towards) + variance**0.5 * rng.normal(size=parts.size)
            direction /= np.linalg.norm(direction)
            evidence = ShiftEvidence(
                shifts=parts.shifts,
                direction=direction,
                variance=variance,
                signal=1.0 / variance,
                effective_features=1.0,
                line=0.0,
                nobody=0.0,
            )
            found = float(evidence.explained(chosen[None])[0])
            if np.isfinite(found):
                seen += 1
                assert found == pytest.approx(slow(parts.shifts, direction, variance, chosen), rel=1e-5, abs=1e-5)
    assert seen > 20
