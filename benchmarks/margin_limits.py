"""What the validation margins know about a client: single clients against group sums, and one round against another.

    FEDGT_DATA=<folder> python benchmarks/margin_limits.py [--data isic2019,dirichlet-1,dirichlet-0.3] [--seeds 10]

The federations of `heterogeneity.py` without any defence. In the test round the evidence of `fedgt.evidence.margin_screen`
is computed from the models of the clients themselves (rows of one client, which no plan allows) and from the sums of the
default design: what the first cannot name is not in the margins, what only the second cannot name is lost in the sums.
*Separation* is the difference between attackers and honest clients in the statistic of the true attack, in deviations of
honest clients; *found* the fraction of pairs (attacker, honest client) that it orders rightly. The last line is the
correlation of the honest clients' statistics between rounds.
"""

import argparse
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fedgt.design import named_design
from fedgt.evidence import MarginEvidence, contrasts
from fedgt.experiment import make_spec
from fedgt.experiment.simulation import Simulation, simulate
from fedgt.federation import DecodeSettings, ScreenSettings
from fedgt.federation.group_means import GroupMeans
from fedgt.federation.measure import suspects
from fedgt.federation.views import graded_of
from fedgt.train import ImageData, load
from fedgt.types import BoolArray, FloatArray, Parameters
from heterogeneity import CELLS, DATA

ROWS = named_design("graded-15x10-b").matrix.astype(np.float64)
MARGINS = ScreenSettings(features="margins")
ROUNDS = {"isic2019": (1, 2, 5, 10), "dirichlet-1": (1, 3, 10), "dirichlet-0.3": (1, 3, 10)}


def models(simulation: Simulation, rounds: Sequence[int]) -> dict[int, tuple[Parameters, list[Parameters]]]:
    """Of each of these rounds: the global model and the clients' models, under plain federated averaging."""
    cohort, clients = simulation.cohort, simulation.clients
    counts = np.array([simulation.federation.samples[client] for client in clients], dtype=np.float64)
    current: Parameters = simulation.initial
    found = {}
    for number in range(1, max(rounds) + 1):
        trained = [cohort.trained(client, current, round=number).parameters for client in clients]
        if number in rounds:
            found[number] = current, trained
        current = {
            name: np.average([one[name] for one in trained], axis=0, weights=counts).astype(current[name].dtype)
            for name in current
        }
    return found


def evidence(simulation: Simulation, start: Parameters, trained: Sequence[Parameters], rows: FloatArray) -> Any:
    """The screen's evidence of these rows of client models."""
    counts = np.array([simulation.federation.samples[client] for client in simulation.clients], dtype=np.float64)
    weights = rows * counts
    shares = weights / weights.sum(axis=1, keepdims=True)
    moved = {name: np.stack([one[name] - start[name] for one in trained]) for name in start}
    test = GroupMeans(
        start=start,
        updates=[{name: np.tensordot(share, one, axes=1) for name, one in moved.items()} for share in shares],
        rows=weights,
        samples=counts,
    )
    return graded_of(test, simulation.validation, MARGINS).evidence


def of_clients(found: MarginEvidence, labels: tuple[int, ...]) -> FloatArray:
    """float64[clients]: a statistic client by client, less its mean."""
    parts = contrasts(np.eye(15), np.ones(15))
    (one, *_) = [one for one in found.hypotheses if one.labels == labels]
    values: FloatArray = np.linalg.pinv(parts.transform) @ one.observed
    return values


def row(settings: Mapping[str, Any], kind: str, malicious: int, test: int, seeds: int, data: ImageData) -> str:
    """One cell as Markdown."""
    separation: list[float] = []
    ordered: list[float] = []
    alone: list[tuple[int, int]] = []
    summed: list[tuple[int, int]] = []
    labels = (settings["attack.source"], settings["attack.target"]) if kind == "label-flip" else (1,)
    for seed in range(seeds):
        changes = {"attack.kind": kind, "attack.malicious": malicious, "seed": seed, "method": "no-defence"}
        spec = make_spec({"privacy": 4}, {**settings, **changes, "federation.rounds": test})
        simulation = simulate(spec, data=data, masks=False)
        start, trained = models(simulation, [test])[test]
        seats = np.random.default_rng([seed, 7]).permutation(15)
        attacks: BoolArray = np.array([client in simulation.malicious for client in simulation.clients])
        single = evidence(simulation, start, trained, np.eye(15))
        values = of_clients(single, labels)
        if malicious:
            separation.append((values[attacks].mean() - values[~attacks].mean()) / values[~attacks].std(ddof=1))
            ordered.append(float((values[attacks][:, None] > values[~attacks]).mean()))
        for one, wrong in ((single, alone), (evidence(simulation, start, trained, ROWS[:, seats]), summed)):
            flagged = suspects([one], 15, screen=MARGINS, decoding=DecodeSettings()).flagged
            wrong.append((int((attacks & ~flagged).sum()), int((flagged & ~attacks).sum())))
    missed_alone, false_alone = np.mean(alone, axis=0)
    missed, false = np.mean(summed, axis=0)
    apart = f"{np.mean(separation):.1f} | {np.mean(ordered):.2f}" if malicious else " | "
    return (
        f"| {kind if malicious else 'nobody'} | {malicious} | {apart} | {missed_alone:.2f} / {false_alone:.2f} | "
        f"{missed:.2f} / {false:.2f} |"
    )


def persistence(settings: Mapping[str, Any], rounds: Sequence[int], seeds: int, data: ImageData) -> list[float]:
    """Correlation of the honest clients' statistics between each of these rounds and the next, median over the labels."""
    found = []
    for seed in range(seeds):
        spec = make_spec(
            {"privacy": 4}, {**settings, "seed": seed, "method": "no-defence", "federation.rounds": max(rounds)}
        )
        simulation = simulate(spec, data=data, masks=False)
        by_round = models(simulation, rounds)
        values = []
        for number in rounds:
            one = evidence(simulation, *by_round[number], np.eye(15))
            values.append([h.observed for h in one.hypotheses if len(h.labels) == 2])
        found.append(
            [
                float(np.median([np.corrcoef(a, b)[0, 1] for a, b in zip(first, second, strict=True)]))
                for first, second in pairwise(values)
            ]
        )
    return [float(one) for one in np.mean(found, axis=0)]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=",".join(ROUNDS))
    parser.add_argument("--seeds", type=int, default=10)
    chosen = parser.parse_args()
    for name in chosen.data.split(","):
        settings = DATA[name]
        data = load(settings["data.name"])
        print(f"\n## {name}\n")
        print("| attack | n_m | separation | found | single clients: missed / false | group sums: missed / false |")
        print("|---|---|---|---|---|---|")
        for kind, malicious in CELLS:
            print(row(settings, kind, malicious, settings["screen.round"], chosen.seeds, data), flush=True)
        rounds = ROUNDS[name]
        same = persistence(settings, rounds, min(chosen.seeds, 5), data)
        between = ", ".join(f"{a} and {b}: {c:.2f}" for (a, b), c in zip(pairwise(rounds), same, strict=True))
        print(f"\nCorrelation between rounds {between}.", flush=True)


if __name__ == "__main__":
    main()
