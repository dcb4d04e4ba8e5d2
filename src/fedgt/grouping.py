"""Which client sits in which column of the design."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from fedgt.design import Design
from fedgt.errors import DesignError, SpecError
from fedgt.ids import require_distinct_ids


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grouping:
    """A design with a client in every column.

    Attributes:
        design: m groups of n clients.
        clients: Client ids; element j is the client in column j.

    Raises:
        DesignError: If the number of clients differs from the design's, an id repeats or cannot be one, or two look alike.

    Examples:
        >>> from fedgt import Grouping, from_matrix
        >>> grouping = Grouping(design=from_matrix([[1, 1, 0], [0, 1, 1]]), clients=("ada", "bob", "cleo"))
        >>> grouping.members(1)
        ('bob', 'cleo')
        >>> grouping.groups_of("bob")
        (0, 1)
    """

    design: Design
    clients: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check."""
        _check_ids(self.clients)
        if len(self.clients) != self.design.clients:
            raise DesignError(
                f"design {self.design.name!r} is for {self.design.clients} clients, {len(self.clients)} are registered; "
                "take a design of that size"
            )

    def members(self, group: int, present: Collection[str] | None = None) -> tuple[str, ...]:
        """Ids of the members of a group, sorted; with `present`, only those who are there: an absent client enters no group.

        Args:
            group: 0-based row of the design.
            present: The clients that take part in this round; None means all.
        """
        ids = (self.clients[j] for j in self.design.members(group))
        return tuple(sorted(client for client in ids if present is None or client in present))

    def groups_of(self, client: str) -> tuple[int, ...]:
        """The groups that a client sits in, ascending."""
        return self.design.groups_of(self.clients.index(client))


def assign(design: Design, clients: Sequence[str], *, rng: np.random.Generator) -> Grouping:
    """Seat the clients at random; the seats depend on the ids and the generator, not on the order of registration.

    Raises:
        DesignError: If the number of clients differs from the design's, an id repeats or cannot be one, or two look alike.

    Examples:
        >>> import numpy as np
        >>> from fedgt import assign, from_matrix
        >>> grouping = assign(from_matrix([[1, 1, 0], [0, 1, 1]]), ["ada", "bob", "cleo"], rng=np.random.default_rng(7))
        >>> sorted(grouping.clients)
        ['ada', 'bob', 'cleo']
    """
    _check_ids(clients)
    order = rng.permutation(len(clients))
    ids = sorted(clients)
    return Grouping(design=design, clients=tuple(ids[i] for i in order))


def _check_ids(clients: Sequence[str]) -> None:
    if isinstance(clients, str | bytes) or not isinstance(clients, Sequence):
        raise DesignError(f"clients: a sequence of ids is needed, not a {type(clients).__name__}")
    seen: set[str] = set()
    try:
        require_distinct_ids(clients)
    except SpecError as error:
        raise DesignError(str(error)) from error
    for client in clients:
        if client in seen:
            raise DesignError(f"client {client!r} is registered twice; every participant needs an id of its own")
        seen.add(client)
