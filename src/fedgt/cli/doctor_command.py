"""`fedgt doctor`: is this machine ready to take part? Versions, telemetry, keys, policy, plan, and the server's clock."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from http.client import HTTPResponse

from fedgt.errors import FedGTError, SpecError
from fedgt.extras import Extra, how_to_install
from fedgt.foreign_text import plain

_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
_POLL = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"
_SLOW_POLL = 0.5  # seconds; Flower's own default is a second
_LARGEST_SKEW = 5.0
_CONTROL = "/v1/control/list-nodes"
_CLOSED = (401, 403, 404)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """One thing that was looked at."""

    check: str
    status: Literal["ok", "note", "failed"]
    text: str


def doctor(
    name: Annotated[str | None, typer.Option(help="This participant's id; needed with --key.")] = None,
    key: Annotated[Path | None, typer.Option(help="Its private key.")] = None,
    registry: Annotated[Path | None, typer.Option(help="The registry of public keys.")] = None,
    policy: Annotated[Path | None, typer.Option(help="Its policy file.")] = None,
    plan: Annotated[Path | None, typer.Option(help="The plan of the consortium.")] = None,
    plan_hash: Annotated[str | None, typer.Option(help="The SHA-256 that the plan must have.")] = None,
    superlink: Annotated[str | None, typer.Option(help="host:port of the SuperLink, for TLS and clocks.")] = None,
    root_certificates: Annotated[
        Path | None, typer.Option(help="The CA that signed the SuperLink's certificate.")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="The SuperLink has no TLS (tests only).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Look at everything that keeps federations from starting, and say what to do. Exit code 1 if something failed."""
    if key is not None and name is None:
        raise SpecError("--key needs --name: the id that plans give this participant")
    if plan_hash is not None and plan is None:
        raise SpecError("--plan-hash needs --plan")
    found = [
        *_versions(),
        *_telemetry(),
        *_poll(),
        *_keys(name, key, registry),
        *_policy(policy),
        *_plan(plan, plan_hash),
    ]
    if superlink is not None:
        found += _server(superlink, root_certificates, insecure=insecure)
    failed = any(one.status == "failed" for one in found)
    if as_json:
        typer.echo(json.dumps({"ready": not failed, "checks": [asdict(one) for one in found]}))
    else:
        for one in found:
            typer.echo(f"{one.status:<7} {one.check:<12} {plain(one.text, longest=None)}")
    if failed:
        raise typer.Exit(1)


def _versions() -> Iterator[_Finding]:
    from importlib.metadata import version

    from fedgt._version import __version__

    yield _Finding(check="fedgt", status="ok", text=f"{__version__}; server and all sites must have the same")
    yield _Finding(check="cryptography", status="ok", text=version("cryptography"))
    yield _framework("flwr", "flower", "fedgt.flower.supported", "Flower")
    yield _framework("nvflare", "nvflare", "fedgt.nvflare.flare_releases", "NVIDIA FLARE")


def _framework(package: str, extra: Extra, releases: str, name: str) -> _Finding:
    from importlib import import_module
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version(package)
    except PackageNotFoundError:
        text = f"not installed; needed for {name} only: {how_to_install(extra)}"
        return _Finding(check=package, status="note", text=text)
    try:
        supported = import_module(releases)
        supported.require_supported(installed)
    except FedGTError as error:
        return _Finding(check=package, status="failed", text=str(error))
    return _Finding(check=package, status="ok", text=f"{installed} ({supported.RANGE})")


def _telemetry() -> Iterator[_Finding]:
    wrong = [f"{variable}={wanted}" for variable, wanted in _QUIET.items() if os.environ.get(variable) != wanted]
    if wrong:
        text = f"Flower and Ray report to their makers unless told not to: export {' '.join(wrong)} for every process"
        yield _Finding(check="telemetry", status="failed" if find_spec("flwr") is not None else "note", text=text)
    else:
        yield _Finding(check="telemetry", status="ok", text="off in this environment")


def _poll() -> Iterator[_Finding]:
    """How often Flower looks for work: of a small model's round a third is waiting for it."""
    if find_spec("flwr") is None:
        return
    told = os.environ.get(_POLL, "1")
    try:
        seconds = float(told)
    except ValueError:
        text = f"{_POLL}={told!r:.40} is no number of seconds: export {_POLL}=0.1"
        yield _Finding(check="poll", status="failed", text=text)
        return
    if seconds > _SLOW_POLL:
        text = f"Flower looks for work every {seconds:g} s, in each of four trips a round: export {_POLL}=0.1"
        yield _Finding(check="poll", status="note", text=text)
    else:
        yield _Finding(check="poll", status="ok", text=f"Flower looks for work every {seconds:g} s")


