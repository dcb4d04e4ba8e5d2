"""What comes again is no new evidence, and does not hide who attacks again."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.evidence import GradedEvidence, MarginEvidence, decode_graded, graded_screen, margin_screen, together
from fedgt.evidence.decide import SOMEBODY, SOMEBODY_BY_MARGINS
from fedgt.evidence.repeated import PERSISTS, part_that_is_new
from fedgt.types import BoolArray, FloatArray, SetEvidence
from slow_cases import slow

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


def variance_kept(noise: Sequence[FloatArray], shifts: Sequence[FloatArray]) -> float:
    """The same quotient by the variances of the best estimate of how hard each client pushes, one client after the other."""
    quotients = []
    for client in range(shifts[0].shape[1]):
        moved = np.concatenate([one[:, client] for one in shifts])
        if not moved.any():
            continue
        joint = np.block([[a @ b.T * (1.0 if a is b else PERSISTS) for b in noise] for a in noise])
        estimate = np.linalg.inv(joint) @ moved / (moved @ np.linalg.inv(joint) @ moved)
        alone = 1.0 / sum(float(one[:, client] @ one[:, client]) for one in shifts)
        quotients.append(alone / float(estimate @ joint @ estimate))
    return float(np.mean(quotients))


@pytest.mark.parametrize("tests", [2, 3, 5])
def test_of_the_same_rows_little_is_new(tests: int) -> None:
    (one,) = looked(np.random.default_rng(0), again=0.5, count=1)
    found = part_that_is_new([one.noise] * tests, [one.damage.shifts] * tests)
    assert found == pytest.approx(1 / (1 + (tests - 1) * PERSISTS))


def test_what_is_new_is_how_much_better_all_tests_tell_a_push() -> None:
    """The textbook's best linear estimate, by inverting the covariance of all contrasts."""
    rng = np.random.default_rng(3)
    looks = []
    for rows in (10, 6, 4):
        weights = rng.permuted(np.repeat([[1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]], rows, axis=0), axis=1)
        found = graded_screen(
            rng.normal(size=(rows, CLASSES, INPUTS)),
            rng.normal(size=(rows, CLASSES)),
            weights=weights,
            samples=rng.integers(50, 500, size=15),
            erased=[False] * rows,
        ).evidence
        assert isinstance(found, GradedEvidence)
        looks.append(found)
    noise, shifts = [one.noise for one in looks], [one.damage.shifts for one in looks]
    assert part_that_is_new(noise, shifts) == pytest.approx(variance_kept(noise, shifts))


def test_other_rows_say_more_that_is_new_than_the_same_rows() -> None:
    rng = np.random.default_rng(0)
    first, second = looked(rng, again=0.8, count=2)
    turned = np.roll(second.noise, 7, axis=1), np.roll(second.damage.shifts, 7, axis=1)
    other = part_that_is_new([first.noise, turned[0]], [first.damage.shifts, turned[1]])
    same = part_that_is_new([first.noise, second.noise], [first.damage.shifts, second.damage.shifts])
    assert same < other <= 1.0


@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in range(1, 8))])
def test_three_looks_at_honest_clients_make_nobody_certain(seed: int) -> None:
    """Added up, as if they were independent, they did in three runs of eight."""
    for again in (0.0, 0.5, 0.8, 1.0):
        tests = looked(np.random.default_rng(100 + seed), again=again)
        found = decode_graded(together(list(tests)), clients=15, largest=7)
        assert found.posterior.max() < 0.98
        assert not found.flagged.any()


@pytest.mark.parametrize("again", [*slow(0.0), 0.5, *slow(0.9)])
@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in range(1, 4))])
def test_attackers_are_still_named(again: float, seed: int) -> None:
    tests = looked(np.random.default_rng(seed), again=again, malicious=(2, 5, 11))
    found = decode_graded(together(list(tests)), clients=15, largest=7)
    assert np.flatnonzero(found.flagged).tolist() == [2, 5, 11]


