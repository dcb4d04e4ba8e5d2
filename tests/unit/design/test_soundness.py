"""Faults of designs, in words."""

import numpy as np
import pytest

from fedgt.design import faults, from_matrix, identity, max_malicious, named_design, single_group
from fedgt.errors import DesignError
from fedgt.privacy import minimum_support


def test_the_papers_designs_have_no_fault_under_their_own_promise() -> None:
    assert faults(named_design("bch-15x8"), privacy=4) == ()
    assert faults(named_design("cyclic-30x12"), privacy=6) == ()


def test_clients_in_no_group_are_named() -> None:
    (fault,) = faults(from_matrix([[1, 0, 1, 0], [1, 0, 0, 0]]))
    assert fault.startswith("clients 1, 3 in no group, never tested")


def test_a_group_of_one_is_fine_without_a_promise_and_a_fault_below_it() -> None:
    design = from_matrix([[1, 1, 1], [0, 0, 1]])
    assert faults(design) == ()
    (fault,) = faults(design, privacy=2)
    assert fault == ("group 1 has 1 member (client 2), fewer than the promised r = 2; enlarge it, or promise at most 1")


def test_identical_rows_are_named_together() -> None:
    design = from_matrix([[1, 1, 0], [0, 1, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]])
    assert design.identical_groups == ((0, 2), (1, 3))
    assert faults(design)[0] == "groups 0, 2 have the same members; keep one of them"
    assert named_design("bch-15x8").identical_groups == ()


def test_every_fault_is_named() -> None:
    found = faults(from_matrix([[1, 0, 0], [1, 0, 0]]), privacy=2)
    parts = ("clients 1, 2 in no group", "group 0 has 1 member", "group 1 has 1 member", "groups 0, 1 have")
    assert [fault.startswith(part) for fault, part in zip(found, parts, strict=True)] == [True] * 4


@pytest.mark.parametrize("privacy", [0, 4])
def test_a_promise_that_no_design_of_these_clients_can_keep_is_refused(privacy: int) -> None:
    with pytest.raises(DesignError, match="to 3 \\(one group of everybody\\)"):
        faults(single_group(3), privacy=privacy)


def test_one_client_and_one_group_are_designs() -> None:
    for design in (identity(1), single_group(1), from_matrix([[1]])):
        assert faults(design) == ()
        assert max_malicious(design) == 0
        support = minimum_support(design.matrix)
        assert support is not None
        assert support.r == 1


def test_more_groups_than_clients_are_a_design_whose_privacy_says_what_it_costs() -> None:
    every_pair = from_matrix([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]])
    assert faults(every_pair, privacy=2) == ()
    support = minimum_support(every_pair.matrix)
    assert support is not None
    assert support.r == 1  # any three of four clients are solved for
    assert np.linalg.matrix_rank(every_pair.matrix) == 4
