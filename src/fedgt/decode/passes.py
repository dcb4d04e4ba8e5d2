"""The forward and the backward pass over a schedule of `fedgt.decode.frontier`, and what both give together.

A client changes only the states in which all its groups have a malicious member. The forward pass works in place and keeps
those as they were, so that the way back has every metric again without storing it.

Plain probabilities are used while it is certain that nothing underflows (every positive entry is watched); otherwise the
same pass runs in logarithms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from fedgt.decode.frontier import Schedule, Step, closed, expanded, folded, opened, reached, reopened
from fedgt.decode.semiring import LINEAR, LOG, Semiring
from fedgt.types import BoolArray, FloatArray, IntArray

_SMALLEST = 1e-140  # positive metrics stay above it, so that the product of two is a normal number
_UNCHECKED = 1e-60  # entries are looked at when they may have shrunk by this much
_STEP = 1e-150  # and no unchecked run of steps may shrink them by more than this


class UnderflowRiskError(Exception):
    """Plain probabilities might underflow here: run the pass in logarithms."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Passes:
    """What forward and backward give together.

    Attributes:
        log_odds: float64[B, clients]: log P(benign, t) - log P(malicious, t), NaN where P(t) = 0.
        log_evidence: float64[B]: log P(t), -inf where the outcomes contradict each other.
        counts: float64[B, cap + 1]: P(count | t) of the group asked for; empty when none was.
    """

    log_odds: FloatArray
    log_evidence: FloatArray
    counts: FloatArray


def forward_backward_passes(
    schedule: Schedule,
    log_likelihoods: Sequence[FloatArray],
    log_stay: FloatArray,
    log_move: FloatArray,
    *,
    count_of: int | None = None,
) -> Passes:
    """Both passes, in plain probabilities where that is safe, else in logarithms.

    Args:
        schedule: Of n clients.
        log_likelihoods: For each group float64[B, cap + 1], log P(observation | count).
        log_stay: float64[clients], log P(benign).
        log_move: float64[clients], log P(malicious).
        count_of: A group that contains every client: the posterior of its count is wanted.
    """
    try:
        return _passes(schedule, log_likelihoods, log_stay, log_move, LINEAR, count_of)
    except UnderflowRiskError:
        return _passes(schedule, log_likelihoods, log_stay, log_move, LOG, count_of)


class _Scale:
    """Keeps plain probabilities in range: scales by powers of two, remembers them, and watches the smallest entry."""

    def __init__(self, rows: int, ring: Semiring) -> None:
        self.exponents = np.zeros(rows, dtype=np.int64)
        self._linear = ring.name == "linear"
        self._budget = self._growth = 1.0

    def checked(self, metric: FloatArray, smallest: float, largest: float, *, now: bool = False) -> IntArray | None:
        """Rescales in place when it is time, and says by which powers of two each row was divided.

        Args:
            metric: [B, states].
            smallest: What positive entries may have been, or may be until the next call, multiplied by at least.
            largest: What they may grow by at most.
            now: It is time.
        """
        if not self._linear:
            return None
        if smallest < _STEP:
            raise UnderflowRiskError
        self._budget *= smallest
        self._growth *= largest
        if not now and self._budget > _UNCHECKED and self._growth < 1 / _UNCHECKED:
            return None
        if self._budget < _STEP:
            raise UnderflowRiskError
        peak = metric.max(axis=1)
        exponents = np.where(peak > 0, np.frexp(peak)[1], 0).astype(np.int64)
        np.multiply(metric, np.ldexp(1.0, -exponents)[:, None], out=metric)
        if ((metric > 0) & (metric < _SMALLEST)).any():
            raise UnderflowRiskError
        self.exponents = self.exponents + exponents  # the old ones are kept in traces
        self._budget, self._growth = smallest, 1.0  # what may still follow
        return exponents


@dataclass(slots=True, kw_only=True)
class _Trace:
    """What a step of the forward pass leaves, to take it back.

    Attributes:
        exponents: The powers of two that the metric was divided by before the client.
        scale: All of them until then.
        corner: The states that the client has changed, as they were; all states for a client that is certainly malicious.
        fold: What was added there, if it is small.
        after: The metric with the client, if groups closed after it.
    """

    exponents: IntArray | None
    scale: IntArray
    corner: FloatArray
    fold: FloatArray | None
    after: FloatArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Factors:
    """What the passes multiply by. Every client has its odds, so that nothing is multiplied where it changes nothing.

    Attributes:
        likelihoods: For each group [B, cap + 1], the largest of each row is one.
        log_weight: float64[clients]: log of the odds of each client, or of P(malicious) if that is certain.
        weight: The same in the arithmetic.
        certain: bool[clients].
        smallest: For each step what it multiplies a positive metric by at least.
        largest: For each step what metrics grow by at most.
    """

    likelihoods: Sequence[FloatArray]
    log_weight: FloatArray
    weight: FloatArray
    certain: BoolArray
    smallest: Sequence[float]
    largest: Sequence[float]


