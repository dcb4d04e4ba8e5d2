"""A site or the server that starts again: nobody trains twice for one round, and what was answered stays answered."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

import flower_app as app
from fedgt.engine import TrainedModel
from fedgt.flower import InProcessGrid, client_app
from flower_grid import SMALL, over, steps
from flower_machines import write_consortium

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
