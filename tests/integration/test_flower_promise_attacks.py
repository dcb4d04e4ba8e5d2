"""What an active server tries over Flower, where every message finds a fresh process and each run a fresh context.

The server is that of `tests/support/lying_server.py`; its clients are a real ClientApp behind an in-process grid.
"""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp

from fedgt.engine import TrainedModel
from fedgt.engine.prekey_store import finish_message, read_finished
from fedgt.errors import FedGTError
from fedgt.flower import InProcessGrid, Site, client_app, inputs_of
from fedgt.flower.records import MESSAGE_TYPES, frame_of, frame_record
from fedgt.secagg import ClientPolicy
from fedgt.secagg.messages import stage_message
from fedgt.types import Parameters
from lying_server import Attempt, LocalData, LyingServer, least_mixed, model
from slow_cases import slow

NAMES = tuple(f"c{number}" for number in range(9))
PROMISE = 4
CONFIG: dict[str, Any] = {"rate": 0.1}
COLLUDERS = pytest.mark.parametrize("colluders", [*slow(0), 1, *slow(2)])


class Node:
    """One client in one Flower run: its context, and the app that answers."""

    def __init__(self, app: ClientApp, name: str, config: Mapping[str, Any]) -> None:
        self.grid = InProcessGrid(app, {7: {"fedgt-client": name}}, config)
        self.app = app

    @property
    def context(self) -> Context:
        return self.grid.contexts[7]

    def handle(self, stage: str, payload: bytes) -> bytes:
        unmask = stage == "unmask"
        if unmask:
            stage, payload = "finish", finish_message(payload, None, identity=self.server_identity)
        message = self.grid.message(frame_record(payload), 7, MESSAGE_TYPES[stage])
        reply = frame_of(self.app(message, self.context).content)
        return read_finished(reply)[0] if unmask else reply

    server_identity: Any = None


class FlowerServer(LyingServer):
    """The clients are Flower nodes; each process of a client is one Flower run."""

    config: Mapping[str, Any] = CONFIG
    journals = True

    def fresh(self, name: str) -> Any:
        def site(context: Context) -> Site:
            return Site(
                client=name,
                credentials=self.credentials(self.people.clients[name]),
                policy=self.policy,
                journal=self.folder / name if self.folder is not None and self.journals else None,
            )

        def train(parameters: Parameters, round: int, context: Context) -> TrainedModel:
            return self.data[name].train(parameters, round=round)

        node = Node(client_app(train, site=site), name, self.config)
        node.server_identity = self.people.server
        return node

    def tell(self, client: str, stage: str, message: bytes, process: int = 0) -> bytes | None:
        try:
            return self.endpoint(client, process).handle(stage, message)
        except Exception as error:  # Flower wraps what an app raises
            cause = error if isinstance(error, FedGTError) else error.__cause__ or error
            self.refusals.setdefault(client, str(cause))
            return None

    def node(self, name: str, process: int = 0) -> Node:
        return self.endpoint(name, process)  # type: ignore[return-value]

    def vectors(self, *groups: Any, sent: Any = None, process: int = 0, **changes: Any) -> Attempt:
        attempt = self.begin(
            self.plan(*groups, **changes),
            model(1) if sent is None else sent,
            ahead=True,
            process=process,
            extra=inputs_of(CONFIG),
        )
        self.mask(attempt)
        return attempt


def lying(colluders: int, folder: Path) -> FlowerServer:
    bad = NAMES[len(NAMES) - colluders :]
    return FlowerServer(NAMES, ClientPolicy(privacy=PROMISE, colluders=colluders), bad=bad, folder=folder)


def require_kept(server: LyingServer) -> None:
    mixed = least_mixed(server.revealed())
    assert mixed is None or mixed >= PROMISE - len(server.bad), f"{mixed} honest clients are mixed"


@COLLUDERS
def test_an_ordinary_round_is_answered(colluders: int, tmp_path: Path) -> None:
    server = lying(colluders, tmp_path)
    assert len(server.open(server.vectors(NAMES))) == len(server.honest)
    assert least_mixed(server.revealed()) == len(server.honest)


@COLLUDERS
def test_another_flower_run_does_not_begin_another_account(colluders: int, tmp_path: Path) -> None:
    """A new run is a new context at every node; its state is empty."""
    server = lying(colluders, tmp_path)
    assert server.open(server.vectors(NAMES))
    assert not server.open(server.vectors(NAMES[1:], run="another", process=1))
    assert all("mix only c0" in server.refusals[name] for name in server.honest[1:])
    require_kept(server)


def test_a_site_with_an_identity_and_no_journal_answers_nothing(tmp_path: Path) -> None:
    """Its account would be in the context of one run, and gone with the next."""
    server = lying(0, tmp_path)
    server.journals = False
    attempt = server.vectors(NAMES)
    assert attempt.keys == {}
    assert all("identity and no journal" in server.refusals[name] for name in NAMES)