def _passes(
    schedule: Schedule,
    log_likelihoods: Sequence[FloatArray],
    log_stay: FloatArray,
    log_move: FloatArray,
    ring: Semiring,
    count_of: int | None,
) -> Passes:
    rows = len(log_likelihoods[0]) if log_likelihoods else 1
    peaks = [values.max(axis=1, keepdims=True) for values in log_likelihoods]
    safe = [np.where(np.isfinite(peak), peak, 0.0) for peak in peaks]
    likelihoods = [ring.from_log(values - peak) for values, peak in zip(log_likelihoods, safe, strict=True)]
    certain = np.isneginf(log_stay)
    factors = _factors(schedule, likelihoods, log_move - np.where(certain, 0.0, log_stay), certain, ring)
    traces, metric, exponents, counts = _forward(schedule, factors, rows, ring, count_of)
    total = metric[:, 0].copy()
    with np.errstate(divide="ignore"):
        logs = exponents * np.log(2.0) + np.log(total) if ring.name == "linear" else total
    evidence = sum((peak[:, 0] for peak in safe), log_stay[~certain].sum() + logs)
    log_odds = _backward(schedule, factors, traces, metric, exponents, ring)
    log_odds[~np.isfinite(evidence)] = np.nan
    return Passes(log_odds=log_odds, log_evidence=evidence, counts=counts)


def _forward(
    schedule: Schedule, factors: _Factors, rows: int, ring: Semiring, count_of: int | None
) -> tuple[list[_Trace], FloatArray, IntArray, FloatArray]:
    """Traces of all steps, the last metric [B, 1] and its scale, and P(count | t) of the group asked for."""
    counts = np.empty((rows, 0))
    traces: list[_Trace] = []
    scale = _Scale(rows, ring)
    metric = np.full((rows, 1), ring.one)
    for step, low, high in zip(schedule.steps, factors.smallest, factors.largest, strict=True):
        metric = opened(metric, step, ring)
        exponents = scale.checked(metric, low, high)
        fold = folded(metric, step, ring)
        target = reached(metric, step)
        certain = factors.certain[step.client]
        trace = _Trace(
            exponents=exponents,
            scale=scale.exponents,
            corner=(metric if certain else target).copy(),
            fold=fold if 4 * fold.size <= metric.size else None,
        )
        moved = ring.times(fold.reshape(target.shape), factors.weight[step.client])
        if certain:
            metric[...] = ring.zero
        ring.add(target, moved, out=target)
        if count_of is not None and step is schedule.steps[-1]:
            counts = _count_posterior(metric, step, factors.likelihoods, ring, count_of)
        if step.closed:
            trace.after = metric
            metric = closed(metric, step, factors.likelihoods, ring)
        traces.append(trace)
    scale.checked(metric, 1.0, 1.0, now=True)
    return traces, metric, scale.exponents, counts


def _backward(
    schedule: Schedule, factors: _Factors, traces: list[_Trace], last: FloatArray, exponents: IntArray, ring: Semiring
) -> FloatArray:
    """float64[B, clients]: log odds; the traces are used up."""
    rows, total = len(last), last[:, 0].copy()
    log_odds = np.empty((rows, len(factors.weight)))
    scale = _Scale(rows, ring)
    metric, forward = np.full((rows, 1), ring.one), last
    for step, low, high in reversed(list(zip(schedule.steps, factors.smallest, factors.largest, strict=True))):
        trace, certain, weight = traces.pop(), factors.certain[step.client], factors.weight[step.client]
        forward = forward if trace.after is None else trace.after
        changed = forward if certain else reached(forward, step)
        changed[...] = trace.corner
        metric = reopened(metric, step, factors.likelihoods, ring)
        scale.checked(metric, low, high)
        target = reached(metric, step).reshape(rows, -1)
        fold = folded(forward, step, ring) if trace.fold is None else trace.fold
        whole = np.ldexp(total, exponents - trace.scale - scale.exponents) if ring.name == "linear" else None
        benign, malicious = _two_sums(forward, metric, fold, target, ring, weight, whole)
        with np.errstate(invalid="ignore"):  # inf - inf where the outcomes are impossible
            log_odds[:, step.client] = benign - (malicious + factors.log_weight[step.client])
        if certain:
            log_odds[:, step.client] = -np.inf
            metric = ring.times(expanded(target, step.axes), weight)
        else:
            _add_moved(metric, ring.times(target, weight), step, ring)
        if trace.exponents is not None:
            np.multiply(forward, np.ldexp(1.0, trace.exponents)[:, None], out=forward)
        if step.radices:
            fewer = metric.shape[1] // prod(step.radices)
            metric, forward = np.ascontiguousarray(metric[:, :fewer]), np.ascontiguousarray(forward[:, :fewer])
    return log_odds


