"""From graded evidence to a posterior: all sets of clients, one attack or several, and who stays undecided.

Every set of at most n_max clients is scored. Further attacks are looked for beside those that are known
(`attacks`); a client is malicious if it is in any of them. Then it is asked whether there is harm, for a second opinion, and
whether honest clients could have sent the sums (`judge`). Where a line is left that none of the attackers found makes,
nobody is cleared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from fedgt.decode.priors import CountPrior
from fedgt.decode.ranked import RankedSet
from fedgt.defaults import BETA, NOBODY, UNDECIDED
from fedgt.errors import SpecError
from fedgt.evidence.attacks import (
    EACH_FOR_ITSELF,
    EXPLAINED,
    Attack,
    Sum,
    against_nobody,
    attack_of,
    by_turns,
    each_for_itself,
    misfit,
    two_lines,
    with_further,
)
from fedgt.evidence.by_margins.margin_evidence import MarginEvidence
from fedgt.evidence.decoding import GradedDecoding, GradedStatus
from fedgt.evidence.judge import MORE, excused, judged
from fedgt.evidence.sets import SetPosterior, decode_sets, sparse_prior
from fedgt.types import BoolArray, FloatArray, LayeredEvidence, SetEvidence

SOMEBODY = 3.0
"""Log-odds of some attack against none below which nobody is accused: 20 : 1. Above it something that is left is said."""

SOMEBODY_AGAIN = 1.0
"""The same where weights were compared in several tests. Of 45 federations without attackers none was above -1.9 then, where
one test alone reached 1.8 (decision 0032); of 14 more none was above -1.6 (decision 0050)."""

SOMEBODY_BY_MARGINS = 1.5
"""The same by margins, whose noise is learnt with wide tails. Of 160 federations without attackers at Dirichlet 0.3 and 1.0
one had an honest client accused then (decision 0033). Several tests by margins need `SOMEBODY` (decision 0034)."""

_ACROSS = 10
"""Contrasts across the line up to which `EXPLAINED` holds: those of twelve sums."""

LOUD = 40.0
"""Nats of a line against noise above which more attackers than by default are considered, where these explain nothing. In 12
federations of 25 and 50 clients without attackers the loudest line had 30 (decision 0046)."""

WRONG = 0.05
"""Probability that the sets found are wrong where they do not explain everything."""


def decode_graded(
    evidence: Sequence[SetEvidence],
    *,
    clients: int,
    largest: int,
    nobody: float = NOBODY,
    beta: float = BETA,
    undecided: float = UNDECIDED,
    best: int = 10,
    widest: int = 0,
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
        widest: As many may be malicious. More than `largest` are considered where these explain nothing, and groups differ
            along one line as honest clients hardly do. Larger sets that were not considered, and might have made what is
            seen, keep their prior probability, so that they clear nobody. Not more than `largest`: there are none.

    Raises:
        SpecError: If a number is out of range.

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
    priors = [sparse_prior(clients, size, nobody=nobody) for size in sorted({largest, max(largest, widest)})]
    if not evidence:
        return _without(clients, largest)
    lined = [one for one in evidence if isinstance(one, LayeredEvidence)]
    found = _searched(evidence, lined, priors, clients, best)
    largest = len(found.count) - 1
    against = against_nobody(found)
    short, limit = misfit(lined, found.best, clients), _limit(lined)
    attacks: tuple[Attack, ...] = ()
    apart = each_for_itself(lined, clients, largest, nobody=nobody)
    # Two attacks of equal strength may leave no set that explains the strongest line, and then none against nobody.
    if apart is not None and apart[0].log_evidence + np.log(EACH_FOR_ITSELF) > found.log_evidence and apart[1]:
        found, attacks = apart
        against, short = against_nobody(found), 0.0
    elif short > limit and two_lines(lined):
        attacks = by_turns(lined, clients, largest, found)
    elif against > 0 and found.best[0].clients:
        attacks = (attack_of(found, clients),)
    further: SetPosterior | None = None
    if attacks and lined:
        attacks, further = with_further(lined, attacks, largest)
    if apart is not None and attacks and attacks != apart[1] and _more(further) and against_nobody(apart[0]) > SOMEBODY:
        # Lines do not explain all of it: perhaps the same clients do, each for itself, and nothing is left.
        each, beside = with_further(lined, apart[1], largest)
        if not _more(beside):
            found, attacks, further = apart[0], each, beside
            against, short = against_nobody(found), 0.0
    if len(attacks) < 2 and short > limit and (against > 0 or (len(priors) > 1 and _loudest(lined, clients) > LOUD)):
        return _unexplained(found, against, clients, largest)
    log_odds, count, ranked = (
        (found.log_odds, found.count, found.best) if len(attacks) < 2 else _either(attacks, largest)
    )
    more, named = _more(further), expit(-log_odds) > 1.0 - beta
    if further is not None and more:
        log_odds = _doubted(log_odds, further, undecided)
        if against_nobody(further) > SOMEBODY:
            named = expit(-log_odds) > 1.0 - beta
    once = len(evidence) < 2
    needed = (SOMEBODY if once else SOMEBODY_AGAIN) if lined else (SOMEBODY_BY_MARGINS if once else SOMEBODY)
    # A further attack that is not sure accuses nobody.
    accused = _Accused(attacks=len(attacks) if against > 0 else 0, against=against, sure=against >= needed, named=named)
    beyond = max(largest, widest) if not lined or _loudest(lined, clients) > SOMEBODY else largest
    # If as many are likely as were considered, and no line says that they explain it, there may be one more.
    least = undecided if not lined and ranked and len(ranked[0].clients) == largest else 0.0
    log_odds, unconsidered = _with_unconsidered(log_odds, found, largest, beyond, nobody, least)
    said = _result(log_odds, count, ranked[:best], accused, beta, undecided)
    notes = [MORE] * more
    notes += [f"more than {largest} malicious clients could not be looked for"] * (unconsidered >= undecided)
    said = replace(said, more=more, reason="; ".join([said.reason, *notes]))
    by_margins = [one.account for one in evidence if isinstance(one, MarginEvidence) and one.account is not None]
    return excused(judged(said, attacks, lined), by_margins)


def _searched(
    evidence: Sequence[SetEvidence],
    lined: Sequence[LayeredEvidence],
    priors: Sequence[CountPrior],
    clients: int,
    best: int,
) -> SetPosterior:
    """The posterior over sets by the first prior that has large enough ones, else by the last."""
    for prior in priors:
        found = decode_sets(Sum(tuple(evidence)), clients=clients, prior=prior, best=best)
        if not _too_few(found, lined, clients):
            break
    return found


def _too_few(found: SetPosterior, lined: Sequence[LayeredEvidence], clients: int) -> bool:
    """Whether there are more attackers than were considered: these explain nothing, and yet there is a line."""
    explained = against_nobody(found) > 0 and misfit(lined, found.best, clients) <= _limit(lined)
    return not explained and _loudest(lined, clients) > LOUD


def _limit(evidence: Sequence[LayeredEvidence]) -> float:
    """How far below a perfect fit a set may lie that explains the lines: noise bends a line in each contrast across it."""
    return EXPLAINED * max([1.0, *((one.contrasts - 1) / _ACROSS for one in evidence)])


def _loudest(evidence: Sequence[LayeredEvidence], clients: int) -> float:
    """The evidence in nats, of the test that has most of it, that groups differ along a line, whoever makes it."""
    nobody = np.zeros((1, clients), dtype=np.bool_)
    return max((float(one.log_likelihood(nobody)[0]) for one in evidence), default=0.0)


def _with_unconsidered(
    log_odds: FloatArray, found: SetPosterior, largest: int, beyond: int, nobody: float, least: float
) -> tuple[FloatArray, float]:
    """The same where sets of more clients may be malicious, each as likely to make what is seen as nobody.

    Args:
        log_odds: Of sets of at most `largest`.
        found: Their posterior.
        largest: The most clients of a set that was considered.
        beyond: The most that may be malicious.
        nobody: Prior probability that nobody is.
        least: The least posterior of a client then.

    Returns:
        Log-odds, and the probability that a client is a member of a set that was not considered.
    """
    if beyond <= largest:
        return log_odds, 0.0
    considered, nothing = largest / beyond, float(found.count[0])
    larger = (1.0 - nobody) * (1.0 - considered) * nothing / nobody
    total = nothing + considered * (1.0 - nothing) + larger
    member = larger / total * (largest + 1 + beyond) / 2 / len(log_odds)
    posterior = np.clip(considered * expit(-log_odds) / total + member, max(least, 1e-300), 1.0 - 1e-16)
    result: FloatArray = np.log1p(-posterior) - np.log(posterior)
    return result, max(member, least)


def _either(attacks: Sequence[Attack], largest: int) -> tuple[FloatArray, FloatArray, tuple[RankedSet, ...]]:
    """Log-odds, counts and the union, for clients that are malicious if they are in any of the attacks."""
    benign = np.clip(np.prod([1.0 - one.posterior for one in attacks], axis=0), 1e-300, 1.0)
    malicious = np.clip(1.0 - benign, 1e-300, 1.0)
    union = np.any([one.members for one in attacks], axis=0)
    count = np.zeros(largest + 1)
    count[int(union.sum())] = 1.0
    ranked = RankedSet(clients=tuple(np.flatnonzero(union).tolist()), probability=float("nan"))
    return np.log(benign) - np.log(malicious), count, (ranked,)


def _more(further: SetPosterior | None) -> bool:
    """Whether there may be a further attack."""
    return further is not None and against_nobody(further) > -SOMEBODY


def _doubted(log_odds: FloatArray, further: SetPosterior, undecided: float) -> FloatArray:
    """Log-odds where there may be one more attack, of which this is known. Nobody is cleared, and the sets may be wrong."""
    in_one, in_more = (1.0 / (1.0 + np.exp(np.clip(one, -700.0, 700.0))) for one in (log_odds, further.log_odds))
    chance = 1.0 - float(further.count[0])
    either = (1.0 - chance * WRONG) * (1.0 - (1.0 - in_one) * (1.0 - in_more))
    doubted = np.clip(either, undecided, 1.0 - 1e-16)
    result: FloatArray = np.log1p(-doubted) - np.log(doubted)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accused:
    """Whether there is an attack: how many, log-odds of some against none, whether that is enough to accuse, and whom."""

    attacks: int
    against: float
    sure: bool
    named: BoolArray


def _result(
    log_odds: FloatArray,
    count: FloatArray,
    best: tuple[RankedSet, ...],
    accused: _Accused,
    beta: float,
    undecided: float,
) -> GradedDecoding:
    attacks, against = accused.attacks, accused.against
    posterior = 1.0 / (1.0 + np.exp(np.clip(log_odds, -700.0, 700.0)))
    open_ones = (posterior >= undecided) & (posterior <= 1.0 - undecided)
    flagged = (posterior > 1.0 - beta) & (attacks > 0) & accused.sure & accused.named
    status: GradedStatus
    if open_ones.any():
        status = "undecided"
        reason = f"{int(open_ones.sum())} clients cannot be decided by these sums"
        if attacks and not accused.sure:
            reason += ", nor is it sure enough that anybody is malicious"
    elif attacks == 0:
        status = "nobody"
        reason = (
            "the group means differ by no more than honest training explains, or by more than any set of clients does"
        )
    else:
        status = "decided"
        lines = "one line" if attacks == 1 else f"{attacks} lines, each of an attack,"
        reason = f"the group means differ along {lines} that {int(flagged.sum())} clients explain"
    return GradedDecoding(
        posterior=posterior,
        log_odds=log_odds,
        flagged=flagged,
        harmless=np.zeros(len(flagged), dtype=np.bool_),
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
        harmless=nobody,
        unconfirmed=nobody,
        undecided=~nobody,
        count=found.count,
        against_nobody=against,
        best=found.best,
        attacks=1,
        status="unexplained",
        reason=f"the group means differ by more than honest training explains (evidence against nobody {against:.3g} nats), "
        f"but along no line that at most {largest} clients explain: not enough evidence to name anybody",
    )


def _without(clients: int, largest: int) -> GradedDecoding:
    return GradedDecoding(
        posterior=np.full(clients, np.nan),
        log_odds=np.full(clients, np.nan),
        flagged=np.zeros(clients, dtype=np.bool_),
        harmless=np.zeros(clients, dtype=np.bool_),
        unconfirmed=np.zeros(clients, dtype=np.bool_),
        undecided=np.zeros(clients, dtype=np.bool_),
        count=np.full(largest + 1, np.nan),
        against_nobody=0.0,
        best=(),
        attacks=0,
        status="no-evidence",
        reason="no groups could be compared",
    )
