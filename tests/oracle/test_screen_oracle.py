"""The screen against literal forms of the paper's formulas, and against the named libraries."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.metrics import balanced_accuracy_score, recall_score, silhouette_samples

from fedgt.screen import (
    balanced_accuracy,
    cluster_points,
    cluster_screen,
    dunn_index,
    first_component,
    recall,
    silhouette_values,
)

Points = npt.NDArray[np.float64]
Labels = list[int]


def squared(left: Points, right: Points) -> float:
    return float(sum((a - b) ** 2 for a, b in zip(left.tolist(), right.tolist(), strict=True)))


def silhouettes_by_the_formula(points: Points, labels: Labels) -> list[float]:
    values = []
    for i, own in enumerate(labels):
        mates = [j for j, label in enumerate(labels) if label == own and j != i]
        if not mates:
            values.append(0.0)
            continue
        within = sum(squared(points[i], points[j]) for j in mates) / len(mates)
        between = []
        for other in set(labels) - {own}:
            members = [j for j, label in enumerate(labels) if label == other]
            between.append(sum(squared(points[i], points[j]) for j in members) / len(members))
        values.append((min(between) - within) / max(within, min(between)))
    return values


def dunn_by_the_formula(points: Points, labels: Labels) -> float:
    members = {label: points[[j for j, own in enumerate(labels) if own == label]] for label in set(labels)}
    centres = {label: rows.mean(axis=0) for label, rows in members.items()}
    separation = min(squared(centres[a], centres[b]) for a in centres for b in centres if a != b)
    diameter = max(squared(a, b) for rows in members.values() for a in rows for b in rows)
    return separation / diameter


def partitions(count: int, clusters: int) -> Iterator[Labels]:
    """Every way to put `count` points into exactly `clusters` clusters, as restricted growth strings."""

    def grow(prefix: Labels, used: int) -> Iterator[Labels]:
        if len(prefix) == count:
            if used == clusters:
                yield prefix
            return
        for label in range(min(used + 1, clusters)):
            yield from grow([*prefix, label], max(used, label + 1))

    yield from grow([], 0)


def inertia(points: Points, labels: Labels) -> float:
    array = np.array(labels)
    return float(sum(((points[array == k] - points[array == k].mean(axis=0)) ** 2).sum() for k in set(labels)))


def best_partition(points: Points, clusters: int) -> Labels:
    return min(partitions(len(points), clusters), key=lambda labels: inertia(points, labels))


def clustering_by_the_formula(points: Points, max_clusters: int, threshold: float) -> Labels:
    """The whole of the cluster choice, k-means by exhaustion; for points that are all distinct."""
    optimal = {k: best_partition(points, k) for k in range(2, max_clusters + 1)}
    silhouette_max = max(
        (sum(silhouettes_by_the_formula(points, labels)) / len(points) for labels in optimal.values()), default=0.0
    )
    eligible = {k: dunn_by_the_formula(points, labels) for k, labels in optimal.items() if k < len(points)}
    if max(silhouette_max, 0.0) < threshold or not eligible:
        return [0] * len(points)
    return optimal[max(eligible, key=lambda k: eligible[k])]


def same_partition(left: npt.ArrayLike, right: npt.ArrayLike) -> bool:
    a, b = np.asarray(left), np.asarray(right)
    return bool(((a[:, None] == a) == (b[:, None] == b)).all())


@st.composite
def labelled_points(draw: st.DrawFn) -> tuple[Points, Labels]:
    count = draw(st.integers(3, 10))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    return rng.normal(size=(count, draw(st.integers(1, 3)))), [5, 6, 6, *labels[3:]]


@given(labelled_points())
def test_silhouettes_equal_the_formula(case: tuple[Points, Labels]) -> None:
    points, labels = case
    assert silhouette_values(points, labels) == pytest.approx(silhouettes_by_the_formula(points, labels))


@given(labelled_points())
def test_silhouettes_equal_those_of_scikit_learn_on_squared_distances(case: tuple[Points, Labels]) -> None:
    points, labels = case
    if len(set(labels)) < len(labels):
        assert silhouette_values(points, labels) == pytest.approx(
            silhouette_samples(points, labels, metric="sqeuclidean")
        )


@given(labelled_points())
def test_the_dunn_index_equals_the_formula(case: tuple[Points, Labels]) -> None:
    points, labels = case
    assert dunn_index(points, labels) == pytest.approx(dunn_by_the_formula(points, labels))


@given(st.integers(2, 12), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_the_projection_equals_that_of_scikit_learn_up_to_sign(groups: int, features: int, seed: int) -> None:
    layer = np.random.default_rng(seed).normal(size=(groups, features)) + 3
    expected = PCA(n_components=1, svd_solver="full").fit_transform(layer)[:, 0]
    found = first_component(layer)
    assert found * np.sign(found[0]) == pytest.approx(expected * np.sign(expected[0]), abs=1e-9)


@given(st.integers(3, 7), st.integers(1, 6), st.sampled_from([0.0, 0.5, 0.7, 0.9]), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_the_clusters_are_those_of_exhaustive_k_means_and_the_formulas(
    count: int, max_clusters: int, threshold: float, seed: int
) -> None:
    points = np.random.default_rng(seed).random((count, 2))
    limit = min(count, max_clusters)
    found = cluster_points(points, max_clusters=limit, silhouette_threshold=threshold, restarts=50, seed=0)
    assert same_partition(found.labels, clustering_by_the_formula(points, limit, threshold))


@given(st.lists(st.integers(0, 2), min_size=3, max_size=7), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_separated_blobs_are_found_with_the_smallest_inertia_there_is(blobs: Labels, seed: int) -> None:
    centres = np.array([[0.0, 0.0], [4.0, 1.0], [1.0, 5.0]])
    points = centres[blobs] + 0.02 * np.random.default_rng(seed).normal(size=(len(blobs), 2))
    found = cluster_points(points, max_clusters=3, silhouette_threshold=0.0, restarts=10, seed=0)
    if found.clusters > 1:
        smallest = inertia(points, best_partition(points, found.clusters))
        assert inertia(points, found.labels.tolist()) == pytest.approx(smallest)


@given(st.integers(3, 7), st.integers(1, 5), st.sampled_from([0.0, 0.6]), st.integers(0, 2**32 - 1))
@settings(max_examples=2 * settings().max_examples)
def test_the_outcomes_are_those_of_the_paper_step_by_step(
    groups: int, group_size: int, threshold: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    layer, utilities = 0.3 * rng.normal(size=(groups, 9)), rng.random(groups)
    found = cluster_screen(
        layer,
        utilities,
        erased=np.zeros(groups, dtype=np.bool_),
        max_group_size=group_size,
        silhouette_threshold=threshold,
        restarts=50,
        seed=0,
    )
    scores = PCA(n_components=1, svd_solver="full").fit_transform(layer)[:, 0]
    labels = np.array(
        clustering_by_the_formula(np.column_stack((utilities, scores)), min(groups, group_size + 1), threshold)
    )
    best = max(set(labels.tolist()), key=lambda k: utilities[labels == k].mean())
    assert found.outcomes.values.tolist() == (labels != best).astype(int).tolist()


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40))
def test_recall_and_balanced_accuracy_equal_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    # One right sample of each class keeps scikit-learn from warning about classes that are only predicted.
    predicted = np.array([p for p, _ in pairs] + list(range(5)))
    true = np.array([t for _, t in pairs] + list(range(5)))
    assert balanced_accuracy(predicted, true) == pytest.approx(balanced_accuracy_score(true, predicted))
    recalls = recall_score(true, predicted, average=None)
    assert [recall(predicted, true, label) for label in range(5)] == pytest.approx(recalls.tolist())
