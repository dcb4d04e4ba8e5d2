"""Files of features: how they are made from public layouts, read, and reported missing. The network itself is left out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt.errors import SpecError
from fedgt.train import features, load


@pytest.fixture
def averaging(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the network, which needs torch: mean, deviation and number of each image."""
    monkeypatch.setattr(features, "_network", lambda: None)

    def pooled(_: Any, images: Any) -> Any:
        flat = images.reshape(len(images), -1).astype(np.float64)
        return np.stack([flat.mean(axis=1), flat.std(axis=1), flat[:, 0]], axis=1).astype(np.float16)

    monkeypatch.setattr(features, "_pooled", pooled)


def cifar(folder: Path, rng: np.random.Generator, *, records: int = 30) -> np.ndarray[Any, np.dtype[np.uint8]]:
    batches = folder / "cifar-10-batches-bin"
    batches.mkdir(parents=True)
    every = rng.integers(256, size=(6 * records, 3073), dtype=np.uint8)
    every[:, 0] = np.arange(6 * records) % 10
    names = [f"data_batch_{one}.bin" for one in range(1, 6)] + ["test_batch.bin"]
    for name, part in zip(names, np.split(every, 6), strict=True):
        part.tofile(batches / name)
    return every


@pytest.mark.usefixtures("averaging")
def test_cifar_becomes_a_data_set_whose_training_features_are_standardised(tmp_path: Path) -> None:
    every = cifar(tmp_path, np.random.default_rng(0))
    told: list[tuple[int, int]] = []
    path = features.make_features("cifar10", tmp_path, on_images=lambda done, of: told.append((done, of)))
    assert path == tmp_path / "cifar10-lite0.npz"
    assert told == [(100, 180), (180, 180)]
    data = load("cifar10-lite0", tmp_path)
    assert (data.train_images.shape, data.test_images.shape, data.classes) == ((150, 3), (30, 3), 10)
    assert data.test_labels.tolist() == every[150:, 0].tolist()
    np.testing.assert_allclose(data.train_images.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(data.train_images.std(axis=0), 1, atol=0.01)
    assert data.centres is None


@pytest.mark.usefixtures("averaging")
def test_features_that_are_there_are_kept(tmp_path: Path) -> None:
    cifar(tmp_path, np.random.default_rng(1))
    path = features.make_features("cifar10", tmp_path)
    before = path.read_bytes()
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").unlink()
    assert features.make_features("cifar10", tmp_path).read_bytes() == before


def isic(folder: Path, rng: np.random.Generator, *, images: int = 60, missing: int = 2) -> None:
    from PIL import Image

    home = folder / "fed_isic2019"
    (home / "images").mkdir(parents=True)
    lines = ["image,target,center,fold"]
    for number in range(images):
        lines.append(f"I{number},{number % 8}.0,{number % 6},{'test' if number % 5 == 0 else 'train'}")
        if number >= missing:
            pixels = rng.integers(256, size=(20, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(home / "images" / f"I{number}.jpg")
    (home / "train_test_split.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.usefixtures("averaging")
def test_isic_has_centres_and_two_ways_to_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgt.train import feature_files

    monkeypatch.setattr(feature_files, "ISIC_TEST", 9)
    isic(tmp_path, np.random.default_rng(2))
    features.make_features("isic2019", tmp_path)
    paper, flamby = load("isic2019-lite0", tmp_path), load("isic2019-lite0-flamby", tmp_path)
    assert len(paper.test_labels) == 9
    assert len(paper.train_labels) + 9 == 58  # two images are missing
    assert len(flamby.test_labels) == 11
    for data in (paper, flamby):
        assert data.classes == 8
        assert data.centres is not None
        assert sorted(set(data.centres.tolist())) == list(range(6))
    again = load("isic2019-lite0", tmp_path)
    assert (again.test_images == paper.test_images).all()


def test_missing_features_are_reported_with_the_command_that_makes_them(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cifar10-lite0.npz is missing: make it with `fedgt features cifar10"):
        load("cifar10-lite0", tmp_path)


def test_without_a_folder_the_error_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDGT_DATA", raising=False)
    with pytest.raises(SpecError, match="set FEDGT_DATA or --data-dir"):
        load("isic2019-lite0")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cifar10-lite0.npz").write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(SpecError, match="cannot be read"):
        load("cifar10-lite0", tmp_path)


@pytest.mark.usefixtures("averaging")
@pytest.mark.parametrize(
    ("source", "needed"), [("cifar10", "official binary version"), ("isic2019", "train_test_split.csv")]
)
def test_missing_images_are_reported(tmp_path: Path, source: str, needed: str) -> None:
    with pytest.raises(SpecError, match=needed):
        features.make_features(source, tmp_path)


@pytest.mark.usefixtures("averaging")
def test_an_unknown_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cifar10, isic2019"):
        features.make_features("imagenet", tmp_path)


def test_the_real_network_gives_1280_features_an_image() -> None:
    pytest.importorskip("torch", reason="needs the extra `train`")
    pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra `train`")
    images = np.random.default_rng(3).integers(256, size=(2, 3, 32, 32), dtype=np.uint8)
    network = features._network()
    found = features._pooled(network, images)
    assert found.shape == (2, 1280)
    assert found.dtype.name == "float16"
    assert np.isfinite(found).all()
    # Each image by itself, whoever else is in the batch.
    np.testing.assert_allclose(features._pooled(network, images[1:])[0], found[1], atol=2e-2)
