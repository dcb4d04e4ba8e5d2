"""The trellis decoder against summing over every set of malicious clients."""

from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.decode import CountPrior, ExactDecoder, IndependentPrior, Prior, expected_errors, forward_backward
from fedgt.decode.exact import syndrome_counts, with_noise
from fedgt.design import Design, from_matrix, named_design
from fedgt.errors import ContradictoryOutcomesError
from fedgt.types import ERASED, BoolArray, ErrorRates, FloatArray, Outcomes

rates_strategy = st.builds(
    ErrorRates,
    false_alarm=st.sampled_from([0.0, 0.01, 0.05, 0.3, 0.5, 1.0]),
    misdetection=st.sampled_from([0.0, 0.02, 0.05, 0.2, 0.5, 1.0]),
)


def every_set(n: int) -> BoolArray:
    """bool[2^n, n]."""
    bits: BoolArray = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1 == 1
    return bits


def brute_force(design: Design, outcomes: Outcomes, rates: ErrorRates, prior: Prior) -> tuple[FloatArray, float]:
    """(P(d_j = 0, t) and P(d_j = 1, t) for every client, P(t)) by listing all 2^n sets."""
    n = design.clients
    sets = every_set(n)
    if isinstance(prior, CountPrior):
        each = np.zeros(n + 1)
        each[: len(prior.weights)] = prior.weights / [comb(n, q) for q in range(len(prior.weights))]
        weight = each[sets.sum(axis=1)]
    else:
        weight = np.prod(np.where(sets, prior.prevalence, 1 - prior.prevalence), axis=1)
    syndrome = sets.astype(int) @ design.matrix.T.astype(int) > 0
    for s, t in zip(syndrome.T, outcomes.values.tolist(), strict=True):
        if t != ERASED:
            positive = np.where(s, 1 - rates.misdetection, rates.false_alarm)
            weight = weight * (positive if t else 1 - positive)
    return np.array([weight @ ~sets, weight @ sets]), float(weight.sum())


@st.composite
def problems(draw: st.DrawFn, clients: int = 12) -> tuple[Design, Outcomes, ErrorRates, Prior]:
    n = draw(st.integers(1, clients))
    rows = draw(st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(any), min_size=1, max_size=6))
    design = from_matrix(rows)
    values = draw(st.lists(st.sampled_from([0, 1, -1]), min_size=len(rows), max_size=len(rows)))
    prior: Prior
    if draw(st.booleans()):
        prior = IndependentPrior(
            prevalence=np.array(
                draw(st.lists(st.sampled_from([0.0, 0.01, 0.2, 0.5, 0.9, 1.0]), min_size=n, max_size=n))
            )
        )
    else:
        weights = draw(st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=1, max_size=n + 1).filter(any))
        prior = CountPrior(weights=np.array(weights))
    return design, Outcomes(values=np.array(values, dtype=np.int8)), draw(rates_strategy), prior


