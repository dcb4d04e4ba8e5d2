"""The trellis decoder against summing over every set of malicious clients."""

from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.decode import CountPrior, IndependentPrior, Prior, all_log_odds, expected_errors, forward_backward
from fedgt.design import Design, from_matrix, named_design
from fedgt.errors import ContradictoryOutcomesError
from fedgt.types import ERASED, ErrorRates, FloatArray, Outcomes

rates_strategy = st.builds(
    ErrorRates,
    false_alarm=st.sampled_from([0.0, 0.01, 0.05, 0.3, 0.5, 1.0]),
    misdetection=st.sampled_from([0.0, 0.02, 0.05, 0.2, 0.5, 1.0]),
)


def brute_force(design: Design, outcomes: Outcomes, rates: ErrorRates, prior: Prior) -> tuple[FloatArray, float]:
    """(P(d_j = 1, t) and P(d_j = 0, t) for every client, P(t)) by listing all 2^n sets."""
    n = design.clients
    joint = np.zeros((2, n))
    for pattern in product((0, 1), repeat=n):
        d = np.array(pattern)
        probability = 1.0
        if isinstance(prior, CountPrior):
            q = int(d.sum())
            probability = float(prior.weights[q]) / comb(n, q) if q < len(prior.weights) else 0.0
        else:
            probability = float(np.prod(np.where(d == 1, prior.prevalence, 1 - prior.prevalence)))
        syndrome = (design.matrix.astype(int) @ d) > 0
        for s, t in zip(syndrome, outcomes.values.tolist(), strict=True):
            if t == ERASED:
                continue
            if s:
                probability *= rates.misdetection if t == 0 else 1 - rates.misdetection
            else:
                probability *= 1 - rates.false_alarm if t == 0 else rates.false_alarm
        for j in range(n):
            joint[pattern[j], j] += probability
    return joint, float(joint[:, 0].sum())


@st.composite
def problems(draw: st.DrawFn) -> tuple[Design, Outcomes, ErrorRates, Prior]:
    n = draw(st.integers(1, 8))
    rows = draw(st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(any), min_size=1, max_size=5))
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


@settings(max_examples=300)
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


def test_30x12_equals_an_independent_count_over_syndromes() -> None:
    """No enumeration of 2^30 sets: P(t, d_j) from exact counts of sets per syndrome."""
    design, rates = named_design("cyclic-30x12"), ErrorRates(false_alarm=0.03, misdetection=0.08)
    prior = IndependentPrior.uniform(30, 0.2)
    table = all_log_odds(design, rates, prior)
    for number in (0, 1, 1365, 2730, 4095, 77):
        t = (number >> np.arange(12)) & 1
        found = forward_backward(design, Outcomes(values=t), rates, prior).log_odds
        np.testing.assert_allclose(found, table[number], atol=1e-9)


@settings(max_examples=60)
@given(problems())
def test_the_table_of_all_outcomes_equals_the_trellis(problem: tuple[Design, Outcomes, ErrorRates, Prior]) -> None:
    design, _, rates, prior = problem
    if isinstance(prior, IndependentPrior):
        prior = IndependentPrior.uniform(design.clients, float(prior.prevalence[0]))
    table = all_log_odds(design, rates, prior)
    for number in range(1 << design.groups):
        outcomes = Outcomes(values=(number >> np.arange(design.groups)) & 1)
        try:
            found = forward_backward(design, outcomes, rates, prior).log_odds
        except ContradictoryOutcomesError:
            assert np.isnan(table[number]).all()
            continue
        finite = np.isfinite(found)
        np.testing.assert_array_equal(np.isfinite(table[number]), finite)
        np.testing.assert_allclose(table[number][finite], found[finite], atol=1e-9)


@settings(max_examples=40)
@given(problems(), st.integers(0, 2**32 - 1))
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