def _add_moved(metric: FloatArray, target: FloatArray, step: Step, ring: Semiring) -> None:
    """Add to the metric the value at the state that each state moves to: `expanded`, without its last copy."""
    rows = metric.shape[0]
    if not step.axes:
        ring.add(metric, target, out=metric)
        return
    (stride, radix), *others = step.axes
    fewer = expanded(target, others).reshape(rows, -1, radix - 1, stride)
    view = metric.reshape(rows, -1, radix, stride)
    ring.add(view[:, :, : radix - 1], fewer, out=view[:, :, : radix - 1])
    ring.add(view[:, :, radix - 1], fewer[:, :, radix - 2], out=view[:, :, radix - 1])


def _count_posterior(
    metric: FloatArray, step: Step, likelihoods: Sequence[FloatArray], ring: Semiring, group: int
) -> FloatArray:
    """float64[B, cap + 1]: P(count of the group | t), at the last client, where every group is about to close."""
    rows = metric.shape[0]
    for other, stride, radix in step.closed:
        if other != group:  # everything that is open closes at the last client; the others are summed out
            view = metric.reshape(rows, -1, radix, stride)
            weighted = ring.times(view, likelihoods[other][:, None, :, None])
            metric = ring.add.reduce(weighted, axis=2).reshape(rows, -1)
    total = ring.times(metric, likelihoods[group])
    if ring.name != "linear":
        largest = total.max(axis=1, keepdims=True)
        total = np.exp(total - np.where(np.isfinite(largest), largest, 0.0))
    sums = total.sum(axis=1, keepdims=True)
    posterior: FloatArray = np.divide(total, sums, out=np.full(total.shape, np.nan), where=sums > 0)
    return posterior


def _two_sums(
    forward: FloatArray,
    backward: FloatArray,
    fold: FloatArray,
    target: FloatArray,
    ring: Semiring,
    weight: float,
    whole: FloatArray | None,
) -> tuple[FloatArray, FloatArray]:
    """float64[B] twice: logarithms of the total over all states with the client benign, and malicious (not weighted).

    Both together, the second weighted, are `whole`: the first is what is left of it, unless little is.
    """
    if whole is None:
        return ring.total(forward + backward), ring.total(fold + target)
    malicious = np.einsum("bs,bs->b", fold, target)
    benign = whole - weight * malicious
    if (2.0 * benign < whole).any():
        benign = np.einsum("bs,bs->b", forward, backward)
    if min(benign.min(), malicious.min()) < _SMALLEST**2:  # impossible, or products that vanished: logarithms tell
        raise UnderflowRiskError
    return np.log(benign), np.log(malicious)


def _factors(
    schedule: Schedule, likelihoods: Sequence[FloatArray], log_weight: FloatArray, certain: BoolArray, ring: Semiring
) -> _Factors:
    smallest = largest = [1.0] * len(schedule.steps)
    if ring.name == "linear":
        lows = [float(values[values > 0].min(initial=1.0)) for values in likelihoods]
        odds = [1.0 if log == -np.inf else float(np.exp(np.clip(log, -700.0, 700.0))) for log in log_weight]
        smallest = [
            min(1.0, odds[step.client]) * prod(lows[group] for group, _, _ in step.closed) for step in schedule.steps
        ]
        largest = [1.0 + odds[step.client] for step in schedule.steps]
    return _Factors(
        likelihoods=likelihoods,
        log_weight=log_weight,
        weight=ring.from_log(log_weight),
        certain=certain,
        smallest=smallest,
        largest=largest,
    )
