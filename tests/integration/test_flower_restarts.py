"""A site or the server that starts again: nobody trains twice for one round, and what was answered stays answered."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

import flower_app as app
from fedgt.engine import TrainedModel
from fedgt.errors import SpecError
from fedgt.flower import InProcessGrid, client_app, inputs_of
from fedgt.grouping import Grouping
from flower_grid import SMALL, agreed_at, opened_in, over, played, steps, trips
from flower_machines import write_consortium
from slow_cases import slow

MASKED = "train.fedgt_masked"


class Counted:
    """An app that counts the trainings of each client and round."""

    def __init__(self) -> None:
        self.trained: list[tuple[int, int]] = []
        self.app: ClientApp = client_app(self._train)

    def _train(self, parameters: Any, round: int, context: Context) -> TrainedModel:
        self.trained.append((int(context.node_config["partition-id"]), round))
        return app.train(parameters, round, context)

    def only_once(self) -> bool:
        return len(self.trained) == len(set(self.trained))


def placed(folder: Path) -> tuple[dict[int, dict[str, Any]], dict[str, Any]]:
    """Node configs with identities and journals, and the run config that points to the keys."""
    return dict(enumerate(write_consortium(folder / "keys", 5), start=100)), SMALL | {"keys": str(folder / "keys")}


def crashing(counted: Counted, lost: Callable[[Context], None]) -> Callable[[Message, Context], Message]:
    """Client 1 trains in round 1 and crashes before its answer leaves; the message is given to a new process."""
    crashed: list[str] = []

    def answer(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] != 1 or message.metadata.message_type != MASKED or crashed:
            return counted.app(message, context)
        before = dict(context.state.items())
        counted.app(message, context)
        crashed.append("once")
        context.state.clear()
        context.state.update(before)
        lost(context)
        return counted.app(message, context)

    return answer


@pytest.mark.parametrize(
    "lost", [lambda context: None, lambda context: context.state.clear()], ids=["state as before", "state lost"]
)
def test_a_site_that_crashes_after_training_is_a_dropout_and_does_not_train_again(
    tmp_path: Path, lost: Callable[[Context], None]
) -> None:
    places, config = placed(tmp_path)
    counted = Counted()
    grid = InProcessGrid(crashing(counted, lost), places, config)
    first, second = steps(grid, config | {"rounds": 2}, validation=None, grouping=None)
    assert set(first.result.records[0].dropped) == {"client-1"}
    assert counted.only_once()
    assert (1, 2) in counted.trained, "the round after is as any other"
    assert second.result.records[0].dropped == {}


@pytest.mark.parametrize("over_night", [False, True], ids=["SuperNodes stay", "SuperNodes start again"])
def test_a_server_that_holds_a_round_again_trains_nobody(tmp_path: Path, over_night: bool) -> None:
    """It has forgotten the round, or pretends to: under the same name the sites know better, whatever they lost."""
    places, config = placed(tmp_path)
    counted = Counted()
    grid = InProcessGrid(counted.app, places, config)
    untested = {"validation": None, "grouping": None, "name": "winter"}
    next(steps(grid, config, **untested))
    assert len(counted.trained) == 5
    if over_night:
        grid = InProcessGrid(counted.app, places, config)
    _, run = over(grid, config, **untested)
    again = next(run.rounds(app.initial()))
    assert again.result.secure_sums == 0
    assert len(counted.trained) == 5
    assert all("is over" in reason or "a later round" in reason for reason in again.result.records[0].dropped.values())


# The server ---------------------------------------------------------------------------------------------------------------

STAGES = ("query.fedgt_begin", MASKED, "query.fedgt_agree", "query.fedgt_finish")
POINTS = [(number, stage) for number in (1, 2, 3) for stage in STAGES]


class Killed(BaseException):
    """The server's process is gone: nothing may catch it."""


class DyingGrid(InProcessGrid):
    """The server dies when it is about to send the messages of a stage, in its n-th round. The nodes live on."""

    at: tuple[int, str] | None = None

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        batch = list(messages)
        kinds = {message.metadata.message_type for message in batch}
        if kinds == {STAGES[0]}:
            self.began = getattr(self, "began", 0) + 1
        if self.at is not None and kinds == {self.at[1]} and self.began == self.at[0]:
            self.at = None
            raise Killed
        return super().push_messages(batch)


RESTARTED = {"malicious": "4", "rounds": 3}
"""Two tests, because client 0 stays undecided in the first, and a training round."""


