"""The families one by one, their names, and what they refuse."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from fedgt.design import (
    Design,
    banded,
    bch,
    candidates,
    constant_column_weight,
    constant_row_weight,
    cyclic,
    drawn_quasi_cyclic,
    named_design,
    named_families,
    punctured,
    quasi_cyclic,
    shortened,
)
from fedgt.errors import DesignError

RNG = np.random.default_rng


def test_a_quasi_cyclic_design_is_the_grid_of_its_circulants() -> None:
    design = quasi_cyclic([[[0], [1, 2]], [[], [0]]], size=3)
    expected = [
        [1, 0, 0, 0, 1, 1],
        [0, 1, 0, 1, 0, 1],
        [0, 0, 1, 1, 1, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ]
    np.testing.assert_array_equal(design.matrix, expected)
    assert "shifts 0 1+2 / - 0" in design.source
    np.testing.assert_array_equal(quasi_cyclic([[[0], [1, 2]], [[], [0]]], size=3, groups=4).matrix, expected[:4])


def test_one_circulant_block_holds_the_parity_check_rows_of_the_cyclic_code() -> None:
    np.testing.assert_array_equal(quasi_cyclic([[[0, 1, 3, 7]]], size=15, groups=8).matrix, bch(15, 7).matrix)


def test_shortening_deletes_columns_and_keeps_the_groups() -> None:
    design = shortened(bch(31, 21), 20)
    np.testing.assert_array_equal(design.matrix, bch(31, 21).matrix[:, :20])
    assert design.name == "shortened-20x10-of-bch-31x10"
    assert "MacWilliams" in design.source
    assert "BCH (31, 21)" in design.source


def test_puncturing_costs_a_group_for_every_client() -> None:
    assert punctured(bch(31, 21), 27).matrix.shape == (6, 27)
    assert punctured(bch(31, 21), 27, rng=RNG(1)).matrix.shape == (6, 27)


@pytest.mark.parametrize("clients", [10, 20, 50])
def test_there_are_shortened_and_punctured_designs_where_codes_are_scarce(clients: int) -> None:
    names = [d.name for d in candidates(clients, groups=range(8, 9), rng=RNG(0), draws=4)]
    for family in ("shortened-", "punctured-", "column-weight-", "row-weight-", "quasi-cyclic-", "banded-"):
        assert any(name.startswith(family) for name in names), family


def test_the_papers_designs_are_candidates_under_their_names() -> None:
    assert "bch-15x8" in {d.name for d in candidates(15, groups=range(8, 9), rng=RNG(0), draws=0)}
    assert "cyclic-30x12" in {d.name for d in candidates(30, groups=range(12, 13), rng=RNG(0), draws=0)}


def test_the_two_extremes_are_candidates_and_a_partition_is_between_them() -> None:
    found = {d.name: d for d in candidates(6, groups=range(1, 7), rng=RNG(0), draws=0)}
    assert {"single-group-6", "identity-6"} <= set(found)
    assert (found["column-weight-6x3-w1-s0"].matrix.sum(axis=0) == 1).all()


def test_small_groups_appear_in_no_candidate_but_the_identity() -> None:
    found = list(candidates(4, groups=range(4, 5), rng=RNG(0)))
    assert [d.name for d in found if d.group_sizes.min() == 1] == ["identity-4"]
    assert len(found) > 1


def test_a_banded_design_gives_every_client_a_set_of_groups_of_its_own_while_there_are_some() -> None:
    design = banded(50, 20, per_client=4, window=8, rng=RNG(0))
    assert len(np.unique(design.matrix, axis=1).T) == 50
    assert np.ptp(design.group_sizes) <= 2


SOME_NAMES = {
    "bch-NxM": "bch-63x12",
    "cyclic-NxM": "cyclic-7x3",
    "cyclic-NxM-hHEX": "cyclic-20x8-h1405",
    "column-weight-NxM-wW-sSEED": "column-weight-20x8-w3-s17",
    "row-weight-NxM-kK-sSEED": "row-weight-20x8-k5-s17",
    "quasi-cyclic-NxM-pP-wW-sSEED": "quasi-cyclic-20x8-p4-w3-s4",
    "banded-NxM-wW-bB-sSEED": "banded-300x60-w3-b6-s17",
    "shortened-NxM[-sSEED]-of-NAME": "shortened-20x10-s17-of-bch-31x10",
    "punctured-NxM[-sSEED]-of-NAME": "punctured-28x7-of-bch-31x10",
}


def test_every_family_has_an_example_below() -> None:
    assert set(SOME_NAMES) == set(named_families())


@pytest.mark.parametrize("name", SOME_NAMES.values())
def test_a_member_of_a_family_is_built_from_its_name(name: str) -> None:
    design = named_design(name)
    sizes = re.search(r"(\d+)x(\d+)", name)
    assert sizes is not None
    assert design.name == name
    assert design.matrix.shape == (int(sizes[2]), int(sizes[1]))


def test_a_name_and_the_call_it_stands_for_give_the_same_design() -> None:
    for name, made in (
        ("column-weight-20x8-w3-s17", constant_column_weight(20, 8, per_client=3, rng=RNG(17))),
        ("row-weight-20x8-k5-s17", constant_row_weight(20, 8, per_group=5, rng=RNG(17))),
        ("quasi-cyclic-20x8-p4-w3-s4", drawn_quasi_cyclic(20, 8, size=4, per_client=3, rng=RNG(4))),
        ("banded-30x9-w3-b6-s17", banded(30, 9, per_client=3, window=6, rng=RNG(17))),
        ("shortened-20x10-s17-of-bch-31x10", shortened(bch(31, 21), 20, rng=RNG(17))),
        ("cyclic-15x8-h8b", cyclic(15, 7, check_polynomial=(7, 3, 1, 0))),
    ):
        np.testing.assert_array_equal(named_design(name).matrix, made.matrix)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shortened(bch(15, 7), 16), "1 to 15 are possible"),
        (lambda: shortened(bch(15, 7), 0), "1 to 15 are possible"),
        (lambda: shortened(bch(15, 7), 7), "leaves group 7 without members; keep more clients, let an rng choose"),
        (lambda: punctured(bch(15, 7), 7), "has no group left"),
        (lambda: punctured(bch(15, 7), 10), "leaves client 6 in no group"),
        (lambda: shortened(bch(15, 7), 2, rng=RNG(0)), "keep more clients, or start from another"),
        (lambda: constant_column_weight(5, 3, per_client=4, rng=RNG(0)), "from 1 to 3 groups a client"),
        (lambda: constant_column_weight(0, 3, per_client=1, rng=RNG(0)), "at least one client"),
        (
            lambda: constant_column_weight(2, 5, per_client=2, rng=RNG(0)),
            "at most 4 groups, or at least 3 groups a client",
        ),
        (lambda: constant_row_weight(5, 3, per_group=6, rng=RNG(0)), "from 1 to 5 members"),
        (lambda: constant_row_weight(9, 2, per_group=4, rng=RNG(0)), "groups of at least 5, or at least 3 groups"),
        (lambda: quasi_cyclic([[[0], [0]], [[0]]], size=3), "same number of blocks"),
        (lambda: quasi_cyclic([[[3]]], size=3), "from 0 to 2 are needed"),
        (lambda: quasi_cyclic([[[1, 1]]], size=3), "different numbers"),
        (lambda: quasi_cyclic([[[1]]], size=3, groups=4), "1 to 3 are possible"),
        (lambda: quasi_cyclic([[[1], []], [[], []]], size=2), "has no members"),
        (lambda: drawn_quasi_cyclic(20, 8, size=3, per_client=2, rng=RNG(0)), "1, 2, 4, 5, 10, 20"),
        (lambda: drawn_quasi_cyclic(20, 8, size=4, per_client=9, rng=RNG(0)), "1 to 8 are possible"),
        (lambda: banded(5, 6, per_client=1, window=2, rng=RNG(0)), "1 to 5 groups"),
        (lambda: banded(20, 6, per_client=3, window=7, rng=RNG(0)), "a window from 1 to 6"),
        (lambda: banded(20, 6, per_client=4, window=3, rng=RNG(0)), "from 1 to the window"),
        (lambda: named_design("shortened-20x9-of-bch-31x10"), "has 10 groups, not 9"),
        (lambda: named_design("cyclic-15x8-h8c"), "does not divide"),
        (lambda: named_design("shortened-20x9-of-none"), "from the unknown design 'none'; known are bch-15x8"),
        (lambda: named_design("banded-20x6"), "banded-NxM-wW-bB-sSEED"),
        (lambda: candidates(0, groups=range(4, 5), rng=RNG(0)), "1 to 1000 are possible"),
        (lambda: candidates(9, groups=range(4, 4), rng=RNG(0)), "such as range"),
        (lambda: candidates(9, groups=range(3), rng=RNG(0)), "from 1 on"),
        (lambda: candidates(3, groups=range(7, 9), rng=RNG(0)), "3 clients have only 6 different groups"),
        (lambda: candidates(1, groups=range(2, 9), rng=RNG(0)), "1 client has only 1 different group "),
        (lambda: candidates(9, groups=range(4, 5), rng=RNG(0), draws=-1), "0 or more"),
    ],
)
def test_what_a_family_cannot_do_is_refused_with_what_is_possible(call: Callable[[], Design], message: str) -> None:
    with pytest.raises(DesignError, match=message):
        call()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("column-weight-99999999x2-w1-s0", "at most 10000 of each"),
        ("row-weight-9999x9999-k3-s0", "10000000 places"),
        ("banded-99999999x9-w1-b3-s0", "at most 10000 of each"),
        ("quasi-cyclic-10x99999-p2-w1-s0", "at most 10000 of each"),
        ("cyclic-100000x10-h3", "code length 100000; at least 1 and at most 2047"),
        ("bch-1048575x20", "code length 1048575; at least 1 and at most 2047"),
    ],
)
def test_a_name_that_asks_for_too_much_is_refused_at_once(name: str, message: str) -> None:
    with pytest.raises(DesignError, match=message):
        named_design(name)
