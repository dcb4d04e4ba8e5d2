"""What the files around the code promise: one version everywhere, and what an installation brings along."""

import re
import runpy
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

from fedgt._version import __version__

ROOT = Path(__file__).parents[2]


def test_the_citation_names_this_version() -> None:
    (stated,) = re.findall(r'^version: "?([^"\n]+)"?$', (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE)
    assert stated == __version__


def test_the_changelog_has_a_section_for_this_version_and_one_for_the_next() -> None:
    sections = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert sections[0] == "Unreleased"
    if "dev" not in __version__:
        assert sections[1] == __version__


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="written for Python 3.11; other versions need other packages"
)
@pytest.mark.skipif(
    "nvflare" not in (metadata("fedgt").get_all("Provides-Extra") or []),
    reason="fedgt was installed here before it had its extra nvflare: make check",
)
def test_the_table_of_dependencies_is_that_of_what_is_installed() -> None:
    written = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    table = runpy.run_path(str(ROOT / "docs" / "generate_dependencies.py"))["table"]()
    assert written == table, "docs/dependencies.md is out of date: run `make reference`"
    assert "| not locked |" not in table
