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
from fedgt.federation import DecodeSettings, ScreenSettings, Validation
from fedgt.federation.group_means import GroupMeans
from fedgt.federation.measure import Measured, measured
from fedgt.grouping import Grouping

DESIGN = named_design("graded-15x10-b")
GROUPING = Grouping(design=DESIGN, clients=tuple(f"c{j:02d}" for j in range(DESIGN.clients)))
BAD = (1, 5, 9)


def drawn(classes: int, inputs: int, seed: int) -> tuple[GroupMeans, Validation]:
    """The means of all groups, and a validation set of one sample a class."""
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(classes, inputs)) / inputs**0.5
    means = [np.zeros((classes, inputs)) for _ in range(DESIGN.groups)]
    for j in range(DESIGN.clients):
        update = 3.0 * seen + 0.05 * rng.normal(size=(classes, inputs)) / inputs**0.5
        if j in BAD:
            update[[0, 1]] += 2.0 * np.array([-seen[0], seen[0]])
        for group in np.flatnonzero(DESIGN.matrix[:, j]).tolist():
            means[group] += update / DESIGN.matrix[group].sum()
    validation = Validation(
        logits=lambda model: seen @ np.asarray(model["weight"], dtype=np.float64).T,
        labels=np.arange(classes),
        inputs=lambda model: seen,
    )
    test = GroupMeans(
        start={"weight": np.zeros((classes, inputs))},
        updates=[{"weight": one} for one in means],
        rows=DESIGN.matrix.astype(np.float64),
        samples=np.full(DESIGN.clients, 600.0),
    )
    return test, validation


def found(test: GroupMeans, validation: Validation) -> Measured:
    """What the test says, by the default settings."""
    return measured(test, GROUPING, validation, ScreenSettings(), DecodeSettings())


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
        size = (DESIGN.groups + 2) * classes * given.inputs * 8 / 1e6
        tracemalloc.start()
        found(*inputs)
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        print(f"| {classes} | {size:.0f} | {np.median(seconds):.2f} | {peak:.0f} | {right} of {given.seeds} |")


if __name__ == "__main__":
    main()
