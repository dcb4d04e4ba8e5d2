"""Faults on a real SuperLink with SuperNodes. What is the same on every engine: `tests/contract/test_engine_contract.py`."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

import flower_app as app
from fedgt.flower import InProcessGrid
from flower_grid import agreed_at, opened_in, over
from flower_machines import Deployment, free_ports, write_app, write_consortium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("flower-superlink") is None, reason="needs flower-superlink on the PATH"),
]

CONFIG: dict[str, Any] = {
    "clients": 5,
    "privacy": 2,
    "rounds": 2,
    "timeout": 120.0,
    "wait": 120.0,
    "malicious": "4",
    "keys": "",
}
NODES: list[dict[str, Any]] = [{"partition-id": number} for number in range(5)]
SILENT = {"slow-client": 3, "slow-round": 1, "slow-seconds": 600.0}
SAME = ("round", "purpose", "model", "verdicts", "excluded", "members", "halt", "bytes_up", "bytes_down")


def in_process() -> list[dict[str, Any]]:
    grid = InProcessGrid(app.client, dict(enumerate(NODES, start=10)), CONFIG)
    transport, run = over(grid, CONFIG)
    return [app.row(step, halt, transport) for step, halt in app.stopping(run, app.initial())]


def shared(rows: list[dict[str, Any]], *but: str) -> list[dict[str, Any]]:
    return [{key: as_json(row[key]) for key in SAME if key not in but} for row in rows]


def as_json(value: Any) -> Any:
    return [as_json(one) for one in value] if isinstance(value, list | tuple) else value


def played(deployment: Deployment, folder: Path, **changes: Any) -> list[dict[str, Any]]:
    out = folder / f"out-{time.monotonic_ns()}.json"
    source = write_app(folder / f"app-{time.monotonic_ns()}", CONFIG | {"out": str(out)} | changes)
    return deployment.rows(deployment.run(source), out, 500)


def test_supernodes_give_the_models_of_the_grid_in_process_and_survive_faults(tmp_path: Path) -> None:
    """One deployment for all of it, because each costs a minute: an undisturbed run, then one with a SuperNode killed in
    the masked stage and another one that joins late, then one with a SuperNode that falls silent, a second one that claims
    the identity of another, and one with a name that nobody knows.
    """
    with Deployment(tmp_path / "site", NODES) as deployment:
        assert shared(played(deployment, tmp_path)) == shared(in_process())

        deployment.kill("node-4")
        out = tmp_path / "faults.json"
        config = {"out": str(out), "rounds": 3, "wait": 5.0, "tested": False, "timeout": 60.0}
        slow = {"slow-client": 2, "slow-round": 2, "slow-seconds": 600.0}
        run = deployment.run(write_app(tmp_path / "faults", CONFIG | config | slow))
        deployment.rows(run, out, 300, rounds=1)
        deployment.start_node(4)
        trained = deployment.log("node-2").count("Receiving: train.fedgt_masked")
        until(lambda: deployment.log("node-2").count("Receiving: train.fedgt_masked") > trained, 120)
        deployment.kill("node-2")
        first, second, third = deployment.rows(run, out, 300)

        deployment.node_configs += [NODES[4], {"partition-id": 9}]
        deployment.ports += free_ports(2)
        for number in (2, 5, 6):
            deployment.start_node(number)
        until(lambda: all("SuperNode ID" in deployment.log(f"node-{number}") for number in (2, 5, 6)), 60)
        silent = played(deployment, tmp_path, tested=False, timeout=40.0, wait=60.0, **SILENT)
    assert "client-2" in first["members"]
    ((purpose, status, members, dropped),) = second["status"]
    assert (purpose, status) == ("training", "open")
    assert "client-2" not in members
    assert "client-2" in dropped
    assert "client-2" not in third["members"] or "client-2" in third["status"][0][3]
    assert third["status"][0][1] == "open"
    assert "client-4" in third["members"]
    reasons = list(silent[0]["refused"].values())
    assert sum("all say that they are client 'client-4'" in reason for reason in reasons) == 2
    assert sum("client 'client-9' is not registered for this run" in reason for reason in reasons) == 1
    assert silent[0]["members"] == ["client-0", "client-1", "client-2", "client-3"]
    assert all("no reply within 40 s" in dropped["client-3"] for _, _, _, dropped in silent[0]["status"] if dropped)
    assert any(dropped for _, _, _, dropped in silent[0]["status"])
    assert all("client-3" not in members for _, status, members, _ in silent[0]["status"] if status == "open")
    assert silent[0]["seconds"]["masked"] < 60
    assert silent[1]["status"][0][1] == "open"


def test_a_superlink_that_is_killed_and_started_again_goes_on_with_the_run_and_with_all_of_its_sites(
    tmp_path: Path,
) -> None:
    """The round that was under way is lost. Client 2 is still training for it when the run goes on, and a SuperNode works on
    one message at a time: it must be waited for, because the groups of the test cannot be compared without it.
    """
    keys, folder, out = tmp_path / "keys", tmp_path / "run", tmp_path / "out.json"
    slow = {"slow-client": 2, "slow-seconds": 150.0, "wait": 20.0, "patience": 20.0, "timeout": 240.0}
    source = write_app(tmp_path / "app", CONFIG | slow | {"out": str(out), "keys": str(keys), "folder": str(folder)})
    with Deployment(tmp_path / "site", write_consortium(keys, 5), secure=True, database=True) as deployment:
        until(lambda: all("SuperNode ID" in deployment.log(f"node-{number}") for number in range(5)), 120)
        deployment.run(source)
        until(lambda: deployment.log("node-2").count("Start `flwr-clientapp`") == 3, 300)  # hello, begin, masked
        deployment.kill("link")
        deployment.start_link()
        until(lambda: watched(folder) == (1, "interrupted"), 180)  # the server app has let go of the folder
        rows = deployment.rows(deployment.run(source), out, 500)
    assert [row["round"] for row in rows] == [2, 3]
    assert rows[0]["members"] == ["client-0", "client-1", "client-2", "client-3", "client-4"]
    assert shared(rows, *UNLIKE) == shared(in_process(), *UNLIKE)

    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "finished"
    assert "round 1 (test) was lost" in result["warnings"][0]
    assert watched(folder) == (0, "finished")
    registry = app.credentials_of({"keys": keys}).registry
    for number in range(5):
        agreed = agreed_at(keys / f"rounds-{number}", registry)
        assert agreed
        assert agreed <= opened_in(folder), "what a site has agreed to open is in the account"
    fedgt("report", str(folder))
    assert (folder / "report.html").is_file()


UNLIKE = ("round", "bytes_up", "bytes_down")
"""Of a run that has lost a round, and has identities."""


def fedgt(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedgt", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def watched(folder: Path) -> tuple[int, str]:
    """The exit code of `fedgt watch`, and the state that it tells."""
    done = fedgt("watch", str(folder), "--json")
    return done.returncode, str(json.loads(done.stdout)["state"])


def until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(0.3)
