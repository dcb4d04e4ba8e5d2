"""The paper's group test, and its answers to degenerate input."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from fedgt.errors import ShapeError, SpecError
from fedgt.screen import ScreenResult, cluster_screen

TWO_BLOBS = np.repeat([[0.0, 0.0], [1.0, 0.0]], 4, axis=0)
UTILITIES = np.repeat([0.9, 0.5], 4)


def screen(
    layer: npt.ArrayLike, utilities: npt.ArrayLike, erased: Sequence[int] = (), threshold: float = 0.6, size: int = 4
) -> ScreenResult:
    closed = np.zeros(len(np.asarray(layer)), dtype=np.bool_)
    closed[list(erased)] = True
    return cluster_screen(
        layer, utilities, erased=closed, max_group_size=size, silhouette_threshold=threshold, restarts=20, seed=0
    )


def test_the_groups_of_lower_utility_are_positive() -> None:
    result = screen(TWO_BLOBS, UTILITIES)
    assert str(result.outcomes) == "00001111"
    assert result.clusters.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert (result.number_of_clusters, result.silhouette_max, result.status) == (2, 1.0, "tested")
    assert result.projection == pytest.approx(np.repeat([-0.5, 0.5], 4))
    assert result.utilities.tolist() == UTILITIES.tolist()
    assert "groups 0, 1, 2, 3 of mean utility 0.9 negative, groups 4, 5, 6, 7 positive" in result.reason


def test_only_the_best_of_three_clusters_is_negative() -> None:
    layer = np.array([[0.0], [0.01], [3.0], [3.01], [6.0], [6.02]])
    result = screen(layer, [0.5, 0.52, 0.9, 0.92, 0.7, 0.7])
    assert str(result.outcomes) == "110011"
    assert result.clusters.tolist() == [2, 2, 0, 0, 1, 1]


def test_the_mean_utility_of_a_cluster_counts_and_not_its_best_group() -> None:
    result = screen(np.array([[0.0], [0.0], [50.0], [50.0]]), [1.0, 0.2, 0.7, 0.7], threshold=0.0, size=1)
    assert result.number_of_clusters == 2
    assert str(result.outcomes) == "1100"


def test_points_are_unscaled_so_the_coordinate_of_larger_spread_decides() -> None:
    utilities = np.array([0.9, 0.5, 0.9, 0.9, 0.5, 0.9, 0.5, 0.5])
    assert str(screen(TWO_BLOBS * 100, utilities, threshold=0.0, size=1).outcomes) == "00001111"
    assert str(screen(TWO_BLOBS / 100, utilities, threshold=0.0, size=1).outcomes) == "01001011"


def test_identical_groups_are_no_evidence_and_nobody_is_flagged() -> None:
    result = screen(np.ones((8, 3)), [0.9] * 8, threshold=0.0)
    assert (result.status, result.number_of_clusters, str(result.outcomes)) == ("no-evidence", 1, "00000000")
    assert result.reason.startswith("no evidence")


def test_four_groups_with_nine_clusters_allowed_are_tested() -> None:
    result = screen(np.array([[0.0], [0.1], [5.0], [5.1]]), [0.9, 0.9, 0.1, 0.1], size=8)
    assert str(result.outcomes) == "0011"


def test_a_silhouette_below_the_threshold_is_no_evidence_and_the_reason_names_it() -> None:
    rng = np.random.default_rng(3)
    result = screen(rng.normal(size=(8, 5)), rng.random(8), threshold=0.99)
    assert (result.status, str(result.outcomes)) == ("no-evidence", "00000000")
    assert f"{result.silhouette_max:.3g}, is below the threshold 0.99" in result.reason


def test_two_groups_are_no_evidence_since_two_points_are_not_two_clusters() -> None:
    result = screen(np.array([[0.0], [5.0]]), [0.9, 0.1], threshold=0.0)
    assert (result.status, str(result.outcomes)) == ("no-evidence", "00")
    assert "no number of clusters" in result.reason


def test_a_dead_model_is_said_to_carry_no_information() -> None:
    result = screen(np.zeros((8, 10)), [0.0] * 8)
    assert str(result.outcomes) == "00000000"
    assert "utility carries no information: it is 0 in every group" in result.reason


def test_clusters_of_equal_utility_flag_nobody() -> None:
    result = screen(TWO_BLOBS, [0.0] * 8)
    assert (result.status, result.number_of_clusters, str(result.outcomes)) == ("no-utility", 2, "00000000")
    assert result.reason == "the utility carries no information: it is 0 in every group, so all are negative"


def test_clusters_of_equal_mean_utility_flag_nobody() -> None:
    result = screen(TWO_BLOBS * 50, [0.1, 0.3, 0.1, 0.3, 0.2, 0.2, 0.3, 0.1], threshold=0.0, size=1)
    assert (result.status, str(result.outcomes)) == ("no-utility", "00000000")
    assert "one of the 2 clusters on average" in result.reason


def test_every_cluster_that_ties_for_the_best_is_negative() -> None:
    result = screen(np.array([[0.0], [0.0], [3.0], [3.0], [6.0], [6.0]]), [0.9, 0.9, 0.9, 0.9 - 1e-14, 0.5, 0.5])
    assert (result.number_of_clusters, result.status, str(result.outcomes)) == (3, "tested", "000011")


@pytest.mark.parametrize("poison", [np.nan, np.inf, -1e300])
def test_a_group_mean_that_is_not_finite_is_an_erasure_and_the_rest_is_tested(poison: float) -> None:
    layer = TWO_BLOBS.copy()
    layer[2, 1] = poison
    result = screen(layer, UTILITIES)
    assert str(result.outcomes) == "00?01111"
    assert result.clusters[2] == -1
    assert (
        np.flatnonzero(np.isnan(result.projection)).tolist()
        == np.flatnonzero(np.isnan(result.utilities)).tolist()
        == [2]
    )
    assert result.reason.endswith("; erased: group 2 (classification layer not finite)")


def test_a_utility_that_is_not_finite_is_an_erasure_and_the_rest_is_tested() -> None:
    utilities = UTILITIES.copy()
    utilities[[1, 6]] = np.nan, -np.inf
    result = screen(TWO_BLOBS, utilities)
    assert str(result.outcomes) == "0?0011?1"
    assert result.reason.endswith("; erased: groups 1, 6 (utility not finite)")


def test_each_erasure_is_reported_with_its_own_cause() -> None:
    layer, utilities = TWO_BLOBS.copy(), UTILITIES.copy()
    layer[[0, 3]], utilities[[0, 7]] = np.nan, np.nan
    result = screen(layer, utilities, erased=[0])
    assert str(result.outcomes) == "?00?111?"
    assert result.reason.endswith(
        "; erased: group 0 (sum not opened), group 3 (classification layer not finite), group 7 (utility not finite)"
    )


@pytest.mark.parametrize("erased", [range(8), range(1, 8)])
def test_fewer_than_two_groups_are_erased_and_never_given_a_clean_bill(erased: range) -> None:
    result = screen(TWO_BLOBS, UTILITIES, erased=list(erased))
    assert (result.status, str(result.outcomes), result.number_of_clusters) == ("too-few-groups", "????????", 0)
    assert result.clusters.tolist() == [-1] * 8
    assert f"{8 - len(erased)} of 8 groups can be tested" in result.reason


def test_the_number_of_clusters_is_limited_by_the_groups_that_are_left() -> None:
    layer = np.array([[0.0], [1.0], [7.0], [0.5], [0.5]])
    assert screen(layer, [0.9, 0.8, 0.1, 0.5, 0.5], erased=[3, 4], threshold=0.0, size=9).number_of_clusters == 2


def test_group_size_limits_the_number_of_clusters() -> None:
    layer = np.array([[0.0], [0.0], [3.0], [3.0], [6.0], [6.0]])
    utilities = [0.9, 0.9, 0.7, 0.7, 0.5, 0.5]
    assert [screen(layer, utilities, size=size).number_of_clusters for size in (1, 2, 3)] == [2, 3, 3]


def test_the_result_is_read_only() -> None:
    result = screen(TWO_BLOBS, UTILITIES)
    for array in (result.outcomes.values, result.utilities, result.projection, result.clusters):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_the_arguments_are_left_as_they_were() -> None:
    layer, utilities = TWO_BLOBS.copy(), UTILITIES.copy()
    screen(layer, utilities)
    assert (layer == TWO_BLOBS).all()
    assert (utilities == UTILITIES).all()


@pytest.mark.parametrize(
    ("layer", "utilities", "erased"),
    [
        (np.zeros(4), np.zeros(4), np.zeros(4, dtype=np.bool_)),
        (np.zeros((4, 0)), np.zeros(4), np.zeros(4, dtype=np.bool_)),
        (np.zeros((4, 2)), np.zeros(3), np.zeros(4, dtype=np.bool_)),
        (np.zeros((4, 2)), np.zeros(4), np.zeros(5, dtype=np.bool_)),
        (np.zeros((4, 2)), np.zeros(4), np.zeros(4, dtype=np.int64)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    layer: npt.NDArray[np.float64], utilities: npt.NDArray[np.float64], erased: npt.NDArray[np.generic]
) -> None:
    with pytest.raises(ShapeError, match="needed"):
        cluster_screen(layer, utilities, erased=erased, max_group_size=4, silhouette_threshold=0.6, restarts=5, seed=0)


def test_settings_out_of_range_are_refused_even_when_nothing_can_be_tested() -> None:
    with pytest.raises(SpecError, match="0 clients"):
        screen(TWO_BLOBS, UTILITIES, size=0)
    with pytest.raises(SpecError, match="threshold is 2"):
        screen(TWO_BLOBS, UTILITIES, erased=list(range(8)), threshold=2.0)
