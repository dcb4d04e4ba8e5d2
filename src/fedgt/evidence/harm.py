"""Which way is malicious, and which label is under attack: what the validation loss says, class by class.

A line has two ends. Malicious members make the model worse, so the loss of the group means must rise along P d. Nobody tells
the screen which label is attacked: it looks at the balanced loss and at the class whose loss moves most, and corrects for
having looked at several when it names one (Holm 1979).
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

from fedgt.errors import ShapeError
from fedgt.evidence.contrast import Contrasts, Moved, cancelling, moved
from fedgt.types import BoolArray, FloatArray, IntArray, as_numbers, frozen

_SHARE = 0.5
"""Power of the likelihood of the losses: they come from the same models as the line, and are not independent of it."""

_RISES = 10.0 ** np.arange(0.0, 3.1, 0.5)
"""Signal-to-noise ratios of the balanced loss along a set, log-uniform."""

_MOST_EXPLAINED = _RISES[-1] / (1.0 + _RISES[-1])
_LONGEST = float(np.log1p(_RISES[-1]))

_SIGNIFICANT = 0.01
"""Family-wise error of naming a label."""

_FALLS, _STRICTER = 0.25, 3.0
"""Of few classes: the p-value, for all together, from which one gets better with the suspects, and by how much stricter the
demand on the balanced loss is. Chosen on 50 federations of two classes without attackers."""

_MOVES = 1e-9

_POINTS = (1 << 15) + 1
_TINY = float(np.finfo(np.float64).tiny)

_ROUNDING = 1e-12
"""Losses that differ by less than this fraction of their size are equal."""

_MOST_PRODUCTS = 1 << 20
"""Losses times sets that are looked at together."""

AttackKind = Literal["targeted", "untargeted", "none"]


class _Along(NamedTuple):
    """How the losses move along sets: the class that moves most, and the balanced loss.

    Attributes:
        largest: float64[B]: product of the loss that moves most with what the set moves; 0 if that is nothing.
        most: int64[B]: which class it is.
        overall: float64[B]: the same product of the balanced loss.
        squared: float64[B]: the squared length of what the set moves; 1 if that is nothing.
    """

    largest: FloatArray
    most: IntArray
    overall: FloatArray
    squared: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Damage:
    """The loss of the group means, as contrasts.

    Attributes:
        shifts: float64[contrasts, clients]; see `Contrasts`.
        by_class: float64[contrasts, classes with samples]: of the mean loss of each class.
        classes: int64[classes with samples]: which classes these are.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import contrasts, damage
        >>> matrix, rng = named_design("graded-15x10-b").matrix, np.random.default_rng(0)
        >>> losses = 0.3 + 0.1 * matrix[:, [[2], [5]]].sum(axis=1) + rng.normal(scale=0.01, size=(10, 1))
        >>> found = damage(contrasts(matrix, [100] * 15), losses)
        >>> found.p_value(np.isin(np.arange(15), [2, 5]).astype(float)) < 0.01
        True
    """

    shifts: FloatArray
    by_class: FloatArray
    classes: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "by_class", frozen(self.by_class, np.float64))
        object.__setattr__(self, "classes", frozen(self.classes, np.int64))

    def without(self, clients: BoolArray) -> "Damage":
        """The losses in contrasts in which the updates of these clients, bool[clients], cancel."""
        left = cancelling(self.shifts, clients)
        return replace(self, shifts=left.T @ self.shifts, by_class=left.T @ self.by_class)

    def log_harm(self, sets: BoolArray | FloatArray, shift: Moved | None = None) -> FloatArray:
        """float64[B]: log P(each set does harm rather than good), plus the log-likelihood ratio of the loss moving along it.

        Args:
            sets: bool[B, clients].
            shift: What `moved` says of them, if it is known.
        """
        along = self._along(sets, shift)
        both: FloatArray = self._harmful(along) + self._risen(along)
        return both

    def p_value(self, posterior: FloatArray) -> float:
        """How likely losses are that rise so clearly with the suspects if none of them does any harm.

        The smaller of two p-values, of the balanced loss and of the class that rises most clearly (Bonferroni over the
        classes, and over the two). The suspects were chosen by other features of the same models, so it is not exact.

        Args:
            posterior: float64[clients]: P(malicious).
        """
        along = posterior[None] @ self.shifts.T
        freedom = len(self.shifts) - 1
        by_class = stdtr(freedom, -self._t(along, self.by_class)[1][0])
        overall = stdtr(freedom, -self._t(along, self.by_class.mean(axis=1, keepdims=True))[1][0, 0])
        return min(1.0, 2.0 * float(min(overall, by_class.min() * by_class.size)))

    def p_value_of_few_classes(self, posterior: FloatArray) -> float:
        """The same for two or three classes, where no margins tell who merely owns other classes.

        Who owns more of one class than others makes its loss fall and another one rise. So the balanced loss must rise,
        and no class may fall clearly.

        Args:
            posterior: float64[clients]: P(malicious).
        """
        along = posterior[None] @ self.shifts.T
        freedom = len(self.shifts) - 1
        falls = stdtr(freedom, self._t(along, self.by_class)[1][0])
        if falls.min() * falls.size <= _FALLS:
            return 1.0
        return min(
            1.0, _STRICTER * float(stdtr(freedom, -self._t(along, self.by_class.mean(axis=1, keepdims=True))[1][0, 0]))
        )

    def _along(self, sets: BoolArray | FloatArray, shift: Moved | None = None) -> _Along:
        known = moved(self.shifts, sets) if shift is None else shift
        most = np.zeros(len(known.squared), dtype=np.int64)
        largest = np.zeros(len(most))
        # A few sets at a time: with many classes the losses of all sets would not fit into memory.
        step = max(1, _MOST_PRODUCTS // max(1, self.by_class.shape[1]))
        for start in range(0, len(most), step):
            part = slice(start, start + step)
            products: FloatArray = known.along[part] @ self.by_class
            most[part] = np.abs(products).argmax(axis=1)
            largest[part] = products[np.arange(len(products)), most[part]]
        overall = known.along @ self.by_class.mean(axis=1)
        return _Along(np.where(known.able, largest, 0.0), most, np.where(known.able, overall, 0.0), known.squared)

    def _harmful(self, found: _Along) -> FloatArray:
        """float64[B]: log of the probability of harm rather than good; log(1/2) where nothing tells.

        Half the weight is on the balanced loss, half on the class whose loss moves most with the set: both are signs, so
        choosing the class by its size does not bias it.
        """
        energies = np.einsum("kc,kc->c", self.by_class, self.by_class)
        mean = self.by_class.mean(axis=1)
        freedom = len(self.shifts) - 1
        both = _harm_of(found.largest / np.sqrt(np.maximum(found.squared * energies[found.most], _TINY)), freedom)
        both += _harm_of(found.overall / np.sqrt(np.maximum(found.squared * float(mean @ mean), _TINY)), freedom)
        harm: FloatArray = np.log(both / 2.0)
        return harm

    def _risen(self, found: _Along) -> FloatArray:
        """float64[B]: log-likelihood ratio of the balanced loss moving along each set against noise alone; tempered."""
        mean = self.by_class.mean(axis=1)
        size = float(mean @ mean)
        if not size > 0:
            return np.zeros(len(found.squared))
        explained = np.minimum(found.overall**2 / found.squared / size, 1.0)
        ratio = _rise_of(explained, len(mean))
        ratio[explained <= 0] = 0.0
        return ratio

    def _t_of(self, product: FloatArray, energy: FloatArray | float, length: FloatArray) -> FloatArray:
        """T statistics of slopes product / length, the losses having this energy."""
        rest = np.maximum(energy - product**2 / length, _TINY) / (len(self.shifts) - 1)
        # Two roots: the product of two small numbers may be 0.
        t: FloatArray = product / (np.sqrt(length) * np.sqrt(rest))
        return t

    def _t(self, moved: FloatArray, losses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Slopes and their t statistics, float64[B, columns of the losses]; 0 where a set moves nothing."""
        squared = np.einsum("bk,bk->b", moved, moved)[:, None]
        able = squared > _MOVES * squared.max(initial=0.0)
        length = np.where(able, squared, 1.0)
        product = np.where(able, moved @ losses, 0.0)
        return product / length, self._t_of(product, np.einsum("kc,kc->c", losses, losses), length)


