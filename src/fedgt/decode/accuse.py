"""From log-odds to accusations: thresholds, counts and ties of each strategy."""

from functools import lru_cache
from math import log

import numpy as np

from fedgt.decode.baselines import PUBLISHED_THRESHOLDS
from fedgt.decode.calibrate import Calibration, calibrate, calibrate_by_sampling
from fedgt.decode.exact import exact_counts_possible
from fedgt.decode.priors import IndependentPrior, Prior
from fedgt.decode.ranked import ranked_sets
from fedgt.decode.strategy_names import Strategy
from fedgt.design import Design
from fedgt.errors import CalibrationError
from fedgt.types import BoolArray, ErrorRates, FloatArray, Outcomes

_TIE = 1e-9  # log-odds closer than this differ by rounding only


def accused(
    design: Design,
    outcomes: Outcomes,
    log_odds: FloatArray,
    prior: Prior,
    strategy: Strategy,
    count: int | None,
    rates: ErrorRates,
    beta: float,
    contaminated: bool,
) -> tuple[BoolArray, tuple[int, ...], str]:
    """Whom the strategy accuses, ties of `count`, and what else should be said."""
    n = design.clients
    nobody = np.zeros(n, dtype=np.bool_)
    if strategy == "bayes":
        return above(log_odds, beta), (), ""
    if strategy == "map":
        (best,) = ranked_sets(design, outcomes, rates, prior, count=1)
        nobody[list(best.clients)] = True
        return nobody, (), f"; the most probable set has probability {best.probability:.3g}"
    if not count:
        return nobody, (), ""
    if strategy.endswith("count"):
        return (*_smallest(log_odds, count, in_some_group(design)), "")
    if count == n:
        return ~nobody, (), ""
    note = ""
    if strategy == "published-delta":
        threshold = PUBLISHED_THRESHOLDS[count]
    else:
        found = _calibrated(design, rates, count, beta, contaminated)
        threshold = found.threshold
        if found.standard_error > 0:
            note = f"; Delta from sampled sets, objective {found.objective:.4f} +- {found.standard_error:.4f}"
    prevalences = prior.prevalence if isinstance(prior, IndependentPrior) else np.full(n, count / n)
    offset = np.array([log_ratio(1.0 - prevalence, prevalence) for prevalence in prevalences])
    # A client that is certainly malicious is flagged although its likelihood ratio is undefined (prevalence 1).
    return np.logical_or(np.less(log_odds, threshold + offset), log_odds == -np.inf), (), note


def above(log_odds: FloatArray, beta: float) -> BoolArray:
    """Posterior above 1 - beta; exactly 1 - beta, which rounding must not decide, keeps the client."""
    threshold = log_ratio(beta, 1.0 - beta)
    return np.less(log_odds, threshold - (_TIE if np.isfinite(threshold) else 0.0))


def _calibrated(design: Design, rates: ErrorRates, count: int, beta: float, contaminated: bool) -> Calibration:
    """Exact where sets can be counted, else from 20,000 sampled sets, once for each question."""
    try:
        return calibrate(design, rates, count, beta=beta, contaminated=contaminated)
    except CalibrationError:
        if exact_counts_possible(design):
            raise
    return _sampled(design.matrix.tobytes(), design.matrix.shape, rates, count, beta, contaminated)


@lru_cache(maxsize=64)
def _sampled(
    matrix: bytes, shape: tuple[int, int], rates: ErrorRates, count: int, beta: float, contaminated: bool
) -> Calibration:
    array = np.frombuffer(matrix, dtype=np.uint8).reshape(shape)
    design = Design(matrix=array, name="calibrated design", source="")
    rng = np.random.default_rng(0)
    return calibrate_by_sampling(design, rates, count, beta=beta, rng=rng, contaminated=contaminated)


def _smallest(log_odds: FloatArray, count: int, candidates: BoolArray) -> tuple[BoolArray, tuple[int, ...]]:
    """The `count` smallest log-odds among the candidates; ties go to the lower client numbers, and are reported."""
    flagged = np.zeros(len(log_odds), dtype=bool)
    available = np.flatnonzero(candidates)
    if count >= len(available):
        flagged[available] = True
        return flagged, ()
    ranked = np.sort(log_odds[available])
    boundary = ranked[count - 1]
    # Infinite log-odds are equal only to themselves.
    slack = _TIE if np.isfinite(boundary) else 0.0
    sure = np.flatnonzero((log_odds < boundary - slack) & candidates)
    tie = np.flatnonzero((log_odds >= boundary - slack) & (log_odds <= boundary + slack) & candidates)
    flagged[sure] = True
    flagged[tie[: count - len(sure)]] = True
    return flagged, tuple(tie.tolist()) if len(sure) + len(tie) > count else ()


def in_some_group(design: Design) -> BoolArray:
    """Clients in some group of a design whose groups all have an outcome."""
    present: BoolArray = np.greater(design.matrix.sum(axis=0), 0)
    return present


def log_ratio(numerator: float, denominator: float) -> float:
    """Of two probabilities, in nats; infinite where one of them is 0."""
    if denominator == 0.0:
        return np.inf
    return log(numerator / denominator) if numerator > 0 else -np.inf
