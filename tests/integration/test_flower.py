"""The whole federation on Flower's interfaces, with all nodes in this process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg

import flower_app as app
from fedgt.engine import TrainedModel
from fedgt.errors import SpecError
from fedgt.federation import DecodeSettings, FederationRun, RfaSettings, SumSettings
from fedgt.flower import FlowerTransport, InProcessGrid, adaptive, client_app, register
from fedgt.privacy import Ledger, minimum_support
from flower_grid import CONFIG, NAMES, SMALL, nodes, over, played, steps, trips
from slow_cases import slow


def test_fifteen_clients_in_eight_groups_find_the_one_that_flips_labels() -> None:
    rounds = played(InProcessGrid(app.client, nodes(), CONFIG))
    assert [one.round for one in rounds] == [1, 2]
    assert rounds[0].excluded == ("client-3",)
    assert rounds[0].screening is not None
    assert len(rounds[0].result.records) == 8
    assert all(record.status == "open" for one in rounds for record in one.result.records)
    assert all("client-3" not in record.members for one in rounds[1:] for record in one.result.records)


class Site:
    """The same training without Flower."""

    def __init__(self, number: int, config: Mapping[str, Any]) -> None:
        self.context = InProcessGrid(app.client, {1: {"partition-id": number}}, config).contexts[1]

    def train(self, parameters: Any, *, round: int) -> TrainedModel:
        return app.train(parameters, round, self.context)


def local(config: Mapping[str, Any], **changes: Any) -> list[dict[str, Any]]:
    """The rows of the same run over the local transport."""
    sites = {name: Site(number, config) for number, name in enumerate(app.names_of(config))}
    run = FederationRun(sites, **(app.options(config) | changes))
    return [app.row(step, halt) for step, halt in app.stopping(run, app.initial())]


TRAFFIC = ("seconds", "bytes_up", "bytes_down")


def same(row: Mapping[str, Any]) -> dict[str, Any]:
    """Keys one round ahead are other bytes; nothing else may differ."""
    return {key: value for key, value in row.items() if key not in TRAFFIC}


@pytest.mark.slow
def test_over_flower_sleepers_are_named_in_the_round_they_wake_and_go_on_in_their_groups() -> None:
    from fedgt import ScreenSettings

    asked: dict[int, set[int]] = {}

    def sleeps(parameters: Any, round: int, context: Context) -> TrainedModel:
        number = int(context.node_config["partition-id"])
        asked.setdefault(round, set()).add(number)
        awake = "3,6,12" if round >= 2 else ""
        context.run_config = {**context.run_config, "malicious": awake}
        return app.train(parameters, round, context)

    grid = InProcessGrid(client_app(sleeps), nodes(), CONFIG)
    screen = ScreenSettings(schedule="every-round")
    rounds = played(grid, CONFIG | {"rounds": 4}, grouping=None, screen=screen)
    named = {"client-3", "client-6", "client-12"}
    assert [set(one.excluded) for one in rounds] == [set(), named, named, named]
    assert all(number == set(range(15)) for number in asked.values())
    # The first test cannot decide about some, so that the next has groups beside its own.
    counts = [len(one.result.records) for one in rounds]
    assert counts[0] == counts[3] == min(counts)


@pytest.mark.slow
def test_over_flower_a_quiet_round_opens_few_sums_and_sleepers_are_named_in_the_round_they_wake() -> None:
    from fedgt import ScreenSettings

    def sleeps(parameters: Any, round: int, context: Context) -> TrainedModel:
        context.run_config = {**context.run_config, "malicious": "3,6,12" if round >= 3 else ""}
        return app.train(parameters, round, context)

    grid = InProcessGrid(client_app(sleeps), nodes(), CONFIG)
    screen = ScreenSettings(schedule="on-suspicion", unannounced=0.0)
    rounds = played(grid, CONFIG | {"rounds": 6}, grouping=None, screen=screen)
    named = {"client-3", "client-6", "client-12"}
    assert [set(one.excluded) for one in rounds] == [set(), set(), named, named, named, named]
    # The first test cannot decide about some, so that the second round is a test, too.
    assert [one.purpose for one in rounds] == [*["test"] * 4, "training", "training"]
    every = len(rounds[0].result.records)
    assert all(sum(record.status == "open" for record in one.result.records) < every for one in rounds[4:])


FURTHER = {
    "eight clients, two poisoners": (
        CONFIG | {"clients": 8, "privacy": 3, "samples": 20, "malicious": "6,7", "rounds": 4},
        {"client-6", "client-7"},
        2,
    ),
    "eight clients, three poisoners": (
        CONFIG | {"clients": 8, "privacy": 3, "malicious": "1,2,5", "rounds": 4},
        {"client-1", "client-2", "client-5"},
        1,
    ),
    "fifteen clients, three poisoners": (
        CONFIG | {"malicious": "3,6,12", "rounds": 4},
        {"client-3", "client-6", "client-12"},
        2,
    ),
}


@pytest.mark.parametrize("name", [*list(FURTHER)[:2], *slow(*list(FURTHER)[2:])])
def test_everybody_is_named_in_as_many_tests_as_over_the_local_transport_with_the_same_bits(name: str) -> None:
    """Clients that stay undecided are tested again at once, with rows of their own, whose keys were published ahead."""
    config, poisoners, tests = FURTHER[name]
    grid = InProcessGrid(app.client, nodes(int(config["clients"])), config)
    pushed = trips(grid)
    rounds = [app.row(step, halt) for step, halt in app.stopping(over(grid, config)[1], app.initial())]
    assert [same(one) for one in rounds] == [same(one) for one in local(config)]
    assert [one["purpose"] for one in rounds].count("test") >= tests
    assert set(rounds[-1]["excluded"]) == poisoners
    # Who is in no sum of a round publishes no keys for the next one, and is asked for them.
    idle = [set(one["members"]) - {client for status in one["status"] for client in status[2]} for one in rounds[:-1]]
    assert [kind for kind, _ in pushed].count("query.fedgt_hello") == 1 + sum(map(bool, idle))


@pytest.mark.parametrize("wanted", ["decide", *slow("keep")])
def test_without_further_tests_keys_are_published_for_one_sum(wanted: Any) -> None:
    config = FURTHER["fifteen clients, three poisoners"][0]
    _, run = over(InProcessGrid(app.client, nodes(), config), config, decode=DecodeSettings(on_undecided=wanted))
    rounds = list(run.rounds(app.initial()))
    assert [one.purpose for one in rounds] == ["test"] + ["training"] * 3


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
    played(grid, SMALL)
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
    rounds = played(grid, CONFIG | {"rounds": 3, "privacy": 3})
    assert [to for kind, to in pushed if kind == "query.fedgt_hello"] == [list(range(100, 115)), [105]]
    # Its vector was in the sums already; in the rounds after it is as any other, and the excluded one is left in peace.
    assert all("client-5" in record.members for one in rounds[1:] for record in one.result.records)
    later = [sorted(to) for kind, to in pushed if kind == "query.fedgt_begin"][1:]
    assert later == [[*range(100, 103), *range(104, 115)]] * 2


def test_between_two_rounds_a_state_holds_fresh_keys_for_the_next_and_no_session() -> None:
    grid = InProcessGrid(app.client, nodes(5), SMALL)
    records = steps(grid, SMALL)
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

    def double(old: Any, mean: Any) -> Any:
        seen.append(float(np.abs(mean["weight"] - old["weight"]).max()))
        return {name: old[name] + 2 * (mean[name] - old[name]) for name in old}

    (plain,) = played(InProcessGrid(app.client, nodes(5), SMALL), SMALL, rounds=1)
    (twice,) = played(InProcessGrid(app.client, nodes(5), SMALL), SMALL, rounds=1, next_model=double)
    np.testing.assert_allclose(twice.parameters["weight"], 2 * plain.parameters["weight"], rtol=1e-6)
    broken = InProcessGrid(lambda message, context: 1 / 0, nodes(5), SMALL)  # type: ignore[arg-type,return-value]
    (nothing,) = played(broken, SMALL, rounds=1, next_model=double)
    np.testing.assert_array_equal(nothing.parameters["weight"], app.initial()["weight"])
    assert len(seen) == 1


def test_flowers_own_fedadam_takes_the_secure_average() -> None:
    """First step of Adam: eta_norm * (1 - beta1) d / (sqrt((1 - beta2) d^2) + tau), from zero moments."""
    step = adaptive(FedAdam(eta=0.1, beta_1=0.9, beta_2=0.99, tau=1e-3))
    old = {"w": np.array([1.0, 2.0]), "n": np.array(3)}
    delta = np.array([0.5, -0.25])
    new = step(old, {"w": old["w"] + delta, "n": np.array(4)})
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

    _, run = over(
        InProcessGrid(client_app(train), nodes(5), SMALL),
        SMALL,
        rounds=1,
        grouping=None,
        validation=None,
        samples=dict.fromkeys(NAMES[:5], 1),
    )
    (only,) = run.rounds(model)
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
    _, run = over(InProcessGrid(client_app(train), nodes(5), SMALL), SMALL, rounds=1)
    (only,) = run.rounds(start)
    images, labels = app.blobs(1000, 300)
    assert np.mean(app.logits(only.parameters, images).argmax(axis=1) == labels) > 0.9


def test_a_largest_share_is_promised_and_stands_in_the_file_of_the_account(tmp_path: Path) -> None:
    def grid() -> InProcessGrid:
        return InProcessGrid(app.client, nodes(15), CONFIG)

    with pytest.raises(SpecError, match="largest_share"):
        over(grid(), CONFIG, sums=SumSettings(largest_share=0.3))
    path = tmp_path / "ledger.json"
    untested = {"rounds": 1, "validation": None, "grouping": None}
    account = Ledger.kept_in(path, clients=NAMES, promised=4, largest_share=0.99)
    promise = SumSettings(largest_share=0.99, colluders=0)
    (only,) = played(grid(), CONFIG, ledger=account, sums=promise, **untested)
    assert only.result.secure_sums == 1
    assert Ledger.load(path).largest_share == 0.99
    with pytest.raises(SpecError, match="largest_share"):
        over(grid(), CONFIG, ledger=Ledger.load(path), sums=SumSettings(largest_share=0.9, colluders=0), **untested)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decode": DecodeSettings(after_test="same-round")}, "one batch of sums"),
        ({"rfa": RfaSettings(), "validation": None, "grouping": None}, "one batch of sums"),
        ({"rounds": 2, "test_rounds": (3,)}, "test rounds"),
        ({"samples": dict.fromkeys((*NAMES[:14], "x"), 3)}, "different clients: client-14, x"),
    ],
)
def test_what_cannot_work_is_refused_before_anybody_is_asked(changes: dict[str, Any], message: str) -> None:
    grid = InProcessGrid(app.client, nodes(), CONFIG)
    pushed = trips(grid)
    with pytest.raises(SpecError, match=message):
        over(grid, CONFIG, **changes)
    assert pushed == []


def test_the_default_groups_of_a_run_over_a_network_have_room_for_an_absence() -> None:
    """A simulation takes the design with more evidence; over a network the same federation takes the one with room."""
    sites = {f"client-{number}": 10 for number in range(15)}
    told: dict[str, Any] = {"privacy": 4, "samples": sites, "validation": app.validation()}
    grid = InProcessGrid(app.client, {number: {"partition-id": number} for number in range(15)})
    over_network = FederationRun(FlowerTransport(grid, sites), **told)
    here = FederationRun({name: Site(number, {}) for number, name in enumerate(sites)}, **told)
    assert over_network.grouping is not None
    assert here.grouping is not None
    kept = [minimum_support(run.grouping.design.matrix) for run in (over_network, here) if run.grouping is not None]
    assert [support is not None and support.lower for support in kept] == [5, 4]