def _rise_of(explained: FloatArray, contrasts: int) -> FloatArray:
    """float64[B]: tempered log-likelihood ratio of losses of which a set explains this part, the mean over `_RISES`.

    By linear interpolation over -log of what is left at the largest ratio, with an error below 1e-7.
    """
    table = _rise_table(contrasts)
    position = np.log(1.0 - explained * _MOST_EXPLAINED)
    position *= -(len(table) - 2) / _LONGEST
    low = np.clip(position.astype(np.intp), 0, len(table) - 2)
    below = table[low]
    ratio: FloatArray = below + (position - low) * (table[low + 1] - below)
    return ratio


@lru_cache(maxsize=64)
def _rise_table(contrasts: int) -> FloatArray:
    left = np.linspace(0.0, _LONGEST, _POINTS)
    explained = -np.expm1(-left) / _MOST_EXPLAINED
    terms = (1.0 + _RISES) ** -0.5 * (1.0 - explained[:, None] * (_RISES / (1.0 + _RISES))) ** (-0.5 * contrasts)
    ratio = _SHARE * np.log(terms.mean(axis=1))
    # One more entry, so that the last one has a right neighbour.
    return frozen(np.append(ratio, ratio[-1]), np.float64)


def _harm_of(correlation: FloatArray, freedom: int) -> FloatArray:
    """P(T < t) of Student's t = sqrt(freedom) r / sqrt(1 - r^2), by linear interpolation: millions of sets are asked about.

    The error is below 1e-8, less than what the losses are known to; values below 1e-300 are raised to it.
    """
    table = _harm_table(freedom)
    # Rounding must not carry a perfect correlation beyond the table, where the line through its ends is below 0.
    position = (np.clip(correlation, -1.0, 1.0) + 1.0) * ((len(table) - 2) / 2.0)
    low = np.clip(position.astype(np.intp), 0, len(table) - 2)
    below = table[low]
    return below + (position - low) * (table[low + 1] - below)


