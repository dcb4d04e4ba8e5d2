"""Exact expectations over all sets of malicious clients, and the decoder's answer to all 2^m outcomes at once.

Counts of sets by their syndrome come from one subset-sum inversion: the sets of q clients whose syndrome lies *within* s
number C(c(s), q), c(s) being the clients whose column lies within s; inverting "within" group by group leaves the sets with
syndrome exactly s. Every intermediate value is itself a count of sets, so int64 is exact as long as C(n, q) fits.
Test noise acts on each group alone: a 2 x 2 matrix per bit of the syndrome.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np

from fedgt.decode.compiled import ExactDecoder, all_outcomes
from fedgt.decode.priors import Prior
from fedgt.design import Design
from fedgt.errors import CalibrationError, ShapeError
from fedgt.types import BoolArray, ErrorRates, FloatArray, IntArray, frozen

MAX_COUNTS = 1 << 26
"""Counts kept for one design (512 MiB); larger designs are refused with the arithmetic."""


_MOST_OUTCOMES = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SyndromeCounts:
    """How many sets of malicious clients give each syndrome.

    Attributes:
        sets: int64[n + 1, 2^m]: element [q, s] counts the sets of q clients with syndrome s (bit i = group i).
        containing: int64[n + 1, n, 2^m]: element [q, j, s] counts those that contain client j.
    """

    sets: IntArray
    containing: IntArray


def exact_counts_possible(design: Design) -> bool:
    """Whether `syndrome_counts` can be had."""
    return (
        _table_size(design.groups, design.clients) <= MAX_COUNTS and comb(design.clients, design.clients // 2) < 1 << 63
    )


def _table_size(groups: int, clients: int) -> int:
    return (clients + 1) * (clients + 1) << groups


def syndrome_counts(design: Design) -> SyndromeCounts:
    """Exact counts for every number of malicious clients.

    Raises:
        CalibrationError: If n x n x 2^m counts are too many, or do not fit into 64 bits.
    """
    return _counts(design.matrix.tobytes(), design.groups, design.clients, design.name)


@lru_cache(maxsize=4)
def _counts(matrix: bytes, groups: int, clients: int, name: str) -> SyndromeCounts:
    size = _table_size(groups, clients)
    if size > MAX_COUNTS or comb(clients, clients // 2) >= 1 << 63:
        raise CalibrationError(
            f"design {name!r}: exact expectations need {clients + 1} x {clients + 1} x 2^{groups} = {size} counts, more "
            f"than {MAX_COUNTS}; use a smaller design, or the strategies count and bayes, which need no calibration"
        )
    a = np.frombuffer(matrix, dtype=np.uint8).reshape(groups, clients)
    masks = (np.left_shift(np.int64(1), np.arange(groups, dtype=np.int64)) @ a.astype(np.int64)).astype(np.int64)
    states = np.arange(1 << groups)
    inside = masks[:, None] & ~states == 0  # [n, 2^m]: the column lies within the state
    within = inside.sum(axis=0)
    binomial = np.array([[comb(c, q) for c in range(clients + 1)] for q in range(clients + 1)], dtype=np.int64)
    sets = np.ascontiguousarray(binomial[:, within])  # in-place steps below need views, not copies
    fewer = np.maximum(within - 1, 0)
    containing = np.zeros((clients + 1, clients, 1 << groups), dtype=np.int64)
    containing[1:] = np.where(inside[None], binomial[:-1, fewer][:, None, :], 0)
    for bit in range(groups):
        for array in (sets, containing):
            pairs = array.reshape(-1, 2, 1 << bit)
            pairs[:, 1] -= pairs[:, 0]
    return SyndromeCounts(
        sets=frozen(sets, np.int64),
        containing=frozen(containing, np.int64),
    )


def with_noise(values: FloatArray, rates: ErrorRates) -> FloatArray:
    """Push probabilities of syndromes through the tests: [..., 2^m] over s becomes [..., 2^m] over outcomes t."""
    result = np.array(values, dtype=np.float64, order="C")  # the steps below work on views
    groups = result.shape[-1].bit_length() - 1
    for bit in range(groups):
        pairs = result.reshape(*result.shape[:-1], -1, 2, 1 << bit)
        clean, contaminated = pairs[..., 0, :].copy(), pairs[..., 1, :].copy()
        pairs[..., 0, :] = (1.0 - rates.false_alarm) * clean + rates.misdetection * contaminated
        pairs[..., 1, :] = rates.false_alarm * clean + (1.0 - rates.misdetection) * contaminated
    return result


def all_log_odds(design: Design, rates: ErrorRates, prior: Prior) -> FloatArray:
    """float64[2^m, clients]: log P(benign | t) - log P(malicious | t) for every outcome vector t.

    Row number of t: bit i is the outcome of group i. Rows of impossible outcomes are NaN.

    Raises:
        ShapeError: If the prior does not fit.
        CalibrationError: If there are more than 2^16 outcomes.

    Examples:
        >>> from fedgt import ErrorRates, from_matrix
        >>> from fedgt.decode import IndependentPrior, all_log_odds
        >>> design, prior = from_matrix([[1, 1, 0], [0, 1, 1]]), IndependentPrior.uniform(3, 0.2)
        >>> all_log_odds(design, ErrorRates.symmetric(0.05), prior).shape  # every outcome of two groups
        (4, 3)
    """
    if design.groups > _MOST_OUTCOMES:
        raise CalibrationError(
            f"design {design.name!r}: a table of all 2^{design.groups} outcomes is too large; at most 2^{_MOST_OUTCOMES}"
        )
    return ExactDecoder(design, rates, prior).decode_batch(all_outcomes(design.groups)).log_odds


def expected_errors(design: Design, flagged: BoolArray, rates: ErrorRates, malicious: int) -> tuple[float, float]:
    """Expected number of missed and of falsely accused clients of a decision table, exactly.

    The malicious clients are a uniformly random set of the given size; every set counts, also those that contaminate all
    groups. Divide by n for P_MD and P_FA as the paper normalises them.

    Args:
        design: Small enough for `syndrome_counts`.
        flagged: bool[2^m, clients]: whom the rule accuses for each outcome vector (row number: bit i = group i).
        rates: The true noise of the tests.
        malicious: n_m.

    Returns:
        (missed, falsely accused), in clients per run.

    Examples:
        >>> import numpy as np
        >>> from fedgt import ErrorRates, from_matrix
        >>> from fedgt.decode import expected_errors
        >>> design = from_matrix([[1, 1, 0], [0, 1, 1]])
        >>> nobody = np.zeros((4, 3), dtype=bool)  # a rule that never accuses, whatever the four outcomes are
        >>> missed, accused = expected_errors(design, nobody, ErrorRates.symmetric(0.05), 1)
        >>> round(missed, 3), round(accused, 3)
        (1.0, 0.0)
    """
    if flagged.shape != (1 << design.groups, design.clients):
        raise ShapeError(f"a decision for each of 2^{design.groups} outcomes is needed, got shape {flagged.shape}")
    counts = syndrome_counts(design)
    scale = comb(design.clients, malicious)
    joint = with_noise(counts.containing[malicious] / scale, rates)
    benign = with_noise((counts.sets[malicious][None, :] - counts.containing[malicious]) / scale, rates)
    return float(joint[~flagged.T].sum()), float(benign[flagged.T].sum())
