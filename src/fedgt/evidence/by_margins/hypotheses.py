"""Which attack the validation margins of the group means may show, and how much honest clients would show of it.

The margin M[s, t] of a model is the mean, over the validation samples of class s, of logit t less logit s. A client that
labels class s as t raises it. So does an honest client that owns many samples of t and few of s, therefore what training on
more or fewer samples *of whole classes* does is taken out first: the server knows from its own samples, to first order, how
a step on class c moves the mean logits of every class (`class_steps`). How much of it to take out is chosen by generalised
cross-validation, because a class with two validation samples says little about itself. What is left of the margins of all
pairs is regressed, with the same coefficients for all, on what else moves with a margin when labels are right.

How large the rest is among honest clients is learnt from the pairs that a hypothesis does not touch: its logarithm is nearly
a sum of a row and a column effect, and a pair and its mirror image are alike, as classes that look alike are confused both
ways. What such a prediction errs by is learnt from all pairs, too.
"""

from dataclasses import dataclass, replace
from math import log

import numpy as np

from fedgt.errors import ShapeError
from fedgt.evidence.contrast import Contrasts
from fedgt.evidence.scores import checked_scores
from fedgt.types import FloatArray, IntArray, as_numbers, frozen

FEWEST_CLASSES = 4
"""With fewer classes there are too few pairs to learn the noise of one from the others."""

_KINDS = {"flip": 0.45, "offset": 0.45, "any": 0.10}
"""Prior probabilities of the kinds of attack; a kind's is spread evenly over its hypotheses."""

_RIDGES = np.logspace(-4.0, 3.0, 29)
"""Ridge penalties to choose from, in units of the mean squared singular value."""

_SWEEPS = 15
"""Of the median polish."""

_LEAST_ERROR, _LEAST_ERROR_OF_OFFSETS, _ERROR_OF_ANY = 0.15, 0.25, 0.4
"""Errors of the logarithm of a learnt scale: not believed to be smaller, or not learnt."""

_ANY_FACTOR = 2.0
"""Honest clients differ in all classes at once by up to this times what independent classes would make."""

_ROUNDING = 1e-24
"""Statistics of less than this fraction of the largest squared margin are rounding: no noise is learnt to be smaller."""

_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hypothesis:
    """One attack that malicious clients may make, and the statistic that it would raise.

    Attributes:
        labels: (s, t) for samples of s labelled t; (o,) for all labels moved on by o; () for wrong labels of any kind.
        observed: float64[contrasts]: the statistic.
        scale: Its deviation for one honest client.
        freedom: Degrees of freedom of that scale.
        excess: By how much the logarithm of its energy exceeds what the scale predicts.
        log_prior: Of this attack, given that there is one.
        lone_share: How probable it is that one honest client stands far from all others in this statistic; see `lone`.
        lone_size: How far, in deviations of the others.

    Examples:
        >>> from fedgt.evidence import Hypothesis
        >>> flip = Hypothesis(labels=(1, 7), observed=[0.0], scale=1.0, freedom=10.0, excess=0.0, log_prior=-5.0)
        >>> str(flip)
        'label 1 taken for 7'
    """

    labels: tuple[int, ...]
    observed: FloatArray
    scale: float
    freedom: float
    excess: float
    log_prior: float
    lone_share: float = 0.0
    lone_size: float = 1.0

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "observed", frozen(self.observed, np.float64))

    def __str__(self) -> str:
        """In words."""
        if len(self.labels) == 2:
            return f"label {self.labels[0]} taken for {self.labels[1]}"
        return f"all labels moved on by {self.labels[0]}" if self.labels else "wrong labels of any kind"


