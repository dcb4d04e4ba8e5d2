"""Searches designs for 10 to 50 clients: docs/results/plan_search.csv, plan_search_times.csv and one picture for each n.

Usage: python benchmarks/plan_search.py [CLIENTS ...]; all five sizes take some minutes on one core.
"""

import csv
import sys
import time
from pathlib import Path

from fedgt.design import named_design
from fedgt.planning import Demands, SearchResult, draw_tradeoff, search
from fedgt.planning.evaluation import figures

RESULTS = Path(__file__).parent.parent / "docs" / "results"
DEMANDS = {
    10: Demands(clients=10, privacy=3, max_malicious=2),
    15: Demands(clients=15, privacy=4, max_malicious=5),
    20: Demands(clients=20, privacy=4, max_malicious=4),
    30: Demands(clients=30, privacy=6, max_malicious=8),
    50: Demands(clients=50, privacy=6, max_malicious=5),
}
PUBLISHED = {15: "bch-15x8", 30: "cyclic-30x12"}
HEAD = [
    "clients",
    "groups",
    "r",
    "r_exact",
    "max_malicious",
    "wrong_at_most",
    "wrong_mean",
    "standard_error",
    "recommended",
]
TIMES = ["clients", "privacy", "max_malicious", "designs", "front", "seconds", "cpu_seconds"]


def main(sizes: list[int]) -> None:
    for n in sizes:
        wall, cpu = time.perf_counter(), time.process_time()
        result = search(DEMANDS[n])
        seconds = [round(time.perf_counter() - wall, 1), round(time.process_time() - cpu, 1)]
        draw_tradeoff(RESULTS / f"plan_search_{n}.svg", result)
        replace("plan_search.csv", [*HEAD, "design"], n, rows(result))
        demands = result.demands
        row: list[object] = [n, demands.privacy, demands.max_malicious, result.looked_at, len(result.front), *seconds]
        replace("plan_search_times.csv", TIMES, n, [row])
        print(dict(zip(TIMES, row, strict=True)), result.recommended.design.name)
        if n in PUBLISHED:
            known = figures(named_design(PUBLISHED[n]), demands)
            print(f"  {PUBLISHED[n]}: r {known.r}, n_m^max {known.max_malicious}, mean wrong {known.expected_mean:.3f}")
            for one in result.front:
                found = one.figures
                good = found.groups <= known.groups and found.r >= known.r
                if good and (found.max_malicious or 0) >= (known.max_malicious or 0):
                    print(f"  as good with {found.groups} groups: {found.design.name}, {found.expected_mean:.3f}")


def rows(result: SearchResult) -> list[list[object]]:
    return [
        [
            result.demands.clients,
            one.figures.groups,
            one.figures.r,
            one.figures.r_exact,
            one.figures.max_malicious,
            round(one.expected_most, 4),
            round(one.figures.expected_mean, 4),
            round(one.figures.standard_error, 4),
            one is result.recommended,
            one.design.name,
        ]
        for one in result.front
    ]


def replace(name: str, head: list[str], clients: int, new: list[list[object]]) -> None:
    """Put the rows of one n in the place of the old ones."""
    path = RESULTS / name
    old = list(csv.reader(path.open(encoding="utf-8")))[1:] if path.exists() else []
    kept = [[str(value) for value in row] for row in new] + [row for row in old if row[0] != str(clients)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([head, *sorted(kept, key=lambda row: int(row[0]))])


if __name__ == "__main__":
    main([int(value) for value in sys.argv[1:]] or list(DEMANDS))
