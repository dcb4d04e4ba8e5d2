"""The search by information sets lists every vector of minimal support up to the budget."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.privacy import minimum_support
from fedgt.privacy.information_sets import light_supports, sampled_support
from fedgt.privacy.modular import PRIME, inverses, ratios, reduced_rows, residues
from fedgt.privacy.support import exact_rows, reduced_modulo
from fedgt.types import IntArray

matrices = st.integers(1, 9).flatmap(
    lambda n: st.lists(
        st.lists(st.sampled_from([0, 0, 1, 1, 2, 5]), min_size=n, max_size=n), min_size=1, max_size=6
    ).filter(lambda rows: any(any(row) for row in rows))
)


def minimal_sets(rows: list[list[int]], largest: int) -> set[tuple[int, ...]]:
    """Sets that carry a vector while no part of them does, by the ranks of what is left."""
    matrix, n = np.array(rows, dtype=float), len(rows[0])
    rank = np.linalg.matrix_rank(matrix)
    found: set[tuple[int, ...]] = set()
    for size in range(1, largest + 1):
        for chosen in combinations(range(n), size):
            rest = [j for j in range(n) if j not in chosen]
            lower = np.linalg.matrix_rank(matrix[:, rest]) if rest else 0
            if lower < rank and not any(set(smaller) <= set(chosen) for smaller in found):
                found.add(chosen)
    return found


def planted(rng: np.random.Generator, n: int, k: int, weight: int) -> tuple[IntArray, tuple[int, ...]]:
    """Rows in general position but for one light vector in their span, hidden by an invertible mixture."""
    rows = rng.integers(1, 1000, size=(k, n))
    clients = np.sort(rng.choice(n, weight, replace=False))
    rows[0] = 0
    rows[0, clients] = rng.integers(1, 1000, size=weight)
    mix = np.triu(rng.integers(1, 9, size=(k, k)))
    return (mix.T @ rows).astype(np.int64), tuple(clients.tolist())


@settings(max_examples=150)
@given(matrices, st.integers(1, 9))
def test_every_minimal_support_up_to_the_budget_is_listed(rows: list[list[int]], budget: int) -> None:
    listed = [tuple(sorted(one)) for one in light_supports(reduced_modulo(exact_rows(rows)[0]), budget)]
    minimal = minimal_sets(rows, min(budget, len(rows[0])))
    assert minimal <= set(listed)
    for one in listed:
        assert len(one) <= budget
        assert any(set(smaller) <= set(one) for smaller in minimal)


@pytest.mark.parametrize(("n", "k", "weight"), [(24, 12, 7), (30, 8, 14), (36, 20, 5), (40, 14, 9), (26, 20, 5)])
def test_a_light_vector_hidden_among_many_rows_is_the_only_one_listed(n: int, k: int, weight: int) -> None:
    rows, clients = planted(np.random.default_rng(n + k), n, k, weight)
    listed = list(light_supports(reduced_modulo(exact_rows(rows)[0]), weight))
    assert {tuple(sorted(one)) for one in listed} == {clients}


def test_a_light_vector_hidden_among_many_rows_is_certified_as_the_minimum() -> None:
    rows, clients = planted(np.random.default_rng(1), 40, 14, 8)
    support = minimum_support(rows)
    assert support is not None
    assert (support.lower, support.upper, support.clients) == (8, 8, clients)
    mixed = [sum(b * int(row[j]) for b, row in zip(support.combination, rows, strict=True)) for j in range(40)]
    assert tuple(j for j, v in enumerate(mixed) if v) == clients


def test_rows_in_general_position_attain_the_singleton_bound() -> None:
    rows = np.arange(1, 15)[None].astype(object) ** np.arange(5)[:, None]  # Vandermonde: any 5 columns are independent
    support = minimum_support(rows.astype(np.int64))
    assert support is not None
    assert (support.lower, support.upper) == (10, 10)


def test_fifty_clients_in_twenty_random_groups_are_exact_where_a_third_of_them_share_a_group() -> None:
    rows = (np.random.default_rng(0).random((20, 50)) < 0.3).astype(int)
    support = minimum_support(rows)
    assert support is not None
    assert (support.lower, support.upper) == (9, 9)


def test_a_random_search_finds_no_less_than_the_minimum_and_respects_its_budget() -> None:
    rows, clients = planted(np.random.default_rng(4), 40, 14, 8)
    reduced = reduced_modulo(exact_rows(rows)[0])
    assert sampled_support(reduced, 7, bases=20, rng=np.random.default_rng(0)) is None
    found = sampled_support(reduced, 20, bases=200, rng=np.random.default_rng(0))
    assert found is not None
    assert tuple(sorted(found)) == clients


@pytest.mark.parametrize("size", [7, 5000])  # small and large arrays are reduced in different ways
def test_residues_inverses_and_ratios_follow_modular_arithmetic(size: int) -> None:
    rng = np.random.default_rng(size)
    x, y = rng.integers(0, PRIME, size=(2, 1, size))
    x[0, :3], y[0, :3] = PRIME - 1, PRIME - 1
    assert residues(x * y + x * y).tolist() == [[2 * int(a) * int(b) % PRIME for a, b in zip(x[0], y[0], strict=True)]]
    assert residues(np.full((1, size), 2 * (PRIME - 1) * PRIME - PRIME)).tolist() == [[0] * size]
    one = residues(y * inverses(y))
    assert (one[y != 0] == 1).all()
    quotient = ratios(x, y, inverses(y))
    assert (residues(quotient * y) == x)[y != 0].all()


def test_reduced_rows_have_unit_columns_at_their_pivots_and_the_right_rank() -> None:
    rows = np.array([[0, 2, 4, 6], [0, 1, 2, 3], [5, 0, 1, 0]])
    reduced, pivots = reduced_rows(rows)
    assert pivots == (0, 1)
    assert reduced[:, list(pivots)].tolist() == [[1, 0], [0, 1]]
    assert not residues(reduced @ np.array([[0], [PRIME - 2], [1], [0]]) % PRIME)[1].any()