def class_steps(logits: FloatArray, inputs: FloatArray, labels: IntArray) -> FloatArray:
    """float64[S, S, classes]: how a gradient step on samples of one class moves the mean logits of every class.

    Element [c, s, t] is the mean movement of logit t over the validation samples of class s when the classification layer
    makes a small step on cross-entropy for samples of class c with their right labels. A sample does not count as its own
    training data, unless it is the only one of its class. S runs over the classes with samples, ascending.

    Args:
        logits: float[samples, classes] of the model the step starts from.
        inputs: float[samples, features]: what the classification layer sees.
        labels: int[samples].

    Raises:
        ShapeError, CalibrationError: If the shapes or dtypes do not fit, or there is no sample.

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence import class_steps
        >>> rng = np.random.default_rng(0)
        >>> labels = np.repeat(np.arange(4), 5)
        >>> class_steps(rng.normal(size=(20, 4)), rng.normal(size=(20, 8)), labels).shape
        (4, 4, 4)
    """
    logits, labels = checked_scores(logits, labels)
    inputs = as_numbers(inputs, "inputs")
    if inputs.ndim != 2 or len(inputs) != len(labels):
        raise ShapeError(f"inputs of shape {inputs.shape} for {len(labels)} samples; [samples, features] is needed")
    if not (np.isfinite(logits).all() and np.isfinite(inputs).all()):
        raise ShapeError("logits and inputs: finite numbers are needed")
    present, of = np.unique(labels, return_inverse=True)
    one_hot = np.eye(logits.shape[1])[labels]
    shifted = logits - logits.max(axis=1, keepdims=True)
    probabilities = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    pull = one_hot - probabilities
    member = of[:, None] == np.arange(len(present))[None]
    sizes = member.sum(axis=0)
    kernel = inputs @ inputs.T + 1.0
    near: FloatArray = kernel @ member.astype(np.float64)
    counts = np.broadcast_to(sizes, near.shape).astype(np.float64)
    alone = sizes[of] < 2
    own = np.where(alone, 0.0, np.diag(kernel))
    near[np.arange(len(of)), of] -= own
    counts = counts - member * ~alone[:, None]
    near = near / counts
    steps: FloatArray = np.stack([near[of == c].T @ pull[of == c] / sizes[c] for c in range(len(present))])
    return steps


def margin_hypotheses(
    parts: Contrasts, margins: FloatArray, classes: IntArray, steps: FloatArray | None, *, of: int | None = None
) -> list[Hypothesis]:
    """All hypotheses about one test round; each attack twice, with its scale learnt in two ways of equal probability.

    Of many classes some may be enough (`classes_to_compare`): then S of them stand both for the rows and for the columns of
    the margins, and what is paid for looking is that of all.

    Args:
        parts: The contrasts of the groups, made with equal sample counts: honest clients differ by who they are.
        margins: float64[groups, S, C]: centred mean logits of each class with samples; see `fedgt.screen.margins`.
        classes: int64[S]: which classes have samples, ascending.
        steps: float64[S, S, C] of `class_steps`; None where the classification layer's inputs are not known.
        of: The number of all classes, where `classes` are some of them and C is S; C if not given.

    Returns:
        Empty if there are fewer than `FEWEST_CLASSES` classes with samples, or nothing differs.
    """
    moved = np.tensordot(parts.transform, margins, axes=1)
    if len(classes) < FEWEST_CLASSES or not np.abs(moved).max(initial=0.0) > 0:
        return []
    least = max(_ROUNDING * float((margins**2).max()), _TINY)
    rest = moved if steps is None else _without_steps(moved, steps)
    width = margins.shape[2]
    # The column of each class, the class of each column, and how many classes there are.
    own, named, total = (classes, np.arange(width), width) if of is None else (np.arange(len(classes)), classes, of)
    pairs = np.array([(i, t) for i, s in enumerate(own.tolist()) for t in range(width) if t != s])
    flips = _adjusted(rest, own, pairs)
    energy = np.maximum((flips**2).mean(axis=1), least)
    unseen = log(len(pairs) / (total * (total - 1))) if of is not None else 0.0
    found = [
        replace(one, labels=tuple(named[list(one.labels)].tolist()), log_prior=one.log_prior + unseen)
        for one in _flips(flips, energy, pairs, own, width, least)
    ]
    # In units of what the rows and columns predict: in units of their own size the attacked pairs would count least.
    usual = _polished(_table(np.log(energy)[None], pairs, own, width))[0, pairs[:, 0], pairs[:, 1]]
    found += _offsets(flips / np.exp(usual / 2)[:, None], (named[pairs[:, 1]] - classes[pairs[:, 0]]) % total, total)
    return [*found, _any(moved, own, least)]


