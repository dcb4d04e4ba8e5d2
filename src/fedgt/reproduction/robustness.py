"""The paper's robustness table: what the decision costs when the assumed crossover probability is not the true one.

Exact, nothing is drawn: expectation over all attacker sets (and, where said, over the noise of the tests) on the 15 x 8
design, with Delta for p = .05. The published values follow from the published code's coarse thresholds with noise-free
tests, only the decoder's p varied and attacker sets that contaminate every group left out; where tests really are noisy the
objective grows with p.
"""

from dataclasses import dataclass
from math import comb, log
from typing import Final

import numpy as np

from fedgt.decode import CountPrior, IndependentPrior, all_log_odds, calibrate, expected_errors
from fedgt.decode.baselines import PUBLISHED_THRESHOLDS
from fedgt.decode.exact import syndrome_counts
from fedgt.design import Design, named_design
from fedgt.types import BoolArray, ErrorRates

CROSSOVERS: Final = (0.01, 0.025, 0.05, 0.075, 0.10, 0.125, 0.15, 0.175, 0.20)

PUBLISHED: Final = {
    1: (0, 0, 0, 0, 0, 0, 0, 0, 0),
    2: (0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.02, 0.02),
    3: (0.07, 0.07, 0.07, 0.07, 0.07, 0.07, 0.06, 0.06, 0.06),
    4: (0.14, 0.14, 0.14, 0.14, 0.14, 0.14, 0.15, 0.15, 0.16),
    5: (0.15, 0.15, 0.15, 0.15, 0.15, 0.15, 0.15, 0.15, 0.17),
}
"""The paper's table: n_m -> 0.5 P_MD + 0.5 P_FA for each of `CROSSOVERS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustnessRow:
    """A cell of the table; every objective is 0.5 P_MD + 0.5 P_FA with the paper's 1 / n counts.

    Attributes:
        malicious: n_m.
        crossover: p.
        paper: As printed.
        published: Published thresholds, noise-free tests, the decoder assumes p, some group clean.
        exact: Delta calibrated exactly at p = .05, noise-free tests, the decoder assumes p, all attacker sets.
        noisy: The same Delta and decoder at p = .05, tests that are wrong with probability p.
        bayes: Decided by posteriors that assume .05, tests that are wrong with probability p.
    """

    malicious: int
    crossover: float
    paper: float
    published: float
    exact: float
    noisy: float
    bayes: float


def robustness_table() -> list[RobustnessRow]:
    """All cells of the table."""
    design = named_design("bch-15x8")
    assumed = ErrorRates.symmetric(0.05)
    # An outcome that contradicts the prior accuses nobody.
    bayes = np.nan_to_num(all_log_odds(design, assumed, CountPrior.uniform(5)), nan=np.inf) < 0
    rows = []
    for malicious, printed in PUBLISHED.items():
        delta = calibrate(design, assumed, malicious).threshold
        decided = _flagged(design, malicious, 0.05, delta)
        for crossover, paper in zip(CROSSOVERS, printed, strict=True):
            published = _flagged(design, malicious, crossover, PUBLISHED_THRESHOLDS[malicious])
            true = ErrorRates.symmetric(crossover)
            rows.append(
                RobustnessRow(
                    malicious=malicious,
                    crossover=crossover,
                    paper=paper,
                    published=_some_group_clean(design, published, malicious),
                    exact=_objective(
                        design, _flagged(design, malicious, crossover, delta), ErrorRates.symmetric(0.0), malicious
                    ),
                    noisy=_objective(design, decided, true, malicious),
                    bayes=_objective(design, bayes, true, malicious),
                )
            )
    return rows


def _flagged(design: Design, malicious: int, crossover: float, threshold: float) -> BoolArray:
    """bool[outcomes, clients]: whose likelihood ratio is below Delta, with n_m known."""
    prevalence = malicious / design.clients
    odds = all_log_odds(design, ErrorRates.symmetric(crossover), IndependentPrior.uniform(design.clients, prevalence))
    flagged: BoolArray = odds - log((1 - prevalence) / prevalence) < threshold
    return flagged


def _objective(design: Design, flagged: BoolArray, rates: ErrorRates, malicious: int) -> float:
    return 0.5 * sum(expected_errors(design, flagged, rates, malicious)) / design.clients


def _some_group_clean(design: Design, flagged: BoolArray, malicious: int) -> float:
    """The objective with noise-free tests over the attacker sets that leave some group clean."""
    counts = syndrome_counts(design)
    missed = counts.containing[malicious].T.astype(np.float64)
    accused = counts.sets[malicious][:, None] - missed
    cost = np.where(flagged, accused, missed)[:-1].sum()  # the last syndrome: every group contaminated
    sets = comb(design.clients, malicious) - int(counts.sets[malicious][-1])
    return 0.5 * float(cost) / (design.clients * sets)
