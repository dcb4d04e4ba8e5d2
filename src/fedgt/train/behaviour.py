"""What a simulated client does otherwise than honest training, and in which rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError, SpecError
from fedgt.train.attacks.on_updates import UpdateAttack
from fedgt.types import IntArray, Parameters, frozen

Knowledge: TypeAlias = Literal["everybody", "attackers"]
"""Whose honest updates the attackers know: of all clients in the round, or of themselves only."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Behaviour:
    """Of one client. Outside its rounds the client is honest.

    Attributes:
        kind: Its name; clients of the same world with the same kind hold the same labels.
        first_round: From this round on, counted from 1.
        last_round: Until this round; None is the end of the run.
        images: [own samples, features] instead of the own images; None keeps them.
        labels: int64[own samples] instead of the own labels; None keeps them.
        update: What becomes of the update; None sends what training gives.
        knowledge: Whose updates an attack on the update knows.
        boost: The update is multiplied by this before it is sent; the number of clients replaces the model (Bagdasaryan et
            al. 2020, "How to backdoor federated learning").
        stale: The model of the first round that it trained in is sent in all later ones.
        growth: Which part of the attack is added in each round from the first on, until it is whole: the client sends so
            much of the poisoned update, and for the rest the honest one. 1 begins with all of it.

    Raises:
        SpecError: If the rounds, the boost or the growth are out of range.
        ShapeError: If there is not one label for each image.

    Example:
        >>> sleeper = Behaviour(kind="label-flip", first_round=4)
        >>> sleeper.active(3), sleeper.active(4)
        (False, True)
    """

    kind: str
    first_round: int = 1
    last_round: int | None = None
    images: npt.NDArray[Any] | None = None
    labels: IntArray | None = None
    update: UpdateAttack | None = None
    knowledge: Knowledge = "everybody"
    boost: float = 1.0
    stale: bool = False
    growth: float = 1.0

    def __post_init__(self) -> None:
        """Check and freeze."""
        if self.first_round < 1 or (self.last_round is not None and self.last_round < self.first_round):
            raise SpecError(
                f"{self.kind} from round {self.first_round} to round {self.last_round}: rounds from 1, and a last one that "
                "is not before the first, are needed"
            )
        if not (self.boost > 0 and np.isfinite(self.boost)):
            raise SpecError(f"{self.kind} with boost {self.boost}; a positive number is needed")
        if not 0 < self.growth <= 1:
            raise SpecError(f"{self.kind} with growth {self.growth}; a number above 0, at most 1, is needed")
        if self.labels is not None:
            object.__setattr__(self, "labels", frozen(self.labels, np.int64))
        if self.images is not None and self.labels is not None and len(self.images) != len(self.labels):
            raise ShapeError(f"{len(self.images)} images with {len(self.labels)} labels; one label an image is needed")

    def active(self, round: int) -> bool:
        """Whether the client behaves like this in the round."""
        return self.first_round <= round and (self.last_round is None or round <= self.last_round)

    def part(self, round: int) -> float:
        """Which part of the attack there is in a round, from 0 to 1."""
        return min(1.0, self.growth * (round - self.first_round + 1)) if self.active(round) else 0.0

    @property
    def trains_otherwise(self) -> bool:
        """Whether the client trains on other samples than its own."""
        return self.images is not None or self.labels is not None

    def sent(
        self,
        start: Parameters,
        own: Parameters,
        known: Sequence[Parameters],
        *,
        rng: np.random.Generator,
        part: float = 1.0,
        honest: Parameters | None = None,
    ) -> Mapping[str, npt.NDArray[Any]]:
        """The model that the client sends.

        Args:
            start: The global model of the round.
            own: What the client trained.
            known: The honestly trained models that it knows; empty takes its own.
            rng: Its own source of randomness in this round.
            part: Which part of the attack there is.
            honest: What honest training of the client gives, for the rest; None is `own`.

        Returns:
            Tensors as in `own`; those without floating-point numbers stay as they are.
        """
        if self.update is None and self.boost == 1 and part >= 1.0:
            return own
        origin = _vector(start)
        update = _vector(own) - origin
        rest = update if honest is None else _vector(honest) - origin
        if self.update is not None:
            updates = np.stack([_vector(model) - origin for model in known]) if known else update[None]
            update = self.update.sent(update, updates, rng=rng)
        sent = self.boost * update
        return _tensors(origin + (sent if part >= 1.0 else part * sent + (1.0 - part) * rest), own)


def _vector(model: Parameters) -> npt.NDArray[np.floating]:
    return np.concatenate([tensor.ravel() for _, tensor in sorted(model.items()) if tensor.dtype.kind == "f"])


def _tensors(vector: npt.NDArray[np.floating], like: Parameters) -> dict[str, npt.NDArray[Any]]:
    tensors, at = dict(like), 0
    for name, tensor in sorted(like.items()):
        if tensor.dtype.kind == "f":
            tensors[name] = vector[at : at + tensor.size].reshape(tensor.shape).astype(tensor.dtype)
            at += tensor.size
    return tensors
