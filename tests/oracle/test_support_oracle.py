"""The minimum support against exact brute force in sympy's rationals."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.errors import ShapeError
from fedgt.privacy import minimum_support

rows_of_bits = st.integers(1, 7).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n), min_size=1, max_size=5)
)
rows_of_weights = st.integers(1, 6).flatmap(
    lambda n: st.lists(
        st.lists(st.sampled_from([0, 1, 2, 3, 5, 0.5, 0.25, 1.75]), min_size=n, max_size=n), min_size=1, max_size=4
    )
)


def brute_force(rows: list[list[float]]) -> int | None:
    """Smallest set of columns whose removal lowers the rank: the definition, with exact arithmetic."""
    matrix = sympy.Matrix(
        [[sympy.Rational(Fraction(v).numerator, Fraction(v).denominator) for v in row] for row in rows]
    )
    rank, n = matrix.rank(), matrix.shape[1]
    if rank == 0:
        return None
    for size in range(1, n + 1):
        for columns in combinations(range(n), size):
            rest = [j for j in range(n) if j not in columns]
            if not rest or matrix[:, rest].rank() < rank:
                return size
    raise AssertionError("unreachable")


@settings(max_examples=150)
@given(rows_of_bits)
def test_minimum_support_equals_brute_force_for_assignment_matrices(rows: list[list[float]]) -> None:
    support = minimum_support(rows)
    assert (None if support is None else (support.lower, support.upper)) == (
        None if brute_force(rows) is None else (brute_force(rows),) * 2
    )


@settings(max_examples=150)
@given(rows_of_weights)
def test_minimum_support_equals_brute_force_for_real_weights(rows: list[list[float]]) -> None:
    support = minimum_support(rows)
    expected = brute_force(rows)
    assert (None if support is None else support.r) == expected


@settings(max_examples=100)
@given(rows_of_weights)
def test_the_certificate_really_attains_the_support(rows: list[list[float]]) -> None:
    support = minimum_support(rows)
    if support is None:
        return
    mixed = [
        sum((b * Fraction(row[j]) for b, row in zip(support.combination, rows, strict=True)), Fraction(0))
        for j in range(len(rows[0]))
    ]
    assert tuple(j for j, v in enumerate(mixed) if v) == support.clients
    assert len(support.clients) == support.upper


@settings(max_examples=80)
@given(rows_of_weights, st.integers(1, 4))
def test_stopping_early_never_claims_more_than_is_true(rows: list[list[float]], enough: int) -> None:
    exact, early = minimum_support(rows), minimum_support(rows, enough=enough)
    if exact is None or early is None:
        assert exact is None
        assert early is None
        return
    assert early.lower <= exact.r <= early.upper
    assert (early.lower >= enough) == (exact.r >= enough)


@settings(max_examples=60)
@given(rows_of_bits)
def test_revealing_one_more_row_never_raises_the_support(rows: list[list[float]]) -> None:
    before, after = minimum_support(rows[:-1] or rows), minimum_support(rows)
    if before is not None and after is not None:
        assert after.r <= before.r


def test_minimum_support_equals_the_ranks_of_all_sets_of_columns_for_designs_of_every_height() -> None:
    rng = np.random.default_rng(5)
    n = 12
    kept = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    for groups in range(2, 12):
        rows = (rng.random((groups, n)) < 0.5).astype(int)
        rows[:, 0] = 1
        ranks = np.linalg.matrix_rank(rows[None] * kept[:, None, :])
        support = minimum_support(rows)
        assert support is not None
        assert support.r == int((n - kept.sum(axis=1))[ranks < ranks.max()].min())


def test_a_search_that_would_take_too_long_gives_a_certified_interval() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 1000, size=(10, 20))
    exact = minimum_support(rows)
    short = minimum_support(rows, max_states=500)
    assert exact is not None
    assert short is not None
    assert exact.r == 11  # generic rows attain the Singleton bound n - k + 1
    assert not short.exact
    assert 1 < short.lower <= exact.r <= short.upper


def test_nothing_revealed_has_no_support() -> None:
    assert minimum_support(np.zeros((0, 4))) is None
    assert minimum_support(np.zeros((2, 4))) is None


@pytest.mark.parametrize("rows", [[[np.nan, 1.0]], [1.0, 2.0], [["a"]]])
def test_rows_that_are_no_finite_matrix_are_refused(rows: object) -> None:
    with pytest.raises(ShapeError):
        minimum_support(rows)  # type: ignore[arg-type]


def test_a_common_factor_of_a_row_changes_nothing() -> None:
    support = minimum_support([[2_147_483_647, 0], [1, 1]])
    assert support is not None
    assert support.r == 1


def test_rows_that_lose_rank_modulo_the_prime_are_refused_rather_than_overlooked() -> None:
    from fedgt.errors import PrivacyError

    with pytest.raises(PrivacyError, match="rank"):
        minimum_support([[1, 1], [1, 2_147_483_648]])
