"""Losses and margins of a model on the validation set."""

import numpy as np
import numpy.typing as npt
import pytest

from fedgt.errors import CalibrationError, ShapeError
from fedgt.evidence import class_losses, margins, outputs, usable_scores


def test_the_margins_of_a_mean_of_linear_heads_are_the_mean_of_their_margins() -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(30, 6)), rng.integers(0, 4, 30)
    heads = rng.normal(size=(3, 6, 4))
    shares = np.array([0.2, 0.5, 0.3])
    mean = margins(images @ np.tensordot(shares, heads, axes=1), labels)
    each = np.stack([margins(images @ head, labels) for head in heads])
    np.testing.assert_allclose(mean, np.tensordot(shares, each, axes=1), atol=1e-12)


def test_one_number_added_to_all_logits_of_a_sample_changes_neither_losses_nor_margins() -> None:
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=(12, 3)), rng.integers(0, 3, 12)
    moved = logits + rng.normal(size=(12, 1)) * 50
    np.testing.assert_allclose(class_losses(moved, labels), class_losses(logits, labels), atol=1e-10)
    np.testing.assert_allclose(margins(moved, labels), margins(logits, labels), atol=1e-10)


def test_outputs_are_the_losses_of_the_classes_and_how_much_the_model_prefers_each() -> None:
    rng = np.random.default_rng(2)
    logits, labels = rng.normal(size=(12, 4)), rng.integers(0, 3, 12)  # class 3 has no sample
    found = outputs(logits, labels)
    np.testing.assert_allclose(found[:3], class_losses(logits, labels)[:3])
    np.testing.assert_allclose(found[3:], [np.mean([row[c] - row.mean() for row in logits]) for c in range(4)])
    moved = logits + rng.normal(size=(12, 1)) * 50
    np.testing.assert_allclose(outputs(moved, labels), found, atol=1e-10)


def test_huge_logits_do_not_overflow() -> None:
    losses = class_losses(np.array([[1e4, -1e4], [1e4, -1e4]]), [0, 1])
    assert losses.tolist() == [0.0, 2e4]


@pytest.mark.parametrize("broken", [[np.nan, 0.0], [np.inf, np.inf], [0.0, np.inf], [-np.inf, 0.0]])
def test_a_model_that_diverged_has_no_finite_loss_and_gives_no_warning(broken: list[float]) -> None:
    assert not np.isfinite(class_losses(np.array([broken, [0.0, 0.0]]), [0, 1])[0])
    assert np.isnan(margins(np.array([broken, [0.0, 0.0]]), [0, 1])[:2]).any()


@pytest.mark.parametrize("measured", [class_losses, margins, outputs])
@pytest.mark.parametrize(
    ("logits", "labels", "error", "message"),
    [
        (np.zeros(3), [0, 0, 0], ShapeError, r"\[samples, classes\]"),
        (np.zeros((3, 2)), [0, 1], ShapeError, r"\[samples, classes\]"),
        (np.zeros((0, 2)), [], CalibrationError, "validation set is empty"),
        (np.zeros((2, 2)), [0, 2], ShapeError, "labels from 0 to 2 for 2 classes"),
        (np.zeros((2, 2)), [0, -1], ShapeError, "labels from -1"),
        (np.zeros((2, 2)), [0.0, 1.0], ShapeError, "dtype float64"),
    ],
)
def test_a_validation_set_that_does_not_fit_is_refused(
    measured: object, logits: npt.NDArray[np.float64], labels: object, error: type[Exception], message: str
) -> None:
    assert callable(measured)
    with pytest.raises(error, match=message):
        measured(logits, np.asarray(labels))


def test_a_missing_score_costs_its_class_only() -> None:
    scores = np.eye(4) * 3
    scores[3, 0] = np.nan
    right = np.log(np.exp(3) + 3) - 3
    np.testing.assert_allclose(class_losses(scores, np.arange(4)), [right, right, right, np.nan])
    np.testing.assert_allclose(margins(scores, np.arange(4))[:3], margins(np.eye(4) * 3, np.arange(4))[:3])


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_probability_of_zero_for_a_wrong_class_leaves_the_loss_and_the_margins_of_other_classes(order: str) -> None:
    rng = np.random.default_rng(3)
    scores, labels = rng.normal(size=(12, 3)), np.repeat(np.arange(3), 4)
    rounded = np.array(scores, order=order)  # type: ignore[call-overload]
    rounded[5, 2] = -np.inf
    found = class_losses(rounded, labels)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[[0, 2]], class_losses(scores, labels)[[0, 2]])
    np.testing.assert_allclose(margins(rounded, labels)[[0, 2]], margins(scores, labels)[[0, 2]])
    assert not np.isfinite(margins(rounded, labels)[1]).any()


def test_models_are_compared_on_the_samples_that_all_of_them_score() -> None:
    labels = np.array([0, 0, 1, 1, 1])
    first, second, third = np.zeros((5, 2)), np.ones((5, 2)), np.full((5, 2), np.nan)
    first[1, 0], second[3, 1], second[0, 1] = np.nan, np.inf, -np.inf
    used = usable_scores([first, second, None, third], labels)
    assert used.kept.tolist() == [True, False, True, False, True]
    assert used.labels.tolist() == [0, 1, 1]
    assert used.rounded.tolist() == [True, False, False]
    assert used.models[1] is not None
    assert used.models[1][0].tolist() == [1.0, 0.0]  # the smallest finite score of all
    assert used.models[2] is None
    assert used.models[3] is not None
    assert np.isnan(used.models[3]).all()
    assert "1 (class 0), 3 (class 1) left out" in used.note
    assert "1 scores of minus infinity" in used.note
    assert used.exact().labels.tolist() == [1, 1]


def test_a_model_without_any_score_of_a_class_is_left_out_and_not_the_class() -> None:
    labels = np.array([0, 0, 0, 1])
    first, second = np.zeros((4, 2)), np.zeros((4, 2))
    second[3] = np.nan
    used = usable_scores([first, second], labels)
    assert used.kept.all()
    assert used.models[1] is not None
    assert np.isnan(used.models[1][3]).all()
