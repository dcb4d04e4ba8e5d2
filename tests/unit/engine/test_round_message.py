"""The message that opens a batch of sums."""

import numpy as np
import pytest

from fedgt.engine.round_message import RoundMessage, fingerprint
from fedgt.errors import ProtocolError, ShapeError
from fedgt.secagg.frames import pack, unpack

MODEL = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(0.5)}


def test_a_round_message_is_read_as_it_was_written() -> None:
    for center in (None, {"w": np.ones((2, 3)), "b": np.array(1.0)}):
        message = RoundMessage(session=b"plan", parameters=MODEL, center=center)
        copy = RoundMessage.from_bytes(message.to_bytes())
        assert copy.session == b"plan"
        assert list(copy.parameters) == ["w", "b"]
        assert copy.parameters["w"].dtype == np.float32
        assert copy.parameters["b"].shape == ()
        np.testing.assert_array_equal(copy.parameters["w"], MODEL["w"])
        assert (copy.center is None) == (center is None)
        if center is not None and copy.center is not None:
            np.testing.assert_array_equal(copy.center["w"], center["w"])


def test_the_received_model_is_read_only() -> None:
    copy = RoundMessage.from_bytes(RoundMessage(session=b"", parameters=MODEL).to_bytes())
    with pytest.raises(ValueError, match="read-only"):
        copy.parameters["w"][0, 0] = 1.0


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
def test_floats_of_every_width_integers_and_booleans_travel_unchanged(dtype: str) -> None:
    model = {"odd": np.ones(3, dtype=np.int8), "w": np.arange(6).reshape(2, 3).astype(dtype), "none": np.zeros((0, 4))}
    copy = RoundMessage.from_bytes(RoundMessage(session=b"plan", parameters=model).to_bytes())
    assert copy.parameters["w"].dtype == np.dtype(dtype)
    assert copy.parameters["none"].shape == (0, 4)
    np.testing.assert_array_equal(copy.parameters["w"], model["w"])
    assert fingerprint(copy.parameters) == fingerprint(model)


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(ShapeError, match="complex128"):
        RoundMessage(session=b"", parameters={"w": np.zeros(2, dtype=np.complex128)}).to_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"session": -1},
        {"session": 10**6},
        {"session": "4"},
        {"extra": 1},
        {"parameters": None},
        {"parameters": [["w", "f4", [2, 3]]]},
        {"parameters": [["w", "f4", [2, 3]], ["w", "f8", []]]},
        {"parameters": [["w", "f3", [2, 3]], ["b", "f8", []]]},
        {"parameters": [["w", ["f4"], [2, 3]], ["b", "f8", []]]},
        {"parameters": [["w", "f4", [2, -3]], ["b", "f8", []]]},
        {"parameters": [["w", "f4", [2, 10**30]], ["b", "f8", []]]},
        {"parameters": [["w", "f4", [0, 10**30]], ["b", "f4", [8]]]},
        {"parameters": [["w", "f4", [1] * 17], ["b", "f8", []]]},
        {"parameters": [["w", "f4"], ["b", "f8", []]]},
        {"center": 5},
        {"center": [["w", "f4", [2, 3]]]},
    ],
)
def test_anything_else_is_a_protocol_error(change: dict[str, object]) -> None:
    header, body = unpack(RoundMessage(session=b"plan", parameters=MODEL).to_bytes(), kind="round")
    with pytest.raises(ProtocolError):
        RoundMessage.from_bytes(pack(header | change, body))


def test_a_fingerprint_tells_models_apart() -> None:
    models = [
        MODEL,
        MODEL | {"b": np.array(0.25)},
        MODEL | {"b": np.array(0.5, dtype=np.float32)},
        MODEL | {"w": MODEL["w"].reshape(3, 2)},
        {"v": MODEL["w"], "b": MODEL["b"]},
    ]
    assert len({fingerprint(model) for model in models}) == len(models)
    assert fingerprint({name: array.copy() for name, array in MODEL.items()}) == fingerprint(MODEL)
