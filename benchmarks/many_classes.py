"""What a test of a layer with many classes costs, from open sums to who is accused; and whether a flip is found there.

    OMP_NUM_THREADS=1 python benchmarks/many_classes.py [--classes 10,100,1000] [--inputs 512] [--seeds 3]

15 clients, 10 groups, one validation sample a class, 3 clients that take one class for another. Clients are drawn, not
trained: each moves every row by its own noise, and the bad ones move two rows against each other. CPU seconds are medians
of untraced runs; memory is the peak of `tracemalloc` in one more, less what the sums and the samples take.
"""

import argparse
import time
import tracemalloc

import numpy as np

from fedgt.design import named_design
from fedgt.engine import LocalTransport
from fedgt.federation import Federation, Validation
from fedgt.federation.measure import Measured, measured
from fedgt.federation.settings import DecodeSettings, ScreenSettings
from fedgt.grouping import Grouping
from fedgt.privacy import Ledger
from fedgt.secagg import GroupSum

DESIGN = named_design("graded-15x10-b")
NAMES = tuple(f"c{j:02d}" for j in range(DESIGN.clients))
BAD = (1, 5, 9)
SAMPLES = 600


def drawn(classes: int, inputs: int, seed: int) -> tuple[list[GroupSum], dict[str, np.ndarray], Validation]:
    """Open sums of all groups, the global model, and a validation set of one sample a class."""
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(classes, inputs)) / inputs**0.5
    start = {"weight": np.zeros((classes, inputs))}
    totals = [np.zeros((classes, inputs)) for _ in range(DESIGN.groups)]
    for j in range(DESIGN.clients):
        update = 3.0 * seen + 0.05 * rng.normal(size=(classes, inputs)) / inputs**0.5
        if j in BAD:
            update[[0, 1]] += 2.0 * np.array([-seen[0], seen[0]])
        for group in np.flatnonzero(DESIGN.matrix[:, j]).tolist():
            totals[group] += SAMPLES * update
    sums = []
    for number, total in enumerate(totals):
        members = tuple(NAMES[j] for j in np.flatnonzero(DESIGN.matrix[number]))
        sums.append(
            GroupSum(
                group=number,
                members=members,
                dropped={},
                status="open",
                reason="",
                total={"weight": total},
                weight=SAMPLES * len(members),
                clipped=0,
            )
        )
    validation = Validation(
        logits=lambda model: seen @ np.asarray(model["weight"], dtype=np.float64).T,
        labels=np.arange(classes),
        inputs=lambda model: seen,
    )
    return sums, start, validation


def found(sums: list[GroupSum], start: dict[str, np.ndarray], validation: Validation) -> Measured:
    """What the test says, by the default settings."""
    federation = Federation(
        run="many-classes",
        transport=LocalTransport({}),
        ledger=Ledger(clients=NAMES, promised=4),
        samples=dict.fromkeys(NAMES, SAMPLES),
    )
    grouping = Grouping(design=DESIGN, clients=NAMES)
    return measured(federation, sums, start, grouping, validation, ScreenSettings(), DecodeSettings(), (), None, seed=0)


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--classes", default="10,100,1000")
    parser.add_argument("--inputs", type=int, default=512)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    print("| classes | sums and samples, MB | CPU seconds | peak beside them, MB | right |")
    print("|---|---|---|---|---|")
    for classes in map(int, given.classes.split(",")):
        seconds, right = [], 0
        for seed in range(given.seeds):
            inputs = drawn(classes, given.inputs, seed)
            began = time.process_time()
            result = found(*inputs)
            seconds.append(time.process_time() - began)
            right += np.flatnonzero(result.finding.flagged).tolist() == list(BAD)
        sums, start, _ = inputs
        size = (len(sums) + 2) * start["weight"].nbytes / 1e6
        tracemalloc.start()
        found(*inputs)
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        print(f"| {classes} | {size:.0f} | {np.median(seconds):.2f} | {peak:.0f} | {right} of {given.seeds} |")


if __name__ == "__main__":
    main()
