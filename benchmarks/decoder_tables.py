"""Exact expected errors of every strategy, the two estimates of n_m, and belief propagation against exact.

    python benchmarks/decoder_tables.py

Everything is an expectation over all sets and outcomes, not a simulation. Rows go to docs/results/decoder_objective.csv,
tables to docs/results/decoder.md.
"""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedgt.decode import (
    STRATEGIES,
    BeliefPropagation,
    CountPrior,
    ExactDecoder,
    IndependentPrior,
    Strategy,
    compile,
    decision_table,
    estimate_from_outcomes,
    expected_errors,
)
from fedgt.decode.compiled import all_outcomes
from fedgt.decode.decision_tables import estimates
from fedgt.decode.exact import syndrome_counts, with_noise
from fedgt.design import Design, max_malicious, named_design
from fedgt.types import BoolArray, ErrorRates

RESULTS = Path(__file__).parent.parent / "docs" / "results"
CROSSOVERS = (0.0, 0.01, 0.05, 0.1, 0.2)
WRONG = (0.5, 1.0, 2.0, 4.0)


def objective(design: Design, flagged: BoolArray, p: float, malicious: int) -> float:
    """0.5 P_MD + 0.5 P_FA with the paper's 1/n counts."""
    return 0.5 * sum(expected_errors(design, flagged, ErrorRates.symmetric(p), malicious)) / design.clients


def best_possible(design: Design, p: float, malicious: int) -> float:
    """The floor: the best rule that knows n_m and p."""
    weights = np.zeros(malicious + 1)
    weights[malicious] = 1.0
    batch = compile(design, ErrorRates.symmetric(p), CountPrior(weights=weights)).decode_batch(
        all_outcomes(design.groups)
    )
    return objective(design, np.less(np.nan_to_num(batch.log_odds, nan=np.inf), -1e-9), p, malicious)


def strategies_of(design: Design) -> list[Strategy]:
    """All of them; the published tables are for 15 x 8 only."""
    return [name for name in STRATEGIES if design.clients == 15 or not name.startswith("published")]


def objective_rows(design: Design) -> list[dict[str, object]]:
    """One row per strategy, assumed p, true p and n_m."""
    outcomes, most = all_outcomes(design.groups), max_malicious(design)
    rows: list[dict[str, object]] = []

    def add(strategy: str, assumed: float, p: float, value: Callable[[int], float]) -> None:
        for malicious in range(most + 1):
            rows.append(
                {
                    "design": design.name,
                    "strategy": strategy,
                    "assumed_p": assumed,
                    "true_p": p,
                    "malicious_clients": malicious,
                    "objective": f"{value(malicious):.6f}",
                }
            )

    for strategy in strategies_of(design):
        for p in CROSSOVERS:
            table = decision_table(design, outcomes, rates=ErrorRates.symmetric(p), strategy=strategy)
            add(strategy, p, p, lambda q, table=table, p=p: objective(design, table, p, q))  # type: ignore[misc]
    for p in CROSSOVERS:
        add("best possible (n_m known)", p, p, lambda q, p=p: best_possible(design, p, q))  # type: ignore[misc]
    for strategy in ("count", "delta", "bayes", "map"):
        for factor in WRONG:
            table = decision_table(design, outcomes, rates=ErrorRates.symmetric(0.05 * factor), strategy=strategy)
            if factor != 1.0:
                add(strategy, 0.05 * factor, 0.05, lambda q, table=table: objective(design, table, 0.05, q))  # type: ignore[misc]
    return rows


def markdown(rows: list[dict[str, object]], design: Design) -> str:
    """The tables of one design."""
    most = max_malicious(design)
    head = (
        "| strategy | p | "
        + " | ".join(f"n_m = {q}" for q in range(most + 1))
        + " | mean |\n"
        + "|---" * (most + 4)
        + "|"
    )
    own = [row for row in rows if row["design"] == design.name]
    lines = [f"### {design.name}, assumed p = true p", "", head]
    grouped: dict[tuple[object, object, object], list[float]] = {}
    for row in own:
        key = (row["strategy"], row["assumed_p"], row["true_p"])
        grouped.setdefault(key, []).append(float(str(row["objective"])))

    def line(name: str, p: object, values: list[float]) -> str:
        cells = " | ".join(f"{value:.4f}" for value in values)
        return f"| {name} | {p} | {cells} | {np.mean(values):.4f} |"

    for (strategy, assumed, p), values in sorted(
        grouped.items(), key=lambda item: (float(str(item[0][2])), np.mean(item[1]))
    ):
        if assumed == p:
            lines.append(line(str(strategy), p, values))
    lines += [
        "",
        f"### {design.name}, true p = 0.05, the decoder assumes another",
        "",
        head.replace("| p |", "| assumed p |"),
    ]
    for (strategy, assumed, p), values in sorted(grouped.items(), key=lambda item: str(item[0][:2])):
        if p == 0.05 and strategy in ("count", "delta", "bayes", "map"):
            lines.append(line(str(strategy), f"{float(str(assumed)):g}", values))
    return "\n".join(lines)


