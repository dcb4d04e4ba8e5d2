"""Designs for graded evidence: small sets of attackers shift the group means in different directions.

Binary outcomes ask whether a group is clean; graded evidence looks along which line the group means move. Two sets of
attackers that move them along the same line cannot be told apart, so these designs have few such ties. They are poor for
binary outcomes (`graded-15x10` stands 3 attackers at kappa = .2, not 5). Found by search under the constraint r; when the
sum over all clients is revealed too, at least 4 remains of r (3 for 10x6). Those of the local search come from
`benchmarks/graded_designs.py`; the certificates of all are in `docs/results/graded_designs.csv`, and the designs
themselves in `graded.json`.
"""

import json
from functools import cache
from importlib.resources import files

import numpy as np

from fedgt.design.matrix import Design


@cache
def graded_designs() -> dict[str, Design]:
    """Name -> design."""
    text = files("fedgt.design").joinpath("graded.json").read_text(encoding="utf-8")
    return {
        one["name"]: Design(
            matrix=np.array([[int(bit) for bit in row] for row in one["rows"]], dtype=np.uint8),
            name=one["name"],
            source=one["source"],
        )
        for one in json.loads(text)
    }
