"""What `fedgt new` writes runs as it is: in this process, and on each engine to the report."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from command_line import called
from fedgt import ClientEndpoint, FederationRun, Grouping, LocalTransport, ScreenSettings, Validation
from fedgt.errors import DesignError, RunHaltedError, SpecError
from fedgt.planning import read_plan
from fedgt.report import audit
from fedgt.scaffold import FRAMEWORKS, Answers, Engine, Framework, write_app
from fedgt.secagg import Credentials, Identity, Registry, read_policy, terms_in
from site_of_app import LocalSite, end_processes
from slow_cases import slow

SITES = tuple(f"site-{number}" for number in range(1, 11))
ENGINES: tuple[Engine, ...] = get_args(Engine)


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
@pytest.mark.parametrize("count", [8, *slow(10)])
def test_the_broken_site_of_the_rehearsal_is_named_whatever_the_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: Framework, count: int
) -> None:
    if framework == "torch" and find_spec("torch") is None:
        pytest.skip("needs torch: make test-torch")
    write_app(tmp_path, answers(framework=framework, sites=SITES[:count]), "flower")
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
        folder=tmp_path / "run",  # what the test compared is kept, whatever evidence it led to
    )
    assert list(run.rounds(model.first("first")))[-1].excluded == (SITES[count // 2],)
    assert audit(tmp_path / "run")["recheck"]["status"] == "same"


def test_each_run_begins_at_a_model_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_app(tmp_path, answers(), "flower")
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    for name in ("consortium", "consortium.model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    model = importlib.import_module("consortium.model")
    one, again, other = (model.first(run)["weight"] for run in ("winter", "winter", "spring"))
    assert np.array_equal(one, again)
    assert np.linalg.norm(one - other) > 1


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("further", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_sites_hold_the_run_to_the_terms_that_they_have_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, further: bool
) -> None:
    """With `further_tests = false` they refuse all groups but the plan's; else they allow any."""
    write_app(tmp_path, answers(), "flower")
    executed(tmp_path, sys.executable, "share.py")
    settings = tmp_path / "federation.toml"
    settings.write_text(settings.read_text().replace("further_tests = true", f"further_tests = {str(further).lower()}"))
    executed(tmp_path, sys.executable, "make_terms.py", "first-terms.json")
    assert not (tmp_path / "terms.json").exists()
    told = tomllib.loads(settings.read_text())
    terms, plan = terms_in(tmp_path / "first-terms.json"), read_plan(tmp_path / "plan.json")
    assert terms.members_only
    assert terms.weights == told["samples"]

    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    for name in ("consortium", "consortium.model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    model = importlib.import_module("consortium.model")
    with np.load(tmp_path / "validation.npz") as data:
        images, labels = data["images"], data["labels"]
    keys = {name: Identity.generate(name) for name in ("server", *told["samples"])}
    registry = Registry(server=keys["server"].public, clients={site: keys[site].public for site in told["samples"]})

    def run(grouping: Any) -> FederationRun:
        sites = {
            site: ClientEndpoint(
                site,
                LocalSite(model, tmp_path / f"{site}.npz"),
                policy=read_policy(tmp_path / "policy.toml"),
                terms=terms,
                credentials=Credentials(identity=keys[site], registry=registry),
            )
            for site in told["samples"]
        }
        return FederationRun(
            LocalTransport({site: endpoint.handle for site, endpoint in sites.items()}),
            privacy=told["privacy"],
            samples=told["samples"],
            grouping=grouping,
            validation=Validation(
                logits=lambda parameters: model.logits(parameters, images),
                labels=labels,
                inputs=lambda parameters: model.seen(parameters, images),
            ),
            screen=ScreenSettings(layer=model.LAYER, most_rounds=3 if further else 1),
            rounds=told["rounds"],
            credentials=Credentials(identity=keys["server"], registry=registry),
            name=told["name"],
        )

    assert list(run(plan).rounds(model.first("first")))[-1].excluded == (SITES[4],)
    others = Grouping.of(plan.assignment, tuple(reversed(plan.members or ())))
    if further:
        assert list(run(others).rounds(model.first("first")))[-1].excluded == (SITES[4],)
    else:
        with pytest.raises(RunHaltedError, match=r"8 of 8 clients left for the same reason; .*the design changed"):
            list(run(others).rounds(model.first("first")))


@pytest.mark.slow
def test_terms_are_not_made_before_the_numbers_of_samples_are_there(tmp_path: Path) -> None:
    write_app(tmp_path, answers(), "flower")
    done = subprocess.run([sys.executable, "make_terms.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "put the true numbers there first" in done.stderr
    assert "site-1, site-2" in done.stderr
    assert not (tmp_path / "terms.json").exists()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_policy_of_the_app_is_the_careful_one_of_the_guide(tmp_path: Path, engine: Engine) -> None:
    write_app(tmp_path, answers(privacy=3), engine)
    guide = Path(__file__).parents[2] / "docs" / "howto" / "policies.md"
    block = re.search(r'^```toml title="policy.toml"\n(.*?)^```', guide.read_text(), re.MULTILINE | re.DOTALL)
    assert block
    assert tomllib.loads((tmp_path / "policy.toml").read_text()) == tomllib.loads(block[1]) | {"privacy": 3}
    read_policy(tmp_path / "policy.toml")


PROGRAMS = {"flower": ("client_app.py", "server_app.py"), "nvflare": ("site.py", "server.py")}
"""What only one engine has; everything else in the package of the app is the same for all."""


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_apps_of_all_engines_differ_only_in_what_carries_the_messages(tmp_path: Path, framework: Framework) -> None:
    found = {}
    for engine in ENGINES:
        write_app(tmp_path / engine, answers(framework=framework), engine)
        package = tmp_path / engine / "app" / "consortium"
        found[engine] = {path.name: path.read_text() for path in package.iterdir()}
        for name in ("federation.toml", "plan.json", "policy.toml", "make_terms.py", "share.py"):
            found[engine][name] = (tmp_path / engine / name).read_text()
        for name in PROGRAMS[engine]:
            del found[engine][name]
    one, *others = found.values()
    assert one.keys() >= {"model.py", "data.py", "federation.py", "__init__.py"}
    assert ("import torch" in one["model.py"]) == (framework == "torch")
    assert all(other == one for other in others)
    assert re.search("flower|flwr|nvflare", "".join(one.values())) is None


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("count", [8, 10], ids=["no absence", "one absence"])
def test_every_program_of_the_app_compiles_and_every_script_parses(tmp_path: Path, engine: Engine, count: int) -> None:
    write_app(tmp_path, answers(sites=SITES[:count]), engine)
    programs = list(tmp_path.rglob("*.py"))
    assert len(programs) >= 8
    for program in programs:
        compile(program.read_text(), str(program), "exec")
    for script in tmp_path.glob("*.sh"):
        executed(tmp_path, "sh", "-n", script.name)
    readme = (tmp_path / "README.md").read_text()
    package = tmp_path / "app" / "consortium"
    named = [path.name for path in tmp_path.iterdir() if path.is_file() and path.name != "README.md"]
    named += [f"app/consortium/{path.name}" for path in package.iterdir() if path.name != "__init__.py"]
    assert [name for name in named if f"`{name}`" not in readme] == []
    steps = re.findall(r"^(\d+)\. ", readme, re.MULTILINE)
    assert steps == [str(number) for number in range(1, len(steps) + 1)]
    assert len(steps) >= 8
    assert "{" + "{" not in "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_is_overwritten_and_nothing_is_left_where_no_groups_keep_the_promise(
    tmp_path: Path, engine: Engine
) -> None:
    write_app(tmp_path / "app", answers(), engine)
    before = (tmp_path / "app" / "plan.json").read_bytes()
    with pytest.raises(SpecError, match="holds something"):
        write_app(tmp_path / "app", answers(rounds=9), engine)
    assert (tmp_path / "app" / "plan.json").read_bytes() == before
    with pytest.raises(DesignError):
        write_app(tmp_path / "few", answers(sites=SITES[:4], privacy=4), engine)
    assert not (tmp_path / "few").exists()
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match="cannot be written"):
        write_app(tmp_path / "file" / "app", answers(), engine)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("flare-app", "app", "--sites", "8"), "known are flower-app, nvflare-app"),
        (("nvflare-app", "app"), "--sites is needed"),
        (("nvflare-app", "app", "--sites", "localhost,a,b,c,d,e,f,g"), "a file of the app has this name"),
        (("nvflare-app", "app", "--sites", "8", "--framework", "jax"), "known are scikit-learn, torch"),
    ],
)
def test_what_cannot_be_written_is_an_error_that_says_what_can(
    tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    done = called("new", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert told in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


TOWNS = ("aarhus", "bergen", "cadiz", "delft", "espoo", "faro", "ghent", "hull")
NAMED = re.compile("^round 2, (test|training): excluded espoo$", re.MULTILINE)


def rehearsed(folder: Path, engine: Engine) -> str:
    """What the rehearsal of a new app prints, which has ended with a report."""
    executed(folder, "fedgt", "new", f"{engine}-app", "app", "--sites", ",".join(TOWNS), "--privacy", "3")
    app = folder / "app"
    try:
        told = executed(app, "sh", "rehearse.sh", seconds=900)
    finally:
        end_processes(app)
    result = json.loads((app / "runs" / "first" / "result.json").read_text())
    assert result["status"] == "finished"
    assert (app / "runs" / "first" / "report.html").is_file()
    assert "8, 5 are needed" in (app / "terms.log").read_text()
    assert not list(app.glob("*.pid")), "whatever the rehearsal started is ended"
    return told


@pytest.mark.slow
@pytest.mark.skipif(
    any(shutil.which(command) is None for command in ("flower-superlink", "openssl", "ssh-keygen")),
    reason="needs flower-superlink, openssl and ssh-keygen on the PATH",
)
def test_the_rehearsal_over_tls_ends_with_the_report(tmp_path: Path) -> None:
    assert NAMED.search(rehearsed(tmp_path, "flower"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvflare") is None, reason="needs nvflare on the PATH")
def test_the_rehearsal_on_flare_ends_with_the_report(tmp_path: Path) -> None:
    assert NAMED.search(rehearsed(tmp_path, "nvflare"))
