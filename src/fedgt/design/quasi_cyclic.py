"""Quasi-cyclic designs: a grid of circulant blocks, each row of a block the one before shifted by one, with wrap.

R. L. Townsend and E. J. Weldon, "Self-orthogonal quasi-cyclic codes", IEEE Transactions on Information Theory 13, 1967;
M. P. C. Fossorier, "Quasi-cyclic low-density parity-check codes from circulant permutation matrices", IEEE Transactions on
Information Theory 50, 2004. They exist for every number of clients, also where no cyclic code does, and all groups of a
block row have the same size.
"""

from collections.abc import Sequence

import numpy as np

from fedgt.design.matrix import Design, check_size
from fedgt.errors import DesignError

Shifts = Sequence[Sequence[Sequence[int]]]


def quasi_cyclic(shifts: Shifts, *, size: int, groups: int | None = None) -> Design:
    """The design of given circulant blocks.

    Args:
        shifts: shifts[b][l] lists the ones in the first row of block (b, l), as columns from 0 to size - 1; an empty list is
            a block of zeros. Row i of the block has the same ones moved right by i, modulo the size.
        size: p, clients and groups of a block; the design has p times as many clients as the grid has block columns.
        groups: Keep the first rows only; all of them when not given.

    Raises:
        DesignError: If the grid is not a rectangle, a shift is outside 0..size - 1 or listed twice in a block, or the number
            of groups is not from 1 to the number of rows; also if a group is left empty.

    Examples:
        >>> from fedgt.design import quasi_cyclic
        >>> design = quasi_cyclic([[[0], [1]], [[0, 1], [2]]], size=3)
        >>> design.matrix.shape
        (6, 6)
    """
    widths = {len(row) for row in shifts}
    if size < 1 or len(widths) != 1 or widths == {0}:
        raise DesignError(
            f"quasi-cyclic design of block size {size} with rows of {sorted(widths)} blocks; a size of at least 1 and at "
            "least one row of blocks are needed, all rows with the same number of blocks"
        )
    columns = widths.pop()
    rows = len(shifts) * size
    if groups is not None and not 1 <= groups <= rows:
        raise DesignError(
            f"quasi-cyclic design with {rows} rows: {groups} groups cannot be kept; 1 to {rows} are possible"
        )
    matrix = np.zeros((rows, columns * size), dtype=np.uint8)
    step = np.arange(size)
    for b, row in enumerate(shifts):
        for block, ones in enumerate(row):
            if len(set(ones)) < len(ones) or not all(0 <= one < size for one in ones):
                raise DesignError(
                    f"quasi-cyclic design, block ({b}, {block}): shifts {list(ones)}; different numbers from 0 to "
                    f"{size - 1} are needed"
                )
            for one in ones:
                matrix[b * size + step, block * size + (one + step) % size] = 1
    kept = matrix[:groups]
    return Design(
        matrix=kept,
        name=f"quasi-cyclic-{columns * size}x{len(kept)}-p{size}",
        source=f"circulant blocks of size {size} with the shifts {_text(shifts)} (Townsend and Weldon 1967; Fossorier 2004)",
    )


def drawn_quasi_cyclic(clients: int, groups: int, *, size: int, per_client: int, rng: np.random.Generator) -> Design:
    """A quasi-cyclic design with random shifts.

    Every column of blocks gets `per_client` ones, spread at random over its ceil(groups / size) blocks. When the size does
    not divide the number of groups, the last rows are left out, so some clients are in fewer groups.

    Args:
        clients: n, a multiple of the size.
        groups: m.
        size: p, the size of a circulant block.
        per_client: w, the ones of a whole column, from 1 to ceil(m / p) p.
        rng: The source of randomness; the same state gives the same design.

    Raises:
        DesignError: If the size does not divide the clients, w is impossible, or a group is left empty.

    Examples:
        >>> import numpy as np
        >>> from fedgt.design import drawn_quasi_cyclic
        >>> design = drawn_quasi_cyclic(12, 6, size=3, per_client=2, rng=np.random.default_rng(0))
        >>> design.matrix.sum(axis=0).tolist()
        [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    """
    check_size(clients, groups)
    if size < 1 or clients < 1 or clients % size or groups < 1:
        divisors = ", ".join(str(p) for p in range(1, clients + 1) if clients % p == 0)
        raise DesignError(
            f"quasi-cyclic design of {clients} clients, {groups} groups and block size {size}; at least one client and one "
            f"group are needed, and a size that divides the clients ({divisors or 'of whom there are none'})"
        )
    block_rows = -(-groups // size)
    if not 1 <= per_client <= block_rows * size:
        raise DesignError(f"{per_client} groups a client in {groups} groups; 1 to {block_rows * size} are possible")
    shifts: list[list[list[int]]] = [[[] for _ in range(clients // size)] for _ in range(block_rows)]
    for column in range(clients // size):
        for place in np.sort(rng.choice(block_rows * size, size=per_client, replace=False)).tolist():
            shifts[place // size][column].append(place % size)
    design = quasi_cyclic(shifts, size=size, groups=groups)
    return Design(
        matrix=design.matrix, name=f"quasi-cyclic-{clients}x{groups}-p{size}-w{per_client}", source=design.source
    )


def _text(shifts: Shifts) -> str:
    return " / ".join(" ".join("+".join(map(str, ones)) or "-" for ones in row) for row in shifts)
