"""Do clients own other classes than chance would give them? Then they differ by nature, and lines through them mean little.

Clients that drew their samples from one population own a class in numbers that scatter like a multinomial count. What they
own shows in the margins: a step on one class moves them in a direction that the server knows (`class_steps`). An attack on
one label looks like different numbers of two classes, so the median over the classes is what counts. Other attacks look
like different numbers of all classes: then it is asked of everybody else, the suspects set aside.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from fedgt.errors import ShapeError
from fedgt.evidence.contrast import contrasts, mean_of_others
from fedgt.types import BoolArray, FloatArray, IntArray, as_numbers

MORE_THAN_CHANCE = 0.25
"""A spread above this is more than one population explains. Measured: .01 to .13 for IID clients on digits, up to .42 on
MNIST where some flip a label; on digits .3 and more at Dirichlet 1.0, .7 and more if one client of 15 owns a single class;
on MNIST 5 and more at Dirichlet 1.0, thousands for the hospitals of Fed-ISIC2019. Many steps of training make it smaller.
Permuted labels raise it, too, and so do late rounds in which nobody moves much any more: it is a reason to look again, not
to accuse or to acquit."""

_ROUNDING = 1e-12
"""Margins that differ by less than this fraction of their size are equal."""


def label_spread(
    margins: npt.ArrayLike,
    start: npt.ArrayLike,
    *,
    steps: FloatArray,
    weights: npt.ArrayLike,
    samples: npt.ArrayLike,
    counts: npt.ArrayLike,
    aside: BoolArray | None = None,
) -> float:
    """Variance of the shares of a class between clients, over that of multinomial counts; median over the classes.

    Args:
        margins: float[groups, S, classes] of the group means; see `fedgt.screen.margins`.
        start: float[S, classes] of the global model at the start of the round.
        steps: float64[S, S, classes] of `class_steps`.
        weights: float[groups, clients], the real weight of each client in each sum.
        samples: float[clients], sample counts.
        counts: int[S]: validation samples of each class; their shares are taken for those of the population.
        aside: bool[clients]: whose updates cancel, whatever they are; nobody's if not given.

    Returns:
        0 where nothing can be compared, or nothing moved; infinity where nothing is left with somebody set aside.

    Raises:
        ShapeError: If the shapes do not fit.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import label_spread
        >>> matrix, rng = named_design("graded-15x10-b").matrix, np.random.default_rng(0)
        >>> steps = rng.normal(size=(4, 4, 4))
        >>> start = np.zeros((4, 4))
        >>> same = np.broadcast_to(start + steps.sum(axis=0), (10, 4, 4))  # every client owns the classes alike
        >>> label_spread(same, start, steps=steps, weights=matrix, samples=[100] * 15, counts=[25] * 4)
        0.0
    """
    rows, begin, w = as_numbers(margins, "margins"), as_numbers(start, "start"), as_numbers(weights, "weights")
    sizes, seen = as_numbers(samples, "sample counts"), as_numbers(counts, "counts")
    steps = as_numbers(steps, "steps")
    fit = rows.ndim == 3 and w.ndim == 2 and len(rows) == len(w) and sizes.shape == w.shape[1:] and seen.ndim == 1
    finite = all(np.isfinite(one).all() for one in (rows, begin, steps, sizes, seen))
    if not (fit and finite and begin.size and (sizes > 0).all() and (seen > 0).all()):
        raise ShapeError(
            f"margins {rows.shape}, start {begin.shape}, steps {steps.shape}, weights {w.shape}, {sizes.shape} sample "
            f"counts and {seen.shape} counts of classes: finite numbers of fitting shapes are needed, counts above 0"
        )
    if rows.shape[1:] != begin.shape or steps.shape != (len(begin), *begin.shape) or seen.size != len(begin):
        raise ShapeError(
            f"margins {rows.shape}, start {begin.shape}, steps {steps.shape} and {seen.size} counts do not fit"
        )
    out = np.zeros(w.shape[1], dtype=np.bool_) if aside is None else np.asarray(aside, dtype=np.bool_)
    parts = contrasts(w, np.ones(w.shape[1]))
    if out.any():
        parts = parts.without(out)
        if parts.size < 2 or out.all():
            return float("inf")
    if parts.size < 2 or (np.ptp(rows, axis=0) <= _ROUNDING * np.abs(rows).max(initial=0.0)).all():
        return 0.0
    moved = np.tensordot(parts.transform, rows, axes=1).reshape(parts.size, -1)
    scale = np.sqrt((moved**2).mean(axis=0))
    scale = np.where(scale > 0, scale, 1.0)
    design = (steps.reshape(len(steps), -1) / scale).T
    owned = np.linalg.lstsq(design, (moved / scale).T, rcond=None)[0]
    try:
        together = np.tensordot(mean_of_others(w, out), rows - begin, axes=1)
        everybody = float(nnls(design, together.ravel() / scale)[0].sum())
    except RuntimeError:  # no solution within its iterations: then margins are asked
        return float("inf")
    if not everybody > 0:
        return 0.0
    shares = seen / seen.sum()
    chance = shares * (1.0 - shares) / sizes[~out].mean()
    return float(np.median(((owned / everybody) ** 2).mean(axis=1) / chance))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnedClasses:
    """What `label_spread` is given, for when it is asked; a value, so that it can be kept with the evidence."""

    margins: FloatArray
    start: FloatArray
    steps: FloatArray
    weights: FloatArray
    samples: FloatArray
    counts: IntArray

    def spread(self, aside: BoolArray | None = None) -> float:
        """How unevenly clients own the classes; with clients set aside, bool[clients], as `label_spread` does."""
        return label_spread(
            self.margins,
            self.start,
            steps=self.steps,
            weights=self.weights,
            samples=self.samples,
            counts=self.counts,
            aside=aside,
        )