@COLLUDERS
@pytest.mark.parametrize("later_first", [False, True])
def test_two_flower_runs_at_once_with_nearly_equal_models_count_as_one(
    colluders: int, later_first: bool, tmp_path: Path
) -> None:
    server = lying(colluders, tmp_path)
    one = server.vectors(NAMES, run="one")
    two = server.vectors(NAMES, run="two", sent=model(1, 1e-9), process=1)
    order = [(two, NAMES[1:]), (one, NAMES)] if later_first else [(one, NAMES), (two, NAMES[1:])]
    for attempt, alive in order:
        server.open(attempt, {0: (alive, set(NAMES) - set(alive))})
    assert server.revealed()
    require_kept(server)


@COLLUDERS
def test_a_configuration_that_changes_before_training_is_noticed(colluders: int, tmp_path: Path) -> None:
    """All but c0 are told to train with a rate of zero, after they have agreed to the plan: the sum would be c0's."""
    server = lying(colluders, tmp_path)
    attempt = server.begin(server.plan(NAMES), model(1), ahead=True, extra=inputs_of(CONFIG))
    for name in server.honest[1:]:
        server.node(name).context.run_config = {"rate": 0.0}
    server.mask(attempt)
    assert {NAMES[position] for _, position in attempt.vectors} == {"c0", *server.bad}
    assert all(not server.data[name].trained for name in server.honest[1:])
    assert all("train from the same" in server.refusals[name] for name in server.honest[1:])


@COLLUDERS
@pytest.mark.parametrize("what", ["left out", "another", "of another name"])
def test_a_plan_about_another_configuration_is_refused(what: str, colluders: int, tmp_path: Path) -> None:
    server = lying(colluders, tmp_path)
    digest = inputs_of(CONFIG)["config"]
    extra = {"left out": {}, "another": inputs_of({"rate": 0.2}), "of another name": {"konfig": digest}}[what]
    attempt = server.begin(server.plan(NAMES), model(1), ahead=True, extra=extra)
    server.mask(attempt)
    assert not {NAMES[position] for _, position in attempt.vectors} - set(server.bad)
    assert all("the plan is about another" in server.refusals[name] for name in server.honest)


@COLLUDERS
@pytest.mark.parametrize("stage", ["masked", "agree", "finish"])
def test_a_copy_of_a_context_answers_no_stage_twice(stage: str, colluders: int, tmp_path: Path) -> None:
    """The platform hands the state of one run out a second time, as after a crash; the server asks both copies."""
    server = lying(colluders, tmp_path)
    copies: dict[str, RecordDict] = {}

    def copied(now: str) -> None:
        if now == stage:
            copies.update({name: copy.deepcopy(server.node(name).context.state) for name in server.honest})

    def swapped() -> None:
        for name in server.honest:
            server.node(name).context.state = copies[name]

    attempt = server.begin(server.plan(NAMES), model(1), ahead=True, extra=inputs_of(CONFIG))
    copied("masked")
    server.mask(attempt)
    first, second = server.link(attempt, {0: (NAMES, ())}), server.link(attempt, {0: (NAMES[1:], NAMES[:1])})
    copied("agree")
    server.sign(attempt, first)
    copied("finish")
    assert len(server.unmask(attempt, first)) == len(server.honest)
    swapped()
    if stage == "masked":
        server.mask(attempt)
    assert set(server.sign(attempt, second)) == set(server.bad)
    assert server.unmask(attempt, second) == {}
    require_kept(server)


@COLLUDERS
def test_prekeys_of_one_run_serve_no_other(colluders: int, tmp_path: Path) -> None:
    """The plan of the second run comes to the contexts of the first, and the other way round."""
    server = lying(colluders, tmp_path)
    begin = server.begin
    one = begin(server.plan(NAMES, run="one"), model(1), ahead=True, extra=inputs_of(CONFIG))
    two = begin(server.plan(NAMES, run="two"), model(2), ahead=True, extra=inputs_of(CONFIG), process=1)
    one.process, two.process = 1, 0
    for attempt in (one, two):
        server.mask(attempt)
        assert not {NAMES[position] for _, position in attempt.vectors} - set(server.bad)
    assert all(not data.trained for name, data in server.data.items() if name in server.honest)


@COLLUDERS
def test_frames_that_come_as_another_type_of_message_train_nothing(colluders: int, tmp_path: Path) -> None:
    """Only "masked" trains; whatever else comes under its name is refused, and spoils nothing."""
    server = lying(colluders, tmp_path)
    attempt = server.begin(server.plan(NAMES), model(1), ahead=True, extra=inputs_of(CONFIG))
    link = server.link(attempt, {0: (NAMES, ())})
    for name in server.honest:
        part = server.lists_of(attempt, link, name)
        for stage in ("agree", "finish"):
            frame = stage_message(
                attempt.plan, stage, name, part, attached=link.to_json(), identity=server.people.server
            )
            assert server.tell(name, "masked", frame) is None
        assert not server.data[name].trained
    server.mask(attempt)
    assert len(server.open(attempt)) == len(server.honest)


def test_the_client_of_these_tests_trains(tmp_path: Path) -> None:
    server = lying(0, tmp_path)
    server.vectors(NAMES)
    assert all(isinstance(data, LocalData) and data.trained == [1.0] for data in server.data.values())
