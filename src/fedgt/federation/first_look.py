"""What the first sums of a round show beside those of earlier rounds, and whether that is reason enough to open more.

Nobody is accused by it: a few sums do not say who it is. They say whether a round is as the rounds before it were. Four
things are compared with the rounds before, for the classes of the classification layer:

- the **spread** between the group means: some clients have begun to push otherwise than the others;
- the spread **along** the mean update, where honest clients differ less: some push against the others, or not at all;
- the **turn** of the mean update: the same push in every group, which no difference between groups shows. It is compared
  with that of half as many rounds, so that a push that grows slowly adds up;
- the **rise** of the loss on the validation set, in this round and since it was lowest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedgt.evidence import class_losses, usable_scores
from fedgt.federation.group_means import GroupMeans, by_class
from fedgt.federation.participants import Validation
from fedgt.types import FloatArray, Parameters, frozen

_WIDER, _BY_CHANCE = 0.7, 3.0
"""Nats: a spread this much above the widest before, by a factor of two in its square; and so many standard deviations of
what chance alone does to it, where it is made of few numbers."""

_TURNED, _MORE_TURNED = 0.3, 1.5
"""One minus the cosine, and how many times the most before."""

_RISEN, _MORE_RISEN = 0.15, 1.5
"""By how much the logarithm of the loss of a class rises in a round, and how many times the most before."""

_BEHIND = 0.35
"""By how much the logarithm of the loss of a class changes more than that of the usual class, where one round is known. In
the second round all losses fall steeply where nobody attacks, and an attacked one may fall less. Of 31 federations without
attackers one had more, 0.44; three label flippers of 15 made 0.33 to 0.81 in 18 that the turn did not show, on seeds 7100 to
7139 of digits, MNIST and the CIFAR-10 head."""

_WORSE = 0.4
"""The same since the loss was lowest, in this run or since the last test that found nobody."""

_LITTLE_LOSS = 0.01
"""Nats: a loss below it is as good as none, whatever it was before."""

_RECENT, _TESTED = 5, 2
"""So many rounds are remembered: the latest, and the latest in which all sums were opened and nobody was suspected. The
first follow what is usual. The others do not get used to an attack that was overlooked once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstLook:
    """What the first sums of a round show.

    Attributes:
        rows: float64[groups, clients], the real weights in the sums that were looked at.
        spread: float64[classes], the weighted mean of the squared distances of the group means from their mean.
        along: The same along the mean update of each class, and for all classes together.
        freedom: float64[classes + 1], by how many independent numbers each of these is known, `along` last.
        direction: float64[classes, inputs], the mean update; empty where it is not needed any more.
        turn: The largest of one minus the cosine between the mean updates of this round and of an earlier one, over the
            classes; NaN where there is none before.
        rise: The largest rise of the logarithm of the loss of a class in this round; NaN where it cannot be said.
        behind: By how much it rises more than the median over the classes.
        losses: float64[classes], the logarithms after it; those of classes without a sample are NaN.
        lowest: float64[classes], the lowest before it.
        tested: Whether all sums of the round were opened, and nobody is suspected.
    """

    rows: FloatArray
    spread: FloatArray
    along: float
    freedom: FloatArray
    direction: FloatArray
    turn: float
    rise: float
    behind: float
    losses: FloatArray
    lowest: FloatArray
    tested: bool = False

    def __post_init__(self) -> None:
        """Freeze."""
        for name in ("rows", "spread", "freedom", "direction", "losses", "lowest"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))

    def follows(self, other: "FirstLook") -> bool:
        """Whether it is about the same sums of the same clients."""
        return np.array_equal(self.rows, other.rows)


