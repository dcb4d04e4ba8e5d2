"""Expected errors against listing every set, every outcome, and the decoder's own decisions."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.decode import Strategy, decision_table
from fedgt.design import Design, from_matrix, named_design
from fedgt.errors import CalibrationError, SpecError
from fedgt.planning import expected, least_wrong
from fedgt.planning import expected as expected_function
from fedgt.planning.expected import _sampled
from fedgt.types import ErrorRates


def listed(
    design: Design, true: ErrorRates, assumed: ErrorRates, strategy: Strategy, q: int, largest: int, beta: float
) -> tuple[float, float]:
    """The textbook sum over sets and outcomes."""
    outcomes = np.array(list(product((0, 1), repeat=design.groups)), dtype=np.int8)
    flagged = decision_table(design, outcomes, rates=assumed, strategy=strategy, largest=largest, beta=beta)
    missed = accused = 0.0
    sets = list(combinations(range(design.clients), q))
    for one in sets:
        malicious = np.isin(np.arange(design.clients), one)
        syndrome = design.matrix[:, malicious].sum(axis=1) > 0
        positive = np.where(syndrome, 1 - true.misdetection, true.false_alarm)
        chance = np.where(outcomes == 1, positive, 1 - positive).prod(axis=1)
        missed += chance @ (malicious & ~flagged).sum(axis=1)
        accused += chance @ (~malicious & flagged).sum(axis=1)
    return missed / len(sets), accused / len(sets)


@st.composite
def designs(draw: st.DrawFn) -> Design:
    n = draw(st.integers(2, 6))
    rows = draw(st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(any), min_size=1, max_size=4))
    return from_matrix(rows)


rates = st.builds(
    lambda a, b: ErrorRates(false_alarm=a, misdetection=b),
    st.sampled_from([0.0, 0.07, 0.3]),
    st.sampled_from([0.0, 0.11]),
)


@settings(max_examples=60, deadline=None)
@given(designs(), rates, st.sampled_from(["bayes", "count", "comp"]), st.sampled_from([0.3, 0.5]), st.data())
def test_expected_errors_equal_the_sum_over_all_sets_and_outcomes(
    design: Design, true: ErrorRates, strategy: Strategy, beta: float, data: st.DataObject
) -> None:
    largest = data.draw(st.integers(0, design.clients))
    q = data.draw(st.integers(0, design.clients))
    assumed = ErrorRates(false_alarm=0.05, misdetection=0.08)
    found = expected(design, true, strategy=strategy, malicious=[q], largest=largest, assumed=assumed, beta=beta)
    assert found.exact
    missed, accused = listed(design, true, assumed, strategy, q, largest, beta)
    assert found.missed[0] == pytest.approx(missed, abs=1e-9)
    assert found.accused[0] == pytest.approx(accused, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(designs(), rates, st.data())
def test_the_least_error_is_the_average_of_bayes_and_no_strategy_beats_it(
    design: Design, true: ErrorRates, data: st.DataObject
) -> None:
    largest = data.draw(st.integers(0, design.clients))
    numbers = range(largest + 1)
    least = least_wrong(design, true, largest)
    bayes = expected(design, true, malicious=numbers, largest=largest).wrong.mean()
    if not design.untested:  # clients in no group are never flagged by a strategy, whatever the prior says
        assert bayes == pytest.approx(least, abs=1e-9)
    others = expected(design, true, strategy="comp", malicious=numbers, largest=largest).wrong.mean()
    assert min(bayes, others) >= least - 1e-9


def test_the_15x8_figures_are_those_of_the_facts() -> None:
    """DESIGN.md section 4: objective of `bayes`, wrong / (2 n), for n_m = 0..5, noise-free and at p = .05."""
    design = named_design("bch-15x8")
    for p, facts in (
        (0.0, [0, 0, 0.0111, 0.0465, 0.0922, 0.1372]),
        (0.05, [0.0078, 0.0124, 0.0291, 0.0635, 0.1055, 0.1470]),
    ):
        found = expected(design, ErrorRates.symmetric(p), malicious=range(6), largest=5)
        np.testing.assert_allclose(found.wrong / 30, facts, atol=6e-5)


def test_sampled_errors_agree_with_exact_ones_within_four_standard_errors() -> None:
    design, true = named_design("bch-15x8"), ErrorRates.symmetric(0.05)
    exact = expected(design, true, malicious=range(6), largest=5)
    rng = np.random.default_rng(3)
    sampled = _sampled(design, true, true, "bayes", list(range(6)), 5, 0.5, rng, 4000)
    assert not sampled.exact
    assert (sampled.standard_error > 0).all()
    assert (np.abs(sampled.wrong - exact.wrong) <= 4 * sampled.standard_error).all()


def test_a_design_that_is_too_large_is_sampled_only_with_an_rng() -> None:
    rows = np.zeros((24, 48), dtype=int)
    for group in range(24):
        rows[group, (2 * group + np.arange(6)) % 48] = 1
    design = from_matrix(rows)
    with pytest.raises(CalibrationError, match="give an rng"):
        expected(design, ErrorRates.symmetric(0.05), malicious=[1], largest=3)
    true = ErrorRates.symmetric(0.001)
    found = expected(design, true, malicious=[0, 3], largest=3, rng=np.random.default_rng(0), samples=100)
    assert not found.exact
    assert 0 < found.standard_error[1] < 1
    assert found.wrong[1] > found.wrong[0]
    with pytest.raises(CalibrationError, match="sample the expected errors"):
        least_wrong(design, ErrorRates.symmetric(0.05), 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "guess"}, "unknown strategy 'guess'"),
        ({"malicious": [16]}, "from 0 to 15"),
        ({"malicious": []}, "one or more numbers"),
        ({"largest": 16}, "largest = 16"),
        ({"beta": 2.0}, "beta = 2.0"),
        ({"samples": 1}, "at least 2"),
    ],
)
def test_arguments_out_of_range_are_named(changes: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"malicious": [1], "largest": 5} | changes
    with pytest.raises(SpecError, match=message):
        expected_function(named_design("bch-15x8"), ErrorRates.symmetric(0.05), **arguments)  # type: ignore[arg-type]
