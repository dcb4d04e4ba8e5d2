"""Faults on a real SuperLink with SuperNodes. What is the same on every engine: `tests/contract/test_engine_contract.py`."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

import flower_app as app
from fedgt.flower import InProcessGrid
from flower_grid import over
from flower_machines import Deployment, free_ports, write_app

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


def test_a_superlink_that_is_killed_and_started_again_serves_the_same_nodes(tmp_path: Path) -> None:
    """The run is lost with its round; the nodes come back by themselves and the next run is as any other."""
    with Deployment(tmp_path / "site", NODES, database=True) as deployment:
        out = tmp_path / "lost.json"
        slow = {"slow-client": 2, "slow-seconds": 600.0, "out": str(out)}
        deployment.run(write_app(tmp_path / "lost", CONFIG | slow))
        until(lambda: "Receiving: train.fedgt_masked" in deployment.log("node-2"), 200)
        deployment.kill("link")
        deployment.start_link()
        assert shared(played(deployment, tmp_path, wait=240.0)) == shared(in_process())
        assert not out.exists()


def until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(0.3)
