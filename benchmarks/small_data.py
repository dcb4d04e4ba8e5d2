"""What is found where clients have little data: the demo's digits, 80 samples a client.

    python benchmarks/small_data.py [seeds]

One attacker and a test in round 1, and five attackers and a test in round 30. Seeds from 100: the demo's constants were
chosen on smaller ones. Rows go to docs/results/small_data.csv (resumable).
"""

import sys
from pathlib import Path

from fedgt.cli.demo_command import DEMO
from fedgt.experiment import make_spec
from fedgt.reproduction.sweep import sweep

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "small_data.csv"
FIRST_SEED = 100
CASES = ((1, 1), (5, 1), (5, 30))
"""(attackers, first test round)."""


def main() -> None:
    """Run what is missing and print the rates as Markdown."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print("| attackers | first test in round | runs | attackers missed | honest clients excluded | exactly right |")
    print("|---|---|---|---|---|---|")
    for malicious, first in CASES:
        changes = {
            "attack.malicious": malicious,
            "screen.schedule": "first",
            "screen.round": first,
            "federation.rounds": first + 4,
        }
        specs = [make_spec(DEMO, {"seed": FIRST_SEED + seed, **changes}) for seed in range(seeds)]
        rows = sweep(specs, RESULTS, masks=False)
        wrong = [(int(row["missed_clients"]), int(row["falsely_excluded_clients"])) for row in rows]
        missed, false = (sum(column) for column in zip(*wrong, strict=True))
        print(
            f"| {malicious} | {first} | {seeds} | {missed} of {malicious * seeds} "
            f"| {false} of {(15 - malicious) * seeds} | {wrong.count((0, 0))} |"
        )


if __name__ == "__main__":
    main()
