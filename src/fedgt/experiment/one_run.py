"""Run a specification from the first round to the last."""

from collections.abc import Callable, Generator
from pathlib import Path

from fedgt.engine import OnStage
from fedgt.errors import FedGTError, RunHaltedError
from fedgt.experiment.simulation import Simulation, simulate
from fedgt.experiment.spec import ExperimentSpec
from fedgt.federation.run_folder import RunFolder
from fedgt.federation.state import Coming
from fedgt.record.result import ClientRow, RoundRow, RunResult, TestRow
from fedgt.train import ImageData

OnRound = Callable[[int, int, RoundRow], None]
OnTest = Callable[[TestRow, tuple[ClientRow, ...]], None]


def run(
    spec: ExperimentSpec,
    *,
    data: ImageData | None = None,
    data_dir: Path | None = None,
    on_round: OnRound | None = None,
    on_stage: OnStage | None = None,
    on_test: OnTest | None = None,
    folder: RunFolder | None = None,
    resume: bool = False,
) -> RunResult:
    """Simulate the federation that the specification describes, through real secure aggregation.

    Args:
        spec: The run.
        data: The data set, when it is loaded already.
        data_dir: Where idx files are; the environment variable FEDGT_DATA if not given.
        on_round: Called with (finished rounds, all rounds, the row of the round).
        on_stage: Called with (round, purpose, stage) when a stage of the secure aggregation begins.
        on_test: Called with (the test round, all clients as they are judged now).
        folder: Where the run leaves its record.
        resume: Go on with the run that the folder holds.

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
        simulation = simulate(spec, data=data, data_dir=data_dir, on_stage=on_stage, folder=folder, resume=resume)
        return _run(run_steps(simulation, on_round=on_round, on_test=on_test))


def _run(steps: Generator[Coming, None, RunResult]) -> RunResult:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            finished: RunResult = end.value
            return finished


def run_steps(
    simulation: Simulation, *, on_round: OnRound | None = None, on_test: OnTest | None = None
) -> Generator[Coming, None, RunResult]:
    """A run that stops before the local training of every round.

    Yields:
        What will be trained next; whoever drives the run may do it beforehand (`Cohort.give`).

    Returns:
        The result.
    """
    run, history = simulation.run, simulation.run.history

    def told(tests: int) -> None:
        if on_round is not None:
            on_round(len(history.rounds), history.heading.rounds, history.rounds[-1])
        if on_test is not None and len(history.tests) > tests:
            on_test(history.tests[-1], history.clients)

    run.begin(simulation.initial)
    if history.rounds:
        told(len(history.tests))
    while (coming := run.coming()) is not None:
        simulation.begin_round(coming.round, coming.members)
        yield coming
        tests = len(history.tests)
        try:
            run.hold(coming)
        except RunHaltedError as halt:
            if halt.step is not None:
                told(tests)
            break
        except FedGTError as error:
            # What was opened until here must be on record, whatever happens.
            run.fail(f"round {coming.round} failed: {error}")
            break
        told(tests)
    return run.result()
