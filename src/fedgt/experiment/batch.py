"""Many runs at once: those of one seed take every round together and share their local training.

Runs of one seed have the same data, shares, first model and sample order, whatever the defence, the attack and the number of
attackers. All methods are the same run until they exclude somebody, so a client trains once for each *different* (start,
labels), and these trainings are one batch (`fedgt.train.train_runs`).
"""

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedgt.engine.round_message import fingerprint
from fedgt.experiment.one_run import run_steps
from fedgt.experiment.simulation import Simulation, simulate
from fedgt.experiment.spec import ExperimentSpec
from fedgt.federation.state import Coming
from fedgt.record.result import RunResult
from fedgt.train import Cohort, ImageData, LogisticRegression, load
from fedgt.train.runs import RunTask, train_runs
from fedgt.types import IntArray, Parameters

_HONEST = "honest"

OnSteps = Callable[[int], None]
"""Called with the number of further finished rounds, over all runs."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Running:
    """A run that waits for the local training of its next round."""

    number: int
    spec: ExperimentSpec
    simulation: Simulation
    steps: Generator[Coming, None, RunResult]
    demand: Coming | None = field(default=None)

    def advance(self) -> RunResult | None:
        """Go on to the next demand; the result when there is none."""
        try:
            self.demand = next(self.steps)
        except StopIteration as end:
            self.demand = None
            finished: RunResult = end.value
            return finished
        return None

    def kind(self, client: str, round: int) -> str | None:
        """What the client's labels are in the round; the same text means the same labels in all runs of the world.

        None means other pictures: such a client trains by itself.
        """
        behaviour = self.simulation.cohort.behaviours.get(client)
        if behaviour is None or not behaviour.active(round) or not behaviour.trains_otherwise:
            return _HONEST
        return None if behaviour.images is not None else behaviour.kind


def run_batch(
    specs: Sequence[ExperimentSpec],
    *,
    data: ImageData | None = None,
    data_dir: Path | None = None,
    masks: bool = True,
    on_steps: OnSteps | None = None,
) -> list[RunResult]:
    """Run many specifications; those that share their world train together.

    Args:
        specs: The runs.
        data: The data set of all of them, when it is loaded already.
        data_dir: Where data files are.
        masks: False adds the clients' fixed-point numbers without the protocol; the sums are the same (tested).
        on_steps: Called as rounds finish.

    Returns:
        The results, in the order of the specifications. They differ from those of `run` by the order of floating-point
        sums in local training; `cpu_seconds` is the CPU time of the batch divided by the number of its runs.

    Raises:
        SpecError, DesignError, CalibrationError: If a specification cannot be run.
    """
    from threadpoolctl import threadpool_limits

    results: dict[int, RunResult] = {}
    worlds: dict[str, list[int]] = {}
    for number, spec in enumerate(specs):
        worlds.setdefault(world_of(spec), []).append(number)
    with threadpool_limits(1, user_api="blas"):
        for members in worlds.values():
            began = time.process_time()
            shared = load(specs[members[0]].data.name, data_dir) if data is None else data
            found = _runworld_of({number: specs[number] for number in members}, shared, masks=masks, on_steps=on_steps)
            each = (time.process_time() - began) / len(members)
            results |= {number: one.model_copy(update={"cpu_seconds": each}) for number, one in found.items()}
    return [results[number] for number in range(len(specs))]


def world_of(spec: ExperimentSpec) -> str:
    """What makes two runs share data, shares, first model and sample order."""
    return json.dumps(
        [
            spec.seed,
            spec.federation.clients,
            spec.data.model_dump(mode="json"),
            spec.training.model_dump(mode="json"),
        ]
    )


def _runworld_of(
    specs: dict[int, ExperimentSpec], data: ImageData, *, masks: bool, on_steps: OnSteps | None
) -> dict[int, RunResult]:
    results: dict[int, RunResult] = {}
    running = []
    for number, spec in specs.items():
        simulation = simulate(spec, data=data, masks=masks)
        running.append(_Running(number=number, spec=spec, simulation=simulation, steps=run_steps(simulation)))
    while running:
        for one in running:
            result = one.advance()
            if result is not None:
                results[one.number] = result
        running = [one for one in running if one.demand is not None]
        _train(running)
        if on_steps is not None:
            on_steps(len(running))
    return results


def _train(running: Sequence[_Running]) -> None:
    """What all runs ask for, each different training once."""
    wanted: dict[tuple[int, str], dict[tuple[bytes, str], list[_Running]]] = {}
    for one in running:
        if one.demand is None:
            continue
        start = fingerprint(one.demand.parameters)
        for client in one.demand.members:
            kind = one.kind(client, one.demand.round)
            if kind is not None:
                tasks = wanted.setdefault((one.demand.round, client), {})
                tasks.setdefault((start, kind), []).append(one)
    for (round_number, client), tasks in wanted.items():
        kinds: dict[str, IntArray] = {}
        starts: list[Parameters] = []
        for (_, kind), owners in tasks.items():
            kinds.setdefault(kind, owners[0].simulation.cohort.data(round_number)[1])
            starts.append(_demanded(owners[0]))
        cohort = next(iter(tasks.values()))[0].simulation.cohort
        kind_of = [kind for _, kind in tasks]
        trained = _trained(cohort, client, starts, kind_of, kinds, round=round_number)
        for owners, model in zip(tasks.values(), trained, strict=True):
            for owner in owners:
                owner.simulation.cohort.give(client, _demanded(owner), model, round=round_number)


def _trained(
    cohort: Cohort,
    client: str,
    starts: Sequence[Parameters],
    kind_of: Sequence[str],
    kinds: Mapping[str, IntArray],
    *,
    round: int,
) -> Sequence[Parameters]:
    """One client trained from each start on the labels of its kind."""
    if isinstance(cohort.model, LogisticRegression):
        order = list(kinds)
        return train_runs(
            [RunTask(start=start, labels=order.index(kind)) for start, kind in zip(starts, kind_of, strict=True)],
            model=cohort.model,
            images=cohort.images,
            label_sets=list(kinds.values()),
            part=cohort.parts[client],
            rng=cohort.shuffler(client, round=round),
            training=cohort.training,
        )
    return [
        cohort.model.train_clients(
            start,
            images=cohort.images,
            labels=kinds[kind],
            parts=[cohort.parts[client]],
            rngs=[cohort.shuffler(client, round=round)],
            training=cohort.training,
        )[0]
        for start, kind in zip(starts, kind_of, strict=True)
    ]


def _demanded(one: _Running) -> Parameters:
    if one.demand is None:
        raise RuntimeError("a run without a demand was asked for it")
    return one.demand.parameters
