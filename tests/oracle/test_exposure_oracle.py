"""Who is exposed, and what colluders add, against listing all sets of clients."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.design import named_design
from fedgt.errors import ShapeError
from fedgt.privacy import exposure

rows_strategy = st.integers(1, 7).flatmap(
    lambda n: st.lists(
        st.lists(st.sampled_from([0, 1, 1, 2, 0.5]), min_size=n, max_size=n), min_size=1, max_size=5
    ).filter(lambda rows: any(any(row) for row in rows))
)


def supports(rows: list[list[float]]) -> list[set[int]]:
    """Every set of clients that carries a combination and contains no smaller such set: by ranks (small exact values)."""
    matrix, n = np.array(rows, dtype=float), len(rows[0])
    rank = np.linalg.matrix_rank(matrix)
    found: list[set[int]] = []
    for size in range(1, n + 1):
        for chosen in combinations(range(n), size):
            rest = [j for j in range(n) if j not in chosen]
            lower = np.linalg.matrix_rank(matrix[:, rest]) if rest else 0
            if lower < rank and not any(smaller <= set(chosen) for smaller in found):
                found.append(set(chosen))
    return found


@settings(max_examples=120)
@given(rows_strategy)
def test_exposed_clients_are_those_of_all_least_combinations(rows: list[list[float]]) -> None:
    found = exposure(rows)
    every = supports(rows)
    least = min(len(one) for one in every)
    assert found is not None
    assert found.complete
    assert found.r == least
    assert set(found.clients) == set().union(*(one for one in every if len(one) == least))


@settings(max_examples=80)
@given(rows_strategy)
def test_each_client_is_told_the_smallest_combination_that_contains_it(rows: list[list[float]]) -> None:
    found = exposure(rows)
    every = supports(rows)
    assert found is not None
    for j, one in enumerate(found.personal):
        holding = [len(each) for each in every if j in each]
        assert (None if one is None else (one.lower, one.upper)) == ((min(holding),) * 2 if holding else None)
        if one is not None:
            mixed = [
                sum(b * Fraction(row[i]) for b, row in zip(one.combination, rows, strict=True))
                for i in range(len(rows[0]))
            ]
            assert tuple(i for i, v in enumerate(mixed) if v) == one.clients
            assert j in one.clients


@settings(max_examples=80)
@given(rows_strategy, st.integers(0, 6))
def test_colluders_leave_what_the_worst_of_them_leave(rows: list[list[float]], colluding: int) -> None:
    n = len(rows[0])
    if colluding >= n:
        with pytest.raises(ShapeError, match="colluding clients"):
            exposure(rows, colluding=colluding)
        return
    worst = (
        min(
            len(one - set(helpers))
            for helpers in combinations(range(n), colluding)
            for one in supports(rows)
            if one - set(helpers)
        )
        if any(len(one) > 0 for one in supports(rows))
        else None
    )
    found = exposure(rows, colluding=colluding)
    assert found is not None
    assert found.r == worst


def test_every_client_of_15x8_is_in_some_least_combination() -> None:
    found = exposure(named_design("bch-15x8").matrix)
    assert found is not None
    assert found.r == 4
    assert found.clients == tuple(range(15))


def test_the_final_sum_without_2_and_12_exposes_client_7_alone() -> None:
    final = np.ones(15)
    final[[2, 12]] = 0
    found = exposure(np.vstack([named_design("bch-15x8").matrix, final]))
    assert found is not None
    assert (found.r, found.clients) == (1, (7,))
    least = [one.upper for one in found.personal if one is not None]
    assert least == [3, 3, 4, 3, 3, 3, 3, 1, 3, 3, 3, 3, 4, 3, 3]


def test_a_search_that_would_take_too_long_lists_the_certificate_only() -> None:
    rows = np.random.default_rng(0).integers(1, 1000, size=(10, 20))
    found = exposure(rows, max_states=500)
    assert found is not None
    assert not found.complete
    assert found.clients == found.support.clients
    assert all(one is not None and one.lower <= 11 <= one.upper for one in found.personal)


def test_nothing_revealed_exposes_nobody() -> None:
    assert exposure(np.zeros((2, 3))) is None


def test_weights_that_are_multiples_of_the_prime_of_the_search_end_and_stay_certified() -> None:
    prime = 2**31 - 1
    rows = [[0, 0, 0, prime, 0], [0, 1, 1, prime, 0], [0, 0, prime, 0, prime + 1]]
    found = exposure(np.array(rows, dtype=float))
    assert found is not None
    assert (found.support.lower, found.support.upper) == (1, 1)
    true = {1: 2, 2: 2, 3: 1, 4: 2}
    for client, size in true.items():
        one = found.personal[client]
        assert one is not None
        assert one.lower <= size <= one.upper


def test_client_weights_that_are_multiples_of_the_prime_change_nothing() -> None:
    plain = np.array([[1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 1]], dtype=float)
    weighted = plain * [2**31 - 1, 7, 2 * (2**31 - 1), 1]
    found, heavy = exposure(plain), exposure(weighted)
    assert found is not None
    assert heavy is not None
    assert heavy.support.exact
    assert (heavy.r, heavy.clients) == (found.r, found.clients)
