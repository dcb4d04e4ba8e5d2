"""Graded evidence from the group means of a test round: by how much, and along which line, does each group differ?

Nothing is reduced to one bit per group. The features give the line (weights of the classification layer:
`graded_evidence` and `shift_evidence`; outputs: `together`), the validation loss its direction (`damage`). The screen on
validation margins is `margin_screen`.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError
from fedgt.evidence.by_margins.margin_evidence import MarginEvidence
from fedgt.evidence.contrast import Contrasts, contrasts
from fedgt.evidence.harm import damage
from fedgt.evidence.line import ShiftEvidence, shift_evidence
from fedgt.evidence.several_tests import one_line
from fedgt.evidence.weights import Compared, GradedEvidence, Rows, mixed
from fedgt.screen.projection import LARGEST_USABLE
from fedgt.types import BoolArray, FloatArray, as_flags, as_numbers, frozen

_ROUNDING = 1e-24
"""Group means whose squared spread is below this fraction of their squared size differ by rounding only."""

_ALL_ROWS = 0.5
"""Prior probability that an attack moves all rows of the classification layer, not those of two classes."""

_MOST_CLASSES = 64
"""Pairs of classes are looked at up to this number of classes."""

GradedStatus = Literal["tested", "no-difference", "too-few-groups"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradedScreen:
    """What the graded screen found.

    Attributes:
        evidence: About sets of clients; None where there is none.
        tested: bool[groups]: which groups are in it.
        projection: float64[groups]: where each group mean lies along the strongest line, in units of the noise along it;
            NaN where not tested.
        loss: float64[groups]: balanced validation loss of each group mean in nats; NaN where not tested.
        status: `tested`; `no-difference` (all group means are equal); `too-few-groups`.
        reason: The same in plain words, with the groups that were left out and why.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import graded_screen
        >>> matrix = named_design("graded-15x10-b").matrix
        >>> same = np.zeros((10, 4, 50))
        >>> found = graded_screen(same, np.full((10, 4), 0.3), weights=matrix, samples=[100] * 15, erased=[False] * 10)
        >>> found.status, found.evidence is None
        ('no-difference', True)
    """

    evidence: GradedEvidence | MarginEvidence | None
    tested: BoolArray
    projection: FloatArray
    loss: FloatArray
    status: GradedStatus
    reason: str

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "tested", frozen(self.tested, np.bool_))
        object.__setattr__(self, "projection", frozen(self.projection, np.float64))
        object.__setattr__(self, "loss", frozen(self.loss, np.float64))


def graded_screen(
    features: npt.ArrayLike,
    class_losses: npt.ArrayLike,
    *,
    weights: npt.ArrayLike,
    samples: npt.ArrayLike,
    erased: npt.ArrayLike,
    label: int | None = None,
) -> GradedScreen:
    """Compare the group means of one test round.

    Args:
        features: float[groups, classes, inputs], the classification layer's weights of each group mean or of its update, or
            float[groups, features] of any other kind; rows of erased groups may hold anything.
        class_losses: float[groups, classes], mean validation loss per class in nats; NaN for classes without a sample.
        weights: float[groups, clients], the real weight of each client in each sum.
        samples: float[clients], sample counts.
        erased: bool[groups], true where the sum was not opened.
        label: The label under attack if the user knows it.

    Returns:
        The evidence. A group whose features or losses are not finite is left out and named; the rest is tested.

    Raises:
        ShapeError: If the shapes do not fit, or there are not more features than groups.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import decode_graded, graded_screen
        >>> matrix, rng = named_design("graded-15x10-b").matrix, np.random.default_rng(0)
        >>> weights, attackers = matrix / matrix.sum(axis=1, keepdims=True), [2, 5, 11]
        >>> layers = rng.normal(size=(15, 4, 50))  # what each client's layer differs by: four classes, 50 inputs
        >>> layers[attackers, 1] += 2.0  # all of them push class 1
        >>> losses = np.full((10, 4), 0.3) + rng.normal(scale=0.01, size=(10, 4))
        >>> losses[:, 1] += weights[:, attackers].sum(axis=1)  # and its loss rises in their groups
        >>> means = np.tensordot(weights, layers, axes=1)
        >>> found = graded_screen(means, losses, weights=weights, samples=[100] * 15, erased=[False] * 10)
        >>> suspects = decode_graded([found.evidence], clients=15, largest=7).flagged
        >>> suspects.nonzero()[0].tolist()
        [2, 5, 11]
    """
    layers, losses = as_numbers(features, "features"), as_numbers(class_losses, "losses")
    closed, w = as_flags(erased, "erasures"), as_numbers(weights, "weights")
    if (
        layers.ndim not in (2, 3)
        or losses.ndim != 2
        or w.ndim != 2
        or not len(layers) == len(losses) == len(w) == closed.size
    ):
        raise ShapeError(
            f"features {layers.shape}, losses {losses.shape}, weights {w.shape} and erasures {closed.shape}: one row or "
            "entry per group is needed in each"
        )
    rows = layers.reshape(len(layers), -1)
    broken = ~closed & ~(np.abs(rows) < LARGEST_USABLE).all(axis=1)
    observed = ~np.isnan(losses[~closed & ~broken]).all(axis=0)
    needed = observed if label is None else observed & (np.arange(losses.shape[1]) == label)
    unscored = ~closed & ~broken & ~((np.abs(losses[:, needed]) < LARGEST_USABLE).all(axis=1) & needed.any())
    tested = ~(closed | broken | unscored)
    omitted = left_out(closed, broken, unscored)
    parts = contrasts(w[tested], samples)
    loss = np.full(len(rows), np.nan)
    if tested.any():
        loss[tested] = losses[tested][:, observed & np.isfinite(losses[tested]).all(axis=0)].mean(axis=1)
    if parts.size < 2:
        return too_few(tested, loss, omitted)
    # One centred copy of the group means; everything else follows from its scalar products.
    centred = rows[tested]
    scale = float((centred**2).max(initial=0.0))
    centred -= centred.mean(axis=0)
    classes = layers.shape[1] if layers.ndim == 3 else 1
    products = _products(centred.reshape(len(centred), classes, -1))
    total = np.trace(products, axis1=0, axis2=1).T if classes > 1 else products[0, 0]
    equal = float(np.trace(total)) <= _ROUNDING * scale * rows.shape[1]
    hypotheses = [] if equal else _hypotheses(products, total, parts, rows)
    mixture = mixed(hypotheses)
    if mixture is None:
        return no_difference(tested, loss, omitted)
    evidence = GradedEvidence(
        hypotheses=tuple(hypotheses),
        mixture=mixture,
        damage=damage(parts, losses[tested], label=label),
        compared=Compared(contrasts=parts.transform @ centred, noise=parts.noise) if layers.ndim == 2 else None,
    )
    if evidence.compared is not None:
        evidence = one_line((evidence,))
    strongest = evidence.strongest
    where = (
        "all rows" if not strongest.labels else f"the rows of labels {strongest.labels[0]} and {strongest.labels[1]}"
    )
    return GradedScreen(
        evidence=evidence,
        tested=tested,
        projection=_along(tested, _of_rows(products, total, strongest.labels), parts, strongest.shift),
        loss=loss,
        status="tested",
        reason=f"{int(tested.sum())} groups compared along {parts.size} contrasts; the strongest line, in {where}, has "
        f"signal-to-noise {strongest.shift.signal:.3g}, and {strongest.shift.effective_features:.3g} features vary "
        f"independently{omitted}",
    )


def _products(centred: FloatArray) -> FloatArray:
    """float64[classes, classes, groups, groups]: scalar products of the rows of the layer; [1, 1, ...] for many classes."""
    groups, classes, inputs = centred.shape
    if classes > _MOST_CLASSES:
        flat = centred.reshape(groups, -1)
        return (flat @ flat.T)[None, None]
    flat = centred.transpose(1, 0, 2).reshape(classes * groups, inputs)
    products: FloatArray = (flat @ flat.T).reshape(classes, groups, classes, groups).transpose(0, 2, 1, 3)
    return products


def _of_rows(products: FloatArray, total: FloatArray, labels: tuple[int, ...]) -> FloatArray:
    """float64[groups, groups]: scalar products of all rows, or of the difference of two."""
    if not labels:
        return total
    s, t = labels
    difference: FloatArray = products[s, s] + products[t, t] - products[s, t] - products[t, s]
    return difference


def _hypotheses(products: FloatArray, total: FloatArray, parts: Contrasts, rows: FloatArray) -> list[Rows]:
    """All rows, and every pair of rows against each other where a row has more inputs than there are contrasts."""
    classes = len(products)
    inputs = rows.shape[1] // classes
    pairs = list(combinations(range(classes), 2)) if classes > 1 and inputs > parts.size else []
    priors = {(): _ALL_ROWS if pairs else 1.0} | {pair: (1 - _ALL_ROWS) / len(pairs) for pair in pairs}
    found = []
    for labels, prior in priors.items():
        gram = parts.transform @ _of_rows(products, total, labels) @ parts.transform.T
        features = inputs if labels else rows.shape[1]
        line = shift_evidence(gram, parts.shifts, features=features)
        if line is not None:
            found.append(Rows(labels=labels, log_prior=float(np.log(prior)), gram=gram, features=features, shift=line))
    return found


def _along(tested: BoolArray, products: FloatArray, parts: Contrasts, line: ShiftEvidence) -> FloatArray:
    """float64[groups]: the group means along the line, in units of one group mean's deviation across it."""
    towards = parts.transform.T @ line.direction  # theta-hat is this combination of the (centred) group means
    size = float(towards @ products @ towards) ** 0.5
    positions = products @ towards / size
    across = max(float(np.trace(products)) - float(positions @ positions), np.finfo(float).tiny)
    along = np.full(len(tested), np.nan)
    along[tested] = positions / (across / line.effective_features / len(positions)) ** 0.5
    return along


