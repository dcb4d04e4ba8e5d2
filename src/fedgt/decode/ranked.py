"""The most probable *sets* of malicious clients, one after the other, exactly.

The best completion of every trellis state is known from one backward pass in the max-plus semiring. With it as the
heuristic, best-first search visits complete sets in falling order of probability, whatever the size of the design. Bounds
that differ by rounding only count as equal and the deeper node goes first, so that ties do not fan out: about (number of
sets) x (number of clients) nodes are opened.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from fedgt.decode.compiled import (
    Rates,
    check_outcomes,
    check_prior,
    forward_backward,
    log_outcome_likelihood,
    log_prior,
    per_group,
    schedule_of,
    with_count_group,
)
from fedgt.decode.frontier import Step, best_completions
from fedgt.decode.priors import Prior
from fedgt.design import Design
from fedgt.errors import SpecError
from fedgt.types import FloatArray, Outcomes, as_count


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedSet:
    """One explanation of the outcomes.

    Attributes:
        clients: The malicious clients of this explanation, ascending.
        probability: P(exactly these are malicious | t).

    Examples:
        >>> from fedgt.decode import RankedSet
        >>> RankedSet(clients=(2, 5), probability=0.75)
        RankedSet(clients=(2, 5), probability=0.75)
    """

    clients: tuple[int, ...]
    probability: float


def ranked_sets(
    design: Design, outcomes: Outcomes, rates: Rates, prior: Prior, *, count: int = 10
) -> tuple[RankedSet, ...]:
    """The `count` most probable sets, most probable first; sets within 1e-9 nats are tied, in a fixed order.

    Fewer are returned when fewer are possible. The first is the maximum a posteriori set.

    Raises:
        SpecError: If count is below 1.
        ShapeError, DesignError, ContradictoryOutcomesError: As `forward_backward`.

    Examples:
        >>> from fedgt import ErrorRates, Outcomes, from_matrix
        >>> from fedgt.decode import CountPrior, ranked_sets
        >>> design = from_matrix([[1, 1, 0], [0, 1, 1]])
        >>> ranked = ranked_sets(design, Outcomes.parse("11"), ErrorRates.symmetric(0.05), CountPrior.uniform(2), count=2)
        >>> [one.clients for one in ranked]
        [(1,), (1, 2)]
    """
    if as_count(count, "count") < 1:
        raise SpecError(f"count = {count} sets; at least 1 is needed")
    check_prior(design, prior)
    evidence = forward_backward(design, outcomes, rates, prior).log_evidence
    matrix, caps, extra = with_count_group(design.matrix, np.ones(design.groups, dtype=np.int64), prior)
    values = check_outcomes(outcomes.values[None], design)
    likelihoods = [log_outcome_likelihood(values[:, g], pair) for g, pair in enumerate(per_group(rates, design))]
    if extra is not None:
        likelihoods.append(extra[None])
    schedule = schedule_of(matrix, caps, design.name)
    log_stay, log_move = log_prior(design.clients, prior)
    best = best_completions(schedule, likelihoods, log_stay, log_move)
    factors = [vector[0] for vector in likelihoods]

    # (-(done + best to come), -depth, state, done, clients so far); the tuple of clients breaks ties reproducibly.
    heap: list[tuple[float, int, int, float, tuple[int, ...]]] = [(_key(float(best[0][0])), 0, 0, 0.0, ())]
    found: list[RankedSet] = []
    while heap and len(found) < count:
        bound, negative_depth, state, done, clients = heapq.heappop(heap)
        depth = -negative_depth
        if bound == np.inf:
            break
        if depth == len(schedule.steps):
            found.append(RankedSet(clients=tuple(sorted(clients)), probability=float(np.exp(done - evidence))))
            continue
        step = schedule.steps[depth]
        for malicious in (False, True):
            prior_cost = (log_move if malicious else log_stay)[step.client]
            target, gained = _moved(state, step, factors, malicious=malicious)
            score = done + float(prior_cost) + gained
            ahead = score + float(best[depth + 1][target])
            if ahead > -np.inf:
                chosen = (*clients, step.client) if malicious else clients
                heapq.heappush(heap, (_key(ahead), -(depth + 1), target, score, chosen))
    return tuple(sorted(found, key=lambda one: -one.probability))


def _key(bound: float) -> float:
    return round(-bound, 9)


def _moved(state: int, step: Step, factors: list[FloatArray], *, malicious: bool) -> tuple[int, float]:
    """The state after one client, and the likelihood of the groups that closed."""
    if malicious:
        for stride, radix in step.axes:
            if state // stride % radix < radix - 1:
                state += stride
    gained = 0.0
    for group, stride, radix in step.closed:
        gained += float(factors[group][state // stride % radix])
        state = state // (stride * radix) * stride + state % stride
    return state, gained