def test_equal_tests_are_hardly_more_than_one() -> None:
    (one,) = looked(np.random.default_rng(3), again=0.0, count=1)
    sets = np.random.default_rng(1).random((200, 15)) < 0.3
    three = sum(part.log_likelihood(sets) for part in together([one, one, one]))
    once = one.log_likelihood(sets)
    assert np.ptp(three) < 1.2 * np.ptp(once)


@pytest.mark.parametrize("tests", [2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_a_line_of_honest_clients_that_comes_again_is_no_more_against_them(tests: int, seed: int) -> None:
    """As where few samples make some own more of a class: they do in every test. It was 3 to 7 nats more."""
    rng = np.random.default_rng(seed)
    layers = rng.normal(size=(15, CLASSES, INPUTS))
    layers[:, 1] += np.outer(rng.normal(size=15), rng.normal(size=INPUTS))
    means, losses = np.tensordot(ROWS, layers, axes=1), 0.3 + rng.normal(scale=0.01, size=(10, CLASSES))
    one = graded_screen(means, losses, weights=ROWS, samples=[100] * 15, erased=[False] * 10).evidence
    assert isinstance(one, GradedEvidence)
    assert one.some() > 20, "there is a line"
    once, again = (decode_graded(together([one] * count), clients=15, largest=7) for count in (1, tests))
    assert again.against_nobody < max(once.against_nobody, -2.0) + 1.5


@pytest.mark.parametrize("power", [1.0, 0.4])
def test_all_likelihoods_are_raised_to_the_power_that_of_nobody_too(power: float) -> None:
    (one,) = looked(np.random.default_rng(3), again=0.0, count=1, malicious=(2, 5, 11))
    raised, sets = one.raised(power), np.concatenate([np.zeros((1, 15), dtype=np.bool_), some_sets()])
    known = sets[1]
    kinds: list[Callable[[GradedEvidence], SetEvidence | None]] = [
        lambda of: of,
        lambda of: of.aside(known),
        lambda of: of.beside([known]),
        lambda of: of.given(known),
        lambda of: of.lines(3)[1],
    ]
    for kind in kinds:
        before, after = kind(one), kind(raised)
        assert before is not None
        assert after is not None
        np.testing.assert_allclose(after.log_likelihood(sets), power * before.log_likelihood(sets), rtol=1e-9)
    np.testing.assert_allclose(raised.explained(sets[1:]), power * one.explained(sets[1:]))
    assert raised.some() == pytest.approx(power * one.some())
    assert raised.two_lines() == pytest.approx(power * one.two_lines())


@pytest.mark.parametrize("tests", [2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_attackers_of_unequal_strength_whom_one_test_names_are_named_by_the_same_test_again(
    seed: int, tests: int
) -> None:
    """The chance of such strengths was counted anew in each test, until nobody was named."""
    rng = np.random.default_rng([90, seed])
    malicious = np.sort(rng.choice(15, 3, replace=False))
    strengths = np.zeros(15)
    strengths[malicious] = np.maximum(1 + 0.35 * rng.normal(size=3), 0.3)
    layers, pushed = rng.normal(size=(15, CLASSES, INPUTS)), 6.0 * np.outer(strengths, rng.normal(size=INPUTS))
    layers[:, 0] += pushed
    layers[:, 1] -= pushed
    losses = 0.5 + 0.02 * rng.normal(size=(10, CLASSES))
    losses[:, 0] += 3 * ROWS @ strengths
    means = np.tensordot(ROWS, layers, axes=1)
    one = graded_screen(means, losses, weights=ROWS, samples=[100] * 15, erased=[False] * 10).evidence
    assert isinstance(one, GradedEvidence)
    once, again = (decode_graded(together([one] * count), clients=15, largest=7) for count in (1, tests))
    assert np.flatnonzero(once.flagged).tolist() == malicious.tolist()
    assert np.flatnonzero(again.flagged).tolist() == malicious.tolist()


def test_one_test_is_left_as_it_is() -> None:
    (one,) = looked(np.random.default_rng(3), again=0.0, count=1)
    assert together([one]) == [one]
    sets = np.random.default_rng(1).random((50, 15)) < 0.3
    np.testing.assert_array_equal(one.raised(1.0).log_likelihood(sets), one.log_likelihood(sets))
    assert one.raised(0.5).some() < one.some()


def test_a_poor_test_does_not_weaken_a_good_one() -> None:
    """Ten rows, then three of them once more: with one power for both the first would lose a fifth of what it says."""
    good, poor = looked(np.random.default_rng(3), again=0.0, count=2, malicious=(2, 5, 11))
    few = graded_screen(
        np.random.default_rng(4).normal(size=(4, CLASSES, INPUTS)),
        np.full((4, CLASSES), 0.3),
        weights=ROWS[:4],
        samples=[100] * 15,
        erased=[False] * 4,
    ).evidence
    assert isinstance(few, GradedEvidence)
    first, second = (one for one in together([good, few]) if isinstance(one, GradedEvidence))
    assert first.power > 0.9 > second.power
    same = [one.power for one in together([good, poor]) if isinstance(one, GradedEvidence)]
    assert same[0] == pytest.approx(same[1])


def margins_of(rows: FloatArray, seed: int = 5, push: float = 0.0) -> MarginEvidence:
    """Margins of six classes, of clients that differ and three that push, in these groups."""
    rng = np.random.default_rng(seed)
    of_clients = rng.normal(size=(15, 6, 6))
    of_clients[[2, 5, 11], 1, 4] += push
    shares = rows / rows.sum(axis=1, keepdims=True)
    losses = rng.normal(0.3, 0.01, size=(len(rows), 6))
    means = np.tensordot(shares, of_clients, axes=1)
    found = margin_screen(means, losses, classes=range(6), weights=rows, erased=[False] * len(rows)).evidence
    assert isinstance(found, MarginEvidence)
    return found


def some_sets() -> BoolArray:
    """200 sets of clients."""
    return np.random.default_rng(1).random((200, 15)) < 0.3


def test_the_same_margins_again_are_hardly_more_than_one_test() -> None:
    one = margins_of(ROWS)
    again = sum(part.log_likelihood(some_sets()) for part in together([one, one]))
    assert np.ptp(again) < 1.1 * np.ptp(one.log_likelihood(some_sets()))
    assert together([one]) == [one]


def test_margins_of_several_tests_are_raised_to_the_part_that_is_new() -> None:
    """Added up as if they were independent, two looks at the same would say twice as much."""
    first, second = margins_of(ROWS[:7]), margins_of(ROWS[1:8])
    power = part_that_is_new([first.noise, second.noise], [first.shifts, second.shifts])
    assert 0.5 < power < 1.0
    parts = [one for one in together([first, second]) if isinstance(one, MarginEvidence)]
    assert np.mean([one.power for one in parts]) == pytest.approx(power, rel=0.05)
    for one, before in zip(parts, (first, second), strict=True):
        np.testing.assert_allclose(
            one.log_likelihood(some_sets()), one.power * before.log_likelihood(some_sets()), rtol=1e-12
        )


@pytest.mark.slow
def test_two_tests_by_margins_need_more_to_accuse_than_one() -> None:
    """Honest clients of Dirichlet shares came to 2.9 nats in two tests (decision 0034)."""
    weak, strong = margins_of(ROWS, 10, push=7.75), margins_of(ROWS, 10, push=8.0)
    once, twice, clear = (
        decode_graded(together(tests), clients=15, largest=7) for tests in ([weak], [weak, weak], [strong, strong])
    )
    assert SOMEBODY_BY_MARGINS < once.against_nobody <= twice.against_nobody < SOMEBODY
    assert np.flatnonzero(once.flagged).tolist() == np.flatnonzero(clear.flagged).tolist() == [2, 5, 11]
    assert not twice.flagged.any()
