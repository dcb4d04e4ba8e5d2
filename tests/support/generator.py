"""The generator matrix of a cyclic code: what the parity-check matrices of the designs must be orthogonal to."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def generator_matrix(n: int, check_polynomial: Sequence[int]) -> npt.NDArray[np.uint8]:
    """uint8[k, n]: shifts of g = (x^n - 1) / h over GF(2), by long division; h is given by its exponents."""
    divisor = sum(1 << e for e in check_polynomial)
    rest, quotient = (1 << n) | 1, 0
    while rest.bit_length() >= divisor.bit_length():
        shift = rest.bit_length() - divisor.bit_length()
        quotient |= 1 << shift
        rest ^= divisor << shift
    assert rest == 0, "h does not divide x^n - 1"
    rows = np.zeros((max(check_polynomial), n), dtype=np.uint8)
    for row in range(len(rows)):
        rows[row, [e + row for e in range(n) if quotient >> e & 1]] = 1
    return rows
