"""Designs with coefficients, and who sits in them."""

from pathlib import Path

import numpy as np
import pytest

from fedgt.design import Design, StagedDesign, any_design, design_of_rows, named_design, read_rows, searched_designs
from fedgt.errors import DesignError, ShapeError
from fedgt.grouping import Grouping, assign
from fedgt.packed import pack, unpack

ROWS = [[2, 1, 0, 1], [0, 1, 3, 1]]
NAMES = ("ada", "bob", "cleo", "dan")


def test_coefficients_must_be_meant() -> None:
    with pytest.raises(DesignError, match="entries must be 0 or 1, got"):
        design_of_rows(ROWS, coefficients=False)
    found = design_of_rows(ROWS, coefficients=True)
    assert isinstance(found, StagedDesign)
    assert found.matrix.tolist() == ROWS
    plain = design_of_rows([[1, 1, 0, 1]], coefficients=True)
    assert isinstance(plain, Design), "rows of 0 and 1 are plain groups, whatever would have been allowed"


@pytest.mark.parametrize("rows", [[[2, 256]], [[2, -1]], [[2, 0.5]], [2, 1], 3, [[0, 0]]])
def test_rows_that_are_no_coefficients_are_refused(rows: object) -> None:
    with pytest.raises((DesignError, ShapeError)):
        design_of_rows(rows, coefficients=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["2,1,0,1\n0, 1,3,1\n", None])
def test_rows_are_read_from_both_kinds_of_files(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / ("A.csv" if text else "A.json")
    path.write_text(text or '{"name": "A", "matrix": [[2,1,0,1],[0,1,3,1]]}')
    found = read_rows(path)
    assert (found.matrix.tolist(), found.name) == (ROWS, "A")


@pytest.mark.parametrize("entry", ["256", "-1", "0.5", "x", "", "1e2", "²"])
def test_an_entry_that_is_no_coefficient_is_refused_by_line(entry: str, tmp_path: Path) -> None:
    (tmp_path / "A.csv").write_text(f"2,1\n1,{entry}\n", encoding="utf-8")
    with pytest.raises(DesignError, match="line 2: entries must be whole numbers from 0 to 255"):
        read_rows(tmp_path / "A.csv")


def test_every_searched_design_has_a_name_that_a_specification_takes() -> None:
    for name in searched_designs():
        found = any_design(name)
        assert isinstance(found, Design) == ("-c" not in name)
    np.testing.assert_array_equal(any_design("bch-15x8").matrix, named_design("bch-15x8").matrix)
    with pytest.raises(DesignError, match="unknown design"):
        any_design("nested-15x12")


# Seats ------------------------------------------------------------------------------------------------------------------


def test_a_grouping_knows_the_coefficient_of_every_member() -> None:
    found = Grouping.of(design_of_rows(ROWS, coefficients=True), NAMES)
    assert found.design.matrix.tolist() == [[1, 1, 0, 1], [0, 1, 1, 1]]
    assert found.members(0) == ("ada", "bob", "dan")
    assert found.factors(0) == {"ada": 2, "bob": 1, "dan": 1}
    assert found.rows.tolist() == found.whole.matrix.tolist() == ROWS


def test_without_coefficients_a_grouping_is_what_it_was() -> None:
    design = named_design("bch-15x8")
    names = [f"c{j:02d}" for j in range(15)]
    plain, seated = Grouping.of(design, names), assign(design, names, rng=np.random.default_rng(0))
    assert plain.coefficients is None
    assert seated.coefficients is None
    assert plain.whole is design
    assert plain.of_rows(plain.rows).coefficients is None
    assert set(plain.factors(0).values()) == {1}


def test_seats_are_drawn_for_designs_with_coefficients_too() -> None:
    design = design_of_rows(ROWS, coefficients=True)
    seated = assign(design, NAMES, rng=np.random.default_rng(3))
    assert sorted(seated.clients) == sorted(NAMES)
    assert sorted(seated.factors(1).values()) == [1, 1, 3]


@pytest.mark.parametrize(
    "wrong", [[[2, 1, 1, 1], [0, 1, 3, 1]], [[0, 1, 0, 1], [0, 1, 3, 1]], [[2, 1, -1, 1], [0, 1, 3, 1]]]
)
def test_a_coefficient_belongs_to_every_member_and_to_nobody_else(wrong: list[list[int]]) -> None:
    membership = Grouping.of(design_of_rows(ROWS, coefficients=True), NAMES).design
    with pytest.raises(DesignError, match="for every member, and for nobody else"):
        Grouping(design=membership, clients=NAMES, coefficients=np.array(wrong))


def test_coefficients_are_part_of_a_saved_run() -> None:
    found = Grouping.of(design_of_rows(ROWS, coefficients=True), NAMES)
    again = unpack(pack(found, (Grouping, Design), label="x"), (Grouping, Design))
    assert again.rows.tolist() == ROWS
    assert again.clients == NAMES
