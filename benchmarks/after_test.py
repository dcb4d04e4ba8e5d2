"""What the test round costs: the ways to go on after it, on MNIST.

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/after_test.py [seeds]

Rows go to docs/results/after_test.csv (resumable); the comparison is printed as Markdown. "Rounds lost" after round 3: how
many rounds earlier the oracle, which trains on the benign clients from the start, was as accurate; by the mean curves over
the seeds, interpolated. Attackers uniform, r = 4 promised; `same-round` breaks the promise by name.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedgt.experiment import PAPER, ExperimentSpec, make_spec
from fedgt.reproduction.sweep import Row, sweep
from fedgt.types import FloatArray

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "after_test.csv"
ROUNDS = 5
METHODS: dict[str, dict[str, Any]] = {
    "no defence": {"method": "no-defence"},
    "oracle": {"method": "oracle"},
    **{
        f"graded, 15 x 10, {one}": {"decode.after_test": one, "decode.allow_below_promise": one == "same-round"}
        for one in ("next-round", "largest-sum", "same-round")
    },
    **{
        f"clusters bayes, 15 x 8, {one}": {
            **PAPER,
            "decode.after_test": one,
            "decode.allow_below_promise": one == "same-round",
        }
        for one in ("next-round", "negative-groups", "largest-sum", "same-round")
    },
}


def spec(attack: str, malicious: int, method: str, seed: int) -> ExperimentSpec:
    """One run; the graded screen is told nothing, the clusters the label under attack."""
    changes = dict(METHODS[method])
    if "screen.kind" in changes:
        informed = {"screen.utility": "recall", "screen.source_label": 1}
        changes |= informed if attack == "label-flip" else {"screen.utility": "top1"}
        changes["decode.on_undecidable"] = "keep-all"
    base = {
        "seed": seed,
        "privacy": 4,
        "data": {"name": "mnist"},
        "federation": {"rounds": ROUNDS},
        "attack": {"kind": attack, "malicious": malicious},
        "screen": {"schedule": "first"},
    }
    return make_spec(base, changes)


def curve(rows: list[Row]) -> FloatArray:
    """float64[rounds]: the mean top-1 accuracy in percent after each round."""
    curves = [[float(one) for one in row["top1_accuracy_by_round_percent"].split()] for row in rows]
    return np.asarray(np.mean(curves, axis=0), dtype=np.float64)


def main() -> None:
    """Run what is missing and print the comparison."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    cells = [(a, m, method) for a in ("label-flip", "label-permutation") for m in (3, 5) for method in METHODS]
    wanted = [(*cell, seed) for cell in cells for seed in range(seeds)]
    rows = dict(zip(wanted, sweep([spec(*one) for one in wanted], RESULTS, masks=False), strict=True))
    print("| attack | n_m | method | top-1 % after round 1 | 2 | 3 | 5 | rounds lost | missed / false | r |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for attack, malicious, method in cells:
        found = [rows[attack, malicious, method, seed] for seed in range(seeds)]
        best = curve([rows[attack, malicious, "oracle", seed] for seed in range(seeds)])
        here = curve(found)
        # Before the first round the model is random: accuracy of 10 %.
        lost = 3 - np.interp(here[2], np.concatenate([[10.0], best]), np.arange(ROUNDS + 1))
        wrong = [
            np.mean([float(row[name] or 0) for row in found]) for name in ("missed_clients", "falsely_excluded_clients")
        ]
        tested = method.startswith(("graded", "clusters"))
        print(
            f"| {attack} | {malicious} | {method} | "
            + " | ".join(f"{here[one - 1]:.2f}" for one in (1, 2, 3, 5))
            + f" | {lost:.2f} | {f'{wrong[0]:.1f} / {wrong[1]:.1f}' if tested else ''} "
            + f"| {min(int(row['privacy_strict']) for row in found)} |"
        )


if __name__ == "__main__":
    main()
