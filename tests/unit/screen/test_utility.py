"""How useful a group's model is on the validation set."""

import numpy as np
import pytest

from fedgt.errors import CalibrationError, ShapeError, SpecError
from fedgt.screen import Utility, balanced_accuracy, measure, recall, top1_accuracy
from fedgt.screen.utility import UTILITIES

LABELS = [1, 1, 1, 1, 7, 7, 0, 0, 0, 0]
PREDICTIONS = [1, 1, 1, 7, 7, 1, 0, 0, 0, 0]


def test_recall_counts_only_samples_of_the_source_label() -> None:
    assert recall(PREDICTIONS, LABELS, 1) == 0.75
    assert recall(PREDICTIONS, LABELS, 7) == 0.5


def test_top1_accuracy_counts_every_sample() -> None:
    assert top1_accuracy(PREDICTIONS, LABELS) == 0.8


def test_balanced_accuracy_weighs_every_class_equally() -> None:
    assert balanced_accuracy(PREDICTIONS, LABELS) == pytest.approx((0.75 + 0.5 + 1.0) / 3)


def test_balanced_accuracy_ignores_predicted_classes_that_have_no_sample() -> None:
    assert balanced_accuracy([5, 1, 2], [1, 1, 2]) == 0.75


@pytest.mark.parametrize(
    ("name", "value"), [("recall", 0.75), ("top1", 0.8), ("balanced-accuracy", (0.75 + 0.5 + 1.0) / 3)]
)
def test_a_utility_is_chosen_by_its_name(name: Utility, value: float) -> None:
    assert measure(name, PREDICTIONS, LABELS, source_label=1) == pytest.approx(value)


def test_an_unknown_utility_is_refused_with_the_choices() -> None:
    with pytest.raises(SpecError, match=r"'f1'.*recall, top1, balanced-accuracy"):
        measure("f1", PREDICTIONS, LABELS)  # type: ignore[arg-type]


def test_only_recall_needs_a_source_label() -> None:
    assert measure("top1", PREDICTIONS, LABELS) == 0.8
    assert measure("balanced-accuracy", PREDICTIONS, LABELS) == pytest.approx(0.75)
    with pytest.raises(SpecError, match="source label"):
        measure("recall", PREDICTIONS, LABELS)


def test_a_source_label_absent_from_the_validation_set_is_an_error_that_says_so() -> None:
    with pytest.raises(CalibrationError, match=r"source label 3 is absent .*present: 0, 1, 7"):
        recall(PREDICTIONS, LABELS, 3)


@pytest.mark.parametrize("utility", UTILITIES)
def test_an_empty_validation_set_is_refused(utility: Utility) -> None:
    empty = np.array([], dtype=np.int64)
    with pytest.raises(CalibrationError, match="empty"):
        measure(utility, empty, empty, source_label=1)


@pytest.mark.parametrize("utility", UTILITIES)
def test_predictions_must_be_one_label_per_sample(utility: Utility) -> None:
    with pytest.raises(ShapeError, match=r"\(2,\).*\(3,\)"):
        measure(utility, [1, 2], [1, 2, 3], source_label=1)
    with pytest.raises(ShapeError, match=r"\(1, 2\)"):
        measure(utility, [[1, 2]], [[1, 2]], source_label=1)


@pytest.mark.parametrize("utility", UTILITIES)
def test_scores_in_place_of_labels_are_refused(utility: Utility) -> None:
    with pytest.raises(ShapeError, match=r"predictions have dtype float64.*argmax"):
        measure(utility, [0.1, 0.9], [0, 1], source_label=1)
    with pytest.raises(ShapeError, match="labels have dtype float64"):
        measure(utility, [0, 1], [0.0, 1.0], source_label=1)
