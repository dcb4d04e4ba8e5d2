"""Do coefficients find more? 15 clients on digits with high promises: plain default groups, and groups with coefficients.

    OMP_NUM_THREADS=1 python benchmarks/coefficient_rates.py [first seed] [last seed]
    OMP_NUM_THREADS=1 python benchmarks/coefficient_rates.py power

Paired seeds, 200 to 219 if none are given; none of them was looked at while a constant was chosen. Label flips, in four
rounds, of which up to three are tests. Rows go to docs/results/coefficient_rates.csv (resumable); the table is printed. With
`power` it is the simulated power of both kinds of groups for more federations, and no run.
"""

import sys
from pathlib import Path

from fedgt.errors import DesignError
from fedgt.planning import default_design, design_with_coefficients, detection_power
from found_rates import found_rates, seeds_given

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "coefficient_rates.csv"
FEDERATIONS = ((8, 3), (8, 4), (10, 4), (12, 4), (12, 5), (15, 4), (15, 5), (15, 6), (15, 7), (16, 6), (20, 7), (25, 8))
BASE = {"federation": {"rounds": 4}, "attack": {"source": 1, "target": 7}}


def power() -> None:
    """Print what both kinds of groups find, as Markdown."""
    print("| clients | r | plain sums | power | sums with coefficients | largest coefficient | power | uploads |")
    print("|---|---|---|---|---|---|---|---|")
    for clients, privacy in FEDERATIONS:
        try:
            plain = default_design(clients, graded=True, privacy=privacy)
            found = f"{plain.groups} | {detection_power(plain.matrix).found:.2f}"
        except DesignError:
            found = "none | "
        more = design_with_coefficients(clients, privacy=privacy)
        largest, uploads = int(more.matrix.max()), int((more.matrix > 0).sum(axis=0).max())
        print(
            f"| {clients} | {privacy} | {found} | {more.groups} | {largest} | {detection_power(more.matrix).found:.2f} | "
            f"{uploads} |",
            flush=True,
        )


def main() -> None:
    """Run what is missing and print the rates as Markdown."""
    if sys.argv[1:] == ["power"]:
        power()
        return
    seeds = seeds_given(200, 219)
    print("| r | groups | sums | attackers | missed | falsely excluded | runs that wrong somebody |")
    print("|---|---|---|---|---|---|---|")
    for privacy in (5, 6):
        plain = default_design(15, graded=True, privacy=privacy)
        for coefficients, design in ((False, plain), (True, design_with_coefficients(15, privacy=privacy))):
            for malicious in (0, 3, 5):
                changes = {"privacy": privacy, "design.coefficients": coefficients, "attack.malicious": malicious}
                found = found_rates(BASE, changes, seeds, RESULTS)
                print(f"| {privacy} | {design.name} | {design.groups} | {malicious} | {found} |", flush=True)


if __name__ == "__main__":
    main()