def _without_steps(moved: FloatArray, steps: FloatArray) -> FloatArray:
    """The contrasts without what steps on whole classes explain, ridge regression by generalised cross-validation."""
    observed = moved.reshape(len(moved), -1)
    scale = np.sqrt((observed**2).mean(axis=0))
    scale = np.where(scale > 0, scale, 1.0)
    rows, design = observed / scale, steps.reshape(len(steps), -1) / scale
    singular, right = np.linalg.svd(design, full_matrices=False)[1:]
    along = rows @ right.T
    size = float((rows**2).sum())
    shrinkage = singular**2 / (singular**2 + _RIDGES[:, None] * max(float((singular**2).mean()), _TINY))
    residual = size - ((2 * shrinkage - shrinkage**2)[:, None] * along**2).sum(axis=(1, 2))
    best = int((residual / (1.0 - shrinkage.sum(axis=1) / rows.shape[1]) ** 2).argmin())
    left: FloatArray = ((rows - (along * shrinkage[best]) @ right) * scale).reshape(moved.shape)
    return left


def _adjusted(rest: FloatArray, classes: IntArray, pairs: IntArray) -> FloatArray:
    """float64[pairs, contrasts]: margins without what moves with them for other reasons, one regression for all pairs."""
    sources, targets = pairs.T
    truth = classes[sources]
    row_of = np.full(rest.shape[2], -1)
    row_of[classes] = np.arange(len(classes))
    target_row = row_of[targets]
    seen = (target_row >= 0)[None]  # whether the target has validation samples
    margin = rest[:, sources, targets] - rest[:, sources, truth]
    to_target = np.where(seen, rest[:, target_row, targets], 0.0)
    to_source = np.where(seen, rest[:, target_row, truth], 0.0)
    columns = rest.sum(axis=1)
    others = np.maximum(len(classes) - 1 - seen, 1)
    elsewhere_target = (columns[:, targets] - rest[:, sources, targets] - to_target) / others
    elsewhere_source = (columns[:, truth] - rest[:, sources, truth] - to_source) / others
    same = rest[:, sources].sum(axis=2) - rest[:, sources, targets] - rest[:, sources, truth]
    covariates = np.stack([to_source, elsewhere_target, elsewhere_source, same / max(rest.shape[2] - 2, 1), to_target])
    # Pairs count alike, whatever their size: otherwise rare classes would rule.
    weights = 1.0 / np.sqrt(np.maximum((margin**2).mean(axis=0), _TINY))
    coefficients = np.linalg.lstsq(
        (covariates * weights).reshape(len(covariates), -1).T, (margin * weights).ravel(), rcond=None
    )[0]
    adjusted: FloatArray = (margin - np.tensordot(coefficients, covariates, axes=1)).T
    return adjusted


def _flips(
    flips: FloatArray, energy: FloatArray, pairs: IntArray, classes: IntArray, width: int, least: float
) -> list[Hypothesis]:
    """Samples of one class labelled as another: one hypothesis for every pair and each of two scales."""
    count = len(flips)
    as_they_are = _table(np.broadcast_to(np.log(energy), (count, count)), pairs, classes, width)
    # An attack raises other pairs too, along its own direction: without that direction they are as honest clients make them.
    across = _table(np.log(_across(flips, energy, least)), pairs, classes, width)
    across[np.arange(count), pairs[:, 0], pairs[:, 1]] = np.nan
    prior = log(_KINDS["flip"] / 2 / count)
    found = []
    for table in (as_they_are, across):
        predicted, error = _predicted(table, np.log(energy), pairs, classes)
        predicted = np.maximum(predicted, log(least))
        found += [
            Hypothesis(
                labels=(int(classes[i]), int(t)),
                observed=flips[row],
                scale=float(np.exp(predicted[row] / 2)),
                freedom=1.0 / (2.0 * error**2),
                excess=float(np.log(energy[row]) - predicted[row]),
                log_prior=prior,
            )
            for row, (i, t) in enumerate(pairs.tolist())
        ]
    return found


def _table(values: FloatArray, pairs: IntArray, classes: IntArray, width: int) -> FloatArray:
    """float64[tables, S, classes] of float64[tables, pairs]; NaN where a class would be taken for itself."""
    table: FloatArray = np.full((len(values), len(classes), width), np.nan)
    table[:, pairs[:, 0], pairs[:, 1]] = values
    return table


def _across(rows: FloatArray, energy: FloatArray, least: float) -> FloatArray:
    """float64[rows, rows]: energy of each row (second index) across the direction of each row (first index)."""
    contrasts = rows.shape[1]
    products = (rows @ rows.T) ** 2 / (contrasts * energy[:, None])
    left: FloatArray = np.maximum((contrasts * energy[None] - products) / max(contrasts - 1, 1), least)
    return left