@settings(max_examples=5 * settings().max_examples)
@given(problems())
def test_posteriors_equal_the_sum_over_all_sets(problem: tuple[Design, Outcomes, ErrorRates, Prior]) -> None:
    design, outcomes, rates, prior = problem
    joint, evidence = brute_force(design, outcomes, rates, prior)
    if evidence == 0.0:
        with pytest.raises(ContradictoryOutcomesError, match="contradict each other"):
            forward_backward(design, outcomes, rates, prior)
        return
    posterior = forward_backward(design, outcomes, rates, prior)
    assert not np.isnan(posterior.log_odds).any()
    assert posterior.log_evidence == pytest.approx(np.log(evidence), abs=1e-9)
    with np.errstate(divide="ignore"):
        expected = np.log(joint[0]) - np.log(joint[1])
    np.testing.assert_array_equal(np.isinf(posterior.log_odds), np.isinf(expected))
    np.testing.assert_allclose(posterior.log_odds, expected, atol=1e-9)
    np.testing.assert_allclose(posterior.malicious, joint[1] / evidence, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("rates", [ErrorRates.symmetric(0.05), ErrorRates(false_alarm=0.1, misdetection=0.02)])
def test_every_outcome_of_15x8_equals_the_sum_over_all_32768_sets(rates: ErrorRates) -> None:
    design = named_design("bch-15x8")
    n, m = 15, 8
    patterns = np.arange(1 << n)
    bits = (patterns[:, None] >> np.arange(n)) & 1
    syndromes = bits @ design.matrix.T.astype(int) > 0
    prevalence = np.linspace(0.05, 0.4, n)  # another prevalence for every client: swapped clients would show
    weight = np.prod(np.where(bits == 1, prevalence, 1 - prevalence), axis=1)
    prior = IndependentPrior(prevalence=prevalence)
    for number in range(1 << m):
        t = (number >> np.arange(m)) & 1
        channel = np.where(
            syndromes,
            np.where(t == 1, 1 - rates.misdetection, rates.misdetection),
            np.where(t == 1, rates.false_alarm, 1 - rates.false_alarm),
        )
        joint = weight * channel.prod(axis=1)
        malicious = bits.T @ joint
        expected = np.log(joint.sum() - malicious) - np.log(malicious)
        found = forward_backward(design, Outcomes(values=t), rates, prior).log_odds
        assert np.abs(found - expected).max() < 1e-9


def counted_log_odds(design: Design, rates: ErrorRates, each: FloatArray) -> FloatArray:
    """float64[2^m, n] without a trellis: exact numbers of sets for every syndrome, then the noise of the tests.

    `each[q]` is the prior probability of one particular set of q clients.
    """
    counts = syndrome_counts(design)
    malicious = with_noise(np.tensordot(each, counts.containing.astype(float), axes=1), rates)
    total = with_noise(each @ counts.sets.astype(float), rates)
    with np.errstate(divide="ignore", invalid="ignore"):
        odds: FloatArray = np.log(np.maximum(total - malicious, 0.0)) - np.log(malicious)
    return odds.T


def test_30x12_equals_an_independent_count_over_syndromes() -> None:
    """No enumeration of 2^30 sets, and no trellis: exact counts of sets per syndrome. All 4,096 outcomes."""
    design, rates, q = named_design("cyclic-30x12"), ErrorRates(false_alarm=0.03, misdetection=0.08), np.arange(31)
    outcomes = ((np.arange(4096)[:, None] >> np.arange(12)) & 1).astype(np.int8)
    expected = counted_log_odds(design, rates, 0.2**q * 0.8 ** (30 - q))
    found = ExactDecoder(design, rates, IndependentPrior.uniform(30, 0.2)).decode_batch(outcomes).log_odds
    np.testing.assert_allclose(found, expected, atol=1e-9)
    each = np.where(q <= 8, 1 / 9 / np.array([float(comb(30, k)) for k in q]), 0.0)
    expected = counted_log_odds(design, rates, each)
    found = ExactDecoder(design, rates, CountPrior.uniform(8)).decode_batch(outcomes).log_odds
    np.testing.assert_allclose(found, expected, atol=1e-9)


@settings(max_examples=40)
@given(problems(clients=6), st.integers(0, 2**32 - 1))
def test_expected_errors_equal_the_average_over_all_sets_and_outcomes(
    problem: tuple[Design, Outcomes, ErrorRates, Prior], seed: int
) -> None:
    design, _, rates, _ = problem
    n, m = design.clients, design.groups
    flagged = np.random.default_rng(seed).random((1 << m, n)) < 0.4
    q = seed % (n + 1)
    missed = accused = 0.0
    for pattern in product((0, 1), repeat=n):
        if sum(pattern) != q:
            continue
        d = np.array(pattern)
        syndrome = design.matrix.astype(int) @ d > 0
        for number in range(1 << m):
            t = (number >> np.arange(m)) & 1
            right = np.where(syndrome, 1 - rates.misdetection, 1 - rates.false_alarm)
            chance = float(np.prod(np.where(t == syndrome, right, 1 - right))) / comb(n, q)
            missed += chance * int((~flagged[number] & (d == 1)).sum())
            accused += chance * int((flagged[number] & (d == 0)).sum())
    np.testing.assert_allclose(expected_errors(design, flagged, rates, q), (missed, accused), atol=1e-9)