def result_of(config: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((Path(config["folder"]) / "result.json").read_text())
    return result


def verdicts_of(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(c["id"], c["verdict"], c["excluded"], c["posterior"]) for c in result["clients"]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("undisturbed")
    places, config = placed(folder)
    config |= RESTARTED | {"folder": str(folder / "run")}
    played(InProcessGrid(app.client, places, config), config)
    return result_of(config)


@pytest.mark.parametrize(("number", "stage"), [*slow(*POINTS[:4]), *POINTS[4:8], *slow(*POINTS[8:])], ids=str)
@pytest.mark.parametrize("sites_too", [False, *slow(True)], ids=["", "with all sites"])
def test_a_server_that_was_killed_goes_on_with_the_same_verdicts_and_the_whole_account(
    tmp_path: Path, undisturbed: dict[str, Any], number: int, stage: str, sites_too: bool
) -> None:
    places, config = placed(tmp_path)
    config |= RESTARTED | {"folder": str(tmp_path / "run")}
    counted = Counted()
    grid = DyingGrid(counted.app, places, config)
    grid.at = (number, stage)
    with pytest.raises(Killed):
        played(grid, config)
    assert not (tmp_path / "run" / "result.json").exists()
    if sites_too:
        grid = DyingGrid(counted.app, {node + 900: config for node, config in places.items()}, config)
    rounds = played(grid, config)
    result = result_of(config)
    assert result["status"] == "finished"
    assert verdicts_of(result) == verdicts_of(undisturbed)
    assert rounds[-1].round == 4, "the round that was under way is lost, and held under another number"
    assert counted.only_once()
    registry = app.credentials_of(config).registry
    for place in places.values():
        agreed = agreed_at(Path(place["fedgt-journal"]), registry)
        assert agreed
        assert agreed <= opened_in(tmp_path / "run"), "what a site has agreed to open is in the account"


class Returning(DyingGrid):
    """After the restart one node is not there at first, then busy with the round that was lost; then it answers."""

    busy = 102
    looks, replies = 3, 4

    def get_node_ids(self) -> Iterable[int]:
        self.looks -= 1
        return [node for node in super().get_node_ids() if node != self.busy or self.looks < 0]

    def _answer(self, message: Message) -> Message:
        if message.metadata.dst_node_id == self.busy and self.replies:
            self.replies -= 1
            return Message(Error(code=3, reason="no reply before it expired"), reply_to=message)
        return super()._answer(message)


def test_a_run_that_goes_on_waits_for_the_sites_that_are_still_busy_with_the_lost_round(
    tmp_path: Path, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedgt.engine.roster.time.sleep", lambda seconds: None)
    places, config = placed(tmp_path)
    config |= RESTARTED | {"folder": str(tmp_path / "run")}
    grid = DyingGrid(app.client, places, config)
    grid.at = (1, MASKED)
    with pytest.raises(Killed):
        played(grid, config)
    rounds = played(Returning(app.client, places, config), config)
    assert [one.round for one in rounds] == [2, 3, 4]
    assert rounds[0].members == app.names_of(config)
    assert verdicts_of(result_of(config)) == verdicts_of(undisturbed)


def test_who_was_excluded_before_a_restart_is_never_asked_again(tmp_path: Path) -> None:
    places, config = placed(tmp_path)
    config |= RESTARTED | {"folder": str(tmp_path / "run")}
    grid = DyingGrid(app.client, places, config)
    grid.at = (2, MASKED)
    with pytest.raises(Killed):
        played(grid, config)
    pushed = trips(grid)
    rounds = played(grid, config)
    assert {one.excluded for one in rounds} == {("client-4",)}
    asked = {node for kind, to in pushed if kind != "query.fedgt_hello" for node in to}
    assert asked == {100, 101, 102, 103}


def test_a_run_goes_on_only_with_its_own_settings_plan_and_registry(tmp_path: Path) -> None:
    places, config = placed(tmp_path)
    config |= RESTARTED | {"folder": str(tmp_path / "run")}
    grid = DyingGrid(app.client, places, config)
    grid.at = (2, MASKED)
    with pytest.raises(Killed):
        played(grid, config)
    other_plan = Grouping(design=app.options(config)["grouping"].design, clients=app.names_of(config)[::-1])
    with pytest.raises(SpecError, match="another plan"):
        played(grid, config, grouping=other_plan)
    with pytest.raises(SpecError, match="rounds"):
        played(grid, config, rounds=9)
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    write_consortium(stranger / "keys", 5)
    with pytest.raises(SpecError):
        played(grid, config | {"keys": str(stranger / "keys")}, inputs=inputs_of(config))
    _, busy = over(grid, config)
    with pytest.raises(SpecError, match="another process"):
        over(grid, config)
    busy.close()
    assert played(grid, config)[-1].excluded == ("client-4",)
