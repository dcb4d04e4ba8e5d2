"""Ties of a design and the margin of what is left."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.design import from_matrix, identity, named_design, single_group
from fedgt.errors import DesignError, ShapeError
from fedgt.planning.margin import margin
from fedgt.planning.ties import _first_equal, all_sets, ties


def test_sets_are_listed_by_size_and_then_in_lexicographic_order() -> None:
    sets, sizes = all_sets(4, 2)
    assert sizes.tolist() == [0] + [1] * 4 + [2] * 6
    assert [tuple(np.flatnonzero(row).tolist()) for row in sets[5:8]] == [(0, 1), (0, 2), (0, 3)]
    assert len(np.unique(sets, axis=0)) == 11


def test_clients_alone_in_their_groups_are_never_tied() -> None:
    found = ties(identity(9), 4)
    assert not found.tied.any()
    assert not found.expected_wrong.any()
    assert found.untied == 4


def test_one_group_of_all_says_nothing_so_nobody_is_accused() -> None:
    found = ties(single_group(6), 3)
    assert found.expected_wrong.tolist() == [0, 1, 2, 3]
    assert found.untied == 0


def test_two_clients_in_the_same_groups_are_confused_every_second_time() -> None:
    design = from_matrix([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    found = ties(design, 1)
    assert found.tied.tolist() == [0, 2]
    assert found.expected_wrong.tolist() == [0, 0.5]  # of four clients two are tied; half of the time two are wrong


def test_complements_move_the_groups_in_opposite_directions_and_are_not_tied() -> None:
    """P d and P (1 - d) = 1 - P d lie on one line; its orientation is known."""
    found = ties(from_matrix([[1, 0, 0], [0, 1, 1]]), 2)
    labels = {str(row): label for row, label in zip(found.sets.tolist(), found.label.tolist(), strict=True)}
    assert labels["[1, 0, 0]"] != labels["[0, 1, 1]"]
    assert labels["[0, 1, 0]"] == labels["[0, 0, 1]"] == labels["[0, 1, 1]"]


def test_sets_that_move_all_groups_alike_are_tied_with_nobody_malicious() -> None:
    found = ties(from_matrix([[1, 1, 0, 0], [0, 0, 1, 1]]), 2)
    pair = int(np.flatnonzero((found.sets == [1, 0, 1, 0]).all(axis=1))[0])
    assert found.label[pair] == 0


def test_the_group_means_and_not_the_numbers_of_members_make_a_direction() -> None:
    """One member of a group of two and two of a group of four move both means alike: tied with nobody."""
    found = ties(from_matrix([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1]]), 3)
    assert found.label[int(np.flatnonzero((found.sets == [1, 0, 1, 1, 0, 0]).all(axis=1))[0])] == 0


def test_different_weights_break_ties() -> None:
    design = named_design("bch-15x8")
    assert ties(design, 4).tied.sum() > 0
    assert ties(design, 4, weights=np.random.default_rng(0).integers(100, 1000, 15).tolist()).tied.sum() == 0


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(7)), st.permutations(range(4)))
def test_renaming_clients_and_groups_changes_no_expectation(clients: list[int], groups: list[int]) -> None:
    matrix = np.random.default_rng(8).integers(0, 2, (4, 7))
    renamed = from_matrix(matrix[groups][:, clients])
    before, after = (ties(design, 3).expected_wrong for design in (from_matrix(matrix), renamed))
    np.testing.assert_allclose(after, before, atol=1e-12)


def test_the_expectation_of_small_sets_does_not_depend_on_larger_ones() -> None:
    design = named_design("graded-15x8")
    np.testing.assert_allclose(ties(design, 5).expected_wrong, ties(design, 7).expected_wrong[:6], atol=1e-15)


def test_rows_that_share_a_hash_are_compared_themselves() -> None:
    lowest = -(2**63)  # twice this times odd numbers vanishes modulo 2^64
    rows = np.array([[0, 0], [lowest, lowest], [0, 0], [1, 2]])
    assert _first_equal(rows).tolist() == [0, 1, 0, 3]


def test_the_margin_of_clients_alone_is_that_of_nested_sets() -> None:
    """A set of q is closest to itself and one more client: cos^2 = q (n - q - 1) / ((q + 1) (n - q)) without groups."""
    design = identity(9)
    measured = margin(design, ties(design, 3))
    cosine = math.sqrt(2 * (9 - 3) / (3 * (9 - 2)))
    assert measured.angle == pytest.approx(math.acos(cosine))
    one, other = measured.pair
    assert {len(one), len(other)} == {2, 3}
    assert set(one) < set(other) or set(other) < set(one)


def test_a_design_with_one_direction_has_nothing_to_keep_apart() -> None:
    nothing = margin(single_group(5), ties(single_group(5), 2))
    assert nothing.angle == math.pi
    assert nothing.pair == ((), ())
    assert np.isinf(nothing.separation).all()
    two = from_matrix([[1, 0], [0, 1]])
    opposite = margin(two, ties(two, 1))
    assert opposite.angle == pytest.approx(math.pi)
    assert opposite.separation[1] == pytest.approx(math.sqrt(0.5))  # as far as from no step at all


def test_the_margin_ignores_a_repeated_group() -> None:
    matrix = named_design("graded-15x9").matrix
    once, twice = from_matrix(matrix), from_matrix(np.vstack([matrix, matrix[:2]]))
    first, second = margin(once, ties(once, 3)), margin(twice, ties(twice, 3))
    assert first.angle == pytest.approx(second.angle)
    np.testing.assert_allclose(first.separation, second.separation)


def test_more_samples_per_client_raise_the_separation_by_their_root() -> None:
    design = named_design("graded-15x9")
    found = ties(design, 3)
    np.testing.assert_allclose(
        margin(design, found, samples=[9] * 15).separation[1:], 3 * margin(design, found).separation[1:]
    )


def test_impossible_requests_are_refused_with_what_is_possible() -> None:
    design = named_design("bch-15x8")
    with pytest.raises(DesignError, match="0 to 15"):
        ties(design, 16)
    with pytest.raises(DesignError, match="n_max = 7 keeps"):
        ties(named_design("cyclic-30x12"), 8)
    with pytest.raises(ShapeError, match="positive integer"):
        ties(design, 2, weights=[1] * 14)
    with pytest.raises(ShapeError, match="positive integer"):
        ties(design, 2, weights=[0] + [1] * 14)
    with pytest.raises(ShapeError, match="samples"):
        margin(design, ties(design, 1), samples=[1])
