"""Does evidence make certainty out of nothing? Honest clients only, who differ in few ways, and in the same way again.

    python benchmarks/repeated_looks.py [runs]

Layers are drawn, so that what is asked is the evidence alone: 15 clients, four classes of 50 inputs. Two tables:

- tests of the same ten rows, by the part of what clients differ by that comes again; `added up` counts every test as new;
- one test of 3, 6 and 12 rows, by how steeply the variance of the features falls.

Rows go to docs/results/repeated_looks.csv.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from fedgt.design import named_design
from fedgt.evidence import decode_graded, graded_screen, together
from fedgt.planning.nested_groups import nested_groups
from fedgt.types import FloatArray, SetEvidence

RESULTS: Final = Path(__file__).parent.parent / "docs" / "results" / "repeated_looks.csv"
CLIENTS: Final = 15
CLASSES: Final = 4
INPUTS: Final = 50
FIRST_SEED: Final = 10_000
CERTAIN: Final = 0.98
SOME: Final = 3.0
COLUMNS: Final = ("table", "comes_again", "steepness", "tests", "rows", "how", "runs", "certain", "above_three_nats")


def tests_of(
    rows: FloatArray, count: int, again: float, steepness: float, rng: np.random.Generator
) -> list[SetEvidence]:
    """Tests of honest clients with these rows."""
    weights = rows / rows.sum(axis=1, keepdims=True)
    deviations = np.exp(-np.arange(INPUTS) * steepness)
    lasting = rng.normal(size=(CLIENTS, CLASSES, INPUTS))
    found: list[SetEvidence] = []
    for _ in range(count):
        layers = (again**0.5 * lasting + (1 - again) ** 0.5 * rng.normal(size=lasting.shape)) * deviations
        losses = 0.3 + rng.normal(scale=0.01, size=(len(rows), CLASSES))
        means = np.tensordot(weights, layers, axes=1)
        screen = graded_screen(means, losses, weights=weights, samples=[100] * CLIENTS, erased=[False] * len(rows))
        if screen.evidence is not None:
            found.append(screen.evidence)
    return found


def outcome(evidence: Sequence[SetEvidence]) -> tuple[bool, bool]:
    """Whether somebody is certainly malicious, and whether there are more than three nats against nobody."""
    found = decode_graded(evidence, clients=CLIENTS, largest=7)
    return bool((found.posterior >= CERTAIN).any()), found.against_nobody > SOME


def main() -> None:
    """Fill both tables."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    made: list[dict[str, object]] = []

    def note(
        table: str, again: float, steep: float, tests: int, rows: int, how: str, seen: list[tuple[bool, bool]]
    ) -> None:
        certain, above = (sum(one) for one in zip(*seen, strict=True))
        values = (table, again, steep, tests, rows, how, len(seen), certain, above)
        made.append(dict(zip(COLUMNS, values, strict=True)))
        print(*values, flush=True)

    ten = named_design("graded-15x10-b").matrix.astype(np.float64)
    for again in (0.0, 0.5, 0.8):
        for tests in (1, 3):
            drawn = [
                tests_of(ten, tests, again, 1 / 15, np.random.default_rng(FIRST_SEED + seed)) for seed in range(runs)
            ]
            note("repeated", again, 1 / 15, tests, 10, "added up", [outcome(one) for one in drawn])
            note("repeated", again, 1 / 15, tests, 10, "as decided", [outcome(together(one)) for one in drawn])
    for steep in (0.1, 0.5, 1.0):
        for rows in (3, 6, 12):
            matrix = nested_groups(CLIENTS, 4, groups=12, uploads=8).first(rows).plain.matrix.astype(np.float64)
            drawn = [
                tests_of(matrix, 1, 0.0, steep, np.random.default_rng(2 * FIRST_SEED + seed)) for seed in range(runs)
            ]
            note("rows", 0.0, steep, 1, rows, "as decided", [outcome(together(one)) for one in drawn])
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(made)


if __name__ == "__main__":
    main()
