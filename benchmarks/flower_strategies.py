"""What a Flower user would take against label flippers, side by side on MNIST: Krum, median, trimmed mean, and fedgt.

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/flower_strategies.py [--malicious 0 1 3 5] [--seeds 3] [--rounds 10]

15 clients, one-layer network, learning rate .01, batches of 64, one local epoch; flips of 1 to 7. Flower's robust strategies
get every client's model in clear, because that is what they work on; they are told the number of attackers (Krum) or their
fraction (trimmed mean). fedgt is told neither, gets sums of groups, and tests in the first round. Needs the extra `flower`.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, Metadata, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, FedMedian, FedTrimmedAvg, Krum, MultiKrum, Strategy

from fedgt.design import named_design
from fedgt.engine import TrainedModel
from fedgt.federation import FederationRun, SumSettings, Validation
from fedgt.flower import FlowerTransport, InProcessGrid, client_app
from fedgt.grouping import assign
from fedgt.train import Cohort, LocalTraining, LogisticRegression, load, partition_iid, poison
from fedgt.train.attacks import LabelFlip

CLIENTS, VALIDATION, SOURCE, TARGET = 15, 300, 1, 7
NAMES = tuple(f"client-{number}" for number in range(CLIENTS))
MODEL = LogisticRegression(classes=10, features=784)


def message(arrays: Any, samples: int) -> Message:
    record = ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})
    metadata = Metadata(
        run_id=1,
        message_id="",
        src_node_id=1,
        dst_node_id=1,
        reply_to_message_id="",
        group_id="",
        created_at=0.0,
        ttl=1.0,
        message_type="train",
    )
    content = RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": samples})})
    return Message(content, metadata=metadata)  # type: ignore[call-overload,no-any-return]


def by_flower(strategy: Strategy, cohort: Cohort, parameters: Any, rounds: int) -> Any:
    for number in range(1, rounds + 1):
        models = [cohort.trained(name, parameters, round=number) for name in NAMES]
        arrays, _ = strategy.aggregate_train(number, [message(one.parameters, one.samples) for one in models])
        if arrays is None:
            raise SystemExit(f"{type(strategy).__name__} made no model")
        parameters = {name: array.numpy().astype(np.float32) for name, array in arrays.items()}
    return parameters


def by_fedgt(
    cohort: Cohort, parameters: Any, rounds: int, validation: Validation, samples: dict[str, int], seed: int
) -> tuple[Any, tuple[str, ...]]:
    def train(received: Any, round: int, context: Context) -> TrainedModel:
        return cohort.trained(f"client-{context.node_config['partition-id']}", received, round=round)

    grid = InProcessGrid(client_app(train), {100 + number: {"partition-id": number} for number in range(CLIENTS)})
    run = FederationRun(
        FlowerTransport(grid, NAMES, wait=0.0),
        grouping=assign(named_design("graded-15x10-b"), NAMES, rng=np.random.default_rng(seed)),
        privacy=4,
        validation=validation,
        rounds=rounds,
        test_rounds=(1,),
        samples=samples,
        sums=SumSettings(timeout_seconds=600.0),
    )
    steps = list(run.rounds(parameters))
    return steps[-1].parameters, steps[-1].excluded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--malicious", type=int, nargs="+", default=[0, 1, 3, 5])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    data = load("mnist", Path(os.environ["FEDGT_DATA"]))

    def score(name: str, parameters: Any, rows: dict[str, list[tuple[float, float]]]) -> None:
        predicted = MODEL.predict(parameters, data.test_images)
        hit = predicted[data.test_labels == SOURCE] == TARGET
        rows.setdefault(name, []).append((float(np.mean(predicted == data.test_labels)), float(hit.mean())))

    saw = "every client's model"
    print("| attackers | strategy | accuracy % | attack accuracy % | wrongly excluded / missed | what the server saw |")
    print("|---|---|---|---|---|---|")
    for count in options.malicious:
        rows: dict[str, list[tuple[float, float]]] = {}
        wrong: list[tuple[int, int]] = []
        for seed in range(options.seeds):
            rng = np.random.default_rng([seed, count])
            split = partition_iid(samples=len(data.train_labels), clients=CLIENTS, validation=VALIDATION, rng=rng)
            bad = sorted(rng.choice(CLIENTS, size=count, replace=False).tolist())
            labels = poison(
                data.train_labels,
                attack=LabelFlip(source=SOURCE, target=TARGET),
                parts=[split.clients[j] for j in bad],
                classes=10,
                rng=rng,
            )
            parts = dict(zip(NAMES, split.clients, strict=True))
            cohort = Cohort(
                model=MODEL,
                images=data.train_images,
                labels=labels,
                parts=parts,
                training=LocalTraining(learning_rate=0.01, batch_size=64, epochs=1),
                seed=seed,
            )
            first = MODEL.initial(rng=rng)

            for strategy in (
                FedAvg(),
                Krum(num_malicious_nodes=count),
                MultiKrum(num_malicious_nodes=count, num_nodes_to_select=CLIENTS - count),
                FedMedian(),
                FedTrimmedAvg(beta=min(count / CLIENTS, 0.45)),
            ):
                score(type(strategy).__name__, by_flower(strategy, cohort, first, options.rounds), rows)
            images, truth = data.train_images[split.validation], data.train_labels[split.validation]
            validation = Validation(
                logits=lambda model, images=images: MODEL.logits(model, images),  # type: ignore[misc]
                labels=truth,
                inputs=lambda model, images=images: images,  # type: ignore[misc]
            )
            sizes = {name: len(part) for name, part in parts.items()}
            parameters, excluded = by_fedgt(cohort, first, options.rounds, validation, sizes, seed)
            score("fedgt", parameters, rows)
            named = {int(name.removeprefix("client-")) for name in excluded}
            wrong.append((len(named - set(bad)), len(set(bad) - named)))
        for name, scores in rows.items():
            accuracy, attack = 100 * np.mean(scores, axis=0)
            errors = "none excluded" if name != "fedgt" else "{:.1f} / {:.1f}".format(*np.mean(wrong, axis=0))
            seen = saw if name != "fedgt" else "sums over 4 clients or more"
            print(f"| {count} | {name} | {accuracy:.2f} | {attack:.2f} | {errors} | {seen} |", flush=True)


if __name__ == "__main__":
    main()
