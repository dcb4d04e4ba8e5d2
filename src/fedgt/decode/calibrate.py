"""The threshold Delta of strategy 1: equation (delta_est) of the paper, minimised exactly wherever sets can be counted.

The objective is a step function of Delta: it changes only where Delta passes the log-likelihood ratio of some client for
some outcome. So the optimum is an interval, and it is found by sorting. Where the sets cannot be counted, the same is done
for a random sample of them, and the standard error of the objective is given.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import log

import numpy as np

from fedgt.decode.compiled import ExactDecoder
from fedgt.decode.exact import all_log_odds, syndrome_counts
from fedgt.decode.priors import IndependentPrior
from fedgt.defaults import BETA
from fedgt.design import Design
from fedgt.errors import CalibrationError
from fedgt.types import ErrorRates, FloatArray

_SAME = 1e-9  # log-likelihood ratios closer than this are one value: symmetric clients differ by rounding only


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The optimal threshold for one number of malicious clients.

    Attributes:
        threshold: Delta-hat(n_m), in nats: flag client i when L_i < Delta. The middle of the optimal interval; where the
            interval is unbounded, one nat inside its finite end.
        lowest: The open interval of optimal thresholds begins here (may be -inf).
        highest: ... and ends here (may be inf).
        objective: E[beta P_MD + (1 - beta) P_FA] at the optimum, with the paper's 1/n counts.
        standard_error: Of the objective; 0 when every set was counted.

    Examples:
        >>> from fedgt import ErrorRates, named_design
        >>> from fedgt.decode import calibrate
        >>> found = calibrate(named_design("bch-15x8"), ErrorRates.symmetric(0.05), 2)
        >>> found.lowest <= found.threshold <= found.highest
        True
    """

    threshold: float
    lowest: float
    highest: float
    objective: float
    standard_error: float = 0.0


def calibrate(
    design: Design, rates: ErrorRates, malicious: int, *, beta: float = BETA, contaminated: bool = True
) -> Calibration:
    """Delta-hat(n_m): the threshold with the least expected error when tests are noise-free and n_m is known.

    The likelihood ratios are those that the decoder would compute with the given (assumed) error rates and prevalence
    n_m / n. The expectation is over all sets of n_m clients, each equally likely.

    Args:
        design: Small enough for exact counting (15 x 8 takes milliseconds, 30 x 12 less than a second).
        rates: What the decoder assumes.
        malicious: n_m, from 1 to clients - 1.
        beta: Weight of a misdetection against a false alarm, from 0 to 1.
        contaminated: Whether sets that contaminate every group count (the published numbers leave them out).

    Raises:
        CalibrationError: If the arguments are out of range, the design is too large, or no set is left.

    Examples:
        >>> from fedgt import ErrorRates, named_design
        >>> from fedgt.decode import calibrate
        >>> found = calibrate(named_design("bch-15x8"), ErrorRates.symmetric(0.05), 2)
        >>> round(found.threshold, 2), round(found.objective, 3)
        (-1.86, 0.011)
    """
    _check(design, malicious, beta)
    return _calibrate(design.matrix.tobytes(), design.groups, design.clients, rates, malicious, beta, contaminated)


def calibrate_by_sampling(
    design: Design,
    rates: ErrorRates,
    malicious: int,
    *,
    rng: np.random.Generator,
    samples: int = 20_000,
    beta: float = BETA,
    contaminated: bool = True,
) -> Calibration:
    """As `calibrate`, from randomly drawn sets, for designs that are too large to count.

    Args:
        design: Any design with an exact decoder.
        rates: What the decoder assumes.
        malicious: n_m, from 1 to clients - 1.
        rng: Draws the sets.
        samples: How many sets are drawn.
        beta: Weight of a misdetection against a false alarm, from 0 to 1.
        contaminated: Whether sets that contaminate every group count.

    Returns:
        The calibration with the standard error of its objective.

    Examples:
        >>> import numpy as np
        >>> from fedgt import ErrorRates, named_design
        >>> from fedgt.decode import calibrate_by_sampling
        >>> rates, rng = ErrorRates.symmetric(0.05), np.random.default_rng(0)
        >>> found = calibrate_by_sampling(named_design("bch-15x8"), rates, 2, rng=rng, samples=500)
        >>> found.standard_error > 0
        True
    """
    _check(design, malicious, beta)
    n, prevalence = design.clients, malicious / design.clients
    defective = np.argsort(rng.random((samples, n)), axis=1) < malicious
    outcomes = (defective.astype(np.int64) @ design.matrix.T.astype(np.int64) > 0).astype(np.int8)
    if not contaminated:
        some_clean = ~outcomes.all(axis=1)
        defective, outcomes = defective[some_clean], outcomes[some_clean]
    if not len(outcomes):
        raise CalibrationError(f"all {samples} sampled sets of {malicious} clients contaminate every group")
    distinct, which = np.unique(outcomes, axis=0, return_inverse=True)
    decoder = ExactDecoder(design, rates, IndependentPrior.uniform(n, prevalence))
    ratios = decoder.decode_batch(distinct).log_odds[which.ravel()] - log((1.0 - prevalence) / prevalence)
    weight = np.ones(ratios.shape)
    found = _optimum(ratios, weight * defective, weight * ~defective, beta, scale=n * len(outcomes))
    flagged = ratios < found.threshold
    cost = (beta * (~flagged & defective) + (1.0 - beta) * (flagged & ~defective)).sum(axis=1) / n
    return Calibration(
        threshold=found.threshold,
        lowest=found.lowest,
        highest=found.highest,
        objective=found.objective,
        standard_error=float(cost.std(ddof=1) / np.sqrt(len(cost))) if len(cost) > 1 else float("inf"),
    )


