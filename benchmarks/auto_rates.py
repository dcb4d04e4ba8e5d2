"""What the default groups find in federations of other sizes: `auto` for 8 to 16 clients, on digits.

    OMP_NUM_THREADS=1 python benchmarks/auto_rates.py [first seed] [last seed]

Seeds 300 to 309 if none are given; none of them was looked at while a constant was chosen. Label flips by nobody, by a fifth
and by a third of the clients, in four rounds, of which up to three are tests. Rows go to docs/results/auto_rates.csv
(resumable); the table is printed.
"""

import sys
from pathlib import Path

import numpy as np

from fedgt.experiment import make_spec
from fedgt.planning import default_design
from fedgt.reproduction.sweep import sweep

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "auto_rates.csv"
FEDERATIONS = ((8, 3), (12, 4), (16, 4))
"""(clients, r)."""


def main() -> None:
    """Run what is missing and print the rates as Markdown."""
    first, last = (int(one) for one in sys.argv[1:3]) if len(sys.argv) > 2 else (300, 309)
    print("| clients | r | sums | attackers | missed | falsely excluded | runs that wrong somebody |")
    print("|---|---|---|---|---|---|---|")
    for clients, privacy in FEDERATIONS:
        design = default_design(clients, graded=True, privacy=privacy)
        for malicious in (0, round(clients / 5), round(clients / 3)):
            base = {"privacy": privacy, "federation": {"clients": clients, "rounds": 4}}
            attack = {"attack.malicious": malicious, "attack.source": 1, "attack.target": 7}
            specs = [make_spec(base, {"seed": seed, **attack}) for seed in range(first, last + 1)]
            rows = sweep(specs, RESULTS, masks=False, workers=1)
            missed = np.array([float(row["missed_clients"] or 0) for row in rows])
            wronged = np.array([float(row["falsely_excluded_clients"] or 0) for row in rows])
            print(
                f"| {clients} | {privacy} | {design.groups} | {malicious} | {missed.mean():.2f} | {wronged.mean():.2f} | "
                f"{(wronged > 0).sum()} of {len(rows)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
