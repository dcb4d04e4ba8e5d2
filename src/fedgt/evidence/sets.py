"""A posterior from evidence that can only score whole sets of malicious clients (`SetEvidence`).

All sets are scored as long as there are a million at most: every minority of 21 clients. Of more, small ones are scored all,
larger ones are searched for, and the rest is sampled (`grown_sets`).
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import comb

import numpy as np

from fedgt.decode.compiled import count_log_weights
from fedgt.decode.priors import CountPrior, Prior, log_or_minus_infinity
from fedgt.decode.ranked import RankedSet
from fedgt.defaults import NOBODY
from fedgt.errors import ContradictoryOutcomesError, ShapeError, SpecError
from fedgt.evidence.grown_sets import Among, Piece, grown_sets
from fedgt.types import BoolArray, FloatArray, IntArray, PointingEvidence, SetEvidence, frozen

MAX_SETS = 1 << 20
"""As many sets are scored one by one at most; of more, the best ones are searched for."""

_SMALL_SETS = 100_000
"""As many small ones are scored then."""

_BATCH = 1 << 16
_MOST_THREADS = 4  # each holds a batch and some ten numbers a set
_TIE = 1e-9
_SMALL = 1e-280


def largest_scored(clients: int, *, most: int = MAX_SETS) -> int:
    """The largest q such that there are no more sets of at most q of so many clients: 6 of 30, 4 of 50 by default.

    Examples:
        >>> from fedgt.evidence import largest_scored
        >>> largest_scored(15), largest_scored(30), largest_scored(50)
        (15, 6, 4)
    """
    total, size = 1, 0
    while size < clients and total + comb(clients, size + 1) <= most:
        size += 1
        total += comb(clients, size)
    return size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SetPosterior:
    """What evidence about whole sets says.

    Attributes:
        log_odds: float64[clients]: log P(benign) - log P(malicious), in nats.
        log_evidence: log P(observation).
        count: float64[largest + 1]: posterior of the number of malicious clients.
        best: The most probable sets, most probable first.
        tied: How many sets are as probable as the best one (within 1e-9 nats).
        sets: How many sets were scored.
        all_scored: Whether these are all. If not, a few hundred of each large size were found by search and count exactly,
            and the others count by a sample.

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence import decode_sets, sparse_prior
        >>> class NothingIsKnown:
        ...     def log_likelihood(self, sets):
        ...         return np.zeros(len(sets))
        >>> found = decode_sets(NothingIsKnown(), clients=6, prior=sparse_prior(6, 2))
        >>> found.sets, found.count.round(3).tolist()  # the prior comes back
        (22, [0.5, 0.25, 0.25])
    """

    log_odds: FloatArray
    log_evidence: float
    count: FloatArray
    best: tuple[RankedSet, ...]
    tied: int
    sets: int
    all_scored: bool = True


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


def decode_sets(
    evidence: SetEvidence,
    *,
    clients: int,
    prior: Prior,
    largest: int | None = None,
    best: int = 10,
    beside: Sequence[int] = (),
    seed: int = 0,
) -> SetPosterior:
    """Score the sets of at most `largest` clients, in batches: all of them up to a million, the most probable of more.

    Args:
        evidence: Scores sets.
        clients: n.
        prior: Of the sets: independent clients, or a count prior (its n_max bounds `largest`).
        largest: The largest number of malicious clients considered; all, or the prior's n_max, when not given.
        best: How many of the most probable sets to return.
        beside: Clients that are malicious for another reason: they and the set are at most `largest` together.
        seed: Where there are more than a million sets: draws those that stand for the sets that were not found.

    Raises:
        ShapeError: If the prior does not fit, or the evidence does not answer for each set.
        ContradictoryOutcomesError: If every set is impossible.

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence import decode_sets, sparse_prior
        >>> class OnlyTwoAndFive:
        ...     def log_likelihood(self, sets):
        ...         return np.where(sets[:, [2, 5]].all(axis=1) & (sets.sum(axis=1) == 2), 9.0, 0.0)
        >>> found = decode_sets(OnlyTwoAndFive(), clients=6, prior=sparse_prior(6, 2), best=1)
        >>> found.best[0].clients
        (2, 5)
    """
    limit = clients if largest is None else largest
    if isinstance(prior, CountPrior):
        if len(prior.weights) > clients + 1:
            raise ShapeError(f"the prior allows {len(prior.weights) - 1} malicious clients of {clients}")
        limit = min(limit, len(prior.weights) - 1)
    elif len(prior.prevalence) != clients:
        raise ShapeError(f"{len(prior.prevalence)} prevalences for {clients} clients")
    if best < 0:
        raise ShapeError(f"best = {best}; how many sets to return cannot be negative")
    if not 0 <= limit <= clients:
        raise ShapeError(f"sets of at most {limit} of {clients} clients: 0 to {clients} is needed")
    known = len(set(beside))
    if known > limit or not set(beside) <= set(range(clients)):
        raise ShapeError(f"sets beside {list(beside)}: at most {limit} different ones of {clients} clients are needed")
    pieces, all_scored = _pieces_of(evidence, clients, prior, limit, beside, seed)
    found = _scored(pieces(), clients, limit, best, each_client=False)
    if found.scale == -np.inf:
        raise ContradictoryOutcomesError("every set of malicious clients is impossible under this evidence and prior")
    if found.vanished:  # some client's total is hundreds of nats below the best set: a scale of its own for each
        found = _scored(pieces(), clients, limit, best, each_client=True)
    mass = float(found.by_count.sum())
    return SetPosterior(
        log_odds=frozen(found.logs[0] - found.logs[1], np.float64),
        log_evidence=float(found.scale + np.log(mass)),
        count=frozen(found.by_count / mass, np.float64),
        best=tuple(
            RankedSet(
                clients=tuple(np.flatnonzero(chosen).tolist()), probability=float(np.exp(score - found.scale) / mass)
            )
            for score, chosen in zip(found.top_scores, found.top_sets, strict=True)
            if score > -np.inf
        ),
        tied=found.tied,
        sets=found.sets,
        all_scored=all_scored,
    )


@dataclass(slots=True, kw_only=True)
class _Totals:
    """Running sums over all sets, relative to exp(scale)."""

    scale: float
    logs: FloatArray  # [2, clients]: log of the total over sets without, and with, each client
    vanished: bool
    by_count: FloatArray
    tied: int
    top_scores: FloatArray
    top_sets: BoolArray
    sets: int


def _pieces_of(
    evidence: SetEvidence, clients: int, prior: Prior, limit: int, beside: Sequence[int], seed: int
) -> tuple[Callable[[], Iterator[Piece]], bool]:
    """What yields the scored sets, as often as it is called, and whether these are all."""

    def scored(batches: Iterator[tuple[int, BoolArray]]) -> Iterator[Piece]:
        for size, sets, likelihood in _by_threads(evidence, batches):
            yield Piece(size, sets, likelihood + _log_prior_of(sets, size, prior, clients))

    known = len(set(beside))
    if sum(comb(clients - known, q) for q in range(limit - known + 1)) * 2**known <= MAX_SETS:
        return lambda: scored(_sets_beside(clients, limit, beside)), True
    among = Among(clients=clients, largest=limit, beside=np.array(sorted(set(beside)), dtype=np.int64))
    few = min(limit, largest_scored(clients, most=_SMALL_SETS))
    small = ((size, sets[among.holds(sets)]) for size, sets in all_sets(clients, few))

    def score(size: int, sets: BoolArray) -> FloatArray:
        pieces = [sets[start : start + _BATCH] for start in range(0, len(sets), _BATCH)]
        return np.concatenate([one.scores for one in scored((size, piece) for piece in pieces)])

    pointed = evidence.pointed_at(limit) if isinstance(evidence, PointingEvidence) else np.zeros((0, 0), dtype=np.bool_)
    of_few = scored((size, sets) for size, sets in small if len(sets))
    searched = list(grown_sets(of_few, score, among, pointed=pointed, rng=np.random.default_rng(seed)))
    return lambda: iter(searched), False


def _scored(pieces: Iterator[Piece], clients: int, limit: int, best: int, *, each_client: bool) -> _Totals:
    scale, highest, tied, count = -np.inf, -np.inf, 0, 0
    sums = np.zeros((2, clients))  # of benign, of malicious
    logs = np.full((2, clients), -np.inf)
    possible = np.zeros((2, clients), dtype=np.bool_)
    by_count = np.zeros(limit + 1)
    top_scores, top_sets = np.empty(0), np.empty((0, clients), dtype=np.bool_)
    for q, sets, scores, times in pieces:
        count += len(sets)
        peak = float(scores.max()) + times
        if peak > scale:
            factor = np.exp(scale - peak) if np.isfinite(scale) else 0.0
            sums, by_count = sums * factor, by_count * factor
            scale = peak
        if scale == -np.inf:
            continue
        weights = np.exp(scores + times - scale)
        by_count[q] += float(weights.sum())
        members = sets.astype(np.float64)  # a product of floats is the fast one
        if each_client:
            for side, member in enumerate((~sets, sets)):
                logs[side] = np.logaddexp(logs[side], _column_log_sums(scores + times, member))
        else:
            sums[1] += weights @ members
            sums[0] += weights @ np.subtract(1.0, members, out=members)
            seen = sets[scores > -np.inf]
            possible |= np.stack([~seen.all(axis=0), seen.any(axis=0)])
        if times:
            continue
        if float(scores.max()) > highest:
            tied = tied if highest >= float(scores.max()) - _TIE else 0
            highest = float(scores.max())
        tied += int((scores >= highest - _TIE).sum())
        worthy = np.flatnonzero(scores >= (top_scores[-1] if len(top_scores) == best > 0 else -np.inf))
        joined = np.concatenate([top_scores, scores[worthy]])
        order = np.argsort(-joined, kind="stable")[:best]
        top_scores, top_sets = joined[order], np.concatenate([top_sets, sets[worthy]])[order]
    return _Totals(
        scale=scale,
        logs=logs if each_client else scale + log_or_minus_infinity(sums),
        vanished=not each_client and bool((possible & (sums < _SMALL)).any()),
        by_count=by_count,
        tied=tied,
        top_scores=top_scores,
        top_sets=top_sets,
        sets=count,
    )


def _by_threads(
    evidence: SetEvidence, batches: Iterator[tuple[int, BoolArray]]
) -> Iterator[tuple[int, BoolArray, FloatArray]]:
    """Each batch with its scores, in the order given: numpy's loops let other threads run, which score the next batches."""
    workers = min(os.cpu_count() or 1, _MOST_THREADS)
    waiting: deque[tuple[int, BoolArray, Future[FloatArray]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for q, sets in batches:
            waiting.append((q, sets, pool.submit(evidence.log_likelihood, sets)))
            if len(waiting) > workers:
                ready, those, scores = waiting.popleft()
                yield ready, those, _checked(scores.result(), those)
        for ready, those, scores in waiting:
            yield ready, those, _checked(scores.result(), those)


def _checked(likelihood: FloatArray, sets: BoolArray) -> FloatArray:
    if likelihood.shape != (len(sets),) or not (likelihood < np.inf).all():
        raise ShapeError(
            f"the evidence scored {len(sets)} sets with shape {likelihood.shape}, NaN or inf; one log-likelihood each "
            "is needed, finite or -inf"
        )
    return likelihood


def _column_log_sums(scores: FloatArray, member: BoolArray) -> FloatArray:
    """float64[clients]: log of the sum of exp(score) over the sets of each column."""
    masked = np.where(member.T, scores, -np.inf)
    peak = masked.max(axis=1)
    safe = np.where(np.isfinite(peak), peak, 0.0)
    return log_or_minus_infinity(np.exp(masked - safe[:, None]).sum(axis=1)) + safe


def all_sets(clients: int, largest: int) -> Iterator[tuple[int, BoolArray]]:
    """(size, bool[B, clients]) in batches: by size, then in lexicographic order."""
    for q in range(largest + 1):
        for sets, _ in _sets_of(clients, q):
            yield q, sets


def _sets_beside(clients: int, largest: int, beside: Sequence[int]) -> Iterator[tuple[int, BoolArray]]:
    """As `all_sets`, those that have at most `largest` members together with the clients that they are beside."""
    inside = np.array(sorted(set(beside)), dtype=np.int64)
    outside = np.delete(np.arange(clients), inside)
    for extra, few in all_sets(len(outside), largest - len(inside)):
        for size, some in all_sets(len(inside), len(inside)):
            sets = np.zeros((len(few), len(some), clients), dtype=np.bool_)
            sets[:, :, outside] = few[:, None]
            sets[:, :, inside] = some
            yield extra + size, sets.reshape(-1, clients)


def _sets_of(clients: int, size: int) -> Iterator[tuple[BoolArray, IntArray]]:
    """bool[B, clients] and the last member of each: all sets of a size in lexicographic order, grown from smaller ones."""
    if size == 0:
        yield np.zeros((1, clients), dtype=np.bool_), np.array([-1])
        return
    for smaller, last in _sets_of(clients, size - 1):
        ways = clients - 1 - last
        for start, stop in _pieces(ways):
            repeats = ways[start:stop]
            ends = np.cumsum(repeats)
            within = np.arange(ends[-1]) - np.repeat(ends - repeats, repeats)
            added = np.repeat(last[start:stop] + 1, repeats) + within
            sets = np.repeat(smaller[start:stop], repeats, axis=0)
            sets[np.arange(len(sets)), added] = True
            yield sets, added


def _pieces(ways: IntArray) -> Iterator[tuple[int, int]]:
    """Ranges of rows whose extensions come to about a batch, and to at least one."""
    total = np.cumsum(ways)
    start = 0
    while start < len(ways) and (start == 0 or total[-1] > total[start - 1]):
        before = int(total[start - 1]) if start else 0
        stop = max(int(np.searchsorted(total, before + _BATCH, side="right")), start + 1)
        if total[stop - 1] > before:
            yield start, stop
        start = stop


def _log_prior_of(sets: BoolArray, q: int, prior: Prior, clients: int) -> FloatArray:
    if isinstance(prior, CountPrior):
        return np.full(len(sets), count_log_weights(prior, clients)[q])
    stay, move = log_or_minus_infinity(1.0 - prior.prevalence), log_or_minus_infinity(prior.prevalence)
    impossible = (sets & np.isneginf(move)).any(axis=1) | (~sets & np.isneginf(stay)).any(axis=1)
    safe_stay, safe_move = np.where(np.isneginf(stay), 0.0, stay), np.where(np.isneginf(move), 0.0, move)
    return np.where(impossible, -np.inf, sets @ safe_move + ~sets @ safe_stay)
