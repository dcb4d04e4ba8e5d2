"""Orders of clients for the designs that have a name, so that nobody waits for the search of `fedgt.decode.ordering`.

Any order is a correct one; a good one is fast. The tests search again, and hold each to the cost of what is found.
"""

import hashlib

import numpy as np

from fedgt.types import BitArray, IntArray

_ORDERS = {
    "1a28409410a5198e": "0 1 2 3 4 11 7 5 8 9 6 10 12 13 14",  # bch-15x8
    "d47bdc577fd9cb06": "3 29 27 21 25 17 9 11 23 15 7 13 19 5 1 0 2 6 20 12 26 4 18 14 8 22 16 10 24 28",  # cyclic-30x12
    "4f7534ac5fabe353": "2 1 5 8 10 4 11 12 6 13 9 7 0 3 14",  # hamming-15x4
    "dd56414fadfcd1af": "0 1 2 3 4 5 6 7 20 23 8 11 13 15 21 9 10 12 18 16 26 14 19 24 17 22 25 28 29 27 30",  # bch-31x10
    "7f0a7e97494706c8": "1 12 0 10 4 5 8 3 6 2 7 13 14 9 11",  # graded-15x10
    "10bf658b35411c69": "11 4 5 7 3 2 12 0 13 1 6 8 9 10 14",  # graded-15x9
    "68d1f572b0885c0e": "7 0 8 12 1 14 3 9 5 11 6 4 2 10 13",  # graded-15x8
    "4bd7d5165bbdf239": "4 13 3 5 14 7 1 9 2 0 8 10 12 6 11",  # graded-15x10-b
    "2ed3cfef27a5da6b": "2 0 3 8 4 12 5 7 13 1 9 10 6 14 11",  # graded-15x9-b
    "84c40c647fe71605": "2 6 8 1 0 7 14 4 5 9 11 13 10 12 3",  # graded-15x8-b
    "12ce4d77a55e7cc6": "1 9 6 5 7 8 0 2 4 3",  # graded-10x5
    "9e71c362789349f7": "3 7 9 8 0 1 6 2 5 4",  # graded-10x6
    "4abee74a7d67993c": "19 1 12 9 2 4 8 15 3 13 0 11 5 7 10 6 17 16 18 14",  # graded-20x10
    "e60d59113a24d6d0": "1 4 8 19 6 7 12 0 3 9 2 17 5 10 13 11 16 18 14 15",  # graded-20x12
    "e1a1a530376c49a3": "17 6 11 19 3 16 2 14 7 13 24 28 8 9 22 23 27 0 1 4 5 25 10 12 18 15 21 26 29 20",  # graded-30x12
    "4340955b0fbc6ca1": "8 14 9 28 18 15 23 20 10 22 26 3 1 16 19 21 2 17 13 25 5 24 11 7 0 12 6 29 4 27",  # graded-30x15
}


def known_order(matrix: BitArray) -> IntArray | None:
    """int64[clients] for the matrix of a named design; None for any other.

    Args:
        matrix: uint8[groups, clients].
    """
    found = _ORDERS.get(hashlib.sha256(repr(matrix.shape).encode() + matrix.tobytes()).hexdigest()[:16])
    return None if found is None else np.array(found.split(), dtype=np.int64)
