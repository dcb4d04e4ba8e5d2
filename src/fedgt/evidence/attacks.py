"""How many attacks there are, and whose: each along a line of its own, found one after the other.

Who is known to attack is set aside before anybody else is looked for. An attack that pushes along another line shows in what
the known ones leave: in other rows of the layer, or beside their line. Two attacks of equal strength may leave no set that
explains the strongest line; then pairs of sets are searched by turns, each set the most probable one given the other.

Clients may also push each in a direction of its own (`apart`): then each of them is an attack by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb, log

import numpy as np

from fedgt.decode.ranked import RankedSet
from fedgt.evidence.sets import SetPosterior, all_sets, decode_sets, sparse_prior
from fedgt.types import (
    BoolArray,
    BoundedEvidence,
    EnergyEvidence,
    FloatArray,
    IntArray,
    LayeredEvidence,
    PointingEvidence,
    SetEvidence,
    frozen,
)

FURTHER_ATTACK = 0.05
"""Prior probability that an attack is accompanied by one more, along another line."""

_FURTHER_ODDS = log((1.0 - FURTHER_ATTACK) / FURTHER_ATTACK)

_SURE = 5.0
"""Log-odds from which a further attack is accepted: what is left beside the others is where the model fits worst."""

_MOST_PAIRED = 300_000
"""Sets up to which pairs are searched."""

_STARTS = 8
_TURNS = 6

EACH_FOR_ITSELF = 0.1
"""Prior probability that attackers push each for itself, and not along lines."""

_LOUDEST = 15
"""Of more clients only so many, those with the most energy, are asked whether they push each for itself."""

EXPLAINED = 30.0
"""A best set that is this many nats below a perfect fit does not explain the line: two attacks may, or nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attack:
    """One attack.

    Attributes:
        members: bool[clients]: the most probable set.
        posterior: float64[clients]: P(in this attack), the other attacks being what they are.
    """

    members: BoolArray
    posterior: FloatArray

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "members", frozen(self.members, np.bool_))
        object.__setattr__(self, "posterior", frozen(self.posterior, np.float64))


@dataclass(frozen=True, slots=True)
class Sum:
    """Independent evidence about the same sets."""

    parts: tuple[SetEvidence, ...]

    def log_likelihood(self, sets: BoolArray) -> FloatArray:
        """float64[B]: the sum."""
        total: FloatArray = np.sum([part.log_likelihood(sets) for part in self.parts], axis=0)
        return total

    def pointed_at(self, largest: int) -> BoolArray:
        """bool[B, clients]: where each part would begin a search."""
        found = [part.pointed_at(largest) for part in self.parts if isinstance(part, PointingEvidence)]
        return np.concatenate(found) if found else np.zeros((0, 0), dtype=np.bool_)


def against_nobody(found: SetPosterior) -> float:
    """Log-odds of somebody against nobody."""
    nobody = float(found.count[0])
    return float("inf") if nobody <= 0 else log(max(1.0 - nobody, 5e-324)) - log(nobody)


def misfit(evidence: Sequence[LayeredEvidence], best: Sequence[RankedSet], clients: int) -> float:
    """By how many nats the best of these sets falls short of explaining the lines, summed over the rounds."""
    sets = (
        np.stack([_members(one.clients, clients) for one in best]) if best else np.zeros((0, clients), dtype=np.bool_)
    )
    sets = sets[sets.any(axis=1)]
    if not len(sets) or not evidence:
        return 0.0
    return max(0.0, -float(np.max(np.sum([part.explained(sets) for part in evidence], axis=0))))


def with_further(
    evidence: Sequence[LayeredEvidence], found: Sequence[Attack], largest: int
) -> tuple[tuple[Attack, ...], SetPosterior | None]:
    """The attacks that were found, and all others that show beside those before them; and what is said about one more.

    First all that is explained by the known sets is taken out, which leaves the most to look at. Where that names nobody,
    everything that the known attackers did is set aside, whatever it was: a line that is left then is not theirs.

    Args:
        evidence: Of the tests.
        found: The first attack, or more.
        largest: The most malicious clients of all attacks together.

    Returns:
        The second part says with which probability there is one more attack, and who would be in it; None where there is
        nothing left to look at.
    """
    attacks = list(found)
    while True:
        sets = [one.members for one in attacks]
        known = np.any(sets, axis=0)
        if int(known.sum()) >= largest:
            return tuple(attacks), None
        more = _one_more([one.beside(sets) for one in evidence], known, largest, at_least=_SURE)
        if more is None or against_nobody(more) <= _SURE:
            more = _one_more([one.aside(known) for one in evidence], known, largest, at_least=-_SURE)
        if more is None or against_nobody(more) <= _SURE:
            return tuple(attacks), more
        attacks.append(attack_of(more, len(known)))


