"""How far suspects go along the mean update of the others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt import named_design
from fedgt.evidence import beyond_honest, push_along_mean
from fedgt.types import FloatArray

ROWS = named_design("graded-15x10-b").matrix.astype(np.float64)
SUSPECTS = np.isin(np.arange(15), [2, 5, 11])


def means_of(clients: FloatArray, weights: FloatArray) -> FloatArray:
    rows = ROWS * weights
    means: FloatArray = rows @ clients / rows.sum(axis=1, keepdims=True)
    return means


@given(st.floats(-10.0, 10.0), st.integers(0, 100))
def test_the_push_is_found_whatever_the_weights(times: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(1.0, 3.0, 15)
    way = rng.normal(size=30)
    clients = np.where(SUSPECTS, times, 1.0)[:, None] * way
    found = push_along_mean(means_of(clients, weights), ROWS * weights, np.ones(15), SUSPECTS)
    assert found == pytest.approx(times - 1.0, abs=1e-6)


def test_what_is_at_a_right_angle_does_not_count() -> None:
    clients = np.zeros((15, 2))
    clients[:, 0] = 1.0
    clients[SUSPECTS, 1] = 100.0
    assert push_along_mean(means_of(clients, np.ones(15)), ROWS, np.ones(15), SUSPECTS) == pytest.approx(0.0, abs=1e-9)


def test_where_nothing_is_seen_nobody_goes_far() -> None:
    still = np.zeros((10, 4))
    assert push_along_mean(still, ROWS, np.ones(15), SUSPECTS) == 0.0
    assert push_along_mean(still + 1.0, ROWS, np.ones(15), np.zeros(15, dtype=bool)) == 0.0


@given(st.floats(1.0, 20.0), st.floats(-1.9, 5.0))
def test_a_client_may_go_as_far_as_its_samples_carry_it(more: float, push: float) -> None:
    samples = np.where(SUSPECTS, 100.0 * more, 100.0)
    assert beyond_honest(push, samples, SUSPECTS) == (push >= more**0.5 - 0.85)
    assert beyond_honest(-2.0, samples, SUSPECTS)
