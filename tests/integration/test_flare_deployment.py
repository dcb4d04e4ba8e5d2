"""Faults and attacks on a provisioned deployment of NVIDIA FLARE. What is the same on every engine: the contract suite."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install '.[nvflare]'")
pytest.importorskip("flwr", reason="the programs of the tests need Flower, too: pip install '.[flower]'")

from fedgt.nvflare import FlareJob
from flare_machines import PROGRAMS, Deployment, identity_files
from flower_machines import write_consortium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("nvflare") is None, reason="needs nvflare on the PATH"),
]

Row = dict[str, Any]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("flare")
    with Deployment(folder / "site", 5) as made:
        made.wait()
        yield made


def config(deployment: Deployment, here: Path, **changes: Any) -> dict[str, Any]:
    """Of a new consortium: sites that have signed in one run want the server to know it in the next."""
    write_consortium(here / "keys", 5)
    deployment.local(PROGRAMS + identity_files(here / "keys"))
    told = {"clients": 5, "privacy": 2, "rounds": 3, "timeout": 20.0, "wait": 0.0, "malicious": "", "tested": False}
    return told | {"keys": str(here / "keys"), "out": str(here / "out.json")} | changes


def rows(folder: Path) -> list[Row]:
    out = folder / "out.json"
    found: list[Row] = json.loads(out.read_text())["rows"] if out.exists() else []
    return found


def finished(folder: Path, seconds: float = 240.0) -> list[Row]:
    """What the program of the server has written when it is through; FLARE waits longer for its sites."""
    out = folder / "out.json"
    until(lambda: out.exists() and json.loads(out.read_text())["finished"], seconds)
    return rows(folder)


def until(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.3)


def open_without(row: Row, client: str) -> bool:
    ((_, status, members, _),) = row["status"]
    return status == "open" and len(members) == 4 and client not in members


def test_a_site_that_goes_down_in_mid_training_is_a_dropout_and_the_run_goes_on(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.submit(config(deployment, tmp_path, **{"slow-client": 2, "slow-round": 2, "slow-seconds": 600.0}))
    until(lambda: rows(tmp_path), 120)
    time.sleep(2)  # it trains in the second round
    deployment.kill("client-2")
    first, second, third = finished(tmp_path)
    deployment.start("client-2")
    assert "client-2" in first["members"]
    assert open_without(second, "client-2")
    assert open_without(third, "client-2")


def test_a_site_that_hangs_is_a_dropout_after_the_timeout(deployment: Deployment, tmp_path: Path) -> None:
    deployment.wait()
    slow = {"slow-client": 3, "slow-round": 1, "slow-seconds": 45.0, "timeout": 10.0, "rounds": 2}
    deployment.submit(config(deployment, tmp_path, **slow))
    first, second = finished(tmp_path)
    assert open_without(first, "client-3")
    assert first["status"][0][3] == {"client-3": "masked: timeout: no reply within 10 s"}
    assert 10 <= first["seconds"]["masked"] < 20
    assert open_without(second, "client-3")


def test_a_site_whose_job_crashes_ends_the_job_and_the_run_goes_on_when_it_is_submitted_again(
    deployment: Deployment, tmp_path: Path
) -> None:
    """FLARE ends a job when a site reports that its process has failed: a site can stop a run, and open nothing by it."""
    slow = {"slow-client": 2, "slow-round": 2, "slow-seconds": 15.0}
    told = config(deployment, tmp_path, folder=str(tmp_path / "run"), timeout=60.0, **slow)
    job = deployment.submit(told)
    until(lambda: rows(tmp_path), 120)
    time.sleep(2)
    for process in deployment.jobs("client-2"):
        process.kill()
    assert deployment.ended(job) == "FINISHED:EXECUTION_EXCEPTION"
    assert len(rows(tmp_path)) == 1
    deployment.submit(told)
    again = finished(tmp_path)
    assert [row["round"] for row in again] == [3, 4]
    assert all(len(row["members"]) == 5 for row in again)


def test_a_run_goes_on_when_the_server_was_killed_and_the_job_is_submitted_again(
    deployment: Deployment, tmp_path: Path
) -> None:
    told = config(deployment, tmp_path, folder=str(tmp_path / "run"), killed="2:masked")
    deployment.submit(told)
    until((tmp_path / "run.killed").exists, 120)
    deployment.kill("localhost")
    deployment.start("localhost")
    deployment.wait()
    deployment.submit(told)
    assert [row["round"] for row in finished(tmp_path)] == [3, 4]


# What a site permits ----------------------------------------------------------------------------------------------------

EVIL = "from pathlib import Path\nPath({marker!r}).touch()\nclass Evil:\n    pass\n"


def altered(deployment: Deployment, folder: Path, path: str, arguments: dict[str, Any]) -> Path:
    """The job of a server that has the sites make another object than their own."""
    job = FlareJob("winter", config=config(deployment, folder)).export(folder)
    client = job / "app" / "config" / "config_fed_client.json"
    told = json.loads(client.read_text())
    told["components"][0] |= {"path": path, "args": arguments}
    client.write_text(json.dumps(told))
    return job


def test_a_site_runs_no_code_that_comes_with_a_job(deployment: Deployment, tmp_path: Path) -> None:
    """The server here permits everything, as a provisioned one does: each site must refuse for itself."""
    marker = tmp_path / "ran"
    job = altered(deployment, tmp_path, "evil.Evil", {})
    (job / "app" / "custom").mkdir()
    (job / "app" / "custom" / "evil.py").write_text(EVIL.format(marker=str(marker)))
    assert deployment.ended(deployment.ask("submit", str(job))) != "FINISHED:COMPLETED"
    assert not marker.exists()
    assert "BYOC not permitted" in deployment.log("localhost") + deployment.log("client-0")


def test_a_site_makes_no_object_that_it_has_not_allowed(deployment: Deployment, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    job = altered(deployment, tmp_path, "subprocess.Popen", {"args": ["touch", str(marker)]})
    assert deployment.ended(deployment.ask("submit", str(job))) != "FINISHED:COMPLETED"
    assert not marker.exists()
    assert "'subprocess.Popen'" in deployment.log("client-0")
    assert "not in allow_list" in deployment.log("client-0")


def test_nobody_reads_the_log_of_a_site_from_afar(deployment: Deployment) -> None:
    assert deployment.ask("log of", "server")
    with pytest.raises(RuntimeError, match=r"[Aa]uthoriz|not permitted"):
        deployment.ask("log of", "client-0")
