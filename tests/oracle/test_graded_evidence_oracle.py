"""Graded evidence against slow textbook forms."""

import os
import time
from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy.stats import multivariate_normal, wishart

import fedgt.evidence.line as shift
import fedgt.evidence.sets as sets_module
from fedgt.decode import CountPrior
from fedgt.errors import ShapeError
from fedgt.evidence import class_losses, contrasts, damage, decode_sets, label_under_attack, margins, sparse_prior
from fedgt.evidence.line import STRENGTH_SPREADS, ShiftEvidence, shift_evidence
from fedgt.evidence.line_likelihood import FewFeatures
from fedgt.evidence.sets import all_sets
from fedgt.evidence.sphericity import sphericity, statistic
from slow_cases import slow


@pytest.mark.parametrize("seed", range(4))
def test_contrasts_cancel_the_common_model_and_have_white_noise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = (rng.random((6, 9)) < 0.5) * rng.uniform(1, 20, 9)
    weights[weights.sum(axis=1) == 0, 0] = 1.0
    samples = rng.uniform(50, 1000, 9)
    found = contrasts(weights, samples)
    shares = weights / weights.sum(axis=1, keepdims=True)
    taking_part = (weights > 0).any(axis=0)
    noise = shares @ np.diag(samples[taking_part].mean() / samples) @ shares.T
    assert np.allclose(found.transform @ np.ones(6), 0, atol=1e-9)
    assert np.allclose(found.transform @ noise @ found.transform.T, np.eye(found.size), atol=1e-8)
    assert np.allclose(found.shifts, found.transform @ shares)
    assert np.allclose(found.noise @ found.noise.T, np.eye(found.size), atol=1e-8)
    assert np.allclose(found.noise * np.sqrt(samples / samples[taking_part].mean()), found.shifts)
    # Clients of different sizes get differently far in a round: that cancels too, and costs a contrast.
    progress = np.where(taking_part, samples, 0.0) ** 0.5
    assert np.allclose(found.transform @ shares @ progress, 0, atol=1e-8)
    assert found.size == np.linalg.matrix_rank(noise) - 2


def test_the_evidence_for_a_covariance_is_the_wishart_likelihood_with_the_scale_integrated_out() -> None:
    """Up to a constant that is the same for every covariance: here for one fixed number of degrees of freedom."""
    k, degrees = 3, 12
    eigenvalues = np.array([9.0, 2.0, 1.5])
    table = sphericity(k, 1000)
    scales = np.geomspace(1e-3, 1e3, 20_001)

    def integrated(first: float) -> float:
        covariance = np.diag([first, 1.0, 1.0])
        logs = [wishart.logpdf(np.diag(eigenvalues), degrees, s * covariance) for s in scales[::100]]
        peak = max(logs)
        return float(peak + np.log(np.trapezoid(np.exp(np.array(logs) - peak), np.log(scales[::100]))))

    x = statistic(eigenvalues, np.array([1.0, 5.0]))
    assert integrated(5.0) - integrated(1.0) == pytest.approx(degrees / 2 * (x[1] - x[0]), abs=1e-3)
    assert table.log_evidence(x)[1] > table.log_evidence(x)[0]


@pytest.mark.parametrize("degrees", [20, 100, 500])
def test_the_number_of_independent_features_is_learnt_from_the_spread_of_the_contrasts(degrees: int) -> None:
    rng = np.random.default_rng(degrees)
    found = []
    for _ in range(20):
        noise = rng.normal(size=(9, degrees))
        values = np.linalg.eigvalsh(noise @ noise.T)[::-1].astype(np.float64)
        found.append(sphericity(9, 10_000).effective_features(float(statistic(values, np.ones(1))[0])))
    assert degrees / 1.7 < np.median(found) < degrees * 1.7


