"""The paper's image networks on a few small pictures; needs the extra `train`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt.errors import ShapeError, SpecError
from fedgt.experiment import make_spec
from fedgt.experiment.batch import run_batch
from fedgt.train import ImageData, LocalTraining
from fedgt.train.image_network import ImageNetwork, published_weights

torch = pytest.importorskip("torch", reason="needs the extra `train`")
pytest.importorskip("torchvision", reason="needs the extra `train`")

NETWORK = ImageNetwork(architecture="resnet18", classes=10, side=32, device="cpu")
TRAINING = LocalTraining(learning_rate=0.02, batch_size=8, momentum=0.9, weight_decay=0.001)


def pictures(samples: int, seed: int = 0) -> tuple[Any, Any]:
    """Dark pictures of even classes, bright ones of odd classes, and noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=samples)
    noise = rng.integers(0, 60, size=(samples, 3 * 32 * 32))
    return (noise + 150 * (labels % 2)[:, None]).astype(np.uint8), labels


def trained(seed: int = 3) -> dict[str, Any]:
    images, labels = pictures(24)
    start = NETWORK.initial(rng=np.random.default_rng(1))
    (found,) = NETWORK.train_clients(
        start,
        images=images,
        labels=labels,
        parts=[np.arange(20)],
        rngs=[np.random.default_rng(seed)],
        training=TRAINING,
    )
    return found


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not() -> None:
    first, again, other = trained(), trained(), trained(seed=4)
    assert all((first[name] == again[name]).all() for name in first)
    assert not (first["fc.weight"] == other["fc.weight"]).all()


def test_counters_are_counted_and_everything_else_is_floating_point() -> None:
    found = trained()
    assert found["bn1.num_batches_tracked"].dtype == np.int64
    assert int(found["bn1.num_batches_tracked"]) == 3  # batches of 8, 8 and 4
    assert {value.dtype.kind for name, value in found.items() if not name.endswith("tracked")} == {"f"}


def test_the_classification_layer_is_the_last_one() -> None:
    for network in (NETWORK, ImageNetwork(architecture="efficientnet-b0", classes=8, side=32, device="cpu")):
        state = network.initial(rng=np.random.default_rng(0))
        assert state[network.classification_layer].shape[0] == network.classes
        assert list(state)[-2] == network.classification_layer


def test_logits_do_not_depend_on_who_else_is_in_the_batch() -> None:
    images, _ = pictures(5)
    state = NETWORK.initial(rng=np.random.default_rng(0))
    whole = NETWORK.logits(state, images)
    np.testing.assert_allclose(NETWORK.logits(state, images[2:3])[0], whole[2], atol=1e-4)
    assert NETWORK.predict(state, images).tolist() == whole.argmax(axis=1).tolist()


def test_one_step_of_the_focal_loss_is_that_of_torchs_own_operations() -> None:
    """gamma 2 and class weights, without augmentation by a constant picture (a shifted padding still changes it, so a
    linear probe is compared: the loss itself)."""
    from fedgt.train.image_network import _loss

    scores = torch.tensor([[1.0, -0.5, 0.2], [0.0, 2.0, -1.0]], dtype=torch.float64)
    labels = torch.tensor([0, 2])
    weights = (2.0, 1.0, 5.0)
    probability = torch.softmax(scores, dim=1)[torch.arange(2), labels]
    expected = (-torch.tensor([2.0, 5.0]) * (1 - probability) ** 2 * probability.log()).mean()
    found = _loss(scores, labels, LocalTraining(focusing=2.0, class_weights=weights))
    assert float(found) == pytest.approx(float(expected))
    plain = _loss(scores, labels, LocalTraining())
    assert float(plain) == pytest.approx(float(torch.nn.functional.cross_entropy(scores, labels)))


def test_pictures_are_moved_by_up_to_four_pixels_and_mirrored_each_by_itself() -> None:
    """Against torchvision's own padding, crop and flip."""
    from torchvision.transforms.v2 import functional

    from fedgt.train.image_network import _shifted_and_mirrored

    pictures = torch.from_numpy(np.random.default_rng(0).integers(1, 256, size=(40, 3, 8, 8), dtype=np.uint8))
    torch.manual_seed(0)
    found = _shifted_and_mirrored(pictures)
    seen = set()
    for before, after in zip(pictures, found, strict=True):
        padded = functional.pad(before, [4])
        ways = {
            (top, left, mirrored): functional.crop(padded, top, left, 8, 8)
            for top in range(9)
            for left in range(9)
            for mirrored in (False, True)
        }
        same = [way for way, crop in ways.items() if torch.equal(crop.flip(2) if way[2] else crop, after)]
        assert len(same) == 1
        seen.add(same[0])
    assert len(seen) > 20


