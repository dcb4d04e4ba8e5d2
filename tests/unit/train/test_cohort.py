"""A simulated federation gives the same models whoever asks, when, and from which thread."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fedgt.engine.endpoint import Client, TrainedModel
from fedgt.errors import ShapeError, SpecError
from fedgt.train.cohort import Cohort
from fedgt.train.logistic import LocalTraining, LogisticRegression, train_clients
from fedgt.types import IntArray

MODEL = LogisticRegression(classes=3, features=4)
IMAGES = np.random.default_rng(5).random((60, 4), dtype=np.float32)
LABELS = np.random.default_rng(6).integers(3, size=60)
PARTS = dict(zip("abcde", np.split(np.arange(60), [7, 20, 36, 41]), strict=True))
START = MODEL.initial(rng=np.random.default_rng(1))


def make(parts: Mapping[str, IntArray] = PARTS, *, seed: int = 9) -> Cohort:
    return Cohort(
        model=MODEL, images=IMAGES, labels=LABELS, parts=parts, training=LocalTraining(batch_size=4), seed=seed
    )


def as_bytes(model: TrainedModel) -> bytes:
    return b"".join(model.parameters[name].tobytes() for name in ("weight", "bias"))


def all_bytes(cohort: Cohort, *, round: int = 1) -> dict[str, bytes]:
    return {client: as_bytes(one.train(START, round=round)) for client, one in cohort.clients.items()}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of clients of each batched call, as it happens."""
    sizes: list[int] = []

    def counted(*args: object, **kwargs: object) -> object:
        sizes.append(len(kwargs["parts"]))  # type: ignore[arg-type]
        return train_clients(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("fedgt.train.logistic.train_clients", counted)
    return sizes


def test_a_member_is_a_client_that_returns_its_sample_count() -> None:
    client: Client = make().clients["b"]
    trained = client.train(START, round=1)
    assert trained.samples == 13
    assert not trained.parameters["weight"].flags.writeable


def test_the_order_of_the_calls_changes_no_bit() -> None:
    cohort = make()
    backwards = {client: as_bytes(cohort.clients[client].train(START, round=1)) for client in "edcba"}
    assert backwards == all_bytes(make())


def test_the_order_of_registration_changes_no_bit() -> None:
    assert all_bytes(make({client: PARTS[client] for client in "cebad"})) == all_bytes(make())


@pytest.mark.parametrize("members", ["a", "bd", "edc"])
def test_who_else_takes_part_changes_no_bit(members: str) -> None:
    everybody = all_bytes(make())
    few = all_bytes(make({client: PARTS[client] for client in members}))
    assert few == {client: everybody[client] for client in members}


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_number_of_threads_changes_no_bit_and_trains_once(workers: int, calls: list[int]) -> None:
    cohort = make()
    with ThreadPoolExecutor(workers) as pool:
        futures = {client: pool.submit(one.train, START, round=1) for client, one in cohort.clients.items()}
    threaded = {client: as_bytes(future.result()) for client, future in futures.items()}
    assert calls == [5]
    assert threaded == all_bytes(make())


def test_equal_parameters_in_another_object_do_not_train_again(calls: list[int]) -> None:
    cohort = make()
    cohort.clients["a"].train(START, round=1)
    cohort.clients["b"].train({name: tensor.copy() for name, tensor in START.items()}, round=1)
    assert calls == [5]


def test_only_expected_clients_are_trained_and_others_still_may_ask(calls: list[int]) -> None:
    cohort = make()
    cohort.expect(["a", "c"], round=1)
    expected = {client: as_bytes(cohort.clients[client].train(START, round=1)) for client in "ca"}
    assert calls == [2]
    late = as_bytes(cohort.clients["b"].train(START, round=1))
    assert calls == [2, 1]
    everybody = all_bytes(make())
    assert {**expected, "b": late} == {client: everybody[client] for client in "abc"}


def test_another_round_shuffles_anew_and_other_parameters_train_anew() -> None:
    cohort = make()
    first = cohort.clients["a"].train(START, round=1)
    other_start = {name: tensor + 1 for name, tensor in START.items()}
    assert as_bytes(cohort.clients["a"].train(START, round=2)) != as_bytes(first)
    assert as_bytes(cohort.clients["a"].train(other_start, round=2)) != as_bytes(first)
    assert as_bytes(cohort.clients["a"].train(START, round=1)) == as_bytes(first)


def test_another_seed_shuffles_differently() -> None:
    assert all_bytes(make(seed=10))["c"] != all_bytes(make())["c"]


def test_data_that_change_afterwards_change_nothing() -> None:
    images, labels = IMAGES.copy(), LABELS.copy()
    cohort = Cohort(
        model=MODEL, images=images, labels=labels, parts=PARTS, training=LocalTraining(batch_size=4), seed=9
    )
    images[:], labels[:] = 0, 0
    assert all_bytes(cohort) == all_bytes(make())


def test_an_unknown_client_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SpecError, match="'z'; the cohort has a, b, c, d, e"):
        make().expect(["z"], round=1)
    with pytest.raises(SpecError, match="'z'"):
        make().trained("z", START, round=1)


def test_parameters_of_the_wrong_shape_are_refused_by_name() -> None:
    with pytest.raises(ShapeError, match="'weight'"):
        make().trained("a", {**START, "weight": START["weight"].T}, round=1)


def test_impossible_cohorts_and_rounds_are_refused() -> None:
    with pytest.raises(SpecError, match="at least one client"):
        make({})
    with pytest.raises(SpecError, match="seed"):
        make(seed=-1)
    with pytest.raises(ShapeError, match="client 'a' holds 0"):
        make({"a": np.array([], dtype=np.int64)})
    with pytest.raises(SpecError, match="round -1"):
        make().trained("a", START, round=-1)
