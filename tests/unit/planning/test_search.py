"""The search: its Pareto set, its recommendation, its determinism, its memory, and what it says when nothing is found."""

import numpy as np
import pytest

from fedgt.deadline import NEVER
from fedgt.design import all_contaminated, constant_row_weight, from_matrix, named_design
from fedgt.errors import DesignError, SpecError
from fedgt.planning import Demands, Figures, SearchResult, search
from fedgt.planning.evaluation import figures, private
from fedgt.planning.search import pareto, promising, recommended
from fedgt.privacy import minimum_support

SMALL = Demands(clients=8, privacy=2, max_malicious=2, groups_max=5, dropouts=1)


@pytest.fixture(scope="module")
def small() -> SearchResult:
    return search(SMALL, effort=0.05, seed=1, draws=2)


def test_every_design_of_the_front_meets_the_demands_by_independent_computation(small: SearchResult) -> None:
    assert small.front
    for one in small.front:
        support = minimum_support(one.design.matrix)
        assert support is not None
        assert support.lower == one.figures.r >= 2
        assert all_contaminated(one.design)[2] <= 0.2
        assert one.figures.groups <= 5


def test_nothing_on_the_front_is_beaten_and_nothing_equal_stays_twice(small: SearchResult) -> None:
    gains = [one.figures.gains for one in small.front]
    assert len(set(gains)) == len(gains)
    for one in gains:
        assert not any(other != one and all(a >= b for a, b in zip(other, one, strict=True)) for other in gains)


def test_the_recommended_design_is_on_the_front_and_survives_the_dropouts_if_any_does(small: SearchResult) -> None:
    assert small.recommended in small.front
    if any(one.r_after >= 2 for one in small.front):
        assert small.recommended.r_after >= 2
        assert small.recommended.keeps_promise == 1.0


def test_the_same_seed_gives_the_same_result(small: SearchResult) -> None:
    again = search(SMALL, effort=0.05, seed=1, draws=2)
    assert [one.figures.gains for one in again.front] == [one.figures.gains for one in small.front]
    np.testing.assert_array_equal(again.recommended.design.matrix, small.recommended.design.matrix)