def _one_more(
    parts: Sequence[BoundedEvidence | None], known: BoolArray, largest: int, *, at_least: float
) -> SetPosterior | None:
    """What this evidence says about a further attack; None if the log-odds of one cannot reach the least that is asked."""
    left = [part for part in parts if part is not None]
    # No set has more evidence than there is for some line.
    if not left or sum(part.some() for part in left) <= _FURTHER_ODDS + at_least:
        return None
    more = decode_sets(
        Sum(tuple(left)),
        clients=len(known),
        prior=sparse_prior(len(known), largest, nobody=1.0 - FURTHER_ATTACK),
        best=1,
        beside=np.flatnonzero(known).tolist(),
    )
    # What is left of attackers who push unequally hard is no attack of its own.
    return more if (_members(more.best[0].clients, len(known)) & ~known).any() or at_least < 0 else None


def two_lines(evidence: Sequence[LayeredEvidence]) -> bool:
    """Whether there are two lines in the same rows rather than one: two attacks may share them."""
    return sum(one.two_lines() for one in evidence) > 2 * _FURTHER_ODDS


def attack_of(found: SetPosterior, clients: int) -> Attack:
    """The attack of what is known about all sets."""
    return Attack(
        members=_members(found.best[0].clients, clients),
        posterior=1.0 / (1.0 + np.exp(np.clip(found.log_odds, -700.0, 700.0))),
    )


# Each for itself ----------------------------------------------------------------------------------------------------


def each_for_itself(
    evidence: Sequence[LayeredEvidence], clients: int, largest: int, *, nobody: float
) -> tuple[SetPosterior, tuple[Attack, ...]] | None:
    """What is said about sets whose members push each in a direction of its own, and each of the best set as an attack.

    None where no client has far more energy than most, or clients may differ by nature: then energies do, too.
    """
    parts = [one.apart() for one in evidence]
    heard = [part for part in parts if part is not None]
    if not any(one.evenly_owned for one in evidence) or not any(part.stands_out() for part in heard):
        return None
    energies = np.sum([part.energies() for part in heard], axis=0)
    loudest = np.sort(np.argsort(-energies, kind="stable")[:_LOUDEST])
    few = len(loudest)
    found = decode_sets(
        _Among(tuple(heard), loudest, clients), clients=few, prior=sparse_prior(few, min(largest, few), nobody=nobody)
    )
    log_odds = np.full(clients, np.inf)
    log_odds[loudest] = found.log_odds
    best = tuple(replace(one, clients=tuple(loudest[list(one.clients)].tolist())) for one in found.best)
    count = np.zeros(largest + 1)
    count[: len(found.count)] = found.count
    found = replace(found, log_odds=log_odds, best=best, count=count)
    members = np.flatnonzero(_members(best[0].clients, clients))
    posterior = attack_of(found, clients).posterior
    rest = np.where(_members(best[0].clients, clients), 0.0, posterior) / max(1, len(members))
    alone = tuple(
        Attack(members=_members([one], clients), posterior=np.where(np.arange(clients) == one, posterior, rest))
        for one in members.tolist()
    )
    return found, alone


@dataclass(frozen=True, slots=True)
class _Among:
    """The sum of evidence about some of the clients, for bool[B, these]."""

    parts: tuple[EnergyEvidence, ...]
    these: IntArray
    clients: int

    def log_likelihood(self, sets: BoolArray) -> FloatArray:
        every = np.zeros((len(sets), self.clients), dtype=np.bool_)
        every[:, self.these] = sets
        return Sum(self.parts).log_likelihood(every)


def _members(chosen: Sequence[int], clients: int) -> BoolArray:
    members = np.zeros(clients, dtype=np.bool_)
    members[list(chosen)] = True
    return members


