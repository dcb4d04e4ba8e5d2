"""Run a specification from the first round to the last."""

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedgt._version import __version__
from fedgt.engine import TakesSums
from fedgt.errors import FedGTError, RunHaltedError
from fedgt.experiment.attack_success import attack_success
from fedgt.experiment.result import (
    AggregateRow,
    ClientRow,
    PrivacyRow,
    RoundRow,
    RunResult,
    RunStatus,
    TestRow,
    Truth,
    json_number,
)
from fedgt.experiment.simulation import Simulation, simulate
from fedgt.experiment.spec import ExperimentSpec
from fedgt.experiment.test_row import screening_row
from fedgt.federation import AggregateRecord, Verdict
from fedgt.federation.rfa import GENERAL_POSITION
from fedgt.federation.run import Step
from fedgt.screen import balanced_accuracy, top1_accuracy
from fedgt.train import ImageData
from fedgt.types import Parameters

OnRound = Callable[[int, int, RoundRow], None]
OnTest = Callable[[TestRow, tuple[ClientRow, ...]], None]

_FINISHED: RunStatus = "finished"
_STOPPED: RunStatus = "stopped"
_FAILED: RunStatus = "failed"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """Local training that a run is about to ask for; whoever drives the run may do it beforehand (`Cohort.give`).

    Attributes:
        round: Its number.
        members: The clients.
        parameters: Where they start.
    """

    round: int
    members: tuple[str, ...]
    parameters: Parameters


def run(
    spec: ExperimentSpec,
    *,
    data: ImageData | None = None,
    data_dir: Path | None = None,
    on_round: OnRound | None = None,
    on_test: OnTest | None = None,
    wrap_sums: Callable[[TakesSums], TakesSums] | None = None,
) -> RunResult:
    """Simulate the federation that the specification describes, through real secure aggregation.

    Args:
        spec: The run.
        data: The data set, when it is loaded already.
        data_dir: Where idx files are; the environment variable FEDGT_DATA if not given.
        on_round: Called with (finished rounds, all rounds, the row of the round).
        on_test: Called with (the test round, all clients as they are judged now).
        wrap_sums: Makes how sums are taken from how they would be taken, such as a record of them.

    Returns:
        The result. With the same specification and version it is the same, but for `cpu_seconds`.

    Raises:
        SpecError, DesignError, CalibrationError: If the specification cannot be run.

    Examples:
        >>> from fedgt.experiment import make_spec, run
        >>> result = run(make_spec({"privacy": 4, "federation": {"rounds": 1}, "training": {"learning_rate": 0.05}}))
        >>> result.status, len(result.rounds)
        ('finished', 1)
    """
    from threadpoolctl import threadpool_limits

    # The products are small: more BLAS threads only spin, and one thread is the same on every machine.
    with threadpool_limits(1, user_api="blas"):
        simulation = simulate(spec, data=data, data_dir=data_dir, wrap_sums=wrap_sums)
        return _run(run_steps(spec, simulation, on_round=on_round, on_test=on_test))


def _run(steps: Generator[Demand, None, RunResult]) -> RunResult:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            finished: RunResult = end.value
            return finished


