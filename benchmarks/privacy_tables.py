"""How long r takes, and how good the aggregates of a test round are: exact numbers, which need no data.

    OMP_NUM_THREADS=1 python benchmarks/privacy_tables.py

Prints the tables of docs/results/privacy.md. Random rows are those of seeds 0, 1 and 2, one draw each.
"""

import time
from collections.abc import Iterator

import numpy as np

from fedgt.design import banded, bch, constant_column_weight, named_design
from fedgt.privacy import best_in_span, largest_kept_sum, minimum_support
from fedgt.types import FloatArray

FLAGGED = {
    "bch-15x8": (4, ((), (2,), (2, 12), (0, 5, 9), (1, 2, 3, 4, 5))),
    "cyclic-30x12": (6, ((), (3, 8), (1, 2, 3, 11, 20))),
}


def revealed() -> Iterator[tuple[str, FloatArray]]:
    """Name and rows, in the order of the table."""
    for name in FLAGGED:
        yield name, named_design(name).matrix.astype(float)
    yield "31 x 10 (BCH)", bch(31, 21).matrix.astype(float)
    for weight in (3, 5):
        design = constant_column_weight(50, 20, per_client=weight, rng=np.random.default_rng(0))
        yield f"50 x 20, each client in {weight} groups", design.matrix.astype(float)
    near = banded(50, 20, per_client=3, window=5, rng=np.random.default_rng(0))
    yield "50 x 20, banded (3 of 5 neighbouring groups each)", near.matrix.astype(float)
    for density in (0.3, 0.5):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            yield (
                f"50 x 20, entries 1 with probability {density:.2f}, seed {seed}",
                (rng.random((20, 50)) < density).astype(np.float64),
            )


def least_support() -> None:
    """The table of r and the seconds that it takes."""
    print("| revealed rows | r | CPU, s |")
    print("|---|---|---|")
    for name, rows in revealed():
        begun = time.process_time()
        support = minimum_support(rows)
        assert support is not None
        r = str(support.r) if support.exact else f"{support.lower} to {support.upper}"
        print(f"| {name} | {r} | {time.process_time() - begun:.3f} |")


def after_a_test() -> None:
    """The table of the nearest combinations and the largest further sums."""
    print("| design, flagged clients | negative groups | nearest | nearest, no negative weights | largest sum |")
    print("|---|---|---|---|---|")
    for name, (privacy, cases) in FLAGGED.items():
        rows = named_design(name).matrix.astype(float)
        clients = rows.shape[1]
        for flagged in cases:
            kept = [client for client in range(clients) if client not in flagged]
            target = np.isin(np.arange(clients), kept).astype(float)
            clean = rows[~rows[:, list(flagged)].any(axis=1)].sum(axis=0)
            of_clean = np.sqrt(((clean / clean.sum() - target / len(kept)) ** 2)[kept].sum() * len(kept))
            nearest, plain = (best_in_span(rows, target=target, nonnegative=only) for only in (False, True))
            largest = largest_kept_sum(rows, weights=np.ones(clients), kept=kept, privacy=privacy)
            far = [f"{one.distance:.3f}" if one else "none" for one in (nearest, plain)]
            size = len(largest.clients) if largest else 0
            who = ", ".join(map(str, flagged)) or "nobody"
            print(f"| {name}, {who} | {of_clean:.3f} | {far[0]} | {far[1]} | {size} of {len(kept)} |")


if __name__ == "__main__":
    least_support()
    print()
    after_a_test()
