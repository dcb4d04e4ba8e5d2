"""The designs that have a name, so that a specification can ask for one by name."""

import re
from collections.abc import Callable

from fedgt.design.codes import bch, cyclic
from fedgt.design.graded import GRADED, graded
from fedgt.design.matrix import Design, identity, single_group
from fedgt.errors import DesignError

_FIXED: dict[str, Callable[[], Design]] = {
    "bch-15x8": lambda: bch(15, 7),
    "cyclic-30x12": lambda: cyclic(30, 18),
    "hamming-15x4": lambda: _renamed(bch(15, 11), "hamming-15x4"),
    "bch-31x10": lambda: bch(31, 21),
}
_PATTERNS: tuple[tuple[str, Callable[[int], Design]], ...] = (("identity", identity), ("single-group", single_group))


def named_designs() -> tuple[str, ...]:
    """The names that `named_design` knows; `N` stands for a number of clients."""
    return (*_FIXED, *GRADED, *(f"{stem}-N" for stem, _ in _PATTERNS))


def named_design(name: str) -> Design:
    """A design by name: `bch-15x8` (the paper's 15 clients), `cyclic-30x12` (its 30 clients), `identity-15`, ...

    Raises:
        DesignError: If the name is unknown; the message lists the choices.
    """
    if name in _FIXED:
        return _FIXED[name]()
    if name in GRADED:
        return graded(name)
    for stem, make in _PATTERNS:
        match = re.fullmatch(rf"{stem}-(\d+)", name)
        if match:
            return make(int(match.group(1)))
    raise DesignError(
        f"unknown design {name!r}; known are {', '.join(named_designs())}, or give a CSV or JSON file with the matrix"
    )


def _renamed(design: Design, name: str) -> Design:
    return Design(matrix=design.matrix, name=name, source=design.source)
