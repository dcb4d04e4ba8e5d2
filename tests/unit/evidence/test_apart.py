"""Clients that push each for itself: the likelihood of every set, and who is named by it."""

from dataclasses import replace

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.evidence import ApartEvidence, GradedDecoding, GradedEvidence, contrasts, decode_graded, graded_screen
from fedgt.evidence.apart import RATIOS
from fedgt.evidence.attacks import each_for_itself
from fedgt.evidence.line import TEMPER
from fedgt.evidence.sphericity import sphericity
from fedgt.planning.default import default_design
from fedgt.types import BoolArray, FloatArray

DESIGN = named_design("graded-15x10-b").matrix.astype(np.float64)
TWELVE = np.asarray(default_design(15, graded=True, privacy=4).matrix).astype(np.float64)
CLASSES, INPUTS = 4, 60


def observed(clients: FloatArray, rows: FloatArray = DESIGN) -> ApartEvidence:
    """What float64[clients, features] show."""
    parts = contrasts(rows, np.full(rows.shape[1], 100.0))
    moved = parts.transform @ (rows @ clients / rows.sum(axis=1, keepdims=True))
    return ApartEvidence(gram=moved @ moved.T, shifts=parts.shifts, features=clients.shape[1])


def as_defined(evidence: ApartEvidence, members: BoolArray) -> float:
    """The slow oracle: V written down, inverted, and its determinant taken, for one set and each ratio."""
    k = len(evidence.gram)
    table = sphericity(k, evidence.features)

    def log_p(v: FloatArray) -> float:
        left = np.linalg.solve(v, evidence.gram)
        statistic = np.linalg.slogdet(left)[1] - k * np.log(np.trace(left) / k)
        return float(table.log_evidence(np.array([statistic]))[0])

    terms = []
    for ratio in RATIOS:
        v = np.eye(k)
        for j in np.flatnonzero(members):
            v = v + ratio * np.outer(evidence.shifts[:, j], evidence.shifts[:, j])
        terms.append(log_p(v))
    return float(TEMPER * (np.logaddexp.reduce(terms) - np.log(len(RATIOS)) - log_p(np.eye(k))))


@pytest.mark.parametrize("seed", range(3))
def test_the_likelihood_is_that_of_the_covariance_written_down(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clients = rng.normal(size=(15, 90)) * np.where(np.arange(15) % 5 == seed, 4.0, 1.0)[:, None]
    evidence = observed(clients)
    sets = rng.random((40, 15)) < rng.choice([0.1, 0.3, 0.5], size=(40, 1))
    sets[0] = False
    wanted = [as_defined(evidence, one) if one.any() else 0.0 for one in sets]
    np.testing.assert_allclose(evidence.log_likelihood(sets), wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        replace(evidence, power=0.5).log_likelihood(sets), np.array(wanted) / 2, rtol=1e-6, atol=1e-6
    )


def test_energies_come_back_exactly_where_pushes_do_not_overlap() -> None:
    parts = contrasts(DESIGN, np.full(15, 100.0))
    energies = np.where(np.arange(15) % 6 == 2, 9.0, 1.0)
    gram = (parts.shifts * energies) @ parts.shifts.T
    found = ApartEvidence(gram=gram, shifts=parts.shifts, features=100).energies()
    np.testing.assert_allclose(found * np.trace(gram), energies, rtol=1e-6)


def test_nobody_stands_out_among_honest_clients() -> None:
    for seed in range(20):
        assert not observed(np.random.default_rng([1, seed]).normal(size=(15, 400))).stands_out()
    clients = np.random.default_rng(2).normal(size=(15, 400))
    clients[4] *= 3.0  # nine times the energy
    assert observed(clients).stands_out()


def screened(clients: FloatArray, *, rows: FloatArray = DESIGN, even: bool = True) -> GradedEvidence:
    """The evidence about float64[clients, classes, inputs]; all losses rise with whoever has much energy."""
    shares = rows / rows.sum(axis=1, keepdims=True)
    size = np.linalg.norm(clients.reshape(len(clients), -1), axis=1)
    loud = size > 1.5 * np.median(size)
    rng = np.random.default_rng(3)
    losses = 0.5 + 0.01 * rng.normal(size=(len(rows), clients.shape[1])) + (shares @ loud)[:, None]
    found = graded_screen(
        np.tensordot(shares, clients, axes=1),
        losses,
        weights=rows,
        samples=np.full(rows.shape[1], 100.0),
        erased=np.zeros(len(rows), dtype=np.bool_),
    )
    assert isinstance(found.evidence, GradedEvidence)
    return replace(found.evidence, evenly_owned=even)


def named(evidence: GradedEvidence, largest: int = 7) -> GradedDecoding:
    return decode_graded([evidence], clients=evidence.noise.shape[1], largest=largest)


def noisy(malicious: list[int], *, seed: int, clients: int = 15, times: float = 6.0) -> FloatArray:
    made = np.random.default_rng([4, seed]).normal(size=(clients, CLASSES, INPUTS))
    made[malicious] *= times
    return made


@pytest.mark.parametrize("malicious", [[3], [1, 12], [0, 5, 9], [2, 3, 8, 10, 13]])
def test_all_who_send_independent_noise_are_named_and_nobody_else(malicious: list[int]) -> None:
    found = named(screened(noisy(malicious, seed=len(malicious))))
    assert np.flatnonzero(found.flagged).tolist() == malicious
    assert found.attacks == len(malicious)
    assert (found.status, found.more) == ("decided", False)


def test_noise_is_not_named_where_clients_may_differ_by_nature() -> None:
    """Honest clients of other classes have other energies, too."""
    evidence = screened(noisy([2, 3, 8, 10, 13], seed=5), even=False)
    assert each_for_itself([evidence], 15, 7, nobody=0.5) is None
    assert each_for_itself([replace(evidence, evenly_owned=True)], 15, 7, nobody=0.5) is not None


def test_a_common_line_stays_one_attack() -> None:
    clients = noisy([], seed=6)
    clients[[2, 6, 9]] += 3.0 * np.random.default_rng(7).normal(size=(CLASSES, INPUTS))
    found = named(screened(clients))
    assert np.flatnonzero(found.flagged).tolist() == [2, 6, 9]
    assert found.attacks == 1


@pytest.mark.parametrize("seed", range(3))
def test_noise_and_a_common_line_at_once_are_both_found(seed: int) -> None:
    clients = noisy([4, 11], seed=8 + seed, times=8.0)
    clients[[0, 6, 9]] += 3.0 * np.random.default_rng(9).normal(size=(CLASSES, INPUTS))
    found = named(screened(clients, rows=TWELVE))
    assert np.flatnonzero(found.flagged).tolist() == [0, 4, 6, 9, 11]


def test_nobody_is_named_where_honest_clients_only_vary_a_little() -> None:
    for seed in range(5):
        rng = np.random.default_rng([10, seed])
        clients = rng.normal(size=(15, CLASSES, INPUTS)) * rng.uniform(0.8, 1.25, size=(15, 1, 1))
        assert named(screened(clients)).status == "nobody"


def test_of_many_clients_the_loudest_are_asked() -> None:
    rows = named_design("cyclic-30x12").matrix.astype(np.float64)
    evidence = screened(noisy([3, 17], seed=11, clients=30), rows=rows)
    said = each_for_itself([evidence], 30, 4, nobody=0.5)
    assert said is not None
    found, alone = said
    assert found.best[0].clients == (3, 17)
    assert [np.flatnonzero(one.members).tolist() for one in alone] == [[3], [17]]
    assert len(found.count) == 5
    assert found.log_odds.shape == (30,)
