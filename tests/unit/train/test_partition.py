"""Partitions that cannot be, and what Dirichlet does."""

import numpy as np
import pytest

from fedgt.errors import SpecError
from fedgt.train.partition import Partition, partition_dirichlet, partition_iid


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
