"""How many honest clients the default screen and decoder exclude when nobody is malicious.

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/null_rates.py [seeds]

Rows go to docs/results/null.csv (resumable). One round, IID data, utility balanced accuracy, no label told.
"""

import sys
from pathlib import Path

from fedgt.cli.demo_command import DEMO
from fedgt.experiment import make_spec
from sweep import sweep

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "null.csv"


def main() -> None:
    """Run what is missing and print the rates."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    for dataset, training in (("digits", DEMO["training"]), ("mnist", {})):
        specs = [
            make_spec(
                {
                    "seed": seed,
                    "privacy": 4,
                    "data": {"name": dataset},
                    "training": training,
                    "federation": {"rounds": 1},
                    "attack": {"malicious": 0},
                }
            )
            for seed in range(seeds)
        ]
        rows = sweep(specs, RESULTS)
        wrong = sum(int(row["falsely_excluded_clients"]) for row in rows)
        runs = sum(int(row["falsely_excluded_clients"]) > 0 for row in rows)
        total = 15 * seeds
        print(f"{dataset}: {wrong} of {total} clients ({100 * wrong / total:.1f} %) in {runs} of {seeds} runs")


if __name__ == "__main__":
    main()
