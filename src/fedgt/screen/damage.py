"""Which way is malicious, and which label is under attack: what the validation loss says, class by class.

A line has two ends. Malicious members make the model worse, so the loss of the group means must rise along P d. Nobody tells
the screen which label is attacked: it looks at the balanced loss and at the class whose loss moves most, and corrects for
having looked at several when it names one (Holm 1979).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from fedgt.errors import ShapeError
from fedgt.screen.contrasts import Contrasts
from fedgt.types import BoolArray, FloatArray, frozen

_SHARE = 0.5
"""Power of the likelihood of the losses: they come from the same models as the line, and are not independent of it."""

_RISES = 10.0 ** np.arange(0.0, 3.1, 0.5)
"""Signal-to-noise ratios of the balanced loss along a set, log-uniform."""

_SIGNIFICANT = 0.01
"""Family-wise error of naming a label."""

_MOVES = 1e-9

_ROUNDING = 1e-12
"""Losses that differ by less than this fraction of their size are equal."""

AttackKind = Literal["targeted", "untargeted", "none"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Damage:
    """The loss of the group means, as contrasts.

    Attributes:
        shifts: float64[contrasts, clients]; see `Contrasts`.
        by_class: float64[contrasts, classes with samples]: of the mean loss of each class.
        classes: int64[classes with samples]: which classes these are.
    """

    shifts: FloatArray
    by_class: FloatArray
    classes: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "by_class", frozen(self.by_class, np.float64))
        object.__setattr__(self, "classes", frozen(self.classes, np.int64))

    def log_harmful(self, sets: BoolArray) -> FloatArray:
        """float64[B]: log of the probability that each set does harm rather than good; log(1/2) where nothing tells.

        Half the weight is on the balanced loss, half on the class whose loss moves most with the set: both are signs, so
        choosing the class by its size does not bias it.
        """
        moved = sets.astype(np.float64) @ self.shifts.T
        overall = self._t(moved, self.by_class.mean(axis=1, keepdims=True))[1][:, 0]
        slopes, t = self._t(moved, self.by_class)
        most = np.abs(slopes).argmax(axis=1)
        largest = np.take_along_axis(t, most[:, None], axis=1)[:, 0]
        freedom = len(self.shifts) - 1
        harm: FloatArray = np.logaddexp(student.logcdf(overall, freedom), student.logcdf(largest, freedom)) - np.log(
            2.0
        )
        return harm

    def log_risen(self, sets: BoolArray) -> FloatArray:
        """float64[B]: log-likelihood ratio of the balanced loss moving along each set against noise alone; tempered."""
        moved = sets.astype(np.float64) @ self.shifts.T
        loss = self.by_class.mean(axis=1)
        squared = np.einsum("bk,bk->b", moved, moved)
        able = squared > _MOVES * squared.max(initial=0.0)
        size = float(loss @ loss)
        if not size > 0:
            return np.zeros(len(sets))
        explained = np.where(able, (moved @ loss) ** 2 / np.where(able, squared, 1.0), 0.0) / size
        left = 1.0 - np.minimum(explained, 1.0)[:, None] * (_RISES / (1.0 + _RISES))
        terms = -0.5 * np.log1p(_RISES) - 0.5 * len(loss) * np.log(left)
        ratio: FloatArray = _SHARE * np.where(able, np.logaddexp.reduce(terms, axis=1) - np.log(len(_RISES)), 0.0)
        return ratio

    def p_value(self, posterior: FloatArray) -> float:
        """How likely losses are that rise so clearly with the suspects if none of them does any harm.

        The smaller of two p-values, of the balanced loss and of the class that rises most clearly (Bonferroni over the
        classes, and over the two). The suspects were chosen by other features of the same models, so it is not exact.

        Args:
            posterior: float64[clients]: P(malicious).
        """
        moved = posterior[None] @ self.shifts.T
        freedom = len(self.shifts) - 1
        by_class = student.sf(self._t(moved, self.by_class)[1][0], freedom)
        overall = student.sf(self._t(moved, self.by_class.mean(axis=1, keepdims=True))[1][0, 0], freedom)
        return min(1.0, 2.0 * float(min(overall, by_class.min() * by_class.size)))

    def _t(self, moved: FloatArray, losses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Slopes and their t statistics, float64[B, columns of the losses]; 0 where a set moves nothing."""
        squared = np.einsum("bk,bk->b", moved, moved)[:, None]
        able = squared > _MOVES * squared.max(initial=0.0)
        length = np.where(able, squared, 1.0)
        product = np.where(able, moved @ losses, 0.0)
        rest = np.einsum("kc,kc->c", losses, losses) - product**2 / length
        error = np.sqrt(np.maximum(rest, np.finfo(float).tiny) / (len(self.shifts) - 1) / length)
        return product / length, product / length / error


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFinding:
    """What the attack seems to aim at.

    Attributes:
        kind: `targeted` (few classes get worse), `untargeted` (more than half do), or `none` (no class does, significantly).
        labels: The classes that get significantly worse, worst first.
        rises: Their rises: mean loss of a group of malicious clients only less that of a group without any, in nats.
        p_values: Holm-corrected.
    """

    kind: AttackKind
    labels: tuple[int, ...]
    rises: tuple[float, ...]
    p_values: tuple[float, ...]


