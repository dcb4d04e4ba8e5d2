"""Data sets: the idx files are read strictly and missing ones are explained."""

import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fedgt.errors import ShapeError, SpecError
from fedgt.train.data import (
    DIGITS,
    MNIST,
    RAW,
    ImageData,
    Standardisation,
    load,
    load_digits_images,
    load_idx,
    read_idx,
)

IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
LABELS = np.array([7, 1], dtype=np.uint8)


def idx_bytes(array: npt.NDArray[np.uint8]) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def write_set(folder: Path, *, gzipped: bool = False) -> Path:
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        for name, array in ((f"{part}-images-idx3-ubyte", IMAGES), (f"{part}-labels-idx1-ubyte", LABELS)):
            content = idx_bytes(array)
            file = folder / (name + (".gz" if gzipped else ""))
            file.write_bytes(gzip.compress(content, mtime=0) if gzipped else content)
    return folder


def test_the_digits_are_split_the_same_way_every_time_with_every_class_in_both_parts() -> None:
    first, second = load("digits"), load_digits_images()
    assert first.train_images.shape == (1437, 64)
    assert first.test_images.shape == (360, 64)
    assert first.train_images.dtype == np.float32
    assert first.train_labels.dtype == np.int64
    np.testing.assert_array_equal(first.test_images, second.test_images)
    assert np.bincount(first.test_labels).min() >= 34
    assert not {row.tobytes() for row in first.test_images[:50]} & {row.tobytes() for row in first.train_images}


def test_raw_digits_lie_between_0_and_1_and_the_default_is_standardised() -> None:
    raw = load("digits", standardisation=RAW)
    assert raw.train_images.min() == 0
    assert raw.train_images.max() == 1
    standardised = load("digits")
    assert standardised.standardisation == DIGITS
    assert abs(float(standardised.train_images.mean())) < 0.01
    assert abs(float(standardised.train_images.std()) - 1) < 0.01


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize(
    ("name", "folder"),
    [("mnist", "MNIST/raw"), ("fashion-mnist", "FashionMNIST/raw"), ("mnist", "mnist"), ("mnist", ".")],
)
def test_idx_files_are_found_raw_or_gzipped_in_every_layout(
    tmp_path: Path, name: str, folder: str, gzipped: bool
) -> None:
    root = tmp_path / "data"
    write_set(root / folder, gzipped=gzipped)
    data = load_idx(root, name)
    np.testing.assert_array_equal(data.train_images, IMAGES.reshape(2, 12) / np.float32(255))
    assert data.train_labels.tolist() == [7, 1]
    assert data.shape == (3, 4)


def test_standardisation_subtracts_the_mean_and_divides_by_the_deviation(tmp_path: Path) -> None:
    write_set(tmp_path / "MNIST" / "raw")
    raw = load_idx(tmp_path, "mnist")
    standardised = load("mnist", tmp_path)
    assert standardised.standardisation == MNIST
    np.testing.assert_allclose(standardised.test_images, (raw.test_images - 0.1307) / 0.3081, rtol=1e-5)


def test_the_environment_variable_names_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_set(tmp_path / "MNIST" / "raw")
    monkeypatch.setenv("FEDGT_DATA", str(tmp_path))
    assert load("mnist").name == "mnist"


def test_a_missing_file_is_named_with_the_place_and_a_way_to_get_it(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "MNIST" / "raw")
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(SpecError) as caught:
        load("mnist", tmp_path)
    message = str(caught.value)
    assert f"{folder} lacks t10k-labels-idx1-ubyte" in message
    assert "FEDGT_DATA" in message
    assert "--data-dir" in message
    assert "torchvision.datasets.MNIST(ROOT, download=True)" in message


def test_without_any_folder_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDGT_DATA", raising=False)
    with pytest.raises(SpecError, match="no folder, as none was given"):
        load("mnist")


def test_an_unknown_name_lists_the_choices() -> None:
    with pytest.raises(SpecError, match="'cifar'; choose one of digits, mnist, fashion-mnist"):
        load("cifar")


def test_an_idx_file_gives_exactly_the_stated_array(tmp_path: Path) -> None:
    path = tmp_path / "some"
    path.write_bytes(idx_bytes(IMAGES))
    np.testing.assert_array_equal(read_idx(path), IMAGES)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00\x08",
        b"\x00\x00\x08\x00",
        b"\x00\x00\x0d\x01\x00\x00\x00\x01\x07",  # floats
        b"\x01\x00\x08\x01\x00\x00\x00\x01\x07",
        idx_bytes(IMAGES)[:-1],
        idx_bytes(IMAGES) + b"\x00",
        idx_bytes(IMAGES)[:10],
    ],
)
def test_a_damaged_idx_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=r"damaged.*fetch the file again"):
        read_idx(path)


@pytest.mark.parametrize("content", [b"no gzip at all", gzip.compress(idx_bytes(IMAGES), mtime=0)[:-12]])
def test_a_damaged_gzip_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "damaged.gz"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=r"damaged\.gz cannot be read"):
        read_idx(path)


def test_images_and_labels_of_different_length_are_refused(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "MNIST" / "raw")
    (folder / "train-labels-idx1-ubyte").write_bytes(idx_bytes(LABELS[:1]))
    with pytest.raises(SpecError, match="fetch both files again"):
        load("mnist", tmp_path)


def image_data(*, images: npt.ArrayLike, labels: npt.ArrayLike) -> ImageData:
    return ImageData(
        name="own",
        train_images=np.asarray(images, dtype=np.float32),
        train_labels=np.asarray(labels, dtype=np.int64),
        test_images=np.zeros((1, 2), dtype=np.float32),
        test_labels=np.zeros(1, dtype=np.int64),
        classes=2,
        shape=(1, 2),
    )


@pytest.mark.parametrize(
    ("images", "labels", "match"),
    [
        ([[0.0, 1.0, 0.0]], [0], "shape"),
        ([[0.0, 1.0]], [0, 1], "shape"),
        ([[0.0, 1.0]], [2], "labels from 2 to 2"),
        ([[0.0, 1.0]], [-1], "labels from -1 to -1"),
        ([[0.0, float("nan")]], [0], "NaN"),
    ],
)
def test_image_data_that_do_not_fit_are_refused(images: npt.ArrayLike, labels: npt.ArrayLike, match: str) -> None:
    with pytest.raises(ShapeError, match=match):
        image_data(images=images, labels=labels)


def test_image_data_keep_their_own_read_only_copy() -> None:
    images = np.zeros((1, 2), dtype=np.float32)
    data = image_data(images=images, labels=[0])
    images[0, 0] = 5
    assert data.train_images[0, 0] == 0
    assert not data.train_images.flags.writeable


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 0.0), (0.0, -1.0), (float("nan"), 1.0), (0.0, float("inf"))])
def test_a_standardisation_that_cannot_be_applied_is_refused(mean: float, deviation: float) -> None:
    with pytest.raises(SpecError, match="deviation"):
        Standardisation(mean=mean, deviation=deviation)


@pytest.mark.needs_mnist
def test_mnist_has_its_known_sizes_mean_and_first_labels(mnist_dir: Path) -> None:
    data = load("mnist", mnist_dir)
    assert data.train_images.shape == (60000, 784)
    assert data.test_images.shape == (10000, 784)
    assert data.train_labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert data.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert abs(float(data.train_images.mean(dtype=np.float64))) < 1e-3
    assert abs(float(data.train_images.std(dtype=np.float64)) - 1) < 1e-3