def test_a_state_of_another_network_is_refused_by_name() -> None:
    state = NETWORK.initial(rng=np.random.default_rng(0))
    with pytest.raises(ShapeError, match=r"fc\.bias"):
        NETWORK.check({name: value for name, value in state.items() if name != "fc.bias"})
    with pytest.raises(ShapeError, match=r"fc\.weight.*\(10, 512\) is needed"):
        NETWORK.check({**state, "fc.weight": np.zeros((3, 512), dtype=np.float32)})


def test_pretrained_weights_fill_all_but_the_classification_layer(tmp_path: Path) -> None:
    from torchvision import models

    torch.manual_seed(5)
    published = models.resnet18(weights=None, num_classes=1000)
    path = tmp_path / "resnet18.pth"
    torch.save(published.state_dict(), path)
    network = ImageNetwork(architecture="resnet18", classes=10, side=32, weights=path, device="cpu")
    state = network.initial(rng=np.random.default_rng(0))
    assert (state["conv1.weight"] == published.state_dict()["conv1.weight"].numpy()).all()
    assert state["fc.weight"].shape == (10, 512)
    torch.save(models.efficientnet_b0(weights=None).state_dict(), path)
    with pytest.raises(SpecError, match="not those of resnet18"):
        network.initial(rng=np.random.default_rng(0))
    path.write_bytes(b"nothing")
    with pytest.raises(SpecError, match="weights"):
        network.initial(rng=np.random.default_rng(0))


def test_missing_and_damaged_published_weights_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    with pytest.raises(SpecError, match=r"efficientnet_b0_rwightman-7f5810bc\.pth\) are not in"):
        published_weights("efficientnet-b0", tmp_path)
    (tmp_path / "resnet18-f37072fd.pth").write_bytes(b"torn")
    with pytest.raises(SpecError, match="fetch it again"):
        published_weights("resnet18", tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_an_error() -> None:
    network = ImageNetwork(architecture="resnet18", classes=10, side=32, device="cuda")
    with pytest.raises(SpecError, match="finds no GPU"):
        network.logits(network.initial(rng=np.random.default_rng(0)), pictures(1)[0])


def small_cifar() -> ImageData:
    images, labels = pictures(240)
    tests, answers = pictures(40, seed=9)
    return ImageData(
        name="cifar10",
        train_images=images,
        train_labels=labels,
        test_images=tests,
        test_labels=answers,
        classes=10,
        shape=(96, 32),
    )


@pytest.mark.slow
def test_a_federation_of_image_networks_tests_its_groups_and_shares_its_first_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    real = ImageNetwork._trained

    def counted(self: ImageNetwork, *arguments: Any) -> Any:
        calls.append(1)
        return real(self, *arguments)

    monkeypatch.setattr(ImageNetwork, "_trained", counted)
    base = {
        "privacy": 4,
        "data": {"name": "cifar10", "validation": 60},
        "federation": {"rounds": 2},
        "training": {"model": "resnet18", "learning_rate": 0.02, "batch_size": 8, "momentum": 0.9, "device": "cpu"},
        "attack": {"kind": "label-flip", "malicious": 2, "source": 7, "target": 4},
        "screen": {"round": 2, "layer": "fc.weight"},
    }
    specs = [make_spec(base, {"method": method}) for method in ("no-defence", "fedgt")]
    masked = run_batch(specs[1:], data=small_cifar())
    calls.clear()
    plain, tested = run_batch(specs, data=small_cifar(), masks=False)
    assert len(calls) == 2 * 15  # both runs are the same until the test round is over
    assert plain.rounds[0].top1_accuracy == tested.rounds[0].top1_accuracy
    assert [one.purpose for one in tested.rounds] == ["training", "test"]
    assert [one.top1_accuracy for one in masked[0].rounds] == [one.top1_accuracy for one in tested.rounds]
    assert tested.test is not None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"training.model": "linear"}, "are pictures"),
        ({"screen.layer": "weight"}, r"classification layer of resnet18 is 'fc.weight'"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused(changes: dict[str, Any], said: str) -> None:
    base = {
        "privacy": 4,
        "data.name": "cifar10",
        "data.validation": 60,
        "training.model": "resnet18",
        "screen.layer": "fc.weight",
    }
    with pytest.raises(SpecError, match=said):
        run_batch([make_spec({}, base | changes)], data=small_cifar())
