"""The documentation says what is so: its programs run, and what is generated from the code is up to date."""

import csv
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from doc_blocks import blocks, promised, run_page
from fedgt.experiment import make_spec, run_into
from fedgt.report import write_report
from fedgt.report.schema import Report
from report_lab import decided_result, graded_result, spec_of, untested_result, write_folder
from slow_cases import slow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.slow
def test_every_command_and_program_of_the_tutorial_runs_and_prints_what_it_promises(tmp_path: Path) -> None:
    assert run_page(DOCS / "tutorial.md", tmp_path) >= 8
    assert (tmp_path / "runs" / "first" / "report.html").is_file()


@pytest.mark.parametrize("page", [*slow("howto/own-model.md", "howto/policies.md", "privacy.md"), "decoding.md"])
def test_the_programs_of_the_other_pages_run(page: str, tmp_path: Path) -> None:
    assert run_page(DOCS / page, tmp_path) >= 1


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("```sh\nfalse\n```\n", "exit code 1 instead of 0"),
        ("```sh exit=2\ntrue\n```\n", "exit code 0 instead of 2"),
        ("```sh\necho one two\n```\n\n```text\ntwo one\n```\n", "'two one' is promised"),
        ("```python\nx = 1\n```\n\n```python\nprint(x + y)\n```\n", "NameError"),
    ],
)
def test_a_page_whose_program_fails_or_prints_something_else_is_noticed(
    tmp_path: Path, page: str, problem: str
) -> None:
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    with pytest.raises(AssertionError, match=problem):
        run_page(tmp_path / "page.md", tmp_path)


def test_ones_own_model_takes_25_lines_beside_data_and_training_and_the_loop_five() -> None:
    (program,) = (one for one in blocks((DOCS / "tutorial.md").read_text()) if one.title == "own_model.py")
    lines = [line for line in program.text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("from fedgt")]
    ours += lines[next(number for number, one in enumerate(lines) if one.startswith("# The run")) + 1 :]
    assert 15 <= len(ours) <= 25
    begin = next(number for number, line in enumerate(ours) if line.startswith("for step in run.rounds("))
    end = next(number for number in range(begin + 1, len(ours)) if not ours[number].startswith(" "))
    assert end - begin <= 5


def test_dots_match_inside_one_line_only() -> None:
    assert promised("a ... d", "x\na   b c d\n")
    assert not promised("a ... d", "a b\nc d\n")


def test_a_block_knows_its_file_and_exit_code() -> None:
    first, second = blocks('```toml title="a.toml"\nx = 1\n```\n\n```sh exit=2\nls\n```\n')
    assert (first.title, first.text, first.code) == ("a.toml", "x = 1\n", 0)
    assert (second.title, second.code, second.line) == (None, 2, 5)


@pytest.mark.parametrize("width", ["40", *slow("200")])
def test_the_reference_is_that_of_this_version_whatever_the_terminal(tmp_path: Path, width: str) -> None:
    """docs/reference, docs/specification.md and the schemas are written by `make reference`."""
    subprocess.run(
        [sys.executable, DOCS / "generate_reference.py", tmp_path], env=os.environ | {"COLUMNS": width}, check=True
    )
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    for name in sorted(written):
        said, now = ((folder / name).read_text(encoding="utf-8") for folder in (DOCS, tmp_path))
        assert said == now, f"{name} is out of date: run `make reference`"
    there = {path.relative_to(DOCS).as_posix() for path in (DOCS / "reference").rglob("*.md")}
    assert there - written == {"reference/schemas.md"}
    assert len(written) > 20


def test_the_command_line_reference_has_the_help_of_arguments() -> None:
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert "| `RUN_DIR` | path | must be given | A folder" in page


def test_every_public_name_is_in_the_interface_reference() -> None:
    import fedgt

    overview = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    for name in set(fedgt.__all__) - {"__version__"}:
        assert f"| [`{name}`](api/fedgt." in overview, name


