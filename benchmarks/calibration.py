"""Is a posterior of 0.98 right in 98 of 100 cases? By regime: clients alike, and clients that own other classes.

    FEDGT_DATA=<folder> python benchmarks/calibration.py [first seed] [last seed] [--picture]

MNIST, first round, the default design and evidence, 15 clients, attackers drawn uniformly; every cell sees the same seeds.
`hospitals` is Fed-ISIC2019, whose largest centre is halved until there are 15 clients: a linear head on frozen features
(`fedgt features isic2019`), tested in round 5; nobody flips half of its labels there. Without that file it is left out.
Rows go to docs/results/calibration.csv (resumable): the posterior of every client, who attacks, and who is left out. The
table counts clients by posterior. The interval of the last bin is a bootstrap over seeds, as clients of a run depend on each
other.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from fedgt.errors import SpecError
from fedgt.experiment import make_spec
from fedgt.experiment.batch import run_batch
from fedgt.federation import DecodeSettings, ScreenSettings
from fedgt.federation.measure import suspects
from fedgt.federation.views import graded_of
from fedgt.planning import default_design
from fedgt.reproduction.paper import settings_of
from fedgt.train import ImageData, load
from graded_rates import World

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "calibration.csv"
REGIMES = {"alike": "iid", "Dirichlet 1.0": "dirichlet-1.0", "Dirichlet 0.3": "dirichlet-0.3", "hospitals": "centres"}
CELLS = (("honest", 0), *((kind, n) for kind in ("flip", "half-flip", "permutation") for n in (1, 3, 5)))
EDGES = (0.02, 0.5, 0.9, 0.98)
COLUMNS = ("regime", "attack", "malicious_clients", "seed", "posterior", "malicious", "left_out", "status")
CLIENTS, SEEDS, DRAWS = 15, (3000, 3019), 2000
Row = dict[str, str]


@lru_cache(maxsize=1)
def _world(seed: int, partition: str) -> World:
    return World("mnist", seed, CLIENTS, partition)


@lru_cache(maxsize=1)
def _hospitals() -> ImageData | None:
    try:
        return load("isic2019-lite0")
    except SpecError as reason:
        print(f"hospitals are left out: {reason}", file=sys.stderr)
        return None


def _at_hospitals(data: ImageData, kind: str, malicious: int, seed: int) -> Row:
    attack: dict[str, Any] = {
        "attack.kind": "label-permutation" if kind == "permutation" else "label-flip",
        "attack.malicious": malicious,
        "attack.source": 0,
        "attack.target": 1,
    }
    until = {"federation.rounds": 5, "screen.round": 5, "screen.schedule": "first"}
    spec = make_spec({"privacy": 4, "seed": seed, "method": "fedgt"}, {**settings_of("isic2019"), **until, **attack})
    (result,) = run_batch([spec], data=data, masks=False)
    bits = (
        "".join("01"[one] for one in flags)
        for flags in zip(*((c.truth == "malicious", bool(c.excluded)) for c in result.clients), strict=True)
    )
    posterior = " ".join(f"{c.posterior:.4f}" for c in result.clients)
    values = ("hospitals", kind, malicious, seed, posterior, *bits, result.status)
    return dict(zip(COLUMNS, map(str, values), strict=True))


def _run(regime: str, kind: str, malicious: int, seed: int) -> Row | None:
    if regime == "hospitals":
        data = None if kind == "half-flip" else _hospitals()
        return None if data is None else _at_hospitals(data, kind, malicious, seed)
    world, rows = _world(seed, REGIMES[regime]), default_design(CLIENTS, graded=True).matrix.astype(np.float64)
    rng = np.random.default_rng([seed, malicious, 1])
    attackers, seats = rng.choice(CLIENTS, malicious, replace=False), rng.permutation(CLIENTS)
    kinds = [kind if j in attackers else "honest" for j in range(CLIENTS)]
    test = world.tested(rows, seats, world.first(kinds), world.start)
    evidence = graded_of(test, world.held_back, ScreenSettings()).evidence
    found = suspects(
        [] if evidence is None else [evidence], CLIENTS, screen=ScreenSettings(), decoding=DecodeSettings()
    )
    bits = ("".join("01"[int(one)] for one in flags) for flags in (np.isin(seats, attackers), found.flagged))
    posterior = " ".join(f"{one:.4f}" for one in found.posterior)
    values = (regime, kind, malicious, seed, posterior, *bits, found.status)
    return dict(zip(COLUMNS, map(str, values), strict=True))


def _read() -> Iterator[Row]:
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            yield from csv.DictReader(file)


def rows_of(seeds: Sequence[int]) -> list[Row]:
    """All rows of these seeds; what is missing is made and appended."""
    key = COLUMNS[:4]
    known = {tuple(row[name] for name in key): row for row in _read()}
    new = not RESULTS.exists()
    found = []
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        for seed in seeds:
            for regime in REGIMES:
                for kind, malicious in CELLS:
                    case = (regime, kind, str(malicious), str(seed))
                    if case not in known:
                        if (row := _run(regime, kind, malicious, seed)) is None:
                            continue
                        known[case] = row
                        writer.writerow(row)
                        file.flush()
                    found.append(known[case])
    return found


def by_client(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seed, posterior and whether it attacks, of every client."""
    seeds, posteriors, attacks = [], [], []
    for row in rows:
        for posterior, malicious in zip(row["posterior"].split(), row["malicious"], strict=True):
            seeds.append(int(row["seed"]))
            posteriors.append(float(posterior))
            attacks.append(malicious == "1")
    return np.array(seeds), np.array(posteriors), np.array(attacks)


