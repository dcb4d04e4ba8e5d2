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
from math import log
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from fedgt.decode.baselines import PUBLISHED_THRESHOLDS, combinatorial, definite, published_estimate
from fedgt.decode.calibrate import Calibration, calibrate, calibrate_by_sampling
from fedgt.decode.compiled import Method, check_outcomes, compile, malicious_probability, single
from fedgt.decode.estimate import CountEstimate, estimate_from_outcomes, estimate_malicious
from fedgt.decode.priors import CountPrior, IndependentPrior, Prior
from fedgt.decode.ranked import ranked_sets
from fedgt.design import Design
from fedgt.errors import CalibrationError, SpecError
from fedgt.types import POSITIVE, BoolArray, ErrorRates, FloatArray, Outcomes, frozen

Strategy = Literal["count", "delta", "bayes", "map", "comp", "dd", "published-count", "published-delta"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

Estimator = Literal["negatives", "outcomes"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)

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
            on nothing but the prior); `all-flagged` (no tested client would be left); `no-outcomes` (every group is
            erased); `contradictory` (no set of malicious clients explains the outcomes).
        reason: The status in plain words.
        tied: Clients at the boundary of `count` that could not be told apart; of these the lower numbers were taken.
        exact: Whether the log-odds are exact (belief propagation is not).
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
    beta: float = 0.5,
    kappa: float = 0.2,
    largest: int | None = None,
    estimator: Estimator = "negatives",
    method: Method = "exact",
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
        kappa: Defines n_m^max: P(all groups contaminated | n_m^max) <= kappa.
        largest: n_m^max itself, when the user knows it (needed beyond 22 overlapping groups).
        estimator: n_m-hat from the number of `negatives` (the paper's), or from all `outcomes`.
        method: `exact`, `belief-propagation`, or `auto`.

    Raises:
        SpecError: If a name is unknown, beta is not a probability, or the published tables do not fit.
        ShapeError: If outcomes or prior do not fit the design.
        DesignError: If an exact decoder does not fit into memory.
        ContradictoryOutcomesError: If the outcomes are impossible at these error rates.
    """
    _check_names(strategy, estimator, beta)
    check_outcomes(outcomes.values[None], design)
    n = design.clients
    if not outcomes.present.any():
        return without_evidence(n, strategy, "no-outcomes", "every group is erased: nobody was tested", prior)
    present = design.restricted(np.flatnonzero(outcomes.present).tolist())
    observed = Outcomes(values=outcomes.values[outcomes.present])
    estimate = _estimate(present, observed, rates, strategy, estimator, kappa, largest)
    count = estimate.malicious
    used = _prior(strategy, prior, count, n, estimate.largest)
    note = ""
    tied: tuple[int, ...] = ()
    exact = True
    if used is None:  # the estimate is 0 and no prevalence was given: the decoder is not run
        log_odds, flagged = np.full(n, np.inf), np.zeros(n, dtype=np.bool_)
    else:
        decoder = compile(present, rates, used, method=method)
        posterior = single(decoder.decode_batch(observed.values[None]), outcomes)
        log_odds, exact = posterior.log_odds, posterior.status == "exact"
        note = "" if exact else f"; belief propagation, {posterior.status}"
        flagged, tied, more = _flags(present, observed, log_odds, used, strategy, count, rates, beta)
        note += more
    tested = _tested(present)
    flagged = np.logical_and(flagged, tested)
    status, reason = _status(observed, flagged, tested, strategy, estimate)
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


def decision_table(
    design: Design,
    outcomes: npt.NDArray[np.int8],
    *,
    rates: ErrorRates,
    strategy: Strategy,
    beta: float = 0.5,
    kappa: float = 0.2,
    largest: int | None = None,
    estimator: Estimator = "negatives",
) -> BoolArray:
    """bool[B, clients]: whom a strategy accuses for each of many outcome vectors, without reasons.

    The same decisions as `decode`, in batches; impossible outcomes accuse nobody.

    Args:
        design: m groups of n clients.
        outcomes: int8[B, groups], none erased.
        rates: What is assumed about the tests.
        strategy: See the module.
        beta: Weight of a misdetection against a false alarm.
        kappa: Defines n_m^max.
        largest: n_m^max itself.
        estimator: See `decode`.
    """
    _check_names(strategy, estimator, beta)
    n = design.clients
    flagged = np.zeros((len(outcomes), n), dtype=np.bool_)
    if strategy in ("comp", "dd"):
        rule = combinatorial if strategy == "comp" else definite
        return np.logical_and(rule(design, outcomes), _tested(design))
    if strategy in ("bayes", "map"):
        most = _estimate(design, Outcomes(values=outcomes[0]), rates, "count", "negatives", kappa, largest).largest
        counted = CountPrior.uniform(most)
        if strategy == "bayes":
            log_odds = compile(design, rates, counted).decode_batch(outcomes).log_odds
            flagged = _above(np.nan_to_num(log_odds, nan=np.inf), beta)
        else:
            possible = np.isfinite(compile(design, rates, counted).decode_batch(outcomes).log_evidence)
            for row in np.flatnonzero(possible).tolist():
                best = ranked_sets(design, Outcomes(values=outcomes[row]), rates, counted, count=1)
                flagged[row, list(best[0].clients)] = True
        return np.logical_and(flagged, _tested(design))
    estimates = _estimates(design, outcomes, rates, strategy, estimator, kappa, largest)
    for count in sorted({int(estimate) for estimate in estimates}):
        rows = np.flatnonzero(estimates == count).tolist()
        prior = _prior(strategy, None, count, n, n)
        if prior is None or count < 0:
            continue
        batch = compile(design, rates, prior).decode_batch(outcomes[rows])
        for row, log_odds in zip(rows, batch.log_odds, strict=True):
            if not np.isnan(log_odds).any():
                values = Outcomes(values=outcomes[row])
                flagged[row] = _flags(design, values, log_odds, prior, strategy, count, rates, beta)[0]
    return np.logical_and(flagged, _tested(design))


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


def _check_names(strategy: str, estimator: str, beta: float) -> None:
    for name, known in ((strategy, STRATEGIES), (estimator, ESTIMATORS)):
        if name not in known:
            kind = "strategy" if known is STRATEGIES else "estimator"
            raise SpecError(f"unknown {kind} {name!r}; known are {', '.join(known)}")
    if not 0.0 <= beta <= 1.0:
        raise SpecError(f"beta = {beta}; a weight from 0 to 1 is needed")


def _estimate(
    design: Design,
    outcomes: Outcomes,
    rates: ErrorRates,
    strategy: Strategy,
    estimator: Estimator,
    kappa: float,
    largest: int | None,
) -> CountEstimate:
    found = estimate_malicious(design, outcomes, kappa=kappa, largest=largest)
    if strategy.startswith("published") or estimator == "outcomes":
        (count,) = _estimates(design, outcomes.values[None], rates, strategy, estimator, kappa, largest).tolist()
        possible = found.possible if count < 0 else True
        return CountEstimate(malicious=max(count, 0), largest=found.largest, possible=possible)
    return found


def _estimates(
    design: Design,
    outcomes: npt.NDArray[np.int8],
    rates: ErrorRates,
    strategy: Strategy,
    estimator: Estimator,
    kappa: float,
    largest: int | None,
) -> npt.NDArray[np.int64]:
    """int64[B]: n_m-hat of each outcome vector."""
    if strategy.startswith("published"):
        return published_estimate(design, outcomes)
    if estimator == "outcomes":
        return estimate_from_outcomes(design, outcomes, rates, kappa=kappa, largest=largest)
    negatives = (outcomes == 0).sum(axis=1)
    by_negatives = {
        int(z): estimate_malicious(
            design,
            Outcomes(values=np.array([0] * z + [1] * (design.groups - z), dtype=np.int8)),
            kappa=kappa,
            largest=largest,
        ).malicious
        for z in np.unique(negatives).tolist()
    }
    return np.array([by_negatives[int(z)] for z in negatives], dtype=np.int64)


def _prior(strategy: Strategy, given: IndependentPrior | None, count: int, clients: int, largest: int) -> Prior | None:
    """What the decoder starts from; None when the estimate is 0 and nothing else is known."""
    if given is not None:
        return given
    if strategy in ("bayes", "map", "comp", "dd"):
        return CountPrior.uniform(largest)
    return IndependentPrior.uniform(clients, count / clients) if count > 0 else None


def _flags(
    design: Design,
    outcomes: Outcomes,
    log_odds: FloatArray,
    prior: Prior,
    strategy: Strategy,
    count: int,
    rates: ErrorRates,
    beta: float,
) -> tuple[BoolArray, tuple[int, ...], str]:
    """Whom the strategy accuses, ties of `count`, and what else should be said."""
    n = design.clients
    nobody = np.zeros(n, dtype=np.bool_)
    if strategy == "bayes":
        return _above(log_odds, beta), (), ""
    if strategy in ("comp", "dd"):
        rule = combinatorial if strategy == "comp" else definite
        return rule(design, outcomes.values[None])[0], (), ""
    if strategy == "map":
        (best,) = ranked_sets(design, outcomes, rates, prior, count=1)
        nobody[list(best.clients)] = True
        return nobody, (), f"; the most probable set has probability {best.probability:.3g}"
    if count == 0:
        return nobody, (), ""
    if strategy.endswith("count"):
        return (*_smallest(log_odds, count, _tested(design)), "")
    if count == n:
        return ~nobody, (), ""
    note = ""
    if strategy == "published-delta":
        threshold = PUBLISHED_THRESHOLDS[count]
    else:
        found = _calibrated(design, rates, count, beta)
        threshold = found.threshold
        if found.standard_error > 0:
            note = f"; Delta from sampled sets, objective {found.objective:.4f} +- {found.standard_error:.4f}"
    prevalences = prior.prevalence if isinstance(prior, IndependentPrior) else np.full(n, count / n)
    offset = np.array([_log_ratio(1.0 - prevalence, prevalence) for prevalence in prevalences])
    # A client that is certainly malicious is flagged although its likelihood ratio is undefined (prevalence 1).
    return np.logical_or(np.less(log_odds, threshold + offset), log_odds == -np.inf), (), note


def _above(log_odds: FloatArray, beta: float) -> BoolArray:
    """Posterior above 1 - beta; exactly 1 - beta, which rounding must not decide, keeps the client."""
    threshold = _log_ratio(beta, 1.0 - beta)
    return np.less(log_odds, threshold - (_TIE if np.isfinite(threshold) else 0.0))


def _calibrated(design: Design, rates: ErrorRates, count: int, beta: float) -> Calibration:
    """Exact where sets can be counted, else from 20,000 sampled sets."""
    try:
        return calibrate(design, rates, count, beta=beta)
    except CalibrationError:
        return calibrate_by_sampling(design, rates, count, beta=beta, rng=np.random.default_rng(0))


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


def _tested(design: Design) -> BoolArray:
    """Clients in some group of a design whose groups all have an outcome."""
    tested: BoolArray = np.greater(design.matrix.sum(axis=0), 0)
    return tested


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
    if strategy in ("count", "delta", "published-count", "published-delta") and estimate.malicious == 0:
        return "nobody-estimated", (
            f"{outcomes.negatives} of {present} groups are negative: no malicious client is estimated{suffix}"
        )
    accused = int(flagged.sum())
    return (
        "decided",
        f"{accused} of {len(flagged)} clients flagged from {positive} positive groups of {present}{suffix}",
    )


def _log_ratio(numerator: float, denominator: float) -> float:
    if denominator == 0.0:
        return np.inf
    return log(numerator / denominator) if numerator > 0 else -np.inf


def explain(design: Design, outcomes: Outcomes, rates: ErrorRates, prior: Prior) -> tuple[tuple[float, ...], ...]:
    """How much each group speaks for and against each client: the change of its log-odds when the group is left out.

    Returns:
        Element [j][i] is for the i-th group of client j (in the order of `design.groups_of(j)`): negative means that the
        group speaks against the client, positive that it speaks for it; 0 for an erased group.
    """
    rows: list[npt.NDArray[np.int8]] = [outcomes.values]
    for group in range(design.groups):
        without = outcomes.values.copy()
        without[group] = -1
        rows.append(without)
    batch = compile(design, rates, prior).decode_batch(np.array(rows))
    with np.errstate(invalid="ignore"):
        change = np.nan_to_num(batch.log_odds[0] - batch.log_odds[1:], nan=0.0)  # [groups, clients]
    return tuple(tuple(float(change[group, j]) for group in design.groups_of(j)) for j in range(design.clients))