def report_json(folder: Path) -> str:
    return (folder / "report.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["one bit a group", "deployed", "all positive", "graded", "no test"])
def test_reports_are_what_their_schema_says(tmp_path: Path, kind: str) -> None:
    spec = spec_of(15)
    results: dict[str, dict[str, Any]] = {
        "one bit a group": decided_result(spec),
        "deployed": decided_result(spec, simulation=False),
        "all positive": decided_result(spec, outcomes="1" * 8),
        "graded": graded_result(spec),
        "no test": untested_result(spec),
    }
    write_report(write_folder(tmp_path, results[kind], spec))
    report = Report.model_validate_json(report_json(tmp_path), strict=True)
    assert report.simulation == (kind in ("one bit a group", "all positive", "graded", "no test"))


@pytest.mark.parametrize("screen", [*slow("graded"), "clusters"])
def test_the_report_of_a_real_run_is_what_its_schema_says(tmp_path: Path, screen: str) -> None:
    content = {
        "privacy": 4,
        "federation": {"rounds": 2},
        "attack": {"malicious": 3},
        "screen": {"kind": screen},
        "decode": {"on_undecidable": "keep-all"},
        "faults": [{"client": 3, "round": 2}],
    }
    run_into(make_spec(content), tmp_path)
    write_report(tmp_path)
    report = Report.model_validate_json(report_json(tmp_path), strict=True)
    assert report.test is not None
    assert report.test.binary == (screen == "clusters")


def test_a_report_with_another_field_or_type_is_refused(tmp_path: Path) -> None:
    spec = spec_of(15)
    write_report(write_folder(tmp_path, graded_result(spec), spec))
    report = json.loads(report_json(tmp_path))
    for broken in (report | {"more": 1}, report | {"limits": "none"}, report | {"schema_version": 2}):
        with pytest.raises(ValueError, match="validation error"):
            Report.model_validate_json(json.dumps(broken), strict=True)


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DOCS))
    return runpy.run_path(str(DOCS / "check_site.py"))["foreign"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.html", '<script src="https://cdn.example.org/x.js"></script>'),
        ("a.html", '<link rel="stylesheet" href="//fonts.example.org/css">'),
        ("a.html", '<link rel="preconnect" href="https://fonts.example.org" crossorigin>'),
        ("a.html", '<img src="logo.png" srcset="https://example.org/a.png 2x">'),
        ("a.html", '<p style="background: url(https://example.org/a.png)">'),
        ("a.html", "<style>@import 'https://example.org/a.css';</style>"),
        ("a.html", '<pre class="mermaid">graph LR</pre>'),
        ("a.css", "@font-face { src: url(https://fonts.example.org/a.woff2) }"),
        ("a.js", 'load("https://unpkg.com/other@1/index.js")'),
    ],
)
def test_a_site_that_loads_from_elsewhere_is_refused(tmp_path: Path, foreign: Any, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert len(list(foreign(tmp_path))) == 1


def test_links_to_click_and_own_files_are_fine(tmp_path: Path, foreign: Any) -> None:
    page = (
        '<a href="https://example.org">there</a><script src="x.js"></script><link rel="canonical" href="https://e.org">'
    )
    (tmp_path / "a.html").write_text(page, encoding="utf-8")
    (tmp_path / "x.css").write_text(
        "a { background: url(data:image/svg+xml;utf8,<svg xmlns='http://www.w3.org/2000/svg'>) }"
    )
    assert list(foreign(tmp_path)) == []


def installs_by_name(text: str) -> list[str]:
    """Lines that would fetch fedgt from a package index, where nobody of this project owns the name."""
    found = []
    for line in re.findall(r"pip install[^`\n]*", text):
        command = re.split(r" in | with |#", line)[0]
        if any(re.fullmatch(r"fedgt(?:[\[=<>~@!].*)?", word.strip("'\"(),:;.")) for word in command.split()[2:]):
            found.append(line)
    return found


def test_nothing_tells_to_install_fedgt_by_its_name_from_an_index() -> None:
    folders = ("src", "docs", "examples", "tests", "benchmarks")
    written = [*ROOT.glob("*.md"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    texts = [path for path in written if path.suffix in (".py", ".md", ".toml", ".j2")]
    assert len(texts) > 200
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for path in texts
        if path != Path(__file__) and (lines := installs_by_name(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("line", "by_name"),
    [
        ("pip install fedgt", True),
        ("pip install 'fedgt[flower]' -c flower.txt", True),
        ("pip install --quiet fedgt==0.1.0", True),
        ("missing: pip install 'fedgt[plots]'.", True),
        ("pip install '.[plots]' in a checkout of fedgt", False),
        ("pip install dist/fedgt-0.1.0-py3-none-any.whl", False),
        ("pip install ../.. torch      # in a checkout of fedgt", False),
    ],
)
def test_a_line_that_installs_from_an_index_is_told_from_one_that_does_not(line: str, by_name: bool) -> None:
    assert bool(installs_by_name(line)) == by_name


def test_every_cell_of_the_comparison_names_its_source() -> None:
    """The table in docs/comparison.md has a numbered source for each cell that claims something."""
    text = (DOCS / "comparison.md").read_text(encoding="utf-8")
    table, _, sources = text.partition("## Sources")
    listed = set(re.findall(r"^- \*\*(\w+)\*\*", sources, re.MULTILINE))
    cells = [cell.strip() for line in table.splitlines() if line.startswith("| **") for cell in line.split("|")[2:-1]]
    assert len(cells) > 40
    for cell in cells:
        marks = re.findall(r"\[(\w+)\]", cell)
        assert cell == "not checked" or marks, cell
        assert set(marks) <= listed, cell


def test_the_symbol_table_speaks_of_names_that_the_code_has() -> None:
    words = set()
    for path in (ROOT / "src").rglob("*.py"):
        words |= set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    rows = [line for line in (DOCS / "symbols.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    named = [code for row in rows for code in re.findall(r"`([^`]+)`", row.split("|")[2])]
    assert len(named) > 40
    for code in set(named) - {"1101?000"}:
        assert set(re.findall(r"[A-Za-z_]\w+", code)) <= words, code


def test_the_table_of_the_disclosed_share_is_that_of_its_rows() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "disclosed_share.py"))
    assert script["table"]() in (DOCS / "disclosed-share.md").read_text(encoding="utf-8")
    assert (DOCS / "images" / "disclosed-share.png").stat().st_size <= 200_000


def test_where_the_disclosed_share_is_said_to_be_near_what_is_recovered_it_is() -> None:
    found: dict[tuple[str, ...], list[float]] = {}
    with (DOCS / "results" / "disclosed_share.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            cell = (row["data"], row["model"], row["partition"], row["opened"])
            found.setdefault(cell, []).append(float(row["recovered_all"]) - float(row["predicted_mean"]))
    away = {cell: sum(differences) / len(differences) for cell, differences in found.items()}
    assert {cell[:2] for cell in away} == {
        (d, m) for d in ("mnist", "digits", "breast cancer") for m in ("one layer", "two layers")
    }
    for (data, _, partition, _), difference in away.items():
        limit = 0.09 if data != "breast cancer" else 0.04 if partition == "iid" else 0.135
        assert abs(difference) <= limit
