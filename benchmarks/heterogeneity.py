"""Honest clients that differ by nature: who is excluded, and what it does to the model, by every method on the same runs.

    FEDGT_DATA=<folder> python benchmarks/heterogeneity.py [--data isic2019,dirichlet-1,dirichlet-0.3,single-class]
        [--seeds 20] [--first-seed 100] [--methods ...] [--workers 2] [--picture]

`isic2019`: Fed-ISIC2019, 15 clients by halving the largest centre, linear head on frozen EfficientNet-Lite0 features (`fedgt
features isic2019`), focal loss, test in round 5 of 40. `dirichlet-1`, `dirichlet-0.3`: MNIST, test in round 1 of 10.
`single-class`: digits as in the demo, one honest client of class 9 only. 15 clients, attackers uniform at random; labels
flipped, permuted, or nobody malicious. Rows go to docs/results/heterogeneity.csv (resumable); seeds from 100, as smaller
ones served to choose the model.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from fedgt.cli.demo_command import DEMO
from fedgt.experiment import PAPER, make_spec
from fedgt.reproduction.paper import settings_of
from fedgt.reproduction.sweep import Planned, Row, sweep

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "heterogeneity.csv"
MNIST = {"data.name": "mnist", "data.partition": "dirichlet", "federation.rounds": 10, "screen.round": 1}
FLIP_1_7 = {"attack.source": 1, "attack.target": 7}
DATA: dict[str, Mapping[str, Any]] = {
    "isic2019": {**settings_of("isic2019"), "attack.source": 0, "attack.target": 1},
    "dirichlet-1": {**MNIST, **FLIP_1_7, "data.concentration": 1.0},
    "dirichlet-0.3": {**MNIST, **FLIP_1_7, "data.concentration": 0.3},
    "single-class": {
        "data.name": "digits",
        "data.partition": "single-class",
        "federation.rounds": 10,
        **{f"training.{key}": value for key, value in DEMO["training"].items()},
        **FLIP_1_7,
    },
}
CELLS = (("label-flip", 0), *((kind, n) for kind in ("label-flip", "label-permutation") for n in (1, 3, 5)))
METHODS: dict[str, Mapping[str, Any]] = {
    "no-defence": {"method": "no-defence"},
    "oracle": {"method": "oracle"},
    "rfa": {"method": "rfa"},
    "paper-count": {**PAPER, "method": "fedgt", "decode.strategy": "count"},
    "paper-delta": {**PAPER, "method": "fedgt", "decode.strategy": "delta"},
    "default": {"method": "fedgt"},
    "weights": {"method": "fedgt", "design.name": "graded-15x10-b", "screen.features": "weights"},
    "margins": {
        "method": "fedgt",
        "design.name": "graded-15x10-b",
        "screen.features": "margins",
        "decode.on_undecided": "decide",
    },
}
"""`default` has twelve groups, and compares margins where clients own classes unevenly. The other two have ten groups:
`weights` with further test rounds while somebody is undecided and margins as a second opinion, `margins` by themselves."""
OTHERS: dict[str, Mapping[str, Any]] = {
    **{f"margins-beta-{beta:g}": {**METHODS["margins"], "decode.beta": beta} for beta in (0.2, 0.8)},
    "outputs": {"method": "fedgt", "screen.features": "outputs"},
    "own-run": {"method": "fedgt", "design.name": "graded-15x10-b"},
}
"""Asked for by name only: what an honest client lost costs against an attacker missed, where `margins` has .5; features for
deep networks, which know nothing of who owns which class; and the ten groups that a `FederationRun` has by default, with the
two sums that it keeps back for a further test."""
PUBLISHED = ("paper-count", "paper-delta")


def planned(data: str, kind: str, malicious: int, method: str, seeds: Sequence[int]) -> list[Planned]:
    """The runs of one cell."""
    informed: dict[str, Any] = {}
    if method in PUBLISHED:  # the paper's server is told the attack
        informed = (
            {"screen.utility": "recall", "screen.source_label": DATA[data]["attack.source"]}
            if kind == "label-flip"
            else {"screen.utility": "balanced-accuracy" if data == "isic2019" else "top1"}
        )
    return [
        Planned(
            spec=make_spec(
                {"privacy": 4, "screen": {"schedule": "first"}},
                {
                    **DATA[data],
                    **(METHODS | OTHERS)[method],
                    **informed,
                    "attack.kind": kind,
                    "attack.malicious": malicious,
                    "seed": seed,
                },
            ),
            variant=method,
        )
        for seed in seeds
    ]


def interval(values: Sequence[float]) -> str:
    """Mean and half a 95 % confidence interval."""
    if len(values) < 2:
        return "".join(f"{value:.2f}" for value in values)
    half = float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)
    return f"{np.mean(values):.2f} ± {half:.2f}"


def numbers(rows: Sequence[Row], column: str) -> list[float]:
    """The column, where a row has it."""
    return [float(row[column]) for row in rows if row[column]]


def main() -> None:
    """Run what is missing and print the tables as Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--picture", action="store_true", help="draw docs/results/heterogeneity.svg, too")
    chosen = parser.parse_args()
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    methods = chosen.methods.split(",")
    drawn: dict[str, dict[tuple[str, int, str], list[Row]]] = {}
    for data in chosen.data.split(","):
        cells = {(kind, n, method): planned(data, kind, n, method, seeds) for kind, n in CELLS for method in methods}
        every = [one for runs in cells.values() for one in runs]
        # One attack is like the other where nobody is malicious, unless the paper's server believes in it.
        rows = sweep(every, chosen.results, workers=chosen.workers, masks=False)
        found = {one.spec.digest: row for one, row in zip(every, rows, strict=True)}
        drawn[data] = {cell: [found[one.spec.digest] for one in runs] for cell, runs in cells.items()}
        table(data, drawn[data], methods)
    if chosen.picture:
        picture(drawn, [method for method in methods if method in METHODS and METHODS[method]["method"] == "fedgt"])


