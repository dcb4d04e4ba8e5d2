"""Attackers that the groups of a design cannot see are not cleared by them."""

from typing import Any

import numpy as np
import pytest

from fedgt.evidence import class_losses, decode_graded, graded_screen, margin_screen, margins
from fedgt.types import BoolArray

# Two partitions of six clients: 0, 2 and 4 are one in each of the three groups, twice.
ROWS = np.array(
    [
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 1],
        [1, 0, 0, 1, 0, 0],
        [0, 0, 1, 0, 0, 1],
        [0, 1, 0, 0, 1, 0],
    ],
    dtype=np.float64,
)
SEEN, UNSEEN = [0, 1], [0, 2, 4]
CLASSES = 5


def sets(*chosen: list[int]) -> BoolArray:
    found = np.zeros((len(chosen), 6), dtype=np.bool_)
    for row, clients in enumerate(chosen):
        found[row, clients] = True
    return found


def screened(kind: str, seed: int = 0) -> Any:
    """Six honest clients."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES), 8)
    clients = rng.normal(size=(6, len(labels), CLASSES)) + 4.0 * np.eye(CLASSES)[labels]
    logits = np.tensordot(ROWS / ROWS.sum(axis=1, keepdims=True), clients, axes=1)
    losses = np.stack([class_losses(one, labels) for one in logits])
    erased = np.zeros(len(ROWS), dtype=np.bool_)
    if kind == "margins":
        moved = np.stack([margins(one, labels) for one in logits])
        return margin_screen(moved, losses, classes=np.arange(CLASSES), weights=ROWS, erased=erased)
    features = logits if kind == "weights" else logits.reshape(len(ROWS), -1)
    return graded_screen(features, losses, weights=ROWS, samples=np.full(6, 20.0), erased=erased)


@pytest.mark.parametrize("kind", ["weights", "outputs", "margins"])
def test_attackers_that_move_no_contrast_have_the_likelihood_of_nobody(kind: str) -> None:
    evidence = screened(kind).evidence
    nobody, unseen, seen = evidence.log_likelihood(sets([], UNSEEN, SEEN))
    assert unseen == pytest.approx(nobody)
    assert seen != pytest.approx(nobody)


@pytest.mark.parametrize("kind", ["weights", "outputs", "margins"])
def test_clients_that_could_be_unseen_attackers_keep_their_prior_probability(kind: str) -> None:
    """Twenty sets have three members; 0, 2, 4 and 1, 3, 5 are the two that no sum shows."""
    found = decode_graded([screened(kind).evidence], clients=6, largest=3)
    prior_of_one_set, prior_of_nobody = 0.5 / 3 / 20, 0.5
    assert (found.posterior >= 0.9 * found.count[0] * prior_of_one_set / prior_of_nobody).all()
