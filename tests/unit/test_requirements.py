"""The files of requirements/: each package has one version and its hashes, and `make` downloads nothing that has none."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CORE: list[str] = PROJECT["project"]["dependencies"]
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
GROUPS: dict[str, list[str]] = PROJECT["dependency-groups"]
ASKED = {
    "build": [*PROJECT["build-system"]["requires"], *GROUPS["build"]],
    "core": CORE,
    "flower": CORE + EXTRAS["flower"],
    "nvflare": CORE + EXTRAS["nvflare"],
    "dev": CORE + EXTRAS["flower"] + EXTRAS["nvflare"] + EXTRAS["plots"] + EXTRAS["dev"],
    "engines": GROUPS["engines"],
    "docs": CORE + EXTRAS["docs"],
}
"""File -> what pyproject.toml wants in it."""
ENTRY = re.compile(
    r"(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?P<marker> ; [^\\#]+)?(?P<hashes>( --hash=sha256:[0-9a-f]{64})+)"
)


def entries(file: str) -> dict[str, str]:
    """Package -> version, of a file in which every entry has hashes."""
    text = re.sub(r"^#.*\n", "", (FOLDER / f"{file}.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: dict[str, str] = {}
    for line in re.sub(r" \\\n +", " ", text).splitlines():
        entry = ENTRY.fullmatch(line)
        assert entry, f"{file}.txt has an entry that is no version with hashes: {line[:80]}"
        found[canonicalize_name(entry["name"])] = entry["version"]
    return found


def test_every_file_is_known_here() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{file}.txt" for file in ASKED}


@pytest.mark.parametrize("file", ASKED)
def test_a_file_has_what_the_project_asks_for_in_a_version_that_it_allows(file: str) -> None:
    pinned = entries(file)
    for text in ASKED[file]:
        asked = Requirement(text)
        if asked.name == "fedgt":
            continue
        version = pinned.get(canonicalize_name(asked.name), "none")
        assert asked.specifier.contains(version, prereleases=True), f"{file}.txt has {version} for {text}: make lock"


def test_a_package_has_one_version_in_all_files() -> None:
    versions: dict[str, set[str]] = {}
    for file in ASKED:
        for name, version in entries(file).items():
            versions.setdefault(name, set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_a_file_brings_no_framework_that_its_reader_did_not_ask_for() -> None:
    frameworks = {"flwr", "nvflare", "ray", "torch"}
    assert {file: frameworks & entries(file).keys() for file in ASKED} == {
        "build": set(),
        "core": set(),
        "flower": {"flwr"},
        "nvflare": {"nvflare"},
        "dev": {"flwr", "nvflare"},
        "engines": {"flwr", "ray"},
        "docs": set(),
    }


def test_make_installs_by_hash_or_without_dependencies_but_for_torch() -> None:
    """Without isolation, too: what pip downloads for an isolated build has no hash."""
    lines = [line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "$(PIP) install" in line]
    assert len(lines) >= 5
    for line in lines:
        by_hash = "--require-hashes" in line and ("--no-build-isolation" in line or line.endswith("/build.txt"))
        this_checkout = line.endswith("--no-deps --no-build-isolation --editable .")
        assert by_hash or this_checkout or line.endswith("'torch>=2.6'"), line
