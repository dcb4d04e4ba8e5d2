"""Groups by construction: for every number of clients and every r as many sums as r allows, with a proof of any size.

k independent sums of n clients promise at most r = n - k + 1. A generalised Reed-Solomon code over GF(p) of length n and
dimension k reaches this bound (I. S. Reed and G. Solomon, "Polynomial codes over certain finite fields", 1960). Its words
are v_j f(x_j) for the polynomials f of degree below k, and a polynomial has too few zeros for a word with fewer than
n - k + 1 entries. Read modulo p, the rows of a design here are such words:

* **The first stage is a partition** of the clients into groups of at least r. With v_j = 1 / prod (x_j - x_z) over the z
  outside of client j's group, the indicator of a group is the word of prod (x - x_z) over the z outside, whose degree is at
  most n - r.
* **Each later row has exactly r members**, the fewest that keep r: r clients in a circle, and up to a factor one word.

The entries are whole numbers from 0 to p - 1, by which a client multiplies its update. **Proof**: let w be any combination
of the rows over the rationals, scaled to coprime whole numbers. The rows are independent modulo p, so w modulo p is a
combination of them and not zero; it is a word of the code, so at least r of its entries are not 0 modulo p, nor are those
of w. Nothing is enumerated, and every part of the rows keeps r as well.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from fedgt.design.stages import StagedDesign
from fedgt.errors import DesignError
from fedgt.types import IntArray

MOST_CLIENTS = 200
"""The most clients of a construction: its entries grow with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeProof:
    """Why rows of whole numbers keep r, for anybody to check with `proved`.

    Attributes:
        prime: p.
        points: x_j, a different residue for each client.
        multipliers: v_j, a residue that is not 0 for each client.
        privacy: The r that follows.

    Examples:
        >>> from fedgt.design import reed_solomon
        >>> _, proof = reed_solomon(8, 3)
        >>> proof.privacy, len(proof.points)
        (3, 8)
    """

    prime: int
    points: tuple[int, ...]
    multipliers: tuple[int, ...]
    privacy: int


def reed_solomon(clients: int, privacy: int, *, groups: int | None = None) -> tuple[StagedDesign, CodeProof]:
    """A design with coefficients that keeps r, whose first stage is a partition of the clients, and its proof.

    Args:
        clients: n, from 2 to 200.
        privacy: r, from 1 to n / 2 (rounded down), so that there are two groups at least.
        groups: Rows, from the groups of the partition to n - r + 1, which is the default.

    Raises:
        DesignError: If a number is out of its range.

    Examples:
        >>> from fedgt.design import reed_solomon
        >>> design, proof = reed_solomon(8, 3)
        >>> design.matrix.shape, design.stages, proof.prime
        ((6, 8), (2, 4), 11)
    """
    if not 2 <= clients <= MOST_CLIENTS:
        raise DesignError(f"{clients} clients; 2 to {MOST_CLIENTS} are possible")
    if not 1 <= privacy <= clients // 2:
        raise DesignError(
            f"privacy {privacy} of {clients} clients; 1 to {clients // 2} is possible, so that there are two groups"
        )
    first = clients // privacy
    most = clients - privacy + 1
    groups = most if groups is None else groups
    if not first <= groups <= most:
        raise DesignError(f"{groups} groups; {first} (the partition) to {most} (the bound n - r + 1) are possible")
    prime = _prime_from(clients)
    points = tuple(range(clients))
    part = tuple(j % first for j in range(clients))  # neighbours are apart, so that later rows cross the first ones
    multipliers = tuple(
        pow(prod(points[j] - points[z] for z in range(clients) if part[z] != part[j]) % prime, -1, prime)
        for j in range(clients)
    )
    proof = CodeProof(prime=prime, points=points, multipliers=multipliers, privacy=privacy)
    rows = [[int(part[j] == group) for j in range(clients)] for group in range(first)]
    basis = _Basis(prime)
    for row in rows:
        basis.adds(row)
    for start in _spread(most):
        if len(rows) == groups:
            break
        word = _lightest_word(proof, range(start, start + privacy))
        if basis.adds(word):
            rows.append(_smallest(word, prime))
    stages = (first,) if groups == first else (first, groups - first)
    design = StagedDesign(
        matrix=np.array(rows, dtype=np.int64),
        stages=stages,
        name=f"reed-solomon-{clients}x{groups}-r{privacy}",
        source=f"generalised Reed-Solomon code of length {clients} and distance {privacy} over GF({prime})",
    )
    return design, proof


