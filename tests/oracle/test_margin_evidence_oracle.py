"""Margin evidence against textbook forms: a step of gradient descent, the multivariate t, one regression over all pairs."""

import numpy as np
import pytest
from scipy.stats import multivariate_t

from fedgt.design import named_design
from fedgt.evidence import MarginEvidence, class_steps, contrasts, damage
from fedgt.evidence.by_margins.hypotheses import Hypothesis, margin_hypotheses
from fedgt.evidence.by_margins.lone import SHARES, SIZES, with_lone_clients
from fedgt.evidence.by_margins.margin_evidence import SPREADS, STRENGTHS
from fedgt.types import FloatArray

ROWS = named_design("graded-15x10-b").matrix.astype(np.float64)
PARTS = contrasts(ROWS, np.ones(15))


def evidence(observed: FloatArray, *, lone_share: float = 0.0, lone_size: float = 1.0) -> MarginEvidence:
    """One hypothesis."""
    one = Hypothesis(
        labels=(1, 7),
        observed=observed,
        scale=2.0,
        freedom=5.0,
        excess=1.0,
        log_prior=-1.5,
        lone_share=lone_share,
        lone_size=lone_size,
    )
    losses = damage(PARTS, np.random.default_rng(0).normal(size=(10, 3)))
    return MarginEvidence(shifts=PARTS.shifts, noise=PARTS.noise, hypotheses=(one,), damage=losses)


def test_class_steps_are_steps_of_gradient_descent_of_a_linear_head_that_leave_each_sample_itself_out() -> None:
    rng = np.random.default_rng(1)
    inputs, labels = rng.normal(size=(12, 5)), np.array([0, 0, 0, 1, 1, 1, 1, 3, 3, 3, 0, 4])
    head, bias = rng.normal(size=(5, 5)), rng.normal(size=5)
    logits = inputs @ head.T + bias
    found = class_steps(logits, inputs, labels)
    classes = [0, 1, 3, 4]  # nobody knows a sample of class 2
    chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for c, trained in enumerate(classes):
        for s, seen in enumerate(classes):
            # - d loss / d W = (y - p) x^T and - d loss / d b = y - p for each sample i, seen by the samples j.
            direct = np.zeros(5)
            for i in np.flatnonzero(labels == trained):
                pull = np.eye(5)[labels[i]] - chance[i]
                reached = [
                    (inputs[i] @ inputs[j] + 1.0)
                    for j in np.flatnonzero(labels == seen)
                    if j != i or (labels == seen).sum() == 1
                ]
                direct += pull * np.mean(reached)
            np.testing.assert_allclose(found[c, s], direct / (labels == trained).sum(), atol=1e-12)


def test_the_evidence_is_that_of_the_multivariate_t_averaged_over_strengths_and_spreads() -> None:
    rng = np.random.default_rng(2)
    observed = 3.0 * rng.normal(size=PARTS.size)
    one = evidence(observed)
    sets = np.zeros((4, 15), dtype=np.bool_)
    sets[1, [3]], sets[2, [0, 5, 9]], sets[3, [1, 2, 6, 7, 8, 13, 14]] = True, True, True
    nobody = multivariate_t.logpdf(observed, shape=4.0 * np.eye(PARTS.size), df=5.0)
    expected = [0.0]
    for members in sets[1:]:
        columns = PARTS.shifts[:, members]
        terms = [
            multivariate_t.logpdf(
                observed,
                loc=2.0 * strength * columns.sum(axis=1),
                shape=4.0 * (np.eye(PARTS.size) + (relative * strength) ** 2 * columns @ columns.T),
                df=5.0,
            )
            for strength in STRENGTHS
            for relative in SPREADS
        ]
        expected.append(-1.5 + np.logaddexp.reduce(terms) - np.log(len(terms)) - nobody)
    np.testing.assert_allclose(one.log_likelihood(sets), expected, atol=1e-9)


