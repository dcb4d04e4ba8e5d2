"""A SuperLink and SuperNodes on loopback, each in its own process, insecure or with TLS and SuperNode authentication."""

import contextlib
import datetime
import ipaddress
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

from fedgt.secagg import Identity, add_to_registry, write_private_key

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
}

PYPROJECT = """\
[project]
name = "fedgt-test-app"
version = "1.0.0"
description = "Test"
license = {{ file = "LICENSE" }}
dependencies = []

[tool.flwr.app]
publisher = "fedgt"

[tool.flwr.app.components]
serverapp = "flower_app:server"
clientapp = "flower_app:client"

[tool.flwr.app.config]
{config}
"""


def write_app(folder: Path, config: Mapping[str, Any]) -> Path:
    """A Flower app with the run config, from `flower_app.py`."""
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("flower_app.py"), folder)
    (folder / "LICENSE").write_text("Apache-2.0\n")
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in config.items())
    (folder / "pyproject.toml").write_text(PYPROJECT.format(config=lines))
    return folder


def write_consortium(folder: Path, count: int) -> list[dict[str, Any]]:
    """fedgt identities for a server and `client-0`, `client-1`, ...; the node configs that point to them."""
    folder.mkdir()
    (folder / "policy.toml").write_text("privacy = 4\n" if count >= 15 else "privacy = 2\ncolluders = 0\n")
    registry = folder / "consortium.toml"
    configs = []
    for name in ("server", *(f"client-{number}" for number in range(count))):
        identity = Identity.generate(name)
        write_private_key(folder / f"{name}.pem", identity)
        add_to_registry(registry, identity, server=name == "server")
    for number in range(count):
        own = {
            "fedgt-key": str(folder / f"client-{number}.pem"),
            "fedgt-registry": str(registry),
            "fedgt-policy": str(folder / "policy.toml"),
        }
        configs.append({"partition-id": number, **own, "fedgt-journal": str(folder / f"rounds-{number}")})
    return configs


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Deployment:
    """Starts and stops the processes; use it as a context manager.

    Args:
        folder: For keys, logs and state.
        node_configs: One per SuperNode.
        secure: TLS and SuperNode authentication.
        database: The SuperLink keeps its state in a file: without, its nodes are strangers after a restart, and they end.
        simulation: The SuperLink simulates the nodes (Ray) instead of waiting for SuperNodes.
    """

    def __init__(
        self,
        folder: Path,
        node_configs: Sequence[Mapping[str, Any]],
        *,
        secure: bool = False,
        database: bool = False,
        simulation: bool = False,
    ) -> None:
        self.folder = folder
        self.secure = secure
        self.database = database
        self.simulation = simulation
        self.node_configs = [dict(config) for config in node_configs]
        self.ports = free_ports(1 + len(node_configs))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = os.environ | QUIET | {"FLWR_HOME": str(folder / "flwr"), "OMP_NUM_THREADS": "1"}
        # The commands start one another through the PATH.
        self.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        (folder / "flwr").mkdir(parents=True)
        address = f'address = "127.0.0.1:{self.ports[0]}"\n'
        trust = f'root-certificates = "{folder}/ca.pem"\n' if secure else "insecure = true\n"
        (folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\n{address}{trust}'
        )
        if secure:
            make_certificates(folder)

    def __enter__(self) -> Self:
        self.start_link()
        for number in range(0 if self.simulation else len(self.node_configs)):
            if self.secure:
                key = self.folder / f"node-{number}"
                make_node_key(key)
                self.flwr("supernode", "register", f"{key}.pub", "here")
            self.start_node(number)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for name in list(self.processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.processes[name].wait(timeout=10)
            self.kill(name)

    def start_link(self) -> None:
        options = ["--host", "127.0.0.1", "--port", str(self.ports[0]), "--disable-runtime-dependency-installation"]
        if self.secure:
            options += ["--ssl-certfile", f"{self.folder}/server.pem", "--ssl-keyfile", f"{self.folder}/server.key"]
            options += ["--ssl-ca-certfile", f"{self.folder}/ca.pem", "--enable-supernode-auth"]
        else:
            options += ["--insecure"]
        if self.database:
            options += ["--database", f"{self.folder}/state.db"]
        if self.simulation:
            options += ["--simulation"]
        self._start("link", "flower-superlink", options)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.processes["link"].poll() is not None:
                raise RuntimeError(f"the SuperLink did not start: {self.log('link')}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.ports[0])) == 0:
                    return
            time.sleep(0.2)
        raise RuntimeError(f"the SuperLink did not start: {self.log('link')}")

    def start_node(self, number: int) -> None:
        config = " ".join(f"{key}={json.dumps(value)}" for key, value in self.node_configs[number].items())
        options = ["--superlink", f"127.0.0.1:{self.ports[0]}", "--port", str(self.ports[1 + number])]
        options += ["--node-config", config]
        if self.secure:
            options += ["--root-certificates", f"{self.folder}/ca.pem"]
            options += ["--auth-supernode-private-key", f"{self.folder}/node-{number}"]
        else:
            options += ["--insecure"]
        self._start(f"node-{number}", "flower-supernode", options)

    def kill(self, name: str) -> None:
        """SIGKILL the process and whatever it has started."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def flwr(self, *arguments: str) -> str:
        done = subprocess.run(
            ["flwr", *arguments], env=self.environment, capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode:
            raise RuntimeError(f"flwr {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def run(self, app: Path) -> str:
        """Submit the app; the id of the run."""
        options = ("--federation-config", f"num-supernodes={len(self.node_configs)}") if self.simulation else ()
        answer: dict[str, Any] = json.loads(self.flwr("run", str(app), "here", "--format", "json", *options))
        return str(answer["run-id"])

    def rows(self, run: str, out: Path, timeout: float, *, rounds: int | None = None) -> list[dict[str, Any]]:
        """What the app wrote, once it has finished (or has so many rounds).

        Raises:
            RuntimeError: If the run ends without, or not in time; with its log.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            ended = re.search(rf"Finished task \d+ of run {run}\b", self.log("link")) is not None
            content: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
            found: list[dict[str, Any]] = content.get("rows", [])
            if content.get("finished") or (rounds is not None and len(found) >= rounds):
                return found
            if ended:
                break
            time.sleep(0.3)
        raise RuntimeError(f"no result:\n{self.flwr('log', run, 'here', '--show')[-4000:]}")

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def _start(self, name: str, command: str, options: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [command, *options], env=self.environment, stdout=log, stderr=log, start_new_session=True
            )


def make_certificates(folder: Path) -> None:
    """A CA and a server certificate for 127.0.0.1, in memory's only crypto library."""
    now = datetime.datetime.now(datetime.UTC)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedgt test CA")])

    def builder(name: x509.Name) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(ca_name)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        builder(ca_name)
        .public_key(ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    server = (
        builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]))
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(ca.public_bytes(Encoding.PEM))
    (folder / "server.pem").write_bytes(server.public_bytes(Encoding.PEM))
    (folder / "server.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def make_node_key(path: Path) -> None:
    """A SuperNode key pair as `ssh-keygen -t ecdsa -b 384` makes it."""
    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    path.chmod(0o600)
    path.with_name(path.name + ".pub").write_bytes(
        key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    )
