"""Backdoor: a small pattern in the picture makes the model say what the attacker wants; everything else stays right."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError, SpecError
from fedgt.types import IntArray

SIDE = 3
"""Pixels of a side of the trigger."""


def with_trigger(
    images: npt.NDArray[Any], *, shape: tuple[int, int], brightest: float, row: int | None = None
) -> npt.NDArray[Any]:
    """The images with the trigger in their lower right corner, in every channel.

    Args:
        images: [samples, pixels]; not changed.
        shape: (rows, columns) of an image, its channels one below the other.
        brightest: What the pixels of the trigger become.
        row: Only this row of the trigger, 0 to 2; None is all of it.

    Returns:
        [samples, pixels], new.

    Raises:
        SpecError: If these are no pictures, or too small ones.

    Examples:
        >>> import numpy as np
        >>> from fedgt.train import with_trigger
        >>> marked = with_trigger(np.zeros((1, 64)), shape=(8, 8), brightest=1.0)
        >>> bool((marked == 1.0).any())
        True
    """
    rows, columns = shape
    height = columns if rows % columns == 0 else rows  # square channels one below the other, or one channel
    if min(height, columns) < 2 * SIDE:
        raise SpecError(
            f"a trigger of {SIDE} x {SIDE} pixels in images of {rows} x {columns}: pictures of at least {2 * SIDE} x "
            f"{2 * SIDE} are needed, not features"
        )
    changed = np.array(images).reshape(len(images), rows // height, height, columns)
    lines = slice(height - SIDE, height) if row is None else slice(height - SIDE + row, height - SIDE + row + 1)
    changed[:, :, lines, columns - SIDE :] = brightest
    return changed.reshape(images.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backdoor:
    """Puts a trigger into a share of the own samples and labels these as the target.

    From Gu, Dolan-Gavitt and Garg 2017, "BadNets". If `distributed`, every attacker uses one row of the trigger only, and
    the whole trigger is tried on the model (Xie et al. 2020, "DBA: distributed backdoor attacks against federated
    learning").

    Attributes:
        target: What a picture with the trigger is to be taken for.
        share: Which part of the own samples gets the trigger, above 0 and up to 1.
        distributed: Whether the attackers share the trigger out.

    Raises:
        SpecError: If the target is negative or the share out of range.

    Examples:
        >>> from fedgt.train import Backdoor
        >>> Backdoor(target=3, share=0.2).target  # a fifth of each attacker's images get a mark and the label 3
        3
    """

    name: ClassVar[str] = "backdoor"
    target: int
    share: float = 0.5
    distributed: bool = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.target < 0 or not 0 < self.share <= 1:
            raise SpecError(
                f"backdoor to label {self.target} in a share of {self.share}: a label from 0 and a share above 0 and up "
                "to 1 are needed"
            )

    def poisoned(
        self,
        images: npt.NDArray[Any],
        labels: IntArray,
        *,
        shape: tuple[int, int],
        classes: int,
        brightest: float,
        attacker: int,
        rng: np.random.Generator,
    ) -> tuple[npt.NDArray[Any], IntArray]:
        """The attacker's own samples as it trains on them.

        Args:
            images: [own samples, pixels]; not changed.
            labels: int64[own samples]; not changed.
            shape: (rows, columns) of an image, its channels one below the other.
            classes: The number of classes.
            brightest: The largest value of a pixel.
            attacker: Which of the attackers this is, from 0; it chooses the row of a distributed trigger.
            rng: Draws the samples that get the trigger.

        Returns:
            New images and labels.

        Raises:
            SpecError: If the target is no class, or these are no pictures.
            ShapeError: If there is not one label for each image.
        """
        if self.target >= classes:
            raise SpecError(f"backdoor to label {self.target} on {classes} classes: labels up to {classes - 1} exist")
        if labels.shape != images.shape[:1]:
            raise ShapeError(f"{len(images)} images with labels of shape {labels.shape}; one label an image is needed")
        chosen = rng.permutation(len(labels))[: max(1, round(self.share * len(labels)))]
        row = attacker % SIDE if self.distributed else None
        images, labels = np.array(images), np.array(labels)
        images[chosen] = with_trigger(images[chosen], shape=shape, brightest=brightest, row=row)
        labels[chosen] = self.target
        return images, labels
