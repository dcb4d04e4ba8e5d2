"""One federation over every engine: the same decisions and the same models, to the last bit, whatever carries the messages.

Each scenario says what must happen, and each engine must do it as the local transport does. The evidence is the default.
Simulation and SuperNodes start processes, so `make test-engines` runs them.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

import flower_app as app
from fedgt.engine import TrainedModel
from fedgt.experiment.unmasked import UnmaskedSums
from fedgt.federation import FederationRun
from fedgt.flower import InProcessGrid
from fedgt.privacy import disclosed_share
from flower_grid import over
from flower_machines import Deployment, make_node_key, write_app, write_consortium

FLARE = find_spec("nvflare") is not None
if FLARE:
    import flare_app
    from flare_machines import PROGRAMS, identity_files, simulated
    from flare_machines import Deployment as FlareDeployment
    from flare_sites import proxies

Row = dict[str, Any]
Engine = Callable[[Mapping[str, Any]], list[Row]]
"""The configuration of the app, with the folder of the run -> the rows of its rounds."""

FIVE: dict[str, Any] = {"clients": 5, "privacy": 2, "timeout": 120.0, "wait": 120.0, "keys": "", "malicious": "4"}

FURTHER = FIVE | {"rounds": 4, "fails": "1:2"}
"""Client 0 stays undecided in the first test. Client 1 was cleared by it and drops out of the second."""

HALT = FIVE | {"rounds": 2, "fails": "3:1"}
"""Client 3 drops out of the first test, and what is left of two groups may not be opened: nothing can be compared."""

RESTARTED = FIVE | {"rounds": 3}

NEW_ROWS = FIVE | {"rounds": 3, "design": "5x3"}
"""Three rows name nobody, and the promise has room for one more."""

STAGED = FIVE | {"rounds": 1, "staged": True}
"""A round in two stages."""

WATCHED = FIVE | {"rounds": 3, "schedule": "auto", "malicious": "", "undecided": 0.2}
"""The default: every round is watched. The second and the third are quiet."""

COEFFICIENTS = FIVE | {"rounds": 1, "design": "5x4 multiplied", "malicious": "2"}
"""Clients multiply their updates before they mask them; client 3 does so in every sum."""

MULTIPLIED = COEFFICIENTS | {"multiplied": True}
"""The sums of such a test alone."""

SCENARIOS = {"further": FURTHER, "halt": HALT, "new rows": NEW_ROWS, "watched": WATCHED, "coefficients": COEFFICIENTS}

STARTS = {
    "further": 0.0,
    "halt": 2.0,
    "new rows": 3.0,
    "restarted": 1.0,
    "staged": 4.0,
    "coefficients": 5.0,
    "multiplied": 6.0,
    "watched": 7.0,
}
"""Sites with identities answer once about a model and a round of a run, and their account lasts over runs."""


def own(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a scenario, with a first model and a name of the run that no other scenario has."""
    return {**config, "start": STARTS[name], "run": name.replace(" ", "-")}


class Site:
    """The training of the app without Flower."""

    def __init__(self, number: int, config: Mapping[str, Any]) -> None:
        self.context = InProcessGrid(app.client, {1: {"partition-id": number}}, config).contexts[1]

    def train(self, parameters: Any, *, round: int) -> TrainedModel:
        return app.train(parameters, round, self.context)


def local(config: Mapping[str, Any]) -> list[Row]:
    sites = {name: Site(number, config) for number, name in enumerate(app.names_of(config))}
    if {"staged", "multiplied"} & set(config):
        return [app.by_hand(FederationRun(sites, **app.options(config)), app.initial(config["start"]), config)]
    run = FederationRun(sites, **app.options(config), folder=str(config["folder"]) if "folder" in config else None)
    return [app.row(step, halt) for step, halt in app.stopping(run, app.initial(config.get("start", 0.0)))]


def in_process(config: Mapping[str, Any], nodes: list[dict[str, Any]] | None = None) -> list[Row]:
    nodes = nodes or [{"partition-id": number} for number in range(int(config["clients"]))]
    transport, run = over(InProcessGrid(app.client, dict(enumerate(nodes, start=10)), config), config)
    if {"staged", "multiplied"} & set(config):
        return [app.by_hand(run, app.initial(config["start"]), config, transport)]
    return [app.row(step, halt, transport) for step, halt in app.stopping(run, app.initial(config.get("start", 0.0)))]


