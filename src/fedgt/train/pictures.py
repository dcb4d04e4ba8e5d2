"""CIFAR-10 and Fed-ISIC2019 as pictures, from the layouts that their public loaders know.

CIFAR-10 is read from its official binary files, Fed-ISIC2019 from FLamby's table with one image file a row; FLamby's colour
constancy is not applied. Image files need Pillow, which comes with the extra `train`.
"""

import csv
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedgt.errors import SpecError
from fedgt.extras import how_to_install
from fedgt.types import BoolArray, IntArray

logger = logging.getLogger(__name__)

PICTURE_SETS: Final = {"cifar10": "cifar10", "isic2019": "isic2019", "isic2019-flamby": "isic2019"}
"""Data set -> where its pictures come from."""

_RECORD = 3073  # CIFAR-10: one label and 3 x 32 x 32 bytes
_LARGEST_SIDE = 224


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pictures:
    """Pictures that are read when they are asked for.

    Attributes:
        read: (first, last, side) -> uint8[images, 3, side, side].
        side: Their own rows and columns, at most 224.
        labels: int64[images].
        test: bool[images].
        centres: int64[images]; None where there are none.
    """

    read: Callable[[int, int, int], npt.NDArray[np.uint8]]
    side: int
    labels: IntArray
    test: BoolArray
    centres: IntArray | None


def read_pictures(source: str, directory: Path) -> Pictures:
    """The pictures of a source.

    Args:
        source: `cifar10` (DIRECTORY/cifar-10-batches-bin/*.bin) or `isic2019` (DIRECTORY/fed_isic2019/train_test_split.csv
            and images/<image>.jpg).
        directory: Where the data are.

    Raises:
        SpecError: If the source is unknown, or files are missing.
    """
    readers = {"cifar10": _cifar10, "isic2019": _isic2019}
    if source not in readers:
        raise SpecError(f"unknown pictures {source!r}; known are {', '.join(readers)}")
    return readers[source](directory)


def _cifar10(directory: Path) -> Pictures:
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
    return Pictures(
        read=lambda first, last, side: _at_size(records[first:last, 1:].reshape(-1, 3, 32, 32), side),
        side=32,
        labels=records[:, 0].astype(np.int64),
        test=test,
        centres=None,
    )


def _isic2019(directory: Path) -> Pictures:
    folder = directory / "fed_isic2019"
    table = folder / "train_test_split.csv"
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise SpecError(f"Fed-ISIC2019: {error}; FLamby's train_test_split.csv and images/*.jpg are needed") from error
    listed = len(rows)
    rows = [row for row in rows if (folder / "images" / f"{row['image']}.jpg").is_file()]
    if not rows:
        raise SpecError(f"Fed-ISIC2019: no image of {table} is in {folder / 'images'}")
    if len(rows) < listed:
        logger.warning("Fed-ISIC2019: %d of %d images are missing and left out", listed - len(rows), listed)
    paths = [folder / "images" / f"{row['image']}.jpg" for row in rows]
    return Pictures(
        read=lambda first, last, side: _read_images(paths[first:last], side),
        side=min(_LARGEST_SIDE, *_size(paths[0])),
        labels=np.array([int(float(row["target"])) for row in rows], dtype=np.int64),
        test=np.array([row["fold"] == "test" for row in rows]),
        centres=np.array([int(float(row["center"])) for row in rows], dtype=np.int64),
    )


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise SpecError(f"image files need Pillow ({error}): {how_to_install('train')}") from error
    return Image


def _size(path: Path) -> tuple[int, int]:
    with _pillow().open(path) as image:
        columns, rows = image.size
    return rows, columns


def _read_images(paths: Sequence[Path], side: int) -> npt.NDArray[np.uint8]:
    """uint8[images, 3, side, side]."""
    pillow = _pillow()
    read = []
    for path in paths:
        with pillow.open(path) as image:
            read.append(np.asarray(image.convert("RGB").resize((side, side), pillow.Resampling.BILINEAR)))
    return np.stack(read).transpose(0, 3, 1, 2)


def _at_size(pictures: npt.NDArray[np.uint8], side: int) -> npt.NDArray[np.uint8]:
    if pictures.shape[-1] != side:
        raise SpecError(f"these pictures have {pictures.shape[-1]} rows, {side} were asked for")
    return pictures
