"""From posteriors to accusations: the paper's two strategies and the Bayesian one.

* `count` (FedGT-n_m, section IV.B): the n_m-hat clients with the smallest log-odds.
* `delta` (FedGT-Delta, section IV.A): every client whose log-likelihood ratio lies below the calibrated Delta.
* `bayes`: every client whose posterior exceeds 1 - beta, under the prior that n_m is uniform on 0..n_m^max and every set of
  that size equally likely. It needs neither Delta nor an estimate of n_m, and minimises the expected
  beta * missed + (1 - beta) * falsely accused.
"""

from dataclasses import dataclass
from math import log
from typing import Literal, get_args

import numpy as np

from fedgt.decode.calibrate import calibrate
from fedgt.decode.estimate import CountEstimate, estimate_malicious
from fedgt.decode.priors import CountPrior, IndependentPrior, Prior
from fedgt.decode.trellis import Posterior, forward_backward
from fedgt.design import Design
from fedgt.errors import SpecError
from fedgt.types import POSITIVE, BoolArray, ErrorRates, FloatArray, Outcomes, frozen

Strategy = Literal["count", "delta", "bayes"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

Status = Literal["decided", "nobody-estimated", "all-positive", "all-flagged", "no-outcomes", "contradictory"]
UNDECIDABLE: tuple[Status, ...] = ("all-positive", "all-flagged", "no-outcomes", "contradictory")
"""The states in which nobody can be cleared: a policy must decide."""

_TIE = 1e-9  # log-odds closer than this differ by rounding only


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decoding:
    """Who is accused, and how sure that is.

    Attributes:
        strategy: The strategy that decided.
        log_odds: float64[clients]: log P(benign | t) - log P(malicious | t) in nats. When n_m-hat is 0 and no prevalence
            was given, the prevalence is 0 and every entry is +inf: the decoder was not run.
        posterior: float64[clients]: P(malicious | t).
        flagged: bool[clients]: whom the strategy accuses.
        estimated_malicious: n_m-hat; None when nothing was tested.
        status: `decided`; `nobody-estimated` (n_m-hat = 0); `all-positive` (no group came out clean: any accusation rests
            on nothing but the prior); `all-flagged` (no tested client would be left); `no-outcomes` (every group is erased);
            `contradictory` (no set of malicious clients explains the outcomes).
        reason: The status in plain words.
        tied: Clients at the boundary of `count` that could not be told apart; of these the lower numbers were taken.
    """

    strategy: Strategy
    log_odds: FloatArray
    posterior: FloatArray
    flagged: BoolArray
    estimated_malicious: int | None
    status: Status
    reason: str
    tied: tuple[int, ...]


def decode(
    design: Design,
    outcomes: Outcomes,
    *,
    rates: ErrorRates,
    strategy: Strategy = "bayes",
    prior: IndependentPrior | None = None,
    beta: float = 0.5,
    kappa: float = 0.2,
    largest: int | None = None,
) -> Decoding:
    """Infer the malicious clients from the outcomes of the group tests (section IV of the paper).

    Clients that sit in no group with an outcome are never flagged.

    Args:
        design: The assignment, m groups of n clients.
        outcomes: One per group; erased groups are left out everywhere.
        rates: What is assumed about the tests; the paper takes p = 0.05 both ways.
        strategy: `count`, `delta` or `bayes`.
        prior: A prevalence for each client; by default n_m-hat / n (`count`, `delta`) or the count prior (`bayes`).
        beta: Weight of a misdetection against a false alarm (`delta`, `bayes`).
        kappa: Defines n_m^max: P(all groups contaminated | n_m^max) <= kappa.
        largest: n_m^max itself, when the user knows it.

    Raises:
        SpecError: If the strategy is unknown or beta is not a probability.
        ShapeError: If outcomes or prior do not fit the design.
        CalibrationError: If `delta` cannot be calibrated exactly for a design this large.
        ContradictoryOutcomesError: If the outcomes are impossible at these error rates.
    """
    if strategy not in STRATEGIES:
        raise SpecError(f"unknown strategy {strategy!r}; known are {', '.join(STRATEGIES)}")
    if not 0.0 <= beta <= 1.0:
        raise SpecError(f"beta = {beta}; a weight from 0 to 1 is needed")
    n = design.clients
    if not outcomes.present.any():
        return without_evidence(n, strategy, "no-outcomes", "every group is erased: nobody was tested", prior)
    estimate = estimate_malicious(design, outcomes, kappa=kappa, largest=largest)
    count = estimate.malicious
    if strategy == "bayes":
        posterior = forward_backward(design, outcomes, rates, prior or CountPrior.uniform(estimate.largest))
        flagged: BoolArray = np.less(posterior.log_odds, _log_ratio(beta, 1.0 - beta))
        tied: tuple[int, ...] = ()
    elif count == 0 and prior is None:
        posterior = Posterior(log_odds=np.full(n, np.inf), log_evidence=0.0, count=np.empty(0))
        flagged, tied = np.zeros(n, dtype=bool), ()
    else:
        used = prior or IndependentPrior.uniform(n, count / n)
        posterior = forward_backward(design, outcomes, rates, used)
        flagged, tied = _paper_flags(design, outcomes, posterior, used, strategy, count, rates, beta)
    tested = _tested(design, outcomes)
    flagged = np.logical_and(flagged, tested)
    status, reason = _status(outcomes, flagged, tested, strategy, estimate)
    return Decoding(
        strategy=strategy,
        log_odds=frozen(posterior.log_odds, np.float64),
        posterior=frozen(posterior.malicious, np.float64),
        flagged=frozen(flagged, np.bool_),
        estimated_malicious=count,
        status=status,
        reason=reason,
        tied=tied,
    )


def _paper_flags(
    design: Design,
    outcomes: Outcomes,
    posterior: Posterior,
    prior: IndependentPrior,
    strategy: Strategy,
    count: int,
    rates: ErrorRates,
    beta: float,
) -> tuple[BoolArray, tuple[int, ...]]:
    n = design.clients
    if count == 0:
        return np.zeros(n, dtype=bool), ()
    if strategy == "count":
        return _smallest(posterior.log_odds, count, _tested(design, outcomes))
    if count == n:
        return np.ones(n, dtype=np.bool_), ()
    tested = design.restricted(np.flatnonzero(outcomes.present).tolist())
    threshold = calibrate(tested, rates, count, beta=beta).threshold
    offset = np.array([_log_ratio(1.0 - prevalence, prevalence) for prevalence in prior.prevalence])
    flagged: BoolArray = np.less(posterior.log_odds, threshold + offset)
    # A client that is certainly malicious is flagged although its likelihood ratio is undefined (prevalence 1).
    return np.logical_or(flagged, posterior.log_odds == -np.inf), ()


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


def _tested(design: Design, outcomes: Outcomes) -> BoolArray:
    tested: BoolArray = np.greater(design.matrix[outcomes.present].sum(axis=0), 0)
    return tested


def _status(
    outcomes: Outcomes, flagged: BoolArray, tested: BoolArray, strategy: Strategy, estimate: CountEstimate
) -> tuple[Status, str]:
    positive = int((outcomes.values == POSITIVE).sum())
    present = int(outcomes.present.sum())
    suffix = (
        ""
        if estimate.possible
        else f"; no number of malicious clients up to {estimate.largest} gives {outcomes.negatives} negative groups "
        "without test errors, the nearest was taken"
    )
    if positive == present:
        return "all-positive", (
            f"all {present} tested groups are positive: no group is known to be clean, so nobody can be cleared{suffix}"
        )
    if flagged[tested].all():
        return "all-flagged", f"every tested client is flagged: nobody who was tested would be left to train{suffix}"
    if strategy != "bayes" and estimate.malicious == 0:
        return "nobody-estimated", (
            f"{outcomes.negatives} of {present} groups are negative: no malicious client is estimated{suffix}"
        )
    accused = int(flagged.sum())
    return (
        "decided",
        f"{accused} of {len(flagged)} clients flagged from {positive} positive groups of {present}{suffix}",
    )


def without_evidence(
    clients: int, strategy: Strategy, status: Status, reason: str, prior: Prior | None = None
) -> Decoding:
    """A decision that accuses nobody because there is nothing to decide on; `status` and `reason` say why."""
    prevalence = prior.prevalence if isinstance(prior, IndependentPrior) else np.full(clients, np.nan)
    log_odds = np.array([np.nan if np.isnan(p) else _log_ratio(1.0 - p, p) for p in prevalence])
    return Decoding(
        strategy=strategy,
        log_odds=frozen(log_odds, np.float64),
        posterior=frozen(prevalence, np.float64),
        flagged=frozen(np.zeros(clients, dtype=bool), np.bool_),
        estimated_malicious=None,
        status=status,
        reason=reason,
        tied=(),
    )


def _log_ratio(numerator: float, denominator: float) -> float:
    if denominator == 0.0:
        return np.inf
    return log(numerator / denominator) if numerator > 0 else -np.inf
