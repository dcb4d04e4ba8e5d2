"""What comes again is learnt, is no new evidence, and does not hide who attacks again."""

from collections.abc import Sequence

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.evidence import GradedEvidence, decode_graded, graded_screen, together
from fedgt.evidence.repeated import Look, folded, part_that_is_new
from fedgt.types import FloatArray

MATRIX = named_design("graded-15x10-b").matrix
ROWS = MATRIX / MATRIX.sum(axis=1, keepdims=True)
CLASSES, INPUTS = 4, 50
SPECTRUM = np.exp(-np.arange(INPUTS) / 15)


def looked(
    rng: np.random.Generator, *, again: float, count: int = 3, malicious: Sequence[int] = (), push: float = 5.0
) -> list[GradedEvidence]:
    """Tests of the same rows, in which this part of what clients differ by comes again, and attackers push one class."""
    lasting = rng.normal(size=(15, CLASSES, INPUTS))
    line = rng.normal(size=INPUTS)
    line *= push / np.linalg.norm(line)
    found = []
    for _ in range(count):
        layers = (again**0.5 * lasting + (1 - again) ** 0.5 * rng.normal(size=lasting.shape)) * SPECTRUM
        layers[list(malicious), 1] += line
        layers[list(malicious), 2] -= line
        losses = np.full((10, CLASSES), 0.3) + rng.normal(scale=0.01, size=(10, CLASSES))
        losses[:, 1] += ROWS[:, list(malicious)].sum(axis=1)
        means = np.tensordot(ROWS, layers, axes=1)
        one = graded_screen(means, losses, weights=ROWS, samples=[100] * 15, erased=[False] * 10).evidence
        assert isinstance(one, GradedEvidence)
        found.append(one)
    return found


def new_in(tests: Sequence[GradedEvidence]) -> float:
    return part_that_is_new([one.look for one in tests if one.look is not None], 80.0)


@pytest.mark.parametrize("again", [0.0, 0.2, 0.6, 0.8])
@pytest.mark.parametrize("malicious", [(), (2, 5, 11)])
def test_how_much_comes_again_is_learnt_also_beside_attackers(again: float, malicious: tuple[int, ...]) -> None:
    """Of the same rows in three tests 1 / (1 + 2 rho) is new: the variance of a mean of equally correlated numbers."""
    found = np.mean(
        [new_in(looked(np.random.default_rng(seed), again=again, malicious=malicious)) for seed in range(4)]
    )
    assert found == pytest.approx(1 / (1 + 2 * again), abs=0.06)


def test_tests_of_other_clients_rows_are_nearly_all_new() -> None:
    rng = np.random.default_rng(0)
    first, second = looked(rng, again=0.8, count=2)
    assert first.look is not None
    assert second.look is not None
    apart = Look(
        contrasts=second.look.contrasts,
        noise=np.roll(second.look.noise, 7, axis=1),
        shifts=np.roll(second.look.shifts, 7, axis=1),
    )
    assert part_that_is_new([first.look, apart], 80.0) > part_that_is_new([first.look, second.look], 80.0)


def test_three_looks_at_honest_clients_make_nobody_certain() -> None:
    """Added up, as if they were independent, they did in three runs of eight."""
    for seed in range(8):
        for again in (0.0, 0.5, 0.8):
            tests = looked(np.random.default_rng(100 + seed), again=again)
            found = decode_graded(together(list(tests)), clients=15, largest=7)
            assert found.posterior.max() < 0.98
            assert not found.flagged.any()


@pytest.mark.parametrize("again", [0.0, 0.5])
def test_attackers_are_still_named(again: float) -> None:
    for seed in range(4):
        tests = looked(np.random.default_rng(seed), again=again, malicious=(2, 5, 11))
        found = decode_graded(together(list(tests)), clients=15, largest=7)
        assert np.flatnonzero(found.flagged).tolist() == [2, 5, 11]


def test_equal_tests_are_hardly_more_than_one() -> None:
    (one,) = looked(np.random.default_rng(3), again=0.0, count=1)
    sets = np.random.default_rng(1).random((200, 15)) < 0.3
    three = sum(part.log_likelihood(sets) for part in together([one, one, one]))
    once = one.log_likelihood(sets)
    assert np.ptp(three) < 1.3 * np.ptp(once)


def test_a_power_that_is_one_changes_nothing() -> None:
    (one,) = looked(np.random.default_rng(3), again=0.0, count=1)
    sets = np.random.default_rng(1).random((50, 15)) < 0.3
    np.testing.assert_array_equal(one.raised(1.0).log_likelihood(sets), one.log_likelihood(sets))
    assert one.raised(0.5).some() < one.some()


def products(rows: FloatArray) -> FloatArray:
    made: FloatArray = rows @ rows.T
    return made


def test_folding_keeps_scalar_products_on_average() -> None:
    rng = np.random.default_rng(0)
    few = rng.normal(size=(4, 100))
    np.testing.assert_array_equal(folded(few), few)
    errors = []
    for features in (300, 1000, 5000):
        rows = rng.normal(size=(6, features))
        errors.append(np.abs(products(folded(rows)) - products(rows)).mean() / features)
    assert max(errors) < 3 / 256**0.5