def with_identities(folder: Path) -> Engine:
    nodes = write_consortium(folder / "keys", 5)

    def rows(config: Mapping[str, Any]) -> list[Row]:
        return in_process({**config, "keys": str(folder / "keys")}, nodes)

    return rows


def flare_in_process(folder: Path, *, identities: bool) -> Engine:
    keys, files = flare_consortium(folder) if identities else ("", "")

    def rows(config: Mapping[str, Any]) -> list[Row]:
        config = {**config, "keys": keys}
        sites = proxies(folder / f"{time.monotonic_ns()}", config, PROGRAMS + files)
        return list(flare_app.rows(sites, config))

    return rows


def flare_simulation(folder: Path, *, identities: bool) -> Engine:
    """A process for each site, and one for the server, which is killed where the configuration says so."""
    keys, files = flare_consortium(folder) if identities else ("", "")

    def rows(config: Mapping[str, Any]) -> list[Row]:
        here = folder / f"{time.monotonic_ns()}"
        here.mkdir()
        config = {**config, "keys": keys}
        if "killed" in config:
            with pytest.raises(RuntimeError):
                simulated(here / "killed", config, PROGRAMS + files)
            assert Path(f"{config['folder']}.killed").exists()
        return simulated(here / "run", config, PROGRAMS + files)

    return rows


def flare_deployment(folder: Path) -> Iterator[Engine]:
    """A server and five sites with mutual TLS and identities, for all scenarios."""
    keys, files = flare_consortium(folder)
    with FlareDeployment(folder / "site", 5) as deployment:
        deployment.local(PROGRAMS + files)
        deployment.wait()

        def rows(config: Mapping[str, Any]) -> list[Row]:
            out = folder / f"{time.monotonic_ns()}.json"
            told = {**config, "keys": keys, "out": str(out)}
            ended = deployment.ended(deployment.submit(told))
            if "killed" in config:
                assert ended != "FINISHED:COMPLETED"
                ended = deployment.ended(deployment.submit(told))
            assert ended == "FINISHED:COMPLETED"
            found: list[Row] = json.loads(out.read_text())["rows"]
            return found

        yield rows


def flare_consortium(folder: Path) -> tuple[str, str]:
    """The folder of the keys of five sites and their server, and what the file of each says of it."""
    write_consortium(folder / "keys", 5)
    return str(folder / "keys"), identity_files(folder / "keys")


def deployed(folder: Path, *, simulation: bool) -> Iterator[Engine]:
    """Five nodes for all scenarios: simulated, or SuperNodes over TLS with keys and identities."""
    configs = [{"partition-id": number} for number in range(5)] if simulation else write_consortium(folder / "keys", 5)
    with Deployment(folder / "site", configs, simulation=simulation, secure=not simulation) as deployment:

        def rows(config: Mapping[str, Any]) -> list[Row]:
            name = f"{time.monotonic_ns()}"
            out = folder / f"out-{name}.json"
            keys = "" if simulation else str(folder / "keys")
            source = write_app(folder / f"app-{name}", {**config, "out": str(out), "keys": keys})
            run = deployment.run(source)
            if "killed" in config:
                wait_for(Path(f"{config['folder']}.killed"))
                run = deployment.run(source)
            return deployment.rows(run, out, 500)

        if not simulation:
            stranger(deployment)
        yield rows
        if not simulation:
            assert deployment.processes["node-5"].poll() != 0 or "SuperNode ID" not in deployment.log("node-5")


def stranger(deployment: Deployment) -> None:
    """A SuperNode with the identity of client 4, and with a key pair of its own that the SuperLink does not know."""
    make_node_key(deployment.folder / "node-5")
    deployment.node_configs.append(deployment.node_configs[4])
    deployment.ports.append(0)
    deployment.start_node(5)


def wait_for(marker: Path) -> None:
    deadline = time.monotonic() + 600
    while not marker.exists():
        assert time.monotonic() < deadline, "the server app was not killed"
        time.sleep(0.3)


flare = pytest.mark.skipif(not FLARE, reason="needs NVIDIA FLARE: pip install '.[nvflare]'")
flare_machines = pytest.mark.skipif(shutil.which("nvflare") is None, reason="needs nvflare on the PATH")
superlink = pytest.mark.skipif(shutil.which("flower-superlink") is None, reason="needs flower-superlink on the PATH")
ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'flwr[simulation]'")


@pytest.fixture(
    scope="module",
    params=[
        "in process",
        pytest.param("in process with identities", marks=pytest.mark.slow),
        pytest.param("flare in process", marks=flare),
        pytest.param("flare in process with identities", marks=[pytest.mark.slow, flare]),
        pytest.param("flare simulation", marks=[pytest.mark.slow, flare, flare_machines]),
        pytest.param("flare simulation with identities", marks=[pytest.mark.slow, flare, flare_machines]),
        pytest.param("flare deployment", marks=[pytest.mark.slow, flare, flare_machines]),
        pytest.param("simulation", marks=[pytest.mark.slow, superlink, ray]),
        pytest.param("supernodes", marks=[pytest.mark.slow, superlink]),
    ],
)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("engine")
    if request.param == "in process":
        yield in_process
    elif request.param == "in process with identities":
        yield with_identities(folder)
    elif request.param == "flare deployment":
        yield from flare_deployment(folder)
    elif request.param.startswith("flare"):
        make = flare_in_process if "in process" in request.param else flare_simulation
        yield make(folder, identities="identities" in request.param)
    else:
        yield from deployed(folder, simulation=request.param == "simulation")


def shared(rows: list[Row]) -> list[Row]:
    """What must not differ: all but seconds, bytes (of signatures, and of keys ahead), and the words of a failure."""
    kept = ("round", "purpose", "model", "verdicts", "excluded", "members", "status", "halt")
    return [{key: plain(row[key]) for key in kept} for row in rows]


def left_in(folder: Path) -> Any:
    """`result.json` without what the messages cost, how long it took, and the words of a failure."""
    result = json.loads((folder / "result.json").read_text())
    for key in ("version", "spec_hash", "cpu_seconds"):
        del result[key]
    for row in result["rounds"]:
        del row["bytes_up"], row["bytes_down"]
    for aggregate in result["aggregates"]:
        aggregate["dropped"] = sorted(aggregate["dropped"])
    for client in result["clients"]:
        if client["verdict"] == "untested":
            del client["reason"]
    return result


def plain(value: Any) -> Any:
    """As JSON would have it; of who dropped out of a sum, only the names."""
    if isinstance(value, Mapping):
        return sorted(value)
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def status(row: Row) -> list[str]:
    return [one[1] for one in row["status"]]


# What happens, told once, of the local transport ------------------------------------------------------------------------


def test_a_dropout_in_the_second_test_is_refused_its_sums_and_comes_back_in_the_third() -> None:
    first, second, third, last = local(FURTHER)
    assert [one["purpose"] for one in (first, second, third, last)] == ["test", "test", "test", "training"]
    found = {client: verdict for client, verdict, _ in first["verdicts"]}
    assert (found["client-0"], found["client-1"], found["client-4"]) == ("undecided", "keep", "exclude")
    assert status(second) == ["open", "refused", "refused"]
    assert all(set(one[3]) <= {"client-1"} for one in second["status"])
    assert second["excluded"] == ("client-4",), "who was cleared once and is offline in another test is not excluded"
    assert status(third) == ["open"] * 3
    assert any("client-1" in one[2] for one in third["status"])
    assert last["members"] == tuple(f"client-{number}" for number in range(4))
    assert last["excluded"] == ("client-4",)


def test_where_too_few_sums_may_be_opened_the_run_stops_with_the_old_model() -> None:
    (only,) = local(HALT)
    assert status(only) == ["open", "refused", "open", "refused"]
    assert only["excluded"] == ()
    assert "the run stops here" in only["halt"]
    assert only["model"] == app.digest(app.initial())


def test_further_rows_are_new_while_the_promise_has_room() -> None:
    rows = local(NEW_ROWS)
    assert [(one["purpose"], len(one["status"])) for one in rows][:2] == [("test", 3), ("test", 4)]
    assert rows[0]["excluded"] == ()
    groups = [{frozenset(status[2]) for status in one["status"]} for one in rows[:2]]
    assert groups[1] - groups[0]
    assert status(rows[1]) == ["open"] * 4


def test_by_default_rounds_after_the_first_are_watched_by_a_few_of_its_sums() -> None:
    rows = local(WATCHED)
    assert [(one["purpose"], status(one)) for one in rows] == [
        ("test", ["open"] * 4),
        *[("training", ["open"] * 3)] * 2,
    ]
    groups = [{frozenset(status[2]) for status in one["status"]} for one in rows]
    assert groups[1] == groups[2]
    assert groups[1] < groups[0]


