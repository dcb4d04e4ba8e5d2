"""What a later stage of a round costs, next to a round of its own (decision 0026).

    python benchmarks/stage_cost.py [--entries 7850 1000000] [--rounds 5] [--csv FILE]

15 clients in a nested design of three and nine groups with r = 4, in this process, with identities and without. CPU seconds
of secure sums, by turns, medians of so many rounds each; no training is in them. A later stage is the difference of a round
in two stages and one that stops after the first. Next to it stands a round of its own over the groups of the later stage,
with the same check. The first stage stands next to a round without stages over the same groups, and next to plain secure
averaging: one sum over everybody.
"""

import argparse
import csv
import itertools
import statistics
import time
from pathlib import Path

import numpy as np

from fedgt.engine import ClientEndpoint, LocalTransport, TrainedModel, secure_sums
from fedgt.planning import nested_groups
from fedgt.secagg import (
    ClientPolicy,
    Credentials,
    Identity,
    Registry,
    RoundPlan,
    default_threshold,
    fit_fixed_point,
    tensor_specs,
)
from fedgt.types import Parameters

NAMES = tuple(f"client-{number:02d}" for number in range(15))
DESIGN = nested_groups(15, 4, groups=12)
FIRST = DESIGN.stages[0]
GROUPS = tuple(tuple(name for name, here in zip(NAMES, row, strict=True) if here) for row in DESIGN.matrix)
KINDS = {
    "first of two stages": (GROUPS, DESIGN.stages, False),
    "two stages": (GROUPS, DESIGN.stages, True),
    "round of the first groups": (GROUPS[:FIRST], (), False),
    "round of the later groups": (GROUPS[FIRST:], (), False),
    "round of all groups": (GROUPS, (), False),
    "one sum over everybody": ((NAMES,), (), False),
}


class Site:
    """Has its model ready: training costs nothing."""

    def __init__(self, update: Parameters) -> None:
        """Take it."""
        self.update = update

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        """Give it."""
        return TrainedModel(parameters=self.update, samples=1)


def cpu_seconds(kind: str, model: Parameters, update: Parameters, *, signed: bool) -> tuple[float, int]:
    """(CPU seconds, bytes of all messages) of a round."""
    groups, stages, goes_on = KINDS[kind]
    tower, people = Identity.generate("tower"), {name: Identity.generate(name) for name in NAMES}
    registry = Registry(server=tower.public, clients={name: one.public for name, one in people.items()})

    def credentials(identity: Identity) -> Credentials | None:
        return Credentials(identity=identity, registry=registry) if signed else None

    policy = ClientPolicy(privacy=4, colluders=1)
    endpoints = {
        name: ClientEndpoint(name, Site(update), policy=policy, credentials=credentials(people[name])) for name in NAMES
    }
    largest = len(NAMES)
    plan = RoundPlan(
        run="cost",
        round=1,
        purpose="test",
        groups=groups,
        thresholds=tuple(default_threshold(len(group), colluders=1) for group in groups),
        weights=dict.fromkeys(NAMES, 1),
        encoding=fit_fixed_point(clip=8.0, fraction_bits=24, weight_sum=largest, count_sum=model["w"].size * largest),
        tensors=tensor_specs(model),
        stages=stages,
    )
    began = time.process_time()
    taken = secure_sums(
        LocalTransport({name: one.handle for name, one in endpoints.items()}),
        plan,
        model,
        authorise=lambda members: (None,) * len(members),
        timeout=600.0,
        credentials=credentials(tower),
        go_on=lambda opened: goes_on,
    )
    seconds = time.process_time() - began
    assert all(one.status == "open" for one in taken.sums)
    assert len(taken.sums) == (FIRST if stages and not goes_on else len(groups))
    return seconds, taken.bytes_up + taken.bytes_down


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, nargs="+", default=[7850, 1_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    rows = []
    for entries, signed in itertools.product(asked.entries, (True, False)):
        took: dict[str, list[tuple[float, int]]] = {kind: [] for kind in KINDS}
        for number in range(asked.rounds):
            model = {"w": np.zeros(entries, dtype=np.float32)}
            update = {"w": np.random.default_rng(number).normal(size=entries).astype(np.float32)}
            for kind, results in took.items():
                results.append(cpu_seconds(kind, model, update, signed=signed))
        cpu = {kind: statistics.median(seconds for seconds, _ in results) for kind, results in took.items()}
        sent = {kind: results[0][1] for kind, results in took.items()}
        later = cpu["two stages"] - cpu["first of two stages"]
        rows.append(
            {
                "entries": entries,
                "identities": "yes" if signed else "no",
                "rounds": asked.rounds,
                **{f"cpu_{kind.replace(' ', '_')}": round(seconds, 3) for kind, seconds in cpu.items()},
                "later_over_own_round": round(later / cpu["round of the later groups"], 3),
                "later_over_own_round_bytes": round(
                    (sent["two stages"] - sent["first of two stages"]) / sent["round of the later groups"], 3
                ),
                "first_over_plain_round": round(cpu["first of two stages"] / cpu["round of the first groups"], 3),
                "first_over_plain_averaging": round(cpu["first of two stages"] / cpu["one sum over everybody"], 3),
                "staged_over_at_once": round(cpu["two stages"] / cpu["round of all groups"], 3),
            }
        )
        print(", ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    if asked.csv is not None:
        with asked.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
