"""From graded evidence to a posterior: all sets of clients, one attack or two, and who stays undecided.

One attack: every set of at most n_max clients is scored. A second attack that pushes along another line shows in what is
left beside the first line; then pairs of sets are searched by turns (each set the most probable one given the other, from
several starts), and a client is malicious if it is in either set.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb, log
from typing import Literal

import numpy as np

from fedgt.decode.priors import CountPrior
from fedgt.decode.ranked import RankedSet
from fedgt.defaults import BETA, NOBODY, UNDECIDED
from fedgt.errors import SpecError
from fedgt.evidence.sets import SetPosterior, all_sets, decode_sets
from fedgt.types import BoolArray, FloatArray, LayeredEvidence, SetEvidence, frozen

GradedStatus = Literal["decided", "nobody", "harmless", "unconfirmed", "undecided", "unexplained", "no-evidence"]

SECOND_ATTACK = 0.05
"""Prior probability that an attack is accompanied by one along another line."""

_SECOND_ODDS = log((1.0 - SECOND_ATTACK) / SECOND_ATTACK)

_SURE = 5.0
"""Log-odds from which a second attack is accepted: what is left beside the first one is where the model fits worst."""

SOMEBODY = 3.0
"""Log-odds of some attack against none below which nobody is accused: 20 : 1."""

HARM = 0.15
"""P-value of the losses above which nobody is accused: honest clients of one camera or one hospital differ along a line too,
and malice shows in what gets worse. A mild demand, because weak attackers are not to be let go: where the line names
attackers of IID clients it is below 0.15 in all runs made, where it named honest hospitals it was 0.4 and more."""

CONFIRMED = 5.0
"""Nats by which the validation margins must speak for suspects that the weights have found. Where clients differ by nature,
whoever stands out in weights is an honest client of other classes; asked about such sets, margins hardly ever say more,
about attackers of IID clients hardly ever less."""

_MOST_PAIRED = 300_000
"""Sets up to which pairs are searched."""

_MOST_ASKED = 12
"""Suspects of whom every subset is asked about; of more, only all together."""

_STARTS = 8
_TURNS = 6
_EXPLAINED = 30.0
"""A best set that is this many nats below a perfect fit does not explain the line: two attacks may, or nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradedDecoding:
    """Who is malicious by graded evidence.

    Attributes:
        posterior: float64[clients]: P(malicious | group means).
        log_odds: float64[clients]: log P(benign) - log P(malicious), in nats.
        flagged: bool[clients]: accused at minimum expected cost; nobody where `against_nobody` is below `SOMEBODY`.
        unconfirmed: bool[clients]: suspected by this evidence, and acquitted by a second opinion.
        undecided: bool[clients]: posterior neither near 0 nor near 1; a further test round may tell.
        count: float64[n_max + 1]: posterior of the number of malicious clients (of one attack, or of the union of two).
        against_nobody: log-odds, in nats, of some attack against none, prior included.
        best: The most probable sets, most probable first.
        attacks: 0, 1 or 2: how many lines were found.
        status: `decided`; `nobody` (no attack is more probable); `harmless` (clients differ, but no loss rises with them
            significantly: nobody is accused); `unconfirmed` (clients differ, but the margins do not speak for an attack:
            nobody is accused); `undecided` (some client is); `unexplained` (the groups
            differ along a line that no set of clients explains); `no-evidence` (nothing could be compared).
        reason: The same in plain words.

    Examples:
        >>> from fedgt.evidence import decode_graded
        >>> found = decode_graded([], clients=15, largest=7)  # no test round had anything to compare
        >>> found.status, int(found.flagged.sum())
        ('no-evidence', 0)
    """

    posterior: FloatArray
    log_odds: FloatArray
    flagged: BoolArray
    unconfirmed: BoolArray
    undecided: BoolArray
    count: FloatArray
    against_nobody: float
    best: tuple[RankedSet, ...]
    attacks: int
    status: GradedStatus
    reason: str

    def __post_init__(self) -> None:
        """Freeze."""
        for name, dtype in (
            ("posterior", np.float64),
            ("log_odds", np.float64),
            ("flagged", np.bool_),
            ("unconfirmed", np.bool_),
            ("undecided", np.bool_),
            ("count", np.float64),
        ):
            object.__setattr__(self, name, frozen(getattr(self, name), dtype))


