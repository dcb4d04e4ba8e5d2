"""What the default groups find in federations of other sizes: `auto` for 8 to 50 clients, on digits.

    OMP_NUM_THREADS=1 python benchmarks/auto_rates.py [first seed] [last seed]

Seeds 300 to 309 if none are given, from 700 on for 25 and 50 clients; none of them was looked at while a constant was
chosen. Label flips by nobody, by a fifth and by a third of the clients, in four rounds, of which up to three are tests. Of
25 and 50 clients a tenth and a fifth attack. Rows go to docs/results/auto_rates.csv (resumable), and the table is printed.
"""

from pathlib import Path
from typing import Any

from fedgt.planning import default_design
from found_rates import found_rates, seeds_given

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "auto_rates.csv"
FEDERATIONS = (
    (8, 3, (5, 3), 300, 309),
    (12, 4, (5, 3), 300, 309),
    (16, 4, (5, 3), 300, 309),
    (25, 6, (10, 5), 700, 702),
    (50, 6, (10, 5), 700, 701),
)
"""(clients, r, one of how many attacks, the first and the last seed)."""


def main() -> None:
    """Run what is missing and print the rates as Markdown."""
    print("| clients | r | sums | attackers | missed | falsely excluded | runs that wrong somebody |")
    print("|---|---|---|---|---|---|---|")
    for clients, privacy, parts, first, last in FEDERATIONS:
        seeds = seeds_given(first, last)
        design = default_design(clients, graded=True, privacy=privacy)
        for malicious in (0, *(round(clients / part) for part in parts)):
            base: dict[str, Any] = {"privacy": privacy, "federation": {"clients": clients, "rounds": 4}}
            attack = {"attack.malicious": malicious, "attack.source": 1, "attack.target": 7}
            found = found_rates(base, attack, seeds, RESULTS)
            print(f"| {clients} | {privacy} | {design.groups} | {malicious} | {found} |", flush=True)


if __name__ == "__main__":
    main()
