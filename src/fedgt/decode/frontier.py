"""Exact forward-backward with a state for the *open* groups only: O(n 2^w), w the most groups open at once.

The trellis of the paper (section IV.C) has a state bit for every group. A group matters only between its first member (it
opens: a new coordinate, at 0) and its last (it closes: its likelihood is multiplied in and the coordinate summed out).
The coordinate of a group counts its malicious members up to a cap; cap 1 is the OR of the paper, larger caps serve groups
that report counts. A prior on the number of malicious clients is one more group, of everybody. States lie in one
contiguous vector, mixed radix, the latest group slowest; a malicious client moves every one of its coordinates up by one,
which is a few contiguous additions.

Plain probabilities are used while it is certain that nothing underflows (every positive entry is watched); otherwise the
same pass runs in logarithms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedgt.decode.ordering import client_order
from fedgt.decode.semiring import LINEAR, LOG, MAX, Semiring
from fedgt.errors import DesignError
from fedgt.types import BitArray, FloatArray, IntArray

MAX_METRICS = 1 << 28
"""Forward metrics kept at once (2 GiB of float64); a wider trellis is refused with the arithmetic."""

_SMALLEST = 1e-140  # positive metrics stay above it, so that the product of two is a normal number
_UNCHECKED = 1e-60  # entries are looked at when they may have shrunk by this much
_STEP = 1e-150  # and no unchecked run of steps may shrink them by more than this


class UnderflowRiskError(Exception):
    """Plain probabilities might underflow here: run the pass in logarithms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What happens at one client.

    Attributes:
        client: Its number.
        opened: Groups that open before it, each becoming the slowest coordinate in turn.
        radices: Their numbers of counts.
        axes: (stride, radix) of the client's groups, slowest first.
        closed: (group, stride, radix) of the groups that close after it, slowest first.
        states: The number of states while the client is decoded.
    """

    client: int
    opened: tuple[int, ...]
    radices: tuple[int, ...]
    axes: tuple[tuple[int, int], ...]
    closed: tuple[tuple[int, int, int], ...]
    states: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The whole pass: which client when, and what opens and closes.

    Attributes:
        steps: One per client.
        width: w, the most groups open at once.
        largest: The most states at once.
        metrics: The states of all depths together: what one decoded outcome stores.
    """

    steps: tuple[Step, ...]
    width: int
    largest: int
    metrics: int


def make_schedule(matrix: BitArray, caps: IntArray, *, order: IntArray | None = None, name: str = "") -> Schedule:
    """Lay the pass out.

    Args:
        matrix: uint8[groups, clients]; every group has a member.
        caps: int64[groups], each from 1 to the size of the group.
        order: int64[clients]; chosen for few states when not given.
        name: Of the design, for messages.

    Raises:
        DesignError: If the pass would store more than `MAX_METRICS` metrics.
    """
    chosen = client_order(matrix, caps) if order is None else order
    last = {group: int(np.flatnonzero(matrix[group, chosen])[-1]) for group in range(len(matrix))}
    radix = {group: int(caps[group]) + 1 for group in range(len(matrix))}
    axes: list[int] = []
    steps: list[Step] = []
    metrics = width = largest = 0
    for position, client in enumerate(chosen.tolist()):
        groups = np.flatnonzero(matrix[:, client]).tolist()
        opened = [group for group in groups if group not in axes]
        axes += opened
        strides = _strides(axes, radix)
        states = 1
        for group in axes:
            states *= radix[group]
        metrics, width, largest = metrics + states, max(width, len(axes)), max(largest, states)
        if metrics > MAX_METRICS:
            raise DesignError(
                f"design {name!r}: an exact decoder needs more than {MAX_METRICS} metrics ({len(axes)} groups are open at "
                f"client {client}, {states} states); use a design with fewer open groups, or belief propagation by name"
            )
        slowest_first = sorted(groups, key=lambda group: -strides[group])
        closing = sorted((group for group in axes if last[group] == position), key=lambda group: -strides[group])
        steps.append(
            Step(
                client=client,
                opened=tuple(opened),
                radices=tuple(radix[group] for group in opened),
                axes=tuple((strides[group], radix[group]) for group in slowest_first),
                closed=tuple((group, strides[group], radix[group]) for group in closing),
                states=states,
            )
        )
        axes = [group for group in axes if group not in closing]
    return Schedule(steps=tuple(steps), width=width, largest=largest, metrics=metrics)


def _strides(axes: Sequence[int], radix: dict[int, int]) -> dict[int, int]:
    strides, stride = {}, 1
    for group in axes:
        strides[group] = stride
        stride *= radix[group]
    return strides


