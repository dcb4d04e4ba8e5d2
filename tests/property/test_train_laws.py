"""Laws of partitions, attacks and batched training."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedgt.train.attacks import LabelFlip, LabelPermutation, RandomLabels, poison
from fedgt.train.logistic import LocalTraining, LogisticRegression, train_clients
from fedgt.train.partition import Partition, partition_dirichlet, partition_iid

seeds = st.integers(0, 2**32 - 1)


def every_sample(partition: Partition) -> list[int]:
    return sorted(np.concatenate([partition.validation, *partition.clients]).tolist())


@given(clients=st.integers(1, 20), validation=st.integers(0, 30), extra=st.integers(0, 100), seed=seeds)
def test_an_iid_split_uses_every_sample_once_and_evenly(clients: int, validation: int, extra: int, seed: int) -> None:
    samples = clients + validation + extra
    partition = partition_iid(samples=samples, clients=clients, validation=validation, rng=np.random.default_rng(seed))
    assert every_sample(partition) == list(range(samples))
    assert partition.validation.size == validation
    sizes = [part.size for part in partition.clients]
    assert max(sizes) - min(sizes) <= 1


@given(
    labels=st.lists(st.integers(0, 4), min_size=40, max_size=120),
    clients=st.integers(1, 8),
    minimum=st.integers(1, 4),
    concentration=st.sampled_from([1e-6, 0.05, 1.0, 1e6]),
    seed=seeds,
)
def test_a_dirichlet_split_uses_every_sample_once_and_keeps_the_minimum(
    labels: list[int], clients: int, minimum: int, concentration: float, seed: int
) -> None:
    partition = partition_dirichlet(
        labels=np.array(labels),
        clients=clients,
        validation=8,
        concentration=concentration,
        rng=np.random.default_rng(seed),
        minimum=minimum,
    )
    assert every_sample(partition) == list(range(len(labels)))
    assert partition.validation.size == 8
    assert min(part.size for part in partition.clients) >= minimum


@given(seed=seeds)
def test_the_same_generator_gives_the_same_split(seed: int) -> None:
    labels = np.random.default_rng(0).integers(3, size=50)

    def split() -> list[list[int]]:
        partition = partition_dirichlet(
            labels=labels, clients=4, validation=5, concentration=0.5, rng=np.random.default_rng(seed)
        )
        return [part.tolist() for part in (partition.validation, *partition.clients)]

    assert split() == split()


@given(
    labels=st.lists(st.integers(0, 9), min_size=15, max_size=60),
    malicious=st.sets(st.integers(0, 4)),
    attack=st.sampled_from(
        [LabelFlip(source=1, target=7), LabelPermutation(), LabelPermutation(offset=4), RandomLabels()]
    ),
    seed=seeds,
)
def test_an_attack_changes_labels_of_the_chosen_clients_only_and_never_in_place(
    labels: list[int], malicious: set[int], attack: LabelFlip | LabelPermutation | RandomLabels, seed: int
) -> None:
    true = np.array(labels)
    owners = np.arange(true.size) % 5
    parts = [np.flatnonzero(owners == client) for client in malicious]
    new = poison(true, attack=attack, parts=parts, classes=10, rng=np.random.default_rng(seed))
    assert true.tolist() == labels
    honest = ~np.isin(owners, list(malicious))
    assert (new[honest] == true[honest]).all()
    assert ((new >= 0) & (new < 10)).all()
    if isinstance(attack, LabelFlip):
        assert (new[~honest] == np.where(true == 1, 7, true)[~honest]).all()
    if isinstance(attack, LabelPermutation):
        assert (new[~honest] != true[~honest]).all()


@given(
    sizes=st.lists(st.integers(1, 23), min_size=1, max_size=6),
    batch_size=st.integers(1, 9),
    epochs=st.integers(1, 3),
    features=st.sampled_from([1, 5, 64]),
    data=st.data(),
)
def test_a_client_s_result_has_the_same_bits_whoever_else_trains_and_in_whatever_order(
    sizes: list[int], batch_size: int, epochs: int, features: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(4)
    total = sum(sizes)
    images = rng.normal(size=(total, features)).astype(np.float32)
    labels = rng.integers(3, size=total)
    parts = np.split(rng.permutation(total), np.cumsum(sizes)[:-1])
    model = LogisticRegression(classes=3, features=features)
    start = model.initial(rng=rng)

    def train(clients: list[int]) -> dict[int, bytes]:
        trained = train_clients(
            start,
            model=model,
            images=images,
            labels=labels,
            parts=[parts[client] for client in clients],
            rngs=[np.random.default_rng([7, client]) for client in clients],
            training=LocalTraining(learning_rate=0.3, batch_size=batch_size, epochs=epochs),
        )
        return {
            client: one["weight"].tobytes() + one["bias"].tobytes()
            for client, one in zip(clients, trained, strict=True)
        }

    everybody = train(list(range(len(sizes))))
    some = data.draw(st.permutations(range(len(sizes)))).copy()
    some = some[: data.draw(st.integers(1, len(some)))]
    assert train(some) == {client: everybody[client] for client in some}
