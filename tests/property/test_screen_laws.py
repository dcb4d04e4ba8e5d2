"""Laws of the screen: what must not change its answer."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from fedgt.screen import ScreenResult, cluster_points, cluster_screen, dunn_index, first_component, silhouette_values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """Groups in up to four blobs on a line in weight space, with noise; the utility falls with the blob, with noise."""

    layer: npt.NDArray[np.float64]
    utilities: npt.NDArray[np.float64]
    rng: np.random.Generator


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    blobs = np.array(draw(st.lists(st.integers(0, 3), min_size=3, max_size=10)))
    features = draw(st.integers(1, 12))
    noise = draw(st.sampled_from([0.01, 0.3]))
    layer = blobs[:, None] * rng.normal(size=features) + noise * rng.normal(size=(len(blobs), features))
    return Case(layer=layer, utilities=0.9 - 0.1 * blobs + 0.1 * noise * rng.random(len(blobs)), rng=rng)


def screen(layer: npt.ArrayLike, utilities: npt.ArrayLike, erased: npt.NDArray[np.bool_] | None = None) -> ScreenResult:
    closed = np.zeros(len(np.asarray(layer)), dtype=np.bool_) if erased is None else erased
    return cluster_screen(
        layer, utilities, erased=closed, max_group_size=4, silhouette_threshold=0.5, restarts=5, seed=0
    )


def assert_same(left: ScreenResult, right: ScreenResult) -> None:
    assert str(left.outcomes) == str(right.outcomes)
    assert left.clusters.tolist() == right.clusters.tolist()
    assert left.status == right.status


@given(cases())
def test_renaming_groups_renames_the_outcomes(case: Case) -> None:
    order = case.rng.permutation(len(case.layer))
    plain, renamed = screen(case.layer, case.utilities), screen(case.layer[order], case.utilities[order])
    assert renamed.outcomes.values.tolist() == plain.outcomes.values[order].tolist()
    assert renamed.clusters.tolist() == plain.clusters[order].tolist()


@given(cases())
def test_adding_one_vector_to_every_layer_changes_nothing(case: Case) -> None:
    shifted = case.layer + 10 * case.rng.normal(size=case.layer.shape[1])
    assert_same(screen(shifted, case.utilities), screen(case.layer, case.utilities))


@given(cases(), st.floats(-5, 5))
def test_adding_one_number_to_every_utility_changes_nothing(case: Case, shift: float) -> None:
    assert_same(screen(case.layer, case.utilities + shift), screen(case.layer, case.utilities))


@given(cases(), st.sampled_from([1e-3, 0.5, 7.0, 1e6]))
def test_one_common_factor_of_layer_and_utility_changes_nothing(case: Case, factor: float) -> None:
    assert_same(screen(case.layer * factor, case.utilities * factor), screen(case.layer, case.utilities))


@given(cases())
def test_reordering_the_features_changes_nothing(case: Case) -> None:
    order = case.rng.permutation(case.layer.shape[1])
    assert_same(screen(case.layer[:, order], case.utilities), screen(case.layer, case.utilities))


@given(cases())
def test_the_sign_of_the_projection_changes_no_cluster(case: Case) -> None:
    plain = np.column_stack((case.utilities, first_component(case.layer)))
    found = [
        cluster_points(points, max_clusters=5, silhouette_threshold=0.5, restarts=5, seed=0).labels
        for points in (plain, plain * [1, -1])
    ]
    together = [labels[:, None] == labels[None, :] for labels in found]
    assert (together[0] == together[1]).all()


@given(cases(), st.integers(0, 2**10 - 1), st.sampled_from([0.0, np.nan, 1e9]))
def test_erased_groups_answer_as_if_they_did_not_exist(case: Case, bits: int, junk: float) -> None:
    erased = np.array([bool(bits >> i & 1) for i in range(len(case.layer))])
    layer, utilities = case.layer.copy(), case.utilities.copy()
    layer[erased], utilities[erased] = junk, junk
    with_junk, without = screen(layer, utilities, erased), screen(case.layer[~erased], case.utilities[~erased])
    assert (with_junk.outcomes.values[erased] == -1).all()
    assert with_junk.outcomes.values[~erased].tolist() == without.outcomes.values.tolist()
    assert with_junk.clusters[~erased].tolist() == without.clusters.tolist()
    assert with_junk.status == without.status


@given(cases())
def test_a_screen_of_two_or_more_groups_never_calls_all_of_them_positive(case: Case) -> None:
    result = screen(case.layer, case.utilities)
    assert result.outcomes.negatives >= 1
    assert (result.status == "tested") == bool((result.outcomes.values == 1).any())
    assert set(result.clusters.tolist()) == set(range(result.number_of_clusters))


@given(cases())
def test_no_positive_cluster_has_a_higher_mean_utility_than_a_negative_one(case: Case) -> None:
    result = screen(case.layer, case.utilities)
    means = [case.utilities[result.clusters == k].mean() for k in range(result.number_of_clusters)]
    positive = {k for k in range(len(means)) if result.outcomes.values[result.clusters == k][0] == 1}
    assert all(means[k] < means[0] for k in positive)
    assert all(a >= b - 1e-12 for a, b in pairwise(means))


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=9),
    st.sampled_from([0.0, 1e-12, 1e-9, 1e-7, 1e-6, 1e-5]),
    st.integers(1, 9),
    st.sampled_from([1e-200, 1.0, 1e150]),
)
def test_repeated_and_nearly_repeated_points_are_clustered_without_a_warning(
    raw: list[tuple[int, int, int]], gap: float, max_clusters: int, factor: float
) -> None:
    points = np.array([[x, y + gap * step] for x, y, step in raw]) * factor
    found = cluster_points(points, max_clusters=max_clusters, silhouette_threshold=0.0, restarts=3, seed=0)
    assert set(found.labels.tolist()) == set(range(found.clusters))
    assert found.clusters <= min(max_clusters, found.distinct)
    assert found.clusters < len(raw) or len(raw) == 1


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2)), min_size=2, max_size=9))
def test_silhouettes_lie_between_minus_one_and_one_and_dunn_is_not_negative(raw: list[tuple[int, int]]) -> None:
    points = np.array([[float(x)] for x, _ in raw])
    labels = np.array([label for _, label in raw])
    labels[0], labels[1] = 0, 1
    assert (np.abs(silhouette_values(points, labels)) <= 1).all()
    assert dunn_index(points, labels) >= 0
