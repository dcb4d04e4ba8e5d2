"""What holds for every stand-in of the mean and every sum that may be opened, whatever was revealed."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.design import named_design
from fedgt.errors import ShapeError
from fedgt.privacy import best_in_span, largest_kept_sum, minimum_support
from fedgt.types import FloatArray

cases = st.integers(2, 9).flatmap(
    lambda n: st.tuples(
        st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n), min_size=1, max_size=7),
        st.lists(st.sampled_from([1, 2, 3, 7.5, 100]), min_size=n, max_size=n),
        st.sets(st.integers(0, n - 1), max_size=n - 1),
    )
)
Case = tuple[list[list[int]], list[float], set[int]]


def unpacked(case: Case) -> tuple[FloatArray, FloatArray, list[int]]:
    """(The rows with the clients' weights, the weights, the flagged clients.)"""
    design, weights, flagged = case
    samples = np.array(weights)
    return np.array(design) * samples, samples, sorted(flagged)


def distance(weights: FloatArray, target: FloatArray) -> float:
    wanted = target / target.sum()
    kept = wanted > 0
    return float(np.sqrt(((weights[kept] - wanted[kept]) ** 2 / wanted[kept]).sum()))


def mean_of_negative_groups(rows: FloatArray, flagged: list[int]) -> FloatArray | None:
    clean = rows[(rows[:, flagged] == 0).all(axis=1)].sum(axis=0)
    return clean / clean.sum() if clean.any() else None


@settings(max_examples=150, deadline=None)
@given(cases, st.booleans())
def test_a_stand_in_is_a_combination_of_the_rows_without_any_weight_on_a_flagged_client(
    case: Case, nonnegative: bool
) -> None:
    rows, samples, flagged = unpacked(case)
    found = best_in_span(rows, target=samples, forbidden=flagged, nonnegative=nonnegative)
    if found is None:
        return
    exact = [
        sum((b * Fraction(v) for b, v in zip(found.coefficients, column, strict=True)), Fraction(0))
        for column in rows.T.tolist()
    ]
    assert sum(exact) == 1
    assert all(exact[j] == 0 for j in flagged)
    assert found.weights.tolist() == [float(v) for v in exact]
    if nonnegative:
        assert found.weights.min() >= 0


@settings(max_examples=150, deadline=None)
@given(cases, st.booleans())
def test_a_stand_in_is_never_further_from_the_mean_than_the_mean_of_the_negative_groups(
    case: Case, nonnegative: bool
) -> None:
    rows, samples, flagged = unpacked(case)
    simple = mean_of_negative_groups(rows, flagged)
    found = best_in_span(rows, target=samples, forbidden=flagged, nonnegative=nonnegative)
    if simple is None:
        return
    target = samples.copy()
    target[flagged] = 0
    assert found is not None
    assert found.distance <= distance(simple, target) + 1e-7
    assert found.distance == pytest.approx(distance(found.weights, target), abs=1e-12)
    assert found.amplification == pytest.approx(1 + found.distance**2)


@settings(max_examples=80, deadline=None)
@given(cases)
def test_forbidding_negative_weights_never_brings_the_stand_in_nearer(case: Case) -> None:
    rows, samples, flagged = unpacked(case)
    free = best_in_span(rows, target=samples, forbidden=flagged)
    bound = best_in_span(rows, target=samples, forbidden=flagged, nonnegative=True)
    if free is None:
        assert bound is None
    elif bound is not None:
        assert bound.distance >= free.distance - 1e-9
        assert bound.negative == 0


@settings(max_examples=80, deadline=None)
@given(cases)
def test_the_mean_itself_is_found_when_its_row_is_revealed(case: Case) -> None:
    rows, samples, flagged = unpacked(case)
    target = samples.copy()
    target[flagged] = 0
    found = best_in_span(np.vstack([rows, target]), target=samples, forbidden=flagged, nonnegative=True)
    assert found is not None
    assert found.distance == pytest.approx(0, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(cases, st.integers(1, 4), st.booleans())
def test_a_sum_that_may_be_opened_keeps_the_promise_and_holds_kept_clients_only(
    case: Case, privacy: int, limited: bool
) -> None:
    rows, samples, flagged = unpacked(case)
    kept = [j for j in range(len(samples)) if j not in flagged]
    limits = {"max_sets": 0} if limited else {}
    found = largest_kept_sum(rows, weights=samples, kept=kept, privacy=privacy, **limits)
    if found is None:
        return
    assert set(found.clients) <= set(kept)
    assert found.exact or limited
    row = np.where(np.isin(np.arange(len(samples)), found.clients), samples, 0)
    stacked = minimum_support(np.vstack([rows, row]))
    assert stacked is not None
    assert stacked.r >= privacy
    assert found.support.lower >= privacy


def test_beyond_its_limits_the_search_finds_as_large_a_set_but_does_not_claim_that_it_is_the_largest() -> None:
    rows, kept = named_design("bch-15x8").matrix, [j for j in range(15) if j not in (2, 12)]
    exact = largest_kept_sum(rows, weights=np.ones(15), kept=kept, privacy=4)
    limited = largest_kept_sum(rows, weights=np.ones(15), kept=kept, privacy=4, max_sets=0)
    assert exact is not None
    assert limited is not None
    assert (exact.exact, limited.exact) == (True, False)
    assert len(limited.clients) == len(exact.clients)
    assert limited.support.lower >= 4


def test_without_a_combination_that_avoids_the_flagged_clients_there_is_no_stand_in() -> None:
    assert best_in_span([[1, 1, 1]], target=[1, 1, 1], forbidden=[0]) is None
    assert best_in_span([[1, 1, 0], [1, 0, 1]], target=[1, 1, 1], forbidden=[0]) is None  # u0 - u1 has total weight 0
    assert best_in_span(np.zeros((0, 3)), target=[1, 1, 1]) is None


def test_a_stand_in_may_need_to_subtract_a_client() -> None:
    free = best_in_span([[1, 1, 1, 0], [1, 0, 0, 1]], target=[1, 1, 1, 1], forbidden=[0])
    assert free is not None
    assert free.weights.tolist() == [0, 1, 1, -1]
    assert free.negative == -1
    assert best_in_span([[1, 1, 1, 0], [1, 0, 0, 1]], target=[1, 1, 1, 1], forbidden=[0], nonnegative=True) is None


def test_what_breaks_the_promise_already_allows_no_further_sum() -> None:
    assert largest_kept_sum([[1, 1, 0, 0]], weights=np.ones(4), kept=range(4), privacy=3) is None


def test_the_first_sum_may_hold_everybody() -> None:
    found = largest_kept_sum(np.zeros((0, 4)), weights=np.ones(4), kept=range(4), privacy=4)
    assert found is not None
    assert (found.clients, found.exact) == ((0, 1, 2, 3), True)


@pytest.mark.parametrize(
    ("target", "forbidden", "words"),
    [
        ([1, 1], [], "for each of the 3 clients"),
        ([1, -1, 1], [], "weight >= 0"),
        ([1, 1, 1], [3], "0 to 2"),
        ([1, 0, 0], [0], "nobody"),
    ],
)
def test_targets_that_make_no_sense_are_refused(target: list[float], forbidden: list[int], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        best_in_span([[1, 1, 1]], target=target, forbidden=forbidden)


@pytest.mark.parametrize(
    ("weights", "kept", "words"),
    [([1, 1], [0], "one per client"), ([1, 1, 1], [3], "0 to 2"), ([1, 0, 1], [1], "weight > 0")],
)
def test_weights_that_make_no_sense_are_refused(weights: list[float], kept: list[int], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        largest_kept_sum([[1, 1, 1]], weights=weights, kept=kept, privacy=2)