def sparse_prior(clients: int, largest: int, *, nobody: float = NOBODY) -> CountPrior:
    """Nobody is malicious with probability `nobody`; else n_m is uniform on 1..largest, each set of a size equally likely.

    Few sets of a small size share its probability, many of a large one: of two sets that explain the same sums the smaller
    wins.

    Raises:
        SpecError: If the numbers are out of range.

    Examples:
        >>> from fedgt.evidence import sparse_prior
        >>> sparse_prior(15, 5, nobody=0.5).weights.round(3).tolist()
        [0.5, 0.1, 0.1, 0.1, 0.1, 0.1]
    """
    if not 0 < nobody < 1:
        raise SpecError(f"P(nobody malicious) = {nobody}; a probability between 0 and 1 is needed")
    if not 1 <= largest <= clients:
        raise SpecError(f"at most {largest} malicious clients of {clients}: 1 to {clients} is needed")
    return CountPrior(weights=np.array([nobody] + [(1 - nobody) / largest] * largest))


def decode_graded(
    evidence: Sequence[SetEvidence],
    *,
    clients: int,
    largest: int,
    nobody: float = NOBODY,
    beta: float = BETA,
    undecided: float = UNDECIDED,
    best: int = 10,
) -> GradedDecoding:
    """Name the malicious clients.

    Args:
        evidence: Of one or more test rounds of the same clients; it adds up. Of evidence about lines it is asked as well
            whether the lines are explained, whether there is a second attack, and whether there is harm.
        clients: n.
        largest: The most malicious clients that are considered, floor((n - 1) / 2) at most if they are to be the minority.
        nobody: Prior probability that nobody is malicious.
        beta: Weight of a misdetection against a false alarm: accused is who has a posterior above 1 - beta.
        undecided: A posterior from this to one minus this is not decided.
        best: How many of the most probable sets to report.

    Raises:
        SpecError: If a number is out of range.
        DesignError: If there are too many sets to score.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import decode_graded, graded_screen
        >>> matrix, rng = named_design("graded-15x10-b").matrix, np.random.default_rng(0)
        >>> means = matrix @ rng.normal(size=(15, 200)) / matrix.sum(axis=1, keepdims=True)
        >>> losses = rng.normal(0.3, 0.01, size=(10, 4))
        >>> screen = graded_screen(
        ...     means.reshape(10, 4, 50), losses, weights=matrix, samples=[100] * 15, erased=[False] * 10
        ... )
        >>> decode_graded([screen.evidence], clients=15, largest=7).status  # honest clients only
        'nobody'
    """
    if not 0 <= beta <= 1:
        raise SpecError(f"beta = {beta}; a number from 0 to 1 is needed")
    if not 0 < undecided <= 0.5:
        raise SpecError(f"undecided = {undecided}; a probability above 0 and up to 0.5 is needed")
    prior = sparse_prior(clients, largest, nobody=nobody)
    if not evidence:
        return _without(clients, largest)
    found = decode_sets(_Sum(tuple(evidence)), clients=clients, prior=prior, best=best)
    against = _against(found)
    lined = [one for one in evidence if isinstance(one, LayeredEvidence)]
    short = _misfit(lined, found.best, clients)
    # Two attacks of equal strength may leave no set that explains the strongest line, and then none against nobody.
    if short > _EXPLAINED and sum(one.two_lines() for one in lined) > 2 * _SECOND_ODDS:
        pair = _by_turns(lined, clients, largest, found)
    else:
        pair = _second_attack(lined, clients, largest, found) if against > 0 and found.best[0].clients else None
    if pair is not None:
        log_odds, count, ranked = pair
        return _judged(_result(log_odds, count, ranked[:best], against, 2, beta, undecided), lined)
    if against <= 0:
        return _result(found.log_odds, found.count, found.best, against, 0, beta, undecided)
    if short > _EXPLAINED:
        return _unexplained(found, against, clients, largest)
    return _judged(_result(found.log_odds, found.count, found.best, against, 1, beta, undecided), lined)


