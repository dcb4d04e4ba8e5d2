"""Model, data and local training: nothing here knows of fedgt, or of what carries its messages."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

CLIENTS, VALIDATION, SOURCE, TARGET = 15, 300, 1, 7
Arrays = dict[str, npt.NDArray[Any]]


def make_model() -> nn.Module:
    """One hidden layer with batch normalisation, so that the state has running means and a counter."""
    return nn.Sequential(nn.Linear(784, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))


CLASSIFICATION_LAYER = "3.weight"


def initial(seed: int) -> Arrays:
    """The first global model."""
    torch.manual_seed(seed)
    return to_arrays(make_model())


def to_arrays(model: nn.Module) -> Arrays:
    """A state_dict as numpy arrays."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in model.state_dict().items()}


def from_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> nn.Module:
    """A model with this state."""
    model = make_model()
    model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
    return model


def load(folder: str, part: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Images [samples, 784] from 0 to 1 and labels of `train` or `t10k`, in the layout of torchvision."""
    raw = Path(folder or os.environ.get("FEDGT_DATA", "")) / "MNIST" / "raw"
    images = np.fromfile(raw / f"{part}-images-idx3-ubyte", dtype=np.uint8)[16:].reshape(-1, 784)
    labels = np.fromfile(raw / f"{part}-labels-idx1-ubyte", dtype=np.uint8)[8:]
    return (images / np.float32(255)).astype(np.float32), labels.astype(np.int64)


def partition(number: int | None, seed: int, samples: int = 60_000) -> npt.NDArray[np.int64]:
    """The samples of a simulated site; of the server's validation set for None. A real site takes its own data."""
    order = np.random.default_rng(seed).permutation(samples)
    if number is None:
        return order[:VALIDATION]
    return np.array_split(order[VALIDATION:], CLIENTS)[number]


def trained_at(
    number: int, arrays: Mapping[str, npt.NDArray[Any]], round: int, config: Mapping[str, Any]
) -> tuple[Arrays, int]:
    """The model after a simulated site has trained it, and the number of its samples. The malicious call every 1 a 7."""
    seed = int(config["seed"])
    images, labels = load(str(config["data"]), "train")
    mine = partition(number, seed)
    images, labels = images[mine], labels[mine]
    if str(number) in str(config["malicious"]).split(","):
        labels = np.where(labels == SOURCE, TARGET, labels)
    return train(arrays, images, labels, seed=seed * 1_000_000 + round * 1_000 + number), len(labels)


def train(arrays: Mapping[str, npt.NDArray[Any]], images: Any, labels: Any, *, seed: int) -> Arrays:
    """One epoch of SGD on one thread: the same seed gives the same bits."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = from_arrays(arrays)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    for batch in torch.randperm(len(y)).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    return to_arrays(model)


def logits(arrays: Mapping[str, npt.NDArray[Any]], images: Any) -> npt.NDArray[np.float32]:
    """float32[samples, 10]."""
    torch.set_num_threads(1)
    model = from_arrays(arrays)
    model.eval()
    with torch.no_grad():
        scores: npt.NDArray[np.float32] = model(torch.from_numpy(images)).numpy()
    return scores


def features(arrays: Mapping[str, npt.NDArray[Any]], images: Any) -> npt.NDArray[np.float32]:
    """float32[samples, 64]: what the classification layer sees."""
    torch.set_num_threads(1)
    body = from_arrays(arrays)[:-1]
    body.eval()
    with torch.no_grad():
        seen: npt.NDArray[np.float32] = body(torch.from_numpy(images)).numpy()
    return seen
