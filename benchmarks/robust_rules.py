"""Robust aggregation that sees every update, and scores from group sums, beside the methods of `fedgt reproduce`.

    pip install byzfl==0.0.11
    FEDGT_DATA=<folder> python benchmarks/robust_rules.py [--dataset mnist|cifar10] [--seeds 10] [--malicious 0 1 2 3 4 5]

Coordinate median, trimmed mean and Multi-Krum of byzfl (it brings torch and torchvision; nothing else here needs it) get
the same clients, attackers, first model and sample order as `fedgt reproduce targeted|untargeted`. They need each client's
model in clear: no privacy. `f`, the number of attackers that a rule expects, is the true n_m, and what somebody who knows
nothing would take: floor((n - 1) / 2). The scores are those of `contribution_scores`, from the sums of the test round.
Rows go to docs/results/reproduction/robust_rules.csv (resumable); tables are printed as Markdown beside the rows of
`fedgt reproduce` in the same folder.
"""

import argparse
import csv
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax
from threadpoolctl import threadpool_limits

from contribution_scores import attackers_auc, errors_of_lowest
from fedgt._version import __version__
from fedgt.errors import SpecError
from fedgt.experiment.simulation import Simulation, simulate
from fedgt.experiment.spec import ExperimentSpec
from fedgt.reproduction.paper import default_seeds
from fedgt.screen import measure, top1_accuracy
from fedgt.train import ImageData, LogisticRegression, attack_accuracy, load
from fedgt.train.runs import RunTask, train_runs
from fedgt.types import BoolArray, FloatArray, IntArray, Parameters
from rule_rows import (
    ATTACKS,
    COLUMNS,
    MALICIOUS,
    METHODS,
    RULES,
    SCORES,
    UTILITIES,
    Dataset,
    Experiment,
    Method,
    Row,
    spec_of,
)
from rule_tables import tables

RESULTS: Final = Path(__file__).parent.parent / "docs" / "results" / "reproduction" / "robust_rules.csv"
Vector = npt.NDArray[np.floating]
Aggregate = Callable[[Vector, int], Vector]
"""From float[clients, entries] and the number of attackers to expect to float[entries]."""


def byzfl_rules() -> dict[str, Aggregate]:
    """The rules of byzfl.

    Raises:
        SystemExit: If it is not installed.
    """
    try:
        import byzfl
    except ModuleNotFoundError as error:
        raise SystemExit(f"the rules need byzfl ({error}): pip install byzfl==0.0.11") from error
    return {
        "median": lambda models, _: byzfl.Median()(models),
        "trimmed-mean": lambda models, f: byzfl.TrMean(f)(models),
        "multi-krum": lambda models, f: byzfl.MultiKrum(f)(models),
    }


def refusal(name: str, *, clients: int, expected: int | None) -> str:
    """Why the rule gives no guarantee with so many expected attackers; empty if it does.

    byzfl asks for n > 2f only; Krum's proof (Blanchard et al. 2017) needs n >= 2f + 3.
    """
    if name == "multi-krum" and expected is not None and clients < 2 * expected + 3:
        return f"Multi-Krum needs n >= 2f + 3: {2 * expected + 3} clients for f = {expected}, there are {clients}"
    return ""


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """A rule in a cell, round after round.

    Attributes:
        method: The rule.
        expected: Its f.
        spec: Of the cell, without a defence.
        simulation: Its clients and attackers.
        model: float32[entries], the global model.
        top1: In percent, by round.
        attack: In percent, by round; empty without a target.
    """

    method: Method
    expected: int | None
    spec: ExperimentSpec
    simulation: Simulation
    model: Vector
    top1: list[float] = field(default_factory=list)
    attack: list[float] = field(default_factory=list)

    def kind(self, client: str) -> str:
        """What the client's labels are; the same text is the same labels in all cells of a seed."""
        return self.spec.attack.model_dump_json() if client in self.simulation.malicious else "honest"

    @property
    def is_mean(self) -> bool:
        """Whether nobody is left out: a rule that is told of no attackers."""
        return self.method.name == "mean" or self.expected == 0

    def aggregate(self, models: Vector, aggregates: Mapping[str, Aggregate]) -> None:
        """Take the clients' models, float32[clients, entries], into the global one.

        A rule that is told of no attackers leaves nobody out: it is the mean by samples, as without a defence. byzfl's
        other means are plain; the shares of these experiments differ by one sample at most.
        """
        if self.is_mean:
            self.model = mean_of(models, weights_of(self.simulation))
        else:
            self.model = aggregates[self.method.name](models, self.expected or 0).astype(models.dtype)


