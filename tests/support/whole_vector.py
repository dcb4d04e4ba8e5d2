"""A client's vector in one piece: the product sends it in pieces and never holds it whole."""

import numpy as np

from fedgt.secagg import RoundPlan
from fedgt.secagg.fixed_point import RingArray
from fedgt.secagg.vector import Tensors, client_chunks


def client_vector(plan: RoundPlan, client: str, update: Tensors, center: Tensors | None = None) -> RingArray:
    """The pieces of `client_chunks` put together: a new ring vector of length `plan.length`."""
    vector: RingArray = np.empty(plan.length, dtype=plan.encoding.dtype)
    for start, levels in client_chunks(plan, client, update, center):
        vector[start : start + levels.size] = levels
    return vector
