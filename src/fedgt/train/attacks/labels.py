"""Data poisoning by label: what malicious clients do to the labels of their own samples before they train.

Malicious clients otherwise train exactly as the honest do; images and everybody else's labels stay as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from fedgt.errors import ShapeError, SpecError
from fedgt.types import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFlip:
    """Targeted: every sample of the source class is labelled as the target class (section VI.C of the paper).

    Attributes:
        source: The class under attack (the paper, MNIST: 1).
        target: What it is to be taken for (the paper, MNIST: 7).

    Raises:
        SpecError: If both are the same or one is negative.

    Examples:
        >>> from fedgt.train import LabelFlip
        >>> LabelFlip(source=9, target=3)
        LabelFlip(source=9, target=3)
    """

    name: ClassVar[str] = "label-flip"
    source: int
    target: int

    def __post_init__(self) -> None:
        """Check the labels."""
        if self.source == self.target or min(self.source, self.target) < 0:
            raise SpecError(
                f"label flip from {self.source} to {self.target}: two different labels, counted from 0, are needed"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPermutation:
    """Untargeted: L_new = (L_old + offset) mod classes (section VI.D of the paper, which has offset 1).

    Attributes:
        offset: How far every label moves; a multiple of the number of classes is refused by `poison`.

    Examples:
        >>> from fedgt.train import LabelPermutation
        >>> LabelPermutation(offset=1).name
        'label-permutation'
    """

    name: ClassVar[str] = "label-permutation"
    offset: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomLabels:
    """Untargeted: every label is drawn anew, uniformly over all classes (so one in `classes` stays right).

    Examples:
        >>> from fedgt.train import RandomLabels
        >>> RandomLabels().name
        'random-labels'
    """

    name: ClassVar[str] = "random-labels"


LabelAttack: TypeAlias = LabelFlip | LabelPermutation | RandomLabels


def poison(
    labels: IntArray, *, attack: LabelAttack, parts: Sequence[IntArray], classes: int, rng: np.random.Generator
) -> IntArray:
    """The training labels after the malicious clients changed theirs.

    Args:
        labels: int64[samples], the true labels; not changed.
        attack: What the malicious clients do.
        parts: The sample numbers of each malicious client.
        classes: The number of classes.
        rng: Used by `random-labels` only. It draws a label for every sample of the data set, so what one client ends
            up with does not depend on who else is malicious.

    Returns:
        int64[samples], new; equal to `labels` outside the parts.

    Raises:
        SpecError: If the attack does not fit the number of classes.
        ShapeError: If a sample number or a label is out of range.

    Examples:
        >>> import numpy as np
        >>> from fedgt.train import LabelFlip, poison
        >>> labels = np.array([9, 1, 9, 3])
        >>> first_client = [np.array([0, 1])]  # only its samples are poisoned
        >>> rng = np.random.default_rng(0)
        >>> poison(labels, attack=LabelFlip(source=9, target=3), parts=first_client, classes=10, rng=rng).tolist()
        [3, 1, 9, 3]
    """
    _check(labels, attack=attack, parts=parts, classes=classes)
    chosen = np.concatenate([np.asarray(part, dtype=np.int64) for part in (*parts, np.array([], dtype=np.int64))])
    poisoned = np.array(labels, dtype=np.int64)
    own = poisoned[chosen]
    match attack:
        case LabelFlip():
            poisoned[chosen] = np.where(own == attack.source, attack.target, own)
        case LabelPermutation():
            poisoned[chosen] = (own + attack.offset) % classes
        case RandomLabels():
            poisoned[chosen] = rng.integers(classes, size=poisoned.size)[chosen]
    return poisoned


def _check(labels: IntArray, *, attack: LabelAttack, parts: Sequence[IntArray], classes: int) -> None:
    if isinstance(attack, LabelFlip) and max(attack.source, attack.target) >= classes:
        raise SpecError(
            f"label flip from {attack.source} to {attack.target} on {classes} classes: labels up to {classes - 1} exist"
        )
    if isinstance(attack, LabelPermutation) and attack.offset % classes == 0:
        raise SpecError(f"label permutation by {attack.offset} changes nothing on {classes} classes; use offset 1")
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ShapeError(f"labels from {labels.min()} to {labels.max()}; 0 to {classes - 1} are needed")
    for part in parts:
        if part.size and not 0 <= int(part.min()) <= int(part.max()) < labels.size:
            raise ShapeError(
                f"sample numbers from {part.min()} to {part.max()}; 0 to {labels.size - 1} exist in these labels"
            )