def _keys(name: str | None, key: Path | None, registry: Path | None) -> Iterator[_Finding]:
    import hashlib

    from fedgt.secagg import Credentials, read_private_key, read_registry

    known = None
    if registry is not None:
        try:
            known = read_registry(registry)
        except FedGTError as error:
            yield _Finding(check="registry", status="failed", text=str(error))
        else:
            lines = [
                f"server {known.server.hex()}",
                *(f"{who} {one.hex()}" for who, one in sorted(known.clients.items())),
            ]
            digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
            text = f"{len(known.clients)} clients, SHA-256 {digest}; compare it by telephone"
            yield _Finding(check="registry", status="ok", text=text)
    if key is not None and name is not None:
        try:
            identity = read_private_key(key, name)
            if known is not None:
                Credentials(identity=identity, registry=known)
        except FedGTError as error:
            yield _Finding(check="key", status="failed", text=str(error))
        else:
            told = "as the registry says" if known is not None else "not compared: give --registry"
            yield _Finding(check="key", status="ok", text=f"{name} has public key {identity.public.hex()}, {told}")


def _policy(path: Path | None) -> Iterator[_Finding]:
    from fedgt.secagg import read_policy

    if path is None:
        return
    try:
        policy = read_policy(path)
    except FedGTError as error:
        yield _Finding(check="policy", status="failed", text=str(error))
        return
    if policy.privacy < policy.colluders + 2:
        text = (
            f"privacy is {policy.privacy} with {policy.colluders} colluders: with an identity a site does not start below "
            f"{policy.colluders + 2}, unless the agreed terms promise it; write privacy = {policy.colluders + 2} or more"
        )
        yield _Finding(check="policy", status="failed", text=text)
    else:
        text = (
            f"no combination of sums may mix fewer than {policy.privacy} clients, of whom {policy.colluders} may help a "
            f"server that lies: at least {policy.privacy - policy.colluders} honest ones"
        )
        if policy.largest_share < 1:
            text += f"; sums may explain {policy.largest_share:g} of what is particular to a client at most"
        yield _Finding(check="policy", status="ok", text=text)


def _plan(path: Path | None, expected: str | None) -> Iterator[_Finding]:
    if path is None:
        return
    import hashlib

    from fedgt.planning import read_plan

    try:
        plan = read_plan(path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except FedGTError as error:
        yield _Finding(check="plan", status="failed", text=str(error))
        return
    if expected is not None and expected.lower() != digest:
        text = f"SHA-256 {digest}, expected {expected}: this is not the plan that was agreed on"
        yield _Finding(check="plan", status="failed", text=text)
        return
    text = f"{len(plan.design.matrix)} groups, privacy {plan.privacy.promised} proved, SHA-256 {digest}"
    yield _Finding(check="plan", status="ok", text=text)


def _server(address: str, roots: Path | None, *, insecure: bool) -> Iterator[_Finding]:
    """The clock of the server, through the date of any HTTP answer; a certificate that does not fit is found as well."""
    import datetime
    import email.utils
    import http.client

    try:
        date = _asked(address, "/", roots, insecure=insecure).getheader("Date")
    except (OSError, http.client.HTTPException) as error:
        yield _Finding(check="superlink", status="failed", text=f"{address} cannot be reached: {error}")
        return
    if date is None:
        yield _Finding(check="superlink", status="note", text=f"{address} answers, but does not tell its time")
    else:
        now = datetime.datetime.now(datetime.UTC)
        skew = abs((email.utils.parsedate_to_datetime(date) - now).total_seconds())
        trust = "no TLS" if insecure else "certificate ok"
        if skew > _LARGEST_SKEW:
            text = f"{trust}, but the clocks differ by {skew:.0f} s: messages expire by the clock, so run NTP on both"
            yield _Finding(check="superlink", status="failed", text=text)
        else:
            text = f"{trust}, the clocks differ by at most {skew + 1:.0f} s"
            yield _Finding(check="superlink", status="ok", text=text)
    yield _control(address, roots, insecure=insecure)


def _control(address: str, roots: Path | None, *, insecure: bool) -> _Finding:
    """Whether runs could be submitted from here without an account; nothing is submitted.

    A SuperLink says "wrong method" to this question, one that wants accounts "unauthorized", and a proxy that lets through
    what SuperNodes need "forbidden" or "not found".
    """
    import http.client

    try:
        status = _asked(address, _CONTROL, roots, insecure=insecure).status
    except (OSError, http.client.HTTPException) as error:
        return _Finding(check="control", status="note", text=f"{address} does not say who may submit runs: {error}")
    if status in _CLOSED:
        return _Finding(check="control", status="ok", text=f"runs cannot be submitted from here (HTTP {status})")
    text = (
        f"whoever reaches {address} may submit runs, which is code at the server and at every site (HTTP {status}): let "
        "only /v1/fleet/ through to the sites, or only their addresses; see One server, many sites"
    )
    return _Finding(check="control", status="note", text=text)


def _asked(address: str, path: str, roots: Path | None, *, insecure: bool) -> "HTTPResponse":
    """What the server answers to a question about a path that asks for no content."""
    import http.client
    import ssl

    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise SpecError(f"--superlink {address!r}: host:port is needed")
    connection: http.client.HTTPConnection
    if insecure:
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
    else:
        context = ssl.create_default_context(cafile=None if roots is None else str(roots))
        connection = http.client.HTTPSConnection(host, int(port), timeout=10, context=context)
    try:
        connection.request("HEAD", path)
        return connection.getresponse()
    finally:
        connection.close()
