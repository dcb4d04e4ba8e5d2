"""How often the demo is right: as it is, tested once, and tested once with ten sums, over paired seeds.

And what could any rows do? The same evidence sees each client's own model, which keeps nothing private (r = 1).

    OMP_NUM_THREADS=1 python benchmarks/demo_rows.py [first seed] [last seed]

Seeds 600 to 659 if none are given: none of them was looked at while a constant was chosen. Rows go to
docs/results/demo_rows.csv (resumable); the table is printed.
"""

import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedgt.cli.demo_command import DEMO
from fedgt.design import Design, from_matrix, named_design, searched_design
from fedgt.experiment import ExperimentSpec, make_spec
from fedgt.reproduction.sweep import sweep

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "demo_rows.csv"
SEEDS = range(600, 660)
OWN_MODELS = from_matrix(np.eye(15, dtype=np.uint8), name="own-models", source="every client alone")
DESIGNS = (named_design("graded-15x10-b"), searched_design("nested-15x12-r4").design.plain, OWN_MODELS)


def planned(design: Design, schedule: str, malicious: int, seeds: Sequence[int]) -> list[ExperimentSpec]:
    """The demo's specification with this design and schedule, so many attackers and these seeds."""
    changes: dict[str, Any] = {"design.name": design.name, "design.matrix": design.matrix.tolist()}
    changes |= {"screen.schedule": schedule, "attack.malicious": malicious}
    if design is OWN_MODELS:
        changes["privacy"] = 1
    return [make_spec(DEMO, {"seed": seed, **changes}) for seed in seeds]


def main() -> None:
    """Run what is missing and print the rates as Markdown."""
    seeds = range(int(sys.argv[1]), int(sys.argv[2]) + 1) if len(sys.argv) > 2 else SEEDS
    print(
        "| design | schedule | attackers | missed | falsely excluded | runs that wrong somebody | attack accuracy % |"
    )
    print("|---|---|---|---|---|---|---|")
    for malicious, schedule in product((0, 3, 5), ("on-suspicion", "first")):
        for design in DESIGNS:
            if design is OWN_MODELS and schedule != "first":
                continue
            rows = sweep(planned(design, schedule, malicious, seeds), RESULTS, masks=False)
            harm = np.mean([float(row["attack_accuracy_percent"] or 0) for row in rows])
            missed = np.array([float(row["missed_clients"] or 0) for row in rows])
            wronged = np.array([float(row["falsely_excluded_clients"] or 0) for row in rows])
            runs = f"{(wronged > 0).sum()} of {len(rows)}"
            found = f"{missed.mean():.2f} | {wronged.mean():.2f} | {runs} | {harm:.2f}"
            print(f"| {design.name} | {schedule} | {malicious} | {found} |", flush=True)


if __name__ == "__main__":
    main()
