"""The page about speed shows what was measured last, and says what was reached as the figures do."""

import csv
import math
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
PAGE = (RESULTS / "speed.md").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "speed.py"))


def rows_of(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_has_the_last_row_of_every_measurement(script: dict[str, Any]) -> None:
    last = {row["name"]: row for row in rows_of("speed.csv")}
    assert list(last) == [row.name for row in script["ROWS"]]
    begin = PAGE.index(script["HEAD"].splitlines()[0]) + 2
    assert PAGE[begin : begin + len(last)] == [script["as_line"](row) for row in last.values()]
    assert not PAGE[begin + len(last)]


def test_reached_is_what_the_figures_say(script: dict[str, Any]) -> None:
    goals = {row.name: row for row in script["ROWS"]}
    for row in rows_of("speed.csv"):
        goal = goals[row["name"]]
        measured = float(row["ratio"] if goal.times else row["measured"])
        expected = "" if math.isinf(goal.most) else "yes" if measured <= goal.most else "no"
        assert row["reached"] == expected, row
