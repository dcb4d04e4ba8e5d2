"""NVIDIA FLARE in processes of its own: its simulation environment, and a provisioned deployment on loopback."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from flare_admin import MARK
from flower_machines import free_ports

SUPPORT = Path(__file__).parent
SCRIPT = """\
import json, sys
from fedgt.nvflare import FlareJob
told = json.loads(sys.argv[1])
FlareJob("winter", config=told["config"]).simulate(told["sites"], local=told["local"], workspace=told["workspace"])
"""
PROGRAMS = 'main = "flare_app:main"\ntrain = "flare_app:train"\n'


def environment() -> dict[str, str]:
    """Where FLARE's processes find the programs."""
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]  # another checkout's fedgt is tested as well
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def identity_files(keys: Path) -> str:
    """Of a consortium that `flower_machines.write_consortium` has written, for the file of all sites."""
    files = {
        "key": "{client}.pem",
        "registry": "consortium.toml",
        "policy": "policy.toml",
        "journal": "rounds-{client}",
    }
    return "".join(f"{what} = {json.dumps(str(keys / name))}\n" for what, name in files.items())


def simulated(folder: Path, config: Mapping[str, Any], local: str = PROGRAMS) -> list[dict[str, Any]]:
    """The rows of a run in the simulation environment.

    Raises:
        RuntimeError: If it ends without; with its log.
    """
    folder.mkdir()
    out = folder.parent / "rows.json"  # the same for a run that goes on: the configuration is an input to training
    (folder / "fedgt.toml").write_text(local)
    told = {
        "config": {**config, "out": str(out)},
        "sites": [f"client-{number}" for number in range(int(config["clients"]))],
        "local": str(folder / "fedgt.toml"),
    }
    for attempt in range(3):  # on a busy machine FLARE's simulator now and then loses a site before the run begins
        command = [sys.executable, "-c", SCRIPT, json.dumps({**told, "workspace": str(folder / f"flare-{attempt}")})]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=500)
        if "failed to sync clients" not in done.stdout + done.stderr:
            break
    content: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    if not content.get("finished"):
        raise RuntimeError(f"no result, status {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    rows: list[dict[str, Any]] = content["rows"]
    return rows


class Deployment:
    """A provisioned server and sites on loopback, each with processes of its own and mutual TLS; a context manager.

    Args:
        folder: For startup kits, workspaces and logs.
        count: So many sites, `client-0`, `client-1`, ...
        path: Folders with programs, besides this one.
    """

    def __init__(self, folder: Path, count: int, path: Sequence[Path] = ()) -> None:
        self.folder = folder
        self.path = path
        self.sites = [f"client-{number}" for number in range(count)]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.joined: dict[str, int] = {}
        folder.mkdir(parents=True)
        (folder / "project.yml").write_text(_project(self.sites, *free_ports(2)))
        self._run("nvflare", "provision", "-p", str(folder / "project.yml"), "-w", str(folder / "kits"))
        self.kits = folder / "kits" / "fedgt" / "prod_00"
        for name in ("localhost", *self.sites):
            _set_up(self.kits / name)
        self.local(PROGRAMS)

    def __enter__(self) -> Self:
        self.start("localhost")
        for name in self.sites:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.processes):
            self.kill(name)

    def local(self, content: str) -> None:
        """Write the `fedgt.toml` of every machine; its paths may have `{client}`. The next job reads it."""
        for name in ("localhost", *self.sites):
            (self.kits / name / "local" / "fedgt.toml").write_text(content)

    def start(self, name: str) -> None:
        """Start a machine as its startup kit does, but for the loop that starts it again."""
        for site in self.sites if name == "localhost" else [name]:
            self.joined[site] = self._joined(site)
        command = ["bash", str(self.kits / name / "startup" / "sub_start.sh"), "--once"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, env=self._environment(), stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """SIGKILL a machine's process and those of its jobs."""
        process = self.processes.pop(name)
        with contextlib.suppress(psutil.NoSuchProcess):
            machine = psutil.Process(process.pid)
            # The machine first: it must not report that its job has ended.
            for one in [machine, *machine.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def jobs(self, name: str) -> list[psutil.Process]:
        """The processes of the jobs that a machine runs."""
        return self.tree(name)[1:]

    def tree(self, name: str) -> list[psutil.Process]:
        """The process of a machine, and those of its jobs."""
        machine = psutil.Process(self.processes[name].pid)
        return [machine, *machine.children(recursive=True)]

    def ask(self, command: str, argument: str = "") -> Any:
        """What `flare_admin` answers.

        Raises:
            RuntimeError: With the error of FLARE.
        """
        if "admin" not in self.processes:
            script = [sys.executable, str(SUPPORT / "flare_admin.py"), str(self.kits / "admin@fedgt.org")]
            with (self.folder / "admin.log").open("ab") as log:
                self.processes["admin"] = subprocess.Popen(
                    script, env=self._environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
                )
        asked, answers = self.processes["admin"].stdin, self.processes["admin"].stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.dumps([command, argument]).encode() + b"\n")
        asked.flush()
        line = next(line for line in iter(answers.readline, b"") if line.startswith(MARK.encode()))
        told: dict[str, Any] = json.loads(line.removeprefix(MARK.encode()))
        if "error" in told:
            raise RuntimeError(told["error"])
        return told["answer"]

    def wait(self, seconds: float = 180.0) -> None:
        """Until all sites have joined the server since they, or it, were started."""
        deadline = time.monotonic() + seconds
        while not all(self._joined(name) > self.joined[name] for name in self.sites):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all sites came:\n{self.log('localhost')[-4000:]}")
            time.sleep(0.5)

    def _joined(self, name: str) -> int:
        return len(re.findall(rf"New client {name}@|Re-activate the client: {name} at", self.log("localhost")))

    def submit(self, config: Mapping[str, Any]) -> str:
        """Export the job and submit it; its id."""
        from fedgt.nvflare import FlareJob

        made = FlareJob("winter", config=config).export(self.folder / f"job-{time.monotonic_ns()}")
        return str(self.ask("submit", str(made)))

    def ended(self, job: str, seconds: float = 300.0) -> str:
        """How a job has ended.

        Raises:
            RuntimeError: If it has not in time.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if (found := str(self.ask("status", job))).startswith("FINISHED"):
                return found
            time.sleep(1.0)
        raise RuntimeError(f"job {job} is {found}:\n{self.log('localhost')[-4000:]}")

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command, env=self._environment(), capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        programs = os.pathsep.join(str(one) for one in (*self.path, SUPPORT))
        return environment() | {"PATH": path, "PYTHONPATH": programs, "HOME": str(self.folder)}


def _project(sites: Collection[str], port: int, admin_port: int) -> str:
    participants = [
        {"name": "localhost", "type": "server", "org": "fedgt", "fed_learn_port": port, "admin_port": admin_port},
        *({"name": name, "type": "client", "org": "fedgt"} for name in sites),
        {"name": "admin@fedgt.org", "type": "admin", "org": "fedgt", "role": "project_admin"},
    ]
    builders = [
        {"path": "nvflare.lighter.impl.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
        {"path": "nvflare.lighter.impl.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
        {"path": "nvflare.lighter.impl.cert.CertBuilder"},
        {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
    ]
    project = {"api_version": 3, "name": "fedgt", "participants": participants, "builders": builders}
    return json.dumps(project)  # which is YAML, too


def _set_up(kit: Path) -> None:
    """What the people of a machine do once: what may run there, no log to the server, no foreign code."""
    from fedgt.nvflare.flare_job import ALLOWED

    settings = kit / "local"
    resources = (settings / "resources.json.default").read_text().replace("/tmp/nvflare", str(kit / "storage"))
    told = json.loads(resources)
    told["class_allow_list"] += ALLOWED
    told["allow_log_streaming"] = False
    (settings / "resources.json").write_text(json.dumps(told))
    if "servers" in told:
        return  # it permits its administrators everything, as provisioned: sites do not rely on it
    rights = json.loads((settings / "authorization.json.default").read_text())
    rights["permissions"]["project_admin"] = dict.fromkeys(
        ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate"), "any"
    ) | {"byoc": "none", "shell_commands": "none", "server-predeployed-flwr": "none"}
    (settings / "authorization.json").write_text(json.dumps(rights))