def mean_of(models: Vector, weights: FloatArray) -> Vector:
    """The weighted mean of float[clients, entries], summed in float64, in the dtype of the models."""
    mean: Vector = (weights / weights.sum() @ models.astype(np.float64)).astype(models.dtype)
    return mean


def weights_of(simulation: Simulation) -> FloatArray:
    """float64[clients]: as many as a client has samples."""
    return np.array([simulation.federation.weight(client) for client in simulation.clients], dtype=np.float64)


def flat(parameters: Parameters) -> Vector:
    """A model as one vector."""
    return np.concatenate([tensor.ravel() for tensor in parameters.values()])


def unflat(vector: Vector, like: Parameters) -> dict[str, Vector]:
    """The tensors of a vector of `flat`."""
    ends = np.cumsum([tensor.size for tensor in like.values()])[:-1]
    pieces = np.split(vector, ends)
    return {name: piece.reshape(like[name].shape) for name, piece in zip(like, pieces, strict=True)}


def run_rules(runs: Sequence[Run], aggregates: Mapping[str, Aggregate]) -> Iterator[tuple[int, list[Vector]]]:
    """All runs of one seed in lock-step: a client trains once for each different (start, labels).

    Yields:
        After each round its number and the clients' models of each run, float32[clients, entries]; the runs have moved on.
    """
    for number in range(1, max(run.spec.federation.rounds for run in runs) + 1):
        trained = _train(runs, number)
        for run, models in zip(runs, trained, strict=True):
            run.aggregate(models, aggregates)
        _measure(runs)
        yield number, trained


def _train(runs: Sequence[Run], number: int) -> list[Vector]:
    found: list[list[Vector]] = [[] for _ in runs]
    for client in runs[0].simulation.clients:
        tasks: dict[tuple[bytes, str], list[int]] = {}
        for place, run in enumerate(runs):
            tasks.setdefault((run.model.tobytes(), run.kind(client)), []).append(place)
        kinds: dict[str, IntArray] = {}
        for (_, kind), owners in tasks.items():
            kinds.setdefault(kind, runs[owners[0]].simulation.cohort.data(number)[1])
        order = list(kinds)
        cohort = runs[0].simulation.cohort
        if not isinstance(cohort.model, LogisticRegression):
            raise SpecError("the rules are compared on the one-layer network")
        models = train_runs(
            [
                RunTask(start=unflat(runs[owners[0]].model, runs[0].simulation.initial), labels=order.index(kind))
                for (_, kind), owners in tasks.items()
            ],
            model=cohort.model,
            images=cohort.images,
            label_sets=list(kinds.values()),
            part=cohort.parts[client],
            rng=cohort.shuffler(client, round=number),
            training=cohort.training,
        )
        for owners, model in zip(tasks.values(), models, strict=True):
            vector = flat({name: model[name] for name in runs[0].simulation.initial})
            for place in owners:
                found[place].append(vector)
    return [np.stack(models) for models in found]


def _measure(runs: Sequence[Run]) -> None:
    measured: dict[bytes, IntArray] = {}
    for run in runs:
        simulation, attack = run.simulation, run.spec.attack
        key = run.model.tobytes()
        if key not in measured:
            parameters = unflat(run.model, simulation.initial)
            measured[key] = simulation.model.predict(parameters, simulation.test_images)
        predicted, labels = measured[key], simulation.test_labels
        run.top1.append(100 * top1_accuracy(predicted, labels))
        if attack.kind == "label-flip":
            run.attack.append(100 * attack_accuracy(predicted, labels, source=attack.source, target=attack.target))


