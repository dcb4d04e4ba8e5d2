"""What it costs to check that every client gives one vector to all its groups (decision 0021).

    python benchmarks/consistency_cost.py [--entries 7850 1000000 11000000] [--rounds 5] [--csv FILE]
    python benchmarks/consistency_cost.py --coefficients [--entries 7850 1000000] [--rounds 5] [--csv FILE]

15 clients in the 10 groups of graded-15x10-b, in this process, with identities and without. CPU seconds of whole rounds of
secure sums with the check and without it, by turns, medians of so many rounds each; no training is in them. Then the CPU
milliseconds in which one client answers, and bytes a group. Last, the share of the check in a round in which each client
also trains: one epoch of scikit-learn's network of two layers with so many parameters, over 1,000 pictures of the size of
MNIST's, which is little training.

With --coefficients the same rounds, checked, in which clients multiply their vectors by 1, 2 or 3 in each group (decision
0030), next to those in which nobody does. The ring is the same.
"""

import argparse
import csv
import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.neural_network import MLPClassifier

from fedgt.design import named_design
from fedgt.secagg import (
    ClientSession,
    Credentials,
    Identity,
    Registry,
    RoundPlan,
    ServerSession,
    TensorSpec,
    default_threshold,
    fit_fixed_point,
)
from fedgt.secagg.challenge import Committed, draw_seed, seed_hash

NAMES = tuple(f"client-{number:02d}" for number in range(15))
DESIGN = "graded-15x10-b"
PIXELS, CLASSES, SAMPLES = 784, 10, 1000
MOST = 3
"""The largest coefficient; all plans have room for it, so that they have one ring."""


def plan_of(entries: int, number: int, seed: bytes, *, largest_coefficient: int = 1) -> RoundPlan:
    """A plan, with a challenge if there is a seed."""
    design = named_design(DESIGN)
    groups = tuple(tuple(NAMES[j] for j in design.members(i)) for i in range(design.groups))
    largest = max(len(group) for group in groups) * MOST
    drawn = np.random.default_rng(0)
    rows = tuple(tuple(drawn.integers(1, largest_coefficient + 1, len(group)).tolist()) for group in groups)
    return RoundPlan(
        run="cost",
        round=number,
        purpose="test",
        groups=groups,
        thresholds=tuple(default_threshold(len(group), colluders=1) for group in groups),
        weights=dict.fromkeys(NAMES, 1),
        encoding=fit_fixed_point(clip=8.0, fraction_bits=24, weight_sum=largest, count_sum=entries * largest),
        tensors=(TensorSpec(name="w", shape=(entries,)),),
        challenges=(seed_hash(seed),) if seed else (),
        coefficients=rows,
    )


def one_round(
    entries: int, number: int, *, checked: bool, signed: bool, largest_coefficient: int = 1
) -> tuple[float, int]:
    """(CPU seconds, bytes of all messages) of a round."""
    seed = draw_seed() if checked else b""
    tower, people = Identity.generate("tower"), {name: Identity.generate(name) for name in NAMES}
    registry = Registry(server=tower.public, clients={name: one.public for name, one in people.items()})

    def credentials(identity: Identity) -> Credentials | None:
        return Credentials(identity=identity, registry=registry) if signed else None

    plan = plan_of(entries, number, seed, largest_coefficient=largest_coefficient)
    update = {"w": np.random.default_rng(number).normal(size=entries).astype(np.float32)}
    clients = {name: ClientSession(name, credentials=credentials(people[name])) for name in NAMES}
    traffic = 0

    def asked(stage: str, requests: Any) -> dict[str, bytes]:
        nonlocal traffic
        replies = {name: getattr(clients[name], stage)(message) for name, message in requests.items()}
        traffic += sum(map(len, requests.values())) + sum(map(len, replies.values()))
        return replies

    began = time.process_time()
    server = ServerSession(plan, credentials=credentials(tower), seeds=(seed,) if seed else ())
    requests = server.shares(asked("keys", server.keys()))
    requests = server.masked(asked("shares", requests))
    traffic += sum(map(len, requests.values()))
    for name, message in requests.items():
        reply = clients[name].masked(message, update)
        traffic += len(reply)
        server.receive(name, reply)
    authorise = lambda members: (None,) * len(members)  # noqa: E731
    if signed:
        requests = server.unmask(asked("agree", server.agree({}, authorise=authorise)))
    else:
        requests = server.unmask({}, authorise=authorise)
    sums = server.results(asked("unmask", requests))
    seconds = time.process_time() - began
    assert all(one.status == "open" for one in sums)
    return seconds, traffic


