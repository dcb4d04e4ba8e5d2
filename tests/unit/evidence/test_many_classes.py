"""Labels under attack among hundreds: found as among ten, in memory that grows with the classes, not with their square."""

import tracemalloc
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.evidence import (
    MarginEvidence,
    class_losses,
    class_steps,
    contrasts,
    decode_graded,
    graded_screen,
    margin_screen,
    margins,
)
from fedgt.evidence.by_margins.standing_out import classes_to_compare
from fedgt.evidence.layer import MOST_CLASSES, layer_of
from fedgt.evidence.line import line_evidence, shift_evidence
from fedgt.types import FloatArray
from slow_cases import slow

ROWS = named_design("graded-15x10-b").matrix.astype(np.float64)
SHARES = ROWS / ROWS.sum(axis=1, keepdims=True)
ERASED = np.zeros(len(ROWS), dtype=np.bool_)
BAD = [1, 5, 9]


def layers(
    classes: int, inputs: int, *, flip: tuple[int, int], size: float, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Layers and losses of the groups: in those of the bad clients two rows move against each other."""
    rng = np.random.default_rng(seed)
    clients = rng.normal(size=(15, classes, inputs))
    push = size * rng.normal(size=inputs)
    clients[BAD, flip[0]] -= push
    clients[BAD, flip[1]] += push
    losses = 0.5 + 0.05 * rng.normal(size=(len(ROWS), classes))
    losses[:, flip[0]] += 3.0 * SHARES[:, BAD].sum(axis=1)
    return np.tensordot(SHARES, clients, axes=1), losses


@pytest.mark.parametrize("classes", [MOST_CLASSES, *slow(MOST_CLASSES + 1, 64), 65, *slow(300)])
def test_a_flip_among_many_classes_is_found_by_the_pair_of_its_rows(classes: int) -> None:
    means, losses = layers(classes, 200, flip=(classes - 1, 3), size=1.5)
    screen = graded_screen(means, losses, weights=ROWS, samples=np.full(15, 90.0), erased=ERASED)
    assert screen.evidence is not None
    assert not isinstance(screen.evidence, MarginEvidence)
    found = decode_graded([screen.evidence], clients=15, largest=7)
    assert np.flatnonzero(found.flagged).tolist() == BAD
    assert screen.evidence.strongest.labels == (3, classes - 1)
    # What is paid for looking is that of all pairs, and a reader is told that not all were looked at.
    assert screen.evidence.strongest.log_prior == pytest.approx(-np.log(classes * (classes - 1)))
    assert ("stand out most" in screen.reason) == (classes > MOST_CLASSES)


def test_the_pairs_that_count_are_among_those_that_are_looked_at() -> None:
    """Oracle: every pair by itself, forty classes, an attack that is hardly seen."""
    parts = contrasts(ROWS, np.ones(15))
    for seed in range(6):
        means, _ = layers(40, 150, flip=(7, 31), size=0.65, seed=seed)
        centred = means - means.mean(axis=0)
        every = {}
        for s, t in combinations(range(40), 2):
            rows = parts.transform @ (centred[:, s] - centred[:, t])
            line = shift_evidence(rows @ rows.T, parts.shifts, features=150)
            assert line is not None
            every[s, t] = line.some()
        best = max(every, key=lambda pair: every[pair])
        assert every[best] > np.log(40 * 39)  # enough to pay for the look
        assert best == (7, 31)
        assert best in layer_of(centred, parts).pairs()


def test_the_evidence_of_many_lines_is_that_of_each() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(5, 6, 40)) * rng.uniform(0.5, 3.0, size=(5, 6, 1))
    rows[4] = 0.0
    grams = rows @ rows.transpose(0, 2, 1)
    lines = [shift_evidence(gram, np.eye(6), features=40) for gram in grams]
    expected = [0.0 if line is None else line.some() for line in lines]
    np.testing.assert_allclose(line_evidence(grams, features=40), expected, atol=1e-9)


@pytest.mark.slow
def test_memory_grows_with_the_classes_and_not_with_their_square() -> None:
    means, losses = layers(600, 60, flip=(2, 5), size=2.0)
    tracemalloc.start()
    try:
        screen = graded_screen(means, losses, weights=ROWS, samples=np.full(15, 90.0), erased=ERASED)
        assert screen.evidence is not None
        decode_graded([screen.evidence], clients=15, largest=7)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # All pairs of rows of ten groups would be 290 MB.
    assert peak < 4 * means.nbytes + 60e6


# Margins --------------------------------------------------------------------------------------------------------------


def heads(classes: int, *, seed: int, flip: tuple[int, int] | None, inputs: int = 60) -> Any:
    """Logits of the group means, inputs and labels: linear heads that made a step on classes of their own."""
    rng = np.random.default_rng(seed)
    prototypes = rng.normal(size=(classes, inputs)) / 4
    labels = np.repeat(np.arange(classes), 4)
    seen = prototypes[labels] + 0.1 * rng.normal(size=(len(labels), inputs))
    clients = np.zeros((15, classes, inputs))
    for client in range(15):
        shares = 1.0 + 0.3 * rng.uniform(-1.0, 1.0, size=classes)
        given = np.eye(classes)
        if flip is not None and client in BAD:
            given[flip[0]] = np.eye(classes)[flip[1]]
        clients[client] = 0.05 * (shares[:, None] * (given - 1.0 / classes)).T @ prototypes
        clients[client] += 0.002 * rng.normal(size=(classes, inputs))
    return np.einsum("gcf,sf->gsc", np.tensordot(SHARES, clients, axes=1), seen), seen, labels


def by_margins(classes: int, *, seed: int = 1, flip: tuple[int, int] | None) -> Any:
    logits, seen, labels = heads(classes, seed=seed, flip=flip)
    table = np.stack([margins(one, labels) for one in logits])
    losses = np.stack([class_losses(one, labels) for one in logits])
    chosen = classes_to_compare(table, ROWS, np.arange(classes), None)
    some = np.isin(labels, chosen)
    steps = class_steps(logits.mean(axis=0)[some] / 2, seen[some], labels[some])[:, :, chosen]
    return margin_screen(
        table[:, chosen][:, :, chosen], losses, classes=chosen, weights=ROWS, erased=ERASED, steps=steps, of=classes
    )


@pytest.mark.slow
def test_margins_of_sixty_classes_name_who_flips_a_label_and_nobody_else() -> None:
    screen = by_margins(60, flip=(50, 7))
    found = decode_graded([screen.evidence], clients=15, largest=7)
    assert np.flatnonzero(found.flagged).tolist() == BAD
    assert screen.evidence.strongest.labels == (50, 7)
    assert "of 60 classes the 24 that stand out most" in screen.reason
    honest = by_margins(60, flip=None)
    assert not decode_graded([honest.evidence], clients=15, largest=7).flagged.any()


def test_the_classes_of_an_outstanding_pair_and_of_a_known_label_are_compared() -> None:
    logits, _, labels = heads(60, seed=2, flip=(50, 7))
    table = np.stack([margins(one, labels) for one in logits])
    chosen = classes_to_compare(table, ROWS, np.arange(60), 33).tolist()
    assert len(chosen) == MOST_CLASSES
    assert {7, 33, 50} <= set(chosen)
    assert chosen == sorted(chosen)
    few = classes_to_compare(table[:, :MOST_CLASSES], ROWS, np.arange(MOST_CLASSES), None)
    assert few.tolist() == list(range(MOST_CLASSES))
