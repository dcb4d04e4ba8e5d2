"""Assignment matrices from cyclic codes over GF(2): the parity-check matrix of a code is the design.

Polynomials are tuples of exponents with coefficient 1, so `(7, 6, 4, 0)` is x^7 + x^6 + x^4 + 1. A cyclic code of length n
is given by a divisor h of x^n - 1, its check polynomial; x^n - 1 = g h. See MacWilliams and Sloane, "The Theory of
Error-Correcting Codes", chapters 4 and 7. The tests compare the arithmetic with sympy's.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from fedgt.design.matrix import Design
from fedgt.errors import DesignError
from fedgt.types import BitArray, IntArray, frozen

Exponents = tuple[int, ...]

_LONGEST = 2047


@lru_cache(maxsize=256)
def factors(n: int) -> tuple[tuple[Exponents, int], ...]:
    """The irreducible factors of x^n - 1 over GF(2) with their multiplicity (2^a where 2^a is the even part of n).

    Args:
        n: The length of the code, from 1 to 2047.

    Returns:
        Pairs (exponents in descending order, multiplicity), sorted by degree, then by exponents.

    Raises:
        DesignError: If n is out of range.
    """
    if not 1 <= n <= _LONGEST:
        raise DesignError(f"code length {n}; at least 1 and at most {_LONGEST} is possible")
    multiplicity = n & -n
    odd = n // multiplicity
    parts = [(1 << odd) | 1]
    # Berlekamp: h^2 = h modulo x^odd - 1 for the sum h of x^i over a cyclotomic coset, so every factor divides h or h + 1,
    # and for any two factors some coset tells them apart. There are as many factors as cosets.
    cosets = list(_cosets(odd))
    for coset in cosets:
        if len(parts) == len(cosets):
            break
        idempotent = sum(1 << i for i in coset)
        split = []
        for part in parts:
            common = _greatest_common_divisor(part, idempotent)
            split += [common, _divided(part, common)[0]] if 1 < common != part else [part]
        parts = split
    return tuple(sorted(((_from_bits(part), multiplicity) for part in parts), key=lambda pair: (pair[0][0], pair[0])))


@lru_cache(maxsize=1024)
def check_polynomials(n: int, k: int) -> tuple[Exponents, ...]:
    """Every divisor of x^n - 1 of degree k: the check polynomials of all cyclic (n, k) codes, in a fixed order.

    Repeated roots (even n) are divisors like any other: powers of a factor up to its multiplicity.
    """
    known = factors(n)
    bits = [_as_bits(polynomial) for polynomial, _ in known]
    full = [multiplicity for _, multiplicity in known]
    degrees = [polynomial[0] for polynomial, _ in known]
    divisors = []
    for powers in _powers(degrees, full, min(k, n - k)):
        chosen = powers if k <= n - k else [most - power for most, power in zip(full, powers, strict=True)]
        divisor = 1
        for factor, power in zip(bits, chosen, strict=True):
            for _ in range(power):
                divisor = _product(divisor, factor)
        divisors.append(_from_bits(divisor))
    return tuple(sorted(divisors))


def cyclic(n: int, k: int, *, check_polynomial: Exponents | None = None) -> Design:
    """The design whose matrix is the (n - k) x n parity-check matrix of a cyclic (n, k) code.

    Row i is the first row shifted right by i, without wrap; the first row holds the coefficients of the check
    polynomial h, highest first.

    Args:
        n: Clients, the length of the code.
        k: The dimension of the code; the design has n - k groups.
        check_polynomial: The exponents of h, a divisor of x^n - 1 of degree k. May be left out when the paper's choice
            is known (30, 18), or when only one cyclic (n, k) code exists up to reversal of the clients.

    Raises:
        DesignError: If no such code exists, h does not divide x^n - 1, or several codes exist and none was named.

    Examples:
        >>> from fedgt.design import cyclic
        >>> design = cyclic(7, 4)
        >>> design.matrix.tolist()
        [[1, 0, 1, 1, 1, 0, 0], [0, 1, 0, 1, 1, 1, 0], [0, 0, 1, 0, 1, 1, 1]]
    """
    if not 0 < k < n:
        raise DesignError(f"cyclic({n}, {k}): 0 < k < n is needed; k = n would leave no group")
    known = check_polynomials(n, k)
    if not known:
        degrees = ", ".join(f"{p[0]}{'' if m == 1 else f' (x{m})'}" for p, m in factors(n))
        raise DesignError(f"there is no cyclic ({n}, {k}) code: the factors of x^{n} - 1 have the degrees {degrees}")
    if check_polynomial is None:
        check_polynomial = _PREFERRED.get((n, k))
    unambiguous = set(known) <= {known[0], _reciprocal(known[0])}
    if check_polynomial is None:
        if not unambiguous:
            listed = "; ".join(str(h) for h in known[:8]) + ("; ..." if len(known) > 8 else "")
            raise DesignError(
                f"there are {len(known)} cyclic ({n}, {k}) codes; name one by check_polynomial, as exponents: {listed}"
            )
        check_polynomial = known[0]
    h = tuple(sorted(set(check_polynomial), reverse=True))
    if h not in known:
        raise DesignError(
            f"check polynomial {check_polynomial} does not divide x^{n} - 1 with degree {k}; the divisors of that "
            f"degree are {'; '.join(map(str, known[:8]))}{'; ...' if len(known) > 8 else ''}"
        )
    return Design(
        matrix=parity_check_matrix(n, h),
        name=f"cyclic-{n}x{n - k}" + ("" if unambiguous or h == _PREFERRED.get((n, k)) else f"-h{_as_bits(h):x}"),
        source=f"parity-check matrix of the cyclic ({n}, {k}) code with h = {polynomial_text(h)}",
    )


def bch(n: int, k: int) -> Design:
    """The design from the primitive narrow-sense binary BCH (n, k) code, n = 2^m - 1.

    Bose and Ray-Chaudhuri 1960, reference 33 of the paper. `bch(15, 7)` is the paper's 15 x 8 design, `bch(15, 11)` the
    Hamming code's 15 x 4, `bch(31, 21)` the 31 x 10 one.

    Raises:
        DesignError: If n is not 2^m - 1 or no BCH code of that dimension exists (the message lists those that do).

    Examples:
        >>> from fedgt.design import bch
        >>> design = bch(15, 7)  # the paper's 15 clients in 8 groups
        >>> design.groups, len(design.members(0))
        (8, 4)
    """
    generators = _bch_generators(n)
    if k not in generators:
        raise DesignError(
            f"there is no primitive narrow-sense BCH ({n}, {k}) code; the dimensions for n = {n} are "
            f"{', '.join(map(str, sorted(generators)))}"
        )
    quotient, remainder = _divided((1 << n) | 1, _as_bits(generators[k]))
    if remainder:
        raise DesignError(f"the generator polynomial {generators[k]} does not divide x^{n} - 1")
    h = _from_bits(quotient)
    return Design(
        matrix=parity_check_matrix(n, h),
        name=f"bch-{n}x{n - k}",
        source=f"parity-check matrix of the BCH ({n}, {k}) code with g = {polynomial_text(generators[k])}",
    )


def parity_check_matrix(n: int, check_polynomial: Exponents) -> BitArray:
    """uint8[n - k, n]: H of the cyclic code of length n with check polynomial h of degree k; H G^T = 0 over GF(2)."""
    return _shifts(n, tuple(check_polynomial[0] - e for e in check_polynomial), n - check_polynomial[0])


def polynomial_text(exponents: Exponents) -> str:
    """`(4, 1, 0)` as `x^4 + x + 1`."""
    return " + ".join({0: "1", 1: "x"}.get(e, f"x^{e}") for e in sorted(exponents, reverse=True))


# Of the 19 cyclic (30, 18) codes only this one has row weight 6, GF(2) dual distance 6 and n_m^max = 8:
# h = (x + 1)^2 (x^4 + x + 1)^2 (x^4 + x^3 + 1)^2. It is the paper's design for 30 clients.
_PREFERRED: dict[tuple[int, int], Exponents] = {(30, 18): (18, 14, 12, 6, 4, 0)}


@lru_cache(maxsize=16)
def _bch_generators(n: int) -> dict[int, Exponents]:
    """Dimension -> generator exponents of every narrow-sense BCH code of length n = 2^m - 1, smallest distance first."""
    m = (n + 1).bit_length() - 1
    if n < 3 or n + 1 != 1 << m:
        raise DesignError(f"BCH code length {n}; a length 2^m - 1 is needed (3, 7, 15, 31, 63, ...)")
    powers = _field_powers(m).tolist()
    logarithm = {value: exponent for exponent, value in enumerate(powers)}
    generators: dict[int, Exponents] = {}
    generator, roots = 1, set[int]()
    for root in range(1, n, 2):
        if root in roots:
            continue
        coset = {(root << i) % n for i in range(m)}
        roots |= coset
        generator = _product(generator, _as_bits(_minimal_polynomial(coset, powers, logarithm, n)))
        k = n - (generator.bit_length() - 1)
        if k > 0:
            generators[k] = _from_bits(generator)
    return generators


def _minimal_polynomial(coset: set[int], powers: list[int], logarithm: dict[int, int], n: int) -> Exponents:
    """The product of (x - alpha^i) over a cyclotomic coset, by multiplication in GF(2^m); its coefficients are bits."""
    coefficients = [1]  # ascending powers of x, entries in GF(2^m)
    for root in sorted(coset):
        shifted = [0, *coefficients]
        for i, coefficient in enumerate(coefficients):
            if coefficient:
                shifted[i] ^= powers[(logarithm[coefficient] + root) % n]
        coefficients = shifted
    return tuple(i for i in reversed(range(len(coefficients))) if coefficients[i])


def _primitive_polynomial(m: int) -> Exponents:
    """The first primitive polynomial of degree m, by the number it spells in binary: x^4 + x + 1 for m = 4."""
    n = (1 << m) - 1
    candidates = [p for p, _ in factors(n) if p[0] == m]
    for candidate in sorted(candidates, key=lambda p: sum(1 << e for e in p)):
        # A degree-m factor of x^n - 1 is primitive when x has order n, that is, when it divides no x^d - 1, d | n, d < n.
        divisors = [d for d in range(1, n) if n % d == 0]
        if all(_divided((1 << d) | 1, _as_bits(candidate))[1] for d in divisors if d >= m):
            return candidate
    raise DesignError(f"no primitive polynomial of degree {m} found")  # pragma: no cover - one exists for every m


@lru_cache(maxsize=16)
def _field_powers(m: int) -> IntArray:
    """int64[2^m - 1]: alpha^i in GF(2^m) as integers, bit j the coefficient of x^j."""
    modulus = _as_bits(_primitive_polynomial(m))
    powers = [1]
    for _ in range((1 << m) - 2):
        value = powers[-1] << 1
        powers.append(value ^ modulus if value >> m & 1 else value)
    return frozen(powers, np.int64)


def _shifts(n: int, positions: Exponents, rows: int) -> BitArray:
    matrix = np.zeros((rows, n), dtype=np.uint8)
    for row in range(rows):
        matrix[row, np.asarray(positions) + row] = 1
    return matrix


def _powers(degrees: Sequence[int], most: Sequence[int], total: int) -> Iterator[list[int]]:
    """All exponents of the factors, each up to its multiplicity, whose degrees add up to the total."""
    if not degrees:
        if total == 0:
            yield []
        return
    for power in range(min(most[0], total // degrees[0]) + 1):
        for rest in _powers(degrees[1:], most[1:], total - power * degrees[0]):
            yield [power, *rest]


def _as_bits(exponents: Exponents) -> int:
    return sum(1 << e for e in exponents)


def _from_bits(value: int) -> Exponents:
    return tuple(e for e in reversed(range(value.bit_length())) if value >> e & 1)


def _product(a: int, b: int) -> int:
    """Of two polynomials over GF(2), bit i the coefficient of x^i."""
    result = 0
    for e in _from_bits(b):
        result ^= a << e
    return result


def _reciprocal(h: Exponents) -> Exponents:
    return tuple(sorted((h[0] - e for e in h), reverse=True))


def _divided(a: int, b: int) -> tuple[int, int]:
    """Quotient and remainder of a by b, b not zero."""
    quotient = 0
    while a.bit_length() >= b.bit_length():
        shift = a.bit_length() - b.bit_length()
        quotient |= 1 << shift
        a ^= b << shift
    return quotient, a


def _greatest_common_divisor(a: int, b: int) -> int:
    while b:
        a, b = b, _divided(a, b)[1]
    return a


def _cosets(odd: int) -> Iterator[set[int]]:
    """The cyclotomic cosets {s, 2s, 4s, ...} modulo an odd number."""
    seen: set[int] = set()
    for s in range(odd):
        coset, element = set(), s
        while element not in seen:
            seen.add(element)
            coset.add(element)
            element = 2 * element % odd
        if coset:
            yield coset
