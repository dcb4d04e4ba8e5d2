"""The first principal component of the group means."""

import numpy as np
import pytest

from fedgt.errors import ShapeError
from fedgt.screen import first_component, layer_features


def test_points_on_a_line_keep_their_distances() -> None:
    direction = np.array([3.0, 4.0]) / 5
    steps = np.array([0.0, 1.0, 1.0, 3.0])
    layer = np.array([10.0, -2.0]) + steps[:, None] * direction
    assert first_component(layer) == pytest.approx(steps - steps.mean())


def test_the_largest_loading_is_positive() -> None:
    assert first_component([[0.0, 0.0], [-3.0, 1.0]]).tolist() == pytest.approx([np.sqrt(10) / 2, -np.sqrt(10) / 2])
    assert first_component([[0.0, 0.0], [3.0, -1.0]]).tolist() == pytest.approx([-np.sqrt(10) / 2, np.sqrt(10) / 2])


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e200])
def test_a_row_that_is_not_finite_is_left_out_and_does_not_move_the_others(poison: float) -> None:
    clean = np.array([[0.0, 1.0], [2.0, 5.0], [1.0, 1.5]])
    broken = np.insert(clean, 1, [poison, 0.0], axis=0)
    scores = first_component(broken)
    assert np.isnan(scores[1])
    assert np.delete(scores, 1).tolist() == first_component(clean).tolist()


def test_no_usable_row_gives_no_score() -> None:
    assert np.isnan(first_component(np.full((3, 2), np.nan))).all()


def test_a_lone_row_is_its_own_mean() -> None:
    assert first_component([[4.0, 5.0]]).tolist() == [0.0]


def test_equal_models_lie_at_zero_exactly_also_when_their_means_are_rounded() -> None:
    model = np.random.default_rng(0).normal(size=50)
    means = np.array(
        [sum([model * weight for weight in weights]) / sum(weights) for weights in [(1, 3), (7, 11), (3,)]]
    )
    assert (means[0] != means[1]).any()
    assert first_component(means).tolist() == [0.0, 0.0, 0.0]
    assert first_component(np.zeros((4, 3))).tolist() == [0.0] * 4


def test_a_small_difference_between_large_models_is_not_rounding() -> None:
    layer = np.full((3, 4), 100.0)
    layer[2] += 1e-6
    assert first_component(layer) == pytest.approx(np.array([-2, -2, 4]) / 3 * 1e-6, rel=1e-6)


def test_more_groups_than_features_work() -> None:
    assert first_component([[0.0], [1.0], [2.0], [5.0]]).tolist() == pytest.approx([-2.0, -1.0, 0.0, 3.0])


@pytest.mark.parametrize("shape", [(3,), (3, 0), (2, 2, 2)])
def test_anything_but_a_matrix_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="groups, features"):
        first_component(np.zeros(shape))


def test_the_source_label_selects_its_weights_and_no_label_selects_all() -> None:
    weights = np.arange(2 * 3 * 4, dtype=np.float64).reshape(2, 3, 4)
    assert layer_features(weights, 1).tolist() == [[4, 5, 6, 7], [16, 17, 18, 19]]
    assert layer_features(weights).tolist() == [list(range(12)), list(range(12, 24))]


@pytest.mark.parametrize("source_label", [-1, 3])
def test_a_source_label_that_is_no_class_is_refused(source_label: int) -> None:
    with pytest.raises(ShapeError, match=f"{source_label} was given.*0 to 2"):
        layer_features(np.zeros((2, 3, 4)), source_label)


def test_a_layer_without_classes_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 12\)"):
        layer_features(np.zeros((2, 12)))
