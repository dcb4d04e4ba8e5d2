"""Every sensible design of every family for a number of clients: what a search goes through.

A candidate is written down as its name first and then built from it, so the name identifies the design and builds it again.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from fedgt.design.codes import Exponents, check_polynomials
from fedgt.design.matrix import Design
from fedgt.design.named import named_design, named_designs
from fedgt.errors import DesignError

MOST_CLIENTS = 1000
"""The most clients for which candidates are listed."""

_ALL_CODES = 64  # clients up to which every cyclic code is listed
_MOST_CODES = 200  # of one length and number of groups beyond that; evenly spread over the list of all
_PARENTS = 128  # the longest code that is shortened or punctured
_PARENTS_PER_LENGTH = 40
_FULLEST = (
    0.6  # random groups hold at most this share of the clients, and clients are in at most this share of the groups
)
_MOST_PUNCTURED = 6
_WIDEST_BAND = 12

T = TypeVar("T")


def candidates(clients: int, *, groups: range, rng: np.random.Generator, draws: int = 20) -> Iterator[Design]:
    """All sensible designs of all families for that many clients and those numbers of groups.

    For every number of groups, in the order of the range: named designs, the two extremes, disjoint groups, BCH and all
    cyclic codes of that length; then up to `draws` each of shortened codes with the first and with random columns, punctured
    ones likewise, constant column weight, constant row weight, quasi-cyclic and banded designs, spread evenly over their
    parameters. Beyond 64 clients, at most 200 cyclic codes of each number of groups.

    Args:
        clients: n, from 1 to 1000.
        groups: The numbers of groups m, each at least 1.
        rng: Seeds the random designs; the same state gives the same designs in the same order.
        draws: Designs of each random family for every number of groups.

    Returns:
        An iterator over designs that differ in more than the order of their groups (and more than the reversal of their
        clients). None has an empty group, a client in no group, two groups with the same members, a group of everybody
        (but `single-group-N`) or a group of one (but `identity-N`). `named_design(design.name)` is the same design, and
        `design.source` names its literature. Not every number of groups need have a design.

    Raises:
        DesignError: If the clients, the numbers of groups or the draws are impossible; before anything is generated.

    Examples:
        >>> import numpy as np
        >>> from fedgt.design import candidates
        >>> found = candidates(10, groups=range(6, 8), rng=np.random.default_rng(0), draws=2)
        >>> sorted({design.groups for design in found})
        [6, 7]
    """
    if not 1 <= clients <= MOST_CLIENTS:
        raise DesignError(f"candidates for {clients} clients; 1 to {MOST_CLIENTS} are possible")
    if len(groups) == 0 or min(groups) < 1:
        raise DesignError(
            f"candidates with {groups} groups; a range of numbers from 1 on is needed, such as range(4, 13)"
        )
    most = max(1, 2**clients - 2)
    if min(groups) > most:
        raise DesignError(
            f"candidates with at least {min(groups)} groups; {clients} client{'s have' if clients > 1 else ' has'} only "
            f"{most} different group{'s' if most > 1 else ''} (other than all of them); use fewer groups"
        )
    if draws < 0:
        raise DesignError(f"{draws} draws; 0 or more are needed")
    return _generated(clients, groups, rng, draws)


def _generated(clients: int, groups: range, rng: np.random.Generator, draws: int) -> Iterator[Design]:
    fixed = [design for design in map(named_design, _names_of_one_size()) if design.clients == clients]
    seen: set[bytes] = set()
    for m in groups:
        names = [design.name for design in fixed if design.groups == m]
        names += [*_extremes(clients, m), *_codes(clients, m)]
        for family in (_shortened, _punctured, _column_weight, _row_weight, _quasi_cyclic, _banded):
            names += family(clients, m, rng, draws)
        for name in names:
            try:
                design = named_design(name)
            except DesignError:
                continue  # these columns, or this draw, leave a group empty or a client untested
            key = _key(design)
            if key not in seen and _sensible(design):
                seen.add(key)
                yield design


def _names_of_one_size() -> tuple[str, ...]:
    """The names that stand for one design, without a number of clients to fill in."""
    return tuple(name for name in named_designs() if not name.endswith("-N"))


def _sensible(design: Design) -> bool:
    sizes, n, m = design.group_sizes, design.clients, design.groups
    everybody_expected, alone_expected = m == 1, bool(m == n and (sizes == 1).all())
    return not (
        design.untested
        or design.identical_groups
        or (sizes.max() == n and not everybody_expected)
        or (sizes.min() == 1 and not alone_expected)
    )


def _key(design: Design) -> bytes:
    """The same for two designs that differ by the order of their groups or by the reversal of their clients."""
    return min(
        b"".join(sorted(row.tobytes() for row in np.packbits(matrix, axis=1)))
        for matrix in (design.matrix, design.matrix[:, ::-1])
    )


def _codes(n: int, m: int) -> Iterator[str]:
    if not 0 < m < n:
        return
    if (n + 1) & n == 0:
        yield f"bch-{n}x{m}"
    known = check_polynomials(n, n - m)
    for h in known if n <= _ALL_CODES else _spread(known, _MOST_CODES):
        yield _cyclic_name(n, m, h)


def _extremes(n: int, m: int) -> Iterator[str]:
    if m == 1:
        yield f"single-group-{n}"
    elif m == n:
        yield f"identity-{n}"
    elif 2 * m <= n:
        yield f"column-weight-{n}x{m}-w1-s0"


def _shortened(n: int, m: int, rng: np.random.Generator, draws: int) -> list[str]:
    parents = [name for length in range(n + 1, min(_PARENTS, n + max(11, n // 2)) + 1) for name in _parents(length, m)]
    return [f"shortened-{n}x{m}{suffix}-of-{name}" for name, suffix in _twice(parents, rng, draws)]


def _punctured(n: int, m: int, rng: np.random.Generator, draws: int) -> list[str]:
    parents = [
        name for cut in range(1, _MOST_PUNCTURED + 1) if n + cut <= _PARENTS for name in _parents(n + cut, m + cut)
    ]
    return [f"punctured-{n}x{m}{suffix}-of-{name}" for name, suffix in _twice(parents, rng, draws)]


def _parents(length: int, m: int) -> list[str]:
    if not 0 < m < length:
        return []
    known = _spread(check_polynomials(length, length - m), _PARENTS_PER_LENGTH)
    return [_cyclic_name(length, m, h) for h in known]


def _cyclic_name(length: int, m: int, h: Exponents) -> str:
    return f"cyclic-{length}x{m}-h{sum(1 << e for e in h):x}"


def _twice(parents: Sequence[str], rng: np.random.Generator, draws: int) -> list[tuple[str, str]]:
    """With the first columns, and with random ones."""
    spread = _spread(parents, draws)
    return [(name, "") for name in spread] + [(name, f"-s{_seed(rng)}") for name in _filled(spread, draws)]


def _column_weight(n: int, m: int, rng: np.random.Generator, draws: int) -> list[str]:
    weights = range(2, min(m - 1, max(2, round(_FULLEST * m))) + 1)
    return [f"column-weight-{n}x{m}-w{w}-s{_seed(rng)}" for w in _filled(weights, draws)]


def _row_weight(n: int, m: int, rng: np.random.Generator, draws: int) -> list[str]:
    weights = range(max(2, -(-n // m)), min(n - 1, max(2, round(_FULLEST * n))) + 1)
    return [f"row-weight-{n}x{m}-k{k}-s{_seed(rng)}" for k in _filled(weights, draws)]


def _quasi_cyclic(n: int, m: int, rng: np.random.Generator, draws: int) -> list[str]:
    most = max(2, round(_FULLEST * m))
    grids = [(p, w) for p in range(2, n + 1) if n % p == 0 and p <= max(m, n // 2) for w in range(2, most + 1)]
    return [f"quasi-cyclic-{n}x{m}-p{p}-w{w}-s{_seed(rng)}" for p, w in _filled(grids, draws)]


def _banded(n: int, m: int, rng: np.random.Generator, draws: int) -> list[str]:
    bands = [
        (w, b) for w in range(2, 6) for b in sorted({w + 1, w + 2, 2 * w, 2 * w + 2}) if b < min(m, _WIDEST_BAND + 1)
    ]
    return [f"banded-{n}x{m}-w{w}-b{b}-s{_seed(rng)}" for w, b in _filled(bands, draws)]


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 32))


def _spread(items: Sequence[T], most: int) -> list[T]:
    """At most so many of them, evenly spread."""
    if len(items) <= most:
        return list(items)
    return [items[i] for i in (np.arange(most) * len(items) // max(1, most)).tolist()]


def _filled(items: Sequence[T], count: int) -> list[T]:
    """Exactly that many, evenly spread, with repetition where there are fewer; none if there is nothing to choose from."""
    return [items[i] for i in (np.arange(count) * len(items) // max(1, count)).tolist()] if items else []
