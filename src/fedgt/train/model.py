"""What a simulated federation asks of a model, whatever computes it: the one-layer network, or an image network of torch."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedgt.train.logistic import LocalTraining
from fedgt.types import IntArray, Parameters


@runtime_checkable
class Model(Protocol):
    """A classifier as a pure function of its parameters."""

    @property
    def classification_layer(self) -> str:
        """The tensor [classes, inputs] that is compared between groups."""
        ...

    def initial(self, *, rng: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
        """Starting parameters."""
        ...

    def check(self, parameters: Parameters) -> None:
        """Raises ShapeError where a tensor is missing, extra or of another shape; the message names it."""
        ...

    def logits(self, parameters: Parameters, images: npt.NDArray[Any]) -> npt.NDArray[np.floating]:
        """float[samples, classes] of images [samples, features]."""
        ...

    def inputs(self, parameters: Parameters, images: npt.NDArray[Any]) -> npt.NDArray[np.floating]:
        """float[samples, inputs]: what the classification layer sees of images [samples, features]."""
        ...

    def predict(self, parameters: Parameters, images: npt.NDArray[Any]) -> IntArray:
        """int64[samples]: the class of the largest logit."""
        ...

    def train_clients(
        self,
        parameters: Parameters,
        *,
        images: npt.NDArray[Any],
        labels: IntArray,
        parts: Sequence[IntArray],
        rngs: Sequence[np.random.Generator],
        training: LocalTraining,
    ) -> list[dict[str, npt.NDArray[Any]]]:
        """Every client trained from the same parameters on its own samples; see `fedgt.train.logistic.train_clients`."""
        ...
