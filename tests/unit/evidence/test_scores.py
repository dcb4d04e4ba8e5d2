"""Losses and margins of a model on the validation set."""

import numpy as np
import numpy.typing as npt
import pytest

from fedgt.errors import CalibrationError, ShapeError
from fedgt.evidence import class_losses, margins, outputs


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
        (np.zeros((2, 2)), [0.0, 1.0], ShapeError, "for 2 classes"),
    ],
)
def test_a_validation_set_that_does_not_fit_is_refused(
    measured: object, logits: npt.NDArray[np.float64], labels: object, error: type[Exception], message: str
) -> None:
    assert callable(measured)
    with pytest.raises(error, match=message):
        measured(logits, np.asarray(labels))