def proved(matrix: IntArray, proof: CodeProof) -> bool:
    """Whether the proof holds for these rows: they are independent words of a code of distance r, modulo p.

    Args:
        matrix: int64[groups, clients], whole numbers.
        proof: What is claimed. Nothing of how the rows were made is needed.

    Examples:
        >>> from fedgt.design import proved, reed_solomon
        >>> design, proof = reed_solomon(8, 3)
        >>> other = design.matrix.copy()
        >>> other[0, 0] += 1
        >>> proved(design.matrix, proof), proved(other, proof)
        (True, False)
    """
    n, p, r = matrix.shape[1], proof.prime, proof.privacy
    x, v = proof.points, proof.multipliers
    if not (_is_prime(p) and len(x) == len(v) == n and len({one % p for one in x}) == n and all(one % p for one in v)):
        return False
    if not 1 <= r <= n:
        return False
    # A word is orthogonal to the words of the dual code, which is of the same kind with other multipliers.
    dual = [pow(v[j] * prod(x[j] - x[z] for z in range(n) if z != j) % p, -1, p) for j in range(n)]
    rows = [[int(one) % p for one in row] for row in matrix.tolist()]
    for power in range(r - 1):
        check = [dual[j] * pow(x[j], power, p) % p for j in range(n)]
        if any(sum(a * b for a, b in zip(row, check, strict=True)) % p for row in rows):
            return False
    basis = _Basis(p)
    return all(basis.adds(row) for row in rows)


def _lightest_word(proof: CodeProof, members: range) -> list[int]:
    """The word that is not zero on r clients only, up to a factor."""
    p, n = proof.prime, len(proof.points)
    inside = set(members)
    outside = [proof.points[z] for z in range(n) if z not in inside]
    return [
        proof.multipliers[j] * prod(proof.points[j] - z for z in outside) % p if j in inside else 0 for j in range(n)
    ]


def _smallest(word: list[int], prime: int) -> list[int]:
    """The multiple of a word with the smallest largest entry, then the smallest sum."""
    multiples = ([factor * one % prime for one in word] for factor in range(1, prime))
    return min(multiples, key=lambda row: (max(row), sum(row)))


class _Basis:
    """Independent rows modulo p, in echelon form."""

    def __init__(self, prime: int) -> None:
        self._prime = prime
        self._rows: dict[int, list[int]] = {}

    def adds(self, row: list[int]) -> bool:
        """Whether the row is independent of those before; it is kept then."""
        p = self._prime
        left = [one % p for one in row]
        for pivot, known in self._rows.items():
            if factor := left[pivot]:
                left = [(a - factor * b) % p for a, b in zip(left, known, strict=True)]
        place = next((j for j, one in enumerate(left) if one), None)
        if place is None:
            return False
        inverse = pow(left[place], -1, p)
        self._rows[place] = [one * inverse % p for one in left]
        return True


def _spread(count: int) -> list[int]:
    """0 .. count - 1, so that the first of them lie far from each other: by bits in reverse."""
    bits = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda one: (int(format(one, f"0{bits}b")[::-1], 2), one))


def _prime_from(least: int) -> int:
    return next(p for p in range(max(2, least), 2 * least + 3) if _is_prime(p))


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % d for d in range(2, int(number**0.5) + 1))
