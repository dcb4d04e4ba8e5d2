"""An attacker that poisons less so as not to be found: when is it named, and what harm is left? MNIST, flip 1 -> 7.

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/adaptive_attacker.py [seeds]

Each attacker flips only a fraction of its source samples. Ten groups are tested in the first round. The attack accuracy is
that of ten rounds in which all clients stay, beside ten rounds of the benign ones alone. Rows go to
docs/results/adaptive.csv; they are printed as Markdown.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedgt.design import named_design
from graded_rates import Models, World, accused

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "adaptive.csv"
COLUMNS = (
    "poisoned_percent",
    "malicious_clients",
    "seed",
    "missed_clients",
    "falsely_accused_clients",
    "attack_accuracy_percent",
    "oracle_attack_accuracy_percent",
)
FRACTIONS = {"flip": 100, "half-flip": 50, "quarter-flip": 25, "tenth-flip": 10, "twentieth-flip": 5}
ROUNDS = 10


def attack_accuracy(world: World, kinds: Sequence[str], clients: Sequence[int]) -> float:
    """Of ten rounds of the mean of these clients' models, in percent."""
    parameters: Models = world.start
    for number in range(1, ROUNDS + 1):
        models = world.later(kinds, parameters, round=number)
        parameters = {key: value[list(clients)].mean(axis=0) for key, value in models.items()}
    ones = world.data.test_images[world.data.test_labels == 1].astype(np.float64)
    said = world.model.logits(parameters, ones).argmax(axis=1)
    return 100 * float((said == 7).mean())


def main() -> None:
    """Run everything and print the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rows = named_design("graded-15x10-b").matrix.astype(np.float64)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        print("| poisoned % | n_m | missed / falsely accused | attack accuracy % if all stay | of the benign alone |")
        print("|---|---|---|---|---|")
        for malicious in (3, 5):
            for kind, percent in FRACTIONS.items():
                found = []
                for seed in range(seeds):
                    world = World("mnist", seed, 15, "iid")
                    rng = np.random.default_rng([seed, malicious, 1])
                    attackers = rng.choice(15, malicious, replace=False)
                    kinds = [kind if j in attackers else "honest" for j in range(15)]
                    seats = rng.permutation(15)
                    evidence = world.evidence(rows, seats, world.first(kinds), world.start)
                    flagged = accused(evidence, 15).flagged
                    truth = np.isin(seats, attackers)
                    benign = [j for j in range(15) if j not in attackers]
                    values = (
                        int((truth & ~flagged).sum()),
                        int((flagged & ~truth).sum()),
                        round(attack_accuracy(world, kinds, range(15)), 3),
                        round(attack_accuracy(world, kinds, benign), 3),
                    )
                    writer.writerow((percent, malicious, seed, *values))
                    file.flush()
                    found.append(values)
                missed, false, here, best = np.mean(found, axis=0)
                print(f"| {percent} | {malicious} | {missed:.2f} / {false:.2f} | {here:.2f} | {best:.2f} |", flush=True)


if __name__ == "__main__":
    main()
