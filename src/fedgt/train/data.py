"""Image data sets as flat float arrays: scikit-learn's digits, and MNIST and Fashion-MNIST from their idx files.

Nothing is downloaded here. A missing file is reported with every place that was looked at and a way to get it.
"""

import gzip
import logging
import math
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError, SpecError
from fedgt.train.feature_files import FEATURE_SETS, read_features, test_part
from fedgt.train.pictures import PICTURE_SETS, read_pictures
from fedgt.types import IntArray

logger = logging.getLogger(__name__)

Images: TypeAlias = npt.NDArray[np.floating]
"""float[samples, pixels]: one flattened image a row."""

_DIGITS_TEST_SAMPLES = 360  # a fifth of the 1,797, as in MNIST's habit of a fixed test set
_DIGITS_SPLIT_SEED = 0  # fixed: the test set is part of the data set, not of an experiment

_IDX_FILES: Final = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
_TORCHVISION: Final = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
_DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
_HOW_TO_GET: Final = {
    "mnist": "torchvision.datasets.MNIST(ROOT, download=True)",
    "fashion-mnist": "torchvision.datasets.FashionMNIST(ROOT, download=True) or Debian's package dataset-fashion-mnist",
}


def read_only(array: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The array itself if it is read-only and of this dtype already, else a read-only copy: data sets are large."""
    if isinstance(array, np.ndarray) and array.dtype == dtype and not array.flags.writeable:
        return array
    copy = np.array(array, dtype=dtype)
    copy.setflags(write=False)
    return copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Standardisation:
    """What is done to a pixel in [0, 1] before the model sees it: (pixel - mean) / deviation.

    Attributes:
        mean: Subtracted from every pixel.
        deviation: Divides every pixel afterwards; positive.

    Raises:
        SpecError: If a value is not finite or the deviation is not positive.

    Examples:
        >>> from fedgt.train import Standardisation, load
        >>> data = load("digits", standardisation=Standardisation(mean=0.5, deviation=0.5))
        >>> float(data.train_images.min()), float(data.train_images.max())
        (-1.0, 1.0)
    """

    mean: float = 0.0
    deviation: float = 1.0

    def __post_init__(self) -> None:
        """Check the range."""
        if not (math.isfinite(self.mean) and math.isfinite(self.deviation) and self.deviation > 0):
            raise SpecError(
                f"standardisation with mean {self.mean} and deviation {self.deviation}: "
                "a finite mean and a finite, positive deviation are needed"
            )


RAW: Final = Standardisation()
"""Pixels stay in [0, 1]."""

MNIST: Final = Standardisation(mean=0.1307, deviation=0.3081)
"""Mean and standard deviation of MNIST's training pixels.

The paper does not state its input scaling. With these values its table of targeted attacks is reproduced (10 rounds,
lr 0.01, batch 64: 90.3 % top-1); with pixels in [0, 1] the same training stops at 85.6 %,
with pixels in [-1, 1] at 88.8 %.
"""

DIGITS: Final = Standardisation(mean=0.3053, deviation=0.3760)
"""Mean and standard deviation of all pixels of scikit-learn's digits."""

STANDARDISATIONS: Final = {
    "digits": DIGITS,
    "mnist": MNIST,
    "fashion-mnist": Standardisation(mean=0.2860, deviation=0.3530),
}
"""The default of each data set."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImageData:
    """A classification data set with its fixed test set.

    Arrays that are already read-only and of the right dtype are kept, everything else is copied: MNIST is 190 MB.

    Attributes:
        name: The name that `load` knows it by, or the user's.
        train_images: float32[train, pixels], pixels in [0, 1], then standardised; or uint8 for image networks, channel by
            channel.
        train_labels: int64[train], from 0 to classes - 1.
        test_images: float32[test, pixels], treated alike.
        test_labels: int64[test].
        classes: The number of classes.
        shape: (rows, columns) of an image, the channels one below the other; rows x columns = pixels.
        standardisation: What was done to the pixels.
        centres: int64[train], where each training sample comes from; None where nobody knows.

    Raises:
        ShapeError: If the arrays do not fit together, a label is out of range or a pixel is not finite.

    Examples:
        >>> from fedgt.train import load
        >>> digits = load("digits")
        >>> digits.name, digits.shape, len(digits.test_labels)
        ('digits', (8, 8), 360)
    """

    name: str
    train_images: npt.NDArray[Any]
    train_labels: IntArray
    test_images: npt.NDArray[Any]
    test_labels: IntArray
    classes: int
    shape: tuple[int, int]
    standardisation: Standardisation = RAW
    centres: IntArray | None = None

    def __post_init__(self) -> None:
        """Freeze and check."""
        if self.centres is not None:
            object.__setattr__(self, "centres", read_only(self.centres, np.int64))
            if self.centres.shape != self.train_labels.shape:
                raise ShapeError(f"{self.name}: {self.centres.shape} centres; one for each training sample is needed")
        pixels = self.shape[0] * self.shape[1]
        for part in ("train", "test"):
            given = getattr(self, f"{part}_images")
            images = read_only(given, np.uint8 if np.asarray(given).dtype == np.uint8 else np.float32)
            labels = read_only(getattr(self, f"{part}_labels"), np.int64)
            if images.ndim != 2 or images.shape[1] != pixels or labels.shape != images.shape[:1]:
                raise ShapeError(
                    f"{self.name}: {part} images of shape {images.shape} with labels of shape {labels.shape}; "
                    f"images [samples, {pixels}] (shape {self.shape}) and one label a sample are needed"
                )
            if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
                raise ShapeError(
                    f"{self.name}: {part} labels from {labels.min()} to {labels.max()}; "
                    f"0 to {self.classes - 1} are needed"
                )
            if images.dtype != np.uint8 and not np.isfinite(images).all():
                raise ShapeError(f"{self.name}: {part} images hold NaN or infinite pixels; remove or replace them")
            object.__setattr__(self, f"{part}_images", images)
            object.__setattr__(self, f"{part}_labels", labels)


def load(
    name: str, data_dir: str | os.PathLike[str] | None = None, *, standardisation: Standardisation | None = None
) -> ImageData:
    """A data set by name.

    Args:
        name: `digits` (ships with scikit-learn), `mnist` or `fashion-mnist` (idx files), `cifar10`, `isic2019` or
            `isic2019-flamby` (pictures for image networks, see `fedgt.train.pictures`), `cifar10-lite0`,
            `isic2019-lite0` or `isic2019-lite0-flamby` (files that `fedgt features` makes, see `fedgt.train.features`).
        data_dir: Where the files are, see `load_idx`; the environment variable FEDGT_DATA if not given.
        standardisation: What to do to the pixels; by default the entry of `STANDARDISATIONS`.

    Raises:
        SpecError: If the name is unknown, or the files are missing or damaged.

    Examples:
        >>> from fedgt.train import load
        >>> digits = load("digits")
        >>> digits.train_images.shape, digits.classes
        ((1437, 64), 10)
    """
    loaders: dict[str, Callable[[Standardisation], ImageData]] = {
        "digits": lambda chosen: load_digits_images(standardisation=chosen),
        "mnist": lambda chosen: load_idx(directory_of(data_dir), "mnist", standardisation=chosen),
        "fashion-mnist": lambda chosen: load_idx(directory_of(data_dir), "fashion-mnist", standardisation=chosen),
    }
    if name in FEATURE_SETS:
        return load_features(directory_of(data_dir), name)
    if name in PICTURE_SETS:
        return load_pictures(directory_of(data_dir), name)
    if name not in loaders:
        known = [*loaders, *PICTURE_SETS, *FEATURE_SETS]
        raise SpecError(f"unknown data set {name!r}; choose one of {', '.join(known)}")
    return loaders[name](standardisation or STANDARDISATIONS[name])


def directory_of(data_dir: str | os.PathLike[str] | None) -> Path | None:
    """The folder of the data: as given, or that of FEDGT_DATA; None where neither says."""
    given = os.fspath(data_dir) if data_dir is not None else os.environ.get("FEDGT_DATA", "")
    return Path(given).expanduser() if given else None


def load_pictures(directory: Path | None, name: str) -> ImageData:
    """Pictures as bytes, for image networks.

    Raises:
        SpecError: If they are missing.
    """
    if directory is None:
        raise SpecError(f"the images of {name} are in a folder, and none was given: set FEDGT_DATA or --data-dir")
    found = read_pictures(PICTURE_SETS[name], directory)
    test = test_part(name, found.test)
    side = found.side
    whole = found.read(0, len(found.labels), side).reshape(len(found.labels), -1)
    return ImageData(
        name=name,
        train_images=whole[~test],
        train_labels=found.labels[~test],
        test_images=whole[test],
        test_labels=found.labels[test],
        classes=int(found.labels.max()) + 1,
        shape=(3 * side, side),
        centres=None if found.centres is None else found.centres[~test],
    )


def load_features(directory: Path | None, name: str) -> ImageData:
    """Features of a frozen network, each standardised by mean and deviation over the training samples.

    Raises:
        SpecError: If the file is missing or damaged; the message says how to make it.
    """
    found = read_features(directory, name)
    return ImageData(
        name=name,
        train_images=found.train,
        train_labels=found.train_labels,
        test_images=found.test,
        test_labels=found.test_labels,
        classes=found.classes,
        shape=(1, found.train.shape[1]),
        centres=found.centres,
    )


def load_digits_images(*, standardisation: Standardisation = DIGITS) -> ImageData:
    """The 1,797 handwritten digits of 8 x 8 pixels that ship with scikit-learn (UCI optical recognition, test part).

    The test set is 360 images, stratified by class and always the same; the other 1,437 are for training.

    Args:
        standardisation: What to do to the pixels; by default mean and deviation of the data set.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    train_images, test_images, train_labels, test_labels = train_test_split(
        bunch.data / 16.0,
        bunch.target,
        test_size=_DIGITS_TEST_SAMPLES,
        stratify=bunch.target,
        random_state=_DIGITS_SPLIT_SEED,
    )
    return ImageData(
        name="digits",
        train_images=_standardise(train_images.astype(np.float32), standardisation),
        train_labels=train_labels,
        test_images=_standardise(test_images.astype(np.float32), standardisation),
        test_labels=test_labels,
        classes=10,
        shape=(8, 8),
        standardisation=standardisation,
    )


def load_idx(directory: Path | None, name: str, *, standardisation: Standardisation = RAW) -> ImageData:
    """MNIST or Fashion-MNIST from the four idx files, raw or gzipped.

    The files are looked for in DIRECTORY/MNIST/raw or DIRECTORY/FashionMNIST/raw (torchvision's layout), in
    DIRECTORY/<name>, in DIRECTORY itself and, for Fashion-MNIST, where Debian's package puts them.

    Args:
        directory: The root; None looks only at Debian's place.
        name: `mnist` or `fashion-mnist`.
        standardisation: What to do to the pixels; by default nothing.

    Raises:
        SpecError: If the name is unknown, a file is missing (the message says which, where, and how to get it), or a
            file is not what its name promises.
    """
    if name not in _TORCHVISION:
        raise SpecError(f"unknown idx data set {name!r}; choose one of {', '.join(_TORCHVISION)}")
    paths = _find_idx(directory, name)
    arrays = {part: read_idx(path) for part, path in paths.items()}
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise SpecError(
                f"{paths[f'{part}_images']} holds shape {images.shape} and {paths[f'{part}_labels']} shape "
                f"{labels.shape}; [samples, rows, columns] and [samples] are needed: fetch both files again"
            )
    shape = arrays["train_images"].shape[1:]
    return ImageData(
        name=name,
        train_images=_standardise(_unit_pixels(arrays["train_images"]), standardisation),
        train_labels=arrays["train_labels"].astype(np.int64),
        test_images=_standardise(_unit_pixels(arrays["test_images"]), standardisation),
        test_labels=arrays["test_labels"].astype(np.int64),
        classes=10,
        shape=(shape[0], shape[1]),
        standardisation=standardisation,
    )


def _find_idx(directory: Path | None, name: str) -> dict[str, Path]:
    places = [directory / _TORCHVISION[name] / "raw", directory / name, directory] if directory else []
    if name == "fashion-mnist":
        places.append(_DEBIAN_FASHION_MNIST)
    missing = ""
    for place in places:
        found = {part: _raw_or_gzipped(place / file) for part, file in _IDX_FILES.items()}
        paths = {part: path for part, path in found.items() if path is not None}
        if len(paths) == len(_IDX_FILES):
            logger.info("%s is read from %s", name, place)
            return paths
        # A place that has some of the files is the one that was meant: name what it lacks.
        if paths and not missing:
            missing = f"; {place} lacks {', '.join(_IDX_FILES[part] for part in _IDX_FILES if part not in paths)}"
    looked = ", ".join(map(str, places)) or "no folder, as none was given"
    raise SpecError(
        f"{name} was not found: the files {', '.join(_IDX_FILES.values())} (raw or .gz) are needed in one folder, "
        f"looked in {looked}{missing}. Give the root with FEDGT_DATA or --data-dir; "
        f"to get the files: {_HOW_TO_GET[name]}"
    )


def _raw_or_gzipped(path: Path) -> Path | None:
    gzipped = path.with_name(path.name + ".gz")
    return path if path.is_file() else gzipped if gzipped.is_file() else None


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """One idx file of unsigned bytes, gzipped if its name ends in .gz.

    The format (LeCun's MNIST page): two zero bytes, the type code (8: unsigned byte), the number of dimensions, each
    dimension as a big-endian 32-bit integer, then the values with the last dimension fastest.

    Returns:
        uint8 array of the shape that the file states, read-only.

    Raises:
        SpecError: If the header is no idx header of unsigned bytes, or the length is not exactly what it states.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError(f"{path} cannot be read ({error}); fetch the file again") from error
    dimensions = content[3] if len(content) >= 4 else 0
    header = 4 + 4 * dimensions
    if content[:3] != b"\x00\x00\x08" or not dimensions or len(content) < header:
        raise SpecError(
            f"{path} starts with {content[:4].hex(' ') or 'nothing'}; an idx file of unsigned bytes starts with "
            "00 00 08 and the number of dimensions: fetch the file again"
        )
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, header, 4))
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise SpecError(
            f"{path} states shape {shape}, which is {expected} bytes, but has {len(content)}: fetch the file again"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _unit_pixels(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255)


def _standardise(pixels: npt.NDArray[np.float32], standardisation: Standardisation) -> npt.NDArray[np.float32]:
    """In place on an array of our own, then read-only."""
    if standardisation != RAW:
        pixels -= np.float32(standardisation.mean)
        pixels /= np.float32(standardisation.deviation)
    pixels.setflags(write=False)
    return pixels
