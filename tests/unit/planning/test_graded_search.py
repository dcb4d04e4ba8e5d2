"""The search for designs for graded evidence, on problems small enough to run in a moment."""

import numpy as np
import pytest

from fedgt.design import from_matrix, named_design
from fedgt.errors import DesignError
from fedgt.planning.graded_search import GradedDesign, search_graded
from fedgt.planning.margin import draw_trials, wrong_under_noise
from fedgt.planning.ties import ties
from fedgt.privacy import minimum_support


def small_search(seed: int) -> GradedDesign:
    found = search_graded(
        8, 4, privacy=3, rng=np.random.default_rng(seed), size_range=(3, 5), restarts=2, moves=40, polish=10
    )
    assert found is not None
    return found


def test_a_design_that_is_found_keeps_every_demand() -> None:
    found = small_search(0)
    matrix = found.design.matrix
    assert matrix.shape == (4, 8)
    assert 3 <= found.design.group_sizes.min() <= found.design.group_sizes.max() <= 5
    assert not found.design.untested
    for rows, claimed in ((matrix, found.support), (np.vstack([matrix, np.ones(8)]), found.support_with_sum)):
        support = minimum_support(rows)
        assert support is not None
        assert support.r == claimed.r >= 3
    np.testing.assert_array_equal(found.found.expected_wrong, ties(found.design, 3).expected_wrong)


def test_the_same_generator_state_gives_the_same_design() -> None:
    np.testing.assert_array_equal(small_search(4).design.matrix, small_search(4).design.matrix)


def test_the_search_beats_the_average_of_random_designs_with_the_same_promise() -> None:
    found = small_search(1)
    rng = np.random.default_rng(2)
    wrong: list[float] = []
    while len(wrong) < 20:
        matrix = (rng.random((4, 8)) < 0.5).astype(int)
        support = minimum_support(matrix) if matrix.any(axis=1).all() else None
        if support is not None and support.r >= 3 and np.linalg.matrix_rank(matrix) == 4:
            wrong.append(ties(from_matrix(matrix), 3).expected_wrong.mean().item())
    assert found.wrong < np.mean(wrong)


def test_progress_counts_every_move_of_every_start() -> None:
    seen: list[tuple[int, int]] = []
    search_graded(
        8,
        4,
        privacy=3,
        rng=np.random.default_rng(0),
        restarts=2,
        moves=20,
        polish=3,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(i, 43) for i in range(1, 44)]


def test_a_promise_that_no_start_can_keep_gives_no_design() -> None:
    """Three triples of five clients: two of them share two clients, and their difference mixes two clients only."""
    rng = np.random.default_rng(0)
    assert search_graded(5, 3, privacy=3, privacy_with_sum=1, size_range=(3, 3), rng=rng, restarts=1, moves=3) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 10, "groups": 8, "privacy": 4}, "at most 7 groups keep 4"),
        ({"clients": 10, "groups": 7, "privacy": 4}, "at most clients - groups = 3"),
        ({"clients": 10, "groups": 10, "privacy": 1}, "2 to clients - 1"),
        ({"clients": 10, "groups": 4, "privacy": 0}, "at least 1"),
        ({"clients": 10, "groups": 4, "privacy": 4, "size_range": (3, 6)}, "4 <= smallest"),
        ({"clients": 10, "groups": 4, "privacy": 4, "size_range": (4, 10)}, "largest <= 9"),
    ],
)
def test_impossible_demands_say_which_one_binds(options: dict[str, object], message: str) -> None:
    with pytest.raises(DesignError, match=message):
        search_graded(rng=np.random.default_rng(0), **options)  # type: ignore[arg-type]


def test_without_noise_the_wrong_clients_are_those_of_the_ties() -> None:
    """Ties accuse the smallest set, so at a huge step only larger tied sets go wrong, as often as they are drawn."""
    design = named_design("bch-15x8")
    found = ties(design, 5)
    sampled = wrong_under_noise(design, found, draw_trials(15, 5, 2_000, rng=np.random.default_rng(1)), step=1e4)
    np.testing.assert_allclose(sampled[1:], found.expected_wrong[1:], atol=0.12)


def test_noise_alone_accuses_few_and_a_larger_step_makes_fewer_mistakes() -> None:
    design = named_design("graded-15x10")
    found, trials = ties(design, 5), draw_trials(15, 5, 60, rng=np.random.default_rng(0))
    wrong = [wrong_under_noise(design, found, trials, step=step) for step in (2.0, 8.0, 40.0)]
    assert wrong[0].mean() > wrong[1].mean() > wrong[2].mean()
    assert wrong[0][0] == wrong[2][0] < 1.0  # nobody malicious: the step plays no part
    assert wrong[2][1:].max() < 0.1


def test_trials_hold_as_many_attacks_of_every_size() -> None:
    trials = draw_trials(6, 3, 7, rng=np.random.default_rng(0))
    assert np.bincount(trials.sets.sum(axis=1)).tolist() == [7, 7, 7, 7]
    assert trials.noise.shape == (28, 6)
