"""Ties and margins against their definitions: pairs of sets in rational arithmetic, and an explicit covariance."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.design import Design, from_matrix
from fedgt.planning.margin import margin
from fedgt.planning.ties import ties
from slow_cases import slow

Move = list[Fraction]

designs = st.tuples(st.integers(1, 4), st.integers(2, 6)).flatmap(
    lambda shape: st.lists(
        st.lists(st.integers(0, 1), min_size=shape[1], max_size=shape[1]).filter(any),
        min_size=shape[0],
        max_size=shape[0],
    )
)


def explains(u: Move, move: Move) -> bool:
    """Whether u = c move + k for some c > 0 and k, by solving for c from the first two entries that differ."""
    for i, j in combinations(range(len(u)), 2):
        if move[i] != move[j]:
            c = (u[i] - u[j]) / (move[i] - move[j])
            return c > 0 and all(a - c * b == u[i] - c * move[i] for a, b in zip(u, move, strict=True))
    return len(set(u)) == 1


def brute_force(rows: list[list[int]], weights: list[int], n_max: int) -> tuple[list[float], list[int]]:
    """(expected wrong clients, tied sets) for each number of malicious clients, straight from the definition."""
    n = len(rows[0])
    chosen = [frozenset(c) for q in range(n_max + 1) for c in combinations(range(n), q)]
    share = [
        [Fraction(a * w, sum(map(int.__mul__, row, weights))) for a, w in zip(row, weights, strict=True)]
        for row in rows
    ]
    moves = {d: [sum((row[j] for j in d), Fraction(0)) for row in share] for d in chosen}
    wrong, tied = [Fraction(0)] * (n_max + 1), [0] * (n_max + 1)
    for d in chosen:
        same = [e for e in chosen if explains(moves[d], moves[e])]
        smallest = [e for e in same if len(e) == min(map(len, same))]
        wrong[len(d)] += Fraction(sum(len(d ^ e) for e in smallest), len(smallest))
        tied[len(d)] += len(same) > 1
    return [float(total / math.comb(n, q)) for q, total in enumerate(wrong)], tied


@settings(max_examples=50, deadline=None)
@given(rows=designs, data=st.data())
def test_ties_equal_the_comparison_of_all_pairs_of_sets_in_rationals(
    rows: list[list[int]], data: st.DataObject
) -> None:
    n = len(rows[0])
    n_max = data.draw(st.integers(0, min(n, 4)))
    weights = data.draw(st.lists(st.sampled_from([1, 1, 2, 3]), min_size=n, max_size=n))
    found = ties(from_matrix(rows), n_max, weights=weights)
    wrong, tied = brute_force(rows, weights, n_max)
    np.testing.assert_allclose(found.expected_wrong, wrong, atol=1e-12)
    assert found.tied.tolist() == tied


def test_weights_beyond_64_bits_give_the_same_ties_as_their_ratios() -> None:
    rng = np.random.default_rng(3)
    design = from_matrix([[1, 1, 0, 1, 0, 1, 0], [0, 1, 1, 0, 1, 1, 0], [1, 0, 1, 1, 0, 0, 1]])
    weights = rng.integers(1, 4, 7).tolist()
    small = ties(design, 3, weights=weights)
    large = ties(design, 3, weights=[w * 10**12 for w in weights])
    assert small.tied.any()
    np.testing.assert_array_equal(small.label, large.label)


def distance(inverse: np.ndarray, move: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """(the generalised least-squares distance of `move` to mu 1 + theta other with theta >= 0, the angle between them)."""
    one = np.ones(len(move))

    def product(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ inverse @ b - (a @ inverse @ one) * (b @ inverse @ one) / (one @ inverse @ one))

    theta = max(product(move, other) / product(other, other), 0.0)
    left = product(move, move) - 2 * theta * product(move, other) + theta**2 * product(other, other)
    cosine = product(move, other) / math.sqrt(product(move, move) * product(other, other))
    return math.sqrt(max(left, 0.0)), math.acos(max(min(cosine, 1.0), -1.0))


def textbook_margin(design: Design, n_max: int, weights: list[int], samples: list[int]) -> tuple[float, list[float]]:
    share = design.matrix * np.array(weights, dtype=float)
    share /= share.sum(axis=1, keepdims=True)
    inverse = np.linalg.inv(share @ np.diag(1 / np.array(samples)) @ share.T)
    chosen = [c for q in range(n_max + 1) for c in combinations(range(design.clients), q)]
    moves = [share[:, list(c)].sum(axis=1) for c in chosen]
    angle, apart = math.pi, [math.inf] * (n_max + 1)
    for c, move in zip(chosen, moves, strict=True):
        for other in moves:
            if np.ptp(move) < 1e-12 or np.ptp(other) < 1e-12:  # no direction
                continue
            away, between = distance(inverse, move, other)
            if between > 1e-6:  # tied sets have angle 0, up to rounding
                angle = min(angle, between)
                apart[len(c)] = min(apart[len(c)], away)
    return angle, apart


@pytest.mark.parametrize("seed", [0, *slow(1, 2, 3)])
def test_the_margin_equals_generalised_least_squares_with_the_explicit_covariance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    while True:
        rows = (rng.random((4, 7)) < 0.5).astype(int)
        if np.linalg.matrix_rank(rows) == 4:
            break
    weights, samples = rng.integers(1, 4, 7).tolist(), rng.integers(1, 30, 7).tolist()
    if seed < 2:  # equal weights have ties
        weights = [1] * 7
    design = from_matrix(rows)
    found = ties(design, 3, weights=weights)
    measured = margin(design, found, weights=weights, samples=samples)
    angle, apart = textbook_margin(design, 3, weights, samples)
    assert measured.angle == pytest.approx(angle, abs=2e-7)  # the arccosine of the textbook form loses half the digits
    np.testing.assert_allclose(measured.separation, apart, rtol=1e-6)
