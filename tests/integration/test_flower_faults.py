"""Nodes that fail, fall silent, come late, claim another name or lose their state, and a server that starts again."""

import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from flwr.app import Context, Message

import flower_app as app
from fedgt.errors import SpecError
from fedgt.federation import DecodeSettings
from fedgt.flower import InProcessGrid
from fedgt.privacy import Ledger
from flower_grid import CONFIG, NAMES, SMALL, nodes, over, played, steps
from slow_cases import slow


def breaking(stage: str, number: int, error: Exception | None = None) -> Callable[[Message, Context], Message]:
    """Node `number` raises at a stage and from then on."""
    order = ["query.fedgt_hello", "query.fedgt_begin", "train.fedgt_masked", "query.fedgt_finish"]
    since = order.index(stage)

    def answer(message: Message, context: Context) -> Message:
        kind = message.metadata.message_type
        if context.node_config["partition-id"] == number and kind in order and order.index(kind) >= since:
            raise error or RuntimeError("the node is broken")
        return app.client(message, context)

    return answer


@pytest.mark.parametrize("stage", [*slow("query.fedgt_begin"), "train.fedgt_masked"])
def test_a_node_that_fails_is_recovered_from_where_the_promise_allows_it(stage: str) -> None:
    """Client 5 sits in groups 2, 4 and 5 of four: without it they mix three clients."""
    (at_three,) = played(InProcessGrid(breaking(stage, 5), nodes(), CONFIG), CONFIG | {"rounds": 1, "privacy": 3})
    assert {record.status for record in at_three.result.records} == {"open"}
    dropped = [dict(record.dropped) for record in at_three.result.records if record.dropped]
    assert dropped
    assert all("the node is broken" in one["client-5"] for one in dropped)
    (at_four,) = played(InProcessGrid(breaking(stage, 5), nodes(), CONFIG), rounds=1)
    assert [r.status for r in at_four.result.records].count("refused") == 3
    assert "client-5" in at_four.excluded


class SilentGrid(InProcessGrid):
    """Some nodes take a message of a type and never answer."""

    def __init__(self, *args: Any, silent: Collection[int], kind: str) -> None:
        super().__init__(*args)
        self.silent, self.kind = silent, kind

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        def heard(name: str) -> bool:
            metadata = self._pushed[name].metadata
            return metadata.dst_node_id not in self.silent or metadata.message_type != self.kind

        return super().pull_messages([name for name in message_ids if name in self._pushed and heard(name)])


@pytest.mark.parametrize("kind", ["train.fedgt_masked", *slow("query.fedgt_finish")])
def test_a_node_that_never_answers_is_dropped_after_the_timeout_of_the_stage(kind: str) -> None:
    grid = SilentGrid(app.client, nodes(), CONFIG, silent={105}, kind=kind)
    began = time.monotonic()
    (only,) = played(grid, CONFIG | {"rounds": 1, "privacy": 3, "timeout": 1.0})
    assert time.monotonic() - began < 6
    assert {record.status for record in only.result.records} == {"open"}
    reasons = {record.dropped["client-5"] for record in only.result.records if "client-5" in record.dropped}
    assert reasons
    assert all("no reply within 1 s" in reason for reason in reasons)


def test_a_node_that_does_not_say_who_it_is_delays_the_run_three_times_at_most() -> None:
    grid = SilentGrid(app.client, nodes(6), SMALL, silent={105}, kind="query.fedgt_hello")
    transport, run = over(grid, SMALL | {"rounds": 3, "timeout": 0.3}, validation=None, grouping=None)
    rounds = list(run.rounds(app.initial()))
    assert "no reply within 0.3 s" in transport.roster.refused[105]
    assert len(rounds[-1].members) == 5


def test_a_node_that_joins_late_trains_from_the_round_after() -> None:
    grid = InProcessGrid(app.client, nodes(), CONFIG)
    late = grid._contexts.pop(114)
    transport, run = over(grid, CONFIG | {"privacy": 3})
    records = run.rounds(app.initial())
    first = next(records)
    assert "client-14" not in first.members
    grid._contexts[114] = late
    next(records)
    assert "client-14" in transport.roster.nodes
    # It was absent in the test, so the default policy leaves it out of training.
    assert "client-14" in first.excluded


@pytest.mark.slow
def test_a_node_that_joins_late_is_trained_with_when_the_policy_keeps_the_untested() -> None:
    grid = InProcessGrid(app.client, nodes(), CONFIG)
    late = grid._contexts.pop(114)
    records = steps(grid, CONFIG | {"privacy": 3}, decode=DecodeSettings(on_untested="keep"))
    next(records)
    grid._contexts[114] = late
    assert any("client-14" in record.members for record in next(records).result.records)


def test_an_unregistered_node_takes_no_part_and_is_named() -> None:
    transport, run = over(InProcessGrid(app.client, nodes(16), CONFIG), rounds=1)
    rounds = list(run.rounds(app.initial()))
    assert transport.roster.refused == {115: "client 'client-15' is not registered for this run"}
    assert rounds[0].excluded == ("client-3",)


