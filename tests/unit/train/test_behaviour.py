"""Clients that do otherwise than honest training, in their rounds and in no other."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from fedgt.errors import ShapeError, SpecError
from fedgt.train import Behaviour, Cohort, InnerProduct, LocalTraining, LogisticRegression, SignFlip
from fedgt.types import Parameters

MODEL = LogisticRegression(classes=3, features=4)
IMAGES = np.random.default_rng(5).random((60, 4), dtype=np.float32)
LABELS = np.random.default_rng(6).integers(3, size=60)
PARTS = dict(zip("abcde", np.split(np.arange(60), [7, 20, 36, 41]), strict=True))
START = MODEL.initial(rng=np.random.default_rng(1))
WRONG = (LABELS[PARTS["b"]] + 1) % 3


def make(behaviours: Mapping[str, Behaviour] | None = None, *, labels: np.ndarray = LABELS) -> Cohort:
    return Cohort(
        model=MODEL,
        images=IMAGES,
        labels=labels,
        parts=PARTS,
        training=LocalTraining(batch_size=4),
        seed=9,
        behaviours=behaviours or {},
    )


def sent(cohort: Cohort, client: str, *, round: int = 1) -> np.ndarray:
    model = cohort.clients[client].train(START, round=round).parameters
    return np.concatenate([model[name].ravel() - START[name].ravel() for name in ("weight", "bias")])


def test_labels_are_wrong_in_the_rounds_of_the_attack_only() -> None:
    labels = LABELS.copy()
    labels[PARTS["b"]] = WRONG
    sleeper = make({"b": Behaviour(kind="flip", first_round=2, last_round=3, labels=WRONG)})
    for number, truth in ((1, make()), (2, make(labels=labels)), (3, make(labels=labels)), (4, make())):
        for client in "abcde":
            assert np.array_equal(sent(sleeper, client, round=number), sent(truth, client, round=number))


def test_other_pictures_are_trained_on_by_that_client_alone() -> None:
    pictures = 1 - IMAGES[PARTS["b"]]
    cohort = make({"b": Behaviour(kind="inverted", images=pictures)})
    assert not np.array_equal(sent(cohort, "b"), sent(make(), "b"))
    assert np.array_equal(sent(cohort, "a"), sent(make(), "a"))
    assert np.array_equal(cohort.images, IMAGES)


def test_a_boost_multiplies_the_update() -> None:
    boosted = sent(make({"b": Behaviour(kind="replacement", boost=5.0)}), "b")
    assert np.allclose(boosted, 5 * sent(make(), "b"), rtol=1e-5, atol=1e-7)


def test_an_attack_on_the_update_changes_the_update_only() -> None:
    turned = sent(make({"b": Behaviour(kind="sign-flip", update=SignFlip())}), "b")
    assert np.allclose(turned, -sent(make(), "b"), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("knowledge", "known"), [("everybody", "ace"), ("attackers", "bd")])
def test_attackers_know_the_honest_updates_or_what_they_would_have_sent(knowledge: str, known: str) -> None:
    attack = Behaviour(kind="ipm", update=InnerProduct(strength=1.0), knowledge=knowledge)  # type: ignore[arg-type]
    cohort = make({"b": attack, "d": attack})
    expected = -np.mean([sent(make(), one) for one in known], axis=0)
    for client in "bd":
        assert np.allclose(sent(cohort, client), expected, rtol=1e-4, atol=1e-7)


def test_who_is_asked_first_changes_nothing() -> None:
    attack = {"b": Behaviour(kind="ipm", update=InnerProduct()), "c": Behaviour(kind="x", labels=LABELS[PARTS["c"]])}
    forwards, backwards = make(attack), make(attack)
    first = {client: sent(forwards, client) for client in "abcde"}
    assert all(np.array_equal(first[client], sent(backwards, client)) for client in "edcba")


def test_an_old_model_is_sent_again_and_again() -> None:
    cohort = make({"b": Behaviour(kind="old-model", stale=True)})
    first = sent(cohort, "b")
    assert np.array_equal(first, sent(make(), "b"))
    assert np.array_equal(sent(cohort, "b", round=2), first)
    assert not np.array_equal(sent(make(), "b", round=2), first)


def test_counters_of_a_network_are_left_alone() -> None:
    start = {"bn.batches": np.array([3]), "w": np.zeros(2, dtype=np.float32)}
    own: Parameters = {"bn.batches": np.array([7]), "w": np.ones(2, dtype=np.float32)}
    model = Behaviour(kind="sign-flip", update=SignFlip()).sent(start, own, [], rng=np.random.default_rng(0))
    assert model["bn.batches"].tolist() == [7]
    assert model["w"].tolist() == [-1, -1]
    assert model["w"].dtype == np.float32


@pytest.mark.parametrize(("first", "last"), [(0, None), (3, 2)])
def test_impossible_rounds_are_refused(first: int, last: int | None) -> None:
    with pytest.raises(SpecError, match="rounds from 1"):
        Behaviour(kind="x", first_round=first, last_round=last)


@pytest.mark.parametrize("boost", [0.0, -1.0, float("inf"), float("nan")])
def test_an_impossible_boost_is_refused(boost: float) -> None:
    with pytest.raises(SpecError, match="positive"):
        Behaviour(kind="x", boost=boost)


def test_data_that_do_not_fit_the_client_are_refused() -> None:
    with pytest.raises(ShapeError, match="3 labels of client 'b'"):
        make({"b": Behaviour(kind="x", labels=np.zeros(3, dtype=np.int64))})
    with pytest.raises(SpecError, match="'z'"):
        make({"z": Behaviour(kind="x")})


def test_an_attack_that_grows_is_sent_in_part_and_the_rest_is_the_honest_update() -> None:
    sly = Behaviour(kind="label-flip", labels=WRONG, first_round=3, growth=0.4)
    assert [round(sly.part(number), 3) for number in range(1, 7)] == [0, 0, 0.4, 0.8, 1, 1]
    honest, whole = make(), make({"b": replace(sly, growth=1.0)})
    growing = make({"b": sly})
    for number, part in ((2, 0.0), (3, 0.4), (4, 0.8), (5, 1.0)):
        true, false, sent = (
            cohort.trained("b", START, round=number).parameters["weight"] for cohort in (honest, whole, growing)
        )
        np.testing.assert_allclose(sent, (1 - part) * true + part * false, atol=1e-6)
        assert number == 2 or not np.allclose(true, false)


def test_of_an_attack_on_the_update_that_grows_a_part_is_sent() -> None:
    start = {"weight": np.zeros(3)}
    own = {"weight": np.array([1.0, -2.0, 0.5])}
    flip = Behaviour(kind="sign-flip", update=SignFlip(strength=1.0), growth=0.25)
    rng = np.random.default_rng(0)
    whole = np.asarray(flip.sent(start, own, [], rng=rng)["weight"])
    part = np.asarray(flip.sent(start, own, [], rng=rng, part=flip.part(2))["weight"])
    np.testing.assert_allclose(part, (own["weight"] + whole) / 2)


@pytest.mark.parametrize("growth", [0.0, -0.1, 1.1, float("nan")])
def test_a_growth_that_is_none_is_refused(growth: float) -> None:
    with pytest.raises(SpecError, match="growth"):
        Behaviour(kind="label-flip", growth=growth)
