"""Recomputed numbers of the decision rules on the 15 x 8 design, and the paper's robustness table."""

from math import comb, log

import numpy as np
import pytest

from fedgt.decode import (
    CountPrior,
    IndependentPrior,
    all_log_odds,
    calibrate,
    decision_table,
    expected_errors,
)
from fedgt.decode.compiled import all_outcomes
from fedgt.decode.exact import syndrome_counts
from fedgt.design import named_design
from fedgt.types import ErrorRates

DESIGN = named_design("bch-15x8")


@pytest.mark.parametrize(
    ("malicious", "objective", "optimal"),
    [
        (1, 0.0, [-1.71]),
        (2, 0.0111, [-2.16, -1.45]),
        (3, 0.0459, [-1.258, -1.244]),
        (4, 0.0926, [-0.9185]),
        (5, 0.1376, [-0.691]),
    ],
)
def test_exact_calibration_of_15x8(malicious: int, objective: float, optimal: list[float]) -> None:
    """beta = .5, noise-free tests, decoder p = .05; objective to four digits, known optimal thresholds inside."""
    found = calibrate(DESIGN, ErrorRates.symmetric(0.05), malicious)
    assert found.objective == pytest.approx(objective, abs=5e-5)
    assert all(found.lowest <= threshold <= found.highest for threshold in optimal)
    assert found.lowest < found.threshold < found.highest


@pytest.mark.parametrize(
    ("p", "objectives"),
    [
        (0.0, [0, 0, 0.0111, 0.0465, 0.0922, 0.1372]),
        (0.05, [0.0078, 0.0124, 0.0291, 0.0635, 0.1055, 0.1470]),
    ],
)
def test_the_bayes_strategy_attains_its_known_expected_errors(p: float, objectives: list[float]) -> None:
    rates = ErrorRates.symmetric(p)
    flagged = decision_table(DESIGN, all_outcomes(8), rates=rates, strategy="bayes")
    found = [0.5 * sum(expected_errors(DESIGN, flagged, rates, q)) / 15 for q in range(6)]
    np.testing.assert_allclose(found, objectives, atol=5e-5)


def test_no_rule_that_knows_the_number_does_better_than_the_stated_floor() -> None:
    """The floor of binary outcomes at p = .05: flag when P(d_j = 1 | t, n_m) > 1/2."""
    rates = ErrorRates.symmetric(0.05)
    floors = []
    for malicious in range(1, 6):
        weights = np.zeros(malicious + 1)
        weights[malicious] = 1
        flagged = all_log_odds(DESIGN, rates, CountPrior(weights=weights)) < 0
        floors.append(0.5 * sum(expected_errors(DESIGN, flagged, rates, malicious)) / 15)
    np.testing.assert_allclose(floors, [0.0076, 0.0255, 0.0602, 0.1018, 0.1411], atol=5e-5)


CROSSOVERS = (0.01, 0.025, 0.05, 0.075, 0.10, 0.125, 0.15, 0.175, 0.20)
ROBUSTNESS = {  # Table "Robustness of the objective" of the paper
    1: (0, 0, 0, 0, 0, 0, 0, 0, 0),
    2: (0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.02, 0.02),
    3: (0.07, 0.07, 0.07, 0.07, 0.07, 0.07, 0.06, 0.06, 0.06),
    4: (0.14, 0.14, 0.14, 0.14, 0.14, 0.14, 0.15, 0.15, 0.16),
    5: (0.15, 0.15, 0.15, 0.15, 0.15, 0.15, 0.15, 0.15, 0.17),
}
COARSE = {1: -1.0, 2: -1.2, 3: -0.5, 4: 0.0, 5: 0.0}


def test_the_papers_robustness_table_follows_from_coarse_thresholds_in_43_of_45_cells() -> None:
    """Noise-free outcomes, only the decoder's p varied, attacker sets that contaminate every group left out."""
    counts = syndrome_counts(DESIGN)
    equal = 0
    for malicious, published in ROBUSTNESS.items():
        prevalence = malicious / 15
        for p, value in zip(CROSSOVERS, published, strict=True):
            ratios = all_log_odds(DESIGN, ErrorRates.symmetric(p), IndependentPrior.uniform(15, prevalence))
            ratios -= log((1 - prevalence) / prevalence)
            flagged = ratios < COARSE[malicious]
            missed = counts.containing[malicious].T.astype(float)
            accused = counts.sets[malicious][:, None] - missed
            cost = np.where(flagged, accused, missed)[:-1].sum()  # the last syndrome: every group contaminated
            sets = comb(15, malicious) - counts.sets[malicious][-1]
            equal += round(0.5 * float(cost) / (15 * float(sets)), 2) == value
    assert equal == 43


def test_with_truly_noisy_outcomes_the_objective_grows_with_p() -> None:
    rates = ErrorRates.symmetric(0.05)
    flagged = np.nan_to_num(all_log_odds(DESIGN, rates, CountPrior.uniform(5)), nan=np.inf) < 0
    objectives = [sum(expected_errors(DESIGN, flagged, ErrorRates.symmetric(p), 3)) for p in CROSSOVERS]
    assert (np.diff(objectives) > 0).all()
