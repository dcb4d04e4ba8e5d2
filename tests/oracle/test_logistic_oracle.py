"""Batched training against a plain loop over clients, batches and samples, and its gradient against differences."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from fedgt.train.data import Images, load
from fedgt.train.logistic import LocalTraining, LogisticRegression, train_clients
from fedgt.types import FloatArray, IntArray


def plain_sgd(
    weight: FloatArray,
    bias: FloatArray,
    images: Images,
    labels: IntArray,
    order: list[IntArray],
    training: LocalTraining,
) -> tuple[FloatArray, FloatArray]:
    """One client, one sample at a time, in float64: the textbook."""
    weight, bias = weight.copy(), bias.copy()
    for epoch in order:
        for begin in range(0, len(epoch), training.batch_size):
            batch = epoch[begin : begin + training.batch_size]
            weight_gradient, bias_gradient = np.zeros_like(weight), np.zeros_like(bias)
            for sample in batch:
                x = images[sample].astype(np.float64)
                scores = [math.exp(float(weight[c] @ x + bias[c])) for c in range(len(bias))]
                for c in range(len(bias)):
                    error = scores[c] / sum(scores) - (1.0 if c == labels[sample] else 0.0)
                    weight_gradient[c] += error * x / len(batch)
                    bias_gradient[c] += error / len(batch)
            weight -= training.learning_rate * weight_gradient
            bias -= training.learning_rate * bias_gradient
    return weight, bias


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 2e-5)])
def test_batched_training_equals_a_plain_loop_over_the_samples(dtype: npt.DTypeLike, tolerance: float) -> None:
    rng = np.random.default_rng(11)
    sizes = [1, 5, 8, 9, 22]  # below, at and above the batch size, so that every kind of padding occurs
    images = rng.normal(size=(sum(sizes), 6)).astype(dtype)
    labels = rng.integers(4, size=sum(sizes))
    parts = np.split(rng.permutation(sum(sizes)), np.cumsum(sizes)[:-1])
    model = LogisticRegression(classes=4, features=6)
    start = model.initial(rng=rng)
    training = LocalTraining(learning_rate=0.2, batch_size=8, epochs=3)
    trained = train_clients(
        start,
        model=model,
        images=images,
        labels=labels,
        parts=parts,
        rngs=[np.random.default_rng(client) for client in range(len(sizes))],
        training=training,
    )
    for client, (part, result) in enumerate(zip(parts, trained, strict=True)):
        shuffler = np.random.default_rng(client)
        order = [shuffler.permutation(part) for _ in range(training.epochs)]
        weight, bias = plain_sgd(
            start["weight"].astype(np.float64), start["bias"].astype(np.float64), images, labels, order, training
        )
        np.testing.assert_allclose(result["weight"], weight, rtol=0, atol=tolerance)
        np.testing.assert_allclose(result["bias"], bias, rtol=0, atol=tolerance)


def test_one_step_is_the_learning_rate_times_the_finite_difference_of_the_mean_loss() -> None:
    rng = np.random.default_rng(12)
    images = rng.normal(size=(7, 3))
    labels = rng.integers(4, size=7)
    model = LogisticRegression(classes=4, features=3)
    start = {"weight": rng.normal(size=(4, 3)), "bias": rng.normal(size=4)}
    (stepped,) = train_clients(
        start,
        model=model,
        images=images,
        labels=labels,
        parts=[np.arange(7)],
        rngs=[rng],
        training=LocalTraining(learning_rate=0.5, batch_size=7),
    )
    width = 1e-6
    for name, tensor in start.items():
        for index in np.ndindex(tensor.shape):
            losses = []
            for sign in (1, -1):
                moved = {key: value.copy() for key, value in start.items()}
                moved[name][index] += sign * width
                losses.append(model.losses(moved, images, labels).mean())
            slope = (losses[0] - losses[1]) / (2 * width)
            assert (start[name][index] - stepped[name][index]) / 0.5 == pytest.approx(slope, abs=1e-8)


def test_the_loss_is_minus_the_log_probability_even_where_the_exponential_overflows() -> None:
    model = LogisticRegression(classes=3, features=1)
    parameters = {"weight": np.array([[0.0], [1.0], [2.0]]), "bias": np.array([0.5, 0.0, -0.5])}
    images = np.array([[0.3], [2000.0]])
    scores = [0.5, 0.3, 0.1]
    expected = [-0.3 + math.log(sum(map(math.exp, scores))), 3999.5 - 2000.0]
    np.testing.assert_allclose(model.losses(parameters, images, np.array([1, 1])), expected, rtol=1e-12)


def test_training_on_the_digits_reaches_what_scikit_learn_reaches() -> None:
    from sklearn.linear_model import LogisticRegression as Reference

    data = load("digits")
    model = LogisticRegression(classes=10, features=64)
    (trained,) = train_clients(
        model.initial(rng=np.random.default_rng(0)),
        model=model,
        images=data.train_images,
        labels=data.train_labels,
        parts=[np.arange(500)],
        rngs=[np.random.default_rng(0)],
        training=LocalTraining(learning_rate=0.05, batch_size=16, epochs=20),
    )
    reference = Reference(C=1.0, max_iter=500).fit(data.train_images[:500], data.train_labels[:500])
    ours = (model.predict(trained, data.test_images) == data.test_labels).mean()
    assert ours >= reference.score(data.test_images, data.test_labels) - 0.015
