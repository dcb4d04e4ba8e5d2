"""The client's end: one training a round, and nothing answered twice."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedgt.engine import ClientEndpoint, LocalTransport, SecureSums, TrainedModel, secure_sums
from fedgt.engine.round_message import RoundMessage, bound
from fedgt.errors import ProtocolError
from fedgt.secagg import ClientPolicy, ClientSession, FixedPoint, RoundPlan, TensorSpec, weiszfeld_encoding
from fedgt.secagg.messages import GroupPart, plan_message, stage_message
from fedgt.types import Parameters

IDS = ("a", "b", "c")
MODEL = {"w": np.full((2, 2), 1.0, dtype=np.float32), "b": np.array([2.0])}


class Shift:
    """A client that adds a constant, and counts how often it is trained."""

    def __init__(self, shift: float, samples: int = 10, extra: Mapping[str, Any] | None = None) -> None:
        self.shift, self.samples, self.extra = shift, samples, dict(extra or {})
        self.trained: list[int] = []

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        self.trained.append(round)
        shifted = {name: array + np.asarray(self.shift, dtype=array.dtype) for name, array in parameters.items()}
        return TrainedModel(parameters=shifted | self.extra, samples=self.samples)


def plan(**changes: Any) -> RoundPlan:
    fields: dict[str, Any] = {
        "run": "run",
        "colluders": 0,
        "round": 0,
        "purpose": "test",
        "groups": (IDS,),
        "thresholds": (2,),
        "weights": dict.fromkeys(IDS, 1),
        "encoding": FixedPoint(clip=8.0, fraction_bits=16, ring_bits=32),
        "tensors": tuple(TensorSpec(name=name, shape=array.shape) for name, array in MODEL.items()),
    }
    return RoundPlan(**(fields | changes))


def endpoints(clients: Mapping[str, Shift]) -> LocalTransport:
    return LocalTransport({name: ClientEndpoint(name, client).handle for name, client in clients.items()})


def take(transport: LocalTransport, agreed: RoundPlan, model: Parameters = MODEL, **options: Any) -> SecureSums:
    return secure_sums(
        transport, agreed, model, authorise=lambda members: (None,) * len(members), timeout=10.0, **options
    )


def test_a_client_is_trained_once_for_all_sums_of_a_round() -> None:
    clients = {name: Shift(number) for number, name in enumerate(IDS)}
    transport = endpoints(clients)
    for purpose in ("test", "training"):
        (result,) = take(transport, plan(purpose=purpose)).sums
        assert result.total is not None
        assert result.total["w"].tolist() == [[3.0, 3.0], [3.0, 3.0]]
    take(transport, plan(round=1))
    assert [client.trained for client in clients.values()] == [[0, 1]] * 3


def test_a_weiszfeld_sum_uses_the_model_that_the_test_used() -> None:
    clients = {name: Shift(number) for number, name in enumerate(IDS)}
    transport = endpoints(clients)
    take(transport, plan())
    encoding = weiszfeld_encoding(update_clip=8.0, smoothing=1e-6, members=3)
    step = plan(purpose="weiszfeld-0", task="weiszfeld", smoothing=1e-6, update_clip=8.0, encoding=encoding)
    center = {"w": np.ones((2, 2)), "b": np.zeros(1)}
    (result,) = take(transport, step, center=center).sums
    beta = [1 / 3 / np.sqrt(4), 1 / 3, 1 / 3 / np.sqrt(4 + 4)]
    assert result.beta_total == pytest.approx(sum(beta), abs=1e-6)
    assert result.total is not None
    np.testing.assert_allclose(result.total["b"], [beta[1] + 2 * beta[2]], rtol=0, atol=1e-6)
    assert [client.trained for client in clients.values()] == [[0]] * 3


@pytest.mark.parametrize(
    ("extra", "samples", "reason"),
    [
        ({"w": np.zeros((2, 3))}, 10, "masked: client c: tensor 'w' has shape (2, 3), agreed is (2, 2)"),
        ({"w": np.full((2, 2), np.nan)}, 10, "masked: client c: tensor 'w' of the update has 4 entries that are not"),
        ({"v": np.zeros(1)}, 10, "masked: client c: the model has tensors ['b', 'v', 'w']"),
        ({}, 11, "masked: client c: the plan gives it weight 10; 1 or its 11 samples are allowed"),
    ],
)
def test_a_client_that_returns_what_was_not_agreed_is_left_out_by_name(
    extra: dict[str, Any], samples: int, reason: str
) -> None:
    """Cases 3, 20 and 29: the round goes on without it."""
    clients = {"a": Shift(1.0), "b": Shift(2.0), "c": Shift(4.0, samples, extra)}
    (result,) = take(endpoints(clients), plan(weights=dict.fromkeys(IDS, 10))).sums
    assert result.members == ("a", "b")
    assert result.dropped["c"].startswith(reason)
    assert result.total is not None
    assert result.total["b"].tolist() == [30.0]
    assert result.weight == 20


def test_another_shape_in_the_mnist_layer_is_refused_by_name_and_the_round_goes_on() -> None:
    """Case 29 to the letter: client 4 sends (10, 785) where (10, 784) is agreed."""
    names = tuple(f"client-{number}" for number in range(5))
    clients = {name: Shift(0.5) for name in names}
    clients["client-4"].extra = {"w": np.zeros((10, 785))}
    model = {"w": np.zeros((10, 784), dtype=np.float32)}
    agreed = plan(
        groups=(names, names[:3]),
        thresholds=(3, 2),
        weights=dict.fromkeys(names, 1),
        tensors=(TensorSpec(name="w", shape=(10, 784)),),
    )
    with_it, without_it = take(endpoints(clients), agreed, model).sums
    assert with_it.members == names[:4]
    assert with_it.dropped == {
        "client-4": "masked: client client-4: tensor 'w' has shape (10, 785), agreed is (10, 784)"
    }
    assert (with_it.status, without_it.status, without_it.dropped) == ("open", "open", {})


def test_an_exception_of_the_training_is_a_dropout_with_its_message() -> None:
    class Broken(Shift):
        def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
            raise OSError("disk full")

    (result,) = take(endpoints({"a": Shift(1.0), "b": Shift(2.0), "c": Broken(0.0)}), plan()).sums
    assert result.members == ("a", "b")
    assert result.dropped == {"c": "masked: OSError: disk full"}


def test_a_client_below_its_minimum_group_size_stays_out() -> None:
    handlers = {name: ClientEndpoint(name, Shift(1.0), minimum_group_size=4).handle for name in IDS}
    (result,) = take(LocalTransport(handlers), plan()).sums
    assert result.status == "erased"
    assert "minimum of 4" in result.dropped["a"]


def test_a_client_without_an_identity_keeps_its_largest_share_in_a_plan_and_over_a_round() -> None:
    """Two of three and all three: the third is known from the difference."""
    policy = ClientPolicy(minimum_group_size=1, colluders=0, largest_share=0.5)
    handlers = {name: ClientEndpoint(name, Shift(1.0), policy=policy).handle for name in IDS}
    transport = LocalTransport(handlers)
    at_once = plan(groups=(IDS, IDS[:2]), thresholds=(2, 2))
    assert [one.status for one in take(transport, at_once).sums] == ["erased", "erased"]
    assert take(transport, plan(round=1)).sums[0].status == "open"
    pair = plan(round=1, purpose="more", groups=(IDS[:2],), thresholds=(2,), weights=dict.fromkeys(IDS[:2], 1))
    (later,) = take(transport, pair).sums
    assert later.status == "erased"
    assert "largest_share is 0.5" in later.dropped["a"]


def opening(agreed: RoundPlan, model: Parameters = MODEL) -> bytes:
    return RoundMessage(session=plan_message(bound(agreed, model)), parameters=model).to_bytes()


def test_a_purpose_a_past_round_and_a_second_global_model_are_refused() -> None:
    endpoint = ClientEndpoint("a", Shift(1.0))
    endpoint.handle("keys", opening(plan(round=5)))
    with pytest.raises(ProtocolError, match="answered already"):
        endpoint.handle("keys", opening(plan(round=5)))
    with pytest.raises(ProtocolError, match="another global model"):
        endpoint.handle("keys", opening(plan(round=5, purpose="training"), MODEL | {"b": np.array([3.0])}))
    with pytest.raises(ProtocolError, match="round 4 is over"):
        endpoint.handle("keys", opening(plan(round=4)))
    endpoint.handle("keys", opening(plan(round=5, purpose="training")))
    endpoint.handle("keys", opening(plan(round=0, run="another run")))


def test_stages_without_keys_and_unknown_stages_are_refused() -> None:
    endpoint = ClientEndpoint("a", Shift(1.0))
    for stage in ("shares", "masked", "unmask", "finish"):
        with pytest.raises(ProtocolError, match="no plan has come yet"):
            endpoint.handle(stage, b"")
    endpoint.handle("keys", opening(plan()))
    with pytest.raises(ProtocolError, match="there is no stage 'evaluate'"):
        endpoint.handle("evaluate", b"")


def test_a_client_whose_session_is_over_is_not_trained() -> None:
    client = Shift(1.0)
    endpoint = ClientEndpoint("a", client)
    endpoint.handle("keys", opening(plan()))
    with pytest.raises(ProtocolError, match="itself is missing"):
        endpoint.handle("shares", stage_message(bound(plan(), MODEL), "shares", "a", [GroupPart(group=0)]))
    with pytest.raises(ProtocolError, match="the session is over"):
        endpoint.handle("masked", b"")
    assert client.trained == []


def test_a_model_that_is_not_the_plans_is_refused() -> None:
    with pytest.raises(ValueError, match="agreed"):
        ClientEndpoint("a", Shift(1.0)).handle("keys", opening(plan(), {"w": np.zeros((2, 2))}))


def test_a_new_plan_ends_the_session_before() -> None:
    endpoint = ClientEndpoint("a", Shift(1.0))
    endpoint.handle("keys", opening(plan()))
    before = endpoint._session
    assert isinstance(before, ClientSession)
    endpoint.handle("keys", opening(plan(purpose="training")))
    assert before.closed


def test_a_client_that_goes_on_training_in_the_same_memory_changes_no_later_sum_of_the_round() -> None:
    memory = {name: np.array(array) for name, array in MODEL.items()}

    class InPlace(Shift):
        def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
            for name, array in parameters.items():
                memory[name][...] = array + 1
            return TrainedModel(parameters=memory, samples=1)

    transport = endpoints({"a": InPlace(0.0), "b": Shift(2.0), "c": Shift(3.0)})
    (first,) = take(transport, plan()).sums
    memory["w"][...] = 99.0
    (second,) = take(transport, plan(purpose="training")).sums
    assert first.total is not None
    assert second.total is not None
    assert first.total["w"].tolist() == second.total["w"].tolist() == [[6.0, 6.0], [6.0, 6.0]]