def test_two_nodes_that_claim_one_client_are_both_refused_by_their_ids() -> None:
    twice = nodes() | {777: {"partition-id": 5}}
    transport, run = over(InProcessGrid(app.client, twice, CONFIG), CONFIG | {"rounds": 1, "privacy": 3})
    (only,) = run.rounds(app.initial())
    refused = transport.roster.refused
    assert set(refused) == {105, 777}
    assert all("nodes 105, 777 all say that they are client 'client-5'" in reason for reason in refused.values())
    assert "client-5" not in only.members


def test_a_second_claim_in_mid_run_is_settled_by_asking_both() -> None:
    """While both answer, neither is believed; when one of them goes, the other one is asked again."""
    grid = InProcessGrid(app.client, nodes(5), SMALL)
    rival = InProcessGrid(app.client, {777: {"partition-id": 2}}, CONFIG).contexts[777]
    records = steps(grid, SMALL | {"rounds": 3}, validation=None, grouping=None)
    assert "client-2" in next(records).members
    grid._contexts[777] = rival
    assert "client-2" not in next(records).members
    del grid._contexts[777]
    assert "client-2" in next(records).members


def test_a_node_that_comes_back_under_another_id_takes_its_name_with_it() -> None:
    grid = SilentGrid(app.client, nodes(5), SMALL, silent={102}, kind="none")
    records = steps(grid, SMALL | {"timeout": 0.5}, validation=None, grouping=None)
    next(records)
    grid.kind = "query.fedgt_hello"  # the earlier node is dead, and still on the list
    grid._contexts[777] = InProcessGrid(app.client, {777: {"partition-id": 2}}, CONFIG).contexts[777]
    assert "client-2" in next(records).result.records[0].members


def test_a_node_that_loses_its_state_in_mid_round_is_a_dropout() -> None:
    def forgetful(message: Message, context: Context) -> Message:
        if context.node_id == 105 and message.metadata.message_type == "train.fedgt_masked":
            context.state.clear()
        return app.client(message, context)

    (only,) = played(InProcessGrid(forgetful, nodes(), CONFIG), CONFIG | {"rounds": 1, "privacy": 3})
    assert any("no plan has come yet" in r.dropped.get("client-5", "") for r in only.result.records)


def account(path: Path, config: dict[str, Any] = SMALL, *, begun: bool = False) -> Ledger:
    return Ledger.kept_in(path, clients=app.names_of(config), promised=int(config["privacy"]), begun=begun)


UNTESTED: dict[str, Any] = {"validation": None, "grouping": None}


def test_a_server_that_starts_again_goes_on_with_the_next_round(tmp_path: Path) -> None:
    whole = played(InProcessGrid(app.client, nodes(5), SMALL), SMALL, **UNTESTED)
    grid = InProcessGrid(app.client, nodes(5), SMALL)
    first = next(steps(grid, SMALL, ledger=account(tmp_path / "account"), **UNTESTED))
    _, run = over(grid, SMALL, ledger=account(tmp_path / "account", begun=True), **UNTESTED)
    run.begin(first.parameters, after=1)
    coming = run.coming()
    assert coming is not None
    assert coming.round == 2
    assert app.digest(run.hold(coming).parameters) == app.digest(whole[-1].parameters)
    assert run.coming() is None


def test_a_restart_does_not_open_what_was_refused_before_it(tmp_path: Path) -> None:
    """The sum of all five was opened; after the restart client 4 is not there, and the sum of the other four would show it.

    One more sits out, so that the difference mixes two. A server that forgets opens the sum of four.
    """

    def opened(ledger: Ledger | None, nodes_there: int) -> int:
        grid = InProcessGrid(app.client, nodes(nodes_there), SMALL)
        (only,) = played(grid, SMALL, rounds=1, ledger=ledger, **UNTESTED)
        assert only.result.records[0].status == "open"
        return len(only.result.records[0].members)

    path = tmp_path / "account"
    assert opened(account(path), 5) == 5
    assert opened(account(path), 4) == 3
    assert opened(Ledger.load(path), 4) == 3
    assert opened(None, 4) == 4


def test_a_server_that_is_killed_between_permission_and_opening_has_opened(tmp_path: Path) -> None:
    class Killed(InProcessGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            batch = list(messages)
            if any(one.metadata.message_type == "query.fedgt_finish" for one in batch):
                raise KeyboardInterrupt
            return super().push_messages(batch)

    path = tmp_path / "account"
    options = {"rounds": 1, **UNTESTED}
    with pytest.raises(KeyboardInterrupt):
        played(Killed(app.client, nodes(5), SMALL), SMALL, ledger=account(path), **options)
    (only,) = played(InProcessGrid(app.client, nodes(4), SMALL), SMALL, ledger=account(path), **options)
    assert len(only.result.records[0].members) == 3, "four would show the fifth"


def test_a_run_goes_on_with_its_account_or_not_at_all(tmp_path: Path) -> None:
    grid = InProcessGrid(app.client, nodes(5), SMALL)
    _, run = over(grid, SMALL)
    with pytest.raises(SpecError, match="needs the account"):
        run.begin(app.initial(), after=1)
    with pytest.raises(SpecError, match="is missing"):
        account(tmp_path / "lost", begun=True)
    Ledger.kept_in(tmp_path / "other", clients=NAMES[:5], promised=3)
    with pytest.raises(SpecError, match="promised that sums mix 3 clients"):
        account(tmp_path / "other")
    with pytest.raises(SpecError, match="promised that sums mix 3 clients"):
        over(grid, SMALL, ledger=Ledger.load(tmp_path / "other"))
