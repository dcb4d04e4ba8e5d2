"""How many clients a strategy gets wrong on average, before anybody has tested anything.

For one design, one pair of error rates and each n_m the malicious clients are a uniformly random set of n_m; every set
counts, also those that contaminate all groups. Exact where all 2^m outcomes can be listed, else from random sets and noise,
with a standard error.

`bayes` needs no decoder for this: its decision compares two sums over sets, and those follow for all outcomes at once from
the number of clients whose column lies within each syndrome (as in `fedgt.decode.exact`), pushed group by group through one
2 x 2 matrix that inverts "within" and adds the noise of the test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from fedgt.deadline import NEVER, Deadline
from fedgt.decode import STRATEGIES, Estimator, Strategy, decision_table
from fedgt.decode.compiled import all_outcomes
from fedgt.decode.exact import exact_counts_possible, expected_errors
from fedgt.defaults import BETA
from fedgt.design import Design, countable
from fedgt.errors import CalibrationError, SpecError
from fedgt.types import BoolArray, ErrorRates, FloatArray, IntArray, frozen

MAX_TABLE = 1 << 24
"""clients x 2^groups up to which `bayes` is computed exactly (128 MiB of float64)."""
_MOST_DECISIONS = 12
"""Groups up to which the other strategies decide all 2^m outcomes."""
_TIE = 1e-9  # as in the decoder: a posterior that equals 1 - beta up to rounding keeps the client


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpectedErrors:
    """Expected misdetections and false alarms, in clients per round.

    Attributes:
        strategy: Which one.
        malicious: int64[k]: the numbers n_m that were asked for.
        missed: float64[k]: expected malicious clients that are not flagged.
        accused: float64[k]: expected benign clients that are flagged.
        standard_error: float64[k]: of missed + accused; 0 where exact.
        exact: Whether all outcomes were counted.

    Examples:
        >>> from fedgt import ErrorRates, named_design
        >>> from fedgt.planning import expected
        >>> errors = expected(named_design("bch-15x8"), ErrorRates.symmetric(0.05), malicious=[3], largest=5)
        >>> errors.exact, errors.strategy
        (True, 'bayes')
    """

    strategy: Strategy
    malicious: IntArray
    missed: FloatArray
    accused: FloatArray
    standard_error: FloatArray
    exact: bool

    @property
    def wrong(self) -> FloatArray:
        """float64[k]: missed + accused."""
        total: FloatArray = self.missed + self.accused
        return total


def expected(
    design: Design,
    rates: ErrorRates,
    *,
    strategy: Strategy = "bayes",
    malicious: Sequence[int],
    largest: int,
    assumed: ErrorRates | None = None,
    beta: float = BETA,
    rng: np.random.Generator | None = None,
    samples: int = 2000,
    deadline: Deadline = NEVER,
) -> ExpectedErrors:
    """Expected missed and falsely accused clients of a strategy for each number of malicious clients.

    Args:
        design: m groups of n clients.
        rates: The true noise of the tests.
        strategy: Any of `fedgt.decode.STRATEGIES`.
        malicious: The values of n_m, each from 0 to n.
        largest: The n_m^max that the strategy assumes: its prior and its estimate go up to it.
        assumed: The error rates that the decoder assumes; the true ones when not given.
        beta: Weight of a misdetection against a false alarm in the decision (`delta`, `bayes`).
        rng: Draws sets and noise where not all outcomes can be listed; without it such designs are refused.
        samples: Sets drawn for each n_m.
        deadline: When to give up.

    Raises:
        SpecError: If the strategy is unknown, or a number of malicious clients or of samples is out of range.
        CalibrationError: If the design is too large to count and no `rng` was given.
        DesignError: If an exact decoder does not fit into memory.
        OutOfTimeError: If the deadline passed.

    Examples:
        >>> from fedgt import ErrorRates, named_design
        >>> from fedgt.planning import expected
        >>> errors = expected(named_design("bch-15x8"), ErrorRates.symmetric(0.05), malicious=[1, 3], largest=5)
        >>> errors.missed.round(2).tolist()
        [0.13, 1.26]
    """
    _check(design, strategy, malicious, largest, samples, beta)
    decoder_rates = rates if assumed is None else assumed
    if strategy == "bayes" and design.clients << design.groups <= MAX_TABLE and comb(design.clients, largest) < 1 << 53:
        return _bayes(design, rates, decoder_rates, malicious, largest, beta, deadline)
    if design.groups <= _MOST_DECISIONS and exact_counts_possible(design):
        deadline.check()
        table = _decisions(design, all_outcomes(design.groups), decoder_rates, strategy, largest, beta)
        pairs = [expected_errors(design, table, rates, q) for q in malicious]
        return _result(strategy, malicious, pairs, np.zeros(len(pairs)), exact=True)
    if rng is None:
        raise CalibrationError(
            f"design {design.name!r} ({design.clients} clients, {design.groups} groups) is too large to list all outcomes "
            f"of strategy {strategy!r}: give an rng, and the expected errors are sampled with their standard error"
        )
    deadline.check()
    return _sampled(design, rates, decoder_rates, strategy, malicious, largest, beta, rng, samples)


def least_wrong(design: Design, rates: ErrorRates, largest: int) -> float:
    """The least expected number of wrong clients that any rule can have when n_m is uniform on 0..largest.

    That is `bayes` at beta = 1/2 with the true rates, averaged over n_m: for each client and outcome the smaller of
    P(malicious, t) and P(benign, t). One transform, so a search can afford it.

    Raises:
        CalibrationError: If clients x 2^groups exceeds `MAX_TABLE`.

    Examples:
        >>> from fedgt import ErrorRates, named_design
        >>> from fedgt.planning import least_wrong
        >>> round(least_wrong(named_design("bch-15x8"), ErrorRates.symmetric(0.05), 5), 2)
        1.83
    """
    if design.clients << design.groups > MAX_TABLE:
        raise CalibrationError(
            f"design {design.name!r}: {design.clients} x 2^{design.groups} outcomes, at most {MAX_TABLE} are listed; "
            "sample the expected errors with `expected`"
        )
    inside, within, _ = _within(design)
    prior = np.zeros(design.clients + 1)
    prior[: largest + 1] = 1.0 / (largest + 1)
    joint, total = _over_outcomes(inside, within, prior, rates)
    return float(np.minimum(joint, np.maximum(total - joint, 0.0)).sum())


def _check(design: Design, strategy: str, malicious: Sequence[int], largest: int, samples: int, beta: float) -> None:
    if strategy not in STRATEGIES:
        raise SpecError(f"unknown strategy {strategy!r}; known are {', '.join(STRATEGIES)}")
    if not malicious or not all(0 <= q <= design.clients for q in malicious):
        raise SpecError(f"n_m = {list(malicious)}; one or more numbers from 0 to {design.clients} are needed")
    if not 0 <= largest <= design.clients:
        raise SpecError(f"largest = {largest}; 0 to {design.clients} malicious clients can be assumed")
    if not 0.0 <= beta <= 1.0:
        raise SpecError(f"beta = {beta}; a weight from 0 to 1 is needed")
    if samples < 2:
        raise SpecError(f"samples = {samples}; at least 2 are needed for a standard error")


def _result(
    strategy: Strategy,
    malicious: Sequence[int],
    pairs: Sequence[tuple[float, float]],
    error: FloatArray,
    *,
    exact: bool,
) -> ExpectedErrors:
    missed, accused = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    return ExpectedErrors(
        strategy=strategy,
        malicious=frozen(malicious, np.int64),
        missed=frozen(missed, np.float64),
        accused=frozen(accused, np.float64),
        standard_error=frozen(error, np.float64),
        exact=exact,
    )


def _decisions(
    design: Design,
    outcomes: np.ndarray[tuple[int, ...], np.dtype[np.int8]],
    rates: ErrorRates,
    strategy: Strategy,
    largest: int,
    beta: float,
) -> BoolArray:
    # Where negative groups cannot be counted, n_m-hat comes from all outcomes, as `decode` does it.
    estimator: Estimator = "negatives" if countable(design) else "outcomes"
    return decision_table(
        design, outcomes, rates=rates, strategy=strategy, beta=beta, largest=largest, estimator=estimator
    )


def _bayes(
    design: Design,
    rates: ErrorRates,
    assumed: ErrorRates,
    malicious: Sequence[int],
    largest: int,
    beta: float,
    deadline: Deadline,
) -> ExpectedErrors:
    """Exactly, from the number of clients within each syndrome."""
    n = design.clients
    inside, within, columns = _within(design)
    prior = np.zeros(n + 1)
    prior[: largest + 1] = 1.0 / (largest + 1)
    joint, total = _over_outcomes(inside, within, prior, assumed)
    # flag when P(malicious, t) / P(benign, t) exceeds (1 - beta) / beta by more than rounding
    flagged = np.greater(beta * joint, (1.0 - beta) * (total - joint) * (1.0 + _TIE))
    flagged[:] = np.logical_and(flagged, (total > 0) & (columns != 0)[:, None])
    pairs = []
    for q in malicious:
        deadline.check()
        weights = np.zeros(n + 1)
        weights[q] = 1.0
        hit, every = _over_outcomes(inside, within, weights, rates)
        missed = float(hit.sum(where=~flagged))
        accused = float((flagged * every).sum() - hit.sum(where=flagged))
        pairs.append((max(0.0, missed), max(0.0, accused)))
    return _result("bayes", malicious, pairs, np.zeros(len(pairs)), exact=True)


def _within(design: Design) -> tuple[BoolArray, IntArray, IntArray]:
    """(bool[n, 2^m] whether a column lies within a syndrome, int64[2^m] how many do, int64[n] the columns as masks)."""
    columns = design.columns_as_masks()
    states = np.arange(1 << design.groups, dtype=np.int64)
    inside = columns[:, None] & ~states == 0
    return inside, inside.sum(axis=0), columns


def _over_outcomes(
    inside: BoolArray, within: IntArray, weights: FloatArray, rates: ErrorRates
) -> tuple[FloatArray, FloatArray]:
    """(float64[n, 2^m], float64[2^m]): P(client malicious, t) and P(t) when n_m has the given distribution."""
    n = len(inside)
    used = np.flatnonzero(weights).tolist()
    share = np.array([sum(weights[q] * comb(c, q) / comb(n, q) for q in used) for c in range(n + 1)])
    with_one = np.array(
        [sum(weights[q] * comb(c - 1, q - 1) / comb(n, q) for q in used if q) if c else 0.0 for c in range(n + 1)]
    )
    total = share[within]
    joint = np.where(inside, with_one[within], 0.0)
    miss, alarm = rates.misdetection, rates.false_alarm
    for array in (joint, total):
        for bit in range(array.shape[-1].bit_length() - 1):
            pairs = array.reshape(*array.shape[:-1], -1, 2, 1 << bit)
            clean, either = pairs[..., 0, :], pairs[..., 1, :]
            # syndrome bit 1 alone = either - clean; then the channel of this group's test
            either -= clean
            negative = (1.0 - alarm) * clean + miss * either
            either *= 1.0 - miss
            either += alarm * clean
            clean[...] = negative
    return np.maximum(joint, 0.0), np.maximum(total, 0.0)


def _sampled(
    design: Design,
    rates: ErrorRates,
    assumed: ErrorRates,
    strategy: Strategy,
    malicious: Sequence[int],
    largest: int,
    beta: float,
    rng: np.random.Generator,
    samples: int,
) -> ExpectedErrors:
    n, a = design.clients, design.matrix.astype(np.int64)
    rank = np.argsort(rng.random((len(malicious), samples, n)), axis=2)
    sets = rank < np.array(malicious)[:, None, None]  # [k, samples, n]
    contaminated = sets.astype(np.int64) @ a.T > 0
    chance = np.where(contaminated, 1.0 - rates.misdetection, rates.false_alarm)
    outcomes = (rng.random(contaminated.shape) < chance).astype(np.int8)
    distinct, which = np.unique(outcomes.reshape(-1, design.groups), axis=0, return_inverse=True)
    flagged = _decisions(design, distinct, assumed, strategy, largest, beta)[which.ravel()].reshape(sets.shape)
    missed, accused = (sets & ~flagged).sum(axis=2), (~sets & flagged).sum(axis=2)
    error = (missed + accused).std(axis=1, ddof=1) / np.sqrt(samples)
    pairs = list(zip(missed.mean(axis=1).tolist(), accused.mean(axis=1).tolist(), strict=True))
    return _result(strategy, malicious, pairs, error, exact=False)
