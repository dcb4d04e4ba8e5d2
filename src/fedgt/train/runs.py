"""Local training of one client in many runs at once: Monte Carlo runs of one seed see the same samples in the same order.

In runs that differ in the defence, the attack or the number of attackers only, a client draws the same batches; what
differs is where it starts and whether its labels are poisoned. So the models of all those runs stand side by side, and a
step is two large matrix products. Equal tasks are the caller's to join.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError
from fedgt.train.data import Images
from fedgt.train.logistic import LocalTraining, LogisticRegression, Mover, gradient_by_logits, schedule
from fedgt.types import IntArray, Parameters


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunTask:
    """One local training of the client.

    Attributes:
        start: Where it starts.
        labels: Which of the label sets it trains on.
    """

    start: Parameters
    labels: int


def train_runs(
    tasks: Sequence[RunTask],
    *,
    model: LogisticRegression,
    images: Images,
    label_sets: Sequence[IntArray],
    part: IntArray,
    rng: np.random.Generator,
    training: LocalTraining,
) -> list[dict[str, npt.NDArray[np.floating]]]:
    """Train one client once for each task, all on the same batches.

    The same as `train_clients` for each task by itself, with the same generator, but for the order of floating-point sums.

    Args:
        tasks: Start and labels of each training.
        model: The shapes.
        images: float[samples, features].
        label_sets: int64[samples] each, such as the true labels and those of an attacker.
        part: int64[samples of the client]: which samples are its own; not empty.
        rng: For the order of its samples.
        training: Learning rate and the rest.

    Returns:
        One {"weight", "bias"} per task, in the dtype of the images. Training that diverges gives NaN or infinities.

    Raises:
        ShapeError: If there is no sample or a start does not fit the model.
    """
    if not part.size:
        raise ShapeError("the client has no samples; at least one is needed")
    starts = [model.tensors(task.start) for task in tasks]
    if not starts:
        return []
    count, classes, features = len(tasks), model.classes, model.features
    weights = np.stack([weight for weight, _ in starts]).astype(images.dtype)
    biases = np.stack([bias for _, bias in starts]).astype(images.dtype)
    flat = weights.reshape(count * classes, features)
    mover = Mover(training, weights, biases)
    table = np.stack(list(label_sets))
    kinds = np.array([task.labels for task in tasks])
    numbers, scales = schedule(part, rng, training=training)
    with np.errstate(over="ignore", invalid="ignore"):
        for padded, padded_scales in zip(numbers, scales, strict=True):
            samples = padded[padded_scales > 0]
            batch = images[samples]
            logits = (batch @ flat.T).reshape(len(samples), count, classes)
            logits += biases
            step = padded_scales[: len(samples), None].astype(images.dtype)
            gradient_by_logits(logits, table[kinds[None, :], samples[:, None]], step, training=training)
            gradient = logits.reshape(len(samples), count * classes).T @ batch
            mover.step(gradient.reshape(weights.shape), logits.sum(axis=0))
    return [{"weight": weights[row].copy(), "bias": biases[row].copy()} for row in range(count)]
