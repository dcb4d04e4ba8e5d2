"""The README says what is so: its program and the demo print what it shows, and its figures are counted from rows."""

import csv
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from doc_blocks import promised, run_page

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
CLIENTS = 15
DEFAULT = "nested-15x12-r4"


def test_its_program_prints_what_stands_below_it(tmp_path: Path) -> None:
    assert run_page(ROOT / "README.md", tmp_path) == 1


@pytest.mark.slow
def test_the_demo_ends_as_the_readme_says() -> None:
    block = re.search(r"^```console\n\$ make demo\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert block
    lines = block[1].splitlines()
    assert len(lines) == 2
    done = subprocess.run(
        [sys.executable, "-m", "fedgt", "demo"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=180,
    )
    for line in lines:
        assert promised(line, done.stdout), f"{line!r} is promised, printed was\n{done.stdout}"


def test_it_is_short_and_its_links_exist() -> None:
    assert len(TEXT.splitlines()) <= 90
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT) + re.findall(r'src="([^"]+)"', TEXT):
        assert target.startswith("http") or (ROOT / target).exists(), target
    assert (ROOT / "docs" / "images" / "report.png").stat().st_size <= 300_000


def test_a_tired_reader_can_read_it() -> None:
    measured = runpy.run_path(str(ROOT / "docs" / "measure_prose.py"))["measure"](TEXT)
    assert len(measured.sentences) > 20
    assert measured.ease >= 50
    assert [one for one, words in zip(measured.sentences, measured.words, strict=True) if words > 30] == []
    assert (measured.symbols, measured.no_zero, measured.long_lines) == ((), (), ())


def test_its_program_is_fifteen_lines_besides_the_imports() -> None:
    program = re.search(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert program
    lines = [line for line in program[1].splitlines() if line.strip()]
    assert sum(not line.startswith(("import", "from")) for line in lines) <= 15


Row = dict[str, str]


def first_test(cells: tuple[str, ...]) -> Callable[[Row], bool]:
    """One test in the first round on MNIST, clients alike, with the default design."""
    wanted = {"dataset": "mnist", "round": "1", "design": DEFAULT, "further": "none"}
    return lambda row: row["cell"] in cells and all(row[key] == value for key, value in wanted.items())


@cache
def runs_of_the_demo(attackers: int) -> frozenset[str]:
    """The digests of the demo's specification on seeds that chose nothing, with the default design and schedule."""
    made = runpy.run_path(str(ROOT / "benchmarks" / "demo_rows.py"))
    default = next(one for one in made["DESIGNS"] if one.name == DEFAULT)
    return frozenset(spec.digest for spec in made["planned"](default, "on-suspicion", attackers, made["SEEDS"]))


def the_demo(attackers: int) -> Callable[[Row], bool]:
    return lambda row: row["spec_hash"] in runs_of_the_demo(attackers)


def hospitals(attack: str) -> Callable[[Row], bool]:
    """First tests on features of Fed-ISIC2019 with three attackers, on the seeds that are reported."""
    wanted = {"regime": "hospitals", "malicious_clients": "3", "attack": attack}
    return lambda row: all(row[key] == value for key, value in wanted.items()) and 3520 <= int(row["seed"]) < 3570


def with_counts(row: Row) -> Row:
    """Rows that say for each client whether it attacks and is left out, with what these say in numbers."""
    if "left_out" not in row:
        return row
    pairs = list(zip(row["malicious"], row["left_out"], strict=True))
    return row | {
        "missed_clients": str(pairs.count(("1", "0"))),
        "falsely_left_out": str(pairs.count(("0", "1"))),
    }


COUNTED: dict[str, tuple[str, str, Callable[[Row], bool]]] = {
    "MNIST digits, clients alike; 1 to 7": (
        "graded.csv",
        "falsely_accused_clients",
        first_test(("flip", "permutation")),
    ),
    "MNIST digits, clients alike; none": ("graded.csv", "falsely_accused_clients", first_test(("null",))),
    "the demo, 80 digits a client; 5": ("demo_rows.csv", "falsely_excluded_clients", the_demo(5)),
    "the demo, 80 digits a client; 3": ("demo_rows.csv", "falsely_excluded_clients", the_demo(3)),
    "the demo, 80 digits a client; none": ("demo_rows.csv", "falsely_excluded_clients", the_demo(0)),
    "real hospitals, skin images, labels permuted; 3": (
        "calibration.csv",
        "falsely_left_out",
        hospitals("permutation"),
    ),
    "real hospitals, skin images, labels flipped; 3": (
        "calibration.csv",
        "falsely_left_out",
        hospitals("flip"),
    ),
}
"""What a line of the table is about -> the file with its rows, the column of those wrongly left out, and which rows."""


def table() -> list[list[str]]:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| ")
    ]
    return rows[1:]


@pytest.mark.filterwarnings("ignore:'click.utils:DeprecationWarning")  # by the import of typer
def test_every_figure_of_the_table_is_counted_from_rows() -> None:
    assert [f"{data}; {attackers}" for data, attackers, *_ in table()] == list(COUNTED)
    for (data, attackers, *printed), (name, wronged, wanted) in zip(table(), COUNTED.values(), strict=True):
        with (RESULTS / name).open(encoding="utf-8", newline="") as file:
            rows = [with_counts(row) for row in csv.DictReader(file) if wanted(row)]
        malicious = [int(row["malicious_clients"]) for row in rows]
        smallest, _, largest = (attackers if attackers != "none" else "0").partition(" to ")
        assert (min(malicious), max(malicious)) == (int(smallest), int(largest or smallest)), data
        missed = sum(int(row["missed_clients"]) for row in rows)
        wrong = sum(int(row[wronged]) for row in rows)
        honest = CLIENTS * len(rows) - sum(malicious)
        found = f"{missed:,} of {sum(malicious):,}" if sum(malicious) else ""
        assert printed == [f"{len(rows):,}", found, f"{wrong:,} of {honest:,}"], data
