"""The searched designs are what their certificates say."""

import numpy as np
import pytest

from fedgt.design import StagedDesign, searched_design, searched_designs
from fedgt.errors import DesignError, ShapeError
from fedgt.privacy import best_in_span, minimum_support


@pytest.mark.parametrize("name", searched_designs())
def test_the_certificate_of_a_searched_design_is_computed_again(name: str) -> None:
    one = searched_design(name)
    matrix = one.design.matrix
    support = minimum_support(matrix)
    assert support is not None
    assert support.exact
    assert support.r == one.privacy == len(one.clients)
    mixed = [sum(b * int(row[j]) for b, row in zip(one.combination, matrix, strict=True)) for j in range(15)]
    assert tuple(j for j, value in enumerate(mixed) if value) == one.clients
    assert name.split("-")[1:3] == [f"15x{one.design.groups}", f"r{one.privacy}"]
    coefficients = name.split("-c")[1:]
    assert one.design.largest_entry == int(coefficients[0] if coefficients else 1)


@pytest.mark.parametrize("name", [name for name in searched_designs() if name.startswith(("nested", "regular"))])
def test_the_sum_over_everybody_costs_nothing(name: str) -> None:
    found = best_in_span(searched_design(name).design.matrix, target=np.ones(15))
    assert found is not None
    assert found.distance == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in searched_designs() if name.startswith("nested")])
def test_the_first_stage_of_a_nested_design_is_a_partition_into_groups_of_five(name: str) -> None:
    first = searched_design(name).design.stage(0)
    assert first.sum(axis=0).tolist() == [1] * 15
    assert first.sum(axis=1).tolist() == [5, 5, 5]


@pytest.mark.parametrize(
    ("privacy", "groups", "largest"), [(4, 12, 1), (5, 11, 2), (6, 10, 3)], ids=["0/1", "0 to 2", "0 to 3"]
)
def test_the_bound_for_15_clients_is_reached_with_small_entries(privacy: int, groups: int, largest: int) -> None:
    found = [searched_design(name) for name in searched_designs()]
    assert any(
        (one.privacy, one.design.groups, one.design.largest_entry) == (privacy, groups, largest) for one in found
    )


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(DesignError, match="no searched design 'x'; known are nested-15x12-r4"):
        searched_design("x")


def test_a_design_without_coefficients_is_a_plain_one() -> None:
    plain = searched_design("nested-15x12-r4").design.plain
    assert (plain.groups, plain.clients) == (12, 15)
    with pytest.raises(DesignError, match="coefficients up to 2"):
        _ = searched_design("nested-15x11-r5-c2").design.plain


@pytest.mark.parametrize(
    ("matrix", "stages", "message"),
    [
        ([[1, 1], [0, 0]], (2,), "group 1 has no members"),
        ([[1, -1]], (1,), "from 0 to 255"),
        ([[1, 256]], (1,), "from 0 to 255"),
        ([[1, 1]], (2,), "add up to 1"),
        ([[1, 1]], (1, 0), "add up to 1"),
        ([1, 1], (1,), "got shape"),
        ([[0.5, 1]], (1,), "integers are needed"),
    ],
)
def test_rows_that_are_no_staged_design_are_refused(matrix: object, stages: tuple[int, ...], message: str) -> None:
    with pytest.raises((DesignError, ShapeError), match=message):
        StagedDesign(matrix=matrix, stages=stages, name="given", source="by hand")  # type: ignore[arg-type]