def test_a_sum_with_coefficients_is_what_its_members_multiplied_add_up_to() -> None:
    """By hand in real numbers; and to the last bit what the same vectors give without masks."""
    config = own("multiplied", MULTIPLIED)
    (row,) = local(config)
    sites, first = {f"client-{number}": Site(number, config) for number in range(5)}, app.initial(config["start"])
    updates = {name: site.train(first, round=1).parameters for name, site in sites.items()}
    rows = app.DESIGNS["5x4 multiplied"]
    assert [one[1] for one in row["sums"]] == [app.SAMPLES * sum(times) for times in rows]
    for times, total in zip(rows, row["total"], strict=True):
        for name, start in first.items():
            expected = sum(a * app.SAMPLES * (updates[f"client-{j}"][name] - start) for j, a in enumerate(times))
            np.testing.assert_allclose(total[name], expected, atol=1e-3)
    unmasked = FederationRun(sites, **app.options(config), take_sums=UnmaskedSums(clients=sites))
    assert app.multiplied(unmasked, first) == row


def test_with_coefficients_the_attacker_is_found_and_the_account_says_what_is_known(tmp_path: Path) -> None:
    (test,) = local(own("coefficients", COEFFICIENTS) | {"folder": str(tmp_path)})
    assert status(test) == ["open"] * 4
    assert test["excluded"] == ("client-2",)
    privacy = json.loads((tmp_path / "result.json").read_text())["privacy"]
    share = disclosed_share(app.DESIGNS["5x4 multiplied"], weights=[app.SAMPLES] * 5)
    assert share is not None
    assert privacy["strict"] == 2
    assert list(privacy["shares"].values()) == pytest.approx(share.shares)


# And of every other -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_engine_does_what_the_local_transport_does(
    engine: Engine, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    config, where = own(name, SCENARIOS[name]), request.node.callspec.id
    rows = engine({**config, "folder": str(tmp_path / "run")})
    assert shared(rows) == shared(local({**config, "folder": str(tmp_path / "local")}))
    assert left_in(tmp_path / "run") == left_in(tmp_path / "local")
    assert all(row["refused"] == {} for row in rows)
    reasons = [reason for row in rows for one in row["status"] for reason in one[3].values()]
    assert "in process" not in where or all("training failed with RuntimeError" in reason for reason in reasons)
    assert not any("4711" in reason for reason in reasons), "what training says may be data, and stays at its site"


def test_a_round_in_stages_is_the_same_over_every_engine(engine: Engine) -> None:
    """Over Flower each message has a process of its own: the vector waits in the state of the node, and is sent again."""
    config = own("staged", STAGED)
    (row,) = engine(config)
    (expected,) = local(config)
    assert plain(row) == plain(expected)
    assert row["first"] == [["open", "open"]]
    assert status(row) == ["open"] * 4


def test_sums_with_coefficients_are_the_same_over_every_engine(engine: Engine) -> None:
    config = own("multiplied", MULTIPLIED)
    (row,) = engine(config)
    (expected,) = local(config)
    assert plain(row) == plain(expected)
    assert status(row) == ["open"] * 4


def test_a_server_app_that_was_killed_in_the_second_test_goes_on_when_it_is_submitted_again(
    engine: Engine, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """By SIGKILL. Its nodes have other ids then, and what a site kept for the old run of Flower is gone."""
    where = request.node.callspec.id
    if "in process" in where:
        pytest.skip("the process would be this one: tests/integration/test_flower_restarts.py")
    config = own("restarted", RESTARTED)
    rows = engine({**config, "killed": "2:masked", "folder": str(tmp_path / "run")})
    undisturbed = local({**config, "folder": str(tmp_path / "local")})
    assert [row["round"] for row in rows] == [3, 4]
    assert rows[-1]["model"] == undisturbed[-1]["model"]
    found, expected = left_in(tmp_path / "run"), left_in(tmp_path / "local")
    # The round that was lost has a number: whoever is decided about later is so one round later.
    assert [one | {"decided_in": None} for one in found["clients"]] == [
        one | {"decided_in": None} for one in expected["clients"]
    ]
    assert found["status"] == "finished"