@pytest.mark.parametrize("seed", range(5))
def test_how_a_set_explains_a_line_is_a_normal_density_with_the_length_integrated_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k, clients = 4, 6
    shifts = rng.normal(size=(k, clients))
    direction = shifts[:, :2].sum(axis=1)
    direction /= np.linalg.norm(direction)
    variance = 0.02
    evidence = ShiftEvidence(
        shifts=shifts, direction=direction, variance=variance, signal=5.0, effective_features=50.0, line=0.0, nobody=0.0
    )
    sets = np.concatenate([chunk for _, chunk in all_sets(clients, 3)])
    found = evidence.explained(sets)
    assert found[0] == -np.inf
    assert np.allclose(
        found,
        ShiftEvidence(
            shifts=shifts,
            direction=-direction,
            variance=variance,
            signal=5.0,
            effective_features=50.0,
            line=0.0,
            nobody=0.0,
        ).explained(sets),
    )
    lengths = np.linspace(-8, 8, 8001)
    for row in np.flatnonzero(found > -15):
        if not sets[row].any():
            continue
        columns = shifts[:, sets[row]]
        towards = columns.sum(axis=1)
        size = np.linalg.norm(towards)

        def density(covariance: np.ndarray, towards: np.ndarray = towards, size: float = float(size)) -> float:
            """Of the direction, for a flat prior of its length along the set, over that of a perfect fit."""
            means = lengths[:, None] * towards / size
            values = np.exp(multivariate_normal(np.zeros(k), covariance).logpdf(direction - means))
            return float(np.trapezoid(values, lengths)) * float((2 * np.pi * variance) ** ((k - 1) / 2))

        spread, probability = STRENGTH_SPREADS[0]
        isotropic = variance + spread**2 * float((columns**2).sum()) / (k * size**2)
        expected = probability * density(isotropic * np.eye(k))
        for spread, probability in STRENGTH_SPREADS[1:]:
            expected += probability * density(variance * np.eye(k) + spread**2 * columns @ columns.T / size**2)
        assert found[row] == pytest.approx(np.log(expected), abs=0.02)


def test_losses_and_margins_are_means_over_each_class() -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(20, 4)), rng.integers(0, 3, 20)  # class 3 has no sample
    losses = class_losses(logits, labels)
    for c in range(3):
        rows = logits[labels == c]
        slow = np.mean([np.log(np.exp(row).sum()) - row[c] for row in rows])
        assert losses[c] == pytest.approx(slow)
    assert np.isnan(losses[3])
    flat = margins(logits, labels).reshape(3, 4)
    for c in range(3):
        rows = logits[labels == c]
        assert flat[c, 1] - flat[c, 2] == pytest.approx(np.mean(rows[:, 1] - rows[:, 2]))


def test_the_label_under_attack_is_named_with_holms_correction() -> None:
    rng = np.random.default_rng(1)
    parts = contrasts((rng.random((10, 15)) < 0.5) + np.eye(10, 15), np.full(15, 100.0))
    malicious = np.zeros(15, dtype=np.bool_)
    malicious[[2, 7, 11]] = True
    shares = (parts.shifts @ malicious)[None].T
    rises = np.zeros(5)
    rises[3] = 4.0
    losses = np.linalg.pinv(parts.transform) @ (shares * rises + 0.01 * rng.normal(size=(parts.size, 5)))
    found = label_under_attack(damage(parts, losses), malicious)
    assert found.kind == "targeted"
    assert found.labels == (3,)
    assert found.rises[0] == pytest.approx(4.0, abs=0.3)
    everything = label_under_attack(
        damage(parts, np.linalg.pinv(parts.transform) @ (shares * np.ones(5) * 3)), malicious
    )
    assert everything.kind == "untargeted"
    innocent = label_under_attack(damage(parts, rng.normal(size=(10, 5))), malicious)
    assert innocent.kind == "none"


@pytest.mark.parametrize("known", [(), (3,), (0, 2, 5), (0, 1, 2, 3)])
def test_sets_beside_known_clients_are_those_that_leave_a_union_of_at_most_the_largest_size(
    known: tuple[int, ...],
) -> None:
    rng = np.random.default_rng(4)
    worth = {one: float(rng.normal()) for size in range(5) for one in combinations(range(7), size)}

    class Table:
        def log_likelihood(self, sets: np.ndarray) -> np.ndarray:
            return np.array([worth[tuple(np.flatnonzero(one).tolist())] for one in sets])

    prior = sparse_prior(7, 4)
    found = decode_sets(Table(), clients=7, prior=prior, beside=known, best=3)
    chance = {
        one: np.exp(value) * prior.weights[len(one)] / comb(7, len(one))
        for one, value in worth.items()
        if len({*one, *known}) <= 4
    }
    total = sum(chance.values())
    assert found.sets == len(chance)
    ranked = sorted(chance, key=lambda one: -chance[one])[:3]
    assert [one.clients for one in found.best] == ranked
    assert found.best[0].probability == pytest.approx(chance[ranked[0]] / total)
    for j in range(7):
        within = sum(value for one, value in chance.items() if j in one)
        assert 1 / (1 + np.exp(found.log_odds[j])) == pytest.approx(within / total)


