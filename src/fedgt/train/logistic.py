"""Multinomial logistic regression, the paper's one-layer network, trained for all clients of a round at once.

Every client runs plain minibatch SGD on its own samples; step s of all clients is one batched matrix product. A short
batch is padded with samples of weight zero, so every client's products have the same shape whoever else is in the
call, and its result is the same to the last bit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError, SpecError
from fedgt.train.data import Images
from fedgt.types import FloatArray, IntArray, Parameters


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticRegression:
    """The model softmax(weight x + bias), with parameters {"weight": [classes, features], "bias": [classes]}.

    Attributes:
        classes: The number of classes.
        features: The number of inputs, such as pixels.

    Raises:
        SpecError: If a number is not positive.

    Examples:
        >>> import numpy as np
        >>> from fedgt.train import LogisticRegression
        >>> model = LogisticRegression(classes=10, features=64)
        >>> {name: array.shape for name, array in model.initial(rng=np.random.default_rng(0)).items()}
        {'weight': (10, 64), 'bias': (10,)}
    """

    classes: int
    features: int

    def __post_init__(self) -> None:
        """Check the range."""
        if self.classes < 1 or self.features < 1:
            raise SpecError(f"a model of {self.classes} classes and {self.features} features: both must be positive")

    def initial(self, *, rng: np.random.Generator) -> dict[str, npt.NDArray[np.float32]]:
        """Random starting parameters, float32: uniform on +-1/sqrt(features), as torch.nn.Linear's default."""
        bound = self.features**-0.5
        return {
            "weight": rng.uniform(-bound, bound, (self.classes, self.features)).astype(np.float32),
            "bias": rng.uniform(-bound, bound, self.classes).astype(np.float32),
        }

    def tensors(self, parameters: Parameters) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]:
        """Weight and bias, checked.

        Raises:
            ShapeError: If the names are not weight and bias, or a shape is wrong; the message names the tensor.
        """
        shapes = {"weight": (self.classes, self.features), "bias": (self.classes,)}
        if set(parameters) != set(shapes):
            raise ShapeError(f"parameters {sorted(parameters)} were given; exactly {sorted(shapes)} are needed")
        for name, shape in shapes.items():
            if parameters[name].shape != shape:
                raise ShapeError(f"tensor {name!r} has shape {parameters[name].shape}; {shape} is needed")
        return parameters["weight"], parameters["bias"]

    def check(self, parameters: Parameters) -> None:
        """Refuse parameters of other names or shapes; see `tensors`."""
        self.tensors(parameters)

    def logits(self, parameters: Parameters, images: Images) -> npt.NDArray[np.floating]:
        """float[samples, classes] of images [samples, features]."""
        weight, bias = self.tensors(parameters)
        if images.ndim != 2 or images.shape[1] != self.features:
            raise ShapeError(f"images of shape {images.shape} were given; [samples, {self.features}] is needed")
        product: npt.NDArray[np.floating] = images @ weight.T + bias
        return product

    def inputs(self, parameters: Parameters, images: Images) -> npt.NDArray[np.floating]:
        """The images themselves."""
        self.logits(parameters, images[:1])
        return images

    def predict(self, parameters: Parameters, images: Images) -> IntArray:
        """int64[samples]: the class of the largest logit (the first of equals)."""
        classes: IntArray = self.logits(parameters, images).argmax(axis=1).astype(np.int64)
        return classes

    @property
    def classification_layer(self) -> str:
        """The tensor that is compared between groups."""
        return "weight"

    def train_clients(
        self,
        parameters: Parameters,
        *,
        images: Images,
        labels: IntArray,
        parts: Sequence[IntArray],
        rngs: Sequence[np.random.Generator],
        training: "LocalTraining",
    ) -> list[dict[str, npt.NDArray[np.floating]]]:
        """See `train_clients`."""
        return train_clients(
            parameters, model=self, images=images, labels=labels, parts=parts, rngs=rngs, training=training
        )

    def losses(self, parameters: Parameters, images: Images, labels: IntArray) -> FloatArray:
        """float64[samples]: the cross-entropy of each sample, in nats."""
        logits = self.logits(parameters, images).astype(np.float64)
        largest = logits.max(axis=1)
        partition = np.log(np.exp(logits - largest[:, None]).sum(axis=1)) + largest
        losses: FloatArray = partition - np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
        return losses


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTraining:
    """What a client does in one round: SGD on the mean loss of each batch.

    The loss of a sample of class y with probability p_y is -w_y (1 - p_y)^focusing log p_y (Lin et al. 2017, "Focal loss for
    dense object detection"); with focusing 0 and no weights it is the cross-entropy.

    Attributes:
        learning_rate: Positive.
        batch_size: Samples a step; the last batch of an epoch may be shorter and is used.
        epochs: Passes over the client's samples in one round, each in a fresh order.
        momentum: Of the velocity v <- momentum v + gradient, from 0 to below 1; a round starts at rest.
        weight_decay: This times the parameters is added to the gradient; not negative.
        focusing: gamma of the focal loss; 0, or at least 1.
        class_weights: w_y, positive; None for ones.

    Raises:
        SpecError: If a number is out of its range.

    Examples:
        >>> from fedgt.train import LocalTraining
        >>> LocalTraining(learning_rate=0.05, batch_size=8, epochs=5).epochs
        5
    """

    learning_rate: float = 0.01
    batch_size: int = 64
    epochs: int = 1
    momentum: float = 0.0
    weight_decay: float = 0.0
    focusing: float = 0.0
    class_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 < self.learning_rate < float("inf"):
            raise SpecError(f"learning rate {self.learning_rate}: a finite, positive number is needed")
        if self.batch_size < 1 or self.epochs < 1:
            raise SpecError(f"batch size {self.batch_size}, {self.epochs} epochs: both must be at least 1")
        if not 0 <= self.momentum < 1 or not 0 <= self.weight_decay < float("inf"):
            raise SpecError(
                f"momentum {self.momentum}, weight decay {self.weight_decay}: from 0 to below 1, and 0 or more are needed"
            )
        if self.focusing != 0 and not 1 <= self.focusing < float("inf"):
            raise SpecError(f"focusing {self.focusing}: 0 (cross-entropy) or at least 1 is needed")
        if self.class_weights is not None and not all(0 < one < float("inf") for one in self.class_weights):
            raise SpecError(f"class weights {self.class_weights}: finite, positive numbers are needed")

    @property
    def plain(self) -> bool:
        """Whether a step is the gradient alone."""
        return self.momentum == 0 and self.weight_decay == 0


