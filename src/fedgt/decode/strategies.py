"""From posteriors to accusations: the paper's two strategies, better ones, and the classical and published baselines.

* `count` (FedGT-n_m, section IV.B): the n_m-hat clients with the smallest log-odds.
* `delta` (FedGT-Delta, section IV.A): every client whose log-likelihood ratio lies below the calibrated Delta.
* `bayes`: every client whose posterior exceeds 1 - beta, under the prior that n_m is uniform on 0..n_m^max and every set of
  that size equally likely. It needs neither Delta nor an estimate of n_m, and minimises the expected
  beta * missed + (1 - beta) * falsely accused.
* `map`: the single most probable set under the same prior.
* `comp`, `dd`: the classical decoders without probabilities.
* `published-count`, `published-delta`: the decision tables of the authors' code, for the 15 x 8 design.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedgt.decode.accuse import accused, in_some_group, log_ratio
from fedgt.decode.baselines import combinatorial, definite, published_estimate
from fedgt.decode.compiled import Method, check_outcomes, malicious_probability, single
from fedgt.decode.decoders import compile
from fedgt.decode.estimate import CountEstimate, estimate_from_outcomes, estimate_malicious
from fedgt.decode.priors import IndependentPrior, Prior
from fedgt.decode.strategy_names import Estimator, Strategy, check_names, prior_of
from fedgt.defaults import BETA, ESTIMATOR, KAPPA, METHOD
from fedgt.design import Design, countable, max_malicious
from fedgt.errors import ContradictoryOutcomesError, SpecError
from fedgt.types import NEGATIVE, POSITIVE, BoolArray, ErrorRates, FloatArray, Outcomes, frozen

Status = Literal["decided", "nobody-estimated", "all-positive", "all-flagged", "no-outcomes", "contradictory"]
UNDECIDABLE: tuple[Status, ...] = ("all-positive", "all-flagged", "no-outcomes", "contradictory")
"""The states in which nobody can be cleared: a policy must decide."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decoding:
    """Who is accused, and how sure that is.

    Attributes:
        strategy: The strategy that decided.
        log_odds: float64[clients]: log P(benign | t) - log P(malicious | t) in nats. When n_m-hat is 0 and no prevalence
            was given, the prevalence is 0 and every entry is +inf: the decoder was not run. NaN for `comp` and `dd`, which
            know no probabilities.
        posterior: float64[clients]: P(malicious | t).
        flagged: bool[clients]: whom the strategy accuses.
        estimated_malicious: n_m-hat; None when nothing was tested or the strategy needs no estimate of it.
        status: `decided`; `nobody-estimated` (n_m-hat = 0); `all-positive` (no group came out clean: any accusation rests
            on nothing but the prior); `all-flagged` (no tested client would be left); `no-outcomes` (every group is
            erased); `contradictory` (no set of malicious clients explains the outcomes).
        reason: The status in plain words.
        tied: Clients at the boundary of `count` that could not be told apart; of these the lower numbers were taken.
        exact: Whether the log-odds are exact (belief propagation is not).

    Examples:
        >>> from fedgt import ErrorRates, Outcomes, named_design
        >>> from fedgt.decode import decode
        >>> found = decode(named_design("bch-15x8"), Outcomes.parse("11111111"), rates=ErrorRates.symmetric(0.05))
        >>> found.status  # nobody can be cleared, and the policy `on_undecidable` decides
        'all-positive'
    """

    strategy: Strategy
    log_odds: FloatArray
    posterior: FloatArray
    flagged: BoolArray
    estimated_malicious: int | None
    status: Status
    reason: str
    tied: tuple[int, ...]
    exact: bool = True


