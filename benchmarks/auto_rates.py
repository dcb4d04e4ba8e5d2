"""What the default groups find in federations of other sizes: `auto` for 8 to 16 clients, on digits.

    OMP_NUM_THREADS=1 python benchmarks/auto_rates.py [first seed] [last seed]

Seeds 300 to 309 if none are given; none of them was looked at while a constant was chosen. Label flips by nobody, by a fifth
and by a third of the clients, in four rounds, of which up to three are tests. Rows go to docs/results/auto_rates.csv
(resumable); the table is printed.
"""

from pathlib import Path

from fedgt.planning import default_design
from found_rates import found_rates, seeds_given

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "auto_rates.csv"
FEDERATIONS = ((8, 3), (12, 4), (16, 4))
"""(clients, r)."""


def main() -> None:
    """Run what is missing and print the rates as Markdown."""
    seeds = seeds_given(300, 309)
    print("| clients | r | sums | attackers | missed | falsely excluded | runs that wrong somebody |")
    print("|---|---|---|---|---|---|---|")
    for clients, privacy in FEDERATIONS:
        design = default_design(clients, graded=True, privacy=privacy)
        for malicious in (0, round(clients / 5), round(clients / 3)):
            base = {"privacy": privacy, "federation": {"clients": clients, "rounds": 4}}
            attack = {"attack.malicious": malicious, "attack.source": 1, "attack.target": 7}
            found = found_rates(base, attack, seeds, RESULTS)
            print(f"| {clients} | {privacy} | {design.groups} | {malicious} | {found} |", flush=True)


if __name__ == "__main__":
    main()
