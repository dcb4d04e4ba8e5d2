"""Partitions that cannot be, and what Dirichlet does."""

import numpy as np
import pytest

from fedgt.errors import SpecError
from fedgt.train.partition import (
    Partition,
    partition_centres,
    partition_dirichlet,
    partition_iid,
    partition_single_class,
    unusual_clients,
)
from fedgt.types import IntArray


def test_the_paper_s_split_of_mnist_has_the_paper_s_sizes() -> None:
    partition = partition_iid(samples=60000, clients=15, validation=100, rng=np.random.default_rng(0))
    assert partition.validation.size == 100
    assert sorted({part.size for part in partition.clients}) == [3993, 3994]


def test_a_small_concentration_skews_the_labels_and_a_large_one_does_not() -> None:
    labels = np.repeat(np.arange(10), 300)

    def largest_share(concentration: float) -> float:
        partition = partition_dirichlet(
            labels=labels, clients=10, validation=0, concentration=concentration, rng=np.random.default_rng(1)
        )
        return float(np.mean([np.bincount(labels[part]).max() / part.size for part in partition.clients]))

    assert largest_share(0.1) > 0.4
    assert largest_share(1000.0) < 0.15


def test_every_client_is_filled_up_to_the_minimum() -> None:
    labels = np.repeat(np.arange(2), 100)
    partition = partition_dirichlet(
        labels=labels, clients=12, validation=0, concentration=0.01, rng=np.random.default_rng(0), minimum=16
    )
    assert min(part.size for part in partition.clients) == 16
    assert sum(part.size for part in partition.clients) == 200


@pytest.mark.parametrize("concentration", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_concentration_is_refused(concentration: float) -> None:
    with pytest.raises(SpecError, match="positive number"):
        partition_dirichlet(
            labels=np.zeros(9, dtype=np.int64),
            clients=3,
            validation=0,
            concentration=concentration,
            rng=np.random.default_rng(0),
        )


@pytest.mark.parametrize(
    ("samples", "clients", "validation"), [(10, 0, 0), (10, 2, -1), (10, 11, 0), (10, 1, 10), (0, 1, 0)]
)
def test_too_few_samples_or_clients_are_refused(samples: int, clients: int, validation: int) -> None:
    with pytest.raises(SpecError, match="samples"):
        partition_iid(samples=samples, clients=clients, validation=validation, rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    ("validation", "clients", "match"),
    [([0], [[0, 1]], "used twice"), ([], [[1], [1]], "used twice"), ([], [[1], []], r"clients \[1\] of 2")],
)
def test_a_partition_that_shares_samples_or_leaves_a_client_empty_is_refused(
    validation: list[int], clients: list[list[int]], match: str
) -> None:
    with pytest.raises(SpecError, match=match):
        Partition(
            validation=np.array(validation, dtype=np.int64),
            clients=tuple(np.array(part, dtype=np.int64) for part in clients),
        )


def centres_of(sizes: list[int]) -> IntArray:
    return np.repeat(np.arange(len(sizes)), sizes)


def test_the_largest_centre_is_halved_until_there_is_a_client_for_each_share() -> None:
    """Six centres of sizes like those of Fed-ISIC2019 become 15 shares of 351 to 1,807 samples."""
    sizes = [9901, 3163, 2691, 1807, 655, 351]
    centres = centres_of(sizes)
    split = partition_centres(centres=centres, clients=15, validation=0, rng=np.random.default_rng(0))
    held = [part.size for part in split.clients]
    assert sum(held) == sum(sizes)
    by_hand = list(sizes)
    while len(by_hand) < 15:
        largest = max(by_hand)
        by_hand.remove(largest)
        by_hand += [largest // 2, largest - largest // 2]
    assert sorted(held) == sorted(by_hand)
    assert (min(held), max(held)) == (351, 1807)
    for part in split.clients:
        assert len(np.unique(centres[part])) == 1
    assert [int(centres[part[0]]) for part in split.clients[:6]] == list(range(6))


def test_more_centres_than_clients_are_refused() -> None:
    with pytest.raises(SpecError, match="3 centres for 2 clients"):
        partition_centres(centres=centres_of([5, 5, 5]), clients=2, validation=0, rng=np.random.default_rng(0))


def test_the_unusual_clients_are_the_halves_of_the_centre_with_the_strangest_labels() -> None:
    rng = np.random.default_rng(1)
    centres = centres_of([400, 300, 100])
    labels = rng.integers(4, size=800)
    labels[400:700] = 1  # centre 1 has one label only; centre 2 is stranger still, but a single client
    labels[700:] = 3
    split = partition_centres(centres=centres, clients=5, validation=0, rng=rng)
    found = unusual_clients(parts=split.clients, labels=labels, centres=centres)
    assert len(found) == 2
    assert all((labels[split.clients[one]] == 1).all() for one in found)


def test_without_a_centre_of_two_clients_nobody_is_unusual() -> None:
    centres = centres_of([5, 6])
    split = partition_centres(centres=centres, clients=2, validation=0, rng=np.random.default_rng(0))
    assert unusual_clients(parts=split.clients, labels=np.zeros(11, dtype=np.int64), centres=centres) == ()


def test_one_client_holds_the_last_class_only_as_many_samples_as_before_and_nobody_loses_any() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(5), 60)).astype(np.int64)
    iid = partition_iid(samples=300, clients=6, validation=30, rng=np.random.default_rng(1))
    split = partition_single_class(labels=labels, clients=6, validation=30, rng=np.random.default_rng(1))
    assert set(labels[split.clients[4]]) == {4}
    assert [len(part) for part in split.clients] == [len(part) for part in iid.clients]
    np.testing.assert_array_equal(split.validation, iid.validation)
    assert sorted(np.concatenate([split.validation, *split.clients]).tolist()) == list(range(300))


def test_where_the_class_is_too_rare_the_client_holds_what_there_is() -> None:
    labels = np.array([0] * 50 + [1] * 10, dtype=np.int64)
    split = partition_single_class(labels=labels, clients=5, validation=0, rng=np.random.default_rng(1))
    assert labels[split.clients[4]].tolist() == [1] * 10
    with pytest.raises(SpecError, match="client 4 of 4"):
        partition_single_class(labels=labels, clients=4, validation=0, rng=np.random.default_rng(1))
