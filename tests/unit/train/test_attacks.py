"""Label attacks on small, worked examples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt.errors import ShapeError, SpecError
from fedgt.train.attacks import (
    ATTACKS,
    LabelAttack,
    LabelFlip,
    LabelPermutation,
    RandomLabels,
    attack_named,
    draw_malicious,
    nested_malicious,
    poison,
)
from fedgt.types import IntArray

LABELS = np.array([1, 7, 9, 1, 0, 1])
PARTS = [np.array([0, 2]), np.array([4, 5])]


def poisoned(attack: LabelAttack, parts: list[IntArray] | None = None) -> list[int]:
    chosen = PARTS if parts is None else parts
    labels: list[int] = poison(LABELS, attack=attack, parts=chosen, classes=10, rng=np.random.default_rng(3)).tolist()
    return labels


def test_a_flip_turns_the_source_into_the_target_at_the_chosen_clients_only() -> None:
    assert poisoned(LabelFlip(source=1, target=7)) == [7, 7, 9, 1, 0, 7]


def test_a_permutation_adds_one_modulo_the_number_of_classes() -> None:
    assert poisoned(LabelPermutation()) == [2, 7, 0, 1, 1, 2]


def test_random_labels_do_not_depend_on_who_else_is_malicious() -> None:
    both, second = poisoned(RandomLabels()), poisoned(RandomLabels(), [PARTS[1]])
    assert both[4:] == second[4:]
    assert second[:4] == LABELS[:4].tolist()


def test_nobody_malicious_changes_nothing() -> None:
    assert poisoned(LabelFlip(source=1, target=7), []) == LABELS.tolist()


def test_attacks_are_found_by_their_names() -> None:
    assert {type(attack_named(name, source=1, target=7)).__name__ for name in ATTACKS} == {
        "LabelFlip",
        "LabelPermutation",
        "RandomLabels",
        "Backdoor",
        "SignFlip",
        "GaussianNoise",
        "LittleIsEnough",
        "InnerProduct",
        "FreeRider",
        "MinMax",
    }
    assert attack_named("label-flip", source=1, target=7) == LabelFlip(source=1, target=7)
    assert attack_named("label-permutation", offset=3) == LabelPermutation(offset=3)
    assert attack_named("random-labels") == RandomLabels()


def test_an_unknown_attack_lists_the_choices() -> None:
    with pytest.raises(SpecError, match="'bad'; choose one of label-flip, label-permutation, random-labels, backdoor"):
        attack_named("bad")


def test_a_flip_by_name_needs_both_labels() -> None:
    with pytest.raises(SpecError, match="source 1 and target None"):
        attack_named("label-flip", source=1)


@pytest.mark.parametrize(("source", "target"), [(1, 1), (-1, 2)])
def test_a_flip_between_impossible_labels_is_refused(source: int, target: int) -> None:
    with pytest.raises(SpecError, match="two different labels"):
        LabelFlip(source=source, target=target)


@pytest.mark.parametrize("attack", [LabelFlip(source=1, target=10), LabelPermutation(offset=10)])
def test_an_attack_that_does_not_fit_the_classes_is_refused(attack: LabelAttack) -> None:
    with pytest.raises(SpecError, match="10 classes"):
        poisoned(attack)


def test_sample_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ShapeError, match="sample numbers from 0 to 6"):
        poisoned(LabelPermutation(), [np.array([0, 6])])


def test_labels_out_of_range_are_refused() -> None:
    with pytest.raises(ShapeError, match="labels from 0 to 9"):
        poison(LABELS, attack=LabelPermutation(), parts=PARTS, classes=9, rng=np.random.default_rng(0))


def test_malicious_clients_are_distinct_ascending_and_uniform() -> None:
    rng = np.random.default_rng(8)
    draws = [draw_malicious(clients=5, count=2, rng=rng).tolist() for _ in range(2000)]
    assert all(first < second for first, second in draws)
    # each client is in 2/5 of the draws: 800 of 2000 with a standard deviation of 22
    assert np.abs(np.bincount(np.ravel(draws), minlength=5) - 800).max() < 110


@pytest.mark.parametrize("count", [-1, 6])
def test_an_impossible_number_of_malicious_clients_is_refused(count: int) -> None:
    with pytest.raises(SpecError, match="a number from 0 to 5"):
        draw_malicious(clients=5, count=count, rng=np.random.default_rng(0))


@given(seed=st.integers(0, 1000), among=st.integers(0, 2))
def test_nested_attackers_of_a_smaller_number_are_among_those_of_a_larger_one(seed: int, among: int) -> None:
    unusual = (3, 9)
    before: set[int] = set()
    for count in range(16):
        drawn = nested_malicious(
            clients=15, count=count, unusual=unusual, among=among, rng=np.random.default_rng(seed)
        ).tolist()
        assert drawn == sorted(set(drawn))
        assert len(drawn) == count
        assert before <= set(drawn)
        before = set(drawn)
        if 2 <= count <= 13:
            assert len(before & set(unusual)) == among


def test_more_nested_attackers_than_clients_are_refused() -> None:
    with pytest.raises(SpecError, match="16 malicious clients of 15"):
        nested_malicious(clients=15, count=16, rng=np.random.default_rng(0))
