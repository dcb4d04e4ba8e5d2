"""The paper's image networks, by torchvision: ResNet-18 for CIFAR-10, EfficientNet-B0 for ISIC2019; on a GPU if possible.

Needs the extra `train`. On CUDA the arithmetic is bfloat16 with float32 parameters, in channels-last layout; on a
CPU float32. Parameters are the network's state: floating-point tensors are averaged, counters of batch normalisation are
kept.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, final

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError, SpecError
from fedgt.extras import how_to_install
from fedgt.train.data import directory_of
from fedgt.train.logistic import LocalTraining
from fedgt.types import IntArray, Parameters

Architecture = Literal["resnet18", "efficientnet-b0"]

_EVALUATED = 500  # images at a time
# Mean and deviation of the pixels of each channel, as a fraction of 255: CIFAR-10's own, and ImageNet's for its weights.
_SCALE: Final = {
    "resnet18": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "efficientnet-b0": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
_PUBLISHED: Final = {"resnet18": "resnet18-f37072fd.pth", "efficientnet-b0": "efficientnet_b0_rwightman-7f5810bc.pth"}
_LAYER: Final = {"resnet18": "fc.weight", "efficientnet-b0": "classifier.1.weight"}


@final
@dataclass(frozen=True, kw_only=True)
class ImageNetwork:
    """A network of torchvision; implements `fedgt.train.model.Model`.

    Images are uint8[samples, 3 * side * side], channel by channel.

    Attributes:
        architecture: Which network.
        classes: The number of classes.
        side: Rows and columns of an image.
        weights: A file with the network's state for 1,000 ImageNet classes (`torch.save` of a state_dict, as torchvision
            publishes); None starts from random weights.
        device: `cpu`, `cuda`, or `auto`: a GPU where there is one.

    Raises:
        SpecError: If torch or torchvision is not installed, the device is not there, or the file cannot be used.
    """

    architecture: Architecture
    classes: int
    side: int
    weights: Path | None = None
    device: str = "auto"

    @property
    def classification_layer(self) -> str:
        """The last linear layer."""
        return _LAYER[self.architecture]

    def initial(self, *, rng: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
        """The state of a new network; with `weights` all but the classification layer is from the file."""
        torch = _torch()
        torch.manual_seed(int(rng.integers(2**62)))
        network = self._new()
        if self.weights is not None:
            self._pretrained(network)
        return _arrays(network)

    def check(self, parameters: Parameters) -> None:
        """Refuse parameters of other names or shapes.

        Raises:
            ShapeError: Names the tensor.
        """
        shapes = self._shapes
        if set(parameters) != set(shapes):
            wrong = sorted(set(parameters) ^ set(shapes))
            raise ShapeError(f"parameters differ from those of {self.architecture} in {', '.join(wrong[:5])}")
        for name, shape in shapes.items():
            if np.shape(parameters[name]) != shape:
                raise ShapeError(f"tensor {name!r} has shape {np.shape(parameters[name])}; {shape} is needed")

    def logits(self, parameters: Parameters, images: npt.NDArray[Any]) -> npt.NDArray[np.floating]:
        """float32[samples, classes]."""
        return self._evaluated(self._with(parameters), images)

    def inputs(self, parameters: Parameters, images: npt.NDArray[Any]) -> npt.NDArray[np.floating]:
        """float32[samples, features]: what the classification layer sees, of a network that does not train."""
        network = self._with(parameters)
        setattr(*self._last(network), _torch().nn.Identity())
        return self._evaluated(network, images)

    def _last(self, network: Any) -> tuple[Any, str]:
        """The module that holds the classification layer, and the layer's name in it."""
        *outer, name = self.classification_layer.removesuffix(".weight").split(".")
        return network.get_submodule(".".join(outer)), name

    def _evaluated(self, network: Any, images: npt.NDArray[Any]) -> npt.NDArray[np.floating]:
        torch = _torch()
        network = network.eval()
        found = []
        with torch.inference_mode(), self._precision():
            for begin in range(0, len(images), _EVALUATED):
                batch = self._pictures(images[begin : begin + _EVALUATED])
                found.append(network(batch).float().cpu().numpy())
        scores: npt.NDArray[np.floating] = np.concatenate(found)
        return scores

    def predict(self, parameters: Parameters, images: npt.NDArray[Any]) -> IntArray:
        """int64[samples]: the class of the largest logit (the first of equals)."""
        classes: IntArray = self.logits(parameters, images).argmax(axis=1).astype(np.int64)
        return classes

    def train_clients(
        self,
        parameters: Parameters,
        *,
        images: npt.NDArray[Any],
        labels: IntArray,
        parts: Sequence[IntArray],
        rngs: Sequence[np.random.Generator],
        training: LocalTraining,
    ) -> list[dict[str, npt.NDArray[Any]]]:
        """One client after the other; see `fedgt.train.model.Model`. Batches of one sample are left out (no variance)."""
        self.check(parameters)
        return [
            self._trained(parameters, images[part], labels[part], rng, training)
            for part, rng in zip(parts, rngs, strict=True)
        ]

    def _trained(
        self,
        parameters: Parameters,
        images: npt.NDArray[Any],
        labels: IntArray,
        rng: np.random.Generator,
        training: LocalTraining,
    ) -> dict[str, npt.NDArray[Any]]:
        torch = _torch()
        torch.manual_seed(int(rng.integers(2**62)))
        network = self._with(parameters).train()
        optimizer = torch.optim.SGD(
            network.parameters(),
            lr=training.learning_rate,
            momentum=training.momentum,
            weight_decay=training.weight_decay,
        )
        raw = torch.from_numpy(np.ascontiguousarray(images)).to(self._device)
        true = torch.from_numpy(np.ascontiguousarray(labels)).to(self._device)
        augment = self._augmentation()
        for _ in range(training.epochs):
            for numbers in torch.from_numpy(rng.permutation(len(labels))).to(self._device).split(training.batch_size):
                if len(numbers) < 2:
                    continue
                optimizer.zero_grad(set_to_none=True)
                pictures = raw[numbers].reshape(-1, 3, self.side, self.side)
                with self._precision():
                    scores = network(self._scaled(augment(pictures)))
                _loss(scores.float(), true[numbers], training).backward()
                optimizer.step()
        return _arrays(network)

    @cached_property
    def _device(self) -> Any:
        torch = _torch()
        chosen = self.device
        if chosen == "auto":
            chosen = "cuda" if torch.cuda.is_available() else "cpu"
        if chosen.startswith("cuda") and not torch.cuda.is_available():
            raise SpecError(f"device {chosen!r}: torch finds no GPU here; take cpu, or auto")
        return torch.device(chosen)

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self._new().state_dict().items()}

    def _precision(self) -> Any:
        torch = _torch()
        return torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._device.type == "cuda")

    def _new(self) -> Any:
        from torchvision import models

        make = {"resnet18": models.resnet18, "efficientnet-b0": models.efficientnet_b0}[self.architecture]
        return make(weights=None, num_classes=self.classes)

    def _with(self, parameters: Parameters) -> Any:
        torch = _torch()
        network = self._new()
        network.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in parameters.items()})
        return network.to(self._device, memory_format=torch.channels_last)

    def _pretrained(self, network: Any) -> None:
        torch = _torch()
        try:
            # weights_only: nothing in the file is executed.
            state = torch.load(self.weights, map_location="cpu", weights_only=True)
        except Exception as error:
            raise SpecError(f"weights {self.weights}: {error}") from error
        layer = self.classification_layer.removesuffix("weight")
        body = {name: tensor for name, tensor in state.items() if not name.startswith(layer)}
        try:
            found = network.load_state_dict(body, strict=False)
        except RuntimeError as error:
            raise SpecError(f"weights {self.weights} are not those of {self.architecture}: {error}") from error
        missing = [name for name in found.missing_keys if not name.startswith(layer)]
        if missing or found.unexpected_keys:
            raise SpecError(
                f"weights {self.weights} are not those of {self.architecture}: "
                f"{', '.join([*missing, *found.unexpected_keys][:5])} differ"
            )

    def _pictures(self, images: npt.NDArray[Any]) -> Any:
        torch = _torch()
        raw = torch.from_numpy(np.array(images)).to(self._device)
        return self._scaled(raw.reshape(-1, 3, self.side, self.side))

    def _scaled(self, pictures: Any) -> Any:
        torch = _torch()
        mean, deviation = (
            torch.tensor(one, device=self._device)[None, :, None, None] for one in _SCALE[self.architecture]
        )
        scaled = (pictures.float() / 255.0 - mean) / deviation
        return scaled.contiguous(memory_format=torch.channels_last)

    def _augmentation(self) -> Any:
        """CIFAR-10: shifted by up to 4 pixels and mirrored. ISIC2019: FLamby's, as far as torchvision has them."""
        torch = _torch()
        from torchvision.transforms import v2

        if self.architecture == "resnet18":
            return _shifted_and_mirrored
        each = v2.Compose(
            [
                v2.RandomAffine(degrees=50, scale=(0.93, 1.07), shear=0.1),
                v2.ColorJitter(brightness=0.15, contrast=0.1),
                v2.RandomHorizontalFlip(),
                v2.RandomVerticalFlip(),
                v2.RandomCrop(self.side, padding=self.side // 20, pad_if_needed=True),
                v2.RandomErasing(p=0.5, scale=(0.01, 0.05)),
            ]
        )
        return lambda pictures: torch.stack([each(one) for one in pictures])


def published_weights(architecture: Architecture, data_dir: str | os.PathLike[str] | None) -> Path:
    """The file of torchvision's ImageNet weights, in the data folder or where torchvision keeps what it has downloaded.

    Raises:
        SpecError: If it is in neither place, or its hash is not the one in its name.
    """
    torch = _torch()
    name = _PUBLISHED[architecture]
    folders = [directory_of(data_dir), Path(torch.hub.get_dir()) / "checkpoints"]
    for folder in folders:
        if folder is not None and (path := folder / name).is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if not digest.startswith(path.stem.rpartition("-")[2]):
                raise SpecError(f"{path}: its SHA-256 is {digest[:8]}..., not the one in its name; fetch it again")
            return path
    looked = " and ".join(str(folder) for folder in folders if folder is not None)
    raise SpecError(
        f"the ImageNet weights of {architecture} ({name}) are not in {looked}: let torchvision download them once, or copy "
        "the file"
    )


def _torch() -> Any:
    try:
        import torch
        import torchvision  # noqa: F401
    except ImportError as error:
        raise SpecError(f"image networks need the extra `train` ({error}): {how_to_install('train')}") from error
    return torch


def _shifted_and_mirrored(pictures: Any) -> Any:
    """uint8[batch, channels, side, side], each by itself moved by up to 4 pixels (black comes in) and mirrored or not.

    As RandomCrop(padding=4) and RandomHorizontalFlip, but the whole batch in one step: those take one picture at a time.
    """
    torch = _torch()
    batch, channels, side, _ = pictures.shape
    device = pictures.device
    padded = torch.nn.functional.pad(pictures, (4, 4, 4, 4))
    rows, columns = (torch.randint(9, (batch, 1), device=device) + torch.arange(side, device=device) for _ in range(2))
    mirrored = torch.rand(batch, 1, device=device) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    which = torch.arange(batch, device=device)[:, None, None, None]
    layer = torch.arange(channels, device=device)[None, :, None, None]
    return padded[which, layer, rows[:, None, :, None], columns[:, None, None, :]]


def _arrays(network: Any) -> dict[str, npt.NDArray[Any]]:
    return {name: tensor.detach().cpu().contiguous().numpy().copy() for name, tensor in network.state_dict().items()}


def _loss(scores: Any, labels: Any, training: LocalTraining) -> Any:
    """The loss of `LocalTraining`, mean over the batch."""
    torch = _torch()
    logs = torch.log_softmax(scores, dim=1).gather(1, labels[:, None])[:, 0]
    losses = -logs
    if training.focusing:
        losses = losses * (1 - logs.exp()) ** training.focusing
    if training.class_weights is not None:
        losses = losses * torch.tensor(training.class_weights, device=scores.device)[labels]
    return losses.mean()