def _check(design: Design, malicious: int, beta: float) -> None:
    if not 0.0 <= beta <= 1.0:
        raise CalibrationError(f"beta = {beta}; a weight from 0 (only false alarms count) to 1 is needed")
    if not 1 <= malicious < design.clients:
        raise CalibrationError(f"n_m = {malicious}; calibration needs 1 to {design.clients - 1} malicious clients")


@lru_cache(maxsize=256)
def _calibrate(
    matrix: bytes, groups: int, clients: int, rates: ErrorRates, malicious: int, beta: float, contaminated: bool
) -> Calibration:
    array = np.frombuffer(matrix, dtype=np.uint8).reshape(groups, clients)
    design = Design(matrix=array, name="calibrated design", source="")
    prevalence = malicious / clients
    counts = syndrome_counts(design)
    ratios = all_log_odds(design, rates, IndependentPrior.uniform(clients, prevalence))
    ratios = ratios - log((1.0 - prevalence) / prevalence)
    seen = np.greater(counts.sets[malicious], 0)
    if not contaminated:
        seen[-1] = False
    sets = int(counts.sets[malicious][seen].sum())
    if not sets:
        raise CalibrationError(
            f"every set of {malicious} clients contaminates every group: nothing is left to calibrate on"
        )
    missed = counts.containing[malicious].T[seen].astype(np.float64)
    accused = counts.sets[malicious][seen][:, None] - missed
    return _optimum(ratios[seen], missed, accused, beta, scale=clients * sets)


def _optimum(ratios: FloatArray, missed: FloatArray, accused: FloatArray, beta: float, *, scale: int) -> Calibration:
    """The best threshold for weighted pairs (client, outcome): weight when malicious, weight when benign."""
    order = np.argsort(ratios, axis=None, kind="stable")
    values = ratios.ravel()[order]
    # Cost of flagging exactly the first i pairs: misses turn into accusations one by one.
    change = (1.0 - beta) * accused.ravel()[order] - beta * missed.ravel()[order]
    cost = np.concatenate([[0.0], np.cumsum(change)]) + beta * missed.sum()
    ends = np.concatenate([[-np.inf], values, [np.inf]])
    # A threshold can only lie between two different values.
    with np.errstate(invalid="ignore"):  # inf - inf: equal
        gaps = np.flatnonzero(np.nan_to_num(ends[1:] - ends[:-1], nan=0.0) > _SAME)
    tolerance = 1e-9 * max(1.0, float(np.abs(cost).max()))
    best = gaps[np.flatnonzero(cost[gaps] <= cost[gaps].min() + tolerance)]
    # Adjacent gaps of equal cost are one interval.
    first = last = best[0]
    for gap in best[1:]:
        if np.abs(cost[last : gap + 1] - cost[first]).max() > tolerance:
            break
        last = gap
    lowest, highest = float(ends[first]), float(ends[last + 1])
    return Calibration(
        threshold=_inside(lowest, highest),
        lowest=lowest,
        highest=highest,
        objective=max(0.0, float(cost[first])) / scale,
    )


def _inside(lowest: float, highest: float) -> float:
    if np.isinf(lowest) and np.isinf(highest):
        return 0.0
    if np.isinf(lowest):
        return highest - 1.0
    if np.isinf(highest):
        return lowest + 1.0
    return (lowest + highest) / 2
