"""What `auto` takes where clients may multiply their updates."""

import pytest

from fedgt.design import Design, StagedDesign
from fedgt.errors import DesignError
from fedgt.planning import default_design, design_with_coefficients, detection_power, frontier
from fedgt.privacy import disclosed_share, minimum_support
from slow_cases import slow


@pytest.mark.parametrize(("clients", "privacy"), [(6, 2), (8, 4), (12, 5), (15, 5), (15, 6), (15, 7), *slow((16, 6))])
def test_more_attackers_are_found_for_the_same_promise(clients: int, privacy: int) -> None:
    found = design_with_coefficients(clients, privacy=privacy)
    support = minimum_support(found.matrix, enough=privacy)
    assert support is not None
    assert support.lower >= privacy
    assert (found.matrix > 0).sum(axis=0).max() <= 8
    try:
        plain = default_design(clients, graded=True, privacy=privacy)
    except DesignError:
        return
    assert detection_power(found.matrix).found >= detection_power(plain.matrix).found


def test_plain_groups_that_find_enough_are_kept() -> None:
    found = design_with_coefficients(12, privacy=2)
    assert isinstance(found, Design)
    assert found.name == default_design(12, graded=True, privacy=2).name


def test_room_for_an_absence_is_a_higher_r() -> None:
    found = design_with_coefficients(15, privacy=5, absences=1)
    assert found.name == "regular-15x10-r6-c3"


def test_a_promised_share_takes_fewer_rows() -> None:
    found = design_with_coefficients(15, privacy=5, largest_share=0.6)
    share = disclosed_share(found.matrix)
    assert share is not None
    assert not share.exceeds(0.6)
    assert found.groups < design_with_coefficients(15, privacy=5).groups


@pytest.mark.parametrize(("clients", "privacy"), [(8, 5), (15, 8), (6, 4)])
def test_without_two_groups_there_is_no_test_and_it_says_what_is_possible(clients: int, privacy: int) -> None:
    with pytest.raises(DesignError, match="hold no tests"):
        design_with_coefficients(clients, privacy=privacy)
    with pytest.raises(DesignError, match="two groups"):
        frontier(clients, privacy, coefficients=True)


@pytest.mark.parametrize(("clients", "privacy"), [(6, 3), (14, 7)])
def test_two_groups_of_half_the_clients_need_coefficients_and_the_plain_default_says_so(
    clients: int, privacy: int
) -> None:
    with pytest.raises(DesignError, match=r"keep it \(design\.coefficients = true\)"):
        default_design(clients, graded=True, privacy=privacy)
    found = design_with_coefficients(clients, privacy=privacy)
    assert found.groups >= 4
    with pytest.raises(DesignError) as refused:
        default_design(8, graded=True, privacy=5)
    assert "coefficients" not in str(refused.value)


def test_the_frontier_with_coefficients_reaches_the_bound() -> None:
    lines = frontier(8, 3, coefficients=True)
    assert [line.design.groups for line in lines] == [2, 3, 4, 5, 6]
    assert all(line.r >= 3 for line in lines)
    assert isinstance(lines[-1].design, StagedDesign)
    assert lines[-1].design.largest_entry > 1