def test_more_known_clients_than_the_largest_set_are_refused() -> None:
    with pytest.raises(ShapeError, match="at most 1 different ones of 3 clients"):
        decode_sets(_Nothing(), clients=3, prior=sparse_prior(3, 1), beside=(0, 2))
    with pytest.raises(ShapeError, match="of 3 clients are needed"):
        decode_sets(_Nothing(), clients=3, prior=sparse_prior(3, 2), beside=(7,))


def test_sets_scored_by_several_threads_keep_their_scores_however_long_each_batch_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    class Slower:
        def log_likelihood(self, sets: np.ndarray) -> np.ndarray:
            asked.append(len(sets))
            time.sleep(0.01 if len(asked) % 2 else 0.0)  # so that batches are ready in another order
            return np.asarray(3.0 * sets[:, 0] - 2.0 * sets[:, 5] + 0.1 * sets.sum(axis=1))

    monkeypatch.setattr(sets_module, "_BATCH", 16)
    monkeypatch.setattr(sets_module, "_MOST_THREADS", 4)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    prior = CountPrior.uniform(4)
    found = decode_sets(Slower(), clients=8, prior=prior, best=1)
    assert len(asked) > 8
    chance = {
        one: np.exp(3.0 * (0 in one) - 2.0 * (5 in one) + 0.1 * size) * prior.weights[size] / comb(8, size)
        for size in range(5)
        for one in combinations(range(8), size)
    }
    assert sum(asked) == found.sets == len(chance)
    total = sum(chance.values())
    for j in range(8):
        within = sum(value for one, value in chance.items() if j in one)
        assert 1 / (1 + np.exp(found.log_odds[j])) == pytest.approx(within / total)


def test_an_error_while_sets_are_scored_is_not_lost_in_a_thread() -> None:
    class Failing:
        def log_likelihood(self, sets: np.ndarray) -> np.ndarray:
            if sets.sum() > 10:
                raise ArithmeticError("no score")
            return np.zeros(len(sets))

    with pytest.raises(ArithmeticError, match="no score"):
        decode_sets(Failing(), clients=6, prior=sparse_prior(6, 5))


class _Nothing:
    def log_likelihood(self, sets: np.ndarray) -> np.ndarray:
        return np.zeros(len(sets))


@pytest.mark.parametrize("strength", [*slow(0.0, 0.7), 2.0])
@pytest.mark.parametrize("kind", ["line", "likelihood"])
def test_looking_closely_at_the_nearest_of_many_sets_only_changes_no_posterior_noticeably(
    kind: str, strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    malicious = (1, 4, 6, 11, 17)
    rng = np.random.default_rng(6)
    parts = contrasts((rng.random((9, 20)) < 0.4) + np.eye(9, 20), np.full(20, 100.0))
    moved = strength * parts.shifts[:, malicious].sum(axis=1)[:, None] * rng.normal(size=200) + rng.normal(
        size=(parts.size, 200)
    )
    few = FewFeatures(effective=200.0, power=0.7, signals=10.0 ** np.arange(0.0, 5.1, 0.5))
    gram = moved @ moved.T
    line = shift_evidence(gram, parts.shifts, features=200) if kind == "line" else few.line(gram, parts.shifts)
    assert line is not None
    sets = next(chunk for size, chunk in all_sets(20, 6) if size == 6)
    assert len(sets) > shift._ALL_CLOSELY  # so that there is something to leave out
    assert (line.explained(sets) != np.concatenate([line.explained(part) for part in np.array_split(sets, 9)])).any()
    quick = decode_sets(line, clients=20, prior=sparse_prior(20, 6))
    monkeypatch.setattr(shift, "_ALL_CLOSELY", len(sets))
    exact = decode_sets(line, clients=20, prior=sparse_prior(20, 6))
    posterior = [1 / (1 + np.exp(one.log_odds)) for one in (quick, exact)]
    np.testing.assert_allclose(posterior[0], posterior[1], atol=3e-3)
    assert (exact.best[0].clients == malicious) == (strength == 2.0)


@pytest.mark.parametrize(("clients", "largest"), [(1, 1), (5, 0), (6, 6), (12, 4), (20, 3)])
def test_all_sets_are_those_of_itertools_in_the_same_order(clients: int, largest: int) -> None:
    found = [tuple(np.flatnonzero(row).tolist()) for _, chunk in all_sets(clients, largest) for row in chunk]
    assert found == [one for size in range(largest + 1) for one in combinations(range(clients), size)]
