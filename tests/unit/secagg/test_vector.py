"""From models of any float width to ring vectors and back, in pieces of bounded size."""

import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedgt.engine import ClientEndpoint, LocalTransport, TrainedModel, secure_sums
from fedgt.errors import ShapeError, SpecError
from fedgt.secagg import ClientSession, RoundPlan, ServerSession, TensorSpec, fit_fixed_point, tensor_specs
from fedgt.secagg.masks import CHUNK_BYTES
from fedgt.types import Parameters
from whole_vector import client_vector

IDS = ("a", "b", "c", "d")


def make_plan(tensors: tuple[TensorSpec, ...], weights: dict[str, int] | None = None, **changes: Any) -> RoundPlan:
    chosen = weights or dict.fromkeys(IDS, 1)
    fields: dict[str, Any] = {
        "run": "run",
        "round": 0,
        "purpose": "test",
        "groups": (IDS,),
        "thresholds": (3,),
        "weights": chosen,
        "encoding": fit_fixed_point(clip=8.0, fraction_bits=20, weight_sum=sum(chosen.values())),
        "tensors": tensors,
    }
    return RoundPlan(**(fields | changes))


@pytest.mark.parametrize("ring_bits", [32, 64])
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_vector_in_pieces_is_the_vector(ring_bits: int, extra: int) -> None:
    """Tensors that end before, at and after the border of a piece, against the encoding in one go."""
    step = CHUNK_BYTES // (ring_bits // 8)
    rng = np.random.default_rng(1)
    update = {"a": rng.normal(scale=4.0, size=2 * step + extra), "none": np.zeros((0, 3)), "b": rng.normal(size=5)}
    encoding = fit_fixed_point(clip=8.0, fraction_bits=18, weight_sum=8, ring_bits=ring_bits)
    plan = make_plan(tensor_specs(update), {"a": 3, "b": 2, "c": 2, "d": 1}, encoding=encoding)
    levels, clipped = plan.encoding.encode(np.concatenate([one.ravel() for one in update.values()]), 3)
    vector = client_vector(plan, "a", update)
    np.testing.assert_array_equal(vector[:-1], levels)
    assert vector[-1] == clipped > 0


@pytest.mark.parametrize("ring_bits", [32, 64])
def test_weights_of_1_to_10000_are_exact(ring_bits: int) -> None:
    weights = {"a": 1, "b": 10_000, "c": 17, "d": 1}
    encoding = fit_fixed_point(clip=1.0, fraction_bits=16, weight_sum=10_019, ring_bits=ring_bits)
    plan = make_plan((TensorSpec(name="w", shape=(2,)),), weights, encoding=encoding)
    clients = {name: ClientSession(name) for name in IDS}
    update = {name: {"w": np.array([1.0, -1.0 / 2**16])} for name in IDS}
    server = ServerSession(plan)
    requests = server.shares({name: clients[name].keys(message) for name, message in server.keys().items()})
    requests = server.masked({name: clients[name].shares(message) for name, message in requests.items()})
    replies = {name: clients[name].masked(message, update[name]) for name, message in requests.items()}
    requests = server.unmask(replies, authorise=lambda members: (None,) * len(members))
    (one,) = server.results({name: clients[name].unmask(message) for name, message in requests.items()})
    assert one.total is not None
    assert one.total["w"].tolist() == [10_019.0, -10_019 / 2**16]


class BatchNorm:
    """Trains a model with half precision weights, running statistics and a batch counter."""

    def __init__(self, shift: float, batches: int) -> None:
        self.shift, self.batches = shift, batches

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        trained = {
            name: array + np.asarray(self.shift if array.dtype.kind == "f" else self.batches, dtype=array.dtype)
            for name, array in parameters.items()
            if array.dtype.kind != "b"
        }
        return TrainedModel(parameters=trained | {"frozen": np.array([False])}, samples=1)


