"""Small test rounds with known local models, without the protocol: what sums say about clients, whatever the design."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgt.evidence import GradedDecoding, GradedScreen
from fedgt.federation import DecodeSettings, ScreenSettings, Validation
from fedgt.federation.group_means import GroupMeans
from fedgt.federation.measure import suspects
from fedgt.federation.settings import Features
from fedgt.federation.views import graded_of
from fedgt.types import IntArray, Parameters

CLASSES = 5

THREE_OF_FIVE: npt.NDArray[np.uint8] = np.repeat(np.eye(3, dtype=np.uint8), 5, axis=1)
"""Three disjoint groups of five clients."""

TWO_PARTITIONS: npt.NDArray[np.uint8] = np.concatenate([THREE_OF_FIVE, np.tile(np.eye(5, dtype=np.uint8), (1, 3))])
"""Two partitions of 15 clients: eight groups of rank seven."""

FIVE_INDEPENDENT: npt.NDArray[np.uint8] = TWO_PARTITIONS[[0, 1, 3, 4, 5]]
"""Five groups of the two partitions, of full row rank."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SmallRound:
    """What clients send, and who they are.

    Attributes:
        matrix: uint8[groups, clients].
        updates: float64[clients, classes, inputs].
        samples: int64[clients].
        erased: int64[...]: groups whose sum is not opened.
        labels: int64[samples] of the validation set.
        images: float64[samples, inputs].
    """

    matrix: npt.NDArray[np.uint8]
    updates: npt.NDArray[np.float64]
    samples: IntArray
    erased: IntArray
    labels: IntArray
    images: npt.NDArray[np.float64]

    def screened(self, features: Features = "weights", *, inputs: bool = True) -> GradedScreen:
        """What the sums say."""
        rows = self.matrix * self.samples
        means = [np.tensordot(row, self.updates, axes=1) / row.sum() for row in rows.astype(np.float64)]
        closed = self.erased.tolist()

        def logits(parameters: Parameters) -> npt.NDArray[np.floating]:
            return np.asarray(self.images @ parameters["weight"].T)

        return graded_of(
            GroupMeans(
                start={"weight": np.zeros(self.updates.shape[1:])},
                updates=[None if group in closed else {"weight": mean} for group, mean in enumerate(means)],
                rows=rows.astype(np.float64),
                samples=self.samples.astype(np.float64),
            ),
            Validation(logits=logits, labels=self.labels, inputs=(lambda _: self.images) if inputs else None),
            ScreenSettings(features=features),
        )

    def decoded(self, features: Features = "weights", *, inputs: bool = True) -> tuple[GradedScreen, GradedDecoding]:
        """What the sums say, and who is accused."""
        found = self.screened(features, inputs=inputs)
        evidence = [] if found.evidence is None else [found.evidence]
        return found, suspects(
            evidence, self.matrix.shape[1], screen=ScreenSettings(features=features), decoding=DecodeSettings()
        )


def small_round(
    matrix: npt.NDArray[np.uint8],
    malicious: list[int],
    *,
    seed: int,
    noise: float = 0.1,
    size: float = 3.0,
    inputs: int = 60,
    unequal: bool = False,
    erased: float = 0.0,
) -> SmallRound:
    """Everybody learns the prototypes; the malicious take class 0 for class 1."""
    rng = np.random.default_rng(seed)
    clients = matrix.shape[1]
    prototypes = rng.normal(size=(CLASSES, inputs)) / inputs**0.5
    updates = 3.0 * prototypes + noise * rng.normal(size=(clients, CLASSES, inputs))
    updates[malicious] += size * np.stack([-prototypes[0], prototypes[0], *np.zeros((CLASSES - 2, inputs))])
    labels = np.repeat(np.arange(CLASSES), 8)
    return SmallRound(
        matrix=matrix,
        updates=updates,
        samples=rng.choice([10, 50, 100, 200], clients) if unequal else np.full(clients, 100),
        erased=np.flatnonzero(rng.random(len(matrix)) < erased),
        labels=labels,
        images=prototypes[labels] + 0.05 * rng.normal(size=(len(labels), inputs)),
    )
