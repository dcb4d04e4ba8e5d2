"""Several test rounds in which outputs were compared, as one."""

import sys

import numpy as np
import numpy.typing as npt
import pytest

from fedgt.design import named_design
from fedgt.evidence import GradedEvidence, decode_graded, graded_screen, together
from fedgt.evidence.decide import SOMEBODY
from fedgt.evidence.line import STRENGTH_SPREADS
from fedgt.evidence.several_tests import COMES_AGAIN, TOGETHER
from fedgt.types import FloatArray, SetEvidence
from slow_cases import slow

ROWS = named_design("graded-15x10-b").matrix.astype(np.float64)
FEATURES = 20
MALICIOUS = (2, 7, 11)


def round_of(
    seed: int,
    *,
    malicious: tuple[int, ...] = MALICIOUS,
    push: npt.ArrayLike = 0.0,
    honest: float = 0.0,
    rows: npt.NDArray[np.float64] = ROWS,
    shape: tuple[int, ...] = (FEATURES,),
    classes: int = 4,
    samples: npt.ArrayLike = 100.0,
) -> GradedEvidence:
    """One test: everybody has noise, `honest` more of it in a direction of the round's own, the malicious a push."""
    rng = np.random.default_rng(seed)
    clients = rng.normal(size=(15, FEATURES)) + honest * np.outer(rng.normal(size=15), rng.normal(size=FEATURES))
    clients[list(malicious)] += np.asarray(push, dtype=np.float64)
    shares = rows / rows.sum(axis=1, keepdims=True)
    harm = shares[:, list(malicious)].sum(axis=1)[:, None] * np.eye(classes)[0] * float(np.linalg.norm(push))
    losses = 0.5 + 0.1 * harm + 0.02 * rng.normal(size=(len(rows), classes))
    found = graded_screen(
        (shares @ clients).reshape(len(rows), *shape),
        losses,
        weights=rows,
        samples=np.broadcast_to(samples, 15),
        erased=np.zeros(len(rows), dtype=np.bool_),
    ).evidence
    assert isinstance(found, GradedEvidence)
    return found


def compared_in(one: GradedEvidence) -> FloatArray:
    assert one.compared is not None
    return one.compared


def named(tests: list[SetEvidence]) -> tuple[list[int], bool]:
    """Who is accused, and whether anybody is undecided."""
    found = decode_graded(tests, clients=15, largest=7)
    return np.flatnonzero(found.flagged).tolist(), bool(found.undecided.any())


def same_push(size: float) -> npt.NDArray[np.float64]:
    direction = np.random.default_rng(5).normal(size=FEATURES)
    return size * direction / np.linalg.norm(direction)


@pytest.mark.parametrize("seed", [0, *slow(3, 6, 9)])
def test_a_push_in_the_same_direction_is_found_by_three_tests_where_one_is_not_enough(seed: int) -> None:
    tests: list[SetEvidence] = [round_of(seed + k, push=same_push(10.5)) for k in range(3)]
    assert not all(named([one]) == (list(MALICIOUS), False) for one in tests)
    assert len(together(tests)) == 1
    assert named(together(tests)) == (list(MALICIOUS), False)


@pytest.mark.slow
def test_lines_of_honest_clients_in_another_direction_in_each_round_are_no_attack() -> None:
    for seed in range(0, 30, 3):
        tests: list[SetEvidence] = [round_of(seed + k, malicious=(), honest=1.5) for k in range(3)]
        assert named(together(tests))[0] == []


