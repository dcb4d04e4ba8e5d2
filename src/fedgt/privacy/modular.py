"""Arithmetic modulo the prime 2^31 - 1, for whole arrays at once: what the search for light combinations is made of.

Residues are int64 from 0 to p - 1. The prime is a Mersenne prime, so that a product is reduced by adding its high bits to
its low bits, several times faster than by a division.
"""

import numpy as np

from fedgt.types import IntArray

PRIME = 2_147_483_647
"""2^31 - 1: the sum of two products of residues fits into int64."""

ZERO_COLUMN = -1
"""The ratio symbol of a column (0, 0)."""

_SMALL = 1000  # array elements, below which one slow operation is faster than five quick ones

_INFINITE = PRIME  # the ratio symbol of a column (x, 0)


def residues(values: IntArray) -> IntArray:
    """Integers from 0 to 2 p^2 as residues."""
    if values.size < _SMALL:
        return values % PRIME
    low = (values & PRIME) + (values >> 31)  # 2^31 = 1 modulo p
    low = (low & PRIME) + (low >> 31)
    np.subtract(low, PRIME, out=low, where=low >= PRIME)
    return low


def inverses(values: IntArray) -> IntArray:
    """Inverses along the last axis with one exponentiation per row (Montgomery's trick); 0 is answered with 1."""
    safe = np.where(values == 0, 1, values)
    n = safe.shape[-1]
    prefix = np.ones_like(safe)
    for j in range(1, n):
        prefix[..., j] = residues(prefix[..., j - 1] * safe[..., j - 1])
    inverse = np.empty_like(safe)
    if n == 0:
        return inverse
    running = _powers(residues(prefix[..., -1] * safe[..., -1]))
    for j in range(n - 1, -1, -1):
        inverse[..., j] = residues(running * prefix[..., j])
        running = residues(running * safe[..., j])
    return inverse


def ratios(x: IntArray, y: IntArray, inverse: IntArray) -> IntArray:
    """The quotients x / y of equal shapes, with `inverse` = `inverses(y)`: equal exactly for parallel columns (x, y)."""
    ratio = residues(x * inverse)
    ratio[y == 0] = _INFINITE
    ratio[(x == 0) & (y == 0)] = ZERO_COLUMN
    return ratio


def reduced_rows(matrix: IntArray) -> tuple[IntArray, tuple[int, ...]]:
    """(int64[rank, n] the row space in reduced echelon form, the pivot columns ascending)."""
    rows = matrix.copy()
    pivots: list[int] = []
    for column in range(rows.shape[1]):
        start = len(pivots)
        if start == rows.shape[0]:
            break
        below = np.flatnonzero(rows[start:, column])
        if not below.size:
            continue
        rows[[start, start + below[0]]] = rows[[start + below[0], start]]
        rows[start] = residues(rows[start] * pow(int(rows[start, column]), -1, PRIME))
        factors = rows[:, column].copy()
        factors[start] = 0
        rows = residues(rows + (PRIME - factors)[:, None] * rows[start])
        pivots.append(column)
    return rows[: len(pivots)], tuple(pivots)


def _powers(values: IntArray) -> IntArray:
    """values^(p - 2): inverses by Fermat's little theorem."""
    result = np.ones_like(values)
    base, exponent = values.copy(), PRIME - 2
    while exponent:
        if exponent & 1:
            result = residues(result * base)
        base = residues(base * base)
        exponent >>= 1
    return result
