"""The threshold Delta of strategy 1: exact minimisation of equation (delta_est) of the paper, no sampling."""

from dataclasses import dataclass
from functools import lru_cache
from math import comb, log

import numpy as np

from fedgt.decode.exact import all_log_odds, syndrome_counts
from fedgt.decode.priors import IndependentPrior
from fedgt.design import Design
from fedgt.errors import CalibrationError
from fedgt.types import ErrorRates

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
    """

    threshold: float
    lowest: float
    highest: float
    objective: float


def calibrate(design: Design, rates: ErrorRates, malicious: int, *, beta: float = 0.5) -> Calibration:
    """Delta-hat(n_m): the threshold with the least expected error when tests are noise-free and n_m is known.

    The likelihood ratios are those that the decoder would compute with the given (assumed) error rates and prevalence
    n_m / n. The expectation is over all sets of n_m clients, each equally likely.

    Args:
        design: Small enough for exact counting (15 x 8 takes milliseconds, 30 x 12 about a second).
        rates: What the decoder assumes.
        malicious: n_m, from 1 to clients - 1.
        beta: Weight of a misdetection against a false alarm, from 0 to 1.

    Raises:
        CalibrationError: If the arguments are out of range or the design is too large.
    """
    if not 0.0 <= beta <= 1.0:
        raise CalibrationError(f"beta = {beta}; a weight from 0 (only false alarms count) to 1 is needed")
    if not 1 <= malicious < design.clients:
        raise CalibrationError(f"n_m = {malicious}; calibration needs 1 to {design.clients - 1} malicious clients")
    return _calibrate(design.matrix.tobytes(), design.groups, design.clients, rates, malicious, beta)


@lru_cache(maxsize=256)
def _calibrate(matrix: bytes, groups: int, clients: int, rates: ErrorRates, malicious: int, beta: float) -> Calibration:
    array = np.frombuffer(matrix, dtype=np.uint8).reshape(groups, clients)
    design = Design(matrix=array, name="calibrated design", source="")
    prevalence = malicious / clients
    ratios = all_log_odds(design, rates, IndependentPrior.uniform(clients, prevalence))
    ratios -= log((1.0 - prevalence) / prevalence)
    counts = syndrome_counts(design)
    missed = counts.containing[malicious].T  # [2^m, n]: ways in which flagging nobody misses the client
    accused = counts.sets[malicious][:, None] - missed
    seen = (counts.sets[malicious] > 0)[:, None] & np.ones((1, clients), dtype=bool)

    order = np.argsort(ratios[seen], kind="stable")
    values = ratios[seen][order]
    # Cost of flagging exactly the first i (client, syndrome) pairs: misses turn into accusations one by one.
    change = (1.0 - beta) * accused[seen][order] - beta * missed[seen][order]
    cost = np.concatenate([[0.0], np.cumsum(change)]) + beta * missed[seen].sum()
    finite = np.concatenate([[-np.inf], values, [np.inf]])
    # A threshold can only lie between two different values.
    gaps = np.flatnonzero(finite[1:] - finite[:-1] > _SAME)
    best = gaps[np.flatnonzero(cost[gaps] <= cost[gaps].min() * (1 + 1e-12) + 1e-9)]
    # Adjacent gaps of equal cost are one interval.
    first = best[0]
    last = first
    for gap in best[1:]:
        if np.abs(cost[last : gap + 1] - cost[first]).max() > 1e-9 * max(1.0, abs(cost[first])):
            break
        last = gap
    lowest, highest = float(finite[first]), float(finite[last + 1])
    return Calibration(
        threshold=_inside(lowest, highest),
        lowest=lowest,
        highest=highest,
        objective=float(cost[first]) / (clients * comb(clients, malicious)),
    )


def _inside(lowest: float, highest: float) -> float:
    if np.isinf(lowest) and np.isinf(highest):
        return 0.0
    if np.isinf(lowest):
        return highest - 1.0
    if np.isinf(highest):
        return lowest + 1.0
    return (lowest + highest) / 2
