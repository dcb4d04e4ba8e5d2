"""Factors and quotients over GF(2) against sympy."""

import pytest
import sympy

from fedgt.design.codes import bch, check_polynomials, factors
from generator import generator_matrix

X = sympy.Symbol("x")


def polynomial(exponents: tuple[int, ...]) -> sympy.Poly:
    return sympy.Poly.from_dict({(e,): 1 for e in exponents}, X, modulus=2)


def exponents(found: sympy.Poly) -> tuple[int, ...]:
    return tuple(sorted((int(m[0]) for m, c in found.terms() if int(c) % 2), reverse=True))


@pytest.mark.parametrize("n", [*range(1, 41), 45, 60, 63, 96, 127])
def test_the_factors_of_x_n_minus_1_are_sympys(n: int) -> None:
    _, found = sympy.Poly(X**n - 1, X, modulus=2).factor_list()
    assert set(factors(n)) == {(exponents(one), int(multiplicity)) for one, multiplicity in found}


def test_long_lengths_factor_into_as_many_polynomials_as_there_are_cosets() -> None:
    """2047 = 23 x 89: one factor of degree 1, and 2046 / 11 of degree 11, whose product is x^2047 - 1."""
    found = factors(2047)
    assert [len(p) > 0 and p[0] for p, _ in found] == [1] + [11] * 186
    assert {m for _, m in found} == {1}


@pytest.mark.parametrize(("n", "k"), [(15, 7), (30, 18), (21, 9)])
def test_the_generator_is_sympys_quotient(n: int, k: int) -> None:
    for h in check_polynomials(n, k):
        quotient, rest = sympy.Poly(X**n - 1, X, modulus=2).div(polynomial(h))
        assert rest.is_zero
        first = generator_matrix(n, h)[0]
        assert {n for n, bit in enumerate(first) if bit} in (
            set(exponents(quotient)),
            {exponents(quotient)[0] - e for e in exponents(quotient)},
        )


def test_bch_codes_of_length_63_have_the_known_dimensions() -> None:
    for k in (57, 51, 45, 39, 36, 30, 24, 18, 16, 10, 7):
        assert bch(63, k).groups == 63 - k
