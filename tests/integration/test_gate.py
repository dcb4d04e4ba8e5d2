"""The SuperLink of the generated app: what whoever reaches its port may do, and what the gate lets through to the sites."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedgt.scaffold import Answers, write_app
from site_of_app import end_processes

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer and newer click
    from typer.testing import CliRunner

    from fedgt.cli import app

pytestmark = pytest.mark.skipif(
    any(shutil.which(command) is None for command in ("flower-superlink", "openssl", "ssh-keygen")),
    reason="needs flower-superlink, openssl and ssh-keygen on the PATH",
)

SERVER = "127.0.0.2"  # as the sites see it: another address of this machine than the SuperLink's


class Machine:
    """The server of a generated app, and a stranger who has nothing but ca.pem."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: list[subprocess.Popen[bytes]] = []
        sites = tuple(f"site-{number}" for number in range(1, 9))
        write_app(folder, Answers(sites=sites, privacy=3, framework="scikit-learn", rounds=2, run="first"), "flower")
        certificates = folder / "certificates.sh"
        certificates.write_text(certificates.read_text().replace("IP:127.0.0.1", f"IP:127.0.0.1,IP:{SERVER}"))
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]

    def run(self, *command: str, seconds: float = 60) -> "subprocess.CompletedProcess[str]":
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["sh", "-c", '. ./env.sh; exec "$@"', "sh", *command],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=seconds,
            env=os.environ | {"PATH": path, "SERVER": f"{SERVER}:{self.port}"},
            check=False,
        )

    def start(self) -> None:
        for command in (("certificates.sh",), ("superlink.sh",)):
            done = self.run("sh", *command)
            assert done.returncode == 0, done.stdout + done.stderr

    def registers(self, name: str, address: str) -> "subprocess.CompletedProcess[str]":
        """A stranger tries to register a SuperNode key of its own."""
        home = self.folder / "stranger"
        home.mkdir(exist_ok=True)
        lines = (
            "[superlink]",
            'default = "consortium"',
            "[superlink.consortium]",
            f'address = "{address}:{self.port}"',
        )
        (home / "config.toml").write_text("\n".join((*lines, f'root-certificates = "{self.folder}/ca.pem"\n')))
        self.run("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", f"{name}.node")
        return self.run("env", f"FLWR_HOME={home}", "flwr", "supernode", "register", f"{name}.node.pub", "consortium")

    def supernode(self, name: str, port: int) -> "subprocess.Popen[bytes]":
        """A SuperNode with this key, which comes through the gate."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        options = ["--superlink", f"{SERVER}:{self.port}", "--root-certificates", "ca.pem", "--port", str(port)]
        with (self.folder / f"{name}.log").open("wb") as log:
            node = subprocess.Popen(
                ["flower-supernode", *options, "--auth-supernode-private-key", f"{name}.node"],
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PATH": path, "FLWR_HOME": f"{self.folder}/flwr", "FLWR_TELEMETRY_ENABLED": "0"},
            )
        self.nodes.append(node)
        return node

    def listed(self, seconds: float = 60) -> str:
        """What the SuperLink says about its nodes, as soon as one is online."""
        end = time.monotonic() + seconds
        while "online" not in (told := self.run("flwr", "supernode", "list", "consortium").stdout):
            if time.monotonic() > end:
                break
            time.sleep(0.5)
        return told

    def control(self, address: str) -> str:
        """What `fedgt doctor` says about who may submit runs."""
        options = ["--superlink", f"{address}:{self.port}", "--root-certificates", str(self.folder / "ca.pem")]
        found = CliRunner().invoke(app, ["doctor", *options])
        return next((line for line in found.stdout.splitlines() if " control " in line), found.stdout)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    for node in machine.nodes:
        node.kill()
        node.wait()
    gate = tmp_path / "gate.pid"
    if gate.exists():
        os.kill(int(gate.read_text()), signal.SIGTERM)
    end_processes(tmp_path)


def test_whoever_reaches_the_superlink_registers_nodes_without_any_key_so_it_is_on_loopback_only(
    machine: Machine,
) -> None:
    machine.start()
    done = machine.registers("stranger", "127.0.0.1")
    assert "registered successfully" in done.stdout, "what the guide warns of is so no more: say so there"
    assert machine.control("127.0.0.1").startswith("note")
    assert "may submit runs" in machine.control("127.0.0.1")
    with pytest.raises(ConnectionRefusedError), socket.create_connection((SERVER, machine.port), timeout=5):
        pass


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx on the PATH")
def test_through_the_gate_sites_reach_what_supernodes_need_and_nothing_else(machine: Machine) -> None:
    machine.start()
    done = machine.run("sh", "gate.sh", SERVER)
    assert done.returncode == 0, done.stderr
    assert machine.registers("stranger", SERVER).returncode != 0
    assert machine.registers("site-1", "127.0.0.1").returncode == 0
    assert machine.control(SERVER).startswith("ok")
    # A node with a registered key comes through, and one without it does not.
    known, stranger = machine.supernode("site-1", 9301), machine.supernode("stranger", 9302)
    assert stranger.wait(60) != 0
    assert "online" in machine.listed(), (machine.folder / "site-1.log").read_text()
    assert known.poll() is None
