"""How often the demo is right: its own specification over 20 seeds, and the paper's method beside it.

    python benchmarks/demo_rates.py [seeds]

Rows go to docs/results/demo.csv (resumable).
"""

import sys
from pathlib import Path

import numpy as np

from fedgt.cli.demo_command import DEMO
from fedgt.experiment import PAPER, make_spec
from fedgt.reproduction.sweep import sweep

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "demo.csv"


def main() -> None:
    """Run what is missing and print the rates as Markdown."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print("| method | missed | falsely excluded | wrong outcomes | stopped | top-1 % | attack accuracy % |")
    print("|---|---|---|---|---|---|---|")
    for method, name, changes in (
        ("no-defence", "no defence", {}),
        ("fedgt", "graded evidence, `first`", {}),
        *(("fedgt", f"clusters, {one}", {**PAPER, "decode.strategy": one}) for one in ("count", "delta", "bayes")),
        ("oracle", "oracle", {}),
    ):
        once = {"method": method, "screen.schedule": "first", **changes}
        specs = [make_spec(DEMO, {"seed": seed, **once}) for seed in range(seeds)]
        rows = sweep(specs, RESULTS, masks=False)

        def mean(column: str, rows: list[dict[str, str]] = rows) -> str:
            values = [float(row[column]) for row in rows if row[column]]
            return f"{np.mean(values):.2f}" if values else ""

        stopped = sum(row["status"] == "stopped" for row in rows)
        tested = method == "fedgt"
        print(
            f"| {name} | {mean('missed_clients') if tested else ''} | {mean('falsely_excluded_clients') if tested else ''} "
            f"| {mean('wrong_outcomes')} | {stopped} | {mean('top1_accuracy_percent')} | "
            f"{mean('attack_accuracy_percent')} |"
        )


if __name__ == "__main__":
    main()
