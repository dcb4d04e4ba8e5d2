"""What the validation margins say about the suspects that the weights have found: a second opinion, asked for only then.

Weights find whoever stands out, most powerfully where honest clients are alike; where clients own different classes honest
ones stand out. Margins without what whole classes do tell mislabelling from that, but find less by themselves. So weights
name the suspects, and where clients own different classes margins must confirm them. Margins also show harm that the losses
of few sums do not: attackers together raise a loss by more than each of them alone, margins by the sum.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fedgt.evidence.by_margins.compare_margins import margin_screen
from fedgt.evidence.by_margins.spread import MORE_THAN_CHANCE
from fedgt.evidence.compare import GradedScreen
from fedgt.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MarginTest:
    """What `margin_screen` is given, for when it is asked; a value, so that it can be kept with the evidence."""

    margins: FloatArray
    class_losses: FloatArray
    classes: IntArray
    weights: FloatArray
    erased: BoolArray
    steps: FloatArray | None
    label: int | None
    of: int | None

    def __call__(self, aside: BoolArray | None = None) -> GradedScreen:
        """Compare them; with clients set aside, bool[clients], as `margin_screen` does."""
        return margin_screen(
            self.margins,
            self.class_losses,
            classes=self.classes,
            weights=self.weights,
            erased=self.erased,
            steps=self.steps,
            label=self.label,
            of=self.of,
            aside=aside,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class SecondOpinion:
    """Margins of the same sums, about suspects.

    Attributes:
        spread: How unevenly clients own the classes; see `label_spread`.
        test: Tests the sums of the round by margins, the clients given set aside (`MarginTest`); called once for each such
            set, when somebody is suspected.
        heard: bool[clients]: who is in an open sum of this round.

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence import SecondOpinion
        >>> def margins_of_the_same_sums(aside):
        ...     raise AssertionError("not asked: nobody of the set is in a sum")
        >>> opinion = SecondOpinion(spread=0.1, test=margins_of_the_same_sums, heard=np.arange(15) > 0)
        >>> opinion(np.eye(15, dtype=bool)[:1], np.zeros(15, dtype=bool)).tolist()
        [nan]
    """

    spread: float
    test: Callable[[BoolArray], GradedScreen]
    heard: BoolArray
    _tested: dict[bytes, GradedScreen] = field(default_factory=dict, init=False)

    @property
    def evenly_owned(self) -> bool:
        """Whether clients own the classes as evenly as one population gives them."""
        return self.spread <= MORE_THAN_CHANCE

    def __call__(self, sets: BoolArray, aside: BoolArray) -> FloatArray:
        """float64[B]: nats in favour of each of bool[B, clients] being malicious against nobody.

        Those who are set aside, bool[clients], count as neither: their updates cancel.

        NaN for sets of which nobody is in this round's sums; for all if the margins cannot be compared.
        """
        result = np.full(len(sets), np.nan)
        known = sets & self.heard
        some = known.any(axis=1)
        if not some.any():
            return result
        if aside.tobytes() not in self._tested:
            self._tested[aside.tobytes()] = self.test(aside)
        evidence = self._tested[aside.tobytes()].evidence
        if evidence is not None:
            result[some] = evidence.log_likelihood(known[some])
        return result