def first_look(
    rows: FloatArray,
    means: GroupMeans,
    moved: Parameters,
    *,
    layer: str,
    validation: Validation,
    round: int,
    before: Sequence[FirstLook] = (),
) -> FirstLook:
    """Look at the first sums of a round.

    Args:
        rows: float64[groups, clients], the real weights in the sums.
        means: Of these groups, without who was set aside.
        moved: The global model that the first sums give.
        layer: The classification layer.
        validation: The server's validation set.
        round: Its number. The mean update is compared with the one of half as many rounds, as far as that is remembered:
            honest updates turn fast at first, and slowly later.
        before: The looks at earlier rounds, the latest last.
    """
    start = means.start
    updates = [by_class(np.asarray(one[layer], dtype=np.float64)[None])[0] for one in means.updates if one is not None]
    weights = np.array(
        [row.sum() for row, one in zip(means.rows, means.updates, strict=True) if one is not None], dtype=np.float64
    )
    step = by_class((np.asarray(moved[layer], dtype=np.float64) - np.asarray(start[layer], dtype=np.float64))[None])[0]
    step = step.reshape(len(step), -1)
    spread, along, freedom = np.zeros(len(step)), 0.0, np.ones(len(step) + 1)
    if len(updates) > 1:
        stacked = np.array(updates).reshape(len(updates), len(step), -1)
        shares = weights / weights.sum()
        differences = stacked - np.einsum("g,gcf->cf", shares, stacked)
        by_input = np.einsum("g,gcf->cf", shares, differences**2)
        lengths = np.linalg.norm(step, axis=1)
        unit = np.divide(step, lengths[:, None], out=np.zeros_like(step), where=lengths[:, None] > 0)
        spread = by_input.sum(axis=1)
        along = float(shares @ (np.einsum("gcf,cf->gc", differences, unit) ** 2).sum(axis=1))
        comparisons = len(updates) - 1
        freedom = np.append(_freedom(by_input, comparisons), max(1, comparisons * int((lengths > 0).sum())))
    back = min(len(before), max(1, round // 2), _RECENT)
    earlier = before[-back].direction if back else np.zeros((0, 0))
    beginning, end = _losses(start, moved, validation)
    rises = (end - beginning)[np.isfinite(end - beginning)]
    lowest = beginning
    if before:
        lowest = np.fmin(before[-1].losses, beginning if before[-1].tested else before[-1].lowest)
    return FirstLook(
        rows=rows,
        spread=spread,
        along=along,
        freedom=freedom,
        direction=step,
        turn=_turn(step, earlier),
        rise=float(rises.max()) if len(rises) else float("nan"),
        behind=float(rises.max() - np.median(rises)) if len(rises) else float("nan"),
        losses=end,
        lowest=lowest,
    )


def reason_to_open_more(look: FirstLook, before: Sequence[FirstLook]) -> str:
    """What is not as it was in the rounds before, in words; empty if all is.

    Args:
        look: At this round.
        before: At earlier rounds, the latest last, at least one.
    """
    if not (np.isfinite(look.spread).all() and np.isfinite(look.along) and np.isfinite(look.rise)):
        return "the first sums give no finite model"
    recent, tested = before[-_RECENT:], [one for one in before if one.tested][-_TESTED:]
    for known in (recent, tested):
        if not known:
            continue
        # What is known of this round is not asked: whoever pushes along one input only would be granted more chance.
        freedom = np.min([one.freedom for one in known], axis=0)
        widest = np.max([np.append(one.spread, one.along) for one in known], axis=0)
        wider = _logarithm(np.append(look.spread, look.along)) - _logarithm(widest)
        limit = np.maximum(_WIDER, _BY_CHANCE * np.sqrt(2.0 / freedom * (1.0 + 1.0 / len(known))))
        beyond = wider - limit
        worst = int(beyond[:-1].argmax())
        if beyond[worst] > 0:
            return (
                f"the groups differ in class {worst} by {np.exp(wider[worst] / 2):.1f} times the most of earlier rounds"
            )
        if beyond[-1] > 0:
            return (
                "some push against the others, or not at all: the groups differ along the mean update by "
                f"{np.exp(wider[-1] / 2):.1f} times the most of earlier rounds"
            )
        turned = max((one.turn for one in known if np.isfinite(one.turn)), default=0.0)
        if look.turn > max(_TURNED, _MORE_TURNED * turned):
            return f"the mean update has turned (1 - cosine = {look.turn:.2f}, {turned:.2f} at most before)"
        risen = max(one.rise for one in known)
        if look.rise > max(_RISEN, _MORE_RISEN * risen):
            return f"the loss of a class has risen by {100 * np.expm1(look.rise):.0f} %"
    if len(before) == 1 and look.behind > _BEHIND:
        return f"the loss of a class is {100 * np.expm1(look.behind):.0f} % above where a usual one went in this round"
    if look.losses.shape == look.lowest.shape and (worse := float(np.nanmax(look.losses - look.lowest))) > _WORSE:
        return f"the loss of a class is {100 * np.expm1(worse):.0f} % above the lowest since the last test"
    return ""


def grown(look: FirstLook, before: Sequence[FirstLook]) -> FloatArray | None:
    """float64[classes]: by how many nats the squared spread of a class is above its widest before, less the median of all.

    The median is what training does to all of them: spreads fall as a model settles.

    Args:
        look: At this round.
        before: At earlier rounds in which nothing was left open, the latest last.

    Returns:
        None where there is no earlier look, or the latest one is at other sums.
    """
    if not before or not look.follows(before[-1]) or not np.isfinite(look.spread).all():
        return None
    growth = _logarithm(look.spread) - _logarithm(np.max([one.spread for one in before], axis=0))
    return growth - np.median(growth)


def remembered(before: Sequence[FirstLook], look: FirstLook) -> tuple[FirstLook, ...]:
    """The looks that later rounds are compared with."""
    recent, older = before[1 - _RECENT :], before[: 1 - _RECENT]
    tested = sum(one.tested for one in recent)
    known = [one for one in older if one.tested]
    return (*spreads_of(known[len(known) - max(0, _TESTED - tested) :]), *recent, look)


def spreads_of(looks: Sequence[FirstLook]) -> tuple[FirstLook, ...]:
    """The same without the direction of the update, which is as large as the layer."""
    return tuple(replace(one, direction=np.zeros((0, 0))) for one in looks)


def _logarithm(values: FloatArray) -> FloatArray:
    logarithms: FloatArray = np.log(np.maximum(values, np.finfo(float).tiny))
    return logarithms


def _freedom(by_input: FloatArray, comparisons: int) -> FloatArray:
    """float64[classes]: the degrees of freedom of a sum of squares over inputs that vary differently (Satterthwaite 1946).

    Args:
        by_input: float64[classes, inputs], the squares that are summed.
        comparisons: How many independent differences each is made of; their chance makes inputs look more different.
    """
    squares = (by_input**2).sum(axis=1)
    total = by_input.sum(axis=1)
    even = np.divide(total**2, squares, out=np.ones(len(total)), where=squares > 0)
    freedom: FloatArray = np.maximum(1.0, even * (comparisons + 2))
    return freedom


def _turn(step: FloatArray, earlier: FloatArray) -> float:
    if step.shape != earlier.shape:
        return float("nan")
    lengths = np.linalg.norm(step, axis=1) * np.linalg.norm(earlier, axis=1)
    moving = lengths > 0
    if not moving.any():
        return 0.0
    return float((1.0 - (step * earlier).sum(axis=1)[moving] / lengths[moving]).max())


def _losses(start: Parameters, moved: Parameters, validation: Validation) -> tuple[FloatArray, FloatArray]:
    """float64[classes] twice: the logarithms of the losses before and after; NaN where there is none."""
    scored = [np.asarray(validation.logits(one), dtype=np.float64) for one in (start, moved)]
    used = usable_scores(scored, np.asarray(validation.labels))
    if not len(used.labels) or any(one is None or not np.isfinite(one).all() for one in used.models):
        nothing = np.full(1, np.nan)
        return nothing, nothing
    before, after = (np.log(class_losses(one, used.labels) + _LITTLE_LOSS) for one in used.models if one is not None)
    return before, after
