"""The screen on validation margins: laws, what is left out, what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.design import named_design
from fedgt.errors import ShapeError
from fedgt.evidence import (
    GradedScreen,
    MarginEvidence,
    class_losses,
    class_steps,
    decode_graded,
    margin_screen,
    margins,
)
from fedgt.types import BoolArray, FloatArray
from slow_cases import slow

ROWS = named_design("graded-15x10-b").matrix.astype(np.float64)
CLASSES, INPUTS = 8, 60


def federation(
    seed: int,
    malicious: tuple[int, ...] = (),
    *,
    source: int = 1,
    target: int = 7,
    skew: float = 0.8,
    noise: float = 0.002,
) -> tuple[FloatArray, FloatArray, FloatArray, Any]:
    """Logits of the group means and of the start, the inputs, the labels: heads that made a step on classes of their own."""
    rng = np.random.default_rng(seed)
    prototypes = rng.normal(size=(CLASSES, INPUTS)) / 4
    labels = np.repeat(np.arange(CLASSES), 12)
    inputs = prototypes[labels] + 0.1 * rng.normal(size=(len(labels), INPUTS))
    seen = np.column_stack([prototypes, np.ones(CLASSES)])  # with the bias
    heads = np.zeros((15, CLASSES, INPUTS + 1))
    for client in range(15):
        shares = 1.0 + skew * rng.uniform(-1.0, 1.0, size=CLASSES)
        for c in range(CLASSES):
            label = target if client in malicious and c == source else c
            heads[client] += 0.05 * shares[c] * np.outer(np.eye(CLASSES)[label] - 1.0 / CLASSES, seen[c])
        heads[client] += noise * rng.normal(size=heads[client].shape)
    means = np.tensordot(ROWS / ROWS.sum(axis=1, keepdims=True), heads, axes=1)
    with_bias = np.column_stack([inputs, np.ones(len(inputs))])
    return np.einsum("gcf,sf->gsc", means, with_bias), np.zeros((len(labels), CLASSES)), inputs, labels


def screened(
    logits: FloatArray, start: FloatArray, inputs: FloatArray | None, labels: Any, **more: Any
) -> GradedScreen:
    """The screen, with steps where the inputs are known."""
    steps = None if inputs is None else class_steps((start + logits.mean(axis=0)) / 2, inputs, labels)
    return margin_screen(
        np.stack([margins(one, labels) for one in logits]),
        np.stack([class_losses(one, labels) for one in logits]),
        **{
            "classes": np.unique(labels),
            "weights": ROWS,
            "erased": np.zeros(len(ROWS), dtype=np.bool_),
            "steps": steps,
            **more,
        },
    )


def accused(screen: GradedScreen) -> BoolArray:
    """Who is."""
    assert screen.evidence is not None
    return decode_graded([screen.evidence], clients=15, largest=7).flagged


@pytest.mark.parametrize("malicious", [(4,), *slow(((2, 7, 11),), ((0, 3, 6, 9, 12),))])
def test_clients_that_take_a_label_for_another_are_named_though_everybody_owns_other_classes(
    malicious: tuple[int, ...],
) -> None:
    logits, start, inputs, labels = federation(3, malicious, skew=0.5)
    screen = screened(logits, start, inputs, labels)
    assert np.flatnonzero(accused(screen)).tolist() == list(malicious)


@pytest.mark.slow
def test_honest_clients_of_other_classes_are_not_accused() -> None:
    wrong = [int(accused(screened(*federation(seed))).sum()) for seed in range(12)]
    assert np.mean(wrong) <= 0.3


def test_the_inputs_of_the_layer_take_out_what_owning_other_classes_does() -> None:
    logits, start, inputs, labels = federation(5, noise=0.0)

    def scatter(known: FloatArray | None) -> float:
        evidence = screened(logits, start, known, labels).evidence
        assert isinstance(evidence, MarginEvidence)
        return float(np.median([(one.observed**2).mean() for one in evidence.hypotheses if len(one.labels) == 2]))

    assert scatter(inputs) < 0.2 * scatter(None)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 5))
def test_the_unit_of_the_logits_does_not_matter(scale: float, seed: int) -> None:
    logits, start, inputs, labels = federation(seed, (4,))
    steps = class_steps((start + logits.mean(axis=0)) / 2, inputs, labels)
    sets = np.random.default_rng(seed).random((20, 15)) < 0.2
    found = []
    for factor in (1.0, scale):
        evidence = screened(factor * logits, start, None, labels, steps=factor * steps).evidence
        assert evidence is not None
        found.append(evidence.log_likelihood(sets))
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def test_a_group_that_is_not_finite_or_not_opened_is_left_out_and_named() -> None:
    logits, start, inputs, labels = federation(3, (2, 7, 11))
    logits[4, 3] = np.nan
    erased = np.arange(10) == 6
    with np.errstate(invalid="ignore"):
        steps = class_steps((start + np.nanmean(logits, axis=0)) / 2, inputs, labels)
    screen = screened(logits, start, None, labels, steps=steps, erased=erased)
    assert "group 4 (features not finite)" in screen.reason
    assert "group 6 (sum not opened)" in screen.reason
    assert np.flatnonzero(~screen.tested).tolist() == [4, 6]
    assert not accused(screen)[[0, 1, 3]].any()


def test_equal_models_are_no_evidence_and_two_groups_are_too_few() -> None:
    logits, start, inputs, labels = federation(3)
    same = np.repeat(logits[:1], 10, axis=0)
    assert screened(same, start, inputs, labels).status == "no-difference"
    few = screened(logits, start, inputs, labels, erased=np.arange(10) > 1)
    assert (few.status, few.evidence) == ("too-few-groups", None)


def test_a_label_that_the_user_names_is_the_only_one_looked_at() -> None:
    evidence = screened(*federation(3, (4,)), label=1).evidence
    assert isinstance(evidence, MarginEvidence)
    assert {one.labels[0] for one in evidence.hypotheses} == {1}


def test_too_few_classes_and_shapes_that_do_not_fit_are_refused_with_what_to_do() -> None:
    logits, start, inputs, labels = federation(3)
    few = np.where(labels < 3, labels, 0)
    with pytest.raises(ShapeError, match=r"samples of 3 classes.*features = 'weights'"):
        screened(logits, start, None, few)
    with pytest.raises(ShapeError, match="one row or entry per group"):
        screened(logits, start, inputs, labels, weights=ROWS[:9])
    with pytest.raises(ShapeError, match="label 9 has no sample"):
        screened(logits, start, inputs, labels, label=9)
    with pytest.raises(ShapeError, match="classes with samples"):
        screened(logits, start, inputs, labels, classes=np.arange(5))


def test_the_report_says_where_the_inputs_of_the_layer_are_missing() -> None:
    logits, start, inputs, labels = federation(3)
    assert "not known" in screened(logits, start, None, labels).reason
    assert "not known" not in screened(logits, start, inputs, labels).reason
