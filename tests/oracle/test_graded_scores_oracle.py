"""The likelihoods of graded evidence against dense textbook forms."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm, wishart
from scipy.stats import t as student

from fedgt.design import named_design
from fedgt.evidence import contrasts, damage
from fedgt.evidence.harm import _RISES, _SHARE, _rise_of
from fedgt.evidence.line import ShiftEvidence, _left_beside, log_sum
from fedgt.evidence.sets import all_sets
from fedgt.evidence.sphericity import sphericity, statistic
from fedgt.evidence.weights import MixedEvidence, Rows
from fedgt.federation.next_rows import _Sieve, confusion
from fedgt.privacy import minimum_support
from harm_parts import log_harmful, log_risen

SETS = np.concatenate([chunk for _, chunk in all_sets(7, 3)])


@pytest.mark.parametrize("k", [2, 3])
def test_the_evidence_is_the_wishart_density_averaged_over_degrees_and_integrated_over_the_scale(k: int) -> None:
    """Whole values, not only differences between covariances: what depends on the Gram matrix alone is put back."""
    rng = np.random.default_rng(k)
    table = sphericity(k, 60)
    steps = np.linspace(-6, 14, 60)
    offsets = []
    for first, divided in ((1.0, 1.0), (6.0, 1.0), (6.0, 3.0)):
        noise = rng.normal(size=(k, 25)) * np.sqrt([first, *[1.0] * (k - 1)])[:, None]
        values = np.linalg.eigvalsh(noise @ noise.T)[::-1].astype(np.float64)
        covariance = np.diag([divided, *[1.0] * (k - 1)])
        densities = []
        for degrees in table.degrees:
            # Over the logarithm of the scale the density is a bell around trace / (D k), of width (D k / 2)^-1/2.
            about = np.trace(np.linalg.solve(covariance, np.diag(values))) / (degrees * k)
            scales = about * np.exp(steps * (degrees * k / 2) ** -0.5)
            logs = wishart.logpdf(np.diag(values)[:, :, None] / scales, degrees, covariance)
            logs = logs - k * (k + 1) / 2 * np.log(scales)
            peak = logs.max()
            densities.append(peak + np.log(np.trapezoid(np.exp(logs - peak), np.log(scales))))
        average = np.logaddexp.reduce(densities) - np.log(len(densities))
        found = float(table.log_evidence(statistic(values, np.array([divided])))[0])
        offsets.append(average + (k + 1) / 2 * np.log(values).sum() - found)
    np.testing.assert_allclose(offsets, offsets[0], atol=1e-4)


def test_sums_of_exponentials_and_what_is_left_beside_other_columns_are_those_of_numpy() -> None:
    rng = np.random.default_rng(8)
    logs = rng.normal(size=(4, 300)) * 10.0 ** rng.uniform(-1, 2.8, 300)
    logs[rng.random(logs.shape) < 0.3] = -np.inf
    assert np.isneginf(logs).all(axis=0).any()
    assert not np.isneginf(logs).all(axis=0).all()
    with np.errstate(invalid="ignore"):
        textbook = np.logaddexp.reduce(logs, axis=0)
    np.testing.assert_allclose(log_sum(logs.copy()), textbook, rtol=1e-12)
    columns = rng.normal(size=(50, 8, 6))
    columns[:, 5:] = np.triu(columns[:, 5:])
    diagonals = np.diagonal(np.linalg.qr(columns)[1], axis1=1, axis2=2)
    found = _left_beside(np.ascontiguousarray(columns.transpose(1, 2, 0)), 5)
    np.testing.assert_allclose(found.T, diagonals**2, rtol=1e-10)


@pytest.mark.parametrize("contrasts", [2, 9, 30])
def test_how_the_loss_follows_a_set_is_interpolated_closely(contrasts: int) -> None:
    explained = np.concatenate([np.linspace(0, 1, 5001), 1 - 10.0 ** -np.arange(1, 12)])
    ratios = _RISES[:, None] / (1 + _RISES[:, None])
    exact = -contrasts / 2 * np.log1p(-explained * ratios) - np.log1p(_RISES[:, None]) / 2
    exact = _SHARE * (np.logaddexp.reduce(exact, axis=0) - np.log(len(_RISES)))
    np.testing.assert_allclose(_rise_of(explained, contrasts), exact, atol=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_how_the_loss_follows_a_set_is_a_normal_likelihood_ratio_with_the_noise_integrated_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = contrasts((rng.random((6, 7)) < 0.5) + np.eye(6, 7), rng.uniform(50, 200, 7))
    losses = rng.uniform(0, 2, (6, 4))
    found = damage(parts, losses)
    loss = (parts.transform @ losses).mean(axis=1)
    k = len(loss)
    for chosen, value in zip(SETS[1:], log_risen(found, SETS[1:]), strict=True):
        towards = parts.shifts[:, chosen].sum(axis=1)
        towards = towards / np.linalg.norm(towards)
        ratios = []
        for rise in _RISES:
            covariance = np.eye(k) + rise * np.outer(towards, towards)
            # p(loss | covariance) with the scale integrated out under d(s^2) / s^2.
            log_ratio = -0.5 * np.linalg.slogdet(covariance)[1] - k / 2 * np.log(
                loss @ np.linalg.solve(covariance, loss) / (loss @ loss)
            )
            ratios.append(log_ratio)
        assert value == pytest.approx(_SHARE * (np.logaddexp.reduce(ratios) - np.log(len(ratios))), abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_probability_of_harm_is_that_of_the_sign_of_two_regressions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = contrasts((rng.random((6, 7)) < 0.5) + np.eye(6, 7), rng.uniform(50, 200, 7))
    found = damage(parts, rng.uniform(0, 2, (6, 4)))

    def regression(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
        slope = float(x @ y / (x @ x))
        variance = float(((y - slope * x) ** 2).sum() / (len(x) - 1) / (x @ x))
        return slope, float(student.cdf(slope / variance**0.5, len(x) - 1))

    for chosen, value in zip(SETS[1:], log_harmful(found, SETS[1:]), strict=True):
        x = parts.shifts[:, chosen].sum(axis=1)
        overall = regression(x, found.by_class.mean(axis=1))[1]
        most = max((regression(x, y) for y in found.by_class.T), key=lambda one: abs(one[0]))[1]
        assert np.exp(value) == pytest.approx((overall + most) / 2, abs=1e-8)


def test_confusion_is_the_expected_number_of_wrong_clients_over_all_pairs_of_open_sets() -> None:
    rng = np.random.default_rng(3)
    rows = rng.uniform(1, 9, (4, 7)) * (rng.random((4, 7)) < 0.6)
    sets = np.vstack([SETS[rng.choice(len(SETS), 12, replace=False)], np.ones((1, 7), dtype=np.bool_)])
    chances = rng.dirichlet(np.ones(len(sets)))
    shares = rows / rows.sum(axis=1, keepdims=True)
    total = 0.0
    for p, one in zip(chances, sets, strict=True):
        for q, other in zip(chances, sets, strict=True):
            a, b = (shares[:, chosen].sum(axis=1) for chosen in (one, other))
            a, b = a - a.mean(), b - b.mean()
            still = min(np.linalg.norm(a), np.linalg.norm(b)) < 1e-9
            cosine = 1.0 if still else float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
            total += p * q * np.exp(-(1 - cosine) / 0.1) * int((one != other).sum())
    assert confusion(rows, sets, chances) == pytest.approx(total)


@pytest.mark.parametrize("privacy", [2, 3, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_sieve_lets_through_what_the_exact_search_lets_through(privacy: int, weighted: bool) -> None:
    rng = np.random.default_rng(privacy)
    weight = rng.integers(50, 90, 15).astype(np.float64) if weighted else np.ones(15)
    held = named_design("bch-15x8").matrix * weight
    sieve = _Sieve(held / weight, privacy)
    verdicts = []
    for _ in range(60):
        row = np.zeros(15)
        row[rng.choice(15, int(rng.integers(privacy, 11)), replace=False)] = 1.0
        support = minimum_support(np.vstack([held, row * weight]), enough=privacy)
        assert support is not None
        verdicts.append(support.lower >= privacy)
        assert sieve.passes(row) == verdicts[-1]
    assert any(verdicts)
    assert sieve.passes(held[2] / weight)  # what is revealed already reveals nothing new
    if privacy > 2:
        assert not all(verdicts)


@pytest.mark.parametrize("k", [2, 3, 9])
def test_a_line_in_any_direction_has_the_density_of_the_uniform_distribution_over_half_a_sphere(k: int) -> None:
    """Half, as the sign of a line has no meaning. The area of the sphere in k dimensions is 2 pi^(k/2) / Gamma(k/2)."""
    variance = 1e-3
    line = ShiftEvidence(
        shifts=np.eye(k),
        direction=np.eye(k)[0],
        variance=variance,
        signal=10.0,
        effective_features=100.0,
        line=3.0,
        nobody=0.0,
    )
    perfect = norm(scale=variance**0.5).logpdf(0.0) * (k - 1)  # of a direction that errs in the k - 1 others
    area = {2: np.pi, 3: 2 * np.pi, 9: np.pi**4 * 32 / 105 / 2}[k]
    assert line.scattered() == pytest.approx(-np.log(area) - perfect)


def test_honest_clients_explain_a_faint_line_as_well_as_any_set_and_a_clear_one_not_at_all() -> None:
    faint, clear = (_mixture(variance) for variance in (0.05, 1e-5))
    sets = np.eye(3, dtype=np.bool_)
    nobody = np.zeros((1, 3), dtype=np.bool_)
    assert float(faint.log_likelihood(nobody)[0]) > float(faint.log_likelihood(sets).max()) - 7
    assert float(clear.log_likelihood(nobody)[0]) < float(clear.log_likelihood(sets).max()) - 15
    # Never better than the line itself, and noise alone is always possible.
    for one in (faint, clear):
        assert np.log(0.5) <= one.honest() <= one.some()


@pytest.mark.parametrize("grown", [0.0, 1.5, 40.0])
def test_a_line_of_honest_clients_is_less_likely_by_as_much_as_its_rows_have_grown(grown: float) -> None:
    """By definition: noise with probability one half, else a line in any direction, which was there in earlier rounds."""
    plain = _mixture(0.01)
    mixture = replace(plain, rows=tuple(replace(one, grown=grown) for one in plain.rows))
    (one,) = mixture.rows
    scattered = one.weight + min(one.shift.scattered(), 0.0)
    assert mixture.honest() == pytest.approx(np.log(0.5 + 0.5 * np.exp(scattered - grown)))
    sets = np.eye(3, dtype=np.bool_)
    np.testing.assert_array_equal(mixture.log_likelihood(sets), plain.log_likelihood(sets))


def test_a_set_explains_what_is_seen_if_it_explains_a_line_in_any_rows_that_are_likely() -> None:
    """By definition: the likelihood of the set over that of one that explains every line perfectly."""
    first, second = _mixture(1e-5, column=0).rows[0], replace(_mixture(1e-5, column=1).rows[0], log_prior=-2.0)
    both = MixedEvidence(rows=(first, second))
    sets = np.eye(3, dtype=np.bool_)
    found = both.explained(sets)
    of_rows = [one.weight + one.shift.explained(sets) for one in (first, second)]
    perfect = np.logaddexp(first.weight, second.weight)
    np.testing.assert_allclose(found, np.logaddexp(*of_rows) - perfect)
    np.testing.assert_allclose(both.log_likelihood(sets), np.logaddexp(*of_rows))
    # The second client explains the weaker line: only what that is less likely is missing.
    assert first.shift.explained(sets)[1] < -100
    assert -4 < found[1] < found[0]
    assert found[2] < -100, "it explains neither"
    assert np.isneginf(both.explained(np.zeros((1, 3), dtype=np.bool_)))


def _mixture(variance: float, column: int = 0) -> MixedEvidence:
    k = 6
    shifts = np.random.default_rng(1).normal(size=(k, 3))
    line = ShiftEvidence(
        shifts=shifts,
        direction=shifts[:, column] / np.linalg.norm(shifts[:, column]),
        variance=variance,
        signal=10.0,
        effective_features=20.0,
        line=20.0,
        nobody=0.0,
    )
    return MixedEvidence(rows=(Rows(labels=(), log_prior=0.0, gram=np.eye(k), features=50, shift=line),))
