"""Faults of the secure sums speak for clients that the sums accuse, and against nobody.

Two liars can poison just the sums of a victim: each spoils, or leaves, those of its other groups, which are then erased.
What is left looks as if the victim had poisoned alone. But whoever is at fault for the erased groups is among their
members, and the victim is not. So the same sums are decoded a second time with the faults, and who is accused only
without them is not accused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from fedgt.evidence.decoding import GradedDecoding
from fedgt.evidence.sets import decode_sets, sparse_prior
from fedgt.types import BoolArray, FloatArray, SetEvidence, frozen

MISSED = 7.0
"""Nats against a set of clients for each fault that nobody of it can be behind: honest clients cause one in a thousand."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FaultEvidence:
    """Implements `SetEvidence`: of each of some sets of clients at least one has broken the rules.

    Attributes:
        suspects: bool[faults, clients].

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence import FaultEvidence
        >>> FaultEvidence(suspects=np.array([[True, True, False]])).log_likelihood(np.eye(3, dtype=bool)).tolist()
        [0.0, 0.0, -7.0]
    """

    suspects: BoolArray

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "suspects", frozen(self.suspects, np.bool_))

    def log_likelihood(self, sets: BoolArray) -> FloatArray:
        """See `SetEvidence`."""
        hit = sets.astype(np.int64) @ self.suspects.T.astype(np.int64)
        missed: FloatArray = 0.0 - MISSED * np.count_nonzero(hit == 0, axis=1)
        return missed


def acquitted(
    found: GradedDecoding,
    evidence: Sequence[SetEvidence],
    suspects: BoolArray,
    *,
    largest: int,
    nobody: float,
    beta: float,
) -> GradedDecoding:
    """The same, without accusations that faults explain by somebody else; those clients are undecided.

    Args:
        found: What the sums say.
        evidence: From which.
        suspects: bool[faults, clients]: the clients among whom each fault has a liar.
        largest: As in `decode_graded`.
        nobody: As in `decode_graded`.
        beta: As in `decode_graded`.

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence import acquitted, decode_graded
        >>> nothing = decode_graded([], clients=15, largest=7)
        >>> acquitted(nothing, [], np.zeros((0, 15), dtype=bool), largest=7, nobody=0.5, beta=0.5) is nothing
        True
    """
    accused = found.flagged | found.suspicious
    if not accused.any() or not suspects.any():
        return found
    clients = len(found.posterior)
    prior = sparse_prior(clients, largest, nobody=nobody)
    before, after = (
        decode_sets(_Both(tuple(some)), clients=clients, prior=prior, best=1)
        for some in (evidence, [*evidence, FaultEvidence(suspects=suspects)])
    )
    # Only what the faults have changed: of two attacks along two lines this decoding knows one.
    border = np.log(beta / (1.0 - beta)) if 0.0 < beta < 1.0 else np.inf if beta else -np.inf
    freed = accused & (before.log_odds < border) & (after.log_odds >= border)
    if not freed.any():
        return found
    return replace(
        found,
        posterior=np.where(freed, expit(-after.log_odds), found.posterior),
        log_odds=np.where(freed, after.log_odds, found.log_odds),
        flagged=found.flagged & ~freed,
        harmless=found.harmless & ~freed,
        unconfirmed=found.unconfirmed & ~freed,
        undecided=found.undecided | freed,
        status="undecided",
        reason=f"{found.reason}; {int(freed.sum())} not accused: liars who spoilt other sums explain the same",
    )


@dataclass(frozen=True, slots=True)
class _Both:
    parts: tuple[SetEvidence, ...]

    def log_likelihood(self, sets: BoolArray) -> FloatArray:
        total: FloatArray = np.sum([part.log_likelihood(sets) for part in self.parts], axis=0)
        return total
