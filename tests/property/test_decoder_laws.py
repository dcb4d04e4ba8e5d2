"""Laws that any correct decoder obeys."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt.decode import CountPrior, IndependentPrior, decode, forward_backward
from fedgt.design import named_design
from fedgt.types import ErrorRates, Outcomes

DESIGN = named_design("bch-15x8")
RATES = ErrorRates(false_alarm=0.07, misdetection=0.03)
outcome_vectors = st.lists(st.sampled_from([0, 1, -1]), min_size=8, max_size=8).map(
    lambda values: Outcomes(values=np.array(values, dtype=np.int8))
)


@given(outcome_vectors, st.permutations(range(15)))
def test_renaming_clients_renames_the_log_odds(outcomes: Outcomes, order: list[int]) -> None:
    prevalence = np.linspace(0.05, 0.5, 15)
    renamed = type(DESIGN)(matrix=DESIGN.matrix[:, order], name="renamed", source="")
    before = forward_backward(DESIGN, outcomes, RATES, IndependentPrior(prevalence=prevalence))
    after = forward_backward(renamed, outcomes, RATES, IndependentPrior(prevalence=prevalence[order]))
    np.testing.assert_allclose(after.log_odds, before.log_odds[order], atol=1e-9)


@given(outcome_vectors, st.permutations(range(8)))
def test_renaming_groups_changes_nothing(outcomes: Outcomes, order: list[int]) -> None:
    prior = CountPrior.uniform(5)
    before = forward_backward(DESIGN, outcomes, RATES, prior)
    after = forward_backward(DESIGN.restricted(order), Outcomes(values=outcomes.values[order]), RATES, prior)
    np.testing.assert_allclose(after.log_odds, before.log_odds, atol=1e-9)


@given(outcome_vectors, st.floats(0.01, 0.99))
def test_an_uninformative_screen_leaves_the_prior(outcomes: Outcomes, rate: float) -> None:
    """False alarm + misdetection = 1: positive says the same as negative."""
    prevalence = np.linspace(0.05, 0.5, 15)
    rates = ErrorRates(false_alarm=rate, misdetection=1 - rate)
    posterior = forward_backward(DESIGN, outcomes, rates, IndependentPrior(prevalence=prevalence))
    np.testing.assert_allclose(posterior.malicious, prevalence, atol=1e-9)


@given(outcome_vectors)
def test_an_erased_outcome_is_the_same_as_a_group_that_is_not_there(outcomes: Outcomes) -> None:
    if not outcomes.present.any():
        return
    kept = np.flatnonzero(outcomes.present).tolist()
    for strategy in ("count", "delta", "bayes"):
        whole = decode(DESIGN, outcomes, rates=RATES, strategy=strategy)
        reduced = decode(
            DESIGN.restricted(kept), Outcomes(values=outcomes.values[kept]), rates=RATES, strategy=strategy
        )
        np.testing.assert_array_equal(whole.flagged, reduced.flagged)
        assert whole.estimated_malicious == reduced.estimated_malicious


@given(outcome_vectors)
def test_count_flags_exactly_the_estimated_number_among_the_tested(outcomes: Outcomes) -> None:
    decoding = decode(DESIGN, outcomes, rates=RATES, strategy="count")
    tested = int(DESIGN.matrix[outcomes.present].any(axis=0).sum())
    assert int(decoding.flagged.sum()) == min(decoding.estimated_malicious or 0, tested)


@given(outcome_vectors)
def test_the_posterior_of_the_number_is_a_distribution_whose_mean_is_the_sum_of_posteriors(outcomes: Outcomes) -> None:
    posterior = forward_backward(DESIGN, outcomes, RATES, CountPrior.uniform(5))
    assert posterior.count.sum() == pytest.approx(1)
    assert posterior.count @ np.arange(6) == pytest.approx(posterior.malicious.sum())


@given(outcome_vectors, st.sampled_from([0.3, 0.5, 0.7]))
def test_bayes_flags_exactly_the_clients_whose_posterior_exceeds_one_minus_beta(
    outcomes: Outcomes, beta: float
) -> None:
    decoding = decode(DESIGN, outcomes, rates=RATES, strategy="bayes", beta=beta)
    clear = np.abs(np.nan_to_num(decoding.posterior) - (1 - beta)) > 1e-9
    expected = np.nan_to_num(decoding.posterior) > 1 - beta
    tested = DESIGN.matrix[outcomes.present].any(axis=0)
    np.testing.assert_array_equal(decoding.flagged[clear], (expected & tested)[clear])


@given(outcome_vectors, st.integers(0, 7), st.floats(0.01, 0.99))
def test_an_uninformative_group_changes_nothing(outcomes: Outcomes, group: int, rate: float) -> None:
    """One group whose false alarm and misdetection add up to 1 says as much as an erased one."""
    prior = IndependentPrior(prevalence=np.linspace(0.05, 0.5, 15))
    rates = [RATES] * 8
    rates[group] = ErrorRates(false_alarm=rate, misdetection=1 - rate)
    without = outcomes.values.copy()
    without[group] = -1
    found = forward_backward(DESIGN, outcomes, rates, prior)
    expected = forward_backward(DESIGN, Outcomes(values=without), RATES, prior)
    np.testing.assert_allclose(found.log_odds, expected.log_odds, atol=1e-9)
