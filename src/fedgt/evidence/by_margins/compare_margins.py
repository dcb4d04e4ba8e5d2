"""The graded screen on validation margins: which attack do the group means show, and how clearly?"""

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError
from fedgt.evidence.by_margins.hypotheses import FEWEST_CLASSES, Hypothesis, margin_hypotheses
from fedgt.evidence.by_margins.lone import with_lone_clients
from fedgt.evidence.by_margins.margin_evidence import MarginEvidence
from fedgt.evidence.compare import GradedScreen, left_out, no_difference, too_few
from fedgt.evidence.contrast import Contrasts, contrasts
from fedgt.evidence.harm import damage
from fedgt.screen.projection import LARGEST_USABLE
from fedgt.types import BoolArray, FloatArray, IntArray, as_flags, as_integers, as_numbers

_ROUNDING = 1e-12
"""Margins that differ by less than this fraction of their size are equal."""


def margin_screen(
    margins: npt.ArrayLike,
    class_losses: npt.ArrayLike,
    *,
    classes: npt.ArrayLike,
    weights: npt.ArrayLike,
    erased: npt.ArrayLike,
    steps: FloatArray | None = None,
    label: int | None = None,
    of: int | None = None,
    aside: BoolArray | None = None,
) -> GradedScreen:
    """Compare the validation margins of the group means of one test round.

    Args:
        margins: float[groups, S, classes] of `fedgt.screen.margins`; rows of erased groups may hold anything.
        class_losses: float[groups, classes], mean validation loss per class in nats; NaN for classes without a sample.
        classes: int[S]: the classes with samples, ascending.
        weights: float[groups, clients], the real weight of each client in each sum.
        erased: bool[groups], true where the sum was not opened.
        steps: float64[S, S, classes] of `fedgt.screen.class_steps`; better evidence with it.
        label: The label under attack if the user knows it: only flips of this label are looked at then.
        of: The number of all classes, where `classes` are some of them (`classes_to_compare`), as rows and as columns of the
            margins and of the steps.
        aside: bool[clients]: whose updates are to cancel, whatever they are, for what is said about the others.

    Returns:
        The evidence. A group whose margins or losses are not finite is left out and named; the rest is tested.

    Raises:
        ShapeError: If the shapes do not fit, the label has no sample, or fewer than four classes have.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import margin_screen
        >>> matrix, rng = named_design("graded-15x10-b").matrix, np.random.default_rng(0)
        >>> weights = matrix / matrix.sum(axis=1, keepdims=True)
        >>> clients = rng.normal(size=(15, 6, 6))  # margins of six classes
        >>> clients[[2, 5], 1, 4] += 30.0  # two of them label class 1 as class 4
        >>> means = np.tensordot(weights, clients, axes=1)
        >>> losses = rng.normal(0.3, 0.01, size=(10, 6))
        >>> found = margin_screen(means, losses, classes=range(6), weights=weights, erased=[False] * 10)
        >>> str(found.evidence.strongest)
        'label 1 taken for 4'
    """
    rows, losses = as_numbers(margins, "margins"), as_numbers(class_losses, "losses")
    w, closed = as_numbers(weights, "weights"), as_flags(erased, "erasures")
    present: IntArray = as_integers(classes, "classes")
    if rows.ndim != 3 or losses.ndim != 2 or w.ndim != 2 or not len(rows) == len(losses) == len(w) == closed.size:
        raise ShapeError(
            f"margins {rows.shape}, losses {losses.shape}, weights {w.shape} and erasures {closed.shape}: one row or entry "
            "per group is needed in each"
        )
    if (
        rows.shape[1] != present.size
        or (of is not None and rows.shape[2] != present.size)
        or (steps is not None and steps.shape != (present.size, *rows.shape[1:]))
    ):
        raise ShapeError(f"margins {rows.shape} of {present.size} classes with samples")
    every = rows.shape[2] if of is None else of
    if losses.shape[1] != every:
        raise ShapeError(f"losses {losses.shape} with margins {rows.shape}: one loss for each of the classes is needed")
    if (np.diff(present) <= 0).any() or not ((present >= 0) & (present < every)).all():
        raise ShapeError(f"classes {present.tolist()[:8]}: ascending numbers from 0 to {every - 1} are needed")
    if present.size < FEWEST_CLASSES:
        raise ShapeError(
            f"the validation set has samples of {present.size} classes; margins need {FEWEST_CLASSES}, because the noise of "
            "one pair of classes is learnt from the others: take features = 'weights'"
        )
    if label is not None and label not in present:
        raise ShapeError(f"label {label} has no sample in the validation set; those of {present.tolist()} have")
    broken = ~closed & ~(np.abs(rows) < LARGEST_USABLE).all(axis=(1, 2))
    unscored = ~closed & ~broken & ~(np.abs(losses[:, present]) < LARGEST_USABLE).all(axis=1)
    tested = ~(closed | broken | unscored)
    omitted = left_out(closed, broken, unscored)
    loss = np.full(len(rows), np.nan)
    loss[tested] = losses[tested][:, present].mean(axis=1)
    # Equal counts: honest clients differ by who they are, not by how many samples they have.
    parts = contrasts(w[tested], np.ones(w.shape[1]))
    if aside is not None:
        parts = parts.without(aside)
    if parts.size < 2:
        return too_few(tested, loss, omitted)
    seen = rows[tested]
    equal = bool((np.ptp(seen, axis=0) <= _ROUNDING * np.abs(seen).max(initial=0.0)).all())
    found = [] if equal else margin_hypotheses(parts, seen, present, steps, of=of)
    flips = [one for one in found if len(one.labels) == 2]
    if flips:
        found = [*with_lone_clients(parts.shifts, flips), *(one for one in found if len(one.labels) != 2)]
    if label is not None:
        found = [one for one in found if len(one.labels) == 2 and one.labels[0] == label]
    if not found:
        return no_difference(tested, loss, omitted)
    evidence = MarginEvidence(
        shifts=parts.shifts, noise=parts.noise, hypotheses=tuple(found), damage=damage(parts, losses[tested])
    )
    strongest = evidence.strongest
    along = np.full(len(rows), np.nan)
    along[tested] = _along(parts, strongest)
    return GradedScreen(
        evidence=evidence,
        tested=tested,
        projection=along,
        loss=loss,
        status="tested",
        reason=f"{int(tested.sum())} groups compared along {parts.size} contrasts; most unusual: {strongest}, with "
        f"{np.exp(strongest.excess / 2):.3g} times the deviation that honest clients should make"
        + ("" if steps is not None else " (what the classification layer sees is not known: less is told apart)")
        + ("" if of is None else f"; of {of} classes the {present.size} that stand out most are compared pair by pair")
        + omitted,
    )


def _along(parts: Contrasts, one: Hypothesis) -> FloatArray:
    """float64[groups]: where each group mean lies along a statistic, in units of one honest client's deviation."""
    positions: FloatArray = np.linalg.pinv(parts.transform) @ one.observed / one.scale
    return positions
