"""Graded evidence against slow textbook forms."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import multivariate_normal, wishart

from fedgt.decode.sets import all_sets
from fedgt.screen import class_losses, contrasts, damage, label_under_attack, margins
from fedgt.screen.shift_evidence import STRENGTH_SPREADS, ShiftEvidence
from fedgt.screen.sphericity import sphericity, statistic


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


@pytest.mark.parametrize(("clients", "largest"), [(1, 1), (5, 0), (6, 6), (12, 4), (20, 3)])
def test_all_sets_are_those_of_itertools_in_the_same_order(clients: int, largest: int) -> None:
    found = [tuple(np.flatnonzero(row).tolist()) for _, chunk in all_sets(clients, largest) for row in chunk]
    assert found == [one for size in range(largest + 1) for one in combinations(range(clients), size)]
