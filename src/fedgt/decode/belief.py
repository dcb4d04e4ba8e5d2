"""Loopy belief propagation for designs whose exact decoder does not fit: approximate, and it says so.

Messages travel along the edges of the bipartite graph of section III of the paper, as log-ratios (benign over malicious),
clipped so that none is ever infinite or NaN. Clients that the prior is certain about stay certain; direct contradictions
between groups are found, others are not. Kschischang, Frey and Loeliger 2001 (reference 37 of the paper).
"""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from fedgt.decode.compiled import (
    Posterior,
    PosteriorBatch,
    Rates,
    check_outcomes,
    check_prior,
    count_log_weights,
    log_outcome_likelihood,
    per_group,
    single,
)
from fedgt.decode.priors import CountPrior, Prior
from fedgt.design import Design
from fedgt.errors import SpecError
from fedgt.types import FloatArray, IntArray, Outcomes

Update = Literal["flooding", "serial"]
UPDATES: tuple[Update, ...] = get_args(Update)

_SWEEPS = 200
_DAMPING = 0.3  # the part of the old message that is kept
_STILL = 1e-6  # converged when no message changes by more than this, in nats
_LARGEST = 600.0  # messages stay within +-600 nats: exp of that is still a number


class BeliefPropagation:
    """Sum-product on the factor graph, in logarithms.

    Args:
        design: Any size.
        rates: Q(t_i | s_i).
        prior: Independent clients, or a count prior (which becomes a factor over everybody).
        update: `flooding` updates all groups from the same messages; `serial` one group after the other.

    Raises:
        SpecError: If the update is unknown.
        ShapeError: If rates or prior do not fit the design.

    Examples:
        >>> from fedgt import ErrorRates, Outcomes, named_design
        >>> from fedgt.decode import BeliefPropagation, IndependentPrior
        >>> prior = IndependentPrior.uniform(15, 0.2)
        >>> decoder = BeliefPropagation(named_design("bch-15x8"), ErrorRates.symmetric(0.05), prior)
        >>> decoder.decode(Outcomes.parse("11010000")).status
        'converged'
    """

    def __init__(
        self,
        design: Design,
        rates: Rates,
        prior: Prior,
        *,
        update: Update = "flooding",
    ) -> None:
        """Lay out the edges; see the class."""
        check_prior(design, prior)
        if update not in UPDATES:
            raise SpecError(f"unknown update {update!r}; known are {', '.join(UPDATES)}")
        self._design = design
        self._rates = per_group(rates, design)
        self._prior = prior
        self._update = update
        groups, clients = np.nonzero(design.matrix)
        self._edge_group: IntArray = groups.astype(np.int64)
        self._edge_client: IntArray = clients.astype(np.int64)
        self._starts: IntArray = np.searchsorted(groups, np.arange(design.groups)).astype(np.int64)

    @property
    def method(self) -> str:
        """Always `belief-propagation`."""
        return "belief-propagation"

    @property
    def cost(self) -> str:
        """Edges and sweeps."""
        return f"{len(self._edge_group)} edges, at most {_SWEEPS} sweeps"

    def decode(self, outcomes: Outcomes) -> Posterior:
        """See `CompiledDecoder`; the status says whether the messages converged."""
        return single(self.decode_batch(outcomes.values[None]), outcomes)

    def decode_batch(self, outcomes: npt.NDArray[np.int8]) -> PosteriorBatch:
        """See `CompiledDecoder`."""
        values = check_outcomes(outcomes, self._design)
        rows = [self._run(self._binary(row)) if self._consistent(row) else self._impossible() for row in values]
        width = len(self._prior.weights) if isinstance(self._prior, CountPrior) else 0
        return PosteriorBatch(
            log_odds=np.array([row[0] for row in rows]).reshape(len(rows), self._design.clients),
            log_evidence=np.array([row[1] for row in rows], dtype=np.float64),
            count=np.array([row[2] for row in rows]).reshape(len(rows), width),
            converged=np.array([row[3] for row in rows], dtype=np.bool_),
            exact=False,
        )

    def _consistent(self, outcomes: npt.NDArray[np.int8]) -> bool:
        """Whether no group contradicts the others directly, where error rates are 0 or clients certain."""
        certain = self._certain()
        positive, negative = outcomes == 1, outcomes == 0
        never_false = np.array([rates.false_alarm == 0 for rates in self._rates])
        never_missed = np.array([rates.misdetection == 0 for rates in self._rates])
        matrix = self._design.matrix != 0
        cleared = (certain > 0) | matrix[negative & never_missed].any(axis=0)
        unexplained = positive & never_false & ~(matrix & ~cleared).any(axis=1)
        denied = negative & never_missed & (matrix & (certain < 0)).any(axis=1)
        return not (unexplained | denied).any()

    def _impossible(self) -> tuple[FloatArray, float, FloatArray, bool]:
        width = len(self._prior.weights) if isinstance(self._prior, CountPrior) else 0
        return np.full(self._design.clients, np.nan), -np.inf, np.full(width, np.nan), True

    def _certain(self) -> FloatArray:
        """float64[clients]: 1 certainly benign, -1 certainly malicious, 0 uncertain, by the prior alone."""
        if isinstance(self._prior, CountPrior):
            return np.zeros(self._design.clients)
        return np.where(self._prior.prevalence == 0, 1.0, np.where(self._prior.prevalence == 1, -1.0, 0.0))

    def _binary(self, outcomes: npt.NDArray[np.int8]) -> FloatArray:
        """float64[groups, 2]: log P(t | clean), log P(t | contaminated)."""
        return np.array(
            [log_outcome_likelihood(outcomes[g : g + 1], rates)[0] for g, rates in enumerate(self._rates)]
        ).reshape(-1, 2)

    def _edges(self, group: int) -> slice:
        last = group + 1 == self._design.groups
        return slice(int(self._starts[group]), len(self._edge_client) if last else int(self._starts[group + 1]))

    def _run(self, likelihood: FloatArray) -> tuple[FloatArray, float, FloatArray, bool]:
        client, n = self._edge_client, self._design.clients
        own, certain = self._own(), self._certain()

        def known(messages: FloatArray, which: IntArray) -> FloatArray:
            """What is certain stays certain, whatever the groups say."""
            return np.where(certain[which] == 0, messages, 2 * _LARGEST * certain[which])

        from_group = np.zeros(len(client))
        from_count = np.zeros(n)
        converged = False
        for _ in range(_SWEEPS):
            before, count_before = from_group.copy(), from_count.copy()
            if self._update == "flooding":
                total = own + from_count + np.bincount(client, from_group, minlength=n)
                answered = self._group_messages(known(total[client] - from_group, client), likelihood)
                from_group = self._damped(from_group, answered)
            else:
                total = own + from_count + np.bincount(client, from_group, minlength=n)
                for group in range(self._design.groups):
                    edges = self._edges(group)
                    incoming = known(total[client[edges]] - from_group[edges], client[edges])
                    fresh = self._damped(from_group[edges], _or_messages(incoming, likelihood[group]))
                    np.add.at(total, client[edges], fresh - from_group[edges])
                    from_group[edges] = fresh
            if isinstance(self._prior, CountPrior):
                total = own + np.bincount(client, from_group, minlength=n)
                from_count = self._damped(from_count, _count_factor(total, count_log_weights(self._prior, n))[0])
            change = max(
                np.abs(from_group - before).max(initial=0.0), np.abs(from_count - count_before).max(initial=0.0)
            )
            if change <= _STILL:
                converged = True
                break
        total = own + from_count + np.bincount(client, from_group, minlength=n)
        count = np.empty(0)
        if isinstance(self._prior, CountPrior):
            count = _count_factor(total - from_count, count_log_weights(self._prior, n))[1]
        evidence = self._bethe(total, from_group, from_count, likelihood)
        total = np.where(certain == 0, total, np.inf * np.where(certain == 0, 1.0, certain))
        return total, evidence, count, converged

    def _own(self) -> FloatArray:
        if isinstance(self._prior, CountPrior):
            return np.zeros(self._design.clients)
        with np.errstate(divide="ignore"):
            odds = np.log1p(-self._prior.prevalence) - np.log(self._prior.prevalence)
        clipped: FloatArray = np.clip(odds, -_LARGEST, _LARGEST)
        return clipped

    def _damped(self, old: FloatArray, new: FloatArray) -> FloatArray:
        return np.clip(_DAMPING * old + (1.0 - _DAMPING) * new, -_LARGEST, _LARGEST)

    def _group_messages(self, incoming: FloatArray, likelihood: FloatArray) -> FloatArray:
        benign = _log_benign(incoming)
        others = np.add.reduceat(benign, self._starts)[self._edge_group] - benign if len(benign) else benign
        return _answer(np.minimum(others, 0.0), likelihood[self._edge_group].T)

    def _bethe(
        self, total: FloatArray, from_group: FloatArray, from_count: FloatArray, likelihood: FloatArray
    ) -> float:
        """Bethe's approximation of log P(t): exact on a graph without cycles."""
        client, own = self._edge_client, self._own()
        certain = self._certain()[client]
        incoming = np.where(certain == 0, total[client] - from_group, 2 * _LARGEST * certain)
        all_benign = np.add.reduceat(_log_benign(incoming), self._starts)
        groups = np.logaddexp(likelihood[:, 0] + all_benign, likelihood[:, 1] + _log_one_minus(all_benign)).sum()
        # Every message and belief is normalised: P(benign) = 1 / (1 + e^-L).
        messages = [np.bincount(client, part, minlength=len(own)) for part in _log_pair(from_group)]
        everybody = _log_pair(from_count) if isinstance(self._prior, CountPrior) else (0.0, 0.0)
        priors = (0.0, 0.0) if isinstance(self._prior, CountPrior) else _log_pair(own)
        clients = np.logaddexp(priors[0] + everybody[0] + messages[0], priors[1] + everybody[1] + messages[1]).sum()
        edges = _log_agreement(incoming, from_group).sum()
        extra = 0.0
        if isinstance(self._prior, CountPrior):
            beliefs = total - from_count
            weights = count_log_weights(self._prior, len(own))
            extra = _count_factor(beliefs, weights)[2] - float(_log_agreement(beliefs, from_count).sum())
        return float(groups + clients - edges + extra)


