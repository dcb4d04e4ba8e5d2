"""The whole federation on Flower's interfaces, with all nodes in this process."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg

import flower_app as app
from fedgt.engine import ClientEndpoint, LocalTransport, TrainedModel
from fedgt.errors import SpecError
from fedgt.federation import DecodeSettings, Federation, ScreenSettings
from fedgt.federation.round import screening_round, training_round
from fedgt.flower import FedGT, InProcessGrid, adaptive, client_app, register
from fedgt.privacy import Ledger
from flower_grid import CONFIG, NAMES, SMALL, nodes, played, trips


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


def test_a_largest_share_is_promised_and_stands_in_the_file_of_the_account(tmp_path: Path) -> None:
    strategy = app.federation(CONFIG | {"rounds": 1})
    grid = InProcessGrid(app.client, nodes(15), CONFIG)
    with pytest.raises(SpecError, match="largest_share"):
        next(iter(replace(strategy, largest_share=0.3).start(grid, app.initial())))
    path = tmp_path / "ledger.json"
    kept = replace(strategy, largest_share=0.99, colluders=0, test_rounds=())
    (only,) = kept.start(grid, app.initial(), ledger=path)
    assert not only.halt
    assert Ledger.load(path).largest_share == 0.99
    with pytest.raises(SpecError, match="largest_share"):
        next(iter(replace(kept, largest_share=0.9).start(grid, app.initial(), begin=2, ledger=path)))


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
