"""The wheel as a user gets it: installed in an empty environment outside the checkout, with the core only."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from fedgt._version import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LARGEST_MB = 250
"""Megabytes without bytecode. 245 were measured; scipy, numpy and scikit-learn are 200 of them (docs/dependencies.md)."""
CURRENT = f"{sys.version_info[0]}.{sys.version_info[1]}"
NOT_CORE = ("torch", "torchvision", "flwr", "ray", "matplotlib", "pandas")


def clean() -> dict[str, str]:
    """The surroundings of a user: nothing of this checkout."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV", "FEDGT"))}


def call(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False, env=clean())
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the sdist that it was made from."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


def interpreter(version: str) -> str | None:
    """A Python of that version on this machine: on the path, or installed by pyenv."""
    found = [shutil.which(f"python{version}"), *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    if version == CURRENT:
        found.insert(0, sys.executable)
    for one in filter(None, found):
        said = subprocess.run([str(one), "--version"], capture_output=True, text=True, check=False)
        if said.returncode == 0 and said.stdout.startswith(f"Python {version}."):
            return str(one)
    return None


def megabytes(packages: Path) -> dict[str, float]:
    """Size of each installed package without bytecode, the largest first."""
    sizes = {
        one.name: sum(file.stat().st_size for file in one.rglob("*") if file.is_file() and file.suffix != ".pyc") / 1e6
        for one in packages.iterdir()
        if one.is_dir()
    }
    return dict(sorted(sizes.items(), key=lambda pair: -pair[1]))


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_wheel_works_in_an_empty_environment_with_the_core_only(built: Path, tmp_path: Path, version: str) -> None:
    if version != CURRENT and "FEDGT_EVERY_PYTHON" not in os.environ:
        pytest.skip(f"Python {version} is looked at by `make dist`")
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    (wheel,) = built.glob("*.whl")
    call(python, "-m", "venv", "--without-pip", "env", cwd=tmp_path)
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        tmp_path / "env" / "bin" / "python",
    ]
    pip_install = (*pip, "install", "--quiet", "--no-compile")
    call(*pip_install, "--require-hashes", "-r", ROOT / "requirements" / "core.txt", cwd=tmp_path)
    call(*pip_install, "--no-deps", wheel, cwd=tmp_path)
    assert "No broken requirements" in call(*pip, "check", cwd=tmp_path)

    installed = {one["name"].lower() for one in json.loads(call(*pip, "list", "--format", "json", cwd=tmp_path))}
    assert "fedgt" in installed
    assert not installed & set(NOT_CORE)
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    sizes = megabytes(packages)
    assert sum(sizes.values()) < LARGEST_MB, sizes

    fedgt = tmp_path / "env" / "bin" / "fedgt"
    assert call(fedgt, "--version", cwd=tmp_path).strip() == f"fedgt {__version__}"
    assert "P(malicious)" in call(fedgt, "demo", "--out", "demo", cwd=tmp_path)
    call(fedgt, "report", "demo/fedgt", cwd=tmp_path)
    assert "<html" in (tmp_path / "demo" / "fedgt" / "report.html").read_text(encoding="utf-8")
    where = call(tmp_path / "env" / "bin" / "python", "-c", "import fedgt; print(fedgt.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path)


def test_the_archives_hold_what_they_should_and_no_data(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        inside = archive.namelist()
        (name,) = [one for one in inside if one.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    assert all(one.startswith(("fedgt/", "fedgt-")) for one in inside)
    assert {"fedgt/py.typed", "fedgt/report/templates/report.css"} <= set(inside)
    assert any(one.endswith("licenses/LICENSE") for one in inside)
    for line in (f"Version: {__version__}", "License-Expression: Apache-2.0", "Requires-Python: >=3.11"):
        assert line in metadata
    for extra in ("train", "flower", "plots"):
        assert f"Provides-Extra: {extra}" in metadata
    with tarfile.open(sdist) as packed:
        names = [one.partition("/")[2] for one in packed.getnames()]
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "src/fedgt/py.typed"} <= set(
        names
    )
    assert not [one for one in names if "ubyte" in one or one.startswith(("data", "runs", "docs/results", ".venv"))]
    assert wheel.stat().st_size < 1.5e6
    assert sdist.stat().st_size < 2e6  # the hashes of requirements are 0.4 MB of it
