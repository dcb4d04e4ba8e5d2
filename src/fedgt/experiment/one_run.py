"""Run a specification from the first round to the last."""

import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fedgt._version import __version__
from fedgt.decode import UNDECIDABLE, IndependentPrior
from fedgt.engine import TakesSums
from fedgt.errors import FedGTError
from fedgt.experiment.result import (
    AggregateRow,
    ClientRow,
    PrivacyRow,
    RoundRow,
    RunResult,
    RunStatus,
    TestRow,
    json_number,
)
from fedgt.experiment.screening import ScreeningPlan, screening_row
from fedgt.experiment.simulation import Simulation, simulate
from fedgt.experiment.spec import ExperimentSpec
from fedgt.federation import DecodeSettings, ScreenSettings, rfa_round
from fedgt.federation.rfa import GENERAL_POSITION
from fedgt.federation.round import ScreeningRound, screening_round, training_round
from fedgt.federation.sums import AggregateRecord, RoundResult
from fedgt.federation.verdicts import Verdict
from fedgt.screen import Utility, balanced_accuracy, top1_accuracy
from fedgt.train import ImageData, attack_accuracy
from fedgt.types import ErrorRates, Parameters

_log = logging.getLogger(__name__)

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
    """
    from threadpoolctl import threadpool_limits

    # The products are small: more BLAS threads only spin, and one thread is the same on every machine.
    with threadpool_limits(1, user_api="blas"):
        simulation = simulate(spec, data=data, data_dir=data_dir)
        if wrap_sums is not None:
            federation = simulation.federation
            federation = replace(federation, take_sums=wrap_sums(federation.take_sums))
            simulation = replace(simulation, federation=federation)
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
    parameters: Parameters = simulation.initial
    rounds: list[RoundRow] = []
    records: list[AggregateRecord] = []
    warnings: list[str] = []
    excluded: set[str] = set(simulation.malicious) if spec.method == "oracle" else set()
    tests: list[TestRow] = []
    plan = ScreeningPlan(spec, simulation)
    verdicts: dict[str, Verdict] = {}
    stopped, status = "", _FINISHED
    for number in range(1, spec.federation.rounds + 1):
        members = [client for client in simulation.present(number) if client not in excluded]
        simulation.begin_round(number, members)
        yield Demand(round=number, members=tuple(members), parameters=parameters)
        try:
            purpose, outcome, screening = _one_round(spec, simulation, plan, parameters, number, members)
        except FedGTError as error:
            # What was opened until here must be on record, whatever happens.
            stopped, status = f"round {number} failed: {error}", _FAILED
            break
        parameters = outcome.parameters
        records += outcome.records
        warnings += [warning for warning in outcome.warnings if warning not in warnings]
        rounds.append(_measured(spec, simulation, parameters, number, purpose, outcome, len(members)))
        if on_round is not None:
            on_round(number, spec.federation.rounds, rounds[-1])
        if screening is not None:
            screening = plan.after(screening, number)
            # Who was left out by an earlier test is not in this one: the verdict stays.
            news = [verdict for verdict in screening.exclusion.verdicts if verdict.client not in excluded]
            verdicts |= {verdict.client: verdict for verdict in news}
            tests.append(screening_row(simulation, screening, number))
            excluded |= set(screening.exclusion.excluded)
            kept = len(simulation.clients) - len(excluded)
            warnings += _told(screening, news)
            _log.info("round %d: %s", number, screening.exclusion.reason)
            if on_test is not None:
                on_test(tests[-1], _client_rows(simulation, verdicts))
            if screening.exclusion.halt:
                stopped, status = f"round {number}: {screening.exclusion.reason}", _STOPPED
                break
            if kept < spec.privacy:
                stopped, status = f"round {number}: {_too_few(kept, spec)}", _STOPPED
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


def _one_round(
    spec: ExperimentSpec,
    simulation: Simulation,
    plan: ScreeningPlan,
    parameters: Parameters,
    number: int,
    members: list[str],
) -> tuple[str, RoundResult, ScreeningRound | None]:
    if spec.method == "rfa":
        outcome = rfa_round(
            simulation.federation,
            parameters,
            round=number,
            members=members,
            iterations=spec.rfa.iterations,
            smoothing=spec.rfa.smoothing,
        )
        return "weiszfeld", outcome, None
    if spec.method == "fedgt" and number == plan.next_test:
        screening = screening_round(
            simulation.federation,
            parameters,
            round=number,
            grouping=plan.grouping,
            present=members,
            validation=simulation.validation,
            screen=_screen_settings(spec),
            decoding=_decode_settings(spec),
            prior=_prior(spec),
            earlier=plan.evidence,
            heard=plan.heard,
            last=plan.last,
        )
        return "test", screening.result, screening
    return "training", training_round(simulation.federation, parameters, round=number, members=members), None


def _screen_settings(spec: ExperimentSpec) -> ScreenSettings:
    return ScreenSettings(
        kind=spec.screen.kind,
        features=spec.screen.features,
        utility=None if spec.screen.utility == "auto" else Utility.parse(spec.screen.utility),
        source_label=spec.screen.source_label,
        layer=spec.screen.layer,
        silhouette_threshold=spec.screen.silhouette_threshold,
        restarts=spec.screen.restarts,
        seed=spec.seed,
    )


def _decode_settings(spec: ExperimentSpec) -> DecodeSettings:
    return DecodeSettings(
        strategy="bayes" if spec.decode.strategy == "auto" else spec.decode.strategy,
        nobody=spec.decode.nobody,
        undecided=spec.decode.undecided,
        on_undecided=spec.decode.on_undecided,
        estimator=spec.decode.estimator,
        method=spec.decode.method,
        rates=ErrorRates(false_alarm=spec.decode.false_alarm, misdetection=spec.decode.misdetection),
        beta=spec.decode.beta,
        kappa=spec.decode.kappa,
        largest=spec.decode.max_malicious,
        on_undecidable=spec.decode.on_undecidable,
        on_untested=spec.decode.on_untested,
        after_test=spec.decode.after_test,
        below_promise=spec.decode.allow_below_promise,
    )


def _prior(spec: ExperimentSpec) -> IndependentPrior | None:
    if spec.decode.prevalence is None:
        return None
    return IndependentPrior.uniform(spec.federation.clients, spec.decode.prevalence)


def _measured(
    spec: ExperimentSpec,
    simulation: Simulation,
    parameters: Parameters,
    number: int,
    purpose: str,
    outcome: RoundResult,
    participants: int,
) -> RoundRow:
    predictions = simulation.model.predict(parameters, simulation.test_images)
    labels = simulation.test_labels
    targeted = spec.attack.kind == "label-flip"
    return RoundRow(
        round=number,
        top1_accuracy=top1_accuracy(predictions, labels),
        balanced_accuracy=balanced_accuracy(predictions, labels),
        attack_accuracy=attack_accuracy(predictions, labels, source=spec.attack.source, target=spec.attack.target)
        if targeted
        else None,
        secure_sums=outcome.secure_sums,
        bytes_up=outcome.bytes_up,
        bytes_down=outcome.bytes_down,
        participants=participants,
        purpose=purpose,
    )


def _told(screening: ScreeningRound, verdicts: Sequence[Verdict]) -> list[str]:
    """What the user must not overlook about the test round and its new verdicts."""
    warnings = []
    if screening.screen.status != "tested":
        warnings.append(f"screen: {screening.screen.reason}")
    if screening.decoding.status in (*UNDECIDABLE, "unexplained", "harmless", "unconfirmed", "no-evidence"):
        warnings.append(f"decision: {screening.exclusion.reason}")
    for excluded, what in ((False, "kept without evidence"), (True, "left out untested")):
        untested = [v.client for v in verdicts if v.verdict == "untested" and v.excluded is excluded]
        if untested:
            warnings.append(f"{what}: {', '.join(untested)}")
    return warnings


def _client_rows(simulation: Simulation, verdicts: Mapping[str, Verdict]) -> tuple[ClientRow, ...]:
    return tuple(_client_row(simulation, client, verdicts.get(client)) for client in simulation.clients)


def _client_row(simulation: Simulation, client: str, verdict: Verdict | None) -> ClientRow:
    truth: Literal["malicious", "benign"] = "malicious" if client in simulation.malicious else "benign"
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
    )


def _too_few(kept: int, spec: ExperimentSpec) -> str:
    return f"only {kept} clients are kept, no sum over them may be opened at the promised r = {spec.privacy}"


def _privacy_row(spec: ExperimentSpec, simulation: Simulation) -> PrivacyRow:
    account = simulation.federation.ledger.account()
    return PrivacyRow(
        promised=account.promised,
        strict=account.strict,
        cautious=account.cautious,
        with_training=account.with_training,
        overridden=account.overridden,
        assumption=GENERAL_POSITION if spec.method == "rfa" else "",
    )
