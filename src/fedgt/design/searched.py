"""Designs at the bound n - r + 1 that were searched: smaller entries than a construction has, each with a certificate.

`searched.json` holds them. A certificate is a combination of the rows that mixes r clients; that none mixes fewer is
for `fedgt.privacy.minimum_support` to prove, which the tests do for every design. Those named `nested` begin with a
partition of the clients, in those named `regular` every client has the same total, and both have the sum over everybody
in their span.
"""

import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files

import numpy as np

from fedgt.design.named import named_design
from fedgt.design.stages import AnyDesign, StagedDesign
from fedgt.errors import DesignError


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedDesign:
    """A design, the r that was proved for it, and what attains it.

    Attributes:
        design: The rows; entries above 1 are coefficients.
        privacy: r, exactly.
        combination: b: element i multiplies row i; b times the rows is not zero on `clients` only.
        clients: The r clients that it mixes, ascending.

    Examples:
        >>> from fedgt.design import searched_design
        >>> one = searched_design("nested-15x12-r4")
        >>> one.privacy == len(one.clients)
        True
    """

    design: StagedDesign
    privacy: int
    combination: tuple[Fraction, ...]
    clients: tuple[int, ...]


def searched_designs() -> tuple[str, ...]:
    """The names that `searched_design` knows: `nested-15x12-r4` has 12 rows for 15 clients, r = 4 and entries 0 and 1.

    Examples:
        >>> from fedgt.design import searched_designs
        >>> "nested-15x12-r4" in searched_designs()
        True
    """
    return tuple(_all())


def searched_design(name: str) -> SearchedDesign:
    """One of `searched_designs`.

    Raises:
        DesignError: If there is none of that name; the message lists them.

    Examples:
        >>> from fedgt.design import searched_design
        >>> one = searched_design("nested-15x12-r4")
        >>> one.privacy, one.design.stages, one.design.largest_entry
        (4, (3, 9), 1)
    """
    known = _all()
    if name not in known:
        raise DesignError(f"no searched design {name!r}; known are {', '.join(known)}")
    return known[name]


@cache
def _all() -> dict[str, SearchedDesign]:
    text = files("fedgt.design").joinpath("searched.json").read_text(encoding="utf-8")
    return {
        one["name"]: SearchedDesign(
            design=StagedDesign(
                matrix=np.array([[int(entry) for entry in row] for row in one["rows"]], dtype=np.int64),
                stages=tuple(one["stages"]),
                name=one["name"],
                source=f"search at the bound, r = {one['r']}",
            ),
            privacy=one["r"],
            combination=tuple(Fraction(b) for b in one["combination"]),
            clients=tuple(one["clients"]),
        )
        for one in json.loads(text)
    }


def any_design(name: str) -> AnyDesign:
    """A design by name, with coefficients or without: one of `searched_designs`, or what `named_design` knows.

    Raises:
        DesignError: If the name is unknown.

    Examples:
        >>> from fedgt.design import any_design
        >>> any_design("regular-15x10-r6-c3").largest_entry, any_design("bch-15x8").groups
        (3, 8)
    """
    if name not in _all():
        return named_design(name)
    found = searched_design(name).design
    return found if found.largest_entry > 1 else found.plain