def test_floats_are_averaged_and_counters_are_kept() -> None:
    model: dict[str, npt.NDArray[Any]] = {
        "half": np.full((2, 2), 0.5, dtype=np.float16),
        "single": np.full(3, 1.5, dtype=np.float32),
        "double": np.array(2.5),
        "running_mean": np.zeros(4, dtype=np.float32),
        "batches": np.array(7, dtype=np.int64),
        "frozen": np.array([True]),
    }
    specs = tensor_specs(model)
    assert [spec.kind for spec in specs] == ["mean"] * 4 + ["keep"] * 2
    plan = make_plan(specs)
    assert plan.entries == 4 + 3 + 1 + 4
    handlers = {name: ClientEndpoint(name, BatchNorm(number / 4, number)).handle for number, name in enumerate(IDS)}
    result = secure_sums(
        LocalTransport(handlers), plan, model, authorise=lambda members: (None,) * len(members), timeout=20.0
    )
    (one,) = result.sums
    assert one.total is not None
    assert list(one.total) == list(model)
    for name in ("half", "single", "double", "running_mean"):
        np.testing.assert_array_equal(one.total[name], np.full(model[name].shape, 1.5))
    for name in ("batches", "frozen"):
        np.testing.assert_array_equal(one.total[name], np.zeros(model[name].shape))


def test_an_integer_tensor_is_never_averaged_by_accident() -> None:
    model: dict[str, npt.NDArray[Any]] = {"w": np.zeros(2), "n": np.zeros(2, dtype=np.int32)}
    plan = make_plan((TensorSpec(name="w", shape=(2,)), TensorSpec(name="n", shape=(2,))))
    with pytest.raises(ShapeError, match="tensor n of the parameters is not floating-point"):
        secure_sums(LocalTransport({}), plan, model, authorise=lambda members: (), timeout=1.0)
    with pytest.raises(ShapeError, match="client a: tensor 'n' of the update has dtype int32"):
        client_vector(plan, "a", model)
    with pytest.raises(ShapeError, match="dtype complex128"):
        tensor_specs({"w": np.zeros(2, dtype=np.complex128)})
    with pytest.raises(SpecError, match="kind"):
        TensorSpec(name="w", shape=(1,), kind="drop")  # type: ignore[arg-type]


def test_what_is_kept_is_part_of_the_plan_and_its_digest() -> None:
    plans = [
        make_plan((TensorSpec(name="w", shape=(2,)), TensorSpec(name="n", shape=(2,), kind=kind)))
        for kind in ("mean", "keep")
    ]
    assert plans[0].digest != plans[1].digest
    assert RoundPlan.from_json(plans[1].to_json()) == plans[1]
    with pytest.raises(SpecError, match="0 entries"):
        make_plan((TensorSpec(name="n", shape=(2,), kind="keep"),))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_found_in_whatever_piece_it_is(bad: float) -> None:
    update = {"a": np.zeros(4), "b": np.zeros(3 * CHUNK_BYTES // 4)}
    update["b"][-1] = bad
    update["b"][0] = bad
    with pytest.raises(ShapeError, match="client a: tensor 'b' of the update has 2 entries that are not finite"):
        client_vector(make_plan(tensor_specs(update)), "a", update)


def test_finite_values_whose_sum_is_not_are_clipped_like_others() -> None:
    update = {"w": np.full(10, 1e308)}
    vector = client_vector(make_plan(tensor_specs(update)), "a", update)
    assert vector[-1] == 10


def test_masking_a_model_takes_the_memory_of_its_message_and_little_more() -> None:
    """Bounded memory: 4 groups of 2,000,000 float32 parameters are 32 MB on the wire; no second copy exists."""
    entries = 2_000_000
    model = {"w": np.zeros(entries, dtype=np.float32)}
    plan = make_plan(tensor_specs(model), groups=(IDS,) * 4, thresholds=(3,) * 4)
    clients = {name: ClientSession(name) for name in IDS}
    server = ServerSession(plan)
    requests = server.shares({name: clients[name].keys(message) for name, message in server.keys().items()})
    requests = server.masked({name: clients[name].shares(message) for name, message in requests.items()})
    tracemalloc.start()
    try:
        reply = clients["a"].masked(requests["a"], {"w": np.ones(entries, dtype=np.float32)}, base=model)
        client_peak = tracemalloc.get_traced_memory()[1] - len(reply)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        server.receive("a", reply)
        server_peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert len(reply) < 4 * 4 * entries + 4096
    assert client_peak < 4 * entries + 2**21  # the trained model that the call above makes, and a few pieces
    assert server_peak < 4 * 4 * entries + 2**21  # one total per group