def decode(
    design: Design,
    outcomes: Outcomes,
    *,
    rates: ErrorRates,
    strategy: Strategy = "bayes",
    prior: IndependentPrior | None = None,
    beta: float = BETA,
    kappa: float = KAPPA,
    largest: int | None = None,
    estimator: Estimator = ESTIMATOR,
    method: Method = METHOD,
    contaminated: bool = True,
) -> Decoding:
    """Infer the malicious clients from the outcomes of the group tests (section IV of the paper).

    Clients that sit in no group with an outcome are never flagged.

    Args:
        design: The assignment, m groups of n clients.
        outcomes: One per group; erased groups are left out everywhere.
        rates: What is assumed about the tests; the paper takes p = 0.05 both ways.
        strategy: See the module.
        prior: A prevalence for each client; by default n_m-hat / n (`count`, `delta`) or the count prior (`bayes`, `map`).
        beta: Weight of a misdetection against a false alarm (`delta`, `bayes`).
        kappa: Defines n_m^max: P(all groups contaminated | n_m^max) <= kappa. At least one attacker is considered.
        largest: n_m^max itself, when the user knows it; needed where the sets cannot be counted (beyond 22 overlapping
            groups), unless the prior is given. There n_m-hat is always taken from all outcomes.
        estimator: n_m-hat from the number of `negatives` (the paper's), or from all `outcomes`.
        method: `exact`, `belief-propagation`, or `auto`.
        contaminated: Whether the calibration of `delta` counts sets that contaminate every group.

    Raises:
        SpecError: If a name is unknown, beta is not a probability, the published tables do not fit, or `largest` is needed.
        ShapeError: If outcomes or prior do not fit the design.
        DesignError: If an exact decoder does not fit into memory.
        ContradictoryOutcomesError: If the outcomes are impossible at these error rates.

    Examples:
        >>> from fedgt import ErrorRates, Outcomes, named_design
        >>> from fedgt.decode import decode
        >>> found = decode(named_design("bch-15x8"), Outcomes.parse("11010000"), rates=ErrorRates.symmetric(0.05))
        >>> found.status, found.flagged.nonzero()[0].tolist()
        ('decided', [1])
    """
    check_names(strategy, estimator, beta)
    check_outcomes(outcomes.values[None], design)
    n = design.clients
    if not outcomes.present.any():
        return without_evidence(n, strategy, "no-outcomes", "every group is erased: nobody was tested", prior)
    present = design.restricted(np.flatnonzero(outcomes.present).tolist())
    observed = Outcomes(values=outcomes.values[outcomes.present])
    tested = in_some_group(present)
    if strategy in ("comp", "dd"):
        return _without_probabilities(present, observed, tested, strategy)
    estimate = _estimate(present, observed, rates, strategy, prior, estimator, kappa, largest, method)
    count = estimate.malicious
    used = prior_of(strategy, prior, count, n, estimate.largest)
    note = ""
    tied: tuple[int, ...] = ()
    exact = True
    if used is None:  # the estimate is 0 and no prevalence was given: the decoder is not run
        _check_nobody(observed, rates)
        log_odds, flagged = np.full(n, np.inf), np.zeros(n, dtype=np.bool_)
    else:
        decoder = compile(present, rates, used, method=method)
        posterior = single(decoder.decode_batch(observed.values[None]), outcomes)
        log_odds, exact = posterior.log_odds, posterior.status == "exact"
        note = "" if exact else f"; belief propagation, {posterior.status}"
        flagged, tied, more = accused(present, observed, log_odds, used, strategy, count, rates, beta, contaminated)
        note += more
    flagged = np.logical_and(flagged, tested)
    status, reason = _status(observed, flagged, tested, strategy, estimate)
    if estimate.raised and prior is None:
        note += f"; kappa = {kappa:g} allows no attacker in these groups (n_m^max = 0), one was considered all the same"
    elif estimate.largest == 0 and prior is None:
        note += "; no attacker was considered, as the user wants it: nobody can be accused"
    return Decoding(
        strategy=strategy,
        log_odds=frozen(log_odds, np.float64),
        posterior=frozen(malicious_probability(log_odds), np.float64),
        flagged=frozen(flagged, np.bool_),
        estimated_malicious=count,
        status=status,
        reason=reason + note,
        tied=tied,
        exact=exact,
    )


