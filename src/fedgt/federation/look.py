"""One test of a standing schedule: which sums are asked for, what is compared of them, and whose update may enter the model.

The rows stay the same in every round, so that nothing more is revealed as if updates repeated. Whoever was excluded goes on
in its groups: without it the rows would be others. Its updates are taken out of everything that is looked at, whatever they
are: each group mean is replaced by the nearest combination of group means in which they cancel.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from scipy.special import expit

from fedgt.evidence import GradedDecoding
from fedgt.federation.group_means import GroupMeans
from fedgt.federation.open_tests import OpenTests
from fedgt.federation.settings import DecodeSettings
from fedgt.federation.trial import Trial
from fedgt.federation.verdicts import Exclusion
from fedgt.federation.views import Chosen
from fedgt.grouping import Grouping
from fedgt.types import BoolArray, FloatArray

_RANK = 1e-9
"""Directions with less than this fraction of the largest are combinations of others."""

_MOST_NOISE = 16.0
"""A group mean is not compared where taking the excluded out gives it more than this many times its variance."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Look:
    """How one test is held and judged; without arguments, as a test that stands for itself.

    Attributes:
        opened: float64[clients] each: the real rows of the sums that were opened before. Such a group is asked for with the
            very same members, or not at all.
        added: How many groups at the end were added after a fault. They are asked for like those.
        aside: Who is excluded and goes on in its groups. Nothing of them is judged, or enters a model.
        trials: Who of them is judged once more, without a consequence for anybody else in this round.
        odd: Whom the first test found suspicious: they stay, as the policy says. Who becomes suspicious later sits out.
        later: Whether a first test was held: then no policy stops the run, or leaves out who is absent.
        standing: Whether there is a test in every round: nobody is left out who is not yet decided, but enters no model.
        error: The most that may be spent on false alarms in this test; None controls none.
        nobody: The prior probability that nobody attacks; None is that of the settings.
        open_tests: Those before it that have left somebody undecided; None where there are none.
        features: What the first test has compared, for settings that say `auto`. How evenly clients own the classes does not
            show in late rounds, in which the model hardly moves, but they own what they owned then.
        grown: float64[classes]: how the groups have come to differ since earlier rounds; see `first_look.grown`. None where
            that is not known.
    """

    opened: Sequence[FloatArray] = ()
    added: int = 0
    aside: frozenset[str] = frozenset()
    trials: Mapping[str, Trial] = field(default_factory=lambda: MappingProxyType({}))
    odd: frozenset[str] = frozenset()
    later: bool = False
    standing: bool = False
    error: float | None = None
    nobody: float | None = None
    open_tests: OpenTests | None = None
    features: Chosen = ""
    grown: FloatArray | None = None

    def groups(self, weights: FloatArray, grouping: Grouping, present: Collection[str]) -> list[tuple[str, ...]]:
        """The members of each group that is asked for; nobody where a member is missing and it was opened before or added.

        A sum of a former group less some members would tell about these members, if updates repeat.

        Args:
            weights: float64[groups, clients], the real rows of the groups.
            grouping: With the members that opened sums were really over.
            present: Who takes part.
        """
        asked = []
        for number, row in enumerate(weights):
            whole, there = grouping.members(number), grouping.members(number, present)
            known = number >= len(weights) - self.added or any(np.array_equal(row, one) for one in self.opened)
            asked.append(() if known and there != whole else there)
        return asked

    def settings(self, decoding: DecodeSettings) -> DecodeSettings:
        """How suspects are named in this test."""
        changes: dict[str, object] = {} if self.nobody is None else {"nobody": self.nobody}
        if self.later:
            # What cannot be judged loses its round. Whoever is absent has no influence in it.
            changes |= {"on_undecidable": "keep-all", "on_untested": "keep"}
        return decoding.model_copy(update=changes) if changes else decoding

    def judged(self, grouping: Grouping, means: GroupMeans) -> tuple[Grouping, GroupMeans]:
        """Who is judged and what is compared: everybody and the group means, or the same without who is set aside."""
        out: BoolArray = np.array([client in self.aside for client in grouping.clients], dtype=np.bool_)
        if not out.any():
            return grouping, means
        design, left = grouping.design, without(means, out)
        somebody = design.matrix[:, ~out].any(axis=1)
        seats = grouping.of_rows(
            grouping.rows[somebody][:, ~out], [client for client in grouping.clients if client not in self.aside]
        )
        updates = [left.updates[group] for group in np.flatnonzero(somebody).tolist()]
        return seats, replace(left, updates=updates, rows=left.rows[somebody])

    def unexplained(self, faults: Sequence[frozenset[str]]) -> list[frozenset[str]]:
        """The faults in which nobody is who was set aside: it may have been the liar in the others."""
        return [one for one in faults if not one & self.aside]

    def sits_out(self, decision: Exclusion, decoding: DecodeSettings) -> frozenset[str]:
        """Whose update does not enter the model of this round although nobody has excluded them for good.

        Those who are more likely malicious than not, at the costs of the settings, and who has become suspicious: all of
        them stand out as attackers do.
        """
        if not self.standing:
            return frozenset()
        return frozenset(
            one.client
            for one in decision.verdicts
            if not one.excluded
            and (
                self.later and one.client not in self.odd
                if one.verdict == "suspicious"
                else one.posterior > 1.0 - decoding.beta
            )
        )

    def controlled(self, found: GradedDecoding, nobody: float) -> GradedDecoding:
        """The same, but what is not sure enough for a test in every round stays undecided.

        The ratio of the likelihoods of some attack and of none is at most 1 in the mean where nobody attacks. So it exceeds
        1 / error with a probability of `error` at most (Ville), whatever attack is looked for. That says that somebody
        attacks. Who it is has to be as sure, if somebody does: the prior that nobody does is not counted twice.

        Args:
            found: What the sums say.
            nobody: The prior that it was found with.
        """
        named = found.flagged | found.suspicious
        if self.error is None or not named.any():
            return found
        ratio = found.against_nobody - float(np.log1p(-nobody) - np.log(nobody))
        somebody = float(expit(found.against_nobody))
        honest = np.maximum(somebody - found.posterior, 0.0) / somebody
        sure = np.full(len(named), ratio >= -np.log(self.error)) & (honest <= self.error)
        waits = named & ~sure
        if not waits.any():
            return found
        return replace(
            found,
            flagged=found.flagged & sure,
            harmless=found.harmless & sure,
            unconfirmed=found.unconfirmed & sure,
            undecided=found.undecided | waits,
            status="undecided",
            reason=f"{found.reason}; {int(waits.sum())} not named: a false alarm of this test may have a probability of "
            f"{self.error:.2g} at most",
        )


