"""Sums that are taken in stages: the first rows are a training round, later ones look closer at the same local models."""

import re
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedgt.design.matrix import Design, from_matrix, rows_in
from fedgt.errors import DesignError
from fedgt.types import LARGEST_COEFFICIENT, IntArray, as_integers, frozen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StagedDesign:
    """Nested rows with whole-number coefficients. Entries 0 and 1 are the plain case, which `plain` makes a `Design`.

    Every part of the rows keeps the r of all of them: a combination of some rows is one of all.

    Attributes:
        matrix: int64[groups, clients]: by which whole number a client multiplies its update before it is masked; 0 where it
            is not in the group.
        stages: How many rows each stage opens, in order.
        name: A short name.
        source: Where the matrix comes from.

    Raises:
        ShapeError: If the matrix holds no integers.
        DesignError: If the matrix is no groups x clients matrix of whole numbers from 0 to 255, a group has no member, or
            the stages are not positive numbers that add up to the groups.

    Examples:
        >>> from fedgt.design import StagedDesign
        >>> rows = [[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]]
        >>> design = StagedDesign(matrix=rows, stages=(2, 1), name="nested", source="by hand")
        >>> design.stages  # two sums first, a third one only if they look suspicious
        (2, 1)
    """

    matrix: IntArray
    stages: tuple[int, ...]
    name: str
    source: str

    def __post_init__(self) -> None:
        """Freeze and check."""
        given = as_integers(self.matrix, f"design {self.name!r}")
        if given.ndim != 2 or 0 in given.shape:
            raise DesignError(f"design {self.name!r}: a groups x clients matrix is needed, got shape {given.shape}")
        if given.min() < 0 or given.max() > LARGEST_COEFFICIENT:
            raise DesignError(
                f"design {self.name!r}: whole numbers from 0 to {LARGEST_COEFFICIENT} are needed, got {given.min()} "
                f"to {given.max()}"
            )
        if not given.any(axis=1).all():
            raise DesignError(f"design {self.name!r}: group {int(given.any(axis=1).argmin())} has no members")
        if not self.stages or min(self.stages) < 1 or sum(self.stages) != len(given):
            raise DesignError(
                f"design {self.name!r}: stages of {self.stages} rows; positive numbers that add up to {len(given)} are "
                "needed"
            )
        object.__setattr__(self, "matrix", frozen(given, np.int64))

    @property
    def groups(self) -> int:
        """The number of rows of all stages."""
        return int(self.matrix.shape[0])

    @property
    def clients(self) -> int:
        """The number of clients, n."""
        return int(self.matrix.shape[1])

    @property
    def largest_entry(self) -> int:
        """1 for a plain design; the entries cost bits of the masked vectors."""
        return int(self.matrix.max())

    @property
    def uploads(self) -> IntArray:
        """int64[clients]: in how many sums of all stages each client is."""
        count: IntArray = (self.matrix > 0).sum(axis=0)
        return count

    def stage(self, number: int) -> IntArray:
        """int64[rows, clients]: what a stage adds, the first is 0."""
        ends = [0, *accumulate(self.stages)]
        return self.matrix[ends[number] : ends[number + 1]]

    def first(self, groups: int) -> "StagedDesign":
        """The first so many rows, at least 1: they keep r as well."""
        ends = list(accumulate(self.stages))
        starts = [0, *ends]
        stages = tuple(min(end, groups) - start for start, end in zip(starts, ends, strict=False) if start < groups)
        named = re.sub(rf"x{self.groups}\b", f"x{groups}", self.name)
        return StagedDesign(
            matrix=self.matrix[:groups],
            stages=stages,
            name=self.name if groups == self.groups else named if named != self.name else f"{self.name}-first-{groups}",
            source=self.source,
        )

    @property
    def plain(self) -> Design:
        """All rows as groups without coefficients.

        Raises:
            DesignError: If an entry is larger than 1.
        """
        if self.largest_entry > 1:
            raise DesignError(
                f"design {self.name!r} has coefficients up to {self.largest_entry}; groups of a plain design have 0 and 1"
            )
        return self.membership

    @property
    def membership(self) -> Design:
        """Who is in which group, whatever the coefficients."""
        return Design(matrix=(self.matrix > 0).astype(np.uint8), name=self.name, source=self.source)


AnyDesign: TypeAlias = Design | StagedDesign
"""Groups without coefficients, or with them."""


def design_of_rows(
    matrix: npt.ArrayLike, *, coefficients: bool, name: str = "custom", source: str = "given by the user"
) -> AnyDesign:
    """A design of rows that somebody gave: entries above 1 only where they are meant.

    Args:
        matrix: [groups, clients].
        coefficients: Whether entries up to 255 are coefficients; otherwise they must be 0 or 1.
        name: A short name.
        source: Where the rows come from.

    Raises:
        DesignError: If the rows are none of this kind.
        ShapeError: If they are no integers.

    Examples:
        >>> from fedgt.design import design_of_rows
        >>> design_of_rows([[2, 1, 0], [0, 1, 1]], coefficients=True).largest_entry
        2
    """
    if not coefficients:
        return from_matrix(matrix, name=name, source=source)
    rows = as_integers(matrix, f"design {name!r}")
    found = StagedDesign(matrix=rows, stages=(len(rows),) if rows.ndim else (1,), name=name, source=source)
    return found if found.largest_entry > 1 else found.plain


def read_rows(path: Path) -> AnyDesign:
    """A design from a file as `read_design` takes it, whose entries may be coefficients up to 255.

    Raises:
        DesignError: If the file cannot be read as such a matrix; the message names the line.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.design import read_rows
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "groups.json"
        ...     _ = path.write_text("[[2, 1, 0], [0, 1, 1]]")
        ...     read_rows(path).largest_entry
        2
    """
    rows, name, source = rows_in(path, largest=LARGEST_COEFFICIENT)
    return design_of_rows(rows, coefficients=True, name=name, source=source)
