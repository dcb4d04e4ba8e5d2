"""Exact forward-backward with a state for the *open* groups only: O(n 2^w), w the most groups open at once.

The trellis of the paper (section IV.C) has a state bit for every group. A group matters only between its first member (it
opens: a new coordinate, at 0) and its last (it closes: its likelihood is multiplied in and the coordinate summed out).
The coordinate of a group counts its malicious members up to a cap; cap 1 is the OR of the paper, larger caps serve groups
that report counts. A prior on the number of malicious clients is one more group, of everybody. States lie in one
contiguous vector, mixed radix, the latest group slowest; a malicious client moves every one of its coordinates up by one,
which is a few contiguous additions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedgt.decode.ordering import client_order
from fedgt.decode.semiring import MAX, Semiring
from fedgt.errors import DesignError
from fedgt.types import BitArray, FloatArray, IntArray

MAX_METRICS = 1 << 28
"""Metrics of all depths together (2 GiB of float64, of which most are not kept); a wider trellis is refused."""


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


def expanded(target: FloatArray, axes: Sequence[tuple[int, int]]) -> FloatArray:
    """[B, states] from [B, targets]: the value at the state that each state moves to when the client is malicious."""
    rows = target.shape[0]
    for stride, radix in reversed(axes):
        view = target.reshape(rows, -1, radix - 1, stride)
        # Counts 0..cap-2 move up by one; the cap stays at the cap.
        target = np.concatenate([view, view[:, :, -1:]], axis=2).reshape(rows, -1)
    return target


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
        metric = MAX.add(metric + log_stay[step.client], expanded(target, step.axes) + log_move[step.client])
        for radix in reversed(step.radices):
            metric = metric[:, : metric.shape[1] // radix]
        values.append(metric[0])
    return values[::-1]
