"""The number of clusters, and the two indices that choose it."""

import numpy as np
import numpy.typing as npt
import pytest

from fedgt.errors import CalibrationError, ShapeError, SpecError
from fedgt.screen import Clustering, cluster_points, dunn_index, silhouette_score, silhouette_values


def cluster(points: npt.ArrayLike, max_clusters: int = 5, threshold: float = 0.6, restarts: int = 20) -> Clustering:
    return cluster_points(points, max_clusters=max_clusters, silhouette_threshold=threshold, restarts=restarts, seed=0)


def test_a_singleton_has_silhouette_zero() -> None:
    values = silhouette_values([[0.0], [0.1], [1.0]], [0, 0, 1])
    assert values == pytest.approx([0.99, 0.987654, 0.0], abs=5e-7)
    assert silhouette_score([[0.0], [0.1], [1.0]], [0, 0, 1]) == pytest.approx(values.sum() / 3)


def test_a_point_equal_to_all_of_its_own_and_of_another_cluster_has_silhouette_zero() -> None:
    assert silhouette_values([[1.0], [1.0], [1.0], [1.0]], [0, 0, 1, 1]).tolist() == [0.0] * 4


def test_the_dunn_index_divides_squared_centre_distance_by_squared_diameter() -> None:
    assert dunn_index([[0.0], [2.0], [11.0], [12.0]], [3, 3, 9, 9]) == pytest.approx(10.5**2 / 2**2)


def test_the_dunn_index_is_infinite_without_diameter_and_zero_if_centres_coincide() -> None:
    assert dunn_index([[0.0], [0.0], [1.0]], [0, 0, 1]) == np.inf
    assert dunn_index([[1.0], [1.0]], [0, 1]) == 0.0
    assert dunn_index([[0.0], [2.0], [1.0]], [0, 0, 1]) == 0.0


@pytest.mark.parametrize("index", [silhouette_values, silhouette_score, dunn_index])
def test_one_cluster_has_no_index(index: object) -> None:
    assert callable(index)
    with pytest.raises(CalibrationError, match="at least two"):
        index([[0.0], [1.0]], [0, 0])


@pytest.mark.parametrize("index", [silhouette_values, silhouette_score, dunn_index])
def test_labels_must_match_the_points(index: object) -> None:
    assert callable(index)
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        index([[0.0], [1.0]], [0, 1, 1])


def test_identical_points_form_one_cluster() -> None:
    found = cluster([[0.9, 0.0]] * 8, threshold=-1.0)
    assert (found.clusters, found.distinct, found.silhouette_max) == (1, 1, 0.0)
    assert found.labels.tolist() == [0] * 8


def test_four_points_with_nine_clusters_allowed_never_become_four_clusters() -> None:
    found = cluster([[0.0, 0.0], [0.0, 1.0], [5.0, 0.0], [9.0, 9.0]], max_clusters=9, threshold=0.0)
    assert 2 <= found.clusters <= 3


def test_two_values_repeated_form_two_clusters_whatever_was_asked_for() -> None:
    points = np.column_stack(([0.9] * 4 + [0.5] * 4, [0.0] * 4 + [1.0] * 4))
    found = cluster(points, max_clusters=5)
    assert (found.clusters, found.distinct, found.silhouette_max) == (2, 2, 1.0)
    assert len(set(found.labels[:4].tolist())) == len(set(found.labels[4:].tolist())) == 1


def test_the_order_of_the_points_does_not_matter_even_with_a_single_restart() -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        points = rng.random((12, 2))
        order = rng.permutation(12)
        plain = cluster(points, threshold=0.0, restarts=1).labels
        assert cluster(points[order], threshold=0.0, restarts=1).labels.tolist() == plain[order].tolist()


@pytest.mark.parametrize("factor", [1e-100, 1e-13, 1e100])
def test_the_unit_of_the_points_does_not_matter(factor: float) -> None:
    assert cluster(np.array([[0.0], [0.1], [5.0], [5.1]]) * factor).clusters == 2


