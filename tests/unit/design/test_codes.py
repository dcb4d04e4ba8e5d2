"""Designs from cyclic codes."""

import numpy as np
import pytest

from fedgt.design import bch, cyclic, named_design, named_designs
from fedgt.design.codes import check_polynomials, factors, parity_check_matrix
from fedgt.errors import DesignError
from generator import generator_matrix


@pytest.mark.parametrize(
    ("name", "groups", "clients", "ones"),
    [
        ("bch-15x8", 8, 15, (0, 1, 3, 7)),
        ("cyclic-30x12", 12, 30, (0, 4, 6, 12, 14, 18)),
        ("hamming-15x4", 4, 15, (0, 3, 4, 6, 8, 9, 10, 11)),
        ("bch-31x10", 10, 31, (0, 1, 3, 5, 7, 8, 9, 10, 13, 16, 18, 21)),
    ],
)
def test_the_named_designs_are_shifts_of_the_published_first_row(
    name: str, groups: int, clients: int, ones: tuple[int, ...]
) -> None:
    design = named_design(name)
    expected = np.zeros((groups, clients), dtype=np.uint8)
    for row in range(groups):
        expected[row, np.array(ones) + row] = 1
    np.testing.assert_array_equal(design.matrix, expected)
    assert design.name == name
    assert "parity-check" in design.source


def test_a_bch_design_is_the_parity_check_matrix_and_not_the_generator() -> None:
    """Case 26: bch(7, 4) has H of 3 x 7, rank 3, and G H^T = 0."""
    h_matrix = bch(7, 4).matrix
    h = tuple(sorted((int(e) for e in (4 - np.flatnonzero(h_matrix[0]))), reverse=True))
    g_matrix = generator_matrix(7, h)
    assert h_matrix.shape == (3, 7)
    assert g_matrix.shape == (4, 7)
    assert np.linalg.matrix_rank(h_matrix) == 3
    assert not (g_matrix.astype(int) @ h_matrix.T.astype(int) % 2).any()


@pytest.mark.parametrize(("n", "k"), [(7, 4), (15, 7), (15, 11), (30, 18), (12, 6), (9, 2)])
def test_generator_and_parity_check_matrices_are_orthogonal_for_every_divisor(n: int, k: int) -> None:
    for h in check_polynomials(n, k):
        product = generator_matrix(n, h).astype(int) @ parity_check_matrix(n, h).T.astype(int)
        assert not (product % 2).any(), h


def test_repeated_roots_are_factors_with_multiplicity() -> None:
    assert factors(30)[0] == ((1, 0), 2)
    assert all(multiplicity == 2 for _, multiplicity in factors(30))
    assert all(multiplicity == 1 for _, multiplicity in factors(15))


def test_there_are_nineteen_cyclic_30_18_codes() -> None:
    assert len(check_polynomials(30, 18)) == 19


def test_the_degrees_of_the_factors_add_up_to_n() -> None:
    for n in range(1, 33):
        assert sum(p[0] * multiplicity for p, multiplicity in factors(n)) == n


def test_an_ambiguous_code_asks_for_its_check_polynomial_and_lists_the_choices() -> None:
    with pytest.raises(DesignError, match=r"several|name one by check_polynomial") as caught:
        cyclic(15, 8)
    some = check_polynomials(15, 8)[0]
    assert str(some) in str(caught.value)
    assert cyclic(15, 8, check_polynomial=some).matrix.shape == (7, 15)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cyclic(15, 15), "0 < k < n"),
        (lambda: cyclic(7, 5), "no cyclic \\(7, 5\\) code"),
        (lambda: cyclic(15, 7, check_polynomial=(7, 1, 0)), "does not divide"),
        (lambda: bch(14, 7), "2\\^m - 1"),
        (lambda: bch(15, 8), "the dimensions for n = 15 are 1, 5, 7, 11"),
        (lambda: named_design("bch"), "known are bch-15x8"),
        (lambda: factors(0), "at least 1"),
    ],
)
def test_impossible_codes_are_refused_with_what_is_possible(call: object, message: str) -> None:
    with pytest.raises(DesignError, match=message):
        call()  # type: ignore[operator]


def test_every_listed_name_without_a_number_can_be_built() -> None:
    for name in named_designs():
        design = named_design(name.replace("N", "6"))
        assert design.clients >= 6
