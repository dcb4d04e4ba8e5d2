"""Scores that can be compared: which validation samples every model scores, and what becomes of the others.

One sample without a score must not cost a class, and a model that diverged must not cost the others. So a model that gives
most samples no score, or none of a class, is left out with its group. A sample that some other model gives none is left out
for all models: they are compared on the same samples.

A score of minus infinity, a probability of 0, is a number that was rounded down. It counts as the smallest finite score of
all models, the least that is known to have been told from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedgt.types import BoolArray, FloatArray, IntArray, frozen

_MOST_NAMED = 5
"""Samples that a message names; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UsableScores:
    """Scores of several models on the samples that they are compared on.

    Attributes:
        models: float64[samples left, classes] of each model, NaN where it diverged; None where there was no model.
        labels: int64[samples left].
        kept: bool[samples]: which samples are left.
        rounded: bool[samples left]: where some model's score was minus infinity.
        note: What was left out or replaced, in plain words; empty if nothing was.

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence import usable_scores
        >>> scores = usable_scores([np.array([[0.0, -np.inf], [2.0, 1.0]])], np.array([0, 1]))
        >>> scores.rounded.tolist(), scores.models[0].tolist()
        ([True, False], [[0.0, 0.0], [2.0, 1.0]])
    """

    models: tuple[FloatArray | None, ...]
    labels: IntArray
    kept: BoolArray
    rounded: BoolArray
    note: str

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "labels", frozen(self.labels, np.int64))
        object.__setattr__(self, "kept", frozen(self.kept, np.bool_))
        object.__setattr__(self, "rounded", frozen(self.rounded, np.bool_))

    def noted(self, reason: str) -> str:
        """The reason, and what was left out or replaced."""
        return f"{reason}; {self.note}" if self.note else reason

    def exact(self) -> "UsableScores":
        """The same without samples that have a rounded score.

        For means of scores, whose noise is compared between classes: a mean of raised scores moves less than the models do,
        and least in the classes that are raised most.
        """
        return self._only(~self.rounded)

    def of_classes(self, classes: IntArray) -> "UsableScores":
        """The same, only with the samples of these classes; each model scores all classes as before."""
        return self._only(np.isin(self.labels, classes))

    def _only(self, left: BoolArray) -> "UsableScores":
        kept = self.kept.copy()
        kept[kept] = left
        return replace(
            self,
            models=tuple(None if one is None else one[left] for one in self.models),
            labels=self.labels[left],
            kept=kept,
            rounded=self.rounded[left],
        )


def unscored(scores: FloatArray) -> BoolArray:
    """bool[samples]: without a usable score: NaN or plus infinity for some class, or minus infinity for all.

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence import unscored
        >>> unscored(np.array([[0.0, 1.0], [np.nan, 1.0], [-np.inf, 1.0]])).tolist()
        [False, True, False]
    """
    nothing = np.isneginf(scores).all(axis=1)
    bad: BoolArray = np.asarray((np.isnan(scores) | np.isposinf(scores)).any(axis=1) | nothing, dtype=np.bool_)
    return bad


def usable_scores(models: Sequence[FloatArray | None], labels: IntArray) -> UsableScores:
    """The samples on which these models can be compared.

    Args:
        models: float64[samples, classes] of each model; None where there is none. The classes of which the first model
            scores a sample are those of which the others must.
        labels: int64[samples].

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence import usable_scores
        >>> scores = usable_scores([np.array([[0.0, 1.0], [np.nan, 1.0], [2.0, 1.0]])], np.array([1, 0, 0]))
        >>> scores.kept.tolist(), scores.note
        ([True, False, True], 'validation sample 1 (class 0) left out: some model gives no finite score')
    """
    bad = [None if one is None else unscored(one) for one in models]
    first = np.zeros(len(labels), dtype=np.bool_) if bad[0] is None else bad[0]
    classes = set(labels[~first].tolist())
    whole = [
        one
        for one in bad
        if one is not None and 2 * int(one.sum()) <= len(labels) and set(labels[~one].tolist()) >= classes
    ]
    lost: BoolArray = np.zeros(len(labels), dtype=np.bool_)
    for one in whole:
        lost = np.logical_or(lost, one)
    if lost.all():  # no sample has a score everywhere: then the groups are left out, not the samples
        lost = np.zeros(len(labels), dtype=np.bool_)
    finite = [one[np.isfinite(one)] for one in models if one is not None]
    least = min((float(one.min()) for one in finite if one.size), default=0.0)
    zeros = sum(int(np.isneginf(one[~lost]).sum()) for one in models if one is not None)
    rounded: BoolArray = np.zeros(len(labels), dtype=np.bool_)
    for model in models:
        if model is not None:
            rounded = np.logical_or(rounded, np.isneginf(model).any(axis=1))
    notes = [_named(lost, labels)] if lost.any() else []
    if zeros:
        notes.append(
            f"{zeros} scores of minus infinity, probabilities of 0, count as {least:.4g}, the smallest finite one"
        )
    return UsableScores(
        models=tuple(None if one is None else _raised(one, least)[~lost] for one in models),
        labels=labels[~lost],
        kept=~lost,
        rounded=rounded[~lost],
        note="; ".join(notes),
    )


def _raised(scores: FloatArray, least: float) -> FloatArray:
    """The scores with minus infinity raised, NaN throughout for a sample without a score."""
    result: FloatArray = np.where(np.isneginf(scores), least, scores)
    result[unscored(scores)] = np.nan
    return result


def _named(lost: BoolArray, labels: IntArray) -> str:
    which = np.flatnonzero(lost).tolist()
    named = ", ".join(f"{i} (class {labels[i]})" for i in which[:_MOST_NAMED])
    more = f" and {len(which) - _MOST_NAMED} more" if len(which) > _MOST_NAMED else ""
    many = "s" if len(which) > 1 else ""
    return f"validation sample{many} {named}{more} left out: some model gives no finite score"