def _predicted(table: FloatArray, observed: FloatArray, pairs: IntArray, classes: IntArray) -> tuple[FloatArray, float]:
    """Log-energy that each pair (first index of the table) should have by the others, and the error of its half."""
    fitted = _polished(table)
    number = np.arange(len(pairs))
    own = fitted[number, pairs[:, 0], pairs[:, 1]]
    row_of = np.full(table.shape[2], -1)
    row_of[classes] = np.arange(len(classes))
    mirror_row, mirror_column = row_of[pairs[:, 1]], classes[pairs[:, 0]]
    both = mirror_row >= 0
    mirrored = np.zeros(len(pairs))
    mirrored[both] = (table - fitted)[number[both], mirror_row[both], mirror_column[both]]
    excess = observed - own
    usual = float(np.median(excess))
    share = 0.0
    if both.any():
        x = mirrored[both] - np.median(mirrored[both])
        y = np.clip(excess[both] - usual, -2.0, 2.0)
        share = float(np.clip((x @ y) / max(float(x @ x), _TINY), 0.0, 1.0))
    predicted = own + share * mirrored
    predicted = predicted + np.median(observed - predicted)
    return predicted, max(_LEAST_ERROR, 0.5 * _deviation(observed - predicted))


def _polished(table: FloatArray) -> FloatArray:
    """Row and column effects by medians (Tukey's median polish), of each of the tables."""
    rows, columns = np.zeros(table.shape[:2]), np.zeros((table.shape[0], table.shape[2]))
    for _ in range(_SWEEPS):
        rows = np.nanmedian(table - columns[:, None, :], axis=2)
        columns = np.nanmedian(table - rows[:, :, None], axis=1)
    fitted: FloatArray = rows[:, :, None] + columns[:, None, :]
    return fitted


def _offsets(flips: FloatArray, moved_by: IntArray, width: int) -> list[Hypothesis]:
    """All labels moved on by the same number: the sum of the margins that it raises, in units of their size.

    Args:
        flips: float64[pairs, contrasts].
        moved_by: int64[pairs]: by how much each pair moves labels on.
        width: The number of classes.
    """
    offsets, many = np.unique(moved_by, return_counts=True)
    sums = np.stack([flips[moved_by == o].sum(axis=0) for o in offsets]) / np.sqrt(many)[:, None]
    energy = np.maximum((sums**2).mean(axis=1), _ROUNDING)
    others = ~np.eye(len(sums), dtype=np.bool_)
    prior = log(_KINDS["offset"] / 2 / (width - 1))
    found = []
    for table in (np.broadcast_to(energy, others.shape), _across(sums, energy, _ROUNDING)):
        logs = [np.log(table[row][others[row]]) for row in range(len(sums))]
        predicted = np.array([np.median(one) for one in logs])
        if table.strides[0]:  # without the suspects' direction every offset is smaller: by how much, all of them say
            predicted = predicted + np.median(np.log(energy) - predicted)
        predicted = np.maximum(predicted, log(_ROUNDING))
        for row, one in enumerate(logs):
            error = max(_LEAST_ERROR_OF_OFFSETS, 0.5 * _deviation(one))
            found.append(
                Hypothesis(
                    labels=(int(offsets[row]),),
                    observed=sums[row],
                    scale=float(np.exp(predicted[row] / 2)),
                    freedom=1.0 / (2.0 * error**2),
                    excess=float(np.log(energy[row]) - predicted[row]),
                    log_prior=prior,
                )
            )
    return found


def _any(moved: FloatArray, classes: IntArray, least: float) -> Hypothesis:
    """Wrong labels of any kind: all right logits fall. The scatter of the classes about their mean gives the scale."""
    falls = -moved[:, np.arange(len(classes)), classes] * (moved.shape[2] / (moved.shape[2] - 1))
    mean = falls.mean(axis=1)
    scatter = float(((falls - mean[:, None]) ** 2).sum()) / (len(classes) - 1) / falls.size
    scale = max(_ANY_FACTOR * scatter**0.5, least**0.5)
    return Hypothesis(
        labels=(),
        observed=mean,
        scale=scale,
        freedom=1.0 / (2.0 * _ERROR_OF_ANY**2),
        excess=float(np.log(max(float((mean**2).mean()), least) / scale**2)),
        log_prior=log(_KINDS["any"]),
    )


def _deviation(values: FloatArray) -> float:
    """Standard deviation by the median absolute deviation."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))
