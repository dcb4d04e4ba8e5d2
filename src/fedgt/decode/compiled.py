"""Compile once, decode often: the contract of every decoder, and the exact one.

A decoder is made for a design, error rates and a prior; it then answers outcome vectors, one or many at a time. What it
answers carries its own status; nothing is read off the decoder afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, log
from typing import Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from fedgt.decode.frontier import Schedule, make_schedule
from fedgt.decode.passes import forward_backward_passes
from fedgt.decode.priors import CountPrior, Prior, log_or_minus_infinity
from fedgt.design import Design
from fedgt.errors import ContradictoryOutcomesError, DesignError, ShapeError
from fedgt.types import (
    ERASED,
    NEGATIVE,
    BitArray,
    BoolArray,
    ErrorRates,
    FloatArray,
    IntArray,
    Outcomes,
    as_array,
    frozen,
)

Rates = ErrorRates | Sequence[ErrorRates]
"""The same error rates for every group, or one for each (tests of several rounds differ)."""

Method = Literal["exact", "belief-propagation", "auto"]
METHODS: tuple[Method, ...] = get_args(Method)

DecodeStatus = Literal["exact", "converged", "not-converged"]

_LOOK_UP_GROUPS = 10
_CHUNK = 1 << 22  # metrics held at once in a batch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Posterior:
    """What one outcome vector says about every client.

    Attributes:
        log_odds: float64[clients]: log P(benign | t) - log P(malicious | t) in nats; infinite only where certain.
        log_evidence: log P(t) in nats (belief propagation: the Bethe approximation).
        count: float64[n_max + 1]: P(n_m | t) under a `CountPrior`; empty under an `IndependentPrior`.
        status: `exact`, or whether belief propagation converged.

    Examples:
        >>> from fedgt import ErrorRates, Outcomes, named_design
        >>> from fedgt.decode import CountPrior, compile
        >>> decoder = compile(named_design("bch-15x8"), ErrorRates.symmetric(0.05), CountPrior.uniform(5))
        >>> posterior = decoder.decode(Outcomes.parse("00000000"))
        >>> posterior.status, bool(posterior.malicious.max() < 0.05)
        ('exact', True)
    """

    log_odds: FloatArray
    log_evidence: float
    count: FloatArray
    status: DecodeStatus = "exact"

    @property
    def malicious(self) -> FloatArray:
        """float64[clients]: P(malicious | t)."""
        return malicious_probability(self.log_odds)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PosteriorBatch:
    """The same for B outcome vectors.

    Attributes:
        log_odds: float64[B, clients]; NaN in the rows of outcomes that contradict each other.
        log_evidence: float64[B]; -inf in those rows.
        count: float64[B, n_max + 1], or [B, 0] under an `IndependentPrior`.
        converged: bool[B]; all true for an exact decoder.
        exact: Whether the answers are exact.

    Examples:
        >>> import numpy as np
        >>> from fedgt import ErrorRates, named_design
        >>> from fedgt.decode import CountPrior, compile
        >>> decoder = compile(named_design("bch-15x8"), ErrorRates.symmetric(0.05), CountPrior.uniform(5))
        >>> batch = decoder.decode_batch(np.array([[0] * 8, [1] * 8], dtype=np.int8))
        >>> batch.exact, batch.log_odds.shape, batch.count.shape
        (True, (2, 15), (2, 6))
    """

    log_odds: FloatArray
    log_evidence: FloatArray
    count: FloatArray
    converged: BoolArray
    exact: bool


class CompiledDecoder(Protocol):
    """A decoder that is ready to answer.

    Examples:
        >>> import numpy as np
        >>> from fedgt import ErrorRates, named_design
        >>> from fedgt.decode import CompiledDecoder, CountPrior, compile
        >>> decoder: CompiledDecoder = compile(named_design("bch-15x8"), ErrorRates.symmetric(0.05), CountPrior.uniform(5))
        >>> decoder.method, decoder.decode_batch(np.zeros((2, 8), dtype=np.int8)).log_odds.shape
        ('exact', (2, 15))
    """

    @property
    def method(self) -> str:
        """`exact` or `belief-propagation`."""
        ...

    @property
    def cost(self) -> str:
        """What a decoded outcome costs, in words."""
        ...

    def decode(self, outcomes: Outcomes) -> Posterior:
        """One outcome vector.

        Raises:
            ShapeError: If the number of outcomes is not the number of groups.
            ContradictoryOutcomesError: If the outcomes have probability zero (belief propagation finds only direct
                contradictions between groups).
        """
        ...

    def decode_batch(self, outcomes: npt.NDArray[np.int8]) -> PosteriorBatch:
        """int8[B, groups] of 0, 1 and -1 (erased)."""
        ...


def stacked(designs: Sequence[Design]) -> Design:
    """The groups of several test rounds of the same clients as one design, for a joint decoding of all outcomes so far.

    Raises:
        DesignError: If there is none, or the numbers of clients differ.

    Examples:
        >>> from fedgt import from_matrix
        >>> from fedgt.decode import stacked
        >>> both = stacked([from_matrix([[1, 1, 0]]), from_matrix([[0, 1, 1]])])  # two rounds, decoded jointly
        >>> both.groups
        2
    """
    sizes = {design.clients for design in designs}
    if len(sizes) != 1:
        raise DesignError(f"designs of {sorted(sizes)} clients cannot be stacked; the same clients are needed")
    return Design(
        matrix=np.concatenate([design.matrix for design in designs]),
        name=" + ".join(design.name for design in designs),
        source="; ".join(design.source for design in designs),
    )


class ExactDecoder:
    """Forward-backward over the open groups (`fedgt.decode.passes`); a look-up where all 2^m outcomes are few.

    Examples:
        >>> from fedgt import ErrorRates, named_design
        >>> from fedgt.decode import ExactDecoder, IndependentPrior
        >>> prior = IndependentPrior.uniform(30, 0.1)
        >>> decoder = ExactDecoder(named_design("cyclic-30x12"), ErrorRates.symmetric(0.05), prior)
        >>> decoder.width  # groups that are open at once; the work doubles with each
        6
    """

    def __init__(self, design: Design, rates: Rates, prior: Prior) -> None:
        """Lay out the pass; see `compile`."""
        check_prior(design, prior)
        self._design = design
        self._prior = prior
        self._rates = per_group(rates, design)
        problem = with_count_group(design.matrix, np.ones(design.groups, dtype=np.int64), prior)
        self._matrix, self._caps, self._extra = problem
        self._schedule = schedule_of(self._matrix, self._caps, design.name)
        self._log_stay, self._log_move = log_prior(design.clients, prior)
        self._table: PosteriorBatch | None = None

    @property
    def method(self) -> str:
        """Always `exact`."""
        return "exact"

    @property
    def width(self) -> int:
        """The most groups open at once (a count prior counts as one more)."""
        return self._schedule.width

    @property
    def cost(self) -> str:
        """Width and metrics."""
        return f"{self._schedule.width} groups open at most, {self._schedule.metrics} metrics an outcome"

    def decode(self, outcomes: Outcomes) -> Posterior:
        """See `CompiledDecoder`."""
        batch = self._answered(check_outcomes(outcomes.values[None], self._design))
        return single(batch, outcomes)

    def decode_batch(self, outcomes: npt.NDArray[np.int8]) -> PosteriorBatch:
        """See `CompiledDecoder`."""
        values = check_outcomes(outcomes, self._design)
        groups = self._design.groups
        complete = not (values == ERASED).any()
        if not complete or groups > _LOOK_UP_GROUPS or (self._table is None and len(values) < 1 << groups):
            return self._answered(values)
        if self._table is None:
            self._table = self._answered(all_outcomes(groups))
        rows = values.astype(np.int64) @ (1 << np.arange(groups))
        table = self._table
        return PosteriorBatch(
            log_odds=table.log_odds[rows],
            log_evidence=table.log_evidence[rows],
            count=table.count[rows],
            converged=table.converged[rows],
            exact=True,
        )

    def _answered(self, values: npt.NDArray[np.int8]) -> PosteriorBatch:
        size = max(1, _CHUNK // self._schedule.metrics)
        parts = []
        for start in range(0, len(values), size):
            chunk = values[start : start + size]
            likelihoods = [log_outcome_likelihood(chunk[:, group], rates) for group, rates in enumerate(self._rates)]
            if self._extra is not None:
                likelihoods.append(np.tile(self._extra, (len(chunk), 1)))
            parts.append(
                forward_backward_passes(
                    self._schedule,
                    likelihoods,
                    self._log_stay,
                    self._log_move,
                    count_of=None if self._extra is None else len(likelihoods) - 1,
                )
            )
        empty = np.empty((0, self._design.clients))
        width = len(self._prior.weights) if isinstance(self._prior, CountPrior) else 0
        count = [counts_of(part.counts, self._prior) for part in parts]
        return PosteriorBatch(
            log_odds=np.concatenate([part.log_odds for part in parts]) if parts else empty,
            log_evidence=np.concatenate([part.log_evidence for part in parts]) if parts else np.empty(0),
            count=np.concatenate(count) if count else np.empty((0, width)),
            converged=np.ones(len(values), dtype=np.bool_),
            exact=True,
        )


def single(batch: PosteriorBatch, outcomes: Outcomes) -> Posterior:
    """The only row of a batch.

    Raises:
        ContradictoryOutcomesError: If its outcomes are impossible.
    """
    if batch.log_evidence[0] == -np.inf:
        raise ContradictoryOutcomesError(
            f"the outcomes {outcomes} contradict each other: no set of malicious clients explains them at these error rates "
            "and under this prior; allow larger error rates"
        )
    status: DecodeStatus = "exact" if batch.exact else "converged" if batch.converged[0] else "not-converged"
    return Posterior(
        log_odds=frozen(batch.log_odds[0], np.float64),
        log_evidence=float(batch.log_evidence[0]),
        count=frozen(batch.count[0], np.float64),
        status=status,
    )


def counts_of(counts: FloatArray, prior: Prior) -> FloatArray:
    """float64[B, n_max + 1]: without the cap above n_max."""
    return counts[:, : len(prior.weights)] if isinstance(prior, CountPrior) else counts


def forward_backward(design: Design, outcomes: Outcomes, rates: Rates, prior: Prior) -> Posterior:
    """Exact posterior of every client given noisy group tests (equation (APPLLR) of the paper): compile and decode once.

    Raises:
        ShapeError: If outcomes, rates or prior do not fit the design.
        DesignError: If the trellis does not fit into memory.
        ContradictoryOutcomesError: If the outcomes have probability zero.

    Examples:
        >>> from fedgt import ErrorRates, Outcomes, from_matrix
        >>> from fedgt.decode import IndependentPrior, forward_backward
        >>> design, prior = from_matrix([[1, 1, 0], [0, 1, 1]]), IndependentPrior.uniform(3, 0.2)
        >>> posterior = forward_backward(design, Outcomes.parse("01"), ErrorRates.symmetric(0.05), prior)
        >>> posterior.malicious.round(2).tolist()
        [0.02, 0.06, 0.79]
    """
    return ExactDecoder(design, rates, prior).decode(outcomes)


def all_outcomes(groups: int) -> npt.NDArray[np.int8]:
    """int8[2^groups, groups]: row number t has bit i as the outcome of group i."""
    bits: npt.NDArray[np.int8] = ((np.arange(1 << groups)[:, None] >> np.arange(groups)) & 1).astype(np.int8)
    return bits


def malicious_probability(log_odds: FloatArray) -> FloatArray:
    """P(malicious) from log P(benign) - log P(malicious); neither end overflows."""
    half = np.exp(-np.abs(log_odds))
    probability: FloatArray = np.where(log_odds > 0, half, 1.0) / (1.0 + half)
    return probability


def log_outcome_likelihood(values: npt.NDArray[np.int8], rates: ErrorRates) -> FloatArray:
    """float64[B, 2]: log P(t | clean) and log P(t | contaminated) of one group; 0 and 0 where it is erased."""
    negative, erased = (values == NEGATIVE)[:, None], (values == ERASED)[:, None]
    chances = np.where(
        negative,
        [1.0 - rates.false_alarm, rates.misdetection],
        [rates.false_alarm, 1.0 - rates.misdetection],
    )
    likelihood: FloatArray = np.where(erased, 0.0, log_or_minus_infinity(chances))
    return likelihood


def per_group(rates: Rates, design: Design) -> tuple[ErrorRates, ...]:
    """One pair of error rates for each group.

    Raises:
        ShapeError: If a sequence has another length.
    """
    if isinstance(rates, ErrorRates):
        return (rates,) * design.groups
    if len(rates) != design.groups:
        raise ShapeError(
            f"{len(rates)} pairs of error rates for {design.groups} groups; one pair, or one each, is needed"
        )
    return tuple(rates)


def check_prior(design: Design, prior: Prior) -> None:
    """Refuse a prior of another number of clients.

    Raises:
        ShapeError: With both numbers.
    """
    if isinstance(prior, CountPrior):
        if len(prior.weights) > design.clients + 1:
            raise ShapeError(
                f"the prior allows {len(prior.weights) - 1} malicious clients, the design has only {design.clients}"
            )
    elif len(prior.prevalence) != design.clients:
        raise ShapeError(f"{len(prior.prevalence)} prevalences for a design with {design.clients} clients")


def check_outcomes(values: npt.NDArray[np.int8], design: Design) -> npt.NDArray[np.int8]:
    """int8[B, groups], checked.

    Raises:
        ShapeError: If the shape or a value does not fit.
    """
    array = as_array(values, "outcomes")
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ShapeError(
            f"outcomes of dtype {array.dtype} and shape {array.shape}; [vectors, {design.groups} groups] is needed"
        )
    if array.shape[1] != design.groups:
        given = array.shape[1]
        raise ShapeError(
            f"{given} outcomes for a design with {design.groups} groups; one per group is needed "
            "(? or -1 for a group without an outcome)"
        )
    if not np.isin(array, (0, 1, -1)).all():
        raise ShapeError("outcomes are 0 (negative), 1 (positive) or -1 (erased)")
    return array.astype(np.int8)


def count_log_weights(prior: CountPrior, clients: int) -> FloatArray:
    """float64[n_max + 1]: log probability of one particular set of each size."""
    ways = np.array([log(comb(clients, q)) for q in range(len(prior.weights))])
    weights: FloatArray = log_or_minus_infinity(prior.weights) - ways
    return weights


def schedule_of(matrix: BitArray, caps: IntArray, name: str) -> Schedule:
    """The schedule of a matrix, remembered: laying it out costs more than a pass."""
    return _schedule(matrix.astype(np.uint8).tobytes(), matrix.shape, tuple(caps.tolist()), name)


@lru_cache(maxsize=128)
def _schedule(matrix: bytes, shape: tuple[int, int], caps: tuple[int, ...], name: str) -> Schedule:
    array = np.frombuffer(matrix, dtype=np.uint8).reshape(shape)
    return make_schedule(array, np.array(caps, dtype=np.int64), name=name)


def with_count_group(matrix: BitArray, caps: IntArray, prior: Prior) -> tuple[BitArray, IntArray, FloatArray | None]:
    """A count prior as one more group, of everybody: its likelihood at count q is the probability of one set of size q.

    The cap is one above n_max, with likelihood 0 there, unless n_max is everybody.
    """
    if not isinstance(prior, CountPrior):
        return matrix, caps, None
    n = matrix.shape[1]
    cap = min(len(prior.weights), n)
    likelihood = np.full(cap + 1, -np.inf)
    likelihood[: len(prior.weights)] = count_log_weights(prior, n)
    everybody = np.ones((1, n), dtype=np.uint8)
    return np.concatenate([matrix, everybody]), np.append(caps, cap), likelihood


def log_prior(clients: int, prior: Prior) -> tuple[FloatArray, FloatArray]:
    """float64[clients] twice: log P(benign) and log P(malicious); zeros under a count prior, which is a group of its own."""
    if isinstance(prior, CountPrior):
        return np.zeros(clients), np.zeros(clients)
    return log_or_minus_infinity(1.0 - prior.prevalence), log_or_minus_infinity(prior.prevalence)
