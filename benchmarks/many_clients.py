"""How many attackers the default groups find among 25 and 50 clients: from a tenth to nearly half of them, on MNIST.

    FEDGT_DATA=<folder with MNIST/raw> OMP_NUM_THREADS=1 python benchmarks/many_clients.py [first seed] [last seed]

Seeds 770 to 774 if none are given: they chose no constant. Label flips, three rounds, tests in the beginning only. Rows go
to docs/results/many_clients.csv (resumable), and the table is printed.
"""

from pathlib import Path
from typing import Any

from fedgt.planning import default_design
from found_rates import found_rates, seeds_given

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "many_clients.csv"
PRIVACY = 6
FEDERATIONS = ((25, (0, 5, 10, 12)), (50, (0, 5, 10, 20)))
"""(clients, attackers)."""


def main() -> None:
    """Run what is missing and print the rates as Markdown."""
    seeds = seeds_given(770, 774)
    print("| clients | sums | attackers | missed | falsely excluded | runs that wrong somebody |")
    print("|---|---|---|---|---|---|")
    for clients, attackers in FEDERATIONS:
        design = default_design(clients, graded=True, privacy=PRIVACY)
        for malicious in attackers:
            base: dict[str, Any] = {
                "privacy": PRIVACY,
                "data": {"name": "mnist"},
                "federation": {"clients": clients, "rounds": 3},
            }
            attack = {"attack.malicious": malicious, "attack.source": 1, "attack.target": 7}
            found = found_rates(base, attack, seeds, RESULTS)
            print(f"| {clients} | {design.groups} | {malicious} | {found} |", flush=True)


if __name__ == "__main__":
    main()