@lru_cache(maxsize=64)
def _harm_table(freedom: int) -> FloatArray:
    correlation = np.linspace(-1.0, 1.0, _POINTS)
    with np.errstate(divide="ignore"):
        t = np.sqrt(freedom) * correlation / np.sqrt(1.0 - correlation**2)
    # One more entry, so that r = 1 has a right neighbour.
    return frozen(np.maximum(np.append(stdtr(freedom, t), 1.0), 1e-300), np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFinding:
    """What the attack seems to aim at.

    Attributes:
        kind: `targeted` (few classes get worse), `untargeted` (more than half do), or `none` (no class does, significantly).
        labels: The classes that get significantly worse, worst first.
        rises: Their rises: mean loss of a group of malicious clients only less that of a group without any, in nats.
        p_values: Holm-corrected.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import contrasts, damage, label_under_attack
        >>> matrix, rng = named_design("graded-15x10-b").matrix, np.random.default_rng(0)
        >>> losses = 0.3 + rng.normal(scale=0.01, size=(10, 3))
        >>> losses[:, 1] += 0.1 * matrix[:, [2, 5]].sum(axis=1)
        >>> suspects = np.isin(np.arange(15), [2, 5]).astype(float)
        >>> found = label_under_attack(damage(contrasts(matrix, [100] * 15), losses), suspects)
        >>> found.kind, found.labels
        ('targeted', (1,))
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

    Examples:
        >>> from fedgt import named_design
        >>> from fedgt.evidence import contrasts, damage
        >>> matrix = named_design("graded-15x10-b").matrix
        >>> hurt = matrix[:, [2, 5]].sum(axis=1)  # groups with clients 2 and 5 lose more
        >>> losses = [[0.3 + 0.2 * number, 0.4] for number in hurt]
        >>> damage(contrasts(matrix, [100] * 15), losses).classes.tolist()
        [0, 1]
    """
    losses = as_numbers(class_losses, "losses")
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

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import contrasts, damage, label_under_attack
        >>> matrix, rng = named_design("graded-15x10-b").matrix, np.random.default_rng(0)
        >>> losses = 0.3 + rng.normal(scale=0.01, size=(10, 3))  # no class gets worse with anybody
        >>> suspects = np.isin(np.arange(15), [2, 5]).astype(float)
        >>> label_under_attack(damage(contrasts(matrix, [100] * 15), losses), suspects).kind
        'none'
    """
    moved = np.asarray(posterior, dtype=np.float64)[None] @ found.shifts.T
    slopes, t = found._t(moved, found.by_class)
    raw = stdtr(len(found.shifts) - 1, -t[0])
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
