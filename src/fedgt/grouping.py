"""Which client sits in which column of the design."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from fedgt.design import AnyDesign, Design, StagedDesign
from fedgt.errors import DesignError, SpecError
from fedgt.ids import require_distinct_ids
from fedgt.types import IntArray, frozen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grouping:
    """A design with a client in every column.

    Attributes:
        design: m groups of n clients.
        clients: Client ids; element j is the client in column j.
        coefficients: int64[groups, clients], by which whole number a client multiplies its update in a group, 0 where it is
            not in it; None where all are 1.

    Raises:
        DesignError: If the number of clients differs from the design's, an id repeats or cannot be one, or two look alike;
            or the coefficients are not those of the members.

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
    coefficients: IntArray | None = None

    def __post_init__(self) -> None:
        """Check."""
        _check_ids(self.clients)
        if len(self.clients) != self.design.clients:
            raise DesignError(
                f"design {self.design.name!r} is for {self.design.clients} clients, {len(self.clients)} are registered; "
                "take a design of that size"
            )
        if self.coefficients is None:
            return
        given = frozen(self.coefficients, np.int64)
        if not np.array_equal(given > 0, self.design.matrix > 0) or given.min() < 0:
            raise DesignError(
                f"design {self.design.name!r}: a coefficient is needed for every member, and for nobody else"
            )
        object.__setattr__(self, "coefficients", given if given.max() > 1 else None)

    @classmethod
    def of(cls, design: AnyDesign, clients: Sequence[str]) -> "Grouping":
        """The seats of a design, with its coefficients if it has some.

        Args:
            design: m groups of n clients.
            clients: Client ids; element j is the client in column j.

        Examples:
            >>> from fedgt import Grouping
            >>> from fedgt.design import StagedDesign
            >>> design = StagedDesign(matrix=[[2, 1, 0], [0, 1, 1]], stages=(2,), name="two", source="by hand")
            >>> Grouping.of(design, ("ada", "bob", "cleo")).factors(0)
            {'ada': 2, 'bob': 1}
        """
        if isinstance(design, StagedDesign):
            return cls(design=design.membership, clients=tuple(clients), coefficients=design.matrix)
        return cls(design=design, clients=tuple(clients))

    @property
    def rows(self) -> IntArray:
        """int64[groups, clients]: the coefficients, or 0 and 1."""
        return self.design.matrix.astype(np.int64) if self.coefficients is None else self.coefficients

    @property
    def whole(self) -> AnyDesign:
        """The design with its coefficients, if it has some."""
        if self.coefficients is None:
            return self.design
        name, source = self.design.name, self.design.source
        return StagedDesign(matrix=self.rows, stages=(self.design.groups,), name=name, source=source)

    def of_rows(self, rows: IntArray, clients: Sequence[str] | None = None) -> "Grouping":
        """The same design with other rows, such as those of the members who were really there.

        Args:
            rows: int64[groups, clients], coefficients, or 0 and 1.
            clients: Of the columns; None takes the same.
        """
        design = Design(matrix=(rows > 0).astype(np.uint8), name=self.design.name, source=self.design.source)
        return Grouping(
            design=design, clients=self.clients if clients is None else tuple(clients), coefficients=np.asarray(rows)
        )

    def factors(self, group: int) -> dict[str, int]:
        """Client -> coefficient, of the members of a group."""
        row = self.rows[group].tolist()
        return {client: a for client, a in zip(self.clients, row, strict=True) if a}

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


def assign(design: AnyDesign, clients: Sequence[str], *, rng: np.random.Generator) -> Grouping:
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
    return Grouping.of(design, tuple(ids[i] for i in order))


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
