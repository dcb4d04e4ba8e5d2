"""Which decoder: the exact one, or belief propagation by name or where the exact one does not fit into memory."""

import numpy as np

from fedgt.decode.belief import BeliefPropagation
from fedgt.decode.compiled import (
    METHODS,
    CompiledDecoder,
    ExactDecoder,
    Method,
    Posterior,
    Rates,
    check_prior,
    counts_of,
    log_prior,
    schedule_of,
    with_count_group,
)
from fedgt.decode.frontier import forward_backward_passes
from fedgt.decode.priors import Prior
from fedgt.design import Design
from fedgt.errors import ContradictoryOutcomesError, DesignError, ShapeError, SpecError
from fedgt.types import CountLikelihoods, ErrorRates, FloatArray, frozen


def compile(design: Design, rates: Rates, prior: Prior, *, method: Method = "exact") -> CompiledDecoder:
    """Prepare a decoder.

    Args:
        design: m groups of n clients; for outcomes of several rounds, stack the designs (`stacked`).
        rates: Q(t_i | s_i), for all groups or one for each.
        prior: What is believed about the clients before the tests.
        method: `exact`; `belief-propagation`; `auto` (exact, or belief propagation where that would not fit into memory:
            the decoder's `method` and every answer's status say which).

    Raises:
        SpecError: If the method is unknown.
        ShapeError: If rates or prior do not fit the design.
        DesignError: If an exact decoder does not fit into memory.
    """
    if method not in METHODS:
        raise SpecError(f"unknown decoding method {method!r}; known are {', '.join(METHODS)}")
    if method == "belief-propagation":
        return BeliefPropagation(design, rates, prior)
    try:
        return ExactDecoder(design, rates, prior)
    except DesignError:
        if method == "exact":
            raise
        return BeliefPropagation(design, rates, prior)


def decode_counts(design: Design, evidence: CountLikelihoods, prior: Prior, *, method: Method = "exact") -> Posterior:
    """Decode groups that answer with counts instead of one bit; the state then counts, for open groups only.

    A group whose likelihood no longer changes from some count on ("at least q") is counted only that far.

    Args:
        design: m groups of n clients.
        evidence: One likelihood vector per group, size + 1 long.
        prior: What is believed about the clients before the tests.
        method: As for `compile`.

    Raises:
        ShapeError: If the evidence does not fit the design.
        DesignError: If the states do not fit into memory (`method = "exact"`).
        ContradictoryOutcomesError: If the evidence is impossible.
    """
    if method not in METHODS:
        raise SpecError(f"unknown decoding method {method!r}; known are {', '.join(METHODS)}")
    check_prior(design, prior)
    lengths = [len(vector) - 1 for vector in evidence.log_likelihood]
    if lengths != design.group_sizes.tolist():
        raise ShapeError(f"likelihoods for groups of {lengths} members, the design has {design.group_sizes.tolist()}")
    if method == "belief-propagation":
        return BeliefPropagation(design, ErrorRates.symmetric(0.0), prior).decode_counts(evidence)
    caps = np.array([_cap(vector) for vector in evidence.log_likelihood], dtype=np.int64)
    matrix, all_caps, extra = with_count_group(design.matrix, caps, prior)
    try:
        schedule = schedule_of(matrix, all_caps, design.name)
    except DesignError:
        if method == "exact":
            raise
        return BeliefPropagation(design, ErrorRates.symmetric(0.0), prior).decode_counts(evidence)
    likelihoods = [vector[None, : cap + 1] for vector, cap in zip(evidence.log_likelihood, caps, strict=True)]
    if extra is not None:
        likelihoods.append(extra[None])
    stay, move = log_prior(design.clients, prior)
    passes = forward_backward_passes(
        schedule, likelihoods, stay, move, count_of=None if extra is None else len(likelihoods) - 1
    )
    if passes.log_evidence[0] == -np.inf:
        raise ContradictoryOutcomesError("the counts contradict each other: no set of malicious clients explains them")
    return Posterior(
        log_odds=frozen(passes.log_odds[0], np.float64),
        log_evidence=float(passes.log_evidence[0]),
        count=frozen(counts_of(passes.counts, prior)[0], np.float64),
    )


def _cap(vector: FloatArray) -> int:
    """The smallest count from which on the likelihood is constant, at least 1."""
    different = np.flatnonzero(vector != vector[-1])
    return max(1, int(different[-1]) + 1 if different.size else 1)
