"""The forward-backward algorithm on the OR trellis: exact posteriors in O(n 2^m) (sections IV.C and IV.D of the paper).

A state is a partial syndrome, bit i for group i. Choosing d_j = 1 sends state s to s | a_j, where a_j is client j's column.
All metrics are logarithms, so that error rates of 0 or 1e-300 and prevalences of 1e-15 neither underflow nor give NaN:
a metric is -inf exactly where the event is impossible. With a prior on the *number* of malicious clients, that number is a
second coordinate of the state.

Bahl, Cocke, Jelinek and Raviv 1974 (reference 36 of the paper); Liva, Paolini and Chiani 2021 (reference 35).
"""

from dataclasses import dataclass
from math import comb, log

import numpy as np

from fedgt.decode.priors import CountPrior, Prior, log_or_minus_infinity
from fedgt.design import Design
from fedgt.errors import ContradictoryOutcomesError, DesignError, ShapeError
from fedgt.types import NEGATIVE, BitArray, ErrorRates, FloatArray, IntArray, Outcomes, frozen

MAX_STATE_ELEMENTS = 1 << 28
"""Forward metrics kept at once (2 GiB of float64); a larger trellis is refused with the arithmetic."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Posterior:
    """What the outcomes say about every client.

    Attributes:
        log_odds: float64[clients]: log P(benign | t) - log P(malicious | t) in nats; infinite only where certain.
        log_evidence: log P(t) in nats.
        count: float64[n_max + 1]: P(n_m | t) under a `CountPrior`; empty under an `IndependentPrior`.
    """

    log_odds: FloatArray
    log_evidence: float
    count: FloatArray

    @property
    def malicious(self) -> FloatArray:
        """float64[clients]: P(malicious | t)."""
        # 1 / (1 + e^L), written so that neither end overflows.
        half = np.exp(-np.abs(self.log_odds))
        probability: FloatArray = np.where(self.log_odds > 0, half, 1.0) / (1.0 + half)
        return probability


def forward_backward(design: Design, outcomes: Outcomes, rates: ErrorRates, prior: Prior) -> Posterior:
    """Exact posterior of every client given noisy group tests (equation (APPLLR) of the paper).

    Args:
        design: Groups x clients; groups with an erased outcome are left out of the trellis.
        outcomes: One per group.
        rates: Q(t_i | s_i), the same for every group.
        prior: Independent clients, or a distribution of their number.

    Raises:
        ShapeError: If outcomes or prior do not fit the design.
        DesignError: If the trellis would not fit into memory.
        ContradictoryOutcomesError: If the outcomes have probability zero.
    """
    n = design.clients
    _check_shapes(design, outcomes, prior)
    present = np.flatnonzero(outcomes.present)
    matrix, tests = design.matrix[present], outcomes.values[present]
    counting = isinstance(prior, CountPrior)
    layers = len(prior.weights) if isinstance(prior, CountPrior) else 1
    states = 1 << len(present)
    if (n + 1) * layers * states > MAX_STATE_ELEMENTS:
        raise DesignError(
            f"design {design.name!r}: {n + 1} depths x {layers} counts x 2^{len(present)} states are more than "
            f"{MAX_STATE_ELEMENTS} metrics; use a design with fewer groups"
        )
    if isinstance(prior, CountPrior):
        stay, move = np.zeros(n), np.zeros(n)
    else:
        stay, move = log_or_minus_infinity(1.0 - prior.prevalence), log_or_minus_infinity(prior.prevalence)

    forward = np.full((n + 1, layers, states), -np.inf)
    forward[0, 0, 0] = 0.0
    for j in range(n):
        forward[j + 1] = _forward_step(forward[j], matrix[:, j], stay[j], move[j], counting=counting)

    backward = np.tile(_outcome_metric(tests, rates), (layers, 1))
    if isinstance(prior, CountPrior):
        backward += (
            log_or_minus_infinity(prior.weights) - [log(comb(n, q)) if q <= n else 0.0 for q in range(layers)]
        )[:, None]
    evidence = _log_sum(forward[n] + backward)
    if evidence == -np.inf:
        raise ContradictoryOutcomesError(
            f"the outcomes {outcomes} contradict each other: no set of malicious clients explains them with a false "
            f"alarm rate of {rates.false_alarm} and a misdetection rate of {rates.misdetection} under this prior; "
            "allow larger error rates"
        )
    count = (
        np.exp([_log_sum(forward[n, q] + backward[q]) - evidence for q in range(layers)]) if counting else np.empty(0)
    )
    log_odds = np.empty(n)
    all_states = np.arange(states)
    for j in range(n - 1, -1, -1):
        moved = backward[:, all_states | _mask(matrix[:, j])]
        if counting:  # one more malicious client: the count of the target state is one higher
            moved = np.concatenate([moved[1:], np.full((1, states), -np.inf)])
        benign = _log_sum(forward[j] + backward) + stay[j]
        malicious = _log_sum(forward[j] + moved) + move[j]
        log_odds[j] = benign - malicious
        backward = np.logaddexp(backward + stay[j], moved + move[j])
    return Posterior(
        log_odds=frozen(log_odds, np.float64),
        log_evidence=float(evidence),
        count=frozen(count, np.float64),
    )


def _check_shapes(design: Design, outcomes: Outcomes, prior: Prior) -> None:
    if len(outcomes.values) != design.groups:
        raise ShapeError(
            f"{len(outcomes.values)} outcomes for a design with {design.groups} groups; one per group is needed "
            "(? for a group without an outcome)"
        )
    if isinstance(prior, CountPrior):
        if len(prior.weights) > design.clients + 1:
            raise ShapeError(
                f"the prior allows {len(prior.weights) - 1} malicious clients, the design has only {design.clients}"
            )
    elif len(prior.prevalence) != design.clients:
        raise ShapeError(f"{len(prior.prevalence)} prevalences for a design with {design.clients} clients")


def _outcome_metric(tests: np.ndarray[tuple[int, ...], np.dtype[np.int8]], rates: ErrorRates) -> FloatArray:
    """float64[2^m]: log Q(t | s) for every syndrome s."""
    metric = np.zeros(1)
    for outcome in tests.tolist():
        clean, contaminated = (
            (1.0 - rates.false_alarm, rates.misdetection)
            if outcome == NEGATIVE
            else (rates.false_alarm, 1.0 - rates.misdetection)
        )
        log_clean, log_contaminated = log_or_minus_infinity([clean, contaminated])
        metric = np.concatenate([metric + log_clean, metric + log_contaminated])
    return metric


def _forward_step(metric: FloatArray, column: BitArray, stay: float, move: float, *, counting: bool) -> FloatArray:
    """float64[layers, states] one depth further: log-sum over predecessors of staying (d = 0) and moving (d = 1)."""
    layers, states = metric.shape
    folded = metric
    for bit in np.flatnonzero(column)[::-1].tolist():
        # Highest bit first: summing it out leaves the lower bits where they were.
        pairs = folded.reshape(layers, -1, 2, 1 << bit)
        folded = np.logaddexp(pairs[:, :, 0], pairs[:, :, 1]).reshape(layers, -1)
    if counting:
        folded = np.concatenate([np.full((1, folded.shape[1]), -np.inf), folded[:-1]])
    result = metric + stay
    targets = _supersets(_mask(column), states)
    result[:, targets] = np.logaddexp(result[:, targets], folded + move)
    return result


def _mask(column: BitArray) -> int:
    return int(sum(1 << int(bit) for bit in np.flatnonzero(column)))


def _supersets(mask: int, states: int) -> IntArray:
    """The states that contain all bits of the mask, ascending: the order in which the folded metrics lie."""
    return np.flatnonzero(np.arange(states) & mask == mask)


def _log_sum(metric: FloatArray) -> float:
    largest = metric.max()
    if largest == -np.inf:
        return -np.inf
    return float(largest + np.log(np.exp(metric - largest).sum()))