# Two attacks of equal strength --------------------------------------------------------------------------------------


def by_turns(
    evidence: Sequence[LayeredEvidence], clients: int, largest: int, first: SetPosterior
) -> tuple[Attack, ...]:
    """Two attacks of which neither alone explains the strongest line; none where no pair of sets does, or nobody may do."""
    if sum(comb(clients, q) for q in range(largest + 1)) > _MOST_PAIRED:
        return ()
    sets = np.concatenate([chunk for _, chunk in all_sets(clients, largest)])
    sizes = sets.sum(axis=1)
    with np.errstate(divide="ignore"):
        of_size = np.log([0.0] + [1.0 / comb(clients, q) / largest for q in range(1, largest + 1)])[sizes]
    found = _search(evidence, first, sets, of_size, largest)
    if found is None:
        return ()
    value, *pair = found
    if value + _for_two(evidence, clients) <= 0.0:
        return ()
    # Each set's posterior given the other.
    return tuple(
        Attack(
            members=sets[one],
            posterior=_posterior(_conditional(evidence, sets[other], sets, of_size, largest), sets),
        )
        for one, other in (pair, pair[::-1])
    )


def _search(
    evidence: Sequence[LayeredEvidence], first: SetPosterior, sets: BoolArray, of_size: FloatArray, largest: int
) -> tuple[float, int, int] | None:
    """The score and the rows of the best pair of sets found by turns; None where no pair explains the two lines."""
    starts = [_row_of(sets, first.best[0].clients)] if first.best and first.best[0].clients else []
    for lines in zip(*(one.lines(_STARTS) for one in evidence), strict=True):
        starts.append(int((Sum(tuple(lines)).log_likelihood(sets) + of_size).argmax()))
    seen: set[int] = set()
    best: tuple[float, int, int] | None = None
    for start in starts:
        current = start
        for _ in range(_TURNS):
            if current in seen:
                break
            seen.add(current)
            scores = _conditional(evidence, sets[current], sets, of_size, largest)
            other = int(scores.argmax())
            value = float(scores[other] + of_size[current])
            if not np.isfinite(value):
                break
            if best is None or value > best[0]:
                best = (value, current, other)
            current = other
    if best is None:
        return None
    value, one, other = best
    parts = [part for part in (e.given(sets[one]) for e in evidence) if part is not None]
    fit = float(np.sum([part.explained(sets[[other]])[0] for part in parts]))
    return None if fit < -EXPLAINED else (value, one, other)


def _for_two(evidence: Sequence[LayeredEvidence], clients: int) -> float:
    """Log-odds of two attacks that fit their lines perfectly against honest clients, who have lines of their own."""
    nobody = np.zeros((1, clients), dtype=np.bool_)
    honest = sum(float(one.log_likelihood(nobody)[0]) for one in evidence)
    return sum(one.some() + one.two_lines() for one in evidence) - honest + log(FURTHER_ATTACK)


def _conditional(
    evidence: Sequence[LayeredEvidence], attackers: BoolArray, sets: BoolArray, of_size: FloatArray, largest: int
) -> FloatArray:
    """float64[B]: log-score of each set as the second one, -inf where the union is too large or nothing is left."""
    parts = [part for part in (one.given(attackers) for one in evidence) if part is not None]
    if not parts:
        return np.full(len(sets), -np.inf)
    fits = (sets | attackers).sum(axis=1) <= largest
    scores = np.full(len(sets), -np.inf)
    # How well it fits, not how much evidence a line is: what is left to explain depends on the first set.
    scores[fits] = np.sum([part.explained(sets[fits]) for part in parts], axis=0) + of_size[fits]
    return scores


def _posterior(scores: FloatArray, sets: BoolArray) -> FloatArray:
    """float64[clients]: in how much of the posterior each client is."""
    peak = float(scores.max())
    if not np.isfinite(peak):
        return np.zeros(sets.shape[1])
    weights = np.exp(scores - peak)
    within: FloatArray = weights @ sets.astype(np.float64) / weights.sum()
    return within


def _row_of(sets: BoolArray, clients: Sequence[int]) -> int:
    wanted = np.zeros(sets.shape[1], dtype=np.bool_)
    wanted[list(clients)] = True
    return int((sets == wanted).all(axis=1).argmax())
