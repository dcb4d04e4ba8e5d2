"""Who breaks the rules of the secure sums: the faults of all rounds as one posterior over sets of liars.

A fault says that at least one of some clients has lied, and nothing else. A liar chooses which of its groups it spoils, so
a group without a fault says nothing, and neither does the number of faults. A complaint of one client about another says
that one of the two has lied. Two liars who complain of one victim look like one bad dealer: `PREVALENCE` keeps it in.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedgt.decode import IndependentPrior, compile
from fedgt.design import Design
from fedgt.types import POSITIVE, ErrorRates, Outcomes

ACCUSED = 0.98
"""Above this posterior a client is left out."""

PREVALENCE = 0.022
"""Of liars, p. Two who spoil just the groups of a victim bring it to 1 / (1 + p (1 - p)) = 0.979, below `ACCUSED`."""

SUSPECTED = 0.1
"""Above this posterior a client that no test has heard, because sums were spoilt, does not train until one does."""

_MOST_SETS = 14
_CERTAIN = ErrorRates(false_alarm=1e-12, misdetection=0.0)
_ROUNDS_APART = 3
_DRAWS = 200
_PARTS = 6  # an independent stream of the seed; see `seats`


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicions:
    """What the faults of a run say by now.

    Attributes:
        sets: Sets of clients with a liar in each; none contains another.
        latest: The round of the last fault; 0 before the first.
        rounds: In how many rounds there were faults.
        missing: Sets of clients with somebody in each who is behind what is missing in the sums of tests: those of their
            faults, and alone whoever has left a sum and is in another one. That may be its network, so it accuses nobody;
            but it may explain what the other sums say about somebody else.
    """

    sets: tuple[frozenset[str], ...] = ()
    latest: int = 0
    rounds: int = 0
    missing: tuple[frozenset[str], ...] = ()

    def after(
        self,
        round: int,
        found: Iterable[Collection[str]],
        missing: Iterable[frozenset[str]] = (),
        complaints: Iterable[frozenset[str]] = (),
    ) -> "Suspicions":
        """With the faults of a further round, and what is missing in the sums of its test.

        Complaints say as much as other faults about the two clients of each. They cost no sum, so that nobody has to train
        apart because of them.
        """
        costly = [frozenset(one) for one in found]
        sets = sorted({*self.sets, *costly, *complaints}, key=lambda one: (len(one), sorted(one)))
        least = tuple(one for one in sets if not any(other < one for other in sets))
        after = replace(self, sets=least, missing=(*self.missing, *missing))
        return replace(after, latest=round, rounds=self.rounds + 1) if costly else after

    def unexplained(self, gone: Collection[str] = ()) -> tuple[frozenset[str], ...]:
        """The sets in which nobody is who has been left out: whoever is left out may have been the liar in the others."""
        return tuple(one for one in self.sets if not one & set(gone))

    def posterior(self, clients: Sequence[str], gone: Collection[str] = ()) -> Mapping[str, float]:
        """P(liar) of each client that is still there, if liars are independent and each set has one.

        Whoever is in a set and not among the clients, because it waits, may be the liar as well.
        """
        here = [client for client in clients if client not in set(gone)]
        # The smallest sets say most. Leaving sets out only makes anybody's posterior less certain.
        sets = self.unexplained(gone)[:_MOST_SETS]
        if not sets or not here:
            return dict.fromkeys(here, PREVALENCE)
        everybody = [*here, *sorted(frozenset().union(*sets) - set(here))]
        matrix = np.array([[client in one for client in everybody] for one in sets], dtype=np.uint8)
        design = Design(matrix=matrix, name="faults", source="the clients among whom a liar is, one row a fault")
        decoder = compile(design, _CERTAIN, IndependentPrior.uniform(len(everybody), PREVALENCE))
        found = decoder.decode(Outcomes(values=np.full(len(sets), POSITIVE)))
        return dict(zip(here, found.malicious.tolist()[: len(here)], strict=True))

    def accused(self, clients: Sequence[str], gone: Collection[str] = ()) -> Mapping[str, float]:
        """Who is left out now, with the posterior."""
        return {client: value for client, value in self.posterior(clients, gone).items() if value > ACCUSED}

    def apart(self, round: int, gone: Collection[str] = ()) -> bool:
        """Whether the clients train in several small sums in this round, so that a liar spoils one and is found.

        For some rounds after a fault that nobody who was left out explains: three, and twice as many after each further
        round with faults. A liar that waits until they are over would spoil a sum of all for ever, which tells nobody apart.
        """
        lasts = _ROUNDS_APART * 2 ** (min(self.rounds, 30) - 1) if self.rounds else 0
        return bool(self.unexplained(gone)) and 0 < round - self.latest <= lasts


def parting(
    suspicions: Suspicions, round: int, *, least: int, gone: Collection[str], seed: int
) -> Callable[[Sequence[str]], list[tuple[str, ...]]] | None:
    """Who shares a training sum in a round, where not all do; see `parts`."""
    if not suspicions.apart(round, gone):
        return None
    rng = np.random.default_rng([seed, _PARTS, round])
    return partial(parts, suspicions=suspicions, least=least, rng=rng, gone=gone)


def parts(
    members: Sequence[str],
    suspicions: Suspicions,
    *,
    least: int,
    rng: np.random.Generator,
    gone: Collection[str] = (),
) -> list[tuple[str, ...]]:
    """The members in as many groups of at least `least` as there can be, drawn so that further faults tell most.

    Suspects sit in the smallest groups that are allowed, and apart from those with whom they were in a fault: then the sets
    of further faults are small and have little in common but their liar. The best of some random draws is taken.

    Args:
        members: Who trains.
        suspicions: The faults so far.
        least: The smallest sum that may be opened.
        rng: Who sits where.
        gone: Who has been left out, and explains some of the faults.
    """
    count = max(1, len(members) // max(least, 1))
    if count == 1:
        return [tuple(sorted(members))]
    posterior = suspicions.posterior(members, gone)
    liar = np.array([posterior[client] for client in members])
    rows = np.array([[client in one for client in members] for one in suspicions.unexplained(gone)], dtype=np.float64)
    together = rows.reshape(-1, len(members)).T @ rows.reshape(-1, len(members))
    cost = together * np.add.outer(liar, liar) + np.add.outer(liar, liar) / 2
    edges = [*range(least, least * count, least)]
    draws = [np.split(rng.permutation(len(members)), edges) for _ in range(_DRAWS)]
    drawn = min(draws, key=lambda groups: sum(float(cost[np.ix_(group, group)].sum()) for group in groups))
    return [tuple(sorted(members[j] for j in group)) for group in drawn]
