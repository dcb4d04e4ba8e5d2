"""The assignment matrix and its files."""

from pathlib import Path

import numpy as np
import pytest

from fedgt.design import from_matrix, identity, read_design, single_group
from fedgt.errors import DesignError

EXAMPLE = [[1, 1, 0, 1, 0], [0, 1, 1, 0, 1]]  # Example 1 of the paper


def test_members_and_groups_of_the_papers_example() -> None:
    design = from_matrix(EXAMPLE)
    assert design.members(0) == (0, 1, 3)
    assert design.groups_of(1) == (0, 1)
    assert design.group_sizes.tolist() == [3, 3]
    assert design.columns_as_masks().tolist() == [1, 3, 2, 1, 2]


def test_a_design_cannot_be_changed_after_it_was_made() -> None:
    source = np.array(EXAMPLE)
    design = from_matrix(source)
    source[0, 0] = 0
    assert design.matrix[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        design.matrix[0, 0] = 0


def test_the_two_extremes_are_the_identity_and_one_group_of_all() -> None:
    np.testing.assert_array_equal(identity(4).matrix, np.eye(4))
    np.testing.assert_array_equal(single_group(4).matrix, np.ones((1, 4)))
    assert identity(1).matrix.shape == (1, 1)


def test_a_client_in_no_group_is_named() -> None:
    assert from_matrix([[1, 0, 1], [1, 0, 0]]).untested == (1,)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[1, 2]], "row 0, column 1"),
        ([[0.5, 1]], "row 0, column 0"),
        ([[np.nan, 1]], "0 or 1"),
        ([[1, 1], [0, 0]], "group 1 has no members"),
        ([], "shape"),
        ([1, 0], "shape"),
        ([["a", "b"]], "0 or 1"),
        ([[1, 0], [1]], "same length"),
        ([[0, 0], [0, 0]], "group 0 has no members"),
        ([[]], "shape"),
        ([[[1]]], "shape"),
        ([[1, -1]], "row 0, column 1"),
        ([[1, None]], "row 0, column 1"),
        ([[1, 1j]], "0 or 1"),
        ([[256, 1]], "row 0, column 0"),
    ],
)
def test_a_matrix_that_is_not_an_assignment_is_refused(matrix: object, message: str) -> None:
    with pytest.raises(DesignError, match=message):
        from_matrix(matrix)  # type: ignore[arg-type]


def test_csv_and_json_files_give_the_same_design(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,1,0,1,0\n\n0, 1, 1, 0, 1\n")
    (tmp_path / "a.json").write_text('{"name": "example", "matrix": [[1,1,0,1,0],[0,1,1,0,1]]}')
    (tmp_path / "b.json").write_text("[[1,1,0,1,0],[0,1,1,0,1]]")
    for name, expected in (("a.csv", "a"), ("a.json", "example"), ("b.json", "b")):
        design = read_design(tmp_path / name)
        np.testing.assert_array_equal(design.matrix, EXAMPLE)
        assert design.name == expected


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "1,0\n1,x\n", "line 2: entries must be 0 or 1, got 'x'"),
        ("a.csv", "1,0\n1\n", "line 2: 1 entries, but the first row has 2"),
        ("a.csv", "", "no rows"),
        ("a.json", "{", "not valid JSON"),
        ("a.json", '{"rows": 1}', "key 'matrix'"),
    ],
)
def test_a_bad_file_is_refused_by_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DesignError, match=message):
        read_design(tmp_path / name)


def test_a_missing_file_is_a_design_error(tmp_path: Path) -> None:
    with pytest.raises(DesignError, match=r"no\.csv"):
        read_design(tmp_path / "no.csv")


def test_restricting_to_no_group_is_refused() -> None:
    with pytest.raises(DesignError, match="no group is left"):
        from_matrix(EXAMPLE).restricted([])


@pytest.mark.parametrize("group", [2, -1])
def test_restricting_to_a_group_that_does_not_exist_is_refused(group: int) -> None:
    with pytest.raises(DesignError, match=f"group {group} does not exist; 0 to 1 do"):
        from_matrix(EXAMPLE).restricted([0, group])


def test_masks_that_do_not_fit_into_64_bits_are_refused() -> None:
    assert identity(62).columns_as_masks()[-1] == 1 << 61
    with pytest.raises(DesignError, match="63 groups do not fit"):
        identity(63).columns_as_masks()