def estimator_table(design: Design) -> str:
    """How often each estimate of n_m is right, exactly."""
    outcomes, counts, most = all_outcomes(design.groups), syndrome_counts(design), max_malicious(design)
    lines = [
        f"### {design.name}: how often n_m-hat is right, and its mean absolute error",
        "",
        "| p | estimate from | " + " | ".join(f"n_m = {q}" for q in range(most + 1)) + " | mean |",
        "|---" * (most + 4) + "|",
    ]
    for p in (0.0, 0.05, 0.1):
        rates = ErrorRates.symmetric(p)
        for name, found in (
            ("number of negatives", estimates(design, outcomes, rates, "count", "negatives", 0.2, None)),
            ("all outcomes", estimate_from_outcomes(design, outcomes, rates)),
        ):
            cells, rights = [], []
            for q in range(most + 1):
                chance = with_noise(counts.sets[q] / counts.sets[q].sum(), rates)
                right, error = float(chance[found == q].sum()), float(chance @ np.abs(found - q))
                rights.append((right, error))
                cells.append(f"{right:.2f} / {error:.2f}")
            mean = np.mean(rights, axis=0)
            lines.append(f"| {p} | {name} | " + " | ".join(cells) + f" | {mean[0]:.3f} / {mean[1]:.3f} |")
    return "\n".join(lines)


def belief_table() -> str:
    """Posterior errors and changed decisions of belief propagation, outcomes drawn as in a test round."""
    lines = [
        "| design | update | mean error of P(malicious) | largest | decisions changed | converged |",
        "|---|---|---|---|---|---|",
    ]
    rates = ErrorRates.symmetric(0.05)
    for name, malicious in (("bch-15x8", 3), ("cyclic-30x12", 5), ("bch-31x10", 3)):
        design = named_design(name)
        rng = np.random.default_rng(0)
        sets = np.argsort(rng.random((400, design.clients)), axis=1) < malicious
        syndromes = sets.astype(int) @ design.matrix.T.astype(int) > 0
        outcomes = (syndromes ^ (rng.random(syndromes.shape) < 0.05)).astype(np.int8)
        prior = IndependentPrior.uniform(design.clients, malicious / design.clients)
        exact = ExactDecoder(design, rates, prior).decode_batch(outcomes).log_odds
        for update in ("flooding", "serial"):
            batch = BeliefPropagation(design, rates, prior, update=update).decode_batch(outcomes)
            error = np.abs(1 / (1 + np.exp(exact)) - 1 / (1 + np.exp(batch.log_odds)))
            flips = ((exact < 0) != (batch.log_odds < 0)).mean()
            lines.append(
                f"| {name} | {update} | {error.mean():.4f} | {error.max():.3f} | {100 * flips:.2f} % of clients | "
                f"{100 * batch.converged.mean():.1f} % |"
            )
    return "\n".join(lines)


def main() -> None:
    """Write both files."""
    designs = [named_design("bch-15x8"), named_design("cyclic-30x12")]
    rows = [row for design in designs for row in objective_rows(design)]
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "decoder_objective.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    parts = [
        "# Decoders: exact expected errors",
        "Written by `python benchmarks/decoder_tables.py`. Every number is an exact expectation over all sets\n"
        "of attackers and all outcomes. Belief propagation has 400 drawn outcomes. *n_m* is the number of\n"
        "attackers, and *p* the probability that a test errs. The objective is 0.5 P_MD + 0.5 P_FA with\n"
        "the paper's 1/n counts: attackers missed and honest clients accused, over the number of clients.\n"
        "Every set counts, also those that leave no group clean. `kappa` is 0.2 and `beta` 0.5.",
        *(markdown(rows, design) for design in designs),
        "## The estimate of n_m",
        *(estimator_table(design) for design in designs),
        "## Belief propagation against exact, p = 0.05",
        belief_table(),
    ]
    (RESULTS / "decoder.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
