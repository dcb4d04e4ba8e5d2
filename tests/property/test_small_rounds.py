"""Every test round ends with an answer, whatever the design, the noise and the strength of the attackers."""

from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest

from fedgt.evidence import GradedDecoding, GradedScreen
from fedgt.federation import Features
from slow_cases import slow
from small_rounds import FIVE_INDEPENDENT, THREE_OF_FIVE, TWO_PARTITIONS, small_round

RUNS = 750

FEATURES: tuple[Features, ...] = get_args(Features)


def drawn(rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Disjoint groups, two partitions, or drawn; now and then with rows that repeat others."""
    clients = int(rng.integers(4, 12))
    everybody = np.arange(clients)
    first = (everybody % 3 == np.arange(3)[:, None]).astype(np.uint8)
    second = (everybody // 3 == np.arange((clients + 2) // 3)[:, None]).astype(np.uint8)
    kind = rng.integers(4)
    if kind == 0:
        return np.asarray(first, dtype=np.uint8)
    if kind == 1:
        return np.concatenate([first, second])
    rows = (rng.random((rng.integers(3, 9), clients)) < rng.choice([0.2, 0.4, 0.6])).astype(np.uint8)
    rows[rows.sum(axis=1) == 0, 0] = 1
    return np.concatenate([rows, rows[:2]]) if kind == 2 else rows


def answered(screen: GradedScreen, decoding: GradedDecoding) -> None:
    posterior = decoding.posterior
    if screen.evidence is None or decoding.status == "unexplained":
        assert np.isnan(posterior).all()
        assert not decoding.flagged.any()
    else:
        assert ((posterior >= 0.0) & (posterior <= 1.0)).all()
        assert decoding.count.sum() == pytest.approx(1.0)
    assert np.isfinite(screen.projection[screen.tested]).all() or screen.status == "too-few-groups"


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 10))])
def test_every_small_round_ends_with_an_answer(part: int) -> None:
    for seed in range(part * RUNS // 10, (part + 1) * RUNS // 10):
        rng = np.random.default_rng([7, seed])
        matrix = drawn(rng)
        clients = matrix.shape[1]
        malicious = rng.permutation(clients)[: rng.integers(0, (clients - 1) // 2 + 1)].tolist()
        made = small_round(
            matrix,
            malicious,
            seed=seed,
            noise=float(rng.choice([0.0, 1e-12, 1e-6, 1e-2, 0.1, 1.0])),
            size=float(rng.choice([0.0, 1e-6, 0.1, 1.0, 3.0, 1e4])),
            inputs=int(rng.choice([12, 60])),
            unequal=bool(rng.integers(2)),
            erased=0.05,
        )
        answered(*made.decoded(FEATURES[seed % 3], inputs=seed % 2 == 0))


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("noise", [*slow(0.0), 0.1])
@pytest.mark.parametrize("malicious", [*slow([], [0], [0, 1]), [1, 2, 6], *slow([0, 5, 10])])
def test_partitions_of_fifteen_clients_are_answered(malicious: list[int], noise: float, features: Features) -> None:
    for matrix in (THREE_OF_FIVE, TWO_PARTITIONS, FIVE_INDEPENDENT):
        answered(*small_round(matrix, malicious, seed=len(malicious), noise=noise).decoded(features))


def test_two_partitions_name_a_client_that_one_partition_cannot_tell_from_its_group() -> None:
    alone, both = (small_round(matrix, [7], seed=1).decoded()[1] for matrix in (THREE_OF_FIVE, TWO_PARTITIONS))
    assert not alone.flagged.any()
    assert np.flatnonzero(both.flagged).tolist() == [7]


def test_a_row_that_repeats_others_changes_no_verdict() -> None:
    once, twice = (
        small_round(matrix, [7], seed=1).decoded()[1]
        for matrix in (TWO_PARTITIONS[:-1], np.concatenate([TWO_PARTITIONS, TWO_PARTITIONS[:3]]))
    )
    np.testing.assert_allclose(once.posterior, twice.posterior, atol=1e-3)
