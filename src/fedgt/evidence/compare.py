"""Graded evidence from the group means of a test round: by how much, and along which line, does each group differ?

Nothing is reduced to one bit per group. The features give the line (weights of the classification layer:
`graded_evidence` and `shift_evidence`; outputs: `together`), the validation loss its direction (`damage`). The screen on
validation margins is `margin_screen`.
"""

from dataclasses import dataclass
from math import comb
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError
from fedgt.evidence.by_margins.margin_evidence import MarginEvidence
from fedgt.evidence.contrast import Contrasts, contrasts
from fedgt.evidence.harm import damage
from fedgt.evidence.layer import Layer, layer_of
from fedgt.evidence.line import ShiftEvidence, shift_evidence
from fedgt.evidence.several_tests import one_line
from fedgt.evidence.weights import GradedEvidence, Rows, mixed
from fedgt.screen.projection import LARGEST_USABLE
from fedgt.types import BoolArray, FloatArray, as_flags, as_numbers, frozen

_ROUNDING = 1e-24
"""Group means whose squared spread is below this fraction of their squared size differ by rounding only."""

_ALL_ROWS = 0.5
"""Prior probability that an attack moves all rows of the classification layer, not those of two classes."""

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
    # Row by row, here and below: a layer of a thousand classes is not copied more often than it must be.
    broken = ~closed & ~np.array([(np.abs(row) < LARGEST_USABLE).all() for row in rows], dtype=np.bool_)
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
    scale = max((float(np.abs(row).max(initial=0.0)) ** 2 for row in centred), default=0.0)
    centred -= centred.mean(axis=0)
    layer = layer_of(centred.reshape(len(centred), layers.shape[1] if layers.ndim == 3 else 1, -1), parts)
    equal = float(np.trace(layer.total)) <= _ROUNDING * scale * rows.shape[1]
    hypotheses = [] if equal else _hypotheses(layer, parts)
    mixture = mixed(hypotheses)
    if mixture is None:
        return no_difference(tested, loss, omitted)
    evidence = GradedEvidence(
        hypotheses=tuple(hypotheses),
        mixture=mixture,
        damage=damage(parts, losses[tested], label=label),
        noise=parts.noise,
        compared=parts.transform @ centred if layers.ndim == 2 else None,
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
        projection=_along(tested, layer.of_rows(strongest.labels), parts, strongest.shift),
        loss=loss,
        status="tested",
        reason=f"{int(tested.sum())} groups compared along {parts.size} contrasts; the strongest line, in {where}, has "
        f"signal-to-noise {strongest.shift.signal:.3g}, and {strongest.shift.effective_features:.3g} features vary "
        f"independently{_paired(layer)}{omitted}",
    )


def _hypotheses(layer: Layer, parts: Contrasts) -> list[Rows]:
    """All rows, and pairs of rows against each other where a row has more inputs than there are contrasts."""
    pairs = layer.pairs()
    of_a_pair = (1 - _ALL_ROWS) / max(comb(layer.classes, 2), 1)  # also where only some pairs are worth a look
    found = []
    for labels in [(), *pairs]:
        gram = parts.transform @ layer.of_rows(labels) @ parts.transform.T
        features = layer.inputs if labels else layer.classes * layer.inputs
        line = shift_evidence(gram, parts.shifts, features=features)
        prior = of_a_pair if labels else _ALL_ROWS if pairs else 1.0
        if line is not None:
            found.append(Rows(labels=labels, log_prior=float(np.log(prior)), gram=gram, features=features, shift=line))
    return found


def _paired(layer: Layer) -> str:
    """Which classes are not looked at pair by pair; empty if all are."""
    if not 0 < len(layer.paired) < layer.classes:
        return ""
    return f"; of {layer.classes} classes the {len(layer.paired)} that stand out most are compared pair by pair"


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
