"""What is no model is refused by the tensor's name, before anybody is asked."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedgt.errors import ShapeError
from fedgt.federation import RfaSettings, rfa_round, training_round
from fedgt.secagg import tensor_specs

Make = Callable[..., Any]


@dataclass
class Tensor:
    """What a torch tensor looks like from outside."""

    array: np.ndarray

    def size(self) -> tuple[int, ...]:
        return self.array.shape

    def detach(self) -> "Tensor":
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> str:
        return "torch.float32"


WRONG = [
    (OrderedDict(weight=Tensor(np.zeros((2, 3)))), "'weight' of the model is a Tensor"),
    (OrderedDict(weight=Tensor(np.zeros((2, 3)))), r"detach\(\)\.cpu\(\)\.numpy\(\)"),
    ({"weight": [[0.0, 1.0]]}, "'weight' of the model is a list"),
    ({"weight": np.zeros(3), "bias": (0.0,)}, "'bias' of the model is a tuple"),
    ({"weight": 0.0}, "'weight' of the model is a float"),
    ({"weight": None}, "'weight' of the model is a NoneType"),
    ({"weight": np.array(["a"])}, "'weight' of the model has dtype <U1"),
    ({"weight": np.zeros(3, dtype=object)}, "'weight' of the model has dtype object"),
    ({"weight": np.zeros(3, dtype=complex)}, "'weight' of the model has dtype complex128"),
    ({0: np.zeros(3)}, "tensor named 0, a int"),
    ([np.zeros(3)], "the model is a list"),
    (np.zeros(3), "the model is a ndarray"),
    (None, "the model is a NoneType"),
    ({}, "the model is empty"),
    ({"steps": np.zeros(3, dtype=np.int64)}, "no tensor of the model"),
]


@pytest.mark.parametrize(("model", "said"), WRONG)
def test_what_is_no_model_is_refused_by_the_name_of_the_tensor(bench: Make, model: Any, said: str) -> None:
    made = bench({name: {"weight": np.ones(3)} for name in "abc"})
    with pytest.raises(ShapeError, match=said):
        training_round(made.federation, model, round=1, members="abc")
    with pytest.raises(ShapeError, match=said):
        rfa_round(made.federation, model, round=1, members="abc", rfa=RfaSettings())
    with pytest.raises(ShapeError, match=said):
        tensor_specs(model)
    assert {client.calls for client in made.clients.values()} == {0}


def test_scalars_of_numpy_and_integers_beside_floats_are_a_model(bench: Make) -> None:
    update = {"weight": np.ones(3), "scale": np.ones(()), "steps": np.zeros(2)}
    made = bench(dict.fromkeys("abc", update))
    start = {"weight": np.zeros(3, dtype=np.float32), "scale": np.float64(2.0), "steps": np.arange(2)}
    found = training_round(made.federation, start, round=1, members="abc").parameters  # type: ignore[arg-type]
    np.testing.assert_allclose(found["weight"], 1.0, atol=1e-6)
    assert float(found["scale"]) == pytest.approx(3.0, abs=1e-6)
    assert found["steps"].tolist() == [0, 1]
