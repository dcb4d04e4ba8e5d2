"""The threat model claims nothing that no test tries."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "threat-model.md"
VERDICTS = ("prevented", "detected", "open")


def lines() -> list[tuple[str, str, list[str]]]:
    """(what, verdict, tests) of every row of a table with verdicts."""
    rows = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and cells[0] != "what" and set(cells[0]) != {"-"}:
            rows.append((cells[0], cells[1], re.findall(r"`(tests/[\w/]+\.py::\w+)`", cells[2])))
    return rows


@cache
def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def test_every_line_has_a_verdict_and_all_three_occur() -> None:
    assert {verdict for _, verdict, _ in lines()} == set(VERDICTS)
    assert len(lines()) > 40


@pytest.mark.parametrize(("what", "verdict", "tests"), lines())
def test_a_prevented_or_detected_line_names_tests_that_exist(what: str, verdict: str, tests: list[str]) -> None:
    assert (verdict == "open") == (not tests), what
    for name in tests:
        path, function = name.split("::")
        assert function in names_in(ROOT / path), name
