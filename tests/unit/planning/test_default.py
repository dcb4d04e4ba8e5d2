"""`auto` has groups for any federation and promise, or says what is possible."""

import re

import numpy as np
import pytest

from fedgt.errors import DesignError
from fedgt.experiment import make_spec
from fedgt.experiment.simulation import design_of
from fedgt.planning import default_design
from fedgt.planning.default import FEWEST_ROWS, MOST_ROWS, UPLOADS
from fedgt.privacy import disclosed_share, minimum_support
from slow_cases import slow


@pytest.mark.parametrize(
    ("clients", "privacy"), [(8, 3), (12, 4), (16, 4), *slow((25, 4), (50, 4)), (15, 5), (15, 6), (15, 7), (20, 6)]
)
def test_federations_without_a_known_design_have_groups_that_keep_the_promise(clients: int, privacy: int) -> None:
    design = default_design(clients, graded=True, privacy=privacy)
    support = minimum_support(design.matrix, enough=privacy)
    assert support is not None
    assert support.lower >= privacy
    assert design.clients == clients
    assert FEWEST_ROWS <= design.groups <= MOST_ROWS
    assert design.matrix.sum(axis=0).max() <= UPLOADS
    assert not design.untested


@pytest.mark.parametrize(
    ("clients", "graded", "name"),
    [
        (10, True, "graded-10x6"),
        (15, True, "nested-15x12-r4"),
        (20, True, "graded-20x12"),
        (30, True, "graded-30x15"),
        (15, False, "bch-15x8"),
        (30, False, "cyclic-30x12"),
        (31, False, "bch-31x10"),
    ],
)
def test_the_known_designs_stay_the_default_where_they_keep_the_promise(clients: int, graded: bool, name: str) -> None:
    assert default_design(clients, graded=graded, privacy=3).name == name


def test_a_promise_above_that_of_the_known_design_takes_another_one() -> None:
    assert default_design(20, graded=True, privacy=5).name == "graded-20x12"
    assert default_design(15, graded=True, privacy=5).name == "graded-15x9-b"
    assert default_design(20, graded=True, privacy=6).name == "graded-20x10"
    assert default_design(20, graded=True, privacy=8).name.startswith("nested-20x")


def test_spare_clients_may_be_missing_whoever_they_are() -> None:
    design = default_design(16, graded=True, privacy=3, absences=2)
    rng = np.random.default_rng(0)
    for _ in range(40):
        left = np.delete(design.matrix, rng.choice(16, size=2, replace=False), axis=1)
        support = minimum_support(left, enough=3)
        assert support is not None
        assert support.lower >= 3


@pytest.mark.parametrize("colluders", [0, 1])
def test_a_promised_share_limits_the_rows(colluders: int) -> None:
    free = default_design(16, graded=True, privacy=4)
    limited = default_design(16, graded=True, privacy=4, largest_share=0.7, colluders=colluders)
    share = disclosed_share(limited.matrix, colluding=colluders)
    assert share is not None
    assert share.largest <= 0.7
    assert FEWEST_ROWS <= limited.groups < free.groups
    np.testing.assert_array_equal(limited.matrix, free.matrix[: limited.groups])


def test_more_rows_are_not_spent_than_find_most_attackers() -> None:
    from fedgt.planning import detection_power, nested_groups

    design = default_design(12, graded=True, privacy=3)
    assert detection_power(design.matrix).found >= 0.75 or design.groups == nested_groups(12, 3, groups=10).groups
    assert detection_power(design.matrix[:-1]).found < 0.75


@pytest.mark.parametrize(
    ("clients", "privacy", "share", "message"),
    [
        (
            6,
            4,
            1.0,
            r"privacy 4 of 6 clients: .*; privacy 2 can be tested, \d+ clients keep privacy 4 with a test, or hold no",
        ),
        (15, 8, 1.0, "privacy 7 can be tested, 16 clients keep privacy 8"),
        (50, 25, 1.0, r"privacy 25 of 50 clients: no 4 plain groups .* privacy \d+ can be tested"),
        (12, 4, 0.1, r"largest_share = 0.1 .* disclose 0\.\d\d; promise that"),
    ],
)
def test_where_nothing_can_be_said_of_anybody_it_says_so_and_what_is_possible(
    clients: int, privacy: int, share: float, message: str
) -> None:
    with pytest.raises(DesignError, match=message):
        default_design(clients, graded=True, privacy=privacy, largest_share=share)


@pytest.mark.parametrize("clients", [5, 6, 7, 8, *slow(11, 15)])
def test_what_is_said_to_be_possible_is(clients: int) -> None:
    for privacy in range(2, clients + 1):
        try:
            default_design(clients, graded=True, privacy=privacy)
        except DesignError as error:
            weaker = re.search(r"privacy (\d+) can be tested", str(error))
            more = re.search(r"(\d+) clients keep privacy", str(error))
            assert more is not None
            default_design(int(more[1]), graded=True, privacy=privacy)
            if weaker is not None:
                assert int(weaker[1]) < privacy
                default_design(clients, graded=True, privacy=int(weaker[1]))


def test_binary_outcomes_of_other_federations_are_for_the_search() -> None:
    with pytest.raises(DesignError, match=r"fedgt design --clients 12 --privacy 4"):
        default_design(12, graded=False, privacy=4)


@pytest.mark.parametrize("clients", [8, 12, 16, *slow(25, 50)])
def test_a_specification_that_says_auto_has_groups_without_a_further_command(clients: int) -> None:
    spec = make_spec({"privacy": 3, "federation": {"clients": clients}, "data": {"name": "digits"}})
    assert design_of(spec).clients == clients


def test_a_specification_whose_promise_leaves_no_test_says_so() -> None:
    spec = make_spec({"privacy": 5, "federation": {"clients": 8}, "data": {"name": "digits"}})
    with pytest.raises(DesignError, match=r"design.name = 'auto': privacy 5 of 8 clients"):
        design_of(spec)
