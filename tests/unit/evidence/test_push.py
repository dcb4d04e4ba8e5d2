"""How far suspects go along the mean update of the others."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedgt import named_design
from fedgt.evidence import Push, contrasts
from fedgt.types import FloatArray

ROWS = named_design("graded-15x10-b").matrix.astype(np.float64)
SUSPECTS, NOBODY = np.isin(np.arange(15), [2, 5, 11]), np.zeros(15, dtype=np.bool_)


def push_of(clients: FloatArray, weights: FloatArray | None = None, samples: FloatArray | None = None) -> Push:
    rows = ROWS * (np.ones(15) if weights is None else weights)
    means: FloatArray = rows @ clients / rows.sum(axis=1, keepdims=True)
    return Push.of_updates(means, weights=rows, samples=np.ones(15) if samples is None else samples)


@given(st.floats(-10.0, 10.0), st.integers(0, 100))
def test_the_push_is_found_whatever_the_weights(times: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    way = rng.normal(size=30)
    clients = np.where(SUSPECTS, times, 1.0)[:, None] * way
    found = push_of(clients, rng.uniform(1.0, 3.0, 15)).along_mean(SUSPECTS, NOBODY)
    assert found == pytest.approx(times - 1.0, abs=1e-6)


@given(st.floats(-10.0, 10.0), st.integers(0, 100))
def test_whoever_is_set_aside_does_not_count(times: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    way, aside = rng.normal(size=30), np.isin(np.arange(15), [0, 7])
    clients = np.where(SUSPECTS, times, 1.0)[:, None] * way
    clients[aside] = 100.0 * rng.normal(size=(2, 30))
    found = push_of(clients, rng.uniform(1.0, 3.0, 15)).along_mean(SUSPECTS, aside)
    assert found == pytest.approx(times - 1.0, abs=1e-5)


@given(st.integers(0, 100))
def test_it_is_that_of_the_updates_themselves(seed: int) -> None:
    clients = np.random.default_rng(seed).normal(size=(15, 30)) + 1.0
    means = ROWS @ clients / ROWS.sum(axis=1, keepdims=True)
    parts = contrasts(ROWS, np.ones(15))
    shift = parts.shifts[:, SUSPECTS].sum(axis=1)
    away = shift @ (parts.transform @ means) / (shift @ shift)
    shares = ROWS[:, SUSPECTS].sum(axis=1) / ROWS.sum(axis=1)
    others = (means - shares[:, None] * away).mean(axis=0)
    assert push_of(clients).along_mean(SUSPECTS, NOBODY) == pytest.approx(away @ others / (others @ others))


def test_what_is_at_a_right_angle_does_not_count() -> None:
    clients = np.zeros((15, 2))
    clients[:, 0] = 1.0
    clients[SUSPECTS, 1] = 100.0
    assert push_of(clients).along_mean(SUSPECTS, NOBODY) == pytest.approx(0.0, abs=1e-9)


def test_where_nothing_is_seen_nobody_goes_far() -> None:
    still = push_of(np.zeros((15, 4)))
    assert still.along_mean(SUSPECTS, NOBODY) == 0.0
    assert not still.beyond_honest(SUSPECTS, NOBODY)
    assert push_of(np.ones((15, 4))).along_mean(NOBODY, NOBODY) == 0.0
    assert not push_of(np.ones((15, 4))).beyond_honest(NOBODY, NOBODY)


@given(st.floats(1.0, 20.0), st.floats(-2.9, 5.0))
def test_a_client_may_go_as_far_as_its_samples_carry_it(more: float, push: float) -> None:
    samples = np.where(np.arange(15) == 2, 100.0 * more, 100.0)
    limit = more**0.5 - 0.85
    assume(abs(push - limit) > 1e-6)

    def beyond(times: float) -> bool:
        one = push_of(np.where(SUSPECTS, times, 1.0)[:, None] * np.ones((15, 3)), samples=samples)
        assert one.along_mean(SUSPECTS, NOBODY) == pytest.approx(times - 1.0, abs=1e-7)
        return one.beyond_honest(SUSPECTS, NOBODY)

    assert beyond(1.0 + push) == (push > limit)
    assert beyond(-2.1)