def opened(metric: FloatArray, step: Step, ring: Semiring) -> FloatArray:
    """[B, states]: new coordinates at count 0."""
    for radix in step.radices:
        fresh = np.full((metric.shape[0], metric.shape[1] * radix), ring.zero)
        fresh[:, : metric.shape[1]] = metric
        metric = fresh
    return metric


def folded(metric: FloatArray, step: Step, ring: Semiring) -> FloatArray:
    """[B, targets]: where the mass goes when the client is malicious, on the states that it can reach (counts >= 1)."""
    rows = metric.shape[0]
    for stride, radix in step.axes:
        view = metric.reshape(rows, -1, radix, stride)
        if radix == 2:
            metric = ring.add(view[:, :, 0], view[:, :, 1]).reshape(rows, -1)
        else:
            shorter = view[:, :, : radix - 1].copy()
            shorter[:, :, radix - 2] = ring.add(shorter[:, :, radix - 2], view[:, :, radix - 1])
            metric = shorter.reshape(rows, -1)
    return metric


def reached(metric: FloatArray, step: Step) -> FloatArray:
    """A view [B, ...] of the states with count >= 1 in every group of the client, in the order of `folded`."""
    shape, inner = [metric.shape[0]], metric.shape[1]
    for stride, radix in step.axes:
        shape += [inner // (radix * stride), radix]
        inner = stride
    shape.append(inner)
    view = metric.reshape(shape)
    index = tuple([slice(None)] + [slice(None), slice(1, None)] * len(step.axes) + [slice(None)])
    return view[index]


def expanded(target: FloatArray, step: Step) -> FloatArray:
    """[B, states] from [B, targets]: the value at the state that each state moves to when the client is malicious."""
    rows = target.shape[0]
    for stride, radix in reversed(step.axes):
        view = target.reshape(rows, -1, radix - 1, stride)
        # Counts 0..cap-2 move up by one; the cap stays at the cap.
        target = np.concatenate([view, view[:, :, -1:]], axis=2).reshape(rows, -1)
    return target


def inserted(metric: FloatArray, fold: FloatArray, step: Step, stay: float, move: float, ring: Semiring) -> FloatArray:
    """[B, states]: the sum of the client being benign and being malicious."""
    result: FloatArray = ring.times(metric, stay)
    target = reached(result, step)
    target[...] = ring.add(target, ring.times(fold.reshape(target.shape), move))
    return result


def closed(metric: FloatArray, step: Step, likelihoods: Sequence[FloatArray], ring: Semiring) -> FloatArray:
    """[B, states left]: likelihoods multiplied in, coordinates summed out."""
    rows = metric.shape[0]
    for group, stride, radix in step.closed:
        view = metric.reshape(rows, -1, radix, stride)
        factor = likelihoods[group][:, None, :, None]
        weighted = ring.times(view, factor)
        metric = (
            ring.add(weighted[:, :, 0], weighted[:, :, 1]) if radix == 2 else ring.add.reduce(weighted, axis=2)
        ).reshape(rows, -1)
    return metric


def reopened(metric: FloatArray, step: Step, likelihoods: Sequence[FloatArray], ring: Semiring) -> FloatArray:
    """The mirror of `closed`, for the backward pass."""
    rows = metric.shape[0]
    for group, stride, _ in reversed(step.closed):
        view = metric.reshape(rows, -1, 1, stride)
        metric = ring.times(view, likelihoods[group][:, None, :, None]).reshape(rows, -1)
    return metric


def best_completions(
    schedule: Schedule, log_likelihoods: Sequence[FloatArray], log_stay: FloatArray, log_move: FloatArray
) -> list[FloatArray]:
    """For every depth, float64[states]: the log-probability of the best way to finish from each state.

    Element d belongs to the states before step d; the last element is the end. One observation only (B = 1).
    """
    metric = np.full((1, 1), MAX.one)
    values = [metric[0]]
    for step in reversed(schedule.steps):
        metric = reopened(metric, step, log_likelihoods, MAX)
        target = reached(metric, step).reshape(1, -1)
        metric = MAX.add(metric + log_stay[step.client], expanded(target, step) + log_move[step.client])
        for radix in reversed(step.radices):
            metric = metric[:, : metric.shape[1] // radix]
        values.append(metric[0])
    return values[::-1]


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
    """Keeps plain probabilities in range: divides by the largest entry, remembers by how much, and watches the smallest."""

    def __init__(self, rows: int, ring: Semiring, smallest_factor: float) -> None:
        self.log = np.zeros(rows)
        self._linear = ring.name == "linear"
        self._factor = smallest_factor
        self._budget = self._growth = 1.0
        if self._linear and smallest_factor < _STEP:
            raise UnderflowRiskError

    def checked(self, metric: FloatArray, factors: int, *, now: bool = False) -> FloatArray:
        """Rescaled when it is time; up to `factors` multiplications were made since, or follow before the next call."""
        if not self._linear:
            return metric
        self._budget *= self._factor**factors
        self._growth *= 2.0  # benign and malicious add up; under a count prior both have weight 1
        if not now and self._budget > _UNCHECKED and self._growth < 1 / _UNCHECKED:
            return metric
        largest = metric.max(axis=1, keepdims=True)
        np.copyto(largest, 1.0, where=largest <= 0)
        metric = metric / largest
        if ((metric > 0) & (metric < _SMALLEST)).any() or self._budget < _STEP:
            raise UnderflowRiskError
        self.log += np.log(largest[:, 0])
        self._budget = self._factor**factors  # those that may still follow
        self._growth = 1.0
        return metric


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
    evidence = sum((peak[:, 0] for peak in safe), np.zeros(rows))
    stay, move = ring.from_log(log_stay), ring.from_log(log_move)
    smallest = _smallest_factor(log_likelihoods, log_stay, log_move)
    kept: list[FloatArray] = []
    counts = np.empty((rows, 0))
    scale = _Scale(rows, ring, smallest)
    metric = np.full((rows, 1), ring.one)
    for step in schedule.steps:
        metric = opened(metric, step, ring)
        metric = scale.checked(metric, 1 + len(step.closed))
        kept.append(metric)
        fold = folded(metric, step, ring)
        metric = inserted(metric, fold, step, stay[step.client], move[step.client], ring)
        if count_of is not None and step is schedule.steps[-1]:
            counts = _count_posterior(metric, step, likelihoods, ring, count_of)
        metric = closed(metric, step, likelihoods, ring)
    metric = scale.checked(metric, 0, now=True)
    total = metric[:, 0]
    with np.errstate(divide="ignore"):
        evidence = evidence + scale.log + (np.log(total) if ring.name == "linear" else total)

    log_odds = np.empty((rows, len(log_stay)))
    scale = _Scale(rows, ring, smallest)
    metric = np.full((rows, 1), ring.one)
    for step, forward in zip(reversed(schedule.steps), reversed(kept), strict=True):
        metric = reopened(metric, step, likelihoods, ring)
        metric = scale.checked(metric, 1 + len(step.closed))
        target = reached(metric, step).reshape(rows, -1)
        benign, malicious = _two_sums(forward, metric, folded(forward, step, ring), target, ring)
        with np.errstate(invalid="ignore"):  # inf - inf where the outcomes are impossible
            log_odds[:, step.client] = (benign + log_stay[step.client]) - (malicious + log_move[step.client])
        metric = ring.add(ring.times(metric, stay[step.client]), ring.times(expanded(target, step), move[step.client]))
        for radix in reversed(step.radices):
            metric = metric[:, : metric.shape[1] // radix]
    log_odds[~np.isfinite(evidence)] = np.nan
    return Passes(log_odds=log_odds, log_evidence=evidence, counts=counts)


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
    forward: FloatArray, backward: FloatArray, fold: FloatArray, target: FloatArray, ring: Semiring
) -> tuple[FloatArray, FloatArray]:
    """float64[B] twice: logarithms of the total over all states with the client benign, and malicious."""
    if ring.name != "linear":
        return ring.total(forward + backward), ring.total(fold + target)
    benign = np.einsum("bs,bs->b", forward, backward)
    malicious = np.einsum("bs,bs->b", fold, target)
    if min(benign.min(), malicious.min()) < _SMALLEST**2:  # impossible, or products that vanished: logarithms tell
        raise UnderflowRiskError
    return np.log(benign), np.log(malicious)


def _smallest_factor(log_likelihoods: Sequence[FloatArray], log_stay: FloatArray, log_move: FloatArray) -> float:
    """The smallest positive factor that one step can multiply a metric by."""
    with np.errstate(invalid="ignore"):
        parts = [log_stay, log_move, *(values - values.max(axis=1, keepdims=True) for values in log_likelihoods)]
    lows = [float(part[np.isfinite(part)].min()) for part in parts if np.isfinite(part).any()]
    return float(np.exp(max(min([*lows, 0.0]), -700.0)))