def run_steps(
    spec: ExperimentSpec,
    simulation: Simulation,
    *,
    on_round: OnRound | None = None,
    on_test: OnTest | None = None,
) -> Generator[Demand, None, RunResult]:
    """A run that stops before the local training of every round.

    Args:
        spec: The run.
        simulation: What `simulate` made of it.
        on_round: See `run`.
        on_test: See `run`.

    Yields:
        What will be trained next.

    Returns:
        The result.
    """
    began = time.process_time()
    rounds: list[RoundRow] = []
    records: list[AggregateRecord] = []
    warnings: list[str] = []
    tests: list[TestRow] = []
    verdicts: dict[str, Verdict] = {}
    stopped, status = "", _FINISHED

    def record(step: Step) -> None:
        records.extend(step.result.records)
        warnings.extend(warning for warning in step.result.warnings if warning not in warnings)
        rounds.append(_measured(spec, simulation, step))
        if on_round is not None:
            on_round(step.round, spec.federation.rounds, rounds[-1])
        if step.screening is not None:
            verdicts.update({verdict.client: verdict for verdict in step.verdicts})
            tests.append(screening_row(simulation, step.screening, step.round))
            warnings.extend(step.warnings)
            if on_test is not None:
                on_test(tests[-1], _client_rows(simulation, verdicts))

    run = simulation.run
    run.begin(simulation.initial)
    while (coming := run.coming()) is not None:
        simulation.begin_round(coming.round, coming.members)
        yield Demand(round=coming.round, members=coming.members, parameters=coming.parameters)
        try:
            record(run.hold(coming))
        except RunHaltedError as halt:
            if isinstance(halt.step, Step):
                record(halt.step)
            stopped, status = f"round {coming.round}: {halt}", _STOPPED
            break
        except FedGTError as error:
            # What was opened until here must be on record, whatever happens.
            stopped, status = f"round {coming.round} failed: {error}", _FAILED
            break
    return RunResult(
        version=__version__,
        spec_hash=spec.digest,
        seed=spec.seed,
        method=spec.method,
        status=status,
        reason=stopped,
        clients=_client_rows(simulation, verdicts),
        rounds=tuple(rounds),
        aggregates=tuple(_aggregate_row(record) for record in records),
        privacy=_privacy_row(spec, simulation),
        test=tests[-1] if tests else None,
        tests=tuple(tests),
        warnings=tuple(warnings),
        cpu_seconds=time.process_time() - began,
    )


def _measured(spec: ExperimentSpec, simulation: Simulation, step: Step) -> RoundRow:
    predictions = simulation.model.predict(step.parameters, simulation.test_images)
    labels = simulation.test_labels
    return RoundRow(
        round=step.round,
        top1_accuracy=top1_accuracy(predictions, labels),
        balanced_accuracy=balanced_accuracy(predictions, labels),
        attack_accuracy=attack_success(spec, simulation, step.parameters, predictions),
        secure_sums=step.result.secure_sums,
        bytes_up=step.result.bytes_up,
        bytes_down=step.result.bytes_down,
        participants=len(step.members),
        purpose=step.purpose,
    )


def _client_rows(simulation: Simulation, verdicts: Mapping[str, Verdict]) -> tuple[ClientRow, ...]:
    return tuple(_client_row(simulation, client, verdicts.get(client)) for client in simulation.clients)


def _client_row(simulation: Simulation, client: str, verdict: Verdict | None) -> ClientRow:
    truth: Truth = (
        "malicious" if client in simulation.malicious else "faulty" if client in simulation.faulty else "benign"
    )
    if verdict is None:
        return ClientRow(
            id=client,
            excluded=False,
            verdict="untested",
            reason="no group test was made",
            posterior=None,
            log_odds=None,
            groups=(),
            truth=truth,
        )
    return ClientRow(
        id=client,
        excluded=verdict.excluded,
        verdict=verdict.verdict,
        reason=verdict.reason,
        posterior=json_number(verdict.posterior),
        log_odds=json_number(verdict.log_odds),
        groups=verdict.groups,
        truth=truth,
    )


def _aggregate_row(record: AggregateRecord) -> AggregateRow:
    return AggregateRow(
        round=record.round,
        purpose=record.purpose,
        members=record.members,
        weights=record.weights,
        status=record.status,
        reason=record.reason,
        dropped=dict(record.dropped),
        model=record.model,
    )


def _privacy_row(spec: ExperimentSpec, simulation: Simulation) -> PrivacyRow:
    account = simulation.federation.ledger.account()
    colluders = simulation.federation.sums.colluders
    return PrivacyRow(
        promised=account.promised,
        strict=account.strict,
        cautious=account.cautious,
        with_training=account.with_training,
        overridden=account.overridden,
        colluders=colluders,
        honest=None if account.strict is None else max(account.strict - colluders, 0),
        shares=dict(account.shares),
        share_mean=account.share_mean,
        share_helped=account.share_helped,
        share_cautious_largest=None if account.share_cautious is None else account.share_cautious.largest,
        share_cautious_mean=None if account.share_cautious is None else account.share_cautious.mean,
        largest_share=account.largest_share,
        assumption=GENERAL_POSITION if spec.method == "rfa" else "",
    )
