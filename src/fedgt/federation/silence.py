"""Who leaves the secure sums again and again, and at which stage.

To leave is no fault: it may be the network. But a client that always leaves at the unmask has been in every sum and helps
nobody to open one. A client that leaves because it cannot read the shares of a peer is not silent: it may be the victim.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from fedgt.federation.sums import AggregateRecord
from fedgt.foreign_text import plain

WINDOW = 6
"""Rounds that are remembered, of those that a client was asked in."""

OFTEN = 3
"""So many of them at one stage are reported."""

LOOKED_AWAY = 2
"""So many rounds of a run in which a client left just when more sums were asked for are reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silences:
    """At which stage each client has left the last rounds.

    Attributes:
        latest: Client -> the stage that it has left, one a round that it was asked in, the latest last; empty for a round
            that it has stayed in. Clients that have stayed in all of them are not there.
        away: Client -> in how many rounds of the run it was in the first sums, and left when more of the same model were
            asked for.
    """

    latest: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    away: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, asked: Collection[str], left: Mapping[str, str], looked_away: Collection[str] = ()) -> "Silences":
        """With a further round.

        Args:
            asked: Who took part.
            left: Client -> the stage at which it has left by itself.
            looked_away: Who of them left when more sums were asked for. Where most do, it is not their own doing: it may be
                their limit of later stages.
        """
        latest = dict(self.latest)
        for client in sorted(asked):
            latest[client] = (*latest.get(client, ()), left.get(client, ""))[-WINDOW:]
            if not any(latest[client]):
                del latest[client]
        away = dict(self.away)
        if 2 * len(looked_away) < len(asked):
            for client in sorted(looked_away):
                away[client] = away.get(client, 0) + 1
        return Silences(latest=MappingProxyType(latest), away=MappingProxyType(away))

    @property
    def often(self) -> Mapping[str, tuple[str, int]]:
        """Client -> the stage at which it leaves again and again, and in how many of the last rounds it did."""
        found = {}
        for client, stages in sorted(self.latest.items()):
            stage = max(sorted(set(stages) - {""}), key=stages.count)
            if stages.count(stage) >= OFTEN:
                found[client] = (stage, stages.count(stage))
        return MappingProxyType(found)


def reason_of_most(records: Sequence[AggregateRecord], clients: int) -> str:
    """For the end of a sentence: why most clients have left the sums, if for one reason; else empty.

    Args:
        records: The sums of a round.
        clients: How many were asked.
    """
    first: dict[str, str] = {}
    for record in records:
        for client, why in record.dropped.items():
            first.setdefault(client, why)
    counts = Counter(why.replace(f"client {client}", "client") for client, why in first.items())
    alike, count = counts.most_common(1)[0] if counts else ("", 0)
    if 2 * count <= clients:
        return ""
    one, why = next(
        (client, why) for client, why in first.items() if why.replace(f"client {client}", "client") == alike
    )
    return f"; {count} of {clients} clients left for the same reason; {one}: {plain(why)}"