def too_few(tested: BoolArray, loss: FloatArray, omitted: str) -> GradedScreen:
    """What a screen says where there are fewer than two contrasts.

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence import too_few
        >>> too_few(np.array([True, False]), np.array([0.3, np.nan]), "").status
        'too-few-groups'
    """
    return GradedScreen(
        evidence=None,
        tested=tested,
        projection=np.full(len(tested), np.nan),
        loss=loss,
        status="too-few-groups",
        reason=f"{int(tested.sum())} of {len(tested)} groups can be compared; three different sums are needed at least, "
        f"four where clients have different numbers of samples{omitted}",
    )


def no_difference(tested: BoolArray, loss: FloatArray, omitted: str) -> GradedScreen:
    """What a screen says where all tested groups are equal."""
    return GradedScreen(
        evidence=None,
        tested=tested,
        projection=np.where(tested, 0.0, np.nan),
        loss=loss,
        status="no-difference",
        reason=f"the {int(tested.sum())} tested groups have the same model: nobody changed anything{omitted}",
    )


def left_out(closed: BoolArray, broken: BoolArray, unscored: BoolArray) -> str:
    """Which groups are not compared, and why; empty if all are.

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence import left_out
        >>> print(left_out(np.array([False, True]), np.array([False, False]), np.array([False, False])))
        ; left out: group 1 (sum not opened)
    """
    causes = ((closed, "sum not opened"), (broken, "features not finite"), (unscored, "validation loss not finite"))
    parts = [
        f"group{'s' if mask.sum() > 1 else ''} {', '.join(map(str, np.flatnonzero(mask).tolist()))} ({cause})"
        for mask, cause in causes
        if mask.any()
    ]
    return f"; left out: {', '.join(parts)}" if parts else ""