def _judged(found: GradedDecoding, evidence: Sequence[LayeredEvidence]) -> GradedDecoding:
    """The same, but nobody is accused of harm that no loss shows in any round, or that a second opinion does not see."""
    if not found.flagged.any() or not evidence:
        return found
    many = f"{int(found.flagged.sum())} clients differ from the others along one line, but"
    p_value = min(1.0, len(evidence) * min(one.harm(found.posterior) for one in evidence))
    if p_value > HARM:
        return _acquitted(
            found,
            "harmless",
            f"{many} no validation loss rises with them significantly (p = {p_value:.2g}, at most {HARM:g} is needed): "
            "honest clients may differ like that, nobody is accused",
        )
    support, accused = _confirmed(found, evidence)
    if support < CONFIRMED:
        return _acquitted(
            found,
            "unconfirmed",
            f"{many} the margins of the validation set do not confirm that they mislabel ({support:.2g} nats, "
            f"{CONFIRMED:g} are needed): clients that own other classes differ like that, nobody is accused. If clients "
            "differ by nature, test with screen.features = 'margins'",
        )
    return replace(found, flagged=accused, unconfirmed=found.flagged & ~accused)


def _confirmed(found: GradedDecoding, evidence: Sequence[LayeredEvidence]) -> tuple[float, BoolArray]:
    """By how many nats the best of the suspects are confirmed, and who of them is more likely malicious than not by that.

    Of several rounds the mean counts and not the sum: what honest clients differ by comes again in every round.
    """
    suspects = np.flatnonzero(found.flagged)
    many = len(suspects)
    subsets = np.ones((1, many), dtype=np.bool_)
    if many <= _MOST_ASKED:
        subsets = (np.arange(1, 2**many)[:, None] >> np.arange(many)) % 2 == 1
    sets = np.zeros((len(subsets), len(found.flagged)), dtype=np.bool_)
    sets[:, suspects] = subsets
    opinions = np.stack([one.confirmed(sets) for one in evidence])
    heard = ~np.isnan(opinions)
    if not heard.any():
        return float("inf"), found.flagged
    values = np.where(heard, opinions, 0.0).sum(axis=0) / np.maximum(1, heard.sum(axis=0))
    accused = np.zeros(many, dtype=np.bool_)
    for _ in range(found.attacks):
        # Attackers of another kind are asked about by themselves: with the first ones they are no set of one attack.
        left = ~(subsets & accused).any(axis=1)
        if not left.any() or values[left].max() < CONFIRMED:
            break
        accused |= _likely(subsets[left], values[left])
    everybody = np.zeros(len(found.flagged), dtype=np.bool_)
    everybody[suspects] = accused
    return float(values.max()), everybody


def _likely(sets: BoolArray, values: FloatArray) -> BoolArray:
    """bool[clients]: in over half of the sets by likelihood, every size as likely as another; else in the best set."""
    sizes = sets.sum(axis=1)
    worth = values - np.log([float(comb(int(sizes.max()), size)) for size in sizes])
    chance = np.exp(worth - worth.max())
    often: BoolArray = sets.T @ chance / chance.sum() > 1 / 2
    best: BoolArray = sets[values.argmax()]
    return often if often.any() else best


def _acquitted(found: GradedDecoding, status: GradedStatus, reason: str) -> GradedDecoding:
    nobody = np.zeros(len(found.flagged), dtype=np.bool_)
    unconfirmed = found.flagged if status == "unconfirmed" else nobody
    return replace(found, flagged=nobody, unconfirmed=unconfirmed, undecided=nobody, status=status, reason=reason)


