"""What graded evidence costs beside the paper's screen: the same sums of real MNIST, from models to who is accused.

    FEDGT_DATA=<folder with MNIST/raw> OMP_NUM_THREADS=1 python benchmarks/graded_cost.py [--seeds 5]
        [--designs bch-15x8,graded-15x10-b,cyclic-30x12] [--cells null:0,flip:3,flip:5,permutation:5]

First round, IID, 7,850 parameters. Graded: the losses of the group means, the screen and the search over all sets of at
most 7 of 15 clients (8 of 30). Baseline: the accuracies of the group means, the paper's screen and the forward-backward
decoder. One run of each is not counted. Medians over the seeds: docs/results/graded_cost.csv.
"""

import argparse
import csv
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from fedgt.decode import CountPrior, forward_backward
from fedgt.design import Design, named_design
from fedgt.federation import ScreenSettings
from fedgt.federation.measure import clusters_of
from fedgt.types import ErrorRates, IntArray
from graded_rates import CELLS, Models, World, _drawn, _world, accused

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "graded_cost.csv"
COLUMNS = (
    "design",
    "cell",
    "malicious_clients",
    "seeds",
    "cpu_seconds",
    "wall_seconds",
    "baseline_cpu_seconds",
    "ratio",
)


def by_evidence(world: World, design: Design, seats: IntArray, models: Models) -> None:
    """Nothing is reduced to bits."""
    evidence = world.evidence(design.matrix.astype(np.float64), seats, models, world.start)
    accused(evidence, design.clients)


def by_bits(world: World, design: Design, seats: IntArray, models: Models) -> None:
    """The paper's way."""
    test = world.tested(design.matrix.astype(np.float64), seats, models, world.start)
    screen = clusters_of(test, world.held_back, ScreenSettings(kind="clusters", utility="top1"), 0)
    forward_backward(design, screen.outcomes, ErrorRates.symmetric(0.05), CountPrior.uniform(5))


def timed(call: Callable[[], None]) -> tuple[float, float]:
    """CPU and wall-clock seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.process_time() - cpu, time.perf_counter() - wall


def measured(name: str, cell: str, malicious: int, seeds: int) -> tuple[str, ...]:
    """One row."""
    design = named_design(name)
    graded, bits = [], []
    for seed in range(seeds):
        world = _world("mnist", seed, design.clients, "iid")
        _, attackers, seats = _drawn(seed, malicious, design.clients)
        kinds = ["honest"] * design.clients
        for j in attackers:
            kinds[j] = CELLS[cell][0]
        calls = [partial(one, world, design, seats, world.first(kinds)) for one in (by_evidence, by_bits)]
        if not seed:
            for call in calls:
                call()
        graded.append(timed(calls[0]))
        bits.append(timed(calls[1]))
    cpu, wall = np.median(graded, axis=0)
    baseline = float(np.median(bits, axis=0)[0])
    return (name, cell, str(malicious), str(seeds), *(f"{one:.3f}" for one in (cpu, wall, baseline, cpu / baseline)))


def main() -> None:
    """Measure all cases, print them and write them down."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--designs", default="bch-15x8,graded-15x10-b,cyclic-30x12")
    arguments.add_argument("--cells", default="null:0,flip:3,flip:5,permutation:5")
    given = arguments.parse_args()
    found = []
    print(", ".join(COLUMNS))
    for name in given.designs.split(","):
        for case in given.cells.split(","):
            cell, malicious = case.split(":")
            found.append(measured(name, cell, int(malicious), given.seeds))
            print(", ".join(found[-1]), flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(found)


if __name__ == "__main__":
    main()