def test_a_repeated_point_weighs_as_often_as_it_occurs() -> None:
    labels = cluster([[0.0]] * 5 + [[1.0], [2.2]], max_clusters=2, threshold=0.0).labels
    assert labels[0] == labels[4] != labels[5] == labels[6]


def test_points_that_differ_by_rounding_are_one_point() -> None:
    found = cluster([[0.9, 1e-9], [0.9, 0.0], [0.5, 1.0], [0.5, 1.0 + 1e-9]])
    assert (found.clusters, found.distinct) == (2, 2)


def test_a_spread_of_nothing_but_rounding_is_no_spread() -> None:
    assert cluster([[0.9, 0.0], [0.9 + 1e-15, 0.0], [0.9, 1e-16], [0.9, 0.0]], threshold=-1.0).clusters == 1


def test_two_points_cannot_be_told_apart_from_two_clusters() -> None:
    assert cluster([[0.0, 0.0], [9.0, 9.0]], threshold=0.0).clusters == 1


def test_three_blobs_are_three_clusters() -> None:
    points = [[0.0], [0.1], [5.0], [5.1], [9.0], [9.2], [9.1]]
    found = cluster(points)
    assert found.clusters == 3
    assert [len(set(found.labels[part].tolist())) for part in (slice(0, 2), slice(2, 4), slice(4, 7))] == [1, 1, 1]


def test_the_silhouette_threshold_decides_between_one_cluster_and_several() -> None:
    points = np.random.default_rng(3).normal(size=(8, 2))
    reached = cluster(points).silhouette_max
    assert cluster(points, threshold=reached).clusters > 1
    assert cluster(points, threshold=reached + 1e-9).clusters == 1


def test_of_two_equal_dunn_indices_the_smaller_number_of_clusters_wins() -> None:
    points = np.array([[-8.0], [-7.0], [-5.0], [-4.0], [5.5], [6.5], [5.5], [6.5]])
    in_two, in_three = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 1, 1, 2, 2, 2, 2])
    assert dunn_index(points, in_two) == dunn_index(points, in_three) == 9.0
    assert cluster(points, max_clusters=3).clusters == 2


def test_at_most_as_many_clusters_as_allowed() -> None:
    points = [[0.0], [0.1], [5.0], [5.1], [9.0], [9.1]]
    assert [cluster(points, max_clusters=k).clusters for k in (1, 2, 3)] == [1, 2, 3]


def test_a_distance_too_large_to_square_is_clustered() -> None:
    points = np.array([[0.9, -1e160], [0.9, -1e160], [0.5, 1e160], [0.4, 1e160]])
    found = cluster(points)
    assert found.labels[0] == found.labels[1] != found.labels[2] == found.labels[3]


def test_the_labels_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        cluster([[0.0], [1.0]]).labels[0] = 1


@pytest.mark.parametrize("points", [[0.0, 1.0], [[np.nan]], [[np.inf, 0.0]], np.zeros((0, 2)), np.zeros((2, 0))])
def test_points_that_are_no_finite_matrix_are_refused(points: npt.ArrayLike) -> None:
    with pytest.raises(ShapeError, match="matrix of finite numbers"):
        cluster(points)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_clusters": 0}, "at most 0 clusters"),
        ({"silhouette_threshold": 1.1}, "threshold is 1.1"),
        ({"silhouette_threshold": float("nan")}, "threshold is nan"),
        ({"restarts": 0}, "0 restarts"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**32}, "seed is 4294967296"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, int | float], message: str) -> None:
    good: dict[str, int | float] = {"max_clusters": 3, "silhouette_threshold": 0.6, "restarts": 5, "seed": 0}
    with pytest.raises(SpecError, match=message):
        cluster_points([[0.0], [1.0]], **{**good, **settings})  # type: ignore[arg-type]