def damage(parts: Contrasts, class_losses: npt.ArrayLike, *, label: int | None = None) -> Damage:
    """The losses of the group means as contrasts.

    Args:
        parts: Of the same groups.
        class_losses: float[groups, classes]: mean validation loss of each group mean on each class, in nats; NaN for classes
            without a validation sample.
        label: The label under attack, if the user knows it: only its loss counts then (the paper's informed choice).

    Raises:
        ShapeError: If the shapes do not fit, a loss is not finite, or no class (or not the given label) has a sample.
    """
    losses = np.asarray(class_losses, dtype=np.float64)
    if losses.ndim != 2 or len(losses) != parts.transform.shape[1]:
        raise ShapeError(
            f"losses of shape {losses.shape} for {parts.transform.shape[1]} groups; [groups, classes] is needed"
        )
    known = np.flatnonzero(~np.isnan(losses).all(axis=0))
    if label is not None:
        known = known[known == label]
    if not known.size or not np.isfinite(losses[:, known]).all():
        raise ShapeError(
            "the validation losses are not finite, or no class has a sample"
            + ("" if label is None else f" (label {label} was asked for)")
        )
    seen = losses[:, known]
    centred = seen - seen.mean(axis=0) if len(seen) else seen
    # Rounding must not look like a rise that follows some set exactly.
    centred[:, np.abs(centred).max(axis=0, initial=0.0) <= _ROUNDING * np.abs(seen).max(axis=0, initial=0.0)] = 0.0
    return Damage(shifts=parts.shifts, by_class=parts.transform @ centred, classes=known)


def label_under_attack(found: Damage, posterior: npt.ArrayLike) -> LabelFinding:
    """Which classes get worse with the clients that are suspected.

    Args:
        found: The losses.
        posterior: float[clients]: P(malicious), or the accused clients as 0 and 1.
    """
    moved = np.asarray(posterior, dtype=np.float64)[None] @ found.shifts.T
    slopes, t = found._t(moved, found.by_class)
    raw = student.sf(t[0], len(found.shifts) - 1)
    order = np.argsort(raw, kind="stable")
    corrected = np.minimum(np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1)), 1.0)
    worse = order[corrected < _SIGNIFICANT]
    p_values = dict(zip(order.tolist(), corrected.tolist(), strict=True))
    worst_first = worse[np.argsort(-slopes[0, worse], kind="stable")].tolist()
    kind: AttackKind = "none" if not worst_first else "untargeted" if 2 * len(worst_first) > len(raw) else "targeted"
    return LabelFinding(
        kind=kind,
        labels=tuple(int(found.classes[i]) for i in worst_first),
        rises=tuple(float(slopes[0, i]) for i in worst_first),
        p_values=tuple(float(p_values[i]) for i in worst_first),
    )
