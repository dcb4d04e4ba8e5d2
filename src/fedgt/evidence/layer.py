"""Scalar products between the groups' classification layers, row by row: all that lines through the groups depend on.

An attack on a label moves the rows of two classes against each other, and every pair of rows is a place to look. Their
number grows with the square of the number of classes, and so would time and memory. But a pair that moves shows in each of
its two rows, too. So of many classes only those are paired whose own rows stand out most; what is paid for looking is still
that of all pairs.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from fedgt.evidence.contrast import Contrasts
from fedgt.evidence.line import line_evidence
from fedgt.types import FloatArray, IntArray, frozen

MOST_CLASSES = 24
"""Of more classes only so many, those that stand out most, are looked at pair by pair."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """The rows of the classification layer of each group mean.

    Attributes:
        classes: How many rows the layer has.
        inputs: How many entries a row has.
        total: float64[groups, groups]: scalar products of all rows.
        paired: int64[paired]: the classes that are looked at pair by pair, ascending; none where rows are too short.
        products: float64[paired, paired, groups, groups]: of each row with each other one.
    """

    classes: int
    inputs: int
    total: FloatArray
    paired: IntArray
    products: FloatArray

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "total", frozen(self.total, np.float64))
        object.__setattr__(self, "paired", frozen(self.paired, np.int64))
        object.__setattr__(self, "products", frozen(self.products, np.float64))

    def pairs(self) -> list[tuple[int, int]]:
        """Two classes each, the smaller one first."""
        return list(combinations(self.paired.tolist(), 2))

    def of_rows(self, labels: tuple[int, ...]) -> FloatArray:
        """float64[groups, groups]: scalar products of all rows, or of the difference of two."""
        if not labels:
            return self.total
        s, t = np.searchsorted(self.paired, labels)
        products = self.products
        difference: FloatArray = products[s, s] + products[t, t] - products[s, t] - products[t, s]
        return difference


def layer_of(centred: FloatArray, parts: Contrasts) -> Layer:
    """The scalar products, for float64[groups, classes, inputs] less their mean over the groups."""
    groups, classes, inputs = centred.shape
    own = np.matmul(centred.transpose(1, 0, 2), centred.transpose(1, 2, 0))
    paired = np.arange(classes if classes > 1 and inputs > parts.size else 0)
    if len(paired) > MOST_CLASSES:
        standing_out = line_evidence(parts.transform @ own @ parts.transform.T, features=inputs)
        paired = np.sort(np.argsort(-standing_out, kind="stable")[:MOST_CLASSES])
    flat = centred[:, paired].transpose(1, 0, 2).reshape(-1, inputs)
    products = (flat @ flat.T).reshape(len(paired), groups, len(paired), groups).transpose(0, 2, 1, 3)
    return Layer(classes=classes, inputs=inputs, total=own.sum(axis=0), paired=paired, products=products)
