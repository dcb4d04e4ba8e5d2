"""Attack accuracy and losses on worked examples."""

import numpy as np
import pytest

from fedgt.errors import ShapeError
from fedgt.train.evaluate import attack_accuracy
from fedgt.train.logistic import LogisticRegression

LABELS = np.array([0, 0, 0, 0, 1, 1, 3])
PREDICTED = np.array([0, 0, 0, 1, 3, 1, 3])


def test_attack_accuracy_is_the_fraction_of_the_source_that_is_taken_for_the_target() -> None:
    assert attack_accuracy(PREDICTED, LABELS, source=0, target=1) == pytest.approx(1 / 4)
    assert attack_accuracy(PREDICTED, LABELS, source=1, target=0) == 0


def test_attack_accuracy_without_a_source_sample_is_refused() -> None:
    with pytest.raises(ShapeError, match="source label 2"):
        attack_accuracy(PREDICTED, LABELS, source=2, target=1)


def test_predictions_that_do_not_pair_with_labels_are_refused() -> None:
    with pytest.raises(ShapeError, match="two vectors of one length"):
        attack_accuracy(PREDICTED[:6], LABELS, source=0, target=1)


def test_predictions_and_losses_of_a_model_of_two_classes() -> None:
    model = LogisticRegression(classes=2, features=1)
    parameters = {"weight": np.array([[-1.0], [1.0]]), "bias": np.zeros(2)}
    images = np.array([[2.0], [-2.0]])
    assert model.predict(parameters, images).tolist() == [1, 0]
    expected = np.log1p(np.exp([-4.0, 4.0]))
    np.testing.assert_allclose(model.losses(parameters, images, np.array([1, 1])), expected)