def interval(seeds: np.ndarray, attacks: np.ndarray) -> tuple[float, float]:
    """95 % of the share that attacks, by a bootstrap over seeds."""
    names = np.unique(seeds)
    rng = np.random.default_rng(0)
    sums = np.array([[attacks[seeds == one].sum(), (seeds == one).sum()] for one in names], dtype=np.float64)
    drawn = sums[rng.integers(len(names), size=(DRAWS, len(names)))].sum(axis=1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
    return float(low), float(high)


def table(rows: Sequence[Row]) -> None:
    """Shares by bin as Markdown."""
    edges = (0.0, *EDGES, 1.0 + 1e-9)
    names = ("below 0.02", "0.02 to 0.5", "0.5 to 0.9", "0.9 to 0.98", "0.98 and more")
    print("| regime | " + " | ".join(names) + " | 95 % of the last |")
    print("|---" * (len(names) + 2) + "|")
    for regime in dict.fromkeys(row["regime"] for row in rows):
        seeds, posterior, attacks = by_client([row for row in rows if row["regime"] == regime])
        cells = []
        for low, high in pairwise(edges):
            within = (posterior >= low) & (posterior < high)
            cells.append(f"{attacks[within].mean():.3f} of {within.sum()}" if within.any() else "none")
        sure = posterior >= EDGES[-1]
        low, high = interval(seeds[sure], attacks[sure])
        print(f"| {regime} | " + " | ".join(cells) + f" | {low:.3f} to {high:.3f} |")


def picture(rows: Sequence[Row]) -> None:
    """How often clients attack, by posterior."""
    matplotlib.rcParams["svg.hashsalt"] = "calibration"
    figure = Figure(figsize=(5.2, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    edges = np.array([0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 1.0 + 1e-9])
    for regime, mark in zip(dict.fromkeys(row["regime"] for row in rows), "os^v", strict=False):
        _, posterior, attacks = by_client([row for row in rows if row["regime"] == regime])
        bins = np.digitize(posterior, edges) - 1
        seen = [b for b in range(len(edges) - 1) if (bins == b).sum() >= 10]
        means = [(posterior[bins == b].mean(), attacks[bins == b].mean()) for b in seen]
        axes.plot(*zip(*means, strict=True), marker=mark, label=regime)
    axes.set_xlabel("posterior that a client is malicious")
    axes.set_ylabel("how often it is")
    axes.legend(frameon=False)
    figure.savefig(RESULTS.with_suffix(".svg"), metadata={"Date": None})


def main() -> None:
    """Run what is missing and print the table."""
    given = [one for one in sys.argv[1:] if not one.startswith("-")]
    first, last = (int(one) for one in given) if given else SEEDS
    rows = rows_of(range(first, last + 1))
    table(rows)
    if "--picture" in sys.argv:
        picture(rows)


if __name__ == "__main__":
    main()
