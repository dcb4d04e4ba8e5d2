"""Training of many runs at once against training of each by itself, and the losses and steps against the textbook."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt.errors import SpecError
from fedgt.train.logistic import LocalTraining, LogisticRegression, train_clients
from fedgt.train.runs import RunTask, train_runs
from fedgt.types import FloatArray, IntArray

MODEL = LogisticRegression(classes=4, features=6)


def world(seed: int, samples: int) -> tuple[FloatArray, IntArray, IntArray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=samples)
    return rng.normal(size=(samples, 6)), labels, (labels + 1) % 4


@given(
    seed=st.integers(0, 2**32),
    samples=st.integers(1, 30),
    tasks=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=6),
    batch=st.integers(1, 9),
    momentum=st.sampled_from([0.0, 0.9]),
    decay=st.sampled_from([0.0, 0.01]),
    focusing=st.sampled_from([0.0, 2.0]),
)
def test_a_run_trains_as_if_it_were_alone(
    seed: int,
    samples: int,
    tasks: list[tuple[int, int]],
    batch: int,
    momentum: float,
    decay: float,
    focusing: float,
) -> None:
    images, honest, poisoned = world(seed, samples)
    rng = np.random.default_rng(seed + 1)
    starts = [{"weight": rng.normal(size=(4, 6)), "bias": rng.normal(size=4)} for _ in range(3)]
    part = rng.permutation(samples)[: max(1, samples // 2)]
    training = LocalTraining(
        learning_rate=0.1, batch_size=batch, epochs=2, momentum=momentum, weight_decay=decay, focusing=focusing
    )
    together = train_runs(
        [RunTask(start=starts[start], labels=labels) for start, labels in tasks],
        model=MODEL,
        images=images,
        label_sets=[honest, poisoned],
        part=part,
        rng=np.random.default_rng(7),
        training=training,
    )
    for (start, labels), found in zip(tasks, together, strict=True):
        (alone,) = train_clients(
            starts[start],
            model=MODEL,
            images=images,
            labels=(honest, poisoned)[labels],
            parts=[part],
            rngs=[np.random.default_rng(7)],
            training=training,
        )
        for name, tensor in alone.items():
            np.testing.assert_allclose(found[name], tensor, rtol=0, atol=1e-12)


def textbook_loss(parameters: dict[str, FloatArray], x: FloatArray, y: int, training: LocalTraining) -> float:
    scores = [math.exp(float(parameters["weight"][c] @ x + parameters["bias"][c])) for c in range(4)]
    p = scores[y] / sum(scores)
    weight = 1.0 if training.class_weights is None else training.class_weights[y]
    return float(-weight * (1 - p) ** training.focusing * math.log(p))


@pytest.mark.parametrize("focusing", [0.0, 1.0, 2.0, 3.5])
@pytest.mark.parametrize("weights", [None, (0.5, 1.0, 2.0, 101.0)])
def test_one_step_follows_the_finite_difference_of_the_focal_loss(
    focusing: float, weights: tuple[float, ...] | None
) -> None:
    images, labels, _ = world(3, 7)
    rng = np.random.default_rng(4)
    start = {"weight": rng.normal(size=(4, 6)), "bias": rng.normal(size=4)}
    training = LocalTraining(learning_rate=0.5, batch_size=7, focusing=focusing, class_weights=weights)
    (stepped,) = train_clients(
        start, model=MODEL, images=images, labels=labels, parts=[np.arange(7)], rngs=[rng], training=training
    )
    width = 1e-6
    for name, tensor in start.items():
        for index in np.ndindex(tensor.shape):
            losses = []
            for sign in (1, -1):
                moved = {key: value.copy() for key, value in start.items()}
                moved[name][index] += sign * width
                losses.append(
                    np.mean([textbook_loss(moved, images[i], int(labels[i]), training) for i in range(len(labels))])
                )
            slope = (losses[0] - losses[1]) / (2 * width)
            assert (start[name][index] - stepped[name][index]) / 0.5 == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_momentum_and_weight_decay_are_those_of_torchs_sgd() -> None:
    """v <- m v + (g + w theta), theta <- theta - lr v; here with one sample a step and clients of different length."""
    images, labels, _ = world(5, 9)
    start = {"weight": np.full((4, 6), 0.2), "bias": np.array([0.1, 0.0, -0.1, 0.3])}
    training = LocalTraining(learning_rate=0.05, batch_size=1, epochs=2, momentum=0.9, weight_decay=0.3)
    parts = [np.arange(2), np.arange(2, 9)]
    found = train_clients(
        start,
        model=MODEL,
        images=images,
        labels=labels,
        parts=parts,
        rngs=[np.random.default_rng(j) for j in range(2)],
        training=training,
    )
    for j, part in enumerate(parts):
        rng = np.random.default_rng(j)
        theta = np.hstack([start["weight"], start["bias"][:, None]])
        velocity = np.zeros_like(theta)
        for sample in np.concatenate([rng.permutation(part) for _ in range(2)]):
            x = np.append(images[sample], 1.0)
            scores = np.exp(theta @ x)
            error = scores / scores.sum() - (np.arange(4) == labels[sample])
            velocity = 0.9 * velocity + np.outer(error, x) + 0.3 * theta
            theta = theta - 0.05 * velocity
        np.testing.assert_allclose(found[j]["weight"], theta[:, :-1], atol=1e-12)
        np.testing.assert_allclose(found[j]["bias"], theta[:, -1], atol=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"weight_decay": -1.0},
        {"focusing": 0.5},
        {"focusing": math.inf},
        {"class_weights": (1.0, 0.0)},
    ],
)
def test_training_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SpecError):
        LocalTraining(**wrong)  # type: ignore[arg-type]