def group_utilities(tested: Simulation, spec: ExperimentSpec, models: Vector) -> dict[str, FloatArray]:
    """What the server measures on its validation set about each group sum.

    Args:
        tested: The cell with the paper's groups.
        spec: Its specification: which utility the paper takes.
        models: float32[clients, entries] of the test round, by client number.

    Returns:
        float64[groups] for each of `UTILITIES`, larger is better.
    """
    grouping = tested.grouping
    if grouping is None:
        raise RuntimeError("a specification with groups is needed")
    weights = weights_of(tested)
    found: dict[str, list[float]] = {utility: [] for utility in UTILITIES}
    labels = tested.validation.labels
    for group in range(grouping.design.groups):
        members = set(grouping.members(group))
        inside = np.array([client in members for client in tested.clients])
        mean = mean_of(models[inside], weights[inside])
        logits = np.asarray(tested.validation.logits(unflat(mean, tested.initial)), dtype=np.float64)
        utility = measure(spec.screen.measured, logits.argmax(axis=1), labels, source_label=spec.screen.source_label)
        found["paper"].append(utility)
        found["loss"].append(float(log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean()))
    return {utility: np.array(values) for utility, values in found.items()}


def scored(tested: Simulation, utilities: FloatArray, score: str) -> tuple[float | None, float]:
    """AUC of the attackers, and how many of them are kept when the n_m lowest scores go."""
    grouping = tested.grouping
    if grouping is None:
        raise RuntimeError("a specification with groups is needed")
    scores = SCORES[score](utilities, grouping.design.matrix)
    malicious: BoolArray = np.array([client in tested.malicious for client in grouping.clients])
    return attackers_auc(scores, malicious), errors_of_lowest(scores, malicious)


def run_seed(
    wanted: Mapping[tuple[Experiment, int], Sequence[Method]],
    *,
    dataset: Dataset,
    seed: int,
    data: ImageData,
    aggregates: Mapping[str, Aggregate],
    library: str = "",
) -> list[Row]:
    """The rows of one seed.

    Args:
        wanted: For each (experiment, n_m) the methods.
        dataset: The data set.
        seed: The seed.
        data: The data set, loaded.
        aggregates: The rules by name.
        library: Whose they are, for the record.
    """
    began = time.process_time()
    rows: list[Row] = []
    runs: list[Run] = []
    tested: dict[int, tuple[Simulation, ExperimentSpec, Sequence[Method]]] = {}
    for (experiment, malicious), methods in wanted.items():
        spec = spec_of(dataset, experiment, malicious, "no-defence", seed)
        simulation = simulate(spec, data=data, masks=False)
        clients = len(simulation.clients)
        scores = [method for method in methods if method.name in SCORES]
        rules = [method for method in methods if method.name not in SCORES]
        if scores and RULES[0] not in rules:
            rules.append(RULES[0])  # the test round is that of a run without a defence
        for method in rules:
            expected = method.expected(clients, malicious)
            if reason := refusal(method.name, clients=clients, expected=expected):
                rows.append(row_of(spec, method, expected, status="refused", reason=reason))
                continue
            run = Run(
                method=method, expected=expected, spec=spec, simulation=simulation, model=flat(simulation.initial)
            )
            if scores and method == RULES[0]:
                grouped = spec_of(dataset, experiment, malicious, "delta", seed)
                tested[len(runs)] = (simulate(grouped, data=data, masks=False), grouped, scores)
            runs.append(run)
    for number, models in run_rules(runs, aggregates):
        for place, (simulation, grouped, asked) in tested.items():
            if number == grouped.screen.round:
                utilities = group_utilities(simulation, grouped, models[place])
                rows += [
                    _score_row(runs[place].spec, simulation, method, utilities[method.utility]) for method in asked
                ]
        print(f"seed {seed}: round {number} of {len(runs)} runs", file=sys.stderr, flush=True)
    rows += [_rule_row(run, library) for run in runs if run.method in wanted[_key(run.spec)]]
    each = (time.process_time() - began) / len(rows)
    return [row | {"cpu_seconds": f"{each:.3f}"} for row in rows]


def _key(spec: ExperimentSpec) -> tuple[Experiment, int]:
    experiment: Experiment = "targeted" if spec.attack.kind == ATTACKS["targeted"] else "untargeted"
    return experiment, spec.attack.malicious


