"""The account by honest clients against slow forms: pairs of samples, non-negative least squares, stacked rows."""

import numpy as np
import pytest
from scipy.optimize import nnls

from fedgt.evidence import class_products
from fedgt.evidence.by_margins.honest_account import _moves, _Search
from fedgt.types import FloatArray

CLASSES, CLIENTS, SUMS = 4, 6, 5


def a_search(seed: int, misfit: float = 0.0) -> tuple[_Search, FloatArray]:
    """Sums of some clients that are not all honest, and products of classes."""
    rng = np.random.default_rng(seed)
    seats = np.linalg.svd(rng.random((SUMS, CLIENTS)), full_matrices=False)[2]
    inputs = rng.random((CLASSES, 6))
    observed = rng.normal(size=(SUMS, CLASSES, CLASSES))
    observed -= observed.mean(axis=2, keepdims=True)
    return _Search(seats=seats, observed=observed, misfit=misfit), inputs @ inputs.T + np.eye(CLASSES)


def test_products_are_means_over_pairs_of_different_samples() -> None:
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(13, 5)), np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 1, 2])
    found = class_products(inputs, labels)
    assert found is not None
    # Of each sample, how alike the others of each class are to it in the mean.
    alike = np.array(
        [
            [np.mean([inputs[i] @ inputs[k] + 1.0 for k in np.flatnonzero(labels == s) if k != i]) for s in range(3)]
            for i in range(13)
        ]
    )
    expected = np.stack([alike[labels == c].mean(axis=0) for c in range(3)])
    np.testing.assert_allclose(found[0], expected)
    scatter = ((alike - expected[labels]) ** 2).sum(axis=0) / (13 - 3)
    np.testing.assert_allclose(found[1], scatter[None] / np.bincount(labels)[:, None])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("free", [(), (2,), (0, 3)])
def test_the_pushes_are_those_of_non_negative_least_squares(seed: int, free: tuple[int, ...]) -> None:
    search, products = a_search(seed)
    columns = []
    for client in range(CLIENTS):
        for c in range(CLASSES):
            for t in range(CLASSES):
                if t == c:
                    continue
                sent = np.zeros((CLASSES, CLASSES))
                sent[:, c], sent[:, t] = products[c], -products[c]
                column = (search.seats[:, client, None, None] * sent).ravel()
                columns += [column, -column] if client in free else [column]
    slow = nnls(np.stack(columns, axis=1), search.observed.ravel(), maxiter=100_000)[1] ** 2
    loose = np.isin(np.arange(CLIENTS), free)
    pushes = np.zeros((CLIENTS, CLASSES, CLASSES))
    for _ in range(60):
        pushes = search.pushes(products, loose, pushes)
    assert search.left(products, pushes) == pytest.approx(slow, rel=1e-3)
    assert (pushes[~loose] >= 0).all()
    np.testing.assert_allclose(_moves(pushes).sum(axis=2), 0.0, atol=1e-9)


def test_what_is_learnt_about_the_products_is_the_mean_of_a_normal_posterior() -> None:
    search, expected = a_search(5, misfit=1.0)
    rng = np.random.default_rng(6)
    pushes, errors = rng.random((CLIENTS, CLASSES, CLASSES)), rng.random((CLASSES, CLASSES)) + 0.1
    left = search.left(expected, pushes)
    noise = (left + 1.0) / search.observed.size
    design, values = [], []
    moves = np.tensordot(search.seats, _moves(pushes), axes=1)
    for number in range(SUMS):
        for s in range(CLASSES):
            for t in range(CLASSES):
                row = np.zeros((CLASSES, CLASSES))
                row[:, s] = moves[number][:, t]
                design.append(row.ravel() / noise**0.5)
                values.append(search.observed[number, s, t] / noise**0.5)
    prior = np.diag(errors.ravel() ** -0.5)
    slow = np.linalg.lstsq(
        np.concatenate([np.array(design), prior]), np.concatenate([values, prior @ expected.ravel()]), rcond=None
    )[0]
    np.testing.assert_allclose(search.products(expected, errors, pushes, left).ravel(), slow, rtol=1e-8)