def test_progress_ends_with_all_steps_done() -> None:
    seen: list[tuple[int, int]] = []
    search(SMALL, effort=0.02, draws=1, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_progress_of_a_graded_search_counts_the_polishing_too() -> None:
    seen: list[tuple[int, int]] = []
    demands = Demands(clients=7, privacy=2, max_malicious=2, groups_max=4, evidence="graded")
    search(demands, effort=0.1, draws=1, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert all(done <= total for done, total in seen)


def test_figures_of_the_published_designs_are_the_known_ones() -> None:
    """DESIGN.md section 4: r, n_m^max at kappa = .2, and 30 x the objective at true p = .05, averaged over n_m = 0..5."""
    demands = Demands(clients=15, privacy=4, max_malicious=5)
    found = figures(named_design("bch-15x8"), demands)
    assert (found.groups, found.r, found.max_malicious) == (8, 4, 5)
    assert found.expected_mean == pytest.approx(
        30 * np.mean([0.0078, 0.0124, 0.0291, 0.0635, 0.1055, 0.1470]), abs=2e-3
    )


def test_a_design_at_least_as_good_as_15x8_is_found_with_no_more_groups() -> None:
    demands = Demands(clients=15, privacy=4, max_malicious=5, groups_max=8)
    known = figures(named_design("bch-15x8"), demands)
    best = search(demands, effort=0.05, draws=1).recommended.figures
    assert best.groups <= 8
    assert best.r >= known.r
    assert (best.max_malicious or 0) >= 5
    assert best.expected_mean <= known.expected_mean + 1e-9


@pytest.mark.slow
def test_the_published_15x8_is_beaten_in_expected_error_with_as_many_groups() -> None:
    demands = Demands(clients=15, privacy=4, max_malicious=5, groups_max=8)
    known = figures(named_design("bch-15x8"), demands)
    best = search(demands, draws=1, deadline=NEVER).recommended.figures
    assert (best.groups, best.r, best.max_malicious) == (8, 4, 5)
    assert best.expected_mean < known.expected_mean - 0.01


def test_of_many_candidates_for_graded_evidence_the_best_for_each_r_are_looked_at() -> None:
    demands = Demands(clients=15, privacy=4, max_malicious=7, groups_max=8, evidence="graded")
    named = [named_design(name) for name in ("graded-15x8", "graded-15x8-b", "bch-15x8")]
    worse = [constant_row_weight(15, 8, per_group=4, rng=np.random.default_rng(seed)) for seed in range(6)]
    chosen = promising([*worse, *named], demands, effort=0.1)
    assert len(chosen) == 4
    assert {"graded-15x8-b", "bch-15x8"} <= {one.name for one in chosen}
    assert promising(named, demands, effort=0.1) == named


@pytest.mark.slow
def test_designs_with_no_more_groups_and_fewer_errors_than_30x12_are_found() -> None:
    demands = Demands(clients=30, privacy=6, max_malicious=8, groups_max=12)
    known = figures(named_design("cyclic-30x12"), demands)
    found = [one.figures for one in search(demands, effort=0.3, deadline=NEVER).front]
    better = [one for one in found if one.groups <= 12 and one.r >= 6 and (one.max_malicious or 0) >= 8]
    assert min(one.expected_mean for one in better) < known.expected_mean


def test_when_nothing_is_found_the_message_says_what_binds_and_what_is_nearest() -> None:
    with pytest.raises(
        DesignError,
        match=r"was found among \d+ .*Nearest found: privacy 5 with max_malicious 1 .*max_malicious 2 with privacy [34]",
    ):
        search(Demands(clients=9, privacy=5, max_malicious=2, kappa=0.2, groups_max=5), effort=0.02, draws=3)


def test_an_effort_of_nothing_is_refused() -> None:
    with pytest.raises(SpecError, match="effort = 0"):
        search(SMALL, effort=0)


def test_an_effort_without_end_is_refused() -> None:
    with pytest.raises(SpecError, match="effort = inf; a finite number"):
        search(SMALL, effort=float("inf"))


def test_graded_designs_are_judged_by_ties_and_margin() -> None:
    demands = Demands(clients=8, privacy=2, max_malicious=2, groups_max=5, evidence="graded")
    result = search(demands, effort=0.1, draws=1)
    for one in result.front:
        assert one.figures.max_malicious is None
        assert one.figures.margin is not None
        assert one.figures.margin > 0
        assert one.wrong[0] == one.wrong[1] * 0
        assert np.isnan(one.missed).all()
    errors = [one.figures.expected_mean for one in result.front]
    assert result.recommended.figures.expected_mean <= 1.0 - 0.98 * (1.0 - min(errors)) + 1e-9


def made(groups: int, r: int, stands: int, wrong: float) -> Figures:
    return Figures(
        design=from_matrix(np.ones((groups, 9), dtype=int)),
        r=r,
        r_exact=True,
        max_malicious=stands,
        expected_mean=wrong,
    )


def test_the_pareto_set_keeps_trade_offs_and_drops_what_is_beaten() -> None:
    few, better, beaten, twin = made(4, 4, 3, 1.0), made(6, 4, 3, 0.5), made(6, 4, 3, 0.6), made(4, 4, 3, 1.001)
    assert pareto([twin, few, better, beaten]) == (few, better)


def test_the_rule_prefers_the_fewest_groups_among_nearly_the_least_error() -> None:
    from fedgt.planning import Evaluation

    def full(one: Figures, r_after: int) -> Evaluation:
        nothing = np.zeros(1)
        return Evaluation(
            figures=one, r_after=r_after, keeps_promise=1.0, missed=nothing, accused=nothing, wrong=nothing
        )

    # Accusing nobody leaves 2 wrong on average, the best design 1: 85 % of that reduction is 1.15.
    demands = Demands(clients=9, privacy=4, max_malicious=4, dropouts=1)
    close, least = full(made(5, 4, 3, 1.14), 4), full(made(8, 4, 3, 1.0), 4)
    far, exposed = full(made(4, 4, 3, 1.16), 4), full(made(3, 4, 3, 0.5), 3)
    assert recommended([far, close, least, exposed], demands) is close
    assert recommended([exposed], demands) is exposed


@pytest.mark.parametrize("privacy", [1, 2, 3, 4, 5])
def test_the_quick_rejection_agrees_with_the_exact_minimum_support(privacy: int) -> None:
    rng = np.random.default_rng(privacy)
    for _ in range(40):
        rows = rng.integers(0, 2, size=(5, 9))
        rows[:, 0] |= rows.sum(axis=1) == 0
        support = minimum_support(rows)
        assert support is not None
        assert private(from_matrix(rows), privacy) == (support.lower >= privacy)
