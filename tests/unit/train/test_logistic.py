"""The logistic regression: initial values, shapes, degenerate clients."""

import numpy as np
import pytest

from fedgt.errors import ShapeError, SpecError
from fedgt.train.logistic import LocalTraining, LogisticRegression, train_clients

MODEL = LogisticRegression(classes=3, features=4)
IMAGES = np.random.default_rng(5).random((20, 4), dtype=np.float32)
LABELS = np.random.default_rng(6).integers(3, size=20)


def test_initial_parameters_are_uniform_within_one_over_the_root_of_the_features() -> None:
    parameters = LogisticRegression(classes=10, features=784).initial(rng=np.random.default_rng(0))
    assert {name: tensor.shape for name, tensor in parameters.items()} == {"weight": (10, 784), "bias": (10,)}
    assert all(tensor.dtype == np.float32 for tensor in parameters.values())
    assert np.abs(parameters["weight"]).max() <= 1 / 28
    assert parameters["weight"].std() == pytest.approx(1 / 28 / 3**0.5, rel=0.02)


def test_training_leaves_its_input_alone_and_stays_float32() -> None:
    start = MODEL.initial(rng=np.random.default_rng(0))
    for tensor in start.values():
        tensor.setflags(write=False)
    (trained,) = train_clients(
        start,
        model=MODEL,
        images=IMAGES,
        labels=LABELS,
        parts=[np.arange(20)],
        rngs=[np.random.default_rng(0)],
        training=LocalTraining(batch_size=6),
    )
    assert all(tensor.dtype == np.float32 for tensor in trained.values())
    assert not np.array_equal(trained["weight"], start["weight"])


def test_no_clients_give_no_models() -> None:
    start = MODEL.initial(rng=np.random.default_rng(0))
    assert (
        train_clients(start, model=MODEL, images=IMAGES, labels=LABELS, parts=[], rngs=[], training=LocalTraining())
        == []
    )


def test_a_nan_at_one_client_does_not_reach_the_others() -> None:
    images = IMAGES.copy()
    images[0] = np.nan
    start = MODEL.initial(rng=np.random.default_rng(0))
    bad, good = train_clients(
        start,
        model=MODEL,
        images=images,
        labels=LABELS,
        parts=[np.arange(7), np.arange(7, 20)],
        rngs=[np.random.default_rng(0), np.random.default_rng(1)],
        training=LocalTraining(batch_size=5),
    )
    assert np.isnan(bad["weight"]).all()
    assert np.isfinite(good["weight"]).all()


def test_training_learns_what_can_be_learnt() -> None:
    rng = np.random.default_rng(2)
    images = rng.normal(size=(300, 4)).astype(np.float32)
    labels = images[:, :3].argmax(axis=1)
    (trained,) = train_clients(
        MODEL.initial(rng=rng),
        model=MODEL,
        images=images,
        labels=labels,
        parts=[np.arange(300)],
        rngs=[rng],
        training=LocalTraining(learning_rate=0.5, batch_size=10, epochs=20),
    )
    assert (MODEL.predict(trained, images) == labels).mean() > 0.95


@pytest.mark.parametrize(
    ("parts", "match"),
    [([np.array([], dtype=np.int64)], "0 sample numbers"), ([np.array([20])], "from 0 to 19")],
)
def test_a_client_without_samples_or_with_foreign_ones_is_refused(parts: list[np.ndarray], match: str) -> None:
    with pytest.raises(ShapeError, match=match):
        train_clients(
            MODEL.initial(rng=np.random.default_rng(0)),
            model=MODEL,
            images=IMAGES,
            labels=LABELS,
            parts=parts,
            rngs=[np.random.default_rng(0)],
            training=LocalTraining(),
        )


def test_one_generator_a_client_is_needed() -> None:
    with pytest.raises(ShapeError, match="1 clients with 0 generators"):
        train_clients(
            MODEL.initial(rng=np.random.default_rng(0)),
            model=MODEL,
            images=IMAGES,
            labels=LABELS,
            parts=[np.arange(3)],
            rngs=[],
            training=LocalTraining(),
        )


def test_a_tensor_of_the_wrong_shape_is_refused_by_name() -> None:
    with pytest.raises(ShapeError, match=r"tensor 'bias' has shape \(2,\); \(3,\) is needed"):
        MODEL.tensors({"weight": np.zeros((3, 4)), "bias": np.zeros(2)})
    with pytest.raises(ShapeError, match=r"\['weights'\] were given"):
        MODEL.tensors({"weights": np.zeros((3, 4))})


def test_images_that_do_not_fit_the_model_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"\[samples, 4\] is needed"):
        MODEL.predict(MODEL.initial(rng=np.random.default_rng(0)), np.zeros((2, 5)))


@pytest.mark.parametrize(
    ("learning_rate", "batch_size", "epochs"),
    [(0.0, 1, 1), (float("nan"), 1, 1), (float("inf"), 1, 1), (0.1, 0, 1), (0.1, 1, 0)],
)
def test_training_settings_out_of_range_are_refused(learning_rate: float, batch_size: int, epochs: int) -> None:
    with pytest.raises(SpecError, match=r"learning rate|batch size"):
        LocalTraining(learning_rate=learning_rate, batch_size=batch_size, epochs=epochs)


def test_a_model_without_classes_is_refused() -> None:
    with pytest.raises(SpecError, match="0 classes"):
        LogisticRegression(classes=0, features=3)
