"""Files with features of a frozen network: what stands in them, and how they are read. `fedgt.train.features` makes them."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedgt.errors import SpecError
from fedgt.types import BoolArray, IntArray

FEATURE_SETS: Final = {
    "cifar10-lite0": "cifar10",
    "isic2019-lite0": "isic2019",
    "isic2019-lite0-flamby": "isic2019",
}
"""Data set -> what its features were made from."""

ISIC_TEST = 3388  # the paper: 3,388 of 23,247; kept for the 23,215 that can be had
_ISIC_SPLIT_SEED = 0  # fixed: the test set is part of the data set, not of an experiment


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Features:
    """A classification data set of features.

    Attributes:
        train: float32[train, features], standardised.
        train_labels: int64[train].
        test: float32[test, features], standardised as the training samples.
        test_labels: int64[test].
        classes: Their number.
        centres: int64[train], or None.
    """

    train: npt.NDArray[np.float32]
    train_labels: IntArray
    test: npt.NDArray[np.float32]
    test_labels: IntArray
    classes: int
    centres: IntArray | None


def test_part(name: str, fold: BoolArray) -> BoolArray:
    """bool[samples]: the test set of a data set.

    Args:
        name: Its name; the random test set of the paper for ISIC2019, unless the name asks for FLamby's.
        fold: bool[samples], the test set that comes with the data.
    """
    if not name.startswith("isic2019") or name.endswith("-flamby"):
        return fold
    test = np.zeros(len(fold), dtype=np.bool_)
    test[np.random.default_rng(_ISIC_SPLIT_SEED).permutation(len(fold))[:ISIC_TEST]] = True
    return test


def _require_fitting(features: Any, labels: Any, test: Any, centres: Any) -> None:
    """Check that the arrays of a file belong together.

    Raises:
        ValueError: With what was found and what is needed.
    """
    count = len(features) if features.ndim == 2 else 0
    if features.dtype.kind != "f" or count < 2 or features.shape[1] < 1 or not np.isfinite(features).all():
        raise ValueError(
            f"features of shape {features.shape} and {features.dtype}; finite [samples, features] are needed"
        )
    for name, array, kinds in (("labels", labels, "iu"), ("test", test, "biu"), ("centres", centres, "iu")):
        if array.shape != (count,) or array.dtype.kind not in kinds or (array.dtype.kind in "iu" and array.min() < 0):
            raise ValueError(
                f"{name} of shape {array.shape} and {array.dtype}; {count} whole numbers from 0 are needed"
            )
    if labels.max() >= 2**31 or not 0 < np.count_nonzero(test) < count:
        raise ValueError("labels below 2^31, and samples for training as well as for the test, are needed")


def features_path(directory: Path | None, source: str) -> Path:
    """Where the features of `cifar10` or `isic2019` are kept.

    Raises:
        SpecError: If no folder is given.
    """
    if directory is None:
        raise SpecError(
            f"the features of {source} are kept in a folder, and none was given: set FEDGT_DATA or --data-dir"
        )
    return directory / f"{source}-lite0.npz"


def read_features(directory: Path | None, name: str) -> Features:
    """The data set of a name in `FEATURE_SETS`.

    `isic2019-lite0` has a random test set of 3,388, as the paper; `isic2019-lite0-flamby` FLamby's fold.

    Raises:
        SpecError: If the file is missing or damaged.
    """
    source = FEATURE_SETS[name]
    path = features_path(directory, source)
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            features, labels, test, centres = (file[key] for key in ("features", "labels", "test", "centres"))
            _require_fitting(features, labels, test, centres)
            labels, test, centres = labels.astype(np.int64), test.astype(np.bool_), centres.astype(np.int64)
    except FileNotFoundError as error:
        raise SpecError(
            f"{path} is missing: make it with `fedgt features {source} --data-dir {path.parent}`"
        ) from error
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise SpecError(f"{path} cannot be read ({error}): make it again with `fedgt features {source}`") from error
    test = test_part(name, test)
    train = features[~test].astype(np.float32)
    mean, deviation = train.mean(axis=0), train.std(axis=0) + np.float32(1e-3)
    train -= mean
    train /= deviation
    tested = (features[test].astype(np.float32) - mean) / deviation
    for array in (train, tested):
        array.setflags(write=False)
    return Features(
        train=train,
        train_labels=labels[~test],
        test=tested,
        test_labels=labels[test],
        classes=int(labels.max()) + 1,
        centres=centres[~test] if source == "isic2019" else None,
    )
