"""What `fedgt new` writes runs as it is: in this process, and over SuperNodes with TLS to the report."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt import FederationRun, ScreenSettings, Validation
from fedgt.errors import DesignError, SpecError
from fedgt.planning import read_plan
from fedgt.scaffold import FRAMEWORKS, Answers, Framework, write_flower_app
from site_of_app import LocalSite, end_processes

SITES = tuple(f"site-{number}" for number in range(1, 11))


def answers(**changes: Any) -> Answers:
    told: dict[str, Any] = {"sites": SITES[:8], "privacy": 3, "framework": "scikit-learn", "rounds": 2, "run": "first"}
    return Answers(**told | changes)


def executed(folder: Path, *command: str, seconds: float = 60) -> str:
    """What a command in the folder prints, with the commands of this environment first on the PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds,
        env=os.environ | {"PATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("count", [8, 10])
def test_the_broken_site_of_the_rehearsal_is_named_whatever_the_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: Framework, count: int
) -> None:
    if framework == "torch" and find_spec("torch") is None:
        pytest.skip("needs torch: make test-torch")
    write_flower_app(tmp_path, answers(framework=framework, sites=SITES[:count]))
    executed(tmp_path, sys.executable, "share.py")
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    for name in ("consortium", "consortium.model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    model = importlib.import_module("consortium.model")
    told = tomllib.loads((tmp_path / "federation.toml").read_text())
    with np.load(tmp_path / "validation.npz") as data:
        images, labels = data["images"], data["labels"]
    run = FederationRun(
        {site: LocalSite(model, tmp_path / f"{site}.npz") for site in told["samples"]},
        privacy=told["privacy"],
        samples=told["samples"],
        grouping=read_plan(tmp_path / "plan.json"),
        validation=Validation(
            logits=lambda parameters: model.logits(parameters, images),
            labels=labels,
            inputs=lambda parameters: model.seen(parameters, images),
        ),
        screen=ScreenSettings(layer=model.LAYER),
        rounds=told["rounds"],
    )
    assert list(run.rounds(model.first("first")))[-1].excluded == (SITES[count // 2],)


def test_each_run_begins_at_a_model_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flower_app(tmp_path, answers())
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    for name in ("consortium", "consortium.model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    model = importlib.import_module("consortium.model")
    one, again, other = (model.first(run)["weight"] for run in ("winter", "winter", "spring"))
    assert np.array_equal(one, again)
    assert np.linalg.norm(one - other) > 1


def test_every_program_of_the_app_compiles_and_every_script_parses(tmp_path: Path) -> None:
    write_flower_app(tmp_path, answers())
    assert len(list(tmp_path.rglob("*.py"))) == 6
    for program in tmp_path.rglob("*.py"):
        compile(program.read_text(), str(program), "exec")
    for script in tmp_path.glob("*.sh"):
        executed(tmp_path, "sh", "-n", script.name)
    readme = (tmp_path / "README.md").read_text()
    for name in ("rehearse.sh", "certificates.sh", "superlink.sh", "supernode.sh", "federation.toml", "policy.toml"):
        assert name in readme
        assert (tmp_path / name).is_file()
    assert "{" + "{" not in "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())


def test_nothing_is_overwritten_and_nothing_is_left_where_no_groups_keep_the_promise(tmp_path: Path) -> None:
    write_flower_app(tmp_path / "app", answers())
    before = (tmp_path / "app" / "plan.json").read_bytes()
    with pytest.raises(SpecError, match="holds something"):
        write_flower_app(tmp_path / "app", answers(rounds=9))
    assert (tmp_path / "app" / "plan.json").read_bytes() == before
    with pytest.raises(DesignError):
        write_flower_app(tmp_path / "few", answers(sites=SITES[:4], privacy=4))
    assert not (tmp_path / "few").exists()
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match="cannot be written"):
        write_flower_app(tmp_path / "file" / "app", answers())


@pytest.mark.slow
@pytest.mark.skipif(
    any(shutil.which(command) is None for command in ("flower-superlink", "openssl", "ssh-keygen")),
    reason="needs flower-superlink, openssl and ssh-keygen on the PATH",
)
def test_the_rehearsal_over_tls_ends_with_the_report(tmp_path: Path) -> None:
    sites = ("aarhus", "bergen", "cadiz", "delft", "espoo", "faro", "ghent", "hull")
    executed(tmp_path, "fedgt", "new", "flower-app", "app", "--sites", ",".join(sites), "--privacy", "3")
    folder = tmp_path / "app"
    try:
        told = executed(folder, "sh", "rehearse.sh", seconds=540)
    finally:
        end_processes(folder)
    assert "round 2, training: excluded espoo" in told
    result = json.loads((folder / "runs" / "first" / "result.json").read_text())
    assert result["status"] == "finished"
    assert (folder / "runs" / "first" / "report.html").is_file()
    assert "8, 5 are needed" in (folder / "terms.log").read_text()
    assert not list(folder.glob("*.pid")), "whatever the rehearsal started is ended"
