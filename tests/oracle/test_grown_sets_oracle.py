"""The search among more sets than can be scored, against scoring all of them."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

import fedgt.evidence.sets as sets_module
from fedgt.decode import IndependentPrior
from fedgt.decode.priors import Prior
from fedgt.evidence import SetPosterior, contrasts, decode_sets, sparse_prior
from fedgt.evidence.grown_sets import Among, codes
from fedgt.evidence.line import ShiftEvidence, shift_evidence
from fedgt.types import BoolArray, FloatArray
from slow_cases import slow


def line_of(malicious: tuple[int, ...], strength: float, *, clients: int = 18, seed: int = 6) -> ShiftEvidence:
    """A line through ten group means that these clients make."""
    rng = np.random.default_rng(seed)
    parts = contrasts((rng.random((10, clients)) < 0.4) + np.eye(10, clients), np.full(clients, 100.0))
    moved = strength * parts.shifts[:, list(malicious)].sum(axis=1)[:, None] * rng.normal(size=200)
    moved = moved + rng.normal(size=(parts.size, 200))
    line = shift_evidence(moved @ moved.T, parts.shifts, features=200)
    assert line is not None
    return line


def both(
    line: ShiftEvidence, monkeypatch: pytest.MonkeyPatch, *, clients: int, prior: Prior, beside: tuple[int, ...] = ()
) -> tuple[SetPosterior, SetPosterior]:
    """All sets scored, and the same with a search after those of a few clients."""
    every = decode_sets(line, clients=clients, prior=prior, beside=beside)
    monkeypatch.setattr(sets_module, "MAX_SETS", 2000)
    monkeypatch.setattr(sets_module, "_SMALL_SETS", 1000)
    return every, decode_sets(line, clients=clients, prior=prior, beside=beside)


@pytest.mark.parametrize(
    ("malicious", "strength"),
    [((1, 4, 6, 11, 17), 2.0), ((0, 2, 3, 8, 9, 12, 15), 2.0), *slow(((1, 4, 6, 11, 17), 0.7), ((), 0.0))],
)
def test_a_search_comes_to_the_posterior_of_all_sets(
    malicious: tuple[int, ...], strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = line_of(malicious or (0,), strength)
    every, found = both(line, monkeypatch, clients=18, prior=sparse_prior(18, 8))
    assert every.all_scored
    assert not found.all_scored
    assert found.sets < every.sets == sum(comb(18, q) for q in range(9))
    chances = [1 / (1 + np.exp(one.log_odds)) for one in (every, found)]
    np.testing.assert_allclose(chances[1], chances[0], atol=0.01)
    np.testing.assert_allclose(found.count, every.count, atol=0.01)
    assert found.log_evidence == pytest.approx(every.log_evidence, abs=0.02)
    assert [one.clients for one in found.best] == [one.clients for one in every.best]
    assert found.tied == every.tied


def test_a_search_beside_known_clients_comes_to_the_posterior_of_all_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    line = line_of((1, 4, 6, 11, 17), 1.0)
    every, found = both(line, monkeypatch, clients=18, prior=sparse_prior(18, 8), beside=(4, 9))
    assert not found.all_scored
    chances = [1 / (1 + np.exp(one.log_odds)) for one in (every, found)]
    np.testing.assert_allclose(chances[1], chances[0], atol=0.01)
    assert [one.clients for one in found.best[:5]] == [one.clients for one in every.best[:5]]


def test_where_nothing_is_known_the_prior_comes_back_although_few_sets_were_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each size has its due: the sets that were not found count by those that stand for them."""
    monkeypatch.setattr(sets_module, "_SMALL_SETS", 1000)

    class Nothing:
        def log_likelihood(self, sets: BoolArray) -> FloatArray:
            return np.zeros(len(sets))

    prior = sparse_prior(50, 24)
    found = decode_sets(Nothing(), clients=50, prior=prior)
    np.testing.assert_allclose(found.count, prior.weights, rtol=1e-9)
    expected = float(prior.weights @ np.arange(25)) / 50
    np.testing.assert_allclose(1 / (1 + np.exp(found.log_odds)), expected, atol=0.01)
    assert found.sets < 500_000


def test_equal_seeds_give_equal_posteriors_and_others_hardly_different_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets_module, "MAX_SETS", 2000)
    monkeypatch.setattr(sets_module, "_SMALL_SETS", 1000)
    line = line_of((1, 4, 6, 11, 17), 0.5)
    one, same, other = (decode_sets(line, clients=18, prior=sparse_prior(18, 8), seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.log_odds, same.log_odds)
    assert (one.log_odds != other.log_odds).any()
    np.testing.assert_allclose(one.count, other.count, atol=0.02)


def test_a_client_with_a_prior_of_its_own_is_searched_for_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    prior = IndependentPrior(prevalence=np.linspace(0.05, 0.6, 14))
    every, found = both(line_of((1, 4, 6), 1.5, clients=14), monkeypatch, clients=14, prior=prior)
    assert not found.all_scored
    np.testing.assert_allclose(found.log_odds, every.log_odds, atol=0.05)


@pytest.mark.parametrize("beside", [(), (1, 5), (0, 1, 2)])
def test_sets_that_stand_for_others_are_drawn_uniformly_among_those_there_are(beside: tuple[int, ...]) -> None:
    among = Among(clients=8, largest=4, beside=np.array(beside, dtype=np.int64))
    for size in range(5):
        there = [one for one in combinations(range(8), size) if len({*one, *beside}) <= 4]
        assert sum(among.ways(size)) == len(there)
        if not there:
            continue
        drawn = among.drawn(size, 200 * len(there), np.random.default_rng(1))
        assert among.holds(drawn).all()
        seen = dict.fromkeys(there, 0)
        for row in drawn:
            seen[tuple(np.flatnonzero(row).tolist())] += 1
        assert min(seen.values()) > 140  # of 200, four standard deviations
        assert max(seen.values()) < 260


@pytest.mark.parametrize("clients", [5, 64, 65, 130])
def test_two_sets_have_the_same_code_only_if_they_are_the_same(clients: int) -> None:
    pairs = np.zeros((comb(clients, 2), clients), dtype=np.bool_)
    for row, pair in zip(pairs, combinations(range(clients), 2), strict=True):
        row[list(pair)] = True
    assert len(np.unique(codes(pairs))) == len(pairs)
    assert (codes(pairs) == codes(pairs.copy())).all()
