"""Do twelve rows serve better than ten? The demo with both designs over paired seeds, with attackers and with none.

And what could any rows do? The same evidence sees each client's own model, which keeps nothing private (r = 1).

    OMP_NUM_THREADS=1 python benchmarks/demo_rows.py [first seed] [last seed]

Seeds 600 to 659 if none are given: none of them was looked at while a constant was chosen. Rows go to
docs/results/demo_rows.csv (resumable); the table is printed.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedgt.cli.demo_command import DEMO
from fedgt.design import Design, from_matrix, named_design, searched_design
from fedgt.experiment import ExperimentSpec, make_spec
from fedgt.reproduction.sweep import sweep

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "demo_rows.csv"
SEEDS = range(600, 660)
OWN_MODELS = from_matrix(np.eye(15, dtype=np.uint8), name="own-models", source="every client alone")
DESIGNS = (named_design("graded-15x10-b"), searched_design("nested-15x12-r4").design.plain, OWN_MODELS)


def planned(design: Design, malicious: int, seeds: Sequence[int]) -> list[ExperimentSpec]:
    """The demo's specification with this design, so many attackers and these seeds."""
    changes = {"attack.malicious": malicious, "design.name": design.name, "design.matrix": design.matrix.tolist()}
    if design is OWN_MODELS:
        changes["privacy"] = 1
    return [make_spec(DEMO, {"seed": seed, **changes}) for seed in seeds]


def main() -> None:
    """Run what is missing and print the rates as Markdown."""
    seeds = range(int(sys.argv[1]), int(sys.argv[2]) + 1) if len(sys.argv) > 2 else SEEDS
    print("| design | attackers | missed | falsely excluded | runs that wrong somebody |")
    print("|---|---|---|---|---|")
    for malicious in (0, 3, 5):
        for design in DESIGNS:
            rows = sweep(planned(design, malicious, seeds), RESULTS, masks=False)
            missed = np.array([float(row["missed_clients"] or 0) for row in rows])
            wronged = np.array([float(row["falsely_excluded_clients"] or 0) for row in rows])
            print(
                f"| {design.name} | {malicious} | {missed.mean():.2f} | {wronged.mean():.2f} | {(wronged > 0).sum()} of "
                f"{len(rows)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
