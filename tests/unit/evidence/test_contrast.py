"""Contrasts of group means: what is left when the common model cancels."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt.design import named_design
from fedgt.errors import DesignError, ShapeError
from fedgt.evidence import contrasts
from fedgt.evidence.contrast import Contrasts

DESIGN = named_design("graded-15x10-b").matrix.astype(np.float64)


def noise(weights: npt.NDArray[np.float64], samples: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The textbook form: P diag(mean n / n) P^T, entry by entry."""
    taking_part = [j for j in range(weights.shape[1]) if weights[:, j].any()]
    mean = np.mean([samples[j] for j in taking_part])
    groups = len(weights)
    covariance = np.zeros((groups, groups))
    for i in range(groups):
        for k in range(groups):
            for j in taking_part:
                p, q = weights[i, j] / weights[i].sum(), weights[k, j] / weights[k].sum()
                covariance[i, k] += p * q * mean / samples[j]
    return covariance


def assert_white(found: Contrasts, weights: npt.NDArray[np.float64], samples: npt.NDArray[np.float64]) -> None:
    covariance = noise(weights, samples)
    np.testing.assert_allclose(found.transform @ covariance @ found.transform.T, np.eye(found.size), atol=1e-8)
    np.testing.assert_allclose(found.transform @ np.ones(len(weights)), 0, atol=1e-9)


def test_sample_counts_of_one_to_twenty_still_give_white_contrasts() -> None:
    samples = np.linspace(50, 1000, 15)
    weights = DESIGN * samples
    found = contrasts(weights, samples)
    assert found.size == 8
    assert found.clients == 15
    assert_white(found, weights, samples)


def test_what_clients_do_more_of_because_they_have_more_samples_cancels() -> None:
    samples = np.linspace(50, 1000, 15)
    shares = DESIGN / DESIGN.sum(axis=1, keepdims=True)
    common = 3.0 + 2.0 * np.sqrt(samples)  # of every client, along one feature
    np.testing.assert_allclose(contrasts(DESIGN, samples).transform @ (shares @ common), 0.0, atol=1e-8)


def test_nearly_equal_sample_counts_cost_no_contrast() -> None:
    samples = np.full(15, 3993.0)
    samples[:5] += 1
    assert contrasts(DESIGN, samples).size == contrasts(DESIGN, np.full(15, 3993.0)).size == 9


def test_a_group_of_one_client_is_a_group_like_any_other() -> None:
    weights = np.array([[1.0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 1, 0]])
    samples = np.array([3.0, 10, 20, 60])
    found = contrasts(weights, samples)
    assert found.size == 2
    assert_white(found, weights, samples)


def test_groups_that_repeat_each_other_add_no_contrast_and_change_no_angle_between_clients() -> None:
    samples = np.full(15, 80.0)
    once, twice = contrasts(DESIGN, samples), contrasts(np.vstack([DESIGN, DESIGN[:3]]), samples)
    assert twice.size == once.size
    assert_white(twice, np.vstack([DESIGN, DESIGN[:3]]), samples)
    np.testing.assert_allclose(twice.shifts.T @ twice.shifts, once.shifts.T @ once.shifts, atol=1e-8)


def test_clients_in_no_open_group_move_nothing_whatever_their_sample_count() -> None:
    weights = DESIGN.copy()
    weights[:, 4] = 0.0
    absent = np.full(15, 80.0)
    absent[4] = 0.0
    found = contrasts(weights, absent)
    np.testing.assert_array_equal(found.shifts[:, 4], 0.0)
    absent[4] = 1e6
    np.testing.assert_array_equal(contrasts(weights, absent).transform, found.transform)


@pytest.mark.parametrize("weights", [np.ones((1, 4)), np.ones((3, 4)), np.zeros((0, 4))])
def test_fewer_than_two_different_group_means_leave_no_contrast(weights: npt.NDArray[np.float64]) -> None:
    found = contrasts(weights, np.full(4, 10.0))
    assert found.size == 0
    assert found.shifts.shape == (0, 4)
    assert found.transform.shape == (0, len(weights))


@given(seed=st.integers(0, 10_000), scale=st.floats(1e-3, 1e3), count_scale=st.floats(1e-2, 1e4))
def test_a_common_factor_of_the_weights_of_a_group_or_of_all_sample_counts_changes_nothing(
    seed: int, scale: float, count_scale: float
) -> None:
    rng = np.random.default_rng(seed)
    weights = (rng.random((5, 8)) < 0.6).astype(np.float64)
    weights[:, 0] = 1.0
    samples = rng.uniform(10, 200, 8)
    factors = np.ones(5)
    factors[rng.integers(5)] = scale
    one, other = contrasts(weights, samples), contrasts(weights * factors[:, None], samples * count_scale)
    assert other.size == one.size
    # The basis of contrasts may turn; scalar products may not.
    np.testing.assert_allclose(other.shifts.T @ other.shifts, one.shifts.T @ one.shifts, atol=1e-6)


@pytest.mark.parametrize(
    ("weights", "samples", "error", "message"),
    [
        (np.ones(3), np.ones(3), ShapeError, r"\[m, n\] and \[n\] are needed"),
        (np.ones((2, 3)), np.ones(4), ShapeError, r"\[m, n\] and \[n\] are needed"),
        ([[1.0, np.nan], [1, 1]], [1, 1], ShapeError, "finite, with a total that is not negative"),
        ([[1.0, -2.0], [1, 1]], [1, 1], ShapeError, "finite, with a total that is not negative"),
        ([[1.0, 1.0], [1, 0]], [1, 0], ShapeError, "positive"),
        ([[1.0, 1.0], [0, 0]], [1, 1], DesignError, "group 1 has no member"),
    ],
)
def test_what_is_no_round_is_refused(weights: object, samples: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        contrasts(np.asarray(weights), np.asarray(samples))


def test_whatever_clients_send_cancels_when_they_are_set_aside() -> None:
    rng = np.random.default_rng(4)
    rows = named_design("graded-15x10-b").matrix.astype(np.float64)
    parts = contrasts(rows, np.full(15, 10.0))
    gone = np.isin(np.arange(15), [2, 7, 11])
    left = parts.without(gone)
    assert left.size == parts.size - 3
    clients = rng.normal(size=(15, 40))
    shares = rows / rows.sum(axis=1, keepdims=True)
    before = left.transform @ (shares @ clients)
    clients[gone] = 100.0 * rng.normal(size=(3, 40))
    np.testing.assert_allclose(left.transform @ (shares @ clients), before, atol=1e-9)
    np.testing.assert_allclose(left.noise @ left.noise.T, np.eye(left.size), atol=1e-9)
    assert parts.without(~gone | gone).size == 0
    assert parts.without(gone & ~gone).size == parts.size
