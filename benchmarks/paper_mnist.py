"""MNIST, 15 clients, 10 rounds: no defence, oracle and RFA against the paper's tables; FedGT's strategies; graded evidence.

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/paper_mnist.py [seeds]

Rows go to docs/results/mnist.csv (resumable); the comparison is printed as Markdown. Attackers are drawn uniformly, also
those that contaminate every group; then nobody can be cleared, and everybody is kept by explicit policy. FedGT's clusters
are told the label under attack, graded evidence (15 x 10, r = 4 too) nothing.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedgt.experiment import ExperimentSpec, make_spec
from sweep import Row, sweep

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "mnist.csv"

# Mean and standard deviation in percent over 10 runs, from the paper's MNIST tables:
# (attack, n_m, method, metric) -> (mean, deviation)
PAPER: dict[tuple[str, int, str, str], tuple[float, float]] = {
    ("label-flip", 0, "no-defence", "attack"): (0.07, 0.07),
    ("label-flip", 0, "no-defence", "top1"): (90.32, 0.09),
    ("label-flip", 0, "rfa", "attack"): (0.07, 0.07),
    ("label-flip", 0, "rfa", "top1"): (90.32, 0.10),
    ("label-flip", 3, "no-defence", "attack"): (0.36, 0.13),
    ("label-flip", 3, "no-defence", "top1"): (90.10, 0.16),
    ("label-flip", 3, "oracle", "attack"): (0.04, 0.04),
    ("label-flip", 3, "oracle", "top1"): (90.31, 0.17),
    ("label-flip", 3, "rfa", "attack"): (0.15, 0.04),
    ("label-flip", 3, "rfa", "top1"): (90.29, 0.10),
    ("label-flip", 5, "no-defence", "attack"): (3.15, 0.40),
    ("label-flip", 5, "no-defence", "top1"): (89.49, 0.18),
    ("label-flip", 5, "oracle", "attack"): (0.04, 0.04),
    ("label-flip", 5, "oracle", "top1"): (90.34, 0.16),
    ("label-flip", 5, "rfa", "attack"): (0.17, 0.03),
    ("label-flip", 5, "rfa", "top1"): (90.26, 0.10),
    ("label-permutation", 0, "no-defence", "top1"): (90.18, 0.10),
    ("label-permutation", 0, "rfa", "top1"): (90.18, 0.09),
    ("label-permutation", 3, "no-defence", "top1"): (87.52, 0.13),
    ("label-permutation", 3, "oracle", "top1"): (90.18, 0.09),
    ("label-permutation", 3, "rfa", "top1"): (90.17, 0.09),
    ("label-permutation", 5, "no-defence", "top1"): (80.36, 0.26),
    ("label-permutation", 5, "oracle", "top1"): (90.17, 0.12),
    ("label-permutation", 5, "rfa", "top1"): (90.16, 0.09),
}


def spec(attack: str, malicious: int, method: str, strategy: str, seed: int) -> ExperimentSpec:
    """The paper's MNIST setting (section V.A)."""
    informed: dict[str, Any] = (
        {"utility": "recall", "source_label": 1} if attack == "label-flip" else {"utility": "top1"}
    )
    base: dict[str, Any] = {
        "method": method,
        "seed": seed,
        "privacy": 4,
        "data": {"name": "mnist"},
        "attack": {"kind": attack, "malicious": malicious},
    }
    if strategy == "graded":
        return make_spec(base)
    return make_spec(
        {
            **base,
            "design": {"name": "bch-15x8"},
            "screen": {"kind": "clusters", **informed},
            "decode": {"strategy": strategy, "on_undecidable": "keep-all"},
        }
    )


def cells() -> list[tuple[str, int, str, str]]:
    """(attack, n_m, method, strategy); the oracle of n_m = 0 is no defence."""
    found = []
    for attack in ("label-flip", "label-permutation"):
        for malicious in (0, 1, 3, 5, 7):
            in_paper = malicious in (0, 3, 5)
            methods = ["no-defence"] + ["rfa"] * in_paper + ["oracle"] * (malicious > 0)
            found += [(attack, malicious, method, "bayes") for method in methods]
            strategies = ["count", "delta", "bayes"] * in_paper + ["graded"]
            found += [(attack, malicious, "fedgt", strategy) for strategy in strategies]
    return found


def main() -> None:
    """Run what is missing and print the comparison."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    wanted = [(cell, seed) for cell in cells() for seed in range(seeds)]
    rows = sweep(
        [spec(*cell, seed) for cell, seed in wanted], RESULTS, workers=int(sys.argv[2]) if len(sys.argv) > 2 else 2
    )
    grouped: dict[tuple[str, int, str, str], list[Row]] = {}
    for (cell, _), row in zip(wanted, rows, strict=True):
        grouped.setdefault(cell, []).append(row)
    print(
        f"| attack | n_m | method | top-1 % | paper | attack accuracy % | paper | missed / false | CPU s |\n{'|---' * 9}|"
    )
    outside = 0
    for (attack, malicious, method, strategy), runs in grouped.items():
        name = f"fedgt {strategy}" if method == "fedgt" else method
        parts = [attack, str(malicious), name]
        for metric, column in (("top1", "top1_accuracy_percent"), ("attack", "attack_accuracy_percent")):
            values = np.array([float(row[column]) for row in runs if row[column]])
            paper = PAPER.get((attack, malicious, method, metric))
            parts.append("" if not values.size else f"{values.mean():.2f} ± {values.std():.2f}")
            if paper is None or not values.size:
                parts.append("")
                continue
            inside = abs(values.mean() - paper[0]) <= 2 * paper[1]
            outside += not inside
            parts.append(f"{paper[0]:.2f} ± {paper[1]:.2f}{'' if inside else ' OUTSIDE'}")
        missed = np.mean([float(row["missed_clients"]) for row in runs])
        false = np.mean([float(row["falsely_excluded_clients"]) for row in runs])
        parts.append(f"{missed:.2f} / {false:.2f}" if method == "fedgt" else "")
        parts.append(f"{np.median([float(row['cpu_seconds']) for row in runs]):.1f}")
        print("| " + " | ".join(parts) + " |")
    print(
        f"\n{outside} of {len(PAPER)} cells with a paper value lie outside its mean ± 2 standard deviations ({seeds} seeds)"
    )


if __name__ == "__main__":
    main()
