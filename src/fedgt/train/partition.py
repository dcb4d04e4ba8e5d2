"""Who holds which training sample: the server's validation set, and the clients' shares of the rest.

A partition holds sample numbers, not samples; every sample of the training data is used exactly once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedgt.errors import SpecError
from fedgt.types import IntArray, frozen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partition:
    """The sample numbers of the server and of every client.

    Attributes:
        validation: int64[v], the server's validation set; no client trains on it.
        clients: One int64[samples] per client, in client order.

    Raises:
        SpecError: If a sample is used twice or a client has none.

    Examples:
        >>> import numpy as np
        >>> from fedgt.train import partition_iid
        >>> parts = partition_iid(samples=100, clients=4, validation=20, rng=np.random.default_rng(0))
        >>> len(parts.validation), [len(part) for part in parts.clients]
        (20, [20, 20, 20, 20])
    """

    validation: IntArray
    clients: tuple[IntArray, ...]

    def __post_init__(self) -> None:
        """Freeze and check."""
        object.__setattr__(self, "validation", frozen(self.validation, np.int64))
        object.__setattr__(self, "clients", tuple(frozen(part, np.int64) for part in self.clients))
        empty = [client for client, part in enumerate(self.clients) if not part.size]
        if empty or not self.clients:
            raise SpecError(f"clients {empty} of {len(self.clients)} have no sample; give every client at least one")
        every = np.concatenate([self.validation, *self.clients])
        if np.unique(every).size != every.size:
            raise SpecError(f"{every.size - np.unique(every).size} samples are used twice; a sample has one owner")


def partition_iid(*, samples: int, clients: int, validation: int, rng: np.random.Generator) -> Partition:
    """The paper's split (section VI.A): a random validation set, the rest evenly at random; sizes differ by at most 1.

    Args:
        samples: The number of training samples; all are used.
        clients: The number of clients.
        validation: The size of the server's validation set (the paper: 100).
        rng: The source of the split.

    Raises:
        SpecError: If some client would have no sample.

    Examples:
        >>> import numpy as np
        >>> from fedgt.train import partition_iid
        >>> parts = partition_iid(samples=100, clients=3, validation=10, rng=np.random.default_rng(0))
        >>> [len(part) for part in parts.clients]
        [30, 30, 30]
    """
    _check_counts(samples=samples, clients=clients, validation=validation, minimum=1)
    order = rng.permutation(samples)
    return Partition(validation=order[:validation], clients=tuple(np.array_split(order[validation:], clients)))


def partition_dirichlet(
    *,
    labels: IntArray,
    clients: int,
    validation: int,
    concentration: float,
    rng: np.random.Generator,
    minimum: int = 1,
) -> Partition:
    """A label-skewed split: each class is shared out in proportions drawn from a symmetric Dirichlet distribution.

    The validation set is drawn at random first. Then, class by class, the proportions p ~ Dirichlet(concentration, ...,
    concentration) over the clients cut the shuffled samples of the class, as Yurochkin et al. (2019) do. Small
    concentrations can leave a client with nearly nothing, so afterwards every client below `minimum` is filled up to
    it with randomly chosen samples of the largest client, client by client, the largest being found anew each time.
    Nothing is redrawn: the split is Dirichlet except for those few samples.

    Args:
        labels: int64[samples], the true training labels.
        clients: The number of clients.
        validation: The size of the server's validation set.
        concentration: Positive; 1 is mild, 0.1 is extreme, infinity would be IID.
        rng: The source of the split.
        minimum: The least number of samples of a client; the batch size makes it one full batch.

    Raises:
        SpecError: If the concentration is not a positive number or the samples do not suffice for the minimum.

    Examples:
        >>> import numpy as np
        >>> from fedgt.train import partition_dirichlet
        >>> labels = np.repeat(np.arange(4), 50)
        >>> parts = partition_dirichlet(
        ...     labels=labels, clients=5, validation=20, concentration=0.3, rng=np.random.default_rng(0)
        ... )
        >>> sum(len(part) for part in parts.clients)
        180
    """
    if not (math.isfinite(concentration) and concentration > 0):
        raise SpecError(f"Dirichlet concentration {concentration}: a finite, positive number is needed")
    _check_counts(samples=labels.size, clients=clients, validation=validation, minimum=minimum)
    order = rng.permutation(labels.size)
    rest = order[validation:]
    shares: list[list[IntArray]] = [[] for _ in range(clients)]
    for label in np.unique(labels[rest]):
        members = rest[labels[rest] == label]
        proportions = rng.dirichlet(np.full(clients, concentration))
        cuts = np.rint(np.cumsum(proportions)[:-1] * members.size).astype(np.int64)
        for share, piece in zip(shares, np.split(members, cuts), strict=True):
            share.append(piece)
    parts = [rng.permutation(np.concatenate(share)) for share in shares]
    return Partition(validation=order[:validation], clients=tuple(_fill_up(parts, minimum=minimum)))


def partition_centres(*, centres: IntArray, clients: int, validation: int, rng: np.random.Generator) -> Partition:
    """The paper's split of ISIC2019 (appendix): one share a centre, the largest halved until there is one for every client.

    The validation set is drawn at random first. Halves are random; the first keeps the place of the whole, the second comes
    last.

    Args:
        centres: int64[samples], where each training sample comes from.
        clients: The number of clients, at least that of the centres.
        validation: The size of the server's validation set.
        rng: The source of the split.

    Raises:
        SpecError: If there are more centres than clients, or too few samples.

    Examples:
        >>> import numpy as np
        >>> from fedgt.train import partition_centres
        >>> centres = np.repeat([0, 1], [60, 40])
        >>> parts = partition_centres(centres=centres, clients=4, validation=10, rng=np.random.default_rng(0))
        >>> [len(set(centres[part].tolist())) for part in parts.clients]  # nobody mixes centres
        [1, 1, 1, 1]
    """
    _check_counts(samples=centres.size, clients=clients, validation=validation, minimum=1)
    order = rng.permutation(centres.size)
    rest = order[validation:]
    parts = [rest[centres[rest] == centre] for centre in np.unique(centres[rest])]
    if len(parts) > clients:
        raise SpecError(
            f"{len(parts)} centres for {clients} clients: a client is one centre or a part of one; take more clients"
        )
    while len(parts) < clients:
        largest = max(range(len(parts)), key=lambda one: parts[one].size)
        half = parts[largest].size // 2
        parts.append(parts[largest][half:])
        parts[largest] = parts[largest][:half]
    return Partition(validation=order[:validation], clients=tuple(parts))


def partition_single_class(
    *, labels: IntArray, clients: int, validation: int, rng: np.random.Generator, owner: int = 4
) -> Partition:
    """As `partition_iid`, but one client holds samples of the last class only, as many as before, if there are so many.

    It exchanges what it has of other classes for samples of the last class of the other clients; what it cannot exchange
    nobody trains on.

    Args:
        labels: int64[samples].
        clients: The number of clients, more than `owner`.
        validation: The size of the server's validation set.
        rng: The source of the split.
        owner: The client, from 0.

    Raises:
        SpecError: If there is no such client, or some client would have no sample.

    Examples:
        >>> import numpy as np
        >>> from fedgt.train import partition_single_class
        >>> labels = np.repeat(np.arange(4), 50)
        >>> parts = partition_single_class(labels=labels, clients=4, validation=20, owner=2, rng=np.random.default_rng(0))
        >>> sorted(set(labels[parts.clients[2]].tolist()))
        [3]
    """
    if not 0 <= owner < clients:
        raise SpecError(f"client {owner} of {clients} is to hold a single class; take more clients")
    split = partition_iid(samples=len(labels), clients=clients, validation=validation, rng=rng)
    last = int(labels.max())
    own = split.clients[owner]
    others = np.concatenate([part[labels[part] == last] for j, part in enumerate(split.clients) if j != owner])
    given = own[labels[own] != last][: len(others)]
    taken = others[: len(given)]
    moved = np.arange(len(labels))
    moved[taken], moved[given] = given, taken
    parts = [moved[part] for part in split.clients]
    parts[owner] = parts[owner][labels[parts[owner]] == last]
    return Partition(validation=split.validation, clients=tuple(parts))


def unusual_clients(*, parts: Sequence[IntArray], labels: IntArray, centres: IntArray) -> tuple[int, ...]:
    """The clients of the centre, among those with two clients or more, whose labels are distributed least like all labels.

    Found by centre and label counts (largest total variation distance), as client numbers depend on the split.

    Args:
        parts: The sample numbers of each client, all of one centre.
        labels: int64[samples], the true labels.
        centres: int64[samples].

    Returns:
        Client numbers, ascending; empty if no centre has two clients.

    Examples:
        >>> import numpy as np
        >>> from fedgt.train import unusual_clients
        >>> labels = np.array([0, 1, 0, 1, 0, 0, 0, 0])
        >>> centres = np.array([0, 0, 0, 0, 1, 1, 1, 1])  # the second centre has images of one class only
        >>> parts = [np.array([0, 1]), np.array([2, 3]), np.array([4, 5]), np.array([6, 7])]
        >>> unusual_clients(parts=parts, labels=labels, centres=centres)
        (0, 1)
    """
    classes = int(labels.max()) + 1
    held = np.concatenate(list(parts))
    overall = np.bincount(labels[held], minlength=classes) / held.size
    owners: dict[int, list[int]] = {}
    for client, part in enumerate(parts):
        owners.setdefault(int(centres[part[0]]), []).append(client)

    def distance(clients: list[int]) -> float:
        own = np.concatenate([parts[client] for client in clients])
        return float(np.abs(np.bincount(labels[own], minlength=classes) / own.size - overall).sum())

    shared = [clients for clients in owners.values() if len(clients) >= 2]
    if not shared:
        return ()
    chosen: list[int] = max(shared, key=distance)
    return tuple(chosen)


def _fill_up(parts: list[IntArray], *, minimum: int) -> list[IntArray]:
    """Move samples from the largest client to those below the minimum; the parts are in random order already."""
    filled = list(parts)
    for client in range(len(filled)):
        while (lacking := minimum - filled[client].size) > 0:
            donor = max(range(len(filled)), key=lambda other: filled[other].size)
            moved = min(lacking, filled[donor].size - minimum)
            filled[client] = np.concatenate([filled[client], filled[donor][:moved]])
            filled[donor] = filled[donor][moved:]
    return filled


def _check_counts(*, samples: int, clients: int, validation: int, minimum: int) -> None:
    if clients < 1 or validation < 0 or minimum < 1:
        raise SpecError(
            f"{clients} clients with at least {minimum} samples each and {validation} validation samples: "
            "at least one client, one sample a client and no negative number are needed"
        )
    if samples - validation < clients * minimum:
        raise SpecError(
            f"{samples} samples less {validation} for validation cannot give {clients} clients {minimum} each; "
            "use fewer clients, a smaller validation set or a smaller minimum"
        )
