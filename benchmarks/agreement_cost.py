"""What signatures, the agreement over all groups and the clients' own account cost, against the anonymous round beside it.

    python benchmarks/agreement_cost.py [--rounds 9]

15 clients, 10 groups, 7,850 parameters in one process: CPU seconds of a round with identities and of an anonymous one,
medians, and their ratio. Then the CPU milliseconds in which one client computes r for the sums of a plan, for 15 and for
30 clients.
"""

import argparse
import statistics
import time
from typing import Any

import numpy as np

from fedgt.design import named_design
from fedgt.engine import ClientEndpoint, LocalTransport, TrainedModel, secure_sums
from fedgt.secagg import (
    AgreementLog,
    ClientPolicy,
    Credentials,
    Identity,
    Registry,
    RoundPlan,
    default_threshold,
    fit_fixed_point,
    tensor_specs,
)
from fedgt.secagg.account import require_promise
from fedgt.types import Parameters

NAMES = tuple(f"client-{number:02d}" for number in range(15))
MODEL: dict[str, Any] = {"w": np.zeros((10, 784)), "b": np.zeros(10)}
DESIGN, PROMISE = "graded-15x10-b", 4


class Site:
    """Moves the model at random."""

    def __init__(self, seed: int) -> None:
        """With its own randomness."""
        self.rng = np.random.default_rng(seed)

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        """One step of noise."""
        moved = {name: array + self.rng.normal(size=array.shape) for name, array in parameters.items()}
        return TrainedModel(parameters=moved, samples=1)


def plan_of(number: int) -> RoundPlan:
    design = named_design(DESIGN)
    groups = tuple(tuple(NAMES[j] for j in design.members(i)) for i in range(design.groups))
    entries = sum(array.size for array in MODEL.values())
    largest = max(len(group) for group in groups)
    return RoundPlan(
        run="cost",
        round=number,
        purpose="test",
        groups=groups,
        thresholds=tuple(default_threshold(len(group), colluders=1) for group in groups),
        weights=dict.fromkeys(NAMES, 1),
        encoding=fit_fixed_point(clip=8.0, fraction_bits=24, weight_sum=largest, count_sum=entries * largest),
        tensors=tensor_specs(MODEL),
    )


def rounds(count: int, *, signed: bool) -> float:
    """The median CPU time of a round."""
    server, people = Identity.generate("server"), {name: Identity.generate(name) for name in NAMES}
    registry = Registry(server=server.public, clients={name: one.public for name, one in people.items()})
    handlers = {
        name: ClientEndpoint(
            name,
            Site(number),
            policy=ClientPolicy(privacy=PROMISE),
            credentials=Credentials(identity=people[name], registry=registry) if signed else None,
        ).handle
        for number, name in enumerate(NAMES)
    }
    seconds = []
    log = AgreementLog(registry) if signed else None
    for number in range(count):
        began = time.process_time()
        taken = secure_sums(
            LocalTransport(handlers),
            plan_of(number),
            {name: array + 100.0 * number for name, array in MODEL.items()},
            authorise=lambda members: (None,) * len(members),
            timeout=60.0,
            credentials=Credentials(identity=server, registry=registry) if signed else None,
            agreements=log,
        )
        seconds.append(time.process_time() - began)
        assert all(one.status == "open" for one in taken.sums)
    return statistics.median(seconds)


def check(name: str, promise: int) -> float:
    """The median CPU time in which a client computes its promise for a design, with sample counts as weights."""
    design = named_design(name)
    rows = [{f"client-{j:02d}": 100.0 + 37 * j for j in design.members(i)} for i in range(design.groups)]
    seconds = []
    for _ in range(9):
        began = time.process_time()
        require_promise({}, {""}, rows, promised=promise, weights={})
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    count = parser.parse_args().rounds
    anonymous, signed = rounds(count, signed=False), rounds(count, signed=True)
    print(
        f"a round of 15 clients, 10 groups, 7,850 parameters: anonymous {anonymous:.3f} s, with identities {signed:.3f} s"
    )
    print(f"ratio {signed / anonymous:.2f}")
    for name, promise in ((DESIGN, PROMISE), ("cyclic-30x12", 4), ("graded-30x15", 6)):
        print(f"one client's check of r = {promise}, {name}: {1000 * check(name, promise):.1f} ms")


if __name__ == "__main__":
    main()