def training(entries: int) -> float:
    """CPU seconds in which one client trains a network of about so many parameters for one epoch."""
    hidden = max(round((entries - CLASSES) / (PIXELS + CLASSES + 1)), 1)
    drawn = np.random.default_rng(0)
    images, labels = drawn.random((SAMPLES, PIXELS)).astype(np.float32), drawn.integers(0, CLASSES, SAMPLES)
    network = MLPClassifier((hidden,), solver="sgd", batch_size=32, random_state=0)
    began = time.process_time()
    network.partial_fit(images, labels, classes=np.arange(CLASSES))
    return time.process_time() - began


def answering(entries: int, times: int) -> float:
    """The median CPU seconds in which one client answers."""
    seed = draw_seed()
    plan = plan_of(entries, 0, seed)
    seconds = []
    for number in range(times):
        committed = Committed.empty(plan)
        committed.vector[:] = np.random.default_rng(number).integers(-(2**27), 2**27, plan.length)
        began = time.process_time()
        committed.answer(plan, seed)
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, nargs="+", default=[7850, 1_000_000, 11_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--coefficients", action="store_true", help="what coefficients cost, and not the check")
    asked = parser.parse_args()
    rows = (
        coefficient_rows(asked.entries, asked.rounds) if asked.coefficients else check_rows(asked.entries, asked.rounds)
    )
    if asked.csv is not None:
        with asked.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def coefficient_rows(sizes: list[int], rounds: int) -> list[dict[str, Any]]:
    """With coefficients and without, by turns."""
    rows = []
    for entries, signed in itertools.product(sizes, (True, False)):
        pairs = []
        for number in range(rounds):
            took = {}
            for most in (MOST, 1) if number % 2 else (1, MOST):
                took[most], _ = one_round(entries, number, checked=True, signed=signed, largest_coefficient=most)
            pairs.append((took[MOST], took[1]))
        with_them, without = (statistics.median(pair[kind] for pair in pairs) for kind in (0, 1))
        rows.append(
            {
                "entries": entries,
                "identities": "yes" if signed else "no",
                "rounds": rounds,
                "cpu_seconds_coefficients": round(with_them, 3),
                "cpu_seconds_plain": round(without, 3),
                "ratio": round(with_them / without, 3),
                "ratio_of_pairs": round(statistics.median(a / b for a, b in pairs), 3),
            }
        )
        print(", ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    return rows


def check_rows(sizes: list[int], rounds: int) -> list[dict[str, Any]]:
    """With the check and without it, by turns."""
    rows = []
    for entries, signed in itertools.product(sizes, (True, False)):
        took: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
        for number in range(rounds):
            for checked in (True, False):
                took[checked].append(one_round(entries, number, checked=checked, signed=signed))
        with_it, without = (statistics.median(seconds for seconds, _ in took[checked]) for checked in (True, False))
        trained = len(NAMES) * training(entries)
        sent = (took[True][0][1] - took[False][0][1]) / named_design(DESIGN).groups
        rows.append(
            {
                "entries": entries,
                "identities": "yes" if signed else "no",
                "rounds": rounds,
                "cpu_seconds_checked": round(with_it, 3),
                "cpu_seconds_unchecked": round(without, 3),
                "ratio": round(with_it / without, 3),
                "answer_cpu_ms": round(1000 * answering(entries, 9), 2),
                "bytes_a_group": round(sent),
                "cpu_seconds_training": round(trained, 3),
                "ratio_with_training": round((trained + with_it) / (trained + without), 3),
            }
        )
        print(", ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    return rows


if __name__ == "__main__":
    main()
