"""Laws of graded evidence, on test rounds drawn from its own model: c_j = mu + d_j theta + e_j."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.design import named_design
from fedgt.evidence import GradedDecoding, GradedScreen, decode_graded, graded_screen
from harm_parts import log_harmful
from slow_cases import tries

DESIGN = named_design("graded-15x10-b").matrix.astype(np.float64)
SMALL = np.array(
    [
        [1, 1, 1, 0, 0, 0, 0, 0],
        [0, 0, 1, 1, 1, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 1, 0],
        [1, 0, 0, 1, 0, 0, 1, 0],
        [0, 1, 0, 0, 0, 1, 0, 1],
        [0, 1, 0, 1, 0, 0, 1, 1],
    ],
    dtype=np.float64,
)


def drawn(
    malicious: list[int],
    *,
    seed: int,
    rows: npt.NDArray[np.float64] = DESIGN,
    effective: int = 100,
    features: int = 1000,
    size: float = 2.0,
    samples: npt.NDArray[np.float64] | None = None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(features, losses, weights, samples) of the groups; each independent feature is seen `features / effective` times."""
    rng = np.random.default_rng([seed, effective, len(malicious)])
    clients = rows.shape[1]
    n = np.full(clients, 100.0) if samples is None else samples
    push = np.zeros((clients, 1))
    push[malicious] = size
    own = push * rng.normal(size=effective) + rng.normal(size=(clients, effective)) * (n.mean() / n)[:, None] ** 0.5
    weights = rows * (1.0 if samples is None else samples)
    shares = weights / weights.sum(axis=1, keepdims=True)
    means = np.repeat(shares @ own + rng.normal(size=effective), features // effective, axis=1)
    harm = shares[:, malicious].sum(axis=1)[:, None] * np.array([2.0, 0.0, 0.0])
    losses = 0.5 + harm + 0.03 * rng.normal(size=(len(rows), 3))
    return means, losses, weights, n


def screened(
    means: npt.NDArray[np.float64],
    losses: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    samples: npt.NDArray[np.float64],
    erased: npt.NDArray[np.bool_] | None = None,
) -> GradedScreen:
    closed = np.zeros(len(means), dtype=np.bool_) if erased is None else erased
    return graded_screen(means, losses, weights=weights, samples=samples, erased=closed)


def decoded(screen: GradedScreen, clients: int = 15, largest: int = 7) -> GradedDecoding:
    assert screen.evidence is not None
    return decode_graded([screen.evidence], clients=clients, largest=largest)


@pytest.mark.parametrize("count", range(1, 8))
def test_exactly_the_malicious_clients_are_named_whatever_their_number(count: int) -> None:
    malicious = sorted(np.random.default_rng(count).choice(15, count, replace=False).tolist())
    found = decoded(screened(*drawn(malicious, seed=count)))
    assert np.flatnonzero(found.flagged).tolist() == malicious
    assert found.status == "decided"


@pytest.mark.parametrize("malicious", [[1, 7, 12], [0, 3, 5, 14]])
def test_with_sample_counts_of_one_to_twenty_and_sample_weights_they_are_named_too(malicious: list[int]) -> None:
    samples = np.linspace(20, 400, 15)[np.random.default_rng(0).permutation(15)]
    found = decoded(screened(*drawn(malicious, seed=1, samples=samples, size=4.0, effective=1000)))
    assert np.flatnonzero(found.flagged).tolist() == malicious


def test_members_that_drop_out_change_the_rows_and_nothing_else() -> None:
    rows = DESIGN.copy()
    rows[:, [4, 9]] = 0.0
    found = decoded(screened(*drawn([2, 8, 13], seed=2, rows=rows, size=3.0)))
    assert np.flatnonzero(found.flagged).tolist() == [2, 8, 13]


def test_a_group_with_a_nan_is_tested_as_if_it_had_not_been_opened() -> None:
    means, losses, weights, samples = drawn([3, 8], seed=3)
    closed = np.zeros(10, dtype=np.bool_)
    closed[5] = True
    without = screened(means, losses, weights, samples, closed)
    expected = decoded(without).posterior
    for broken in (np.nan, np.inf):
        spoilt = means.copy()
        spoilt[5, 17] = broken
        found = screened(spoilt, losses, weights, samples)
        assert "group 5 (features not finite)" in found.reason
        np.testing.assert_allclose(decoded(found).posterior, expected, atol=1e-9)
    unscored = losses.copy()
    unscored[5, 0] = np.nan
    found = screened(means, unscored, weights, samples)
    assert "group 5 (validation loss not finite)" in found.reason
    np.testing.assert_allclose(decoded(found).posterior, expected, atol=1e-9)
    assert "group 5 (sum not opened)" in without.reason


@pytest.mark.parametrize("value", [0.0, 1.5])
def test_case_34_clients_that_all_return_the_same_model_are_no_evidence(value: float) -> None:
    screen = screened(np.full((10, 50), value), np.full((10, 3), 2.3), DESIGN, np.full(15, 80.0))
    assert screen.status == "no-difference"
    assert "nobody changed anything" in screen.reason
    assert screen.evidence is None


def test_losses_that_carry_no_information_do_not_say_which_end_is_malicious() -> None:
    """Case 34: accuracy frozen. Nobody is oriented by rounding."""
    means, _, weights, samples = drawn([3, 8], seed=4)
    screen = screened(means, np.full((10, 3), 2.3), weights, samples)
    assert screen.evidence is not None
    sets = np.zeros((2, 15), dtype=np.bool_)
    sets[0, [3, 8]], sets[1, [0]] = True, True
    np.testing.assert_allclose(log_harmful(screen.evidence.damage, sets), np.log(0.5))


@pytest.mark.slow
@pytest.mark.parametrize(("effective", "rounds"), [(20, 50), (100, 200), (1000, 50)])
def test_with_nobody_malicious_at_most_two_rounds_of_a_hundred_accuse_anybody(effective: int, rounds: int) -> None:
    accused = [
        int(decoded(screened(*drawn([], seed=seed, effective=effective, size=0.0))).flagged.sum())
        for seed in range(tries(rounds))
    ]
    assert sum(one > 0 for one in accused) <= 0.02 * len(accused)
    assert sum(accused) <= 0.005 * 15 * len(accused)


@pytest.mark.parametrize("effective", [20, 100, 1000])
def test_with_nobody_malicious_hardly_ever_anybody_is_accused_among_few(effective: int) -> None:
    """The same with 8 clients in 6 groups, of which 3 may be malicious: 93 sets, so that many rounds are quick."""
    accused = 0
    for seed in range(60):
        screen = screened(*drawn([], seed=seed, rows=SMALL, effective=effective, size=0.0))
        accused += bool(decoded(screen, clients=8, largest=3).flagged.any())
    assert accused <= 1


@given(seed=st.integers(0, 1000), count=st.integers(0, 3))
@settings(max_examples=15)
def test_renaming_clients_renames_the_answer(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    malicious = rng.choice(8, count, replace=False).tolist()
    means, losses, weights, samples = drawn(malicious, seed=seed, rows=SMALL, samples=rng.uniform(50, 200, 8))
    order = rng.permutation(8)
    one = decoded(screened(means, losses, weights, samples), clients=8, largest=3)
    other = decoded(screened(means, losses, weights[:, order], samples[order]), clients=8, largest=3)
    np.testing.assert_allclose(other.posterior, one.posterior[order], atol=1e-7)
    np.testing.assert_allclose(other.count, one.count, atol=1e-7)


@given(seed=st.integers(0, 1000), count=st.integers(0, 3))
@settings(max_examples=15)
def test_renaming_groups_and_features_changes_nothing(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    means, losses, weights, samples = drawn(rng.choice(8, count, replace=False).tolist(), seed=seed, rows=SMALL)
    groups, features = rng.permutation(6), rng.permutation(means.shape[1])
    one = decoded(screened(means, losses, weights, samples), clients=8, largest=3)
    other = decoded(
        screened(means[groups][:, features], losses[groups], weights[groups], samples), clients=8, largest=3
    )
    np.testing.assert_allclose(other.posterior, one.posterior, atol=1e-7)


@given(seed=st.integers(0, 1000), factor=st.floats(1e-3, 1e3), shift=st.floats(-10, 10))
@settings(max_examples=15)
def test_scaling_all_features_or_adding_one_model_to_all_changes_nothing(
    seed: int, factor: float, shift: float
) -> None:
    rng = np.random.default_rng(seed)
    means, losses, weights, samples = drawn(rng.choice(8, 2, replace=False).tolist(), seed=seed, rows=SMALL)
    one = decoded(screened(means, losses, weights, samples), clients=8, largest=3)
    other = decoded(screened(factor * (means + shift), losses + 0.1, weights, samples), clients=8, largest=3)
    np.testing.assert_allclose(other.posterior, one.posterior, atol=1e-5)


def test_harm_is_evidence_and_improvement_speaks_against_it() -> None:
    means, losses, weights, samples = drawn([3, 8], seed=6)
    harmful, useful = (decoded(screened(means, one, weights, samples)) for one in (losses, 2.0 - losses))
    assert useful.against_nobody < harmful.against_nobody - 5