def _rule_row(run: Run, library: str) -> Row:
    return row_of(
        run.spec,
        run.method,
        run.expected,
        rules="" if run.is_mean else library,
        top1_accuracy_percent=f"{run.top1[-1]:.4f}",
        attack_accuracy_percent=f"{run.attack[-1]:.4f}" if run.attack else "",
        top1_accuracy_by_round_percent=" ".join(f"{one:.3f}" for one in run.top1),
        attack_accuracy_by_round_percent=" ".join(f"{one:.3f}" for one in run.attack),
    )


def _score_row(spec: ExperimentSpec, tested: Simulation, method: Method, utilities: FloatArray) -> Row:
    auc, missed = scored(tested, utilities, method.name)
    return row_of(
        spec,
        method,
        None,
        attackers_auc="" if auc is None else f"{auc:.4f}",
        missed_clients=f"{missed:.4f}",
        falsely_excluded_clients=f"{missed:.4f}",  # as many go as there are attackers
    )


def row_of(spec: ExperimentSpec, method: Method, expected: int | None, **values: str) -> Row:
    """A row; `values` are what the method gave, by column."""
    score = method.name in SCORES
    row = dict.fromkeys(COLUMNS, "") | {
        "spec_hash": spec.digest,
        "version": __version__,
        "dataset": spec.data.name,
        "rounds": str(spec.federation.rounds),
        "attack": spec.attack.kind,
        "malicious_clients": str(spec.attack.malicious),
        "seed": str(spec.seed),
        "method": method.name,
        "told": "n_m" if score else method.told,  # a score excludes the n_m lowest
        "expected_attackers": "" if expected is None else str(expected),
        "utility": method.utility,
        "server_sees": "group sums" if score else "their mean" if method.name == "mean" else "every update",
        "status": "finished",
    }
    return row | values


def known_rows(path: Path) -> list[Row]:
    """The rows of a file; none if there is no such file.

    Raises:
        SystemExit: If its columns are others.
    """
    if not path.exists() or not path.stat().st_size:
        return []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise SystemExit(f"{path} has other columns; {', '.join(COLUMNS)} are needed: take another file with --out")
        return list(reader)


def _done(rows: Iterable[Row]) -> set[tuple[str, str, str, str]]:
    return {
        (row["spec_hash"], row["method"], "" if row["method"] in SCORES else row["told"], row["utility"])
        for row in rows
    }


def missing(
    known: Iterable[Row], *, dataset: Dataset, seed: int, malicious: Sequence[int]
) -> dict[tuple[Experiment, int], list[Method]]:
    """What is not in the rows yet, by experiment and n_m."""
    done = _done(known)
    found = {}
    for experiment in ATTACKS:
        for number in malicious:
            digest = spec_of(dataset, experiment, number, "no-defence", seed).digest
            left = [one for one in METHODS if (digest, one.name, one.told, one.utility) not in done]
            if left:
                found[experiment, number] = left
    return found


def append(path: Path, rows: Iterable[Row]) -> None:
    """Add rows; a new file gets its header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists() or not path.stat().st_size
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=list(MALICIOUS), default="mnist")
    parser.add_argument("--seeds", type=int, help="as many as the paper's if not given")
    parser.add_argument("--malicious", type=int, nargs="+", help="values of n_m")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    dataset: Dataset = options.dataset
    malicious = options.malicious or MALICIOUS[dataset]
    data: ImageData | None = None
    aggregates: dict[str, Aggregate] = {}
    with threadpool_limits(1, user_api="blas"):
        for seed in range(options.seeds or default_seeds(dataset)):
            if wanted := missing(known_rows(options.out), dataset=dataset, seed=seed, malicious=malicious):
                if data is None:
                    name = spec_of(dataset, "targeted", 0, "no-defence", 0).data.name
                    data, aggregates = load(name, Path(os.environ["FEDGT_DATA"])), byzfl_rules()
                append(options.out, run_seed(wanted, dataset=dataset, seed=seed, data=data, aggregates=aggregates))
    print(tables(known_rows(options.out), options.out.parent, dataset=dataset))


if __name__ == "__main__":
    main()