@dataclass(frozen=True, slots=True)
class _Sum:
    """Independent evidence about the same sets."""

    parts: tuple[SetEvidence, ...]

    def log_likelihood(self, sets: BoolArray) -> FloatArray:
        total: FloatArray = np.sum([part.log_likelihood(sets) for part in self.parts], axis=0)
        return total


def _against(found: SetPosterior) -> float:
    """Log-odds of somebody against nobody."""
    nobody = float(found.count[0])
    return float("inf") if nobody <= 0 else log(max(1.0 - nobody, 5e-324)) - log(nobody)


def _misfit(evidence: Sequence[LayeredEvidence], best: Sequence[RankedSet], clients: int) -> float:
    """By how many nats the best of these sets falls short of explaining the lines, summed over the rounds."""
    sets = np.zeros((len(best), clients), dtype=np.bool_)
    for row, one in enumerate(best):
        sets[row, list(one.clients)] = True
    sets = sets[sets.any(axis=1)]
    if not len(sets) or not evidence:
        return 0.0
    return max(0.0, -float(np.max(np.sum([part.explained(sets) for part in evidence], axis=0))))


def _second_attack(
    evidence: Sequence[LayeredEvidence], clients: int, largest: int, first: SetPosterior
) -> tuple[FloatArray, FloatArray, tuple[RankedSet, ...]] | None:
    """Log-odds, counts and the union with a second attack; None where there is none beside the set that was found."""
    known = np.zeros(clients, dtype=np.bool_)
    known[list(first.best[0].clients)] = True
    parts = [part for part in (one.second(known) for one in evidence) if part is not None]
    # No set has more evidence than there is for some line: less than this is never enough.
    if not parts or sum(part.some() for part in parts) <= _SECOND_ODDS + _SURE:
        return None
    second = decode_sets(
        _Sum(tuple(parts)),
        clients=clients,
        prior=sparse_prior(clients, largest, nobody=1.0 - SECOND_ATTACK),
        best=1,
        beside=first.best[0].clients,
    )
    other = second.best[0].clients
    union = known.copy()
    union[list(other)] = True
    # What is left of attackers who push unequally hard is no attack of its own.
    if _against(second) <= _SURE or set(other) <= set(first.best[0].clients):
        return None
    by_one, by_other = (1.0 / (1.0 + np.exp(np.clip(one.log_odds, -700.0, 700.0))) for one in (first, second))
    return _either(by_one, by_other, union, largest)


def _by_turns(
    evidence: Sequence[LayeredEvidence], clients: int, largest: int, first: SetPosterior
) -> tuple[FloatArray, FloatArray, tuple[RankedSet, ...]] | None:
    """Two attacks of which neither alone explains the strongest line; None where no pair of sets does."""
    if sum(comb(clients, q) for q in range(largest + 1)) > _MOST_PAIRED:
        return None
    sets = np.concatenate([chunk for _, chunk in all_sets(clients, largest)])
    sizes = sets.sum(axis=1)
    with np.errstate(divide="ignore"):
        of_size = np.log([0.0] + [1.0 / comb(clients, q) / largest for q in range(1, largest + 1)])[sizes]
    found = _search(evidence, first, sets, of_size, largest)
    if found is None:
        return None
    one, other = found
    # Each set's posterior given the other; a client is malicious if it is in either.
    by_one = _posterior(_conditional(evidence, sets[other], sets, of_size, largest), sets)
    by_other = _posterior(_conditional(evidence, sets[one], sets, of_size, largest), sets)
    return _either(by_one, by_other, sets[one] | sets[other], largest)


