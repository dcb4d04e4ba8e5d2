"""The designs that have a name, so that a specification can ask for one by name."""

import difflib
import re
from collections.abc import Callable

from numpy.random import default_rng

from fedgt.design.banded import banded
from fedgt.design.codes import bch, cyclic
from fedgt.design.constant_weight import constant_column_weight, constant_row_weight
from fedgt.design.graded import graded_designs
from fedgt.design.matrix import Design, identity, single_group
from fedgt.design.quasi_cyclic import drawn_quasi_cyclic
from fedgt.design.shortening import punctured, shortened
from fedgt.errors import DesignError

_FIXED: dict[str, Callable[[], Design]] = {
    "bch-15x8": lambda: bch(15, 7),
    "cyclic-30x12": lambda: cyclic(30, 18),
    "hamming-15x4": lambda: _renamed(bch(15, 11), "hamming-15x4"),
    "bch-31x10": lambda: bch(31, 21),
}
_PATTERNS: tuple[tuple[str, Callable[[int], Design]], ...] = (("identity", identity), ("single-group", single_group))


def _cyclic(clients: str, groups: str, check_polynomial: str) -> Design:
    n, bits = int(clients), int(check_polynomial, 16)
    h = tuple(e for e in reversed(range(bits.bit_length())) if bits >> e & 1)
    return cyclic(n, n - int(groups), check_polynomial=h)


def _cut(how: str, clients: str, groups: str, seed: str | None, parent: str) -> Design:
    cut = shortened if how == "shortened" else punctured
    whole = _built(parent)
    if whole is None:
        raise DesignError(f"{how} from the unknown design {parent!r}")
    design = cut(whole, int(clients), rng=None if seed is None else default_rng(int(seed)))
    if design.groups != int(groups):
        raise DesignError(f"{parent} {how} to {clients} clients has {design.groups} groups, not {groups}")
    return design


# The members of the families: what a name says is all that is needed to build the design again. `N`, `M`, `W`, ... stand for
# numbers, `SEED` for that of numpy's default generator.
_FAMILIES: dict[str, Callable[..., Design]] = {
    "bch-NxM": lambda n, m: bch(n, n - m),
    "cyclic-NxM": lambda n, m: cyclic(n, n - m),
    "column-weight-NxM-wW-sSEED": lambda n, m, w, s: constant_column_weight(n, m, per_client=w, rng=default_rng(s)),
    "row-weight-NxM-kK-sSEED": lambda n, m, k, s: constant_row_weight(n, m, per_group=k, rng=default_rng(s)),
    "quasi-cyclic-NxM-pP-wW-sSEED": lambda n, m, p, w, s: drawn_quasi_cyclic(
        n, m, size=p, per_client=w, rng=default_rng(s)
    ),
    "banded-NxM-wW-bB-sSEED": lambda n, m, w, b, s: banded(n, m, per_client=w, window=b, rng=default_rng(s)),
}
_SPELLED: dict[str, tuple[str, Callable[..., Design]]] = {
    "cyclic-NxM-hHEX": (r"cyclic-(\d+)x(\d+)-h([0-9a-f]+)", _cyclic),
    "shortened-NxM[-sSEED]-of-NAME": (r"(shortened)-(\d+)x(\d+)(?:-s(\d+))?-of-(.+)", _cut),
    "punctured-NxM[-sSEED]-of-NAME": (r"(punctured)-(\d+)x(\d+)(?:-s(\d+))?-of-(.+)", _cut),
}


def named_designs() -> tuple[str, ...]:
    """The names that `named_design` knows without a family; `N` stands for a number of clients.

    Examples:
        >>> from fedgt.design import named_designs
        >>> "bch-15x8" in named_designs()
        True
    """
    return (*_FIXED, *graded_designs(), *(f"{stem}-N" for stem, _ in _PATTERNS))


def named_families() -> tuple[str, ...]:
    """The patterns of the names of members of families: N clients, M groups, other numbers as the family calls them.

    Examples:
        >>> from fedgt.design import named_families
        >>> named_families()[0]
        'bch-NxM'
    """
    return (*_FAMILIES, *_SPELLED)


def named_design(name: str) -> Design:
    """A design by name: `bch-15x8` (the paper's 15 clients), `cyclic-30x12` (its 30 clients), `identity-15`, ...

    Every name that `fedgt.design.candidates` gives is one, such as `banded-300x60-w3-b6-s1` or
    `shortened-20x10-s7-of-bch-31x10`. Random ones hang on numpy's `default_rng`, whose stream a later numpy may change: keep
    the matrix, not the name, of what is in use.

    Raises:
        DesignError: If the name is unknown (the message lists the choices), or no such member of the family exists.

    Examples:
        >>> from fedgt.design import named_design
        >>> named_design("cyclic-30x12").groups
        12
        >>> named_design("identity-4").groups
        4
    """
    try:
        design = _built(name)
    except DesignError as error:
        raise DesignError(f"no design {name!r}: {error}; known are {', '.join(named_designs())}") from error
    if design is None:
        near = difflib.get_close_matches(name, named_designs(), n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise DesignError(
            f"unknown design {name!r}; {meant}known are {', '.join(named_designs())}, members of families "
            f"({', '.join(named_families())}), or give a CSV or JSON file with the matrix"
        )
    return design


def _built(name: str) -> Design | None:
    """The design of that name, or nothing when no pattern fits."""
    if name in _FIXED:
        return _FIXED[name]()
    if name in graded_designs():
        return graded_designs()[name]
    for stem, make in _PATTERNS:
        match = re.fullmatch(rf"{stem}-(\d+)", name)
        if match:
            return make(int(match.group(1)))
    for stem, build in _FAMILIES.items():
        match = re.fullmatch(re.sub("SEED|[A-Z]", r"(\\d+)", stem), name)
        if match:
            return _renamed(build(*map(int, match.groups())), name)
    for pattern, build in _SPELLED.values():
        match = re.fullmatch(pattern, name)
        if match:
            return _renamed(build(*match.groups()), name)
    return None


def _renamed(design: Design, name: str) -> Design:
    return Design(matrix=design.matrix, name=name, source=design.source)
