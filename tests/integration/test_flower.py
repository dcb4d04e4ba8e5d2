"""The whole federation on Flower's interfaces, with all nodes in this process."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedgt[flower]'")

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg

import flower_app as app
from fedgt.engine import ClientEndpoint, LocalTransport, TrainedModel
from fedgt.errors import SpecError
from fedgt.federation import DecodeSettings, Federation, ScreenSettings
from fedgt.flower import FedGT, FlowerRound, InProcessGrid, Site, adaptive, client_app, register
from fedgt.privacy import Ledger
from fedgt.round import screening_round, training_round
from fedgt.secagg import ClientPolicy, Credentials, Identity, Registry, add_to_registry, write_private_key

CONFIG: dict[str, Any] = {
    "clients": 15,
    "privacy": 4,
    "rounds": 2,
    "timeout": 20.0,
    "wait": 0.0,
    "malicious": "3",
}
SMALL = CONFIG | {"clients": 5, "privacy": 2}
NAMES = tuple(f"client-{number}" for number in range(15))


def nodes(count: int = 15, **config: Any) -> dict[int, dict[str, Any]]:
    return {100 + number: {"partition-id": number} | config for number in range(count)}


def played(grid: InProcessGrid, **changes: Any) -> list[FlowerRound]:
    return list(app.federation(CONFIG | changes).start(grid, app.initial()))


def test_fifteen_clients_in_eight_groups_find_the_one_that_flips_labels() -> None:
    rounds = played(InProcessGrid(app.client, nodes(), CONFIG))
    assert [one.round for one in rounds] == [1, 2]
    assert rounds[0].excluded == ("client-3",)
    assert rounds[0].screening is not None
    assert len(rounds[0].result.records) == 8
    assert all(record.status == "open" for one in rounds for record in one.result.records)
    assert all("client-3" not in record.members for one in rounds[1:] for record in one.result.records)
    assert all(one.refused == {} and one.halt == "" for one in rounds)


def test_models_and_decisions_are_those_of_the_local_transport_to_the_last_bit() -> None:
    """The spine, driven by hand, with the same training behind it."""

    class Local:
        def __init__(self, number: int) -> None:
            self.context = InProcessGrid(app.client, {1: {"partition-id": number}}, CONFIG).contexts[1]

        def train(self, parameters: Any, *, round: int) -> TrainedModel:
            return app.train(parameters, round, self.context)

    strategy = app.federation(CONFIG)
    federation = Federation(
        run="local",
        transport=LocalTransport({name: ClientEndpoint(name, Local(j)).handle for j, name in enumerate(NAMES)}),
        ledger=Ledger(clients=NAMES, promised=4),
        samples=dict.fromkeys(NAMES, app.SAMPLES),
    )
    first = screening_round(
        federation,
        app.initial(),
        round=1,
        grouping=strategy.grouping,
        present=NAMES,
        validation=strategy.validation,
        screen=strategy.screen,
        decoding=strategy.decoding,
    )
    second = training_round(federation, first.result.parameters, round=2, members=first.exclusion.kept)
    rounds = played(InProcessGrid(app.client, nodes(), CONFIG), rounds=2)
    assert rounds[0].screening is not None
    assert [v.verdict for v in rounds[0].screening.exclusion.verdicts] == [v.verdict for v in first.exclusion.verdicts]
    assert [app.digest(one.parameters) for one in rounds] == [
        app.digest(first.result.parameters),
        app.digest(second.parameters),
    ]


def held(context: Context) -> list[bytes]:
    """Everything that is in the state of a node."""
    return [array.data for record in context.state.array_records.values() for array in record.values()]


def test_the_state_between_messages_holds_keys_and_shares_and_is_wiped() -> None:
    sizes: dict[str, list[int]] = {}

    def watched(message: Message, context: Context) -> Message:
        reply = app.client(message, context)
        sizes.setdefault(message.metadata.message_type, []).append(sum(map(len, held(context))))
        return reply

    grid = InProcessGrid(watched, nodes(), CONFIG)
    played(grid, rounds=1)
    assert len(sizes["train.fedgt_masked"]) == 15  # one message per client and stage, for all groups together
    assert max(sizes["query.fedgt_finish"]) < 1500  # the pinned terms only
    for context in grid.contexts.values():
        (left,) = held(context)
        assert b'"session": 0' in left
        assert b'"round": null' in left


def trips(grid: InProcessGrid) -> list[tuple[str, list[int]]]:
    """Filled with the type of every trip and the nodes that it goes to."""
    pushed: list[tuple[str, list[int]]] = []
    push = grid.push_messages

    def counted(messages: Iterable[Message]) -> Iterable[str]:
        batch = list(messages)
        (kind,) = {message.metadata.message_type for message in batch}
        pushed.append((kind, [message.metadata.dst_node_id for message in batch]))
        return push(batch)

    grid.push_messages = counted  # type: ignore[method-assign]
    return pushed


def test_there_are_three_round_trips_a_round_and_one_to_get_acquainted() -> None:
    grid = InProcessGrid(app.client, nodes(5), SMALL)
    pushed = trips(grid)
    played(grid, **SMALL)
    stages = ["query.fedgt_begin", "train.fedgt_masked", "query.fedgt_finish"]
    assert [kind for kind, _ in pushed] == ["query.fedgt_hello", *stages, *stages]


def test_only_a_node_that_missed_the_end_of_a_round_is_asked_for_keys_again() -> None:
    def forgetful(message: Message, context: Context) -> Message:
        reply = app.client(message, context)
        if context.node_id == 105 and message.metadata.message_type == "query.fedgt_finish" and not failed:
            failed.append(105)
            raise RuntimeError("the node is broken")
        return reply

    failed: list[int] = []
    grid = InProcessGrid(forgetful, nodes(), CONFIG)
    pushed = trips(grid)
    rounds = played(grid, rounds=3, privacy=3)
    assert [to for kind, to in pushed if kind == "query.fedgt_hello"] == [list(range(100, 115)), [105]]
    # Its vector was in the sums already; in the rounds after it is as any other, and the excluded one is left in peace.
    assert all("client-5" in record.members for one in rounds[1:] for record in one.result.records)
    later = [sorted(to) for kind, to in pushed if kind == "query.fedgt_begin"][1:]
    assert later == [[*range(100, 103), *range(104, 115)]] * 2


def test_between_two_rounds_a_state_holds_fresh_keys_for_the_next_and_no_session() -> None:
    grid = InProcessGrid(app.client, nodes(5), SMALL)
    records = app.federation(SMALL).start(grid, app.initial())
    next(records)
    between = [held(context)[0] for context in grid.contexts.values()]
    assert all(b'"session": 0' in left and b"held-prekeys" in left for left in between)
    last = next(records)
    left = {node: b"held-prekeys" in held(context)[0] for node, context in grid.contexts.items()}
    # Who is excluded keeps keys that nothing was ever encrypted for.
    assert [f"client-{node - 100}" for node, keys in left.items() if keys] == list(last.excluded)


def test_the_train_function_runs_once_a_round_however_many_groups_a_client_is_in() -> None:
    calls: list[tuple[int, int]] = []

    def train(parameters: Any, round: int, context: Context) -> TrainedModel:
        calls.append((round, context.node_id))
        return app.train(parameters, round, context)

    played(InProcessGrid(client_app(train), nodes(), CONFIG), rounds=2)
    assert len(calls) == len(set(calls)) == 15 + 14


def test_fedgt_is_added_to_an_app_that_does_other_things() -> None:
    mine = ClientApp()

    @mine.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(message.content, reply_to=message)

    register(mine, app.train)
    assert played(InProcessGrid(mine, nodes(), CONFIG), rounds=1)[0].excluded == ("client-3",)


# Faults


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


@pytest.mark.parametrize("stage", ["query.fedgt_begin", "train.fedgt_masked"])
def test_a_node_that_fails_is_recovered_from_where_the_promise_allows_it(stage: str) -> None:
    """Client 5 sits in groups 2, 4 and 5 of four: without it they mix three clients."""
    (at_three,) = played(InProcessGrid(breaking(stage, 5), nodes(), CONFIG), rounds=1, privacy=3)
    assert {record.status for record in at_three.result.records} == {"open"}
    dropped = [dict(record.dropped) for record in at_three.result.records if record.dropped]
    assert dropped
    assert all("the node is broken" in one["client-5"] for one in dropped)
    (at_four,) = played(InProcessGrid(breaking(stage, 5), nodes(), CONFIG), rounds=1, privacy=4)
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


@pytest.mark.parametrize("kind", ["train.fedgt_masked", "query.fedgt_finish"])
def test_a_node_that_never_answers_is_dropped_after_the_timeout_of_the_stage(kind: str) -> None:
    grid = SilentGrid(app.client, nodes(), CONFIG, silent={105}, kind=kind)
    began = time.monotonic()
    (only,) = played(grid, rounds=1, privacy=3, timeout=1.0)
    assert time.monotonic() - began < 6
    assert {record.status for record in only.result.records} == {"open"}
    reasons = {record.dropped["client-5"] for record in only.result.records if "client-5" in record.dropped}
    assert reasons
    assert all("no reply within 1 s" in reason for reason in reasons)


def test_a_node_that_does_not_say_who_it_is_delays_the_run_three_times_at_most() -> None:
    grid = SilentGrid(app.client, nodes(6), SMALL, silent={105}, kind="query.fedgt_hello")
    rounds = played(grid, **SMALL | {"rounds": 3, "timeout": 0.3})
    assert "no reply within 0.3 s" in rounds[-1].refused[105]
    assert len(rounds[-1].connected) == 5


def test_a_node_that_joins_late_trains_from_the_round_after() -> None:
    grid = InProcessGrid(app.client, nodes(), CONFIG)
    late = grid._contexts.pop(114)
    records = app.federation(CONFIG | {"privacy": 3}).start(grid, app.initial())
    first = next(records)
    assert "client-14" not in first.connected
    grid._contexts[114] = late
    second = next(records)
    assert "client-14" in second.connected
    # It was absent in the test, so the default policy leaves it out of training.
    assert "client-14" in first.excluded


def test_a_node_that_joins_late_is_trained_with_when_the_policy_keeps_the_untested() -> None:
    grid = InProcessGrid(app.client, nodes(), CONFIG)
    late = grid._contexts.pop(114)
    strategy = app.federation(CONFIG | {"privacy": 3})
    patient = FedGT(
        grouping=strategy.grouping,
        privacy=3,
        validation=strategy.validation,
        screen=strategy.screen,
        decoding=DecodeSettings(on_untested="keep"),
        rounds=2,
        wait=0.0,
        timeout=20.0,
    )
    records = patient.start(grid, app.initial())
    next(records)
    grid._contexts[114] = late
    assert "client-14" in next(records).result.records[0].members


def test_an_unregistered_node_takes_no_part_and_is_named() -> None:
    rounds = played(InProcessGrid(app.client, nodes(16), CONFIG), rounds=1)
    assert rounds[0].refused == {115: "client 'client-15' is not registered for this run"}
    assert rounds[0].excluded == ("client-3",)


def test_two_nodes_that_claim_one_client_are_both_refused_by_their_ids() -> None:
    twice = nodes() | {777: {"partition-id": 5}}
    (only,) = played(InProcessGrid(app.client, twice, CONFIG), rounds=1, privacy=3)
    assert set(only.refused) == {105, 777}
    assert all("nodes 105, 777 all say that they are client 'client-5'" in reason for reason in only.refused.values())
    assert "client-5" not in only.connected


def test_a_second_claim_in_mid_run_is_settled_by_asking_both() -> None:
    """While both answer, neither is believed; when one of them goes, the other one is asked again."""
    grid = InProcessGrid(app.client, nodes(5), SMALL)
    rival = InProcessGrid(app.client, {777: {"partition-id": 2}}, CONFIG).contexts[777]
    records = app.federation(SMALL | {"rounds": 3}).start(grid, app.initial())
    assert "client-2" in next(records).connected
    grid._contexts[777] = rival
    assert "client-2" not in next(records).connected
    del grid._contexts[777]
    assert "client-2" in next(records).connected


def test_a_node_that_comes_back_under_another_id_takes_its_name_with_it() -> None:
    grid = SilentGrid(app.client, nodes(5), SMALL, silent={102}, kind="none")
    records = app.federation(SMALL | {"timeout": 0.5}).start(grid, app.initial())
    next(records)
    grid.kind = "query.fedgt_hello"  # the earlier node is dead, and still on the list
    grid._contexts[777] = InProcessGrid(app.client, {777: {"partition-id": 2}}, CONFIG).contexts[777]
    assert "client-2" in next(records).result.records[0].members


def test_a_node_that_loses_its_state_in_mid_round_is_a_dropout() -> None:
    def forgetful(message: Message, context: Context) -> Message:
        if context.node_id == 105 and message.metadata.message_type == "train.fedgt_masked":
            context.state.clear()
        return app.client(message, context)

    (only,) = played(InProcessGrid(forgetful, nodes(), CONFIG), rounds=1, privacy=3)
    assert any("no plan has come yet" in r.dropped.get("client-5", "") for r in only.result.records)


def test_a_server_that_starts_again_goes_on_with_the_next_round() -> None:
    whole = played(InProcessGrid(app.client, nodes(5), SMALL), **SMALL)
    grid = InProcessGrid(app.client, nodes(5), SMALL)
    strategy = app.federation(SMALL)
    first = next(strategy.start(grid, app.initial()))
    rest = list(strategy.start(grid, first.parameters, begin=2, excluded=first.excluded))
    assert [one.round for one in rest] == [2]
    assert app.digest(rest[-1].parameters) == app.digest(whole[-1].parameters)


# Identities


def consortium(folder: Path) -> Credentials:
    server = Identity.generate("server")
    registry = folder / "consortium.toml"
    add_to_registry(registry, server, server=True)
    keys = {}
    for name in NAMES:
        identity = Identity.generate(name)
        add_to_registry(registry, identity, server=False)
        write_private_key(folder / f"{name}.pem", identity)
        keys[name] = identity.public
    return Credentials(identity=server, registry=Registry(server=server.public, clients=keys))


def signed(strategy: FedGT, credentials: Credentials) -> FedGT:
    return FedGT(
        grouping=strategy.grouping,
        privacy=strategy.privacy,
        validation=strategy.validation,
        screen=strategy.screen,
        decoding=strategy.decoding,
        rounds=2,
        samples=strategy.samples,
        wait=0.0,
        timeout=20.0,
        credentials=credentials,
    )


def keyed(folder: Path, count: int = 15, *, journal: bool = False) -> dict[int, dict[str, Any]]:
    return {
        node: config
        | {
            "fedgt-key": str(folder / f"client-{config['partition-id']}.pem"),
            "fedgt-registry": str(folder / "consortium.toml"),
        }
        | ({"fedgt-journal": str(folder / f"rounds-{node}")} if journal else {})
        for node, config in nodes(count).items()
    }


def test_identities_change_no_number_and_impostors_are_turned_away(tmp_path: Path) -> None:
    credentials = consortium(tmp_path)
    impostor = keyed(tmp_path)[105] | {"fedgt-key": str(tmp_path / "client-6.pem"), "fedgt-client": "client-5"}
    unsigned = {"partition-id": 5}
    grid = InProcessGrid(app.client, keyed(tmp_path, journal=True) | {777: impostor, 778: unsigned}, CONFIG)
    rounds = list(signed(app.federation(CONFIG), credentials).start(grid, app.initial()))
    plain = played(InProcessGrid(app.client, nodes(), CONFIG), rounds=2)
    assert [app.digest(one.parameters) for one in rounds] == [app.digest(one.parameters) for one in plain]
    assert set(rounds[0].refused) == {777, 778}
    assert "client-5" in rounds[0].connected


def test_with_identities_there_are_four_round_trips_a_round(tmp_path: Path) -> None:
    credentials = consortium(tmp_path)
    grid = InProcessGrid(app.client, keyed(tmp_path), CONFIG)
    pushed = trips(grid)
    list(signed(app.federation(CONFIG), credentials).start(grid, app.initial()))
    stages = ["query.fedgt_begin", "train.fedgt_masked", "query.fedgt_agree", "query.fedgt_finish"]
    assert [kind for kind, _ in pushed] == ["query.fedgt_hello", *stages, *stages]


def test_a_state_that_is_used_a_second_time_is_refused(tmp_path: Path) -> None:
    """Two processes with one context could open a client alone: one releases the share for alive, one for dropped."""
    credentials = consortium(tmp_path)
    copies: list[Any] = []

    def replayed(message: Message, context: Context) -> Message:
        if context.node_id == 105 and message.metadata.message_type == "query.fedgt_finish":
            before = dict(context.state.items())
            reply = app.client(message, context)
            context.state.update(before)
            with pytest.raises(Exception, match="used already") as caught:
                app.client(message, context)
            copies.append(caught)
            return reply
        return app.client(message, context)

    grid = InProcessGrid(replayed, keyed(tmp_path, journal=True), CONFIG)
    next(signed(app.federation(CONFIG), credentials).start(grid, app.initial()))
    assert len(copies) == 1


def test_a_policy_of_a_site_is_obeyed_whatever_the_server_plans(tmp_path: Path) -> None:
    def strict(context: Context) -> Site:
        policy = ClientPolicy(minimum_group_size=5) if context.node_config["partition-id"] == 5 else None
        return Site(client=f"client-{context.node_config['partition-id']}", policy=policy)

    grid = InProcessGrid(client_app(app.train, site=strict), nodes(), CONFIG)
    (only,) = played(grid, rounds=1, privacy=3)
    reasons = [record.dropped["client-5"] for record in only.result.records if "client-5" in record.dropped]
    assert len(reasons) == 3
    assert all("minimum of 5" in reason for reason in reasons)


# The server's side


def test_a_server_optimiser_works_on_the_average_and_only_when_there_is_one() -> None:
    seen: list[float] = []

    def double(old: Any, mean_update: Mapping[str, Any]) -> Any:
        seen.append(float(np.abs(mean_update["weight"]).max()))
        return {name: (old[name] + 2 * mean_update[name]).astype(old[name].dtype) for name in old}

    strategy = app.federation(SMALL)
    options = {
        "grouping": strategy.grouping,
        "privacy": 2,
        "validation": strategy.validation,
        "screen": strategy.screen,
        "rounds": 1,
        "wait": 0.0,
        "timeout": 20.0,
    }
    (plain,) = FedGT(**options).start(InProcessGrid(app.client, nodes(5), SMALL), app.initial())
    (twice,) = FedGT(**options, optimizer=double).start(InProcessGrid(app.client, nodes(5), SMALL), app.initial())
    np.testing.assert_allclose(twice.parameters["weight"], 2 * plain.parameters["weight"], rtol=1e-6)
    broken = InProcessGrid(lambda message, context: 1 / 0, nodes(5), SMALL)  # type: ignore[arg-type,return-value]
    (nothing,) = FedGT(**options, optimizer=double).start(broken, app.initial())
    np.testing.assert_array_equal(nothing.parameters["weight"], app.initial()["weight"])
    assert len(seen) == 1


def test_flowers_own_fedadam_takes_the_secure_average() -> None:
    """First step of Adam: eta_norm * (1 - beta1) d / (sqrt((1 - beta2) d^2) + tau), from zero moments."""
    step = adaptive(FedAdam(eta=0.1, beta_1=0.9, beta_2=0.99, tau=1e-3))
    old = {"w": np.array([1.0, 2.0]), "n": np.array(3)}
    delta = np.array([0.5, -0.25])
    new = step(old, {"w": delta})
    scale = 0.1 * np.sqrt(1 - 0.99**2) / (1 - 0.9**2)
    np.testing.assert_allclose(new["w"], old["w"] + scale * 0.1 * delta / (np.sqrt(0.01 * delta**2) + 1e-3))
    assert int(new["n"]) == 3
    with pytest.raises(SpecError, match="FedAvg is not"):
        adaptive(FedAvg())  # type: ignore[arg-type]


def test_a_batch_normalisation_state_dict_makes_the_round_trip() -> None:
    """Means and variances are averaged, the counter of batches is kept."""
    model: dict[str, Any] = {
        "weight": np.zeros((2, 3), dtype=np.float32),
        "bn.running_mean": np.zeros(3, dtype=np.float32),
        "bn.num_batches_tracked": np.array(2**60 + 1, dtype=np.int64),
    }

    def train(parameters: Any, round: int, context: Context) -> TrainedModel:
        shift = context.node_config["partition-id"]
        moved = {n: v + np.asarray(shift if v.dtype.kind == "f" else 5, dtype=v.dtype) for n, v in parameters.items()}
        return TrainedModel(parameters=moved, samples=1)

    strategy = FedGT(
        grouping=app.federation(CONFIG | {"clients": 5, "privacy": 2}).grouping,
        privacy=2,
        validation=app.validation(),
        screen=ScreenSettings(),
        rounds=1,
        test_rounds=(),
        wait=0.0,
    )
    (only,) = strategy.start(InProcessGrid(client_app(train), nodes(5), CONFIG), model)
    np.testing.assert_allclose(only.parameters["bn.running_mean"], 2.0, atol=1e-6)
    assert only.parameters["bn.running_mean"].dtype == np.float32
    assert int(only.parameters["bn.num_batches_tracked"]) == 2**60 + 1


def test_a_scikit_learn_model_is_trained_as_the_howto_says() -> None:
    from sklearn.linear_model import SGDClassifier

    def train(parameters: Any, round: int, context: Context) -> TrainedModel:
        images, y = app.blobs(int(context.node_config["partition-id"]))
        x = images.astype(parameters["weight"].dtype)
        model = SGDClassifier(loss="log_loss", random_state=round)
        model.partial_fit(x[:1], y[:1], classes=np.arange(app.CLASSES))
        model.coef_, model.intercept_ = parameters["weight"].copy(), parameters["bias"].copy()
        model.partial_fit(x, y)
        return TrainedModel(parameters={"weight": model.coef_, "bias": model.intercept_}, samples=len(y))

    start = {name: array.astype(np.float64) for name, array in app.initial().items()}
    strategy = app.federation(CONFIG | {"clients": 5, "privacy": 2, "rounds": 1})
    grid = InProcessGrid(client_app(train), nodes(5), CONFIG)
    (only,) = strategy.start(grid, start)
    images, labels = app.blobs(1000, 300)
    assert np.mean(app.logits(only.parameters, images).argmax(axis=1) == labels) > 0.9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoding": DecodeSettings(after_test="same-round")}, "no site keeps its local model"),
        ({"rounds": 2, "test_rounds": (3,)}, "test rounds"),
        ({"samples": {"client-0": 3}}, "the number of samples of client-1"),
    ],
)
def test_what_cannot_work_is_refused_before_anybody_is_asked(changes: dict[str, Any], message: str) -> None:
    strategy = app.federation(CONFIG)
    options = {"grouping": strategy.grouping, "privacy": 4, "validation": strategy.validation}
    with pytest.raises(SpecError, match=message):
        FedGT(**(options | changes))
