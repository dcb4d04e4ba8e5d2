"""Codes and families against textbook tables and slow listings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt.decode import CountPrior, IndependentPrior, compile, forward_backward
from fedgt.design import banded, bch, drawn_quasi_cyclic, from_matrix, punctured, shortened
from fedgt.design.codes import check_polynomials
from fedgt.types import ErrorRates, Outcomes
from generator import generator_matrix

# Generator polynomials in octal: S. Lin and D. J. Costello, "Error Control Coding", table of primitive BCH codes.
BCH_TABLE = [
    (7, 4, "13"),
    (15, 11, "23"),
    (15, 7, "721"),
    (15, 5, "2467"),
    (31, 26, "45"),
    (31, 21, "3551"),
    (31, 16, "107657"),
    (31, 11, "5423325"),
    (31, 6, "313365047"),
    (63, 57, "103"),
    (63, 51, "12471"),
    (63, 45, "1701317"),
    (63, 39, "166623567"),
    (63, 36, "1033500423"),
    (63, 30, "157464165547"),
]


@pytest.mark.parametrize(("n", "k", "octal"), BCH_TABLE)
def test_bch_designs_are_those_of_the_published_table(n: int, k: int, octal: str) -> None:
    design = bch(n, k)
    assert design.matrix.shape == (n - k, n)
    generator = [int(bit) for bit in f"{int(octal, 8):b}"][::-1]
    word = np.zeros(n, dtype=int)
    word[: len(generator)] = generator
    codewords = np.array([np.roll(word, shift) for shift in range(k)])  # x^shift g, client j at x^j
    assert not (design.matrix.astype(int) @ codewords.T % 2).any()


@pytest.mark.parametrize("n", [5, 6, 7, 8, 9, 10, 12])
def test_check_polynomials_are_all_divisors_found_by_trial(n: int) -> None:
    def remainder(dividend: int, divisor: int) -> int:
        while dividend.bit_length() >= divisor.bit_length():
            dividend ^= divisor << (dividend.bit_length() - divisor.bit_length())
        return dividend

    for k in range(1, n):
        found = {
            tuple(e for e in range(k, -1, -1) if h >> e & 1)
            for h in range(1 << k, 2 << k)
            if remainder(1 << n | 1, h) == 0
        }
        assert set(check_polynomials(n, k)) == found
        assert len(check_polynomials(n, k)) == len(found)


def _span(rows: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> set[bytes]:
    """Every combination over GF(2), listed."""
    coefficients = np.arange(1 << len(rows))[:, None] >> np.arange(len(rows)) & 1
    return {word.tobytes() for word in (coefficients @ rows % 2).astype(np.uint8)}


@pytest.mark.parametrize(("clients", "seed"), [(12, None), (13, None), (12, 0), (12, 1), (12, 2), (13, 3), (13, 4)])
def test_shortened_and_punctured_designs_check_the_shortened_and_the_punctured_code(
    clients: int, seed: int | None
) -> None:
    """Case 26 again: the rows generate the dual, listed here word by word from G (seeds whose first choice is sound)."""
    parent = bch(15, 7)
    code = np.array([np.frombuffer(word, dtype=np.uint8) for word in _span(generator_matrix(15, (7, 6, 4, 0)))])
    assert not (parent.matrix.astype(int) @ code.T % 2).any()
    kept = (
        np.arange(clients)
        if seed is None
        else np.sort(np.random.default_rng(seed).choice(15, size=clients, replace=False))
    )
    gone = np.setdiff1d(np.arange(15), kept)
    everything = (np.arange(1 << clients)[:, None] >> np.arange(clients) & 1).astype(np.uint8)

    def rng() -> np.random.Generator | None:
        return None if seed is None else np.random.default_rng(seed)

    for cut, words in (
        (shortened, code[~code[:, gone].any(axis=1)][:, kept]),
        (punctured, code[:, kept]),
    ):
        h = cut(parent, clients, rng=rng()).matrix
        checked = everything[~(everything.astype(int) @ h.T % 2).any(axis=1)]
        assert {word.tobytes() for word in checked} == {word.tobytes() for word in np.ascontiguousarray(words)}


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 4), st.integers(0, 99))
def test_quasi_cyclic_blocks_commute_with_the_cyclic_shift(size: int, rows: int, columns: int, seed: int) -> None:
    """A block is circulant exactly when it commutes with the permutation matrix of the shift."""
    rng = np.random.default_rng(seed)
    try:
        design = drawn_quasi_cyclic(size * columns, size * rows, size=size, per_client=rows, rng=rng)
    except ValueError:
        return  # a group was left empty
    shift = np.roll(np.eye(size, dtype=int), 1, axis=1)
    blocks = design.matrix.reshape(rows, size, columns, size).transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(shift @ blocks, blocks @ shift)
    assert (design.matrix.sum(axis=0) == rows).all()


@pytest.mark.parametrize(
    ("clients", "groups", "weight", "window"), [(300, 60, 3, 6), (300, 100, 3, 8), (500, 60, 4, 7)]
)
def test_a_banded_design_keeps_few_groups_open_for_hundreds_of_clients(
    clients: int, groups: int, weight: int, window: int
) -> None:
    design = banded(clients, groups, per_client=weight, window=window, rng=np.random.default_rng(3))
    last = clients - 1 - design.matrix[:, ::-1].argmax(axis=1)
    first = design.matrix.argmax(axis=1)
    opened = ((first[:, None] <= np.arange(clients)) & (np.arange(clients) <= last[:, None])).sum(axis=0)
    assert opened.max() <= window
    decoder = compile(design, ErrorRates.symmetric(0.05), IndependentPrior(prevalence=np.full(clients, 0.03)))
    assert decoder.method == "exact"
    assert int(decoder.cost.split()[0]) <= window + 1  # found by the decoder itself, in whatever order it chooses
    positive = np.zeros(groups, dtype=np.int8)
    positive[list(design.groups_of(100))] = 1
    posterior = decoder.decode(Outcomes(values=positive))
    assert posterior.status == "exact"
    assert int(posterior.malicious.argmax()) in {
        j for j in range(clients) if set(design.groups_of(j)) <= set(design.groups_of(100))
    }


def test_a_banded_design_decodes_as_the_same_design_with_its_clients_mixed() -> None:
    """The band is a matter of cost alone."""
    design = banded(16, 8, per_client=2, window=4, rng=np.random.default_rng(1))
    order = np.random.default_rng(2).permutation(16)
    outcomes = Outcomes.parse("01100010")
    rates, prior = ErrorRates.symmetric(0.1), CountPrior.uniform(4)
    straight = forward_backward(design, outcomes, rates, prior).log_odds
    mixed = forward_backward(from_matrix(design.matrix[:, order]), outcomes, rates, prior).log_odds
    np.testing.assert_allclose(mixed, straight[order], atol=1e-9)