def train_clients(
    parameters: Parameters,
    *,
    model: LogisticRegression,
    images: Images,
    labels: IntArray,
    parts: Sequence[IntArray],
    rngs: Sequence[np.random.Generator],
    training: LocalTraining,
) -> list[dict[str, npt.NDArray[np.floating]]]:
    """Train every client from the same parameters, each on its own samples.

    A client's result depends on its own part and generator only, to the last bit: not on the other clients of the call
    nor on their order. All arithmetic is in the dtype of the images.

    Args:
        parameters: Where all clients start; not changed.
        model: The shapes.
        images: float[samples, features], shared by all clients.
        labels: int64[samples], poisoned where the clients are malicious.
        parts: int64[samples of the client] per client: which samples are its own; none is empty.
        rngs: One generator per client, for the order of its samples; one permutation is drawn an epoch.
        training: Learning rate, batch size and epochs.

    Returns:
        One {"weight", "bias"} per client, in the order of `parts`. Training that diverges gives NaN or infinities,
        without a warning: whoever sends parameters on has to refuse them.

    Raises:
        ShapeError: If an array does not fit the model or a client has no samples.

    Examples:
        >>> import numpy as np
        >>> from fedgt.train import LocalTraining, LogisticRegression, load, train_clients
        >>> digits, model = load("digits"), LogisticRegression(classes=10, features=64)
        >>> trained = train_clients(
        ...     model.initial(rng=np.random.default_rng(0)),
        ...     model=model,
        ...     images=digits.train_images,
        ...     labels=digits.train_labels,
        ...     parts=[np.arange(100), np.arange(100, 200)],
        ...     rngs=[np.random.default_rng(1), np.random.default_rng(2)],
        ...     training=LocalTraining(learning_rate=0.05),
        ... )
        >>> len(trained), trained[0]["weight"].shape
        (2, (10, 64))
    """
    weight, bias = model.tensors(parameters)
    _check_samples(model=model, images=images, labels=labels, parts=parts, rngs=rngs)
    # The longest first: the clients that still have a step to do are then always the first rows.
    order = sorted(range(len(parts)), key=lambda client: -parts[client].size)
    ordered = [parts[client] for client in order]
    count, dtype = len(ordered), images.dtype
    weights = np.repeat(weight.astype(dtype)[None], count, axis=0)
    biases = np.repeat(bias.astype(dtype)[None], count, axis=0)
    mover = Mover(training, weights, biases)
    batches = np.empty((count, training.batch_size, model.features), dtype=dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for samples, scales in _steps(ordered, [rngs[client] for client in order], training=training, dtype=dtype):
            active = len(samples)
            batch = batches[:active]
            np.take(images, samples, axis=0, out=batch, mode="clip")  # the numbers are checked; "clip" is unbuffered
            residuals = np.matmul(batch, weights[:active].transpose(0, 2, 1))
            residuals += biases[:active, None]
            gradient_by_logits(residuals, labels[samples], scales, training=training)
            mover.step(np.matmul(residuals.transpose(0, 2, 1), batch), residuals.sum(axis=1))
    rows = np.argsort(order)
    return [{"weight": weights[row], "bias": biases[row]} for row in rows]


def _steps(
    parts: Sequence[IntArray], rngs: Sequence[np.random.Generator], *, training: LocalTraining, dtype: npt.DTypeLike
) -> Iterator[tuple[IntArray, npt.NDArray[np.floating]]]:
    """Sample numbers and learning rate / batch length, both [active clients, batch size], step by step."""
    schedules = [schedule(part, rng, training=training) for part, rng in zip(parts, rngs, strict=True)]
    lengths = np.array([len(samples) for samples, _ in schedules], dtype=np.int64)
    for step in range(lengths.max(initial=0)):
        active = int((lengths > step).sum())
        yield (
            np.stack([samples[step] for samples, _ in schedules[:active]]),
            np.stack([scales[step] for _, scales in schedules[:active]]).astype(dtype),
        )


def schedule(part: IntArray, rng: np.random.Generator, *, training: LocalTraining) -> tuple[IntArray, FloatArray]:
    """All steps of one client: sample numbers and learning rate / batch length, both [steps, batch size].

    Padding has scale 0 and points at the client's own first sample, so that nothing of another client, not even a
    NaN, can enter its products.
    """
    size = training.batch_size
    batches = -(-part.size // size)
    used = np.minimum(size, part.size - size * np.arange(batches))
    scales = np.where(np.arange(size) < used[:, None], training.learning_rate / used[:, None], 0.0)
    samples = np.full((training.epochs, batches * size), part[0], dtype=np.int64)
    for epoch in range(training.epochs):
        samples[epoch, : part.size] = rng.permutation(part)
    return samples.reshape(-1, size), np.tile(scales, (training.epochs, 1))


def gradient_by_logits(
    logits: npt.NDArray[np.floating],
    labels: IntArray,
    scales: npt.NDArray[np.floating],
    *,
    training: LocalTraining,
) -> None:
    """Logits become the gradient of the loss by the logits, in place.

    Args:
        logits: float[..., samples, classes], overwritten.
        labels: int64[..., samples].
        scales: float[..., samples], what the gradient of each sample is multiplied by: learning rate / batch length.
        training: Which loss.
    """
    logits -= logits.max(axis=-1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=-1, keepdims=True)
    flat = logits.reshape(-1, logits.shape[-1])
    own = (np.arange(len(flat)), labels.ravel())
    factors = np.broadcast_to(scales, labels.shape).ravel()
    if training.focusing:
        factors = factors * _focus(flat[own], training.focusing)
    if training.class_weights is not None:
        factors = factors * np.array(training.class_weights, dtype=logits.dtype)[labels.ravel()]
    flat[own] -= 1
    flat *= factors[:, None].astype(logits.dtype)


def _focus(probability: npt.NDArray[np.floating], gamma: float) -> npt.NDArray[np.floating]:
    """How the focal loss weighs p - y, the gradient of the cross-entropy: (1-p)^g - g (1-p)^(g-1) p log p."""
    rest = 1 - probability
    logs = np.log(np.maximum(probability, np.finfo(probability.dtype).tiny))
    weighed: npt.NDArray[np.floating] = rest**gamma - gamma * rest ** (gamma - 1) * probability * logs
    return weighed


class Mover:
    """Moves stacks of parameters along gradients that the learning rate has been multiplied into.

    Args:
        training: Momentum, weight decay and learning rate.
        weights: float[stack, classes, features], changed in place.
        biases: float[stack, classes], changed in place.
    """

    def __init__(
        self, training: LocalTraining, weights: npt.NDArray[np.floating], biases: npt.NDArray[np.floating]
    ) -> None:
        """Start at rest."""
        self._training = training
        self._parameters = (weights, biases)
        self._velocities = () if training.plain else (np.zeros_like(weights), np.zeros_like(biases))

    def step(self, *gradients: npt.NDArray[np.floating]) -> None:
        """One step of the first rows of the stack, as many as there are gradients; the gradients may be overwritten."""
        active = len(gradients[0])
        training = self._training
        if training.plain:
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter[:active] -= gradient
            return
        decay = training.learning_rate * training.weight_decay
        for parameter, velocity, gradient in zip(self._parameters, self._velocities, gradients, strict=True):
            moved = velocity[:active]
            moved *= training.momentum
            moved += gradient
            if decay:
                moved += parameter[:active] * np.asarray(decay, dtype=parameter.dtype)
            parameter[:active] -= moved


def _check_samples(
    *,
    model: LogisticRegression,
    images: Images,
    labels: IntArray,
    parts: Sequence[IntArray],
    rngs: Sequence[np.random.Generator],
) -> None:
    if images.ndim != 2 or images.shape[1] != model.features or labels.shape != images.shape[:1]:
        raise ShapeError(
            f"images of shape {images.shape} with labels of shape {labels.shape}; "
            f"[samples, {model.features}] and [samples] are needed"
        )
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < model.classes:
        raise ShapeError(f"labels from {labels.min()} to {labels.max()}; 0 to {model.classes - 1} are needed")
    if len(rngs) != len(parts):
        raise ShapeError(f"{len(parts)} clients with {len(rngs)} generators; one generator a client is needed")
    for client, part in enumerate(parts):
        if not part.size or not 0 <= int(part.min()) <= int(part.max()) < len(images):
            raise ShapeError(
                f"client {client} of the call has {part.size} sample numbers; at least one, "
                f"all from 0 to {len(images) - 1}, is needed"
            )
