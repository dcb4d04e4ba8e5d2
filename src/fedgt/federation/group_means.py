"""The means of the groups of a test, which are all that it compares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedgt.evidence import (
    UsableScores,
    usable_scores,
)
from fedgt.federation.participants import Federation, Validation
from fedgt.federation.sums import mean_update, plus
from fedgt.grouping import Grouping
from fedgt.secagg import GroupSum
from fedgt.types import BoolArray, FloatArray, Parameters


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupMeans:
    """What a test compares.

    Attributes:
        start: The global model at the start of the round.
        updates: The mean update of each group; None where no sum is open.
        rows: float64[groups, clients]: the real weight of each client in each sum.
        samples: float64[clients]: the number of samples of each client.
    """

    start: Parameters
    updates: Sequence[Mapping[str, FloatArray] | None]
    rows: FloatArray
    samples: FloatArray

    @property
    def erased(self) -> BoolArray:
        """bool[groups]: which groups have no open sum."""
        return np.array([one is None for one in self.updates])

    def scores(self, validation: Validation) -> UsableScores:
        """What the first model and the mean of each open group say about the samples that they can be compared on."""
        models = [self.start, *(None if one is None else plus(self.start, one) for one in self.updates)]
        return usable_scores(
            [None if one is None else np.asarray(validation.logits(one), dtype=np.float64) for one in models],
            np.asarray(validation.labels),
        )


def group_means(
    federation: Federation, sums: Sequence[GroupSum], parameters: Parameters, grouping: Grouping
) -> GroupMeans:
    """What the sums of a test give to compare.

    Args:
        federation: For the weights and sample counts of the clients.
        sums: Of all groups; those that are not open are erasures.
        parameters: The global model at the start of the round.
        grouping: With the members that each open sum is really over.
    """
    return GroupMeans(
        start=parameters,
        updates=[None if one.total is None else mean_update(one) for one in sums],
        rows=real_rows(federation, grouping),
        samples=np.array([federation.samples[client] for client in grouping.clients], dtype=np.float64),
    )


def real_rows(federation: Federation, grouping: Grouping) -> FloatArray:
    """float64[groups, clients]: the real weight of each client in each sum."""
    weights = np.array([federation.weight(client) for client in grouping.clients], dtype=np.float64)
    rows: FloatArray = grouping.rows * weights
    return rows


def by_class(layers: FloatArray) -> FloatArray:
    """float[groups, classes, inputs] of layers with more dimensions, as those of a convolution; others as they are."""
    return layers.reshape(*layers.shape[:2], -1) if layers.ndim > 3 else layers
