"""Designs at the bound by construction, for every number of clients and every r: their size, their cost, their proof.

    OMP_NUM_THREADS=1 python benchmarks/constructed_designs.py [--most 50]

Each design is made and proved; the CPU seconds are of both. Into docs/results/constructed_designs.csv.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np

from fedgt.design import proved, reed_solomon

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "constructed_designs.csv"
COLUMNS = ("clients", "r", "rows", "prime", "largest_entry", "most_uploads", "condition", "proved", "cpu_seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=50, help="clients")
    most = parser.parse_args().most
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for clients in range(6, most + 1):
            for privacy in range(2, clients // 2 + 1):
                start = time.process_time()
                design, proof = reed_solomon(clients, privacy)
                holds = proved(design.matrix, proof)
                seconds = time.process_time() - start
                writer.writerow(
                    (
                        clients,
                        privacy,
                        design.groups,
                        proof.prime,
                        design.largest_entry,
                        design.uploads.max(),
                        f"{np.linalg.cond(design.matrix):.0f}",
                        "yes" if holds else "no",
                        f"{seconds:.3f}",
                    )
                )


if __name__ == "__main__":
    main()
