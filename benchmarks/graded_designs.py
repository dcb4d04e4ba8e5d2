"""Designs for graded evidence: their certificates, and the search that found the ones of this package.

    python benchmarks/graded_designs.py                                         # certificates of all named designs
    OMP_NUM_THREADS=1 python benchmarks/graded_designs.py --search [NAME ...]   # search again, some 3 minutes of CPU

The first writes docs/results/graded_designs.csv: r, r with the sum over all clients revealed too, expected wrong clients by
ties for n_m = 0, 1, ..., the margin, and the mean wrong clients under noise with theta / s = 8 (500 trials each). The second
prints each design found, row by row, as fedgt/design/graded.py holds it. The seed of a search stands in its line of
`SEARCHES`; another build of numpy may round differently and find another design.

    python benchmarks/graded_designs.py --noise     # 15 clients: the same noise for every design

prints the mean wrong clients over n_m = 0..7 (1000 trials of each size) for theta / s = 8, 12, 16, 24: 15x8 .98 .40 .23 .16,
15x8-b 1.01 .39 .20 .10; 15x9 .50 .14 .08 .05, 15x9-b .50 .10 .04 .03; 15x10 .23 .06 .04 .03, 15x10-b .22 .05 .04 .03. Fewer
ties pay when the step stands out of the noise; below that the number of groups decides.
"""

import csv
import sys
import time
from pathlib import Path

import numpy as np

from fedgt.design import named_design
from fedgt.design.graded import graded_designs
from fedgt.planning.graded_search import GradedDesign, certify, search_graded
from fedgt.planning.margin import draw_trials, wrong_under_noise
from fedgt.planning.ties import ties
from fedgt.types import FloatArray

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "graded_designs.csv"
COMPARED = ("bch-15x8", "cyclic-30x12")
LARGEST = 7

# name -> clients, groups, privacy, group sizes, n_max, restarts, moves, polish, seed
SEARCHES: dict[str, tuple[int, int, int, tuple[int, int], int, int, int, int, int]] = {
    "graded-15x8-b": (15, 8, 5, (5, 9), 7, 8, 500, 0, 3),
    "graded-15x9-b": (15, 9, 5, (5, 9), 7, 4, 500, 1000, 4),
    "graded-15x10-b": (15, 10, 4, (4, 9), 7, 2, 60, 1000, 5),
    "graded-10x5": (10, 5, 4, (4, 6), 4, 20, 200, 500, 1),
    "graded-10x6": (10, 6, 3, (3, 6), 4, 20, 200, 500, 2),
    "graded-20x10": (20, 10, 6, (6, 12), 5, 3, 600, 600, 6),
    "graded-20x12": (20, 12, 5, (5, 12), 5, 2, 60, 600, 7),
    "graded-30x12": (30, 12, 8, (8, 16), 4, 3, 200, 300, 8),
    "graded-30x15": (30, 15, 7, (7, 16), 4, 2, 40, 200, 9),
}


def main() -> None:
    """Certify the named designs, compare them under noise, or search again."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--search"]:
        for name in arguments[1:] or SEARCHES:
            found(name)
        return
    if arguments == ["--noise"]:
        trials = draw_trials(15, LARGEST, 1_000, rng=np.random.default_rng(99))
        for design in map(named_design, sorted(name for name in (*graded_designs(), *COMPARED) if "-15x" in name)):
            found_ties = ties(design, LARGEST)
            means = [wrong_under_noise(design, found_ties, trials, step=step).mean() for step in (8, 12, 16, 24)]
            print(design.name, *(f"{mean:.3f}" for mean in means), flush=True)
        return
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        wrong = [f"wrong_{q}" for q in range(LARGEST + 1)]
        head = ["name", "clients", "groups", "r", "r_with_sum", "size_min", "size_max", "untied_to", *wrong]
        noisy = [f"noisy_wrong_{q}" for q in range(LARGEST + 1)]
        writer.writerow([*head, "margin_n_max", "angle_rad", "separation", *noisy])
        for name in (*graded_designs(), *COMPARED):
            print(name, flush=True)
            design = named_design(name)
            n_max = min(LARGEST, (design.clients - 1) // 2) if design.clients <= 20 else 5
            writer.writerow(row(certify(design, n_max, rng=np.random.default_rng(0))))


def row(certified: GradedDesign) -> list[object]:
    design = certified.design
    return [
        design.name,
        design.clients,
        design.groups,
        certified.support.r,
        certified.support_with_sum.r,
        design.group_sizes.min(),
        design.group_sizes.max(),
        certified.found.untied,
        *padded(certified.found.expected_wrong, 4),
        certified.margin_n_max,
        f"{certified.apart.angle:.4f}",
        f"{certified.separation:.4f}",
        *padded(certified.noisy_wrong, 3),
    ]


def padded(values: FloatArray, digits: int) -> list[str]:
    return [*(f"{value:.{digits}f}" for value in values), *[""] * (LARGEST + 1 - len(values))]


def found(name: str) -> None:
    """Search one design and print it."""
    clients, groups, privacy, sizes, n_max, restarts, moves, polish, seed = SEARCHES[name]
    begin = time.process_time()
    best = search_graded(
        clients,
        groups,
        privacy=privacy,
        rng=np.random.default_rng(seed),
        size_range=sizes,
        n_max=n_max,
        restarts=restarts,
        moves=moves,
        polish=polish,
        name=name,
    )
    spent = time.process_time() - begin
    if best is None:
        print(f"{name}: none found, {spent:.0f} s of CPU", flush=True)
        return
    print(f"{name}: {spent:.0f} s of CPU; {','.join(map(str, row(best)))}")
    print("   ", " ".join("".join(map(str, bits)) for bits in best.design.matrix.tolist()), flush=True)


if __name__ == "__main__":
    main()