def without(means: GroupMeans, out: BoolArray) -> GroupMeans:
    """Group means in which the updates of some clients cancel, and the clients without them.

    Each mean becomes the combination of all, of total weight 1, that differs least from the mean of its other members.

    Args:
        means: The group means.
        out: bool[clients]: whose updates cancel.
    """
    opened = [number for number, one in enumerate(means.updates) if one is not None]
    shares = means.rows[opened] / means.rows[opened].sum(axis=1, keepdims=True)
    left = _cancelling(shares[:, out])
    kept, deviations = left.T @ shares[:, ~out], 1.0 / np.sqrt(means.samples[~out])
    combined: dict[int, FloatArray] = {}
    rows = means.rows[:, ~out].copy()
    for place, number in enumerate(opened):
        wanted = shares[place, ~out]
        if not wanted.any():
            continue
        wanted = wanted / wanted.sum()
        chosen = _nearest(kept * deviations, wanted * deviations, kept.sum(axis=1))
        if chosen is None:
            continue
        row = chosen @ kept
        if ((row * deviations) ** 2).sum() <= _MOST_NOISE * ((wanted * deviations) ** 2).sum():
            combined[number] = left @ chosen
            rows[number] = row
    updates: list[dict[str, FloatArray] | None] = [None] * len(means.updates)
    for number, coefficients in combined.items():
        updates[number] = {
            name: np.sum([b * means_of[name] for b, means_of in _parts(means, opened, coefficients)], axis=0)
            for name in means.start
        }
    return GroupMeans(start=means.start, updates=updates, rows=rows, samples=means.samples[~out])


def _parts(
    means: GroupMeans, opened: Sequence[int], coefficients: FloatArray
) -> list[tuple[float, Mapping[str, FloatArray]]]:
    parts = [(b, means.updates[number]) for b, number in zip(coefficients.tolist(), opened, strict=True)]
    return [(b, one) for b, one in parts if one is not None]


def _cancelling(columns: FloatArray) -> FloatArray:
    """float64[groups, rest]: orthonormal combinations of groups in which these columns cancel."""
    directions, lengths, _ = np.linalg.svd(columns)
    return directions[:, int((lengths > _RANK * lengths.max(initial=0.0)).sum()) :]


def _nearest(span: FloatArray, wanted: FloatArray, totals: FloatArray) -> FloatArray | None:
    """Coefficients of the combination of rows of `span`, of total 1, that is nearest to a vector; None without one."""
    size = float(np.linalg.norm(totals))
    if not len(totals) or size < _RANK:
        return None
    along = totals / size**2  # one combination of total 1; the others differ by what has total 0
    rest = np.linalg.svd(totals[None])[2][1:].T
    moves = np.linalg.lstsq((rest.T @ span).T, wanted - along @ span, rcond=None)[0] if rest.shape[1] else np.zeros(0)
    chosen: FloatArray = along + rest @ moves
    return chosen
