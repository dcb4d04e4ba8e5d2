"""A real run whose server is killed, wherever it is, goes on: with its verdicts, and an account of all that was opened."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt import FederationRun
from fedgt.federation import DecodeSettings
from fedgt.privacy import Ledger
from fedgt.record import RunResult
from slow_cases import tries
from small_run import ATTACKERS, NAMES, START, made

TWO_TESTS: dict[str, Any] = {"test_rounds": (1, 3), "rounds": 4}
"""Two tests, a training round after each; the same groups, so that a test that is repeated opens nothing new."""


class Crash(BaseException):
    """The process is gone."""


@contextmanager
def crash(at: int) -> Iterator[None]:
    """The n-th time that a file would be put into its place the process is gone: before that, or right after."""
    count = itertools.count()
    replace = Path.replace

    def killed(self: Path, target: Any) -> Any:
        number = next(count)
        if number == at // 2 and at % 2 == 0:
            raise Crash
        done = replace(self, target)
        if number == at // 2:
            raise Crash
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        yield


def run_in(folder: Path, opened: list[tuple[str, Mapping[str, float]]], **changes: Any) -> FederationRun:
    """A run whose every opened sum is written down, as its clients would: (global model, client -> weight)."""
    from fedgt.engine import fingerprint, secure_sums

    def watched(transport: Any, plan: Any, parameters: Any, **options: Any) -> Any:
        taken = secure_sums(transport, plan, parameters, **options)
        for one in taken.sums:
            if one.total is not None:
                row = {client: float(plan.weights[client]) for client in one.members}
                opened.append((fingerprint(parameters).hex(), row))
        return taken

    return made(folder=folder, resume=True, take_sums=watched, **(TWO_TESTS | changes))


def verdicts(result: RunResult) -> list[tuple[str, str, bool]]:
    return [(one.id, one.verdict, one.excluded) for one in result.clients]


def holds(ledger: Ledger, opened: Sequence[tuple[str, Mapping[str, float]]]) -> bool:
    """Whether an account has every row that was opened: adding them changes nothing."""
    more = Ledger(clients=NAMES, promised=4, colluders=1)
    for model, row in opened:
        more.admit([row], models=model, test=True)
    return not more.since(ledger)


@pytest.mark.slow
def test_a_server_that_is_killed_at_any_write_goes_on_with_its_verdicts_and_its_account(tmp_path: Path) -> None:
    whole = made(**TWO_TESTS)
    list(whole.rounds(START))
    lost: set[int] = set()
    step = round(20 / tries(20))
    for at in range(0, 10_000, step):
        folder, opened = tmp_path / str(at), []  # type: tuple[Path, list[tuple[str, Mapping[str, float]]]]
        with crash(at):
            try:
                list(run_in(folder, opened).rounds(START))
                break
            except Crash:
                pass
        run = run_in(folder, opened)
        list(run.rounds(START))
        result = RunResult.model_validate_json((folder / "result.json").read_text())
        assert result.status == "finished"
        assert verdicts(result) == verdicts(whole.result())
        assert len(result.rounds) == 4
        assert [row.purpose for row in result.rounds] == ["test", "training", "test", "training"]
        assert holds(Ledger.load(folder / "ledger.json"), opened)
        assert not list(folder.glob(".*"))
        lost |= set(run.state.lost)
    assert at > 50, "there were fewer places than files are written"
    # A part of the places hits only some of the rounds.
    assert lost == {1, 2, 3, 4} if step == 1 else lost


PROGRAM = """
import sys, time
sys.path[:0] = {paths!r}
import small_run, numpy as np
from pathlib import Path
slow = small_run.Site.train
def train(self, parameters, *, round):
    time.sleep(0.002)
    with open({folder!r} + "/asked.txt", "a") as file:
        print(self.name, round, file=file)
    return slow(self, parameters, round=round)
small_run.Site.train = train
run = small_run.made(folder=Path({folder!r}) / "run", resume=True, test_rounds=(1, 3), rounds=4)
for step in run.rounds(small_run.START):
    print(step.round, *step.excluded, flush=True)
"""


@pytest.mark.slow
def test_a_server_that_is_killed_at_random_moments_ends_every_run(tmp_path: Path) -> None:
    whole = made(**TWO_TESTS)
    list(whole.rounds(START))
    rng, killed = random.Random(20), 0
    trainings = TWO_TESTS["rounds"] * (len(NAMES) - len(ATTACKERS))
    for number in range(tries(20)):
        process = start(tmp_path, str(number))
        # How far it is, not how long it ran, says when: machines differ in speed, and from one minute to the next.
        wait_for(process, tmp_path / str(number) / "asked.txt", lines=rng.randrange(trainings))
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        killed += process.wait(timeout=60) == -signal.SIGKILL
        again = start(tmp_path, str(number))
        assert again.wait(timeout=120) == 0
        folder = tmp_path / str(number) / "run"
        result = RunResult.model_validate_json((folder / "result.json").read_text())
        assert result.status == "finished"
        assert verdicts(result) == verdicts(whole.result())
        assert {one.id for one in result.clients if one.excluded} == ATTACKERS
        asked = (tmp_path / str(number) / "asked.txt").read_text().splitlines()
        assert len(asked) == len(set(asked)), "a client trained twice for one round"
        ledger = Ledger.load(folder / "ledger.json")
        rows = [
            (row.model, dict(zip(row.members, row.weights, strict=True)))
            for row in result.aggregates
            if row.status == "open"
        ]
        assert holds(ledger, rows)
    assert killed >= tries(20) // 2, "most processes had ended before they were killed"


def wait_for(process: subprocess.Popen[bytes], file: Path, *, lines: int) -> None:
    """Until a file has that many lines, or the process that writes it has ended."""
    while process.poll() is None and len(file.read_bytes().splitlines() if file.exists() else ()) < lines:
        time.sleep(0.001)


def start(folder: Path, name: str) -> subprocess.Popen[bytes]:
    (folder / name).mkdir(exist_ok=True)
    paths = [str(Path(__file__).parents[1] / "support")]
    program = PROGRAM.format(paths=paths, folder=str(folder / name))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL, env=environment)


@pytest.mark.slow
def test_a_further_test_goes_on_with_the_evidence_of_the_first(tmp_path: Path) -> None:
    """Killed in the second test, whose rows are new: the third has rows of its own, and decides with the first."""
    undecided = {"decode": DecodeSettings(undecided=1e-300), "test_rounds": (), "rounds": 5}
    stages = itertools.count()

    def told(round: int, _: str, stage: str) -> None:
        if (round, stage) == (2, "opened") and next(stages) == 0:
            raise Crash

    opened: list[tuple[str, Mapping[str, float]]] = []
    with pytest.raises(Crash):
        list(run_in(tmp_path / "run", opened, on_stage=told, **undecided).rounds(START))
    run = run_in(tmp_path / "run", opened, **undecided)
    steps = list(run.rounds(START))
    assert steps[0].screening is not None
    assert run.state.lost == (2,)
    assert len(run.history.tests) >= 2
    assert set(steps[-1].excluded) == ATTACKERS
    assert holds(Ledger.load(tmp_path / "run" / "ledger.json"), opened)
    np.testing.assert_array_equal(run.state.parameters["weight"].shape, (4, 6))
