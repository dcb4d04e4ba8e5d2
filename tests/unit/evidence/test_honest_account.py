"""Whether honest clients could have sent the sums: who owns few classes is explained, who mislabels is not."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.design import named_design
from fedgt.evidence import STORED, HonestAccount, class_products, decode_graded
from fedgt.evidence.by_margins.honest_account import FEWEST_IMAGES
from fedgt.evidence.by_margins.spread import OwnedClasses
from fedgt.evidence.judge import excused
from fedgt.packed import pack, unpack

ROWS = named_design("graded-15x10-b").matrix.astype(np.float64)
CLASSES, INPUTS, CLIENTS = 6, 30, 15
CENTRES = np.random.default_rng(0).random((CLASSES, INPUTS)) ** 3
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def samples(rng: np.random.Generator, labels: Integers) -> Floats:
    """What the classification layer sees of some samples."""
    return CENTRES[labels] + rng.normal(scale=0.3, size=(len(labels), INPUTS))


def trained(inputs: Floats, labels: Integers, rng: np.random.Generator) -> Floats:
    """float64[classes, inputs + 1]: the change of a linear head by one epoch of stochastic gradient descent."""
    head, seen = np.zeros((CLASSES, INPUTS + 1)), np.c_[inputs, np.ones(len(inputs))]
    for batch in np.array_split(rng.permutation(len(labels)), max(1, len(labels) // 20)):
        scores = seen[batch] @ head.T
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        head += 0.05 * (np.eye(CLASSES)[labels[batch]] - chances).T @ seen[batch] / len(batch)
    return head


def account(owned: Floats, seed: int, relabelled: dict[int, Integers] | None = None) -> HonestAccount:
    """Of clients that own classes in these shares; some of them give each class another label."""
    rng = np.random.default_rng(seed)
    heads = []
    for client, shares in enumerate(owned):
        labels = rng.choice(CLASSES, size=1000, p=shares)
        heads.append(trained(samples(rng, labels), (relabelled or {}).get(client, np.arange(CLASSES))[labels], rng))
    labels = np.repeat(np.arange(CLASSES), 30)
    inputs = samples(rng, labels)
    scores = np.einsum("jti,vi->jvt", np.array(heads), np.c_[inputs, np.ones(len(inputs))])
    moved = np.stack([scores[:, labels == c].mean(axis=1) for c in range(CLASSES)], axis=1)
    known = class_products(inputs, labels)
    assert known is not None
    shares = ROWS / ROWS.sum(axis=1, keepdims=True)
    centred = moved - moved.mean(axis=2, keepdims=True)
    return HonestAccount(moved=np.tensordot(shares, centred, axes=1), weights=ROWS, products=known[0], errors=known[1])


EVEN = np.full((CLIENTS, CLASSES), 1 / CLASSES)
OWNER = np.where(np.arange(CLIENTS)[:, None] == 4, np.eye(CLASSES)[2], EVEN)
FOUR = np.arange(CLIENTS) == 4


@pytest.mark.parametrize("seed", range(3))
def test_the_owner_of_a_single_class_is_explained_and_one_that_labels_all_as_that_class_is_not(seed: int) -> None:
    assert account(OWNER, seed).explains(FOUR)
    assert not account(EVEN, seed, {4: np.full(CLASSES, 2)}).explains(FOUR)


@pytest.mark.parametrize("seed", range(3))
def test_beside_an_attacker_the_owner_could_be_honest_and_the_attacker_could_not(seed: int) -> None:
    """Each is asked about by itself, the other set aside: in the mean of both an attack may hide."""
    attacker = np.arange(CLIENTS) == 9
    found = account(OWNER, seed, {9: np.roll(np.arange(CLASSES), 1)})
    assert found.could_be_sent(FOUR, attacker)
    assert not found.could_be_sent(attacker, FOUR)


@pytest.mark.parametrize("labels", [np.array([0, 4, 2, 3, 4, 5]), np.roll(np.arange(CLASSES), 1)])
def test_flips_and_permutations_among_clients_of_few_classes_are_not_explained(labels: Integers) -> None:
    owned = np.random.default_rng(1).dirichlet(np.ones(CLASSES), size=CLIENTS)
    three = np.isin(np.arange(CLIENTS), [1, 6, 9])
    owned[three] = EVEN[0]
    assert account(owned, 0).explains(three)
    assert not account(owned, 0, dict.fromkeys([1, 6, 9], labels)).explains(three)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), concentration=st.sampled_from([0.1, 0.3, 1.0, 10.0]), many=st.integers(1, 5))
def test_honest_clients_are_explained_whoever_is_suspected(seed: int, concentration: float, many: int) -> None:
    """What they send is a sum of pulls of their classes, in whatever numbers, plus what the server cannot know."""
    rng = np.random.default_rng(seed)
    owned = rng.dirichlet(np.full(CLASSES, concentration), size=CLIENTS)
    products = CENTRES @ CENTRES.T + 1.0
    pushes = owned[:, :, None] * rng.random((CLIENTS, CLASSES, CLASSES))
    pulls = -pushes * (1.0 - np.eye(CLASSES))
    pulls += np.eye(CLASSES) * -pulls.sum(axis=2, keepdims=True)
    moved = np.einsum("jct,cs->jst", pulls, products)
    shares = ROWS / ROWS.sum(axis=1, keepdims=True)
    found = HonestAccount(
        moved=np.tensordot(shares, moved, axes=1), weights=ROWS, products=products, errors=np.full_like(products, 1e-3)
    )
    suspects = np.isin(np.arange(CLIENTS), rng.choice(CLIENTS, size=many, replace=False))
    assert found.explains(suspects)


@settings(max_examples=5, deadline=None)
@given(scale=st.floats(1e-3, 1e3), units=st.floats(0.1, 1e4))
def test_the_units_of_logits_and_of_weights_do_not_matter(scale: float, units: float) -> None:
    one = account(OWNER, 0)
    other = replace(one, moved=scale * one.moved, weights=units * one.weights)
    assert other.gain(FOUR) == pytest.approx(one.gain(FOUR), rel=1e-5, abs=1e-8)


def test_the_order_of_the_clients_does_not_matter() -> None:
    one, order = account(EVEN, 1, {4: np.full(CLASSES, 2)}), np.random.default_rng(2).permutation(CLIENTS)
    other = replace(one, weights=one.weights[:, order])
    assert other.gain(FOUR[order]) == pytest.approx(one.gain(FOUR), rel=1e-6)


def test_no_suspects_no_movement_and_no_sums_explain_nothing_better() -> None:
    one = account(EVEN, 0)
    assert one.gain(np.zeros(CLIENTS, dtype=np.bool_)) == 0.0
    assert replace(one, moved=np.zeros_like(one.moved)).gain(FOUR) == 0.0
    assert replace(one, moved=one.moved[:0], weights=one.weights[:0]).gain(FOUR) == 0.0


def test_classes_of_few_images_are_not_known() -> None:
    labels = np.append(np.repeat(np.arange(CLASSES - 1), 10), np.full(FEWEST_IMAGES - 1, CLASSES - 1))
    inputs = samples(np.random.default_rng(0), labels)
    assert class_products(inputs, labels) is None
    assert class_products(inputs[: FEWEST_IMAGES * 3], np.arange(3).repeat(FEWEST_IMAGES)) is not None
    assert class_products(np.ones((20, 3)), np.arange(2).repeat(10)) is None  # all images are the same


def test_who_could_be_honest_is_suspicious_if_that_holds_in_every_test() -> None:
    accused = replace(
        decode_graded([], clients=CLIENTS, largest=7),
        flagged=FOUR,
        undecided=np.arange(CLIENTS) == 5,
        status="decided",
    )
    owner, labeller = account(OWNER, 0), account(EVEN, 0, {4: np.full(CLASSES, 2)})
    found = excused(accused, [owner, owner])
    assert not found.flagged.any()
    assert (found.suspicious == FOUR).all()
    assert (found.status, found.undecided.sum()) == ("undecided", 1)
    assert excused(replace(accused, undecided=FOUR), [owner]).status == "unconfirmed"
    assert excused(accused, [owner, labeller]) is accused
    assert excused(accused, []) is accused


def test_only_one_client_is_excused_where_several_do_the_same_among_clients_that_are_alike() -> None:
    two = FOUR | (np.arange(CLIENTS) == 9)
    both = account(np.where(two[:, None], np.eye(CLASSES)[2], EVEN), 3)
    assert both.explains(two)
    assert not replace(both, one_at_most=True).explains(two)
    assert replace(account(OWNER, 3), one_at_most=True).explains(FOUR)


@pytest.mark.parametrize(("left", "may_be_honest"), [(0.24, False), (0.26, True)])
def test_several_are_not_excused_where_the_others_own_the_classes_evenly(
    left: float, may_be_honest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = FOUR | (np.arange(CLIENTS) == 9)
    asked = []

    def spread(owned: OwnedClasses, aside: npt.NDArray[np.bool_]) -> float:
        asked.append(aside)
        return left

    monkeypatch.setattr(OwnedClasses, "spread", spread)
    both = replace(account(np.where(two[:, None], np.eye(CLASSES)[2], EVEN), 3), owned=owned_classes())
    assert both.explains(two) == may_be_honest
    assert [aside.tolist() for aside in asked] == [two.tolist()]
    assert replace(account(OWNER, 3), owned=owned_classes()).explains(FOUR)


def test_it_is_kept_with_all_that_it_asks() -> None:
    """The state of a run between two rounds is bytes, and the evidence of its tests is in it."""
    two = FOUR | (np.arange(CLIENTS) == 9)
    sums = account(np.where(two[:, None], np.eye(CLASSES)[2], EVEN), 3)
    for one, several in ((sums, True), (replace(sums, owned=owned_classes()), False)):
        kept = unpack(pack(one, STORED, label=""), STORED)
        assert kept.explains(two) == one.explains(two) == several


def owned_classes() -> OwnedClasses:
    """Of clients that own six classes evenly."""
    start, steps = np.zeros((CLASSES, CLASSES)), np.random.default_rng(4).normal(size=(CLASSES, CLASSES, CLASSES))
    return OwnedClasses(
        margins=np.broadcast_to(start + steps.sum(axis=0), (len(ROWS), CLASSES, CLASSES)),
        start=start,
        steps=steps,
        weights=ROWS,
        samples=np.full(CLIENTS, 100.0),
        counts=np.full(CLASSES, 25),
    )
