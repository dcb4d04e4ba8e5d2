"""Tests that have left somebody undecided are added up with the next one, until nobody is.

In every round each test is judged by itself, because who attacks may change. Where clients have little data one test often
cannot tell. So the next one is judged twice: by itself, and together with those before it that were left open. What comes
again is counted once (`fedgt.evidence.repeated`).

All tests together may spend on false alarms what the first of them may by itself: evidence that is added up, test after
test, exceeds a limit no more often than that of one test (Ville).

A client that one of these tests has named is out, and goes on in its groups. For the others it is judged along with them:
what was known about them together is lost otherwise. Whatever it sends then, the test by itself does not see it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from fedgt.decode import RankedSet
from fedgt.defaults import NOBODY
from fedgt.evidence import GradedDecoding
from fedgt.types import IntArray, SetEvidence

MOST = 10
"""Tests that go on together; the next one begins anew."""

_BY_CLIENT = ("posterior", "log_odds", "flagged", "harmless", "unconfirmed", "undecided", "second")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenTests:
    """The tests that go on together.

    Attributes:
        clients: The columns of their evidence.
        evidence: Of each, in the order of the rounds.
        rounds: In which they were held.
        heard: Client -> in how many sums of that evidence it is.
        error: What the first of them may spend on false alarms; None controls none.
        nobody: The prior probability of the first of them that nobody attacks: the attack that is looked for is one of all.
    """

    clients: tuple[str, ...]
    evidence: tuple[SetEvidence, ...]
    rounds: tuple[int, ...]
    heard: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    error: float | None = None
    nobody: float = NOBODY

    def fits(self, clients: Collection[str], aside: Collection[str]) -> bool:
        """Whether a test over these clients, of whom some are set aside, may be added.

        Whoever is judged must be in the evidence, and whoever is in it must still be in the groups.
        """
        return set(clients) - set(aside) <= set(self.clients) <= set(clients)

    def and_then(self, evidence: SetEvidence, round: int, heard: Mapping[str, int]) -> "OpenTests":
        """The same with one more test."""
        counts = {client: self.heard.get(client, 0) + heard.get(client, 0) for client in self.clients}
        return replace(
            self,
            evidence=(*self.evidence, evidence),
            rounds=(*self.rounds, round),
            heard=MappingProxyType(counts),
        )


def both_ways(
    alone: GradedDecoding, tests: OpenTests, judged: Sequence[str], together: Callable[[], GradedDecoding]
) -> GradedDecoding:
    """What a test says, by itself or together with those before it.

    Who names more is followed. Where nobody is named, all tests together are followed if they find somebody likely
    malicious, or if the test by itself leaves somebody open, too: an honest client that earlier tests could not tell is not
    tested for ever. What a test by itself leaves open is not cleared by rounds in which nobody may have attacked.

    Args:
        alone: What the test says by itself.
        tests: It and those before it.
        judged: The columns of `alone`.
        together: What all say together, over the columns of `tests`.
    """
    columns = np.array([tests.clients.index(client) for client in judged], dtype=np.int64)
    added = _of_columns(together(), columns, len(tests.rounds))
    if added.status in ("unexplained", "no-evidence"):
        return alone
    named, by_all = (int((one.flagged | one.suspicious).sum()) for one in (alone, added))
    if named > by_all:
        return alone
    holds = added.undecided.any() and (alone.undecided.any() or (added.posterior > 1 / 2).any())
    return added if by_all or holds else alone


def _of_columns(found: GradedDecoding, columns: IntArray, tests: int) -> GradedDecoding:
    """The decoding of some of its clients."""
    place = {column: j for j, column in enumerate(columns.tolist())}
    chances: dict[tuple[int, ...], float] = {}
    for one in found.best:
        members = tuple(sorted(place[j] for j in one.clients if j in place))
        chances[members] = chances.get(members, 0.0) + one.probability
    parts = {name: getattr(found, name)[columns] for name in _BY_CLIENT if getattr(found, name) is not None}
    status = found.status
    if status == "undecided" and not parts["undecided"].any():
        status = "decided" if parts["flagged"].any() else "nobody"
    return replace(
        found,
        **parts,
        best=tuple(RankedSet(clients=members, probability=chance) for members, chance in chances.items()),
        status=status,
        reason=f"{found.reason}; {tests} tests together",
    )
