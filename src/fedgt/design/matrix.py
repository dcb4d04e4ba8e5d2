"""The assignment matrix A: who shares a group (Definition 1 of the paper)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedgt.errors import DesignError
from fedgt.foreign_text import plain
from fedgt.text_file import read_text
from fedgt.types import BitArray, IntArray, as_integers, frozen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Design:
    """An immutable assignment matrix with its name and source.

    Attributes:
        matrix: uint8[groups, clients]; element [i, j] is 1 when client (column) j takes part in group i.
        name: A short name, such as `bch-15x8`.
        source: Where the matrix comes from, for the reader of a report.

    Raises:
        DesignError: If the matrix is not two-dimensional, empty, not 0/1, or has a group without members.

    Examples:
        >>> from fedgt.design import named_design
        >>> design = named_design("bch-15x8")
        >>> design.clients, design.groups
        (15, 8)
        >>> design.members(0)
        (0, 1, 3, 7)
        >>> design.groups_of(4)
        (1, 3, 4)
    """

    matrix: BitArray
    name: str
    source: str

    def __post_init__(self) -> None:
        """Freeze and check."""
        try:
            given = np.asarray(self.matrix)
        except (ValueError, TypeError, OverflowError) as error:
            raise DesignError(f"design {self.name!r}: all rows must have the same length ({error})") from None
        if given.ndim != 2 or 0 in given.shape:
            raise DesignError(f"design {self.name!r}: a groups x clients matrix is needed, got shape {given.shape}")
        wrong = (
            [(row, column) for (row, column), value in np.ndenumerate(given) if not _is_bit(value)]
            if given.dtype.kind not in "biu" or not np.isin(given, (0, 1)).all()
            else []
        )
        if wrong:
            row, column = wrong[0]
            raise DesignError(
                f"design {self.name!r}: entries must be 0 or 1, got {given[row, column]!r:.80} in row {row}, column {column}"
            )
        empty = np.flatnonzero(given.sum(axis=1) == 0)
        if empty.size:
            raise DesignError(
                f"design {self.name!r}: group {empty[0]} has no members; remove its row or give it members"
            )
        object.__setattr__(self, "matrix", frozen(given, np.uint8))

    @property
    def groups(self) -> int:
        """The number of groups, m."""
        return int(self.matrix.shape[0])

    @property
    def clients(self) -> int:
        """The number of clients, n."""
        return int(self.matrix.shape[1])

    @property
    def group_sizes(self) -> IntArray:
        """int64[groups]: the number of members of each group."""
        sizes: IntArray = self.matrix.sum(axis=1, dtype=np.int64)
        return sizes

    @property
    def untested(self) -> tuple[int, ...]:
        """Clients that sit in no group: nothing can be said about them."""
        return tuple(np.flatnonzero(self.matrix.sum(axis=0) == 0).tolist())

    @property
    def identical_groups(self) -> tuple[tuple[int, ...], ...]:
        """Groups that have the same members, together; only sets of two and more. A repetition reveals nothing new."""
        alike: dict[bytes, list[int]] = {}
        for group, row in enumerate(self.matrix):
            alike.setdefault(row.tobytes(), []).append(group)
        return tuple(tuple(same) for same in alike.values() if len(same) > 1)

    def members(self, group: int) -> tuple[int, ...]:
        """The clients of one group, in ascending order."""
        return tuple(np.flatnonzero(self.matrix[group]).tolist())

    def groups_of(self, client: int) -> tuple[int, ...]:
        """The groups of one client, in ascending order."""
        return tuple(np.flatnonzero(self.matrix[:, client]).tolist())

    def columns_as_masks(self) -> IntArray:
        """int64[clients]: column j as an integer, bit i set when client j is in group i (the trellis state label).

        Raises:
            DesignError: If there are more than 62 groups, which do not fit into 64 bits.
        """
        if self.groups > _MOST_MASK_BITS:
            raise DesignError(
                f"design {self.name!r}: {self.groups} groups do not fit into 64-bit masks; at most {_MOST_MASK_BITS} do"
            )
        weights = np.left_shift(np.int64(1), np.arange(self.groups, dtype=np.int64))
        masks: IntArray = weights @ self.matrix.astype(np.int64)
        return masks

    def restricted(self, groups: Sequence[int]) -> "Design":
        """The same clients with only the given groups, in the given order.

        Raises:
            DesignError: If no group is left, or a number is not that of a group.
        """
        groups = as_integers(groups, "groups").ravel().tolist()
        if not groups:
            raise DesignError(f"design {self.name!r}: no group is left")
        unknown = [group for group in groups if not 0 <= group < self.groups]
        if unknown:
            raise DesignError(f"design {self.name!r}: group {unknown[0]} does not exist; 0 to {self.groups - 1} do")
        return Design(matrix=self.matrix[list(groups)], name=self.name, source=self.source)


def from_matrix(matrix: npt.ArrayLike, *, name: str = "custom", source: str = "given by the user") -> Design:
    """A design from any 0/1 array of shape groups x clients.

    Examples:
        >>> from fedgt.design import from_matrix
        >>> design = from_matrix([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], name="a chain")
        >>> [design.members(group) for group in range(design.groups)]
        [(0, 1), (1, 2), (2, 3)]
    """
    return Design(matrix=matrix, name=name, source=source)  # type: ignore[arg-type]


def read_design(path: Path) -> Design:
    """A design from a file: CSV (one row of 0/1 per group) or JSON (a list of lists, or an object with `matrix`).

    Raises:
        DesignError: If the file cannot be read as a 0/1 matrix; the message names the line.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from fedgt.design import read_design
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "groups.csv"
        ...     np.savetxt(path, [[1, 1, 0], [0, 1, 1]], fmt="%d", delimiter=",")
        ...     design = read_design(path)
        >>> design.members(1)
        (1, 2)
    """
    rows, name, source = rows_in(path)
    return from_matrix(rows, name=name, source=source)


def rows_in(path: Path, *, largest: int = 1) -> tuple[list[list[int]], str, str]:
    """The rows of a design file, its name and where they come from.

    Args:
        path: CSV or JSON, as for `read_design`.
        largest: The largest entry of a CSV file; entries of a JSON file are for the design to check.

    Raises:
        DesignError: If the file does not hold rows of such entries; the message names the line.
    """
    text = read_text(path, "design file", error=DesignError)
    source = f"file {plain(path.name)}"
    if path.suffix.lower() == ".json":
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DesignError(f"design file {path}: not valid JSON ({error})") from error
        name = path.stem
        if isinstance(content, dict):
            name, content = plain(content.get("name", name)), content.get("matrix")
        if not isinstance(content, list) or not all(isinstance(row, list) for row in content):
            raise DesignError(f"design file {path}: a list of rows is needed, or an object with the key 'matrix'")
        return content, name, source
    rows: list[list[int]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        cells = [cell.strip() for cell in line.split(",")]
        if not any(cells):
            continue
        if wrong := [cell for cell in cells if not _is_entry(cell, largest)]:
            needed = "0 or 1" if largest == 1 else f"whole numbers from 0 to {largest}"
            raise DesignError(f"design file {path}, line {number}: entries must be {needed}, got {wrong[0][:40]!r}")
        if rows and len(cells) != len(rows[0]):
            raise DesignError(
                f"design file {path}, line {number}: {len(cells)} entries, but the first row has {len(rows[0])}"
            )
        rows.append([int(cell) for cell in cells])
    if not rows:
        raise DesignError(f"design file {path}: no rows found; write one line of 0,1 per group")
    return rows, path.stem, source


def identity(clients: int) -> Design:
    """Vanilla federated learning: one group per client (section III.A). Its privacy is 1: every model is seen.

    Examples:
        >>> from fedgt.design import identity
        >>> identity(3).matrix.tolist()
        [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    """
    _check_clients(clients)
    if clients > _MOST_ALONE:
        raise DesignError(
            f"{clients} groups of one client each; at most {_MOST_ALONE} can be looked at in reasonable time: every model "
            "is seen alone, whatever their number"
        )
    return Design(
        matrix=np.eye(clients, dtype=np.uint8),
        name=f"identity-{clients}",
        source="vanilla federated learning: every client alone",
    )


def single_group(clients: int) -> Design:
    """Full secure aggregation: one group of all clients (section III.A). Private, but nobody can be identified.

    Examples:
        >>> from fedgt.design import single_group
        >>> single_group(3).matrix.tolist()
        [[1, 1, 1]]
    """
    _check_clients(clients)
    return Design(
        matrix=np.ones((1, clients), dtype=np.uint8),
        name=f"single-group-{clients}",
        source="full secure aggregation: one group of all clients",
    )


_MOST_CLIENTS = 10_000
_MOST_PLACES = 10**7
_MOST_ALONE = 1_000
_MOST_MASK_BITS = 62


def _is_entry(cell: str, largest: int) -> bool:
    return cell.isascii() and cell.isdigit() and len(cell) <= len(str(largest)) and int(cell) <= largest


def _is_bit(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating | np.bool_) and value in (0, 1)


def check_size(clients: int, groups: int) -> None:
    """Refuse what would fill the memory before anything is made of it.

    Raises:
        DesignError: If there are more than 10,000 clients or groups, or more than 10^7 places.
    """
    if max(clients, groups) > _MOST_CLIENTS or clients * groups > _MOST_PLACES:
        raise DesignError(
            f"{clients} clients and {groups} groups; at most {_MOST_CLIENTS} of each and {_MOST_PLACES} places are possible"
        )


def _check_clients(clients: int) -> None:
    if not 1 <= clients <= _MOST_CLIENTS:
        raise DesignError(f"{clients} clients; 1 to {_MOST_CLIENTS} are possible")
