"""Stand-ins for the mean, and the largest sum that may be opened, against slow textbook forms."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import null_space
from scipy.optimize import minimize

from fedgt.design import named_design
from fedgt.privacy import best_in_span, largest_kept_sum, minimum_support
from fedgt.types import FloatArray


def nearest(rows: FloatArray, target: FloatArray, *, nonnegative: bool) -> float | None:
    """The least distance by a general optimiser over the coefficients, None when the conditions contradict each other."""
    kept = target > 0
    free = null_space(rows[:, ~kept].T) if (~kept).any() else np.eye(len(rows))
    span = free.T @ rows[:, kept]
    wanted = target[kept] / target.sum()
    if not len(span) or np.abs(span.sum(axis=1)).max() < 1e-9:
        return None
    totals = span.sum(axis=1)
    conditions: list[dict[str, object]] = [{"type": "eq", "fun": lambda y: y @ totals - 1, "jac": lambda _: totals}]
    if nonnegative:
        conditions.append({"type": "ineq", "fun": lambda y: y @ span, "jac": lambda _: span.T})
    found = minimize(
        lambda y: ((y @ span - wanted) ** 2 / wanted).sum(),
        totals / (totals @ totals),
        jac=lambda y: 2 * span @ ((y @ span - wanted) / wanted),
        constraints=conditions,
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    return float(np.sqrt(found.fun)) if found.success else None


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("flagged", [(), (2,), (2, 12), (0, 5, 9), (1, 2, 3, 4, 5), (0, 1, 2, 4, 7, 8)])
def test_the_distance_is_the_least_that_an_optimiser_finds(flagged: tuple[int, ...], nonnegative: bool) -> None:
    samples = np.random.default_rng(len(flagged)).integers(20, 200, 15).astype(float)
    rows = named_design("bch-15x8").matrix * samples
    target = samples.copy()
    target[list(flagged)] = 0
    found = best_in_span(rows, target=target, nonnegative=nonnegative)
    expected = nearest(rows, target, nonnegative=nonnegative)
    assert (found is None) == (expected is None)
    if found is not None:
        assert found.distance == pytest.approx(expected, abs=1e-6)


def brute_force(rows: list[list[int]], weights: list[int], kept: list[int], privacy: int) -> tuple[int, ...] | None:
    """Every set, from the largest down; equally large ones by weight, then in lexicographic order."""
    before = minimum_support(rows)
    if before is not None and before.r < privacy:
        return None
    for size in range(len(kept), privacy - 1, -1):
        sets = sorted(combinations(kept, size), key=lambda chosen: (-sum(weights[j] for j in chosen), chosen))
        for chosen in sets:
            row = [weights[j] if j in chosen else 0 for j in range(len(weights))]
            after = minimum_support([*rows, row])
            if after is not None and after.r >= privacy:
                return chosen
    return None


cases = st.integers(3, 7).flatmap(
    lambda n: st.tuples(
        st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n), min_size=1, max_size=3),
        st.lists(st.integers(1, 3), min_size=n, max_size=n),
        st.sets(st.integers(0, n - 1), min_size=1),
        st.integers(1, 3),
    )
)


@settings(max_examples=120, deadline=None)
@given(cases)
def test_the_largest_sum_is_that_of_trying_every_set(
    case: tuple[list[list[int]], list[int], set[int], int],
) -> None:
    design, weights, kept, privacy = case
    rows = (np.array(design) * weights).tolist()
    found = largest_kept_sum(rows, weights=weights, kept=kept, privacy=privacy)
    assert (None if found is None else found.clients) == brute_force(rows, weights, sorted(kept), privacy)
    assert found is None or found.exact


def test_for_the_flagged_2_and_12_ten_clients_can_be_opened_at_four_and_eleven_at_three() -> None:
    rows = named_design("bch-15x8").matrix
    kept = [j for j in range(15) if j not in (2, 12)]
    four = largest_kept_sum(rows, weights=np.ones(15), kept=kept, privacy=4)
    three = largest_kept_sum(rows, weights=np.ones(15), kept=kept, privacy=3)
    assert four is not None
    assert three is not None
    assert (len(four.clients), four.exact) == (10, True)
    assert (three.clients, three.exact) == ((0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11), True)
    for found, promised in ((four, 4), (three, 3)):
        stacked = minimum_support(np.vstack([rows, np.isin(np.arange(15), found.clients)]))
        assert stacked is not None
        assert stacked.r >= promised


def test_a_single_combination_without_negative_weights_is_found_at_the_edge_of_what_is_possible() -> None:
    # With client 4 to avoid, multiples of the second row and of the first minus the third are left; the latter subtracts.
    rows = np.array([[3.0, 0, 3, 2, 2, 0], [0, 0, 0, 2, 0, 2], [3, 2, 0, 0, 2, 2]])
    found = best_in_span(rows, target=[3, 2, 3, 2, 2, 2], forbidden=[4], nonnegative=True)
    assert found is not None
    assert found.weights.tolist() == [0, 0, 0, 0.5, 0, 0.5]
