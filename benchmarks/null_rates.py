"""How many honest clients each screen excludes when nobody is malicious.

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/null_rates.py [seeds]

Rows go to docs/results/null.csv (resumable). One round, IID data, no label told.
"""

import sys
from itertools import product
from pathlib import Path

from fedgt.cli.demo_command import DEMO
from fedgt.experiment import make_spec
from fedgt.reproduction.sweep import sweep

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "null.csv"


def main() -> None:
    """Run what is missing and print the rates."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    cases = [("digits", DEMO["training"]), ("mnist", {})]
    for (dataset, training), kind in product(cases, ("graded", "clusters", "significant-clusters")):
        specs = [
            make_spec(
                {
                    "seed": seed,
                    "privacy": 4,
                    "data": {"name": dataset},
                    "training": training,
                    "federation": {"rounds": 1},
                    "attack": {"malicious": 0},
                    "screen": {"kind": kind, "schedule": "first"},
                }
            )
            for seed in range(seeds)
        ]
        rows = sweep(specs, RESULTS, masks=False)
        wrong = sum(int(row["falsely_excluded_clients"]) for row in rows)
        runs = sum(int(row["falsely_excluded_clients"]) > 0 for row in rows)
        total = 15 * seeds
        print(f"{dataset}, {kind}: {wrong} of {total} clients ({100 * wrong / total:.1f} %) in {runs} of {seeds} runs")


if __name__ == "__main__":
    main()
