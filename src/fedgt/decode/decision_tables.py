"""Whom a strategy accuses for each of many outcome vectors, in batches and without reasons."""

import numpy as np
import numpy.typing as npt

from fedgt.decode.accuse import above, accused, in_some_group
from fedgt.decode.baselines import combinatorial, definite, published_estimate
from fedgt.decode.compiled import check_outcomes
from fedgt.decode.decoders import compile
from fedgt.decode.estimate import estimate_from_outcomes, estimate_malicious, most_considered
from fedgt.decode.priors import CountPrior
from fedgt.decode.ranked import ranked_sets
from fedgt.decode.strategy_names import Estimator, Strategy, check_names, prior_of
from fedgt.defaults import BETA, ESTIMATOR, KAPPA
from fedgt.design import Design
from fedgt.errors import SpecError
from fedgt.types import ERASED, BoolArray, ErrorRates, Outcomes


def decision_table(
    design: Design,
    outcomes: npt.NDArray[np.int8],
    *,
    rates: ErrorRates,
    strategy: Strategy,
    beta: float = BETA,
    kappa: float = KAPPA,
    largest: int | None = None,
    estimator: Estimator = ESTIMATOR,
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

    Raises:
        SpecError: If a name is unknown or an outcome is erased.

    Examples:
        >>> import numpy as np
        >>> from fedgt import ErrorRates, from_matrix
        >>> from fedgt.decode import decision_table
        >>> outcomes = np.array([[0, 0], [0, 1]], dtype=np.int8)
        >>> design, rates = from_matrix([[1, 1, 0], [0, 1, 1]]), ErrorRates.symmetric(0.05)
        >>> decision_table(design, outcomes, rates=rates, strategy="comp", largest=2).tolist()
        [[False, False, False], [False, False, True]]
    """
    check_names(strategy, estimator, beta)
    values = check_outcomes(outcomes, design)
    if (values == ERASED).any():
        raise SpecError("a decision table knows no erased outcomes; leave those groups out of the design")
    n = design.clients
    flagged = np.zeros((len(values), n), dtype=np.bool_)
    if not len(values):
        return flagged
    if strategy in ("comp", "dd"):
        rule = combinatorial if strategy == "comp" else definite
        return np.logical_and(rule(design, values), in_some_group(design))
    if strategy in ("bayes", "map"):
        counted = CountPrior.uniform(most_considered(design, kappa) if largest is None else largest)
        batch = compile(design, rates, counted).decode_batch(values)
        possible = np.isfinite(batch.log_evidence)
        if strategy == "bayes":
            flagged[possible] = above(batch.log_odds[possible], beta)
        else:
            for row in np.flatnonzero(possible).tolist():
                best = ranked_sets(design, Outcomes(values=values[row]), rates, counted, count=1)
                flagged[row, list(best[0].clients)] = True
        return np.logical_and(flagged, in_some_group(design))
    found = estimates(design, values, rates, strategy, estimator, kappa, largest)
    for count in sorted({int(estimate) for estimate in found}):
        rows = np.flatnonzero(found == count).tolist()
        prior = prior_of(strategy, None, count, n, n) if count >= 0 else None
        if prior is None:
            continue
        batch = compile(design, rates, prior).decode_batch(values[rows])
        for row, log_odds in zip(rows, batch.log_odds, strict=True):
            if not np.isnan(log_odds).any():
                one = Outcomes(values=values[row])
                flagged[row] = accused(design, one, log_odds, prior, strategy, count, rates, beta, contaminated=True)[0]
    return np.logical_and(flagged, in_some_group(design))


def estimates(
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