def _log_benign(log_odds: FloatArray) -> FloatArray:
    """The logarithm of P(benign) from log-odds, never -inf."""
    return -np.logaddexp(0.0, -log_odds)


def _log_pair(log_odds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The logarithms of P(benign) and P(malicious)."""
    return -np.logaddexp(0.0, -log_odds), -np.logaddexp(0.0, log_odds)


def _log_agreement(first: FloatArray, second: FloatArray) -> FloatArray:
    """The logarithm of the sum over both values of the product of two normalised messages."""
    a, b = _log_pair(first), _log_pair(second)
    return np.logaddexp(a[0] + b[0], a[1] + b[1])


def _log_one_minus(log_probability: FloatArray) -> FloatArray:
    """The logarithm of 1 - e^x for x <= 0; -inf at 0."""
    with np.errstate(divide="ignore"):
        return np.where(
            log_probability > -0.6931,
            np.log(-np.expm1(np.minimum(log_probability, 0.0))),
            np.log1p(-np.exp(np.minimum(log_probability, 0.0))),
        )


def _answer(others: FloatArray, likelihood: npt.NDArray[np.float64]) -> FloatArray:
    """The message of an OR group: log P(t | client benign) - log P(t | client malicious), clipped.

    Args:
        others: float64[edges]: log probability that all other members are benign.
        likelihood: float64[2, edges]: log P(t | clean), log P(t | contaminated).
    """
    clean, contaminated = likelihood
    benign = np.logaddexp(clean + others, contaminated + _log_one_minus(others))
    both = np.isneginf(benign) & np.isneginf(contaminated)
    with np.errstate(invalid="ignore"):
        ratio = np.where(both, 0.0, benign - contaminated)
    return np.clip(ratio, -_LARGEST, _LARGEST)


def _or_messages(incoming: FloatArray, likelihood: FloatArray) -> FloatArray:
    benign = _log_benign(incoming)
    others = np.minimum(benign.sum() - benign, 0.0)
    return _answer(others, np.tile(likelihood[:, None], (1, len(incoming))))


def _count_factor(incoming: FloatArray, log_likelihood: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """A factor that depends on how many of its clients are malicious.

    Args:
        incoming: float64[size]: log-odds of its clients without it.
        log_likelihood: float64[length]: of the counts 0, 1, ...; larger counts are impossible.

    Returns:
        (float64[size] messages, float64[length] belief about the count, log of the normaliser).
    """
    size, length = len(incoming), len(log_likelihood)
    offset = float(log_likelihood.max())
    weights = np.exp(log_likelihood - offset)
    malicious = 1.0 / (1.0 + np.exp(np.clip(incoming, -_LARGEST, _LARGEST)))
    before = np.zeros((size + 1, length))
    after = np.zeros((size + 1, length))
    before[0, 0] = after[size, 0] = 1.0
    for j in range(size):
        before[j + 1] = before[j] * (1 - malicious[j])
        before[j + 1, 1:] += before[j, :-1] * malicious[j]
        k = size - 1 - j
        after[k] = after[k + 1] * (1 - malicious[k])
        after[k, 1:] += after[k + 1, :-1] * malicious[k]
    shifted = np.append(weights[1:], 0.0)
    messages = np.empty(size)
    for j in range(size):
        others = np.convolve(before[j], after[j + 1])[:length]
        benign, bad = float(others @ weights), float(others @ shifted)
        messages[j] = np.clip(np.log(max(benign, 1e-300)) - np.log(max(bad, 1e-300)), -_LARGEST, _LARGEST)
    belief = before[size] * weights
    total = float(belief.sum())
    return messages, belief / total if total > 0 else belief, float(np.log(max(total, 1e-300))) + offset
