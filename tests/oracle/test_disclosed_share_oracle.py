"""The disclosed share against conditioning a normal distribution, against drawn updates, and against listing colluders."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.privacy import disclosed_share, exposing_colluders, minimum_support
from fedgt.types import FloatArray

UNKNOWN = 1e6
"""Variance of the common mean, in the unit of that of single clients: as good as nothing is known about it."""


def conditioned(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """1 - var(u_j | A u) / var(d_j), with u = mean + noise of variance 1, by the textbook."""
    n = rows.shape[1]
    prior = np.eye(n) + UNKNOWN * np.ones((n, n))
    if rows.size:
        rows = np.linalg.svd(rows, full_matrices=False)[2][: np.linalg.matrix_rank(rows)]
        prior = prior - prior @ rows.T @ np.linalg.solve(rows @ prior @ rows.T, rows @ prior)
    centring = np.eye(n) - np.ones((n, 1)) * weights / weights.sum()
    return np.clip(1 - np.diag(prior) / np.diag(centring @ centring.T), 0, 1)


def explained(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """diag(C C' A' (A C C' A')+ A C C') / diag(C C'), where the weighted sum over everybody is among the combinations."""
    n = rows.shape[1]
    centring = np.eye(n) - np.ones((n, 1)) * weights / weights.sum()
    covariance = centring @ centring.T
    gain = covariance @ rows.T
    return np.diag(gain @ np.linalg.pinv(rows @ gain, rcond=1e-10, hermitian=True) @ gain.T) / np.diag(covariance)


def random_rows(rng: np.random.Generator, *, total: bool) -> tuple[FloatArray, FloatArray]:
    """Rows in which everybody has one weight and is in some row; with or without the sum over everybody."""
    n, k = int(rng.integers(2, 9)), int(rng.integers(1, 6))
    weights = rng.choice([1.0, 1.0, 2.0, 20.0], size=n)
    rows = (rng.random((k, n)) < 0.5).astype(float)
    if total:
        rows[0] = 1.0
    rows[int(rng.integers(k)), ~rows.any(axis=0)] = 1.0
    return rows * weights, weights


@pytest.mark.parametrize("seed", range(40))
def test_it_is_what_conditioning_a_normal_distribution_gives(seed: int) -> None:
    rows, weights = random_rows(np.random.default_rng(seed), total=False)
    found = disclosed_share(rows)
    assert found is not None
    np.testing.assert_allclose(found.shares, conditioned(rows, weights), atol=1e-4)


@pytest.mark.parametrize("seed", range(40))
def test_with_the_total_it_is_the_explained_part_of_the_centred_updates(seed: int) -> None:
    rows, weights = random_rows(np.random.default_rng([seed, 1]), total=True)
    found = disclosed_share(rows)
    assert found is not None
    np.testing.assert_allclose(found.shares, explained(rows, weights), atol=1e-9)


def multiplied(seed: int, *, total: bool) -> tuple[FloatArray, FloatArray]:
    """Rows that multiply everybody by 2 or more, and the weights; with the weighted sum as a difference of two rows."""
    rng = np.random.default_rng([seed, 4])
    rows, weights = random_rows(rng, total=False)
    rows *= rng.integers(2, 6, size=rows.shape)
    if total:
        times = rng.integers(2, 6, size=len(weights))
        rows = np.vstack([rows, times * weights, (times + 1) * weights])
    return rows, weights


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize(("total", "oracle", "within"), [(False, conditioned, 1e-4), (True, explained, 1e-7)])
def test_whom_all_rows_multiply_has_the_share_of_its_weight_and_not_of_its_entries(
    seed: int, total: bool, oracle: Callable[[FloatArray, FloatArray], FloatArray], within: float
) -> None:
    """By conditioning; and with the total, by the explained part of the centred updates."""
    rows, weights = multiplied(seed, total=total)
    found = disclosed_share(rows, weights=weights)
    assert found is not None
    np.testing.assert_allclose(found.shares, oracle(rows, weights), atol=within)


@pytest.mark.parametrize("weights", [[1.0] * 6, [20.0, 1.0, 1.0, 1.0, 1.0, 1.0], [5.0, 4.0, 3.0, 2.0, 1.0, 1.0]])
def test_it_is_what_the_best_line_through_drawn_updates_recovers(weights: list[float]) -> None:
    """The total is a combination of the first two rows."""
    rows = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 1, 0, 1, 0]]) * np.array(weights)
    rng = np.random.default_rng(0)
    updates = rng.normal(size=(60_000, 6)) + 30 * rng.normal(size=(60_000, 1))
    particular = updates - (updates @ weights)[:, None] / np.sum(weights)
    sums = updates @ rows.T
    guess = sums @ np.linalg.lstsq(sums, particular, rcond=None)[0]
    recovered = 1 - ((particular - guess) ** 2).mean(axis=0) / (particular**2).mean(axis=0)
    found = disclosed_share(rows)
    assert found is not None
    np.testing.assert_allclose(found.shares, recovered, atol=0.02)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("colluding", [1, 2])
def test_colluders_are_the_worst_of_all_sets(seed: int, colluding: int) -> None:
    rows, weights = random_rows(np.random.default_rng([seed, 2]), total=False)
    n = rows.shape[1]
    if colluding >= n:
        colluding = n - 1
    worst = np.zeros(n)
    for size in range(colluding + 1):
        for gone in combinations(range(n), size):
            left = [j for j in range(n) if j not in gone]
            shares = conditioned(rows[:, left], weights[left]) if len(left) > 1 else np.ones(1)
            worst[left] = np.maximum(worst[left], shares)
    found = disclosed_share(rows, colluding=colluding)
    assert found is not None
    np.testing.assert_allclose(found.shares, worst, atol=1e-4)


def test_the_designs_of_the_paper_disclose_about_half() -> None:
    for name, mean in (("bch-15x8", 7 / 14), ("graded-15x10-b", 9 / 14)):
        found = disclosed_share(named_design(name).matrix)
        assert found is not None
        assert found.mean == pytest.approx(mean, abs=0.02)
        assert found.mean < found.largest < 0.9


@pytest.mark.parametrize("seed", range(30))
def test_the_fewest_colluders_that_expose_somebody_and_everybody_are_those_of_all_sets(seed: int) -> None:
    rng = np.random.default_rng([seed, 3])
    rows, _ = random_rows(rng, total=bool(rng.integers(2)))
    n = rows.shape[1]
    exposed: dict[int, int] = {}  # colluders -> the most others that some such set exposes
    for size in range(n):
        for gone in combinations(range(n), size):
            left = [j for j in range(n) if j not in gone]
            known = np.linalg.matrix_rank(rows[:, left])
            alone = sum(
                bool(np.linalg.matrix_rank(np.vstack([rows[:, left], np.eye(len(left))[i]])) == known)
                for i in range(len(left))
            )
            exposed[size] = max(exposed.get(size, 0), alone)
    support = minimum_support(rows)
    assert support is not None
    found = exposing_colluders(rows, support)
    assert found.somebody == found.somebody_upper == min(size for size, others in exposed.items() if others)
    assert found.everybody == min(size for size, others in exposed.items() if others == n - size)
