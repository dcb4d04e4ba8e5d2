"""docs/architecture.md tells three stories; each is there in the source, call by call, and none goes up a layer."""

import re
from collections import Counter
from itertools import pairwise

import pytest

from call_graph import ROOT, calls, goes_up, path

PAGE = ROOT / "docs" / "architecture.md"
LINE = re.compile(r"^\| (?P<anew>\*)?.*\| `(?P<function>fedgt[\w.]*:[\w.]+)` \|$")


def steps() -> list[tuple[str, str]]:
    """(caller, callee) of every pair of lines of the stories."""
    found = []
    before = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        match = LINE.match(line)
        if match is None:
            before = ""
            continue
        if before and not match["anew"]:
            found.append((before, match["function"]))
        before = match["function"]
    return found


def test_there_are_three_stories() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(re.findall(r"^## From ", text, flags=re.M)) == 3
    assert len(steps()) >= 14


@pytest.mark.parametrize(("caller", "callee"), steps())
def test_every_step_of_a_story_is_a_way_of_calls_that_never_goes_up(caller: str, callee: str) -> None:
    way = path(caller, callee)
    assert way is not None, f"{caller} does not lead to {callee}"
    for here, there in pairwise(way):
        assert not goes_up(here, there), f"{here} -> {there} goes up"


def test_every_folder_of_the_page_exists_and_every_folder_of_the_source_is_on_it() -> None:
    named = {name for line in PAGE.read_text(encoding="utf-8").splitlines() for name in re.findall(r"`(\w+)/`", line)}
    there = {folder.name for folder in (ROOT / "src" / "fedgt").iterdir() if (folder / "__init__.py").is_file()}
    assert named == there


def test_a_call_to_a_higher_layer_and_a_function_that_is_not_there_are_noticed() -> None:
    assert goes_up("fedgt.evidence.decide:decode_graded", "fedgt.federation.round:screening_round")
    assert goes_up("fedgt.federation.sums:take", "fedgt.federation.run:FederationRun.hold")
    assert not goes_up("fedgt.federation.run:FederationRun.hold", "fedgt.federation.sums:take")
    assert path("fedgt.federation.sums:take", "fedgt.cli.run_command:run") is None
    with pytest.raises(LookupError):
        calls("fedgt.federation.run:FederationRun.nothing")


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks"])
def test_no_file_name_is_used_twice(folder: str) -> None:
    """A traceback names the file, and a search for its name should find one."""
    names = Counter(path.name for path in (ROOT / folder).rglob("*.py") if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []
