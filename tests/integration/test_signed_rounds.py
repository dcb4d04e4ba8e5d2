"""Identities from the command line to whole rounds."""

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import Done, called
from fedgt import FederationRun
from fedgt.design import named_design
from fedgt.engine import ClientEndpoint, LocalTransport, TrainedModel
from fedgt.errors import RunHaltedError, SpecError
from fedgt.federation import DecodeSettings, Federation, RfaSettings, ScreenSettings, Validation, rfa_round
from fedgt.federation.round import screening_round, training_round
from fedgt.grouping import Grouping
from fedgt.privacy import Ledger
from fedgt.screen import ScreenResult
from fedgt.secagg import ClientPolicy, Credentials, Identity, Registry, read_private_key, read_registry
from fedgt.types import Parameters

IDS = tuple(f"c{number:02d}" for number in range(15))


def keygen(*arguments: str | Path) -> Done:
    return called("keygen", *arguments)


def test_keygen_makes_identities_that_the_library_reads(tmp_path: Path) -> None:
    registry = tmp_path / "registry.toml"
    made = keygen("north", "--key", tmp_path / "north.pem", "--registry", registry)
    assert made.returncode == 0, made.stderr
    north = read_private_key(tmp_path / "north.pem", "north")
    assert made.stdout == f'north = "{north.public.hex()}"\n'
    assert stat.S_IMODE((tmp_path / "north.pem").stat().st_mode) == 0o600
    made = keygen("tower", "--server", "--key", tmp_path / "tower.pem", "--registry", registry, "--json")
    answer = json.loads(made.stdout)
    assert answer == {
        "name": "tower",
        "server": True,
        "public": read_private_key(tmp_path / "tower.pem", "tower").public.hex(),
        "key": str(tmp_path / "tower.pem"),
    }
    known = read_registry(registry)
    assert Credentials(identity=read_private_key(tmp_path / "tower.pem", "tower"), registry=known).serves
    assert not Credentials(identity=north, registry=known).serves


def test_keygen_overwrites_nothing_and_registers_nobody_twice(tmp_path: Path) -> None:
    """Case 37 on the command line."""
    registry = tmp_path / "registry.toml"
    keygen("north", "--key", tmp_path / "north.pem", "--registry", registry)
    before = (tmp_path / "north.pem").read_bytes(), registry.read_bytes()
    for arguments, message in (
        (("south", "--key", tmp_path / "north.pem", "--registry", registry), "never overwritten"),
        (("north", "--key", tmp_path / "again.pem", "--registry", registry), "ids must be unique"),
        (("", "--key", tmp_path / "again.pem"), "printable"),
    ):
        done = keygen(*arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stdout == ""
    assert before == ((tmp_path / "north.pem").read_bytes(), registry.read_bytes())
    assert not (tmp_path / "again.pem").exists()


class Counting:
    """A model with a normalisation layer: weights and a running mean move, the counter counts."""

    def __init__(self, shift: float) -> None:
        self.shift = shift

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        moved = {
            name: array + np.asarray(self.shift if array.dtype.kind == "f" else 5, dtype=array.dtype)
            for name, array in parameters.items()
        }
        return TrainedModel(parameters=moved, samples=10)


def federation(*, signed: bool) -> Federation:
    server = Identity.generate("server")
    clients = {name: Identity.generate(name) for name in IDS}
    registry = Registry(server=server.public, clients={name: one.public for name, one in clients.items()})

    def credentials(identity: Identity) -> Credentials | None:
        return Credentials(identity=identity, registry=registry) if signed else None

    policy = ClientPolicy(minimum_group_size=4, privacy=4, largest_clip=8.0, last_round=5)
    handlers = {
        name: ClientEndpoint(name, Counting(number / 16), policy=policy, credentials=credentials(clients[name])).handle
        for number, name in enumerate(IDS)
    }
    return Federation(
        run="signed",
        transport=LocalTransport(handlers),
        ledger=Ledger(clients=IDS, promised=4),
        samples=dict.fromkeys(IDS, 10),
        credentials=credentials(server),
    )


MODEL: dict[str, Any] = {
    "weight": np.zeros((2, 3), dtype=np.float32),
    "running_mean": np.zeros(3, dtype=np.float32),
    "batches": np.array(2**60 + 1, dtype=np.int64),
}


@pytest.mark.parametrize("signed", [True, False])
def test_a_training_round_averages_floats_and_keeps_counters(signed: bool) -> None:
    result = training_round(federation(signed=signed), MODEL, round=0, members=IDS)
    assert result.records[0].status == "open"
    np.testing.assert_array_equal(result.parameters["weight"], np.full((2, 3), 7 / 16, dtype=np.float32))
    np.testing.assert_array_equal(result.parameters["running_mean"], np.full(3, 7 / 16, dtype=np.float32))
    assert int(result.parameters["batches"]) == 2**60 + 1


def test_identities_change_no_number_of_a_screening_round() -> None:
    """Keys never influence results."""
    outcomes = []
    for signed in (True, False):
        result = screening_round(
            federation(signed=signed),
            MODEL,
            round=1,
            grouping=Grouping(design=named_design("bch-15x8"), clients=IDS),
            present=IDS,
            validation=Validation(
                logits=lambda parameters: np.array([[0.4, float(parameters["weight"][0, 0])], [0.0, 1.0]]),
                labels=np.array([1, 1]),
            ),
            screen=ScreenSettings(kind="clusters"),
            decoding=DecodeSettings(),
        )
        assert {record.status for record in result.result.records} == {"open"}
        assert isinstance(result.screen, ScreenResult)
        outcomes.append((str(result.screen.outcomes), result.result.parameters["weight"].tobytes()))
    assert outcomes[0] == outcomes[1]


def test_rfa_runs_among_clients_with_identities() -> None:
    model: Parameters = {"weight": np.zeros((2, 3), dtype=np.float32)}
    result = rfa_round(federation(signed=True), model, round=0, members=IDS, rfa=RfaSettings())
    assert result.secure_sums == 3
    assert {record.status for record in result.records} == {"open"}


def test_clients_with_identities_do_not_answer_an_anonymous_server() -> None:
    signed, anonymous = federation(signed=True), federation(signed=False)
    wrong = Federation(
        run="signed", transport=signed.transport, ledger=anonymous.ledger, samples=anonymous.samples, credentials=None
    )
    result = training_round(wrong, MODEL, round=0, members=IDS)
    assert result.records[0].status == "erased"
    assert "not by its registered key" in result.records[0].dropped["c00"]


def test_clients_without_identities_are_refused_by_a_run_that_has_one_before_anybody_is_asked() -> None:
    server = Identity.generate("server")
    credentials = Credentials(
        identity=server, registry=Registry(server=server.public, clients={n: Identity.generate(n).public for n in IDS})
    )
    sites = {name: Counting(0.1) for name in IDS}
    with pytest.raises(SpecError, match=r"these clients have none: build ClientEndpoint\(name, client, policy="):
        FederationRun(sites, privacy=4, samples=dict.fromkeys(IDS, 10), credentials=credentials)


def test_a_run_whose_clients_all_leave_for_one_reason_says_it(tmp_path: Path) -> None:
    """The clients keep their journals and the server has lost what they signed."""
    keys = {name: Identity.generate(name) for name in ("server", *IDS)}
    registry = Registry(server=keys["server"].public, clients={name: keys[name].public for name in IDS})

    def run() -> FederationRun:
        handlers = {
            name: ClientEndpoint(
                name,
                Counting(number / 16),
                policy=ClientPolicy(privacy=4),
                credentials=Credentials(identity=keys[name], registry=registry),
                journal=tmp_path / name,
            ).handle
            for number, name in enumerate(IDS)
        }
        return FederationRun(
            LocalTransport(handlers),
            privacy=4,
            samples=dict.fromkeys(IDS, 10),
            validation=Validation(logits=lambda p: np.eye(2)[[0, 1]] + p["weight"][0, 0], labels=np.array([0, 1])),
            rounds=1,
            credentials=Credentials(identity=keys["server"], registry=registry),
            decode=DecodeSettings(on_undecidable="stop"),
        )

    model: Parameters = {"weight": np.zeros((2, 20))}
    list(run().rounds(model))
    with pytest.raises(RunHaltedError) as halted:
        list(run().rounds(model))
    assert "no groups could be compared" in str(halted.value)
    assert "15 of 15 clients left for the same reason; c" in str(halted.value)
    assert "which is not in the record of 0 here" in str(halted.value)
