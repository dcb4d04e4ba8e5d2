"""In which order clients are decoded: an exact decoder pays for the groups that are open at once.

A group is open between its first and its last member; every open group multiplies the states by its number of counts.
The order is a bandwidth reduction (reverse Cuthill-McKee, scipy.sparse.csgraph), a spectral, a greedy or the given one,
whichever is cheapest, improved by moving single clients.
"""

import numpy as np

from fedgt.decode.known_orders import known_order
from fedgt.types import BitArray, FloatArray, IntArray

_SPECTRAL = 300  # clients; the eigenvectors of more would cost more than they save
_MOVES = 200_000  # client positions tried at most, times groups: about a second


def client_order(matrix: BitArray, caps: IntArray) -> IntArray:
    """int64[clients]: an order with few states; that of a named design is known, others are searched.

    Args:
        matrix: uint8[groups, clients].
        caps: int64[groups]: a group's counts run from 0 to its cap.
    """
    partial = (matrix == 0).any(axis=1)  # a group of everybody is open all the time in any order
    if not partial.any():
        return np.arange(matrix.shape[1])
    known = known_order(matrix[partial])
    return searched_order(matrix[partial], caps[partial]) if known is None else known


def searched_order(matrix: BitArray, caps: IntArray) -> IntArray:
    """As `client_order`, without what is known."""
    n = matrix.shape[1]
    weights = np.log2(caps + 1.0)
    candidates = [np.arange(n), _bandwidth_order(matrix), _greedy_order(matrix, weights)]
    if n <= _SPECTRAL:
        candidates.append(_spectral_order(matrix))
    best = min(candidates, key=lambda order: order_cost(matrix, weights, order))
    return _improved(matrix, weights, best)


def order_cost(matrix: BitArray, weights: FloatArray, order: IntArray) -> float:
    """log2 of the states summed over all depths."""
    open_bits = _open_bits(matrix, weights, order)
    return float(np.log2(np.exp2(np.minimum(open_bits, 900.0)).sum()))


def _open_bits(matrix: BitArray, weights: FloatArray, order: IntArray) -> FloatArray:
    """float64[clients]: log2 of the number of states while each client, in order, is decoded."""
    n = matrix.shape[1]
    arranged = matrix[:, order] != 0
    occupied = arranged.any(axis=1)
    first = np.where(occupied, arranged.argmax(axis=1), 0)
    last = np.where(occupied, n - 1 - arranged[:, ::-1].argmax(axis=1), 0)
    change = np.zeros(n + 1)
    np.add.at(change, first[occupied], weights[occupied])
    np.add.at(change, last[occupied] + 1, -weights[occupied])
    bits: FloatArray = np.cumsum(change)[:n]
    return bits


def _bandwidth_order(matrix: BitArray) -> IntArray:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    sparse = csr_array(matrix.astype(np.int32))
    order: IntArray = np.asarray(
        reverse_cuthill_mckee((sparse.T @ sparse).tocsr(), symmetric_mode=True), dtype=np.int64
    )
    return order


def _spectral_order(matrix: BitArray) -> IntArray:
    """Along the Fiedler vector of "how many groups do two clients share": finds a hidden band."""
    shared = matrix.T.astype(np.float64) @ matrix
    np.fill_diagonal(shared, 0.0)
    laplacian = np.diag(shared.sum(axis=1)) - shared
    order: IntArray = np.argsort(np.linalg.eigh(laplacian)[1][:, min(1, len(shared) - 1)], kind="stable")
    return order


def _greedy_order(matrix: BitArray, weights: FloatArray) -> IntArray:
    """Always the client that opens the least and closes the most."""
    groups, n = matrix.shape
    members = matrix.astype(np.float64)
    left = members.sum(axis=1)
    opened = np.zeros(groups, dtype=bool)
    remaining = np.ones(n, dtype=bool)
    order = np.empty(n, dtype=np.int64)
    for position in range(n):
        opens = (weights * ~opened) @ members
        closes = (weights * (left == 1)) @ members
        score = np.where(remaining, opens - closes, np.inf)
        chosen = int(score.argmin())
        order[position] = chosen
        remaining[chosen] = False
        opened |= matrix[:, chosen] != 0
        left -= members[:, chosen]
    return order


def _improved(matrix: BitArray, weights: FloatArray, order: IntArray) -> IntArray:
    """Move single clients to other places while that lowers the cost; at most a second or so."""
    n = len(order)
    budget = _MOVES // max(1, n * matrix.shape[0] // 64)
    cost = order_cost(matrix, weights, order)
    improved = True
    while improved and budget > 0:
        improved = False
        for position in range(n):
            rest = np.delete(order, position)
            for target in range(max(0, position - 12), min(n, position + 13)):
                if target == position or budget <= 0:
                    continue
                budget -= 1
                moved = np.insert(rest, target, order[position])
                found = order_cost(matrix, weights, moved)
                if found < cost - 1e-9:
                    order, cost, improved = moved, found, True
                    break
    return order
