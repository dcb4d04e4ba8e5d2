"""Draw what `graded_rates.py` measured on MNIST: wrong clients a run over the number of attackers, for each design.

    python benchmarks/graded_picture.py

Reads docs/results/graded.csv, writes docs/results/graded.svg; bars are standard errors.
"""

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

RESULTS = Path(__file__).parent.parent / "docs" / "results"
LINES = {  # design, further -> label, colour (Okabe and Ito), marker
    ("graded-15x10-b", "none"): ("10 groups", "#0072B2", "o"),
    ("graded-15x9-b", "none"): ("9 groups", "#009E73", "s"),
    ("bch-15x8", "none"): ("15 x 8, one test round", "#D55E00", "^"),
    ("bch-15x8", "repeated"): ("15 x 8, then the same rows", "#E69F00", "v"),
    ("bch-15x8", "chosen"): ("15 x 8, then chosen rows", "#CC79A7", "D"),
    ("hamming-15x4", "none"): ("15 x 4", "#000000", "x"),
}


def main() -> None:
    """Write the picture."""
    wrong: dict[tuple[str, str, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    with (RESULTS / "graded.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["dataset"] == "mnist":
                errors = int(row["missed_clients"]) + int(row["falsely_accused_clients"])
                wrong[row["cell"], row["design"], row["further"]][int(row["malicious_clients"])].append(errors)
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
    for cell, axis in zip(("flip", "permutation"), axes, strict=True):
        for shift, ((design, further), (label, colour, marker)) in enumerate(LINES.items()):
            found = wrong[cell, design, further] | wrong["null", design, further]
            counts = sorted(found)
            means = [float(np.mean(found[n])) for n in counts]
            bars = [float(np.std(found[n]) / len(found[n]) ** 0.5) for n in counts]
            places = np.array(counts) + 0.06 * (shift - 2)
            axis.errorbar(places, means, yerr=bars, label=label, color=colour, marker=marker, capsize=2)
        axis.set_title(cell)
        axis.set_xlabel("malicious clients of 15")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("missed + falsely accused, a run")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(RESULTS / "graded.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