def without_evidence(
    clients: int, strategy: Strategy, status: Status, reason: str, prior: Prior | None = None
) -> Decoding:
    """A decision that accuses nobody because there is nothing to decide on; `status` and `reason` say why.

    Examples:
        >>> from fedgt.decode import without_evidence
        >>> found = without_evidence(3, "bayes", "no-outcomes", "every group was erased")
        >>> found.flagged.tolist(), found.status
        ([False, False, False], 'no-outcomes')
    """
    prevalence = prior.prevalence if isinstance(prior, IndependentPrior) else np.full(clients, np.nan)
    log_odds = np.array([np.nan if np.isnan(p) else log_ratio(1.0 - p, p) for p in prevalence])
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


def _without_probabilities(design: Design, outcomes: Outcomes, tested: BoolArray, strategy: Strategy) -> Decoding:
    """COMP and DD: no prior, no estimate, no posterior."""
    rule = combinatorial if strategy == "comp" else definite
    flagged = np.logical_and(rule(design, outcomes.values[None])[0], tested)
    nothing = CountEstimate(malicious=None, largest=design.clients, possible=True)
    status, reason = _status(outcomes, flagged, tested, strategy, nothing)
    return Decoding(
        strategy=strategy,
        log_odds=frozen(np.full(design.clients, np.nan), np.float64),
        posterior=frozen(np.full(design.clients, np.nan), np.float64),
        flagged=frozen(flagged, np.bool_),
        estimated_malicious=None,
        status=status,
        reason=reason,
        tied=(),
    )


def _check_nobody(outcomes: Outcomes, rates: ErrorRates) -> None:
    """An estimate of 0 must not hide that "nobody malicious" is impossible."""
    positive, negative = (outcomes.values == POSITIVE).any(), (outcomes.values == NEGATIVE).any()
    if (positive and rates.false_alarm == 0) or (negative and rates.false_alarm == 1):
        raise ContradictoryOutcomesError(
            f"the outcomes {outcomes} contradict each other: no number of malicious clients explains them at these error "
            "rates; allow larger error rates"
        )


def _estimate(
    design: Design,
    outcomes: Outcomes,
    rates: ErrorRates,
    strategy: Strategy,
    prior: IndependentPrior | None,
    estimator: Estimator,
    kappa: float,
    largest: int | None,
    method: Method,
) -> CountEstimate:
    """n_m-hat, as far as the strategy needs it and the design allows it."""
    needed = strategy not in ("bayes", "map")
    if not countable(design):
        if largest is None and prior is None:
            raise SpecError(
                f"design {design.name!r} has {design.groups} overlapping groups, too many to count the sets behind n_m^max: "
                "give the largest number of malicious clients, or a prevalence"
            )
        if not needed and prior is not None:
            return CountEstimate(malicious=None, largest=design.clients if largest is None else largest, possible=True)
        if largest is None:
            raise SpecError(
                f"strategy {strategy!r} needs the largest number of malicious clients for a design this wide"
            )
        estimator = "outcomes"
    if not strategy.startswith("published") and estimator == "negatives":
        return estimate_malicious(design, outcomes, kappa=kappa, largest=largest)
    allowed = max_malicious(design, kappa) if largest is None else largest
    most = max(1, allowed) if largest is None else largest
    if strategy.startswith("published"):
        (count,) = published_estimate(design, outcomes.values[None]).tolist()
    else:
        (count,) = estimate_from_outcomes(design, outcomes.values[None], rates, largest=most, method=method).tolist()
        if count < 0:
            raise ContradictoryOutcomesError(
                f"the outcomes {outcomes} contradict each other: no number of malicious clients up to {most} explains them "
                "at these error rates; allow larger error rates"
            )
    return CountEstimate(malicious=count, largest=most, possible=True, raised=most > allowed)


def _status(
    outcomes: Outcomes, flagged: BoolArray, tested: BoolArray, strategy: Strategy, estimate: CountEstimate
) -> tuple[Status, str]:
    positive = int((outcomes.values == POSITIVE).sum())
    present = len(outcomes.values)
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
    if strategy not in ("bayes", "map", "comp", "dd") and estimate.malicious == 0:
        return "nobody-estimated", (
            f"{outcomes.negatives} of {present} groups are negative: no malicious client is estimated{suffix}"
        )
    accused = int(flagged.sum())
    return (
        "decided",
        f"{accused} of {len(flagged)} clients flagged from {positive} positive groups of {present}{suffix}",
    )