def honest_density(one: Hypothesis, share: float, size: float) -> float:
    """The log-density if nobody is malicious: all clients alike, or one of them with a larger deviation."""
    alike, terms = one.scale**2 * np.eye(PARTS.size), []
    for column in PARTS.shifts.T:
        shape = alike + (one.scale * size) ** 2 * np.outer(column, column)
        terms.append(share / 15 * multivariate_t.pdf(one.observed, shape=shape, df=one.freedom))
    return float(np.log((1 - share) * multivariate_t.pdf(one.observed, shape=alike, df=one.freedom) + sum(terms)))


def test_one_honest_client_may_stand_far_from_all_others() -> None:
    observed = 90.0 * PARTS.shifts[:, 4] + np.random.default_rng(3).normal(size=PARTS.size)
    sets = np.zeros((1, 15), dtype=np.bool_)
    sets[0, [4]] = True
    without, with_one = evidence(observed), evidence(observed, lone_share=0.4, lone_size=6.0)
    (hypothesis,) = with_one.hypotheses
    costs = honest_density(hypothesis, 0.4, 6.0) - honest_density(hypothesis, 0.0, 1.0)
    assert costs > 0.5
    np.testing.assert_allclose(without.log_likelihood(sets) - with_one.log_likelihood(sets), costs, atol=1e-9)


@pytest.mark.slow
def test_how_often_that_happens_is_what_the_pairs_without_a_label_of_the_hypothesis_make_most_likely() -> None:
    rng = np.random.default_rng(8)
    flips = [
        Hypothesis(
            labels=(s, t),
            observed=scale * rng.standard_t(3, size=15) @ PARTS.shifts.T,
            scale=scale,
            freedom=9.0,
            excess=0.0,
            log_prior=-1.0,
        )
        for scale in (2.0, 3.0)
        for s in range(5)
        for t in range(5)
        if t != s and (s, t) != (2, 4)  # a class may have no sample
    ]
    grid = [(0.0, SIZES[0]), *((share, size) for share in SHARES[1:] for size in SIZES)]
    density = np.array([[honest_density(one, *point) for one in flips] for point in grid])
    found = with_lone_clients(PARTS.shifts, flips)
    assert len({one.lone_share for one in found}) > 1
    for one in found:
        others = [not set(one.labels) & set(other.labels) for other in flips]
        assert (one.lone_share, one.lone_size) == grid[int(density[:, others].sum(axis=1).argmax())]


def test_the_adjusted_margins_are_the_residuals_of_one_regression_over_all_pairs() -> None:
    rng = np.random.default_rng(4)
    classes = np.array([0, 1, 2, 3, 5])  # class 4 has no sample
    margins = rng.normal(size=(10, 5, 6))
    margins -= margins.mean(axis=2, keepdims=True)
    moved = np.tensordot(PARTS.transform, margins, axes=1)
    rows, pairs = [], []
    for i, s in enumerate(classes):
        for t in range(6):
            if t == s:
                continue
            here = np.flatnonzero(classes == t)
            others = [u for u, label in enumerate(classes) if label not in (s, t)]
            rest = [v for v in range(6) if v not in (s, t)]
            y = moved[:, i, t] - moved[:, i, s]
            x = [
                moved[:, here[0], s] if here.size else np.zeros(PARTS.size),
                moved[:, others, t].mean(axis=1),
                moved[:, others, s].mean(axis=1),
                moved[:, i][:, rest].mean(axis=1),
                moved[:, here[0], t] if here.size else np.zeros(PARTS.size),
            ]
            weight = 1.0 / np.sqrt((y**2).mean())
            rows.append((np.stack(x, axis=1), y, weight))
            pairs.append((int(s), t))
    coefficients = np.linalg.lstsq(
        np.concatenate([x * w for x, _, w in rows]), np.concatenate([y * w for _, y, w in rows]), rcond=None
    )[0]
    found = margin_hypotheses(PARTS, margins, classes, None)
    flips = [one for one in found if len(one.labels) == 2]
    assert [one.labels for one in flips[: len(pairs)]] == pairs
    for one, (features, y, _) in zip(flips, rows, strict=False):
        np.testing.assert_allclose(one.observed, y - features @ coefficients, atol=1e-9)