def _either(
    one: FloatArray, other: FloatArray, union: BoolArray, largest: int
) -> tuple[FloatArray, FloatArray, tuple[RankedSet, ...]]:
    """Log-odds, counts and the union, for clients that are malicious if they are in either attack."""
    benign = np.clip((1.0 - one) * (1.0 - other), 1e-300, 1.0)
    malicious = np.clip(1.0 - benign, 1e-300, 1.0)
    count = np.zeros(largest + 1)
    count[int(union.sum())] = 1.0
    ranked = RankedSet(clients=tuple(np.flatnonzero(union).tolist()), probability=float("nan"))
    return np.log(benign) - np.log(malicious), count, (ranked,)


def _search(
    evidence: Sequence[LayeredEvidence], first: SetPosterior, sets: BoolArray, of_size: FloatArray, largest: int
) -> tuple[int, int] | None:
    """Rows of the best pair of sets found by turns; None where no pair explains the two lines."""
    starts = [_row_of(sets, first.best[0].clients)] if first.best and first.best[0].clients else []
    for lines in zip(*(one.lines(_STARTS) for one in evidence), strict=True):
        starts.append(int((_Sum(tuple(lines)).log_likelihood(sets) + of_size).argmax()))
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
    _, one, other = best
    parts = [part for part in (e.given(sets[one]) for e in evidence) if part is not None]
    fit = float(np.sum([part.explained(sets[[other]])[0] for part in parts]))
    return None if fit < -_EXPLAINED else (one, other)


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


def _result(
    log_odds: FloatArray,
    count: FloatArray,
    best: tuple[RankedSet, ...],
    against: float,
    attacks: int,
    beta: float,
    undecided: float,
) -> GradedDecoding:
    posterior = 1.0 / (1.0 + np.exp(np.clip(log_odds, -700.0, 700.0)))
    open_ones = (posterior >= undecided) & (posterior <= 1.0 - undecided)
    flagged = (posterior > 1.0 - beta) & (attacks > 0) & (against >= SOMEBODY)
    status: GradedStatus
    if open_ones.any():
        status = "undecided"
        reason = f"{int(open_ones.sum())} clients cannot be decided by these sums"
        if attacks and against < SOMEBODY:
            reason += ", nor is it sure enough that anybody is malicious"
    elif attacks == 0:
        status = "nobody"
        reason = (
            "the group means differ by no more than honest training explains, or by more than any set of clients does"
        )
    else:
        status = "decided"
        lines = "one line" if attacks == 1 else "two lines: two attacks"
        reason = f"the group means differ along {lines} that {int(flagged.sum())} clients explain"
    return GradedDecoding(
        posterior=posterior,
        log_odds=log_odds,
        flagged=flagged,
        unconfirmed=np.zeros(len(flagged), dtype=np.bool_),
        undecided=open_ones,
        count=count,
        against_nobody=against,
        best=best,
        attacks=attacks,
        status=status,
        reason=f"{reason} (evidence against nobody {against:.3g} nats)",
    )


def _unexplained(found: SetPosterior, against: float, clients: int, largest: int) -> GradedDecoding:
    nobody = np.zeros(clients, dtype=np.bool_)
    return GradedDecoding(
        posterior=np.full(clients, np.nan),
        log_odds=np.full(clients, np.nan),
        flagged=nobody,
        unconfirmed=nobody,
        undecided=~nobody,
        count=found.count,
        against_nobody=against,
        best=found.best,
        attacks=1,
        status="unexplained",
        reason=f"the group means differ by more than honest training explains ({against:.3g} nats), but along no line that "
        f"at most {largest} clients explain: not enough evidence to name anybody",
    )


def _without(clients: int, largest: int) -> GradedDecoding:
    return GradedDecoding(
        posterior=np.full(clients, np.nan),
        log_odds=np.full(clients, np.nan),
        flagged=np.zeros(clients, dtype=np.bool_),
        unconfirmed=np.zeros(clients, dtype=np.bool_),
        undecided=np.zeros(clients, dtype=np.bool_),
        count=np.full(largest + 1, np.nan),
        against_nobody=0.0,
        best=(),
        attacks=0,
        status="no-evidence",
        reason="no groups could be compared",
    )
