"""`fedgt doctor`: what keeps a federation from starting is found, and what to do is said."""

import http.server
import json
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedgt.secagg import Identity, add_to_registry, write_private_key

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer and newer click
    from typer.testing import CliRunner

    from fedgt.cli import app

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def doctor(*arguments: object, env: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(
        app, ["doctor", "--json", *map(str, arguments)], env=QUIET if env is None else env, catch_exceptions=False
    )
    found = json.loads(done.stdout)
    return done.exit_code, {one["check"]: one for one in found["checks"]} | {"ready": found["ready"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    server, north = Identity.generate("server"), Identity.generate("north")
    add_to_registry(tmp_path / "all.toml", server, server=True)
    add_to_registry(tmp_path / "all.toml", north, server=False)
    write_private_key(tmp_path / "north.id", north)
    return tmp_path


def test_a_site_with_everything_in_place_is_ready(folder: Path) -> None:
    (folder / "policy.toml").write_text("privacy = 4\n")
    code, found = doctor(
        "--name", "north", "--key", folder / "north.id", "--registry", folder / "all.toml", "--policy",
        folder / "policy.toml",
    )  # fmt: skip
    assert code == 0
    assert found["ready"]
    assert "as the registry says" in found["key"]["text"]
    assert "1 clients, SHA-256 " in found["registry"]["text"]
    assert found["policy"]["status"] == "ok"


@pytest.mark.parametrize(("told", "status"), [(None, "note"), ("0.1", "ok"), ("2", "note"), ("often", "failed")])
def test_waiting_for_work_once_a_second_is_noted(told: str | None, status: str) -> None:
    _, found = doctor(env=QUIET | ({} if told is None else {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": told}))
    assert found["poll"]["status"] == status
    assert status == "ok" or "export FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.1" in found["poll"]["text"]


def test_the_registry_has_one_fingerprint_for_all_who_hold_the_same_keys(folder: Path) -> None:
    lines = (folder / "all.toml").read_text().splitlines()
    (folder / "mine.toml").write_text("# my copy\n" + "\n".join(lines) + "\n")
    (_, theirs), (_, mine) = (doctor("--registry", folder / name) for name in ("all.toml", "mine.toml"))
    assert theirs["registry"]["text"] == mine["registry"]["text"]
    add_to_registry(folder / "mine.toml", Identity.generate("south"), server=False)
    assert doctor("--registry", folder / "mine.toml")[1]["registry"]["text"] != theirs["registry"]["text"]


def test_an_open_key_and_the_key_of_somebody_else_fail(folder: Path) -> None:
    write_private_key(folder / "other.id", Identity.generate("north"))
    code, found = doctor("--name", "north", "--key", folder / "other.id", "--registry", folder / "all.toml")
    assert (code, found["key"]["status"]) == (1, "failed")
    assert "not the one that the registry names" in found["key"]["text"]
    (folder / "north.id").chmod(0o644)
    code, found = doctor("--name", "north", "--key", folder / "north.id")
    assert code == 1
    assert "chmod 600" in found["key"]["text"]


def test_a_policy_that_leaves_privacy_to_the_server_is_pointed_out(folder: Path) -> None:
    (folder / "policy.toml").write_text("minimum_group_size = 3\n")
    code, found = doctor("--policy", folder / "policy.toml")
    assert (code, found["policy"]["status"]) == (1, "failed")
    assert "privacy = 3 or more" in found["policy"]["text"]
    (folder / "policy.toml").write_text("privacy = 4\nlargest_share = 0.7\n")
    code, found = doctor("--policy", folder / "policy.toml")
    assert (code, found["policy"]["status"]) == (0, "ok")
    assert "0.7 of what is particular to a client at most" in found["policy"]["text"]
    (folder / "policy.toml").write_text("privacy = 'high'\n")
    assert doctor("--policy", folder / "policy.toml")[0] == 1


def test_telemetry_that_is_on_fails_with_the_variables_to_set() -> None:
    pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")
    code, found = doctor(env=QUIET | {"FLWR_TELEMETRY_ENABLED": "1"})
    assert code == 1
    assert "export FLWR_TELEMETRY_ENABLED=0 for every process" in found["telemetry"]["text"]
    assert found["flwr"]["status"] == "ok"


def test_a_plan_is_proved_again_and_compared_with_the_hash_that_was_agreed(tmp_path: Path) -> None:
    from fedgt.design import named_design
    from fedgt.planning.plan_file import DesignPart, Plan, PrivacyPart, StrategyPart, write_plan
    from fedgt.privacy import minimum_support

    design = named_design("bch-15x8")
    support = minimum_support(design.matrix)
    assert support is not None
    combination = {f"u{group}": str(factor) for group, factor in enumerate(support.combination) if factor}
    plan = Plan(
        evidence="binary",
        design=DesignPart(name="x", source="x", matrix=tuple(tuple(row) for row in design.matrix.tolist())),
        privacy=PrivacyPart(promised=4, r=4, exact=True, combination=combination, clients=support.clients),
        strategy=StrategyPart(largest=5),
    )
    write_plan(tmp_path / "plan.json", plan)
    code, found = doctor("--plan", tmp_path / "plan.json")
    assert code == 0
    digest = found["plan"]["text"].split()[-1]
    assert doctor("--plan", tmp_path / "plan.json", "--plan-hash", digest.upper())[0] == 0
    code, found = doctor("--plan", tmp_path / "plan.json", "--plan-hash", "0" * 64)
    assert code == 1
    assert "not the plan that was agreed on" in found["plan"]["text"]
    (tmp_path / "plan.json").write_text("{}")
    assert doctor("--plan", tmp_path / "plan.json")[0] == 1


class Clock(http.server.BaseHTTPRequestHandler):
    """A server whose clock is wrong by `ahead` seconds."""

    ahead = 0.0

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.end_headers()

    def date_time_string(self, timestamp: float | None = None) -> str:
        import time

        return super().date_time_string(time.time() + self.ahead)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Clock)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(("ahead", "status"), [(0.0, "ok"), (90.0, "failed"), (-90.0, "failed")])
def test_clocks_that_differ_are_found(address: str, ahead: float, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "ahead", ahead)
    code, found = doctor("--superlink", address, "--insecure")
    assert found["superlink"]["status"] == status
    assert code == (0 if status == "ok" else 1)


def test_a_server_without_tls_or_without_an_answer_fails(address: str) -> None:
    code, found = doctor("--superlink", address)
    assert code == 1
    assert "cannot be reached" in found["superlink"]["text"]
    assert doctor("--superlink", "127.0.0.1:1", "--insecure")[0] == 1


class Gate(Clock):
    """What stands at the port of a server, which answers with `status`."""

    status = 404

    def do_HEAD(self) -> None:
        self.send_response(self.status if self.path.startswith("/v1/control/") else 403)
        self.end_headers()


@pytest.mark.parametrize(
    ("status", "told"), [(405, "note"), (200, "note"), (415, "note"), (401, "ok"), (403, "ok"), (404, "ok")]
)
def test_a_port_at_which_anybody_may_submit_runs_is_pointed_out(
    monkeypatch: pytest.MonkeyPatch, status: int, told: str
) -> None:
    monkeypatch.setattr(Gate, "status", status)
    server = http.server.HTTPServer(("127.0.0.1", 0), Gate)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        code, found = doctor("--superlink", f"127.0.0.1:{server.server_port}", "--insecure")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert code == 0
    assert found["superlink"]["status"] == "ok"
    assert found["control"]["status"] == told
    assert ("code at the server and at every site" in found["control"]["text"]) == (told == "note")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--key", "x"), "--key needs --name"),
        (("--plan-hash", "x"), "--plan-hash needs --plan"),
        (("--superlink", "x"), "host:port"),
    ],
)
def test_bad_usage_is_an_error(arguments: tuple[str, ...], message: str) -> None:
    from fedgt.errors import SpecError

    with pytest.raises(SpecError, match=message):
        CliRunner().invoke(app, ["doctor", *arguments], catch_exceptions=False, env=QUIET)


def test_a_registry_with_a_key_for_which_anybody_can_sign_is_found(folder: Path) -> None:
    path = folder / "all.toml"
    path.write_text(path.read_text() + f'south = "{(1).to_bytes(32, "little").hex()}"\n')
    code, found = doctor("--registry", path)
    assert (code, found["registry"]["status"]) == (1, "failed")
    assert "client south has a public key of small order" in found["registry"]["text"]
