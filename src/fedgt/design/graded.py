"""Designs for graded evidence: 15 clients whose small sets of attackers shift the group means in different directions.

Binary outcomes ask whether a group is clean; graded evidence looks along which line the group means move. Two sets of
attackers that move them along the same line cannot be told apart, so these designs have few such ties. They are poor for
binary outcomes (the one with ten groups stands 3 attackers at kappa = .2, not 5). Found by random search over groups of 4 to
9 clients under the constraint r; r stays at least 4 when the sum over all clients is revealed too.
"""

import numpy as np

from fedgt.design.matrix import Design

_ROWS = {
    "graded-15x10": (
        "101011011100011 110101101000100 001000110101010 001100100100001 010011110010110 "
        "100000100010011 001111101001011 101000011010100 000111011111010 101001001011001",
        "random search, r = 4, no two sets of up to 6 attackers in one direction",
    ),
    "graded-15x9": (
        "101001011001001 111000001010100 011111110000010 100110010000110 110011000110001 "
        "011100100110101 110101111100000 101100011110010 110000101110011",
        "random search, r = 5, no two sets of up to 4 attackers in one direction",
    ),
    "graded-15x8": (
        "111001000011110 010100011100000 000111000111010 010111100000011 "
        "001011101101101 100101010101101 101111110010000 101000101110011",
        "random search, r = 5, no two sets of up to 3 attackers in one direction",
    ),
}

GRADED = tuple(_ROWS)
"""The names."""


def graded(name: str) -> Design:
    """One of `GRADED`."""
    rows, source = _ROWS[name]
    matrix = np.array([[int(bit) for bit in row] for row in rows.split()], dtype=np.uint8)
    return Design(matrix=matrix, name=name, source=source)