@pytest.mark.parametrize("rounds", [1, 2])
def test_the_evidence_for_a_set_is_the_textbook_likelihood_ratio_of_all_contrasts(rounds: int) -> None:
    """Matrix normal with D independent columns; the scale, and how much of the noise comes again, integrated out."""
    tests = [round_of(seed, push=same_push(3.0)) for seed in range(rounds)]
    (joined,) = together(list(tests))
    assert isinstance(joined, GradedEvidence)
    observed, shifts = (
        np.concatenate(parts) for parts in ([compared_in(one) for one in tests], [one.damage.shifts for one in tests])
    )
    k = len(observed)
    degrees = np.exp(np.mean([np.log(one.strongest.shift.effective_features) for one in tests]))
    assert joined.strongest.shift.effective_features == pytest.approx(degrees)
    parts_again = COMES_AGAIN if rounds > 1 else (0.0,)

    def log_density(covariance: npt.NDArray[np.float64]) -> float:
        energy = np.trace(np.linalg.solve(covariance, observed @ observed.T))
        return float(-degrees / 2 * np.linalg.slogdet(covariance)[1] - degrees * k / 2 * np.log(energy))

    def noise_of(again: float) -> npt.NDArray[np.float64]:
        between = again + (1 - again) * np.eye(rounds)
        return np.kron(between, np.eye(k // rounds)).astype(np.float64)

    def log_evidence(columns: npt.NDArray[np.float64], again: float) -> float:
        noise, towards = noise_of(again), columns.sum(axis=1)
        size = float(towards @ np.linalg.solve(noise, towards))
        signals = 10.0 ** np.arange(0.5, 5.01, 0.5) * rounds / (1 + (rounds - 1) * again)
        terms = []
        for spread, probability in STRENGTH_SPREADS:
            # The smallest spread of strengths counts as none.
            strengths = np.ones((columns.shape[1],) * 2) + (spread > 0.1) * spread**2 * np.eye(columns.shape[1])
            attack = columns @ strengths @ columns.T / size
            logs = np.array([log_density(noise + one * attack) for one in signals])
            terms.append(TOGETHER * (np.logaddexp.reduce(logs) - np.log(len(logs))) + np.log(probability))
        return float(np.logaddexp.reduce(terms))

    sets = np.random.default_rng(2).random((6, 15)) < 0.3
    sets[0] = np.isin(np.arange(15), MALICIOUS)
    nobody = np.logaddexp.reduce([TOGETHER * log_density(noise_of(again)) for again in parts_again])
    for members, log_ratio in zip(sets, joined.mixture.log_likelihood(sets), strict=True):
        expected = np.logaddexp.reduce([log_evidence(shifts[:, members], again) for again in parts_again]) - nobody
        assert log_ratio == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.slow
def test_what_honest_clients_differ_by_in_every_round_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where they differ by nature: that it comes again is learnt. Taken as drawn anew it looks like an attack."""
    learnt, assumed = [], []
    for seed in range(6):
        clients = np.random.default_rng(seed).normal(size=(15, FEATURES)) * np.geomspace(3, 0.3, FEATURES)
        tests: list[SetEvidence] = [
            round_of(100 * seed + k, malicious=tuple(range(15)), push=clients) for k in range(4)
        ]
        learnt.append(decode_graded(together(tests), clients=15, largest=7).against_nobody)
        with monkeypatch.context() as fixed:
            fixed.setattr(sys.modules["fedgt.evidence.several_tests"], "COMES_AGAIN", COMES_AGAIN[:1])
            assumed.append(decode_graded(together(tests), clients=15, largest=7).against_nobody)
    assert max(learnt) < SOMEBODY < min(assumed)


def test_contrasts_are_independent_whatever_the_groups_and_sample_counts() -> None:
    samples = np.geomspace(30.0, 600.0, 15)
    other = named_design("graded-15x8-b").matrix.astype(np.float64)
    tests = [round_of(seed, push=same_push(3.0), samples=samples, rows=one) for seed, one in enumerate((ROWS, other))]
    (joined,) = together(list(tests))
    assert isinstance(joined, GradedEvidence)
    first, second = tests
    observed = np.concatenate([compared_in(one) for one in tests])
    energies = []
    for again in COMES_AGAIN:
        across = again * first.noise @ second.noise.T
        covariance = np.block([[np.eye(len(first.noise)), across], [across.T, np.eye(len(second.noise))]])
        energies.append(float(np.trace(np.linalg.solve(covariance, observed @ observed.T))))
    assert sorted(float(np.trace(one.gram)) for one in joined.hypotheses) == pytest.approx(sorted(energies))


def test_two_attacks_are_found_in_outputs_put_together() -> None:
    """Clients 1 and 4 push one way, 8, 9 and 13 another."""
    directions = np.linalg.qr(np.random.default_rng(7).normal(size=(FEATURES, 2)))[0].T
    push = np.zeros((5, FEATURES))
    push[:2], push[2:] = 30 * directions[0], 30 * directions[1]
    tests: list[SetEvidence] = [round_of(seed, malicious=(1, 4, 8, 9, 13), push=push) for seed in range(3)]
    found = decode_graded(together(tests), clients=15, largest=7)
    assert np.flatnonzero(found.flagged).tolist() == [1, 4, 8, 9, 13]


def test_the_order_of_the_tests_and_other_groups_in_one_of_them_do_not_matter() -> None:
    other = named_design("graded-15x8-b").matrix.astype(np.float64)
    tests = [round_of(0, push=same_push(4.5)), round_of(1, push=same_push(4.5), rows=other)]
    sets = np.random.default_rng(1).random((200, 15)) < 0.3
    (forth,), (back,) = together(list(tests)), together(tests[::-1])
    np.testing.assert_allclose(forth.log_likelihood(sets), back.log_likelihood(sets), rtol=1e-8)


def test_what_cannot_be_put_together_stays_as_it_is() -> None:
    alone, layer = round_of(0), round_of(1, shape=(2, FEATURES // 2))
    assert layer.compared is None
    assert together([alone]) == [alone]
    raised = [one for one in together([layer, layer]) if isinstance(one, GradedEvidence)]
    assert [one.tests for one in raised] == [1, 1]
    assert all(0.5 < one.power < 0.6 for one in raised)
    fewer = round_of(2, classes=3)
    assert set(map(id, together([alone, fewer, layer]))) == {id(alone), id(fewer), id(layer)}
