"""What graded evidence says about every client, once it is decoded."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedgt.decode.ranked import RankedSet
from fedgt.types import BoolArray, FloatArray, frozen

GradedStatus = Literal["decided", "nobody", "harmless", "unconfirmed", "undecided", "unexplained", "no-evidence"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradedDecoding:
    """Who is malicious by graded evidence.

    Attributes:
        posterior: float64[clients]: P(malicious | group means).
        log_odds: float64[clients]: log P(benign) - log P(malicious), in nats.
        flagged: bool[clients]: accused at minimum expected cost; nobody where `against_nobody` is below 3.
        harmless: bool[clients]: suspected by this evidence, but no loss rises with them.
        unconfirmed: bool[clients]: suspected by this evidence, and acquitted by a second opinion, or because honest clients
            could have sent the sums.
        undecided: bool[clients]: posterior neither near 0 nor near 1; a further test round may tell.
        count: float64[n_max + 1]: posterior of the number of malicious clients (of one attack, or of the union of several).
        against_nobody: log-odds, in nats, of some attack against none, prior included.
        best: The most probable sets, most probable first.
        attacks: How many lines were found, each of an attack.
        more: Whether a line is left when all attackers found are set aside: then nobody is cleared.
        status: `decided`; `nobody` (no attack is more probable); `harmless` (clients differ, but no loss rises with them
            significantly: nobody is accused); `unconfirmed` (clients differ, but the margins do not speak for an attack, or
            honest clients could have sent the sums: nobody is accused); `undecided` (some client is); `unexplained` (the
            groups differ along a line that no set of clients explains); `no-evidence` (nothing could be compared).
        reason: The same in plain words.
        second: float64[clients]: log-odds as `log_odds`, by what acquits suspects; -inf of everybody else. None where nobody
            is acquitted.

    Examples:
        >>> from fedgt.evidence import decode_graded
        >>> found = decode_graded([], clients=15, largest=7)  # no test round had anything to compare
        >>> found.status, int(found.flagged.sum())
        ('no-evidence', 0)
    """

    posterior: FloatArray
    log_odds: FloatArray
    flagged: BoolArray
    harmless: BoolArray
    unconfirmed: BoolArray
    undecided: BoolArray
    count: FloatArray
    against_nobody: float
    best: tuple[RankedSet, ...]
    attacks: int
    status: GradedStatus
    reason: str
    more: bool = False
    second: FloatArray | None = None

    @property
    def believed(self) -> FloatArray:
        """float64[clients]: `log_odds`, and for the suspicious not below what acquits them.

        Suspects that are acquitted stand out, as honest clients of other classes do. So the log-odds are those of what tells
        the two apart.
        """
        if self.second is None:
            return self.log_odds
        return np.where(self.suspicious, np.maximum(self.log_odds, self.second), self.log_odds)

    @property
    def suspicious(self) -> BoolArray:
        """bool[clients]: who stands out and is not accused, because no harm is shown or a second look acquits."""
        return self.harmless | self.unconfirmed

    def __post_init__(self) -> None:
        """Freeze."""
        for name, dtype in (
            ("posterior", np.float64),
            ("log_odds", np.float64),
            ("flagged", np.bool_),
            ("harmless", np.bool_),
            ("unconfirmed", np.bool_),
            ("undecided", np.bool_),
            ("count", np.float64),
        ):
            object.__setattr__(self, name, frozen(getattr(self, name), dtype))
        if self.second is not None:
            object.__setattr__(self, "second", frozen(self.second, np.float64))