def table(data: str, cells: Mapping[tuple[str, int, str], list[Row]], methods: Sequence[str]) -> None:
    """Wrong clients, and the model at the end."""
    accuracy = "top1_accuracy_percent" if data.startswith("dirichlet") else "balanced_accuracy_percent"
    tested = [method for method in methods if (METHODS | OTHERS)[method]["method"] == "fedgt"]
    print(f"\n## {data}: missed / falsely excluded clients a run; wrong in all\n")
    print(f"| attack | n_m | {' | '.join(tested)} |")
    print(f"|---|---|{'---|' * len(tested)}")
    for kind, n in CELLS:
        entries = []
        for method in tested:
            rows = cells[kind, n, method]
            missed, wrong = numbers(rows, "missed_clients"), numbers(rows, "falsely_excluded_clients")
            both = [a + b for a, b in zip(missed, wrong, strict=True)]
            entries.append(f"{np.mean(missed):.2f} / {np.mean(wrong):.2f}; {interval(both)}")
        print(f"| {kind if n else 'nobody'} | {n} | {' | '.join(entries)} |")
    for column, title in ((accuracy, accuracy), ("attack_accuracy_percent", "attack accuracy, %")):
        print(f"\n## {data}: {title} after the last round\n")
        print(f"| attack | n_m | {' | '.join(methods)} |")
        print(f"|---|---|{'---|' * len(methods)}")
        for kind, n in CELLS:
            if column.startswith("attack") and kind != "label-flip":
                continue
            entries = [interval(numbers(cells[kind, n, method], column)) for method in methods]
            print(f"| {kind if n else 'nobody'} | {n} | {' | '.join(entries)} |")


def picture(data: Mapping[str, Mapping[tuple[str, int, str], list[Row]]], methods: Sequence[str]) -> None:
    """Wrong clients a run over the number of attackers, with 95 % confidence intervals."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        2, len(data), figsize=(3.2 * len(data), 6), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for column, (name, cells) in enumerate(data.items()):
        for row, kind in enumerate(("label-flip", "label-permutation")):
            axis = axes[row, column]
            for shift, method in enumerate(methods):
                means, halves = [], []
                for n in (0, 1, 3, 5):
                    rows = cells["label-flip" if not n else kind, n, method]
                    wrong = [
                        a + b
                        for a, b in zip(
                            numbers(rows, "missed_clients"), numbers(rows, "falsely_excluded_clients"), strict=True
                        )
                    ]
                    means.append(np.mean(wrong))
                    halves.append(
                        student.ppf(0.975, max(len(wrong) - 1, 1)) * np.std(wrong) / max(len(wrong), 1) ** 0.5
                    )
                places = np.array([0, 1, 3, 5]) + 0.08 * (shift - len(methods) / 2)
                axis.errorbar(places, means, yerr=halves, fmt="osv^Dx"[shift % 6] + "-", capsize=2, label=method)
            axis.set(title=f"{name}: {kind}", xlabel="malicious clients", xticks=(0, 1, 3, 5))
        axes[0, 0].set_ylabel("wrong clients a run")
        axes[1, 0].set_ylabel("wrong clients a run")
    axes[0, 0].legend(frameon=False)
    figure.savefig(RESULTS.with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
