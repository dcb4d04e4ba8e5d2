"""Evidence of several test rounds in which outputs were compared: one line through the contrasts of all of them.

An attack moves the outputs of a network in the same direction in every round, and most of what honest clients of one
population differ by is drawn anew. So the contrasts of all rounds are treated as those of one test with more groups: theta
is common, a set moves all of them, and a line of honest clients in one round is none in the others. To look for a line in
each round and to add the evidence up would forget that it is the same.

A part rho of the variance of what a client differs by comes again in every round: a fifth or less where clients are of one
population, most of it where they differ by nature. With N_r the `noise` of round r (see `Contrasts`), contrasts of the
rounds r and s have the covariance rho N_r N_s^T; with that, the contrasts of all rounds are made independent of each other
before they are compared. Nobody knows rho: it is integrated out.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedgt.errors import ShapeError
from fedgt.evidence.by_margins.margin_evidence import MarginEvidence
from fedgt.evidence.harm import Damage
from fedgt.evidence.line_likelihood import FewFeatures
from fedgt.evidence.repeated import without_repetition
from fedgt.evidence.weights import GradedEvidence, MixedEvidence, Rows, most_likely
from fedgt.types import FloatArray, SetEvidence

COMES_AGAIN = (0.2, 0.4, 0.6, 0.8)
"""Values of rho, each as likely as the others beforehand: the part of what a client differs by that is always the same."""

TOGETHER = 0.5
"""Power to which likelihoods are raised (decision 0016)."""

_SIGNALS = 10.0 ** np.arange(0.5, 5.01, 0.5)
"""Signal-to-noise ratios of one round, log-uniform. Noise alone makes lines of the smallest, where few features vary."""


def together(tests: Sequence[SetEvidence]) -> list[SetEvidence]:
    """Evidence of the test rounds of the same clients, ready to be added up.

    Where outputs were compared, in two rounds or more and on the same classes, they become one evidence. Where weights or
    margins were, their likelihoods are raised to the part that is new (`repeated`). The rest stays.

    Examples:
        >>> from fedgt.evidence import together
        >>> together([])
        []
    """
    kinds: dict[tuple[int, ...], list[GradedEvidence]] = {}
    of_weights: list[GradedEvidence] = []
    of_margins: list[MarginEvidence] = []
    found: list[SetEvidence] = []
    for one in tests:
        if isinstance(one, GradedEvidence) and one.compared is not None:
            kind = (one.compared.shape[1], *one.damage.classes.tolist())
            kinds.setdefault(kind, []).append(one)
        elif isinstance(one, GradedEvidence):
            of_weights.append(one)
        elif isinstance(one, MarginEvidence):
            of_margins.append(one)
        else:
            found.append(one)
    found += without_repetition(of_weights)
    found += without_repetition(of_margins)
    return found + [one_line(same) if len(same) > 1 else same[0] for same in kinds.values()]


def one_line(tests: Sequence[GradedEvidence]) -> GradedEvidence:
    """The evidence of one test round or more in which outputs were compared, by the likelihood of each set.

    How much comes again is learnt from the contrasts: each part in `COMES_AGAIN` is a hypothesis.

    Args:
        tests: Each with what it `compared`, and with the effective features that it has learnt.
    """
    # D is what each round has learnt from how unequal its own contrasts are.
    effective = float(np.exp(np.mean([np.log(one.strongest.shift.effective_features) for one in tests])))
    parts = COMES_AGAIN if len(tests) > 1 else COMES_AGAIN[:1]
    found = [_independent(tests, part, effective) for part in parts]
    noise = np.array([one.log_prior for one, _ in found])
    noise -= np.logaddexp.reduce(noise)
    weighed = [(replace(one, log_prior=float(log)), damage) for (one, damage), log in zip(found, noise, strict=True)]
    weighed.sort(key=lambda one: -one[0].weight)
    hypotheses = tuple(one for one, _ in weighed)
    return GradedEvidence(
        hypotheses=hypotheses,
        mixture=MixedEvidence(rows=most_likely(hypotheses)),
        damage=weighed[0][1],
        noise=np.concatenate([one.noise for one in tests]),
        compared=tests[0].compared if len(tests) == 1 else None,
        tests=len(tests),
    )


def _independent(tests: Sequence[GradedEvidence], again: float, effective: float) -> tuple[Rows, Damage]:
    """The contrasts, if this part comes again; `log_prior` is the log-likelihood of that if they are noise alone."""
    rounds = [one.compared for one in tests if one.compared is not None]
    noise = np.concatenate([one.noise for one in tests])
    # The rows of one round's noise are orthonormal: within a round the contrasts have covariance I.
    covariance = again * noise @ noise.T + (1.0 - again) * np.eye(len(noise))
    root = np.linalg.cholesky(covariance)

    def independent(parts: list[FloatArray]) -> FloatArray:
        made: FloatArray = np.linalg.solve(root, np.concatenate(parts))
        return made

    contrasts = independent(rounds)
    shifts = independent([one.damage.shifts for one in tests])
    losses = independent([one.damage.by_class for one in tests])
    few = FewFeatures(
        effective=effective,
        power=TOGETHER,
        # The same theta shows more clearly in more rounds.
        signals=_SIGNALS * len(tests) / (1.0 + (len(tests) - 1) * again),
    )
    gram = contrasts @ contrasts.T
    line = few.line(gram, shifts)
    if line is None:
        raise ShapeError("there is no difference between the groups of these test rounds: no evidence")
    # Relative to contrasts that are independent as they are.
    size = 2.0 * float(np.log(np.diag(root)).sum()) + len(gram) * float(np.log(np.trace(gram)))
    rows = Rows(
        labels=(),
        log_prior=-TOGETHER * effective / 2.0 * size,
        gram=gram,
        features=contrasts.shape[1],
        shift=line,
        few=few,
    )
    return rows, Damage(shifts=shifts, by_class=losses, classes=tests[0].damage.classes)
