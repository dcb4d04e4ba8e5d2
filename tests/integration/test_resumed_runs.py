"""A run that is interrupted, wherever and however often, ends with the result of one that never was."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt.errors import SpecError
from fedgt.experiment import ExperimentSpec, make_spec, run, run_into
from fedgt.record import RunResult
from fedgt.record.claim import Claim
from slow_cases import slow

BASE: dict[str, Any] = {
    "seed": 1,
    "privacy": 2,
    "federation": {"clients": 7, "rounds": 3},
    "training": {"learning_rate": 0.05, "batch_size": 8},
    "attack": {"malicious": 2, "source": 9, "target": 3},
    "design": {"matrix": [[1, 1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0, 0], [1, 0, 0, 0, 1, 1, 0], [0, 1, 0, 1, 0, 0, 1]]},
    "screen": {"kind": "clusters", "utility": "top1", "round": 2},
    "decode": {"kappa": 0.9},
}
GRADED: dict[str, Any] = {
    "seed": 6,
    "federation.clients": 10,
    "design": {"name": "graded-10x5"},
    "screen": {"kind": "graded"},
    "decode.undecided": 0.001,
    "training.local_epochs": 3,
}
FAULTS = [
    {"client": 0, "round": 1},
    {"client": 1, "round": 1, "stage": "masked"},
    {"client": 2, "round": 2, "stage": "unmask"},
    {"client": 3, "round": 2, "stage": "shares"},
]
RUNS: dict[str, dict[str, Any]] = {
    "a test in round 2": {},
    "clients that leave": {"faults": FAULTS, "secure_aggregation.colluders": 0},
    "every group lost": {"faults": [{"client": j, "round": 2, "stage": "masked"} for j in range(7)]},
    "a further sum of the test's models": {"decode.after_test": "largest-sum", "decode.strategy": "count"},
    "a sum that the ledger refuses": {"privacy": 3, "decode.after_test": "same-round", "decode.strategy": "count"},
    "RFA": {"method": "rfa", "federation.rounds": 2},
    "graded evidence in three test rounds": GRADED,
}


def spec(changes: dict[str, Any]) -> ExperimentSpec:
    return make_spec(BASE, changes)


@cache
def plain() -> str:
    """What the run of the specification as it is ends with."""
    return comparable(run(spec({})))


def comparable(result: RunResult) -> str:
    return json.dumps(result.model_dump(mode="json", exclude={"cpu_seconds"}), sort_keys=True)


class Interrupt:
    """Interrupts at the n-th event: the beginning of a stage, open sums, a finished round, a decided test."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, *_: object) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def interrupted(chosen: ExperimentSpec, folder: Path, number: int, **how: Any) -> RunResult | None:
    """None if the run was interrupted."""
    stop = Interrupt(number)
    try:
        return run_into(chosen, folder, on_round=stop, on_stage=stop, on_test=stop, **how)
    except KeyboardInterrupt:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("changes", RUNS.values(), ids=RUNS)
def test_a_run_interrupted_at_any_event_ends_as_if_it_never_was(tmp_path: Path, changes: dict[str, Any]) -> None:
    chosen = spec(changes)
    whole = comparable(run(chosen))
    last, step = 1, 3 if changes else 1  # every event of the first run, every third one of the others
    for last in range(1, 200, step):
        folder = tmp_path / str(last)
        if interrupted(chosen, folder, last) is not None:
            break
        if (folder / "result.json").exists():  # what was interrupted was told of the last round, after its end
            assert comparable(RunResult.model_validate_json((folder / "result.json").read_text())) == whole
            continue
        assert comparable(run_into(chosen, folder, resume=True)) == whole
        assert sorted(one.name for one in folder.iterdir() if one.name != "evidence.npz") == [
            "log",
            *([] if chosen.method == "rfa" else ["plan.json"]),
            "result.json",
            "rounds.csv",
            "spec.toml",
        ]
    assert last > 10, "the run was hardly ever interrupted"


@pytest.mark.parametrize(
    ("name", "events"), [("clients that leave", 6), ("RFA", 16), *slow(("graded evidence in three test rounds", 6))]
)
def test_a_run_interrupted_again_and_again_gets_on_and_ends_the_same(tmp_path: Path, name: str, events: int) -> None:
    chosen = spec(RUNS[name])
    whole, result, sessions = comparable(run(chosen)), None, 0
    while result is None:
        sessions += 1
        assert sessions < 50
        # Five stages of one batch of sums, three batches of RFA: the round is on record before the next event interrupts.
        stop = Interrupt(events)
        try:
            result = run_into(chosen, tmp_path / "run", on_stage=stop, resume=True)
        except KeyboardInterrupt:
            continue
    assert sessions >= 2
    assert comparable(result) == whole


@pytest.mark.slow
def test_the_interrupted_runs_had_what_their_names_say() -> None:
    results = {name: run(spec(changes)) for name, changes in RUNS.items()}
    assert len(results["graded evidence in three test rounds"].tests) == 3
    assert results["every group lost"].status == "stopped"
    assert "largest-sum" in {one.purpose for one in results["a further sum of the test's models"].aggregates}
    assert "refused" in {one.status for one in results["a sum that the ledger refuses"].aggregates}
    assert sum(len(one.dropped) for one in results["clients that leave"].aggregates) >= 3
    assert any(one.excluded for one in results["graded evidence in three test rounds"].clients)


def test_the_time_of_earlier_sessions_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fedgt.federation.history as module

    clock = iter(range(0, 10**6, 1000))
    monkeypatch.setattr(module.time, "process_time", lambda: float(next(clock)))  # type: ignore[attr-defined]
    assert interrupted(spec({}), tmp_path / "run", 8) is None
    monkeypatch.undo()
    assert run_into(spec({}), tmp_path / "run", resume=True).cpu_seconds > 999


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def with_other_numbers(path: Path) -> None:
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["a0"] = arrays["a0"] + 1.0
    np.savez(path, allow_pickle=False, **arrays)


def pickled(path: Path) -> None:
    np.savez(path, meta=np.array([{"a": 1}], dtype=object), sha256=np.zeros(32, dtype=np.uint8))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (damaged, "damaged"),
        (with_other_numbers, "its checksum is wrong"),
        (cut_off, "damaged"),
        (lambda path: path.write_bytes(b""), "damaged"),
        (pickled, "damaged"),
        (lambda path: np.savez(path, meta=np.zeros(3)), "damaged"),
    ],
    ids=["a flipped bit", "other numbers", "cut off", "empty", "pickled", "another archive"],
)
def test_a_state_that_cannot_be_believed_is_not_gone_on_with(
    tmp_path: Path, spoil: Callable[[Path], None], said: str
) -> None:
    folder = tmp_path / "run"
    assert interrupted(spec({}), folder, 14) is None
    spoil(folder / "state.npz")
    with pytest.raises(SpecError, match=f"cannot be gone on with.*{said}"):
        run_into(spec({}), folder, resume=True)
    assert comparable(run_into(spec({}), folder, overwrite=True)) == plain()


def test_another_specification_is_refused_and_the_keys_are_named(tmp_path: Path) -> None:
    assert interrupted(spec({}), tmp_path / "run", 8) is None
    before = (tmp_path / "run" / "spec.toml").read_text()
    with pytest.raises(
        SpecError, match=r"another run: seed = 1 there, 2 here; attack\.malicious = 2 there, 3 here\. Go on"
    ):
        run_into(spec({"seed": 2, "attack.malicious": 3}), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "spec.toml").read_text() == before
    # How the work is done may change.
    again = run_into(spec({"secure_aggregation.workers": 2}), tmp_path / "run", resume=True)
    assert comparable(again) == plain()


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fedgt.federation.saved_run as module

    monkeypatch.setattr(module, "__version__", "0.0.9")
    assert interrupted(spec({}), tmp_path / "run", 8) is None
    monkeypatch.undo()
    with pytest.raises(SpecError, match=r"written by fedgt 0\.0\.9, this is"):
        run_into(spec({}), tmp_path / "run", resume=True)


def test_resuming_begins_where_nothing_was_begun_and_repeats_nothing_that_is_finished(tmp_path: Path) -> None:
    events: list[Any] = []
    first = run_into(spec({}), tmp_path / "run", resume=True, on_stage=lambda *event: events.append(event))
    assert len(events) > 10
    events.clear()
    again = run_into(spec({}), tmp_path / "run", resume=True, on_stage=lambda *event: events.append(event))
    assert (again, events) == (first, [])


def test_an_interrupted_run_is_not_begun_anew_by_accident(tmp_path: Path) -> None:
    assert interrupted(spec({}), tmp_path / "run", 8) is None
    with pytest.raises(SpecError, match=r"go on with the run that was begun there \(--resume\), or begin anew"):
        run_into(spec({}), tmp_path / "run")
    (tmp_path / "run" / "mine.txt").write_text("kept")
    anew = run_into(spec({"seed": 2}), tmp_path / "run", overwrite=True)
    assert anew.seed == 2
    assert (tmp_path / "run" / "mine.txt").read_text() == "kept"


def test_two_processes_do_not_work_in_one_folder(tmp_path: Path) -> None:
    assert interrupted(spec({}), tmp_path / "run", 8) is None
    with Claim(tmp_path / "run"), pytest.raises(SpecError, match="another process is at work"):
        run_into(spec({}), tmp_path / "run", resume=True)


def test_a_file_system_without_locks_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fedgt.record.claim as module

    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    assert interrupted(spec({}), tmp_path / "run", 8) is None
    assert module.claimed(tmp_path / "run") is None
    assert run_into(spec({}), tmp_path / "run", resume=True).status == "finished"


def test_a_run_that_could_not_begin_leaves_the_folder_free(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="r = 1 at most"):
        run_into(spec({"design": {"name": "identity-7"}}), tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from fedgt.cli import main; sys.argv[0] = 'fedgt'; main()"
)
"""`fedgt` with Ctrl-C at work: a process that was started in the background has it ignored, and so have its children."""

LONG: dict[str, Any] = {"federation.rounds": 20}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_a_process_that_is_interrupted_or_killed_goes_on(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    (tmp_path / "s.toml").write_text(spec(LONG).to_toml())
    fedgt = [sys.executable, "-c", START, "run"]
    process = subprocess.Popen([*fedgt, "s.toml", "--out", "a run"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    table = tmp_path / "a run" / "rounds.csv"
    deadline = time.monotonic() + 60
    while (
        not (table.exists() and len(table.read_text().splitlines()) > 3)
        and process.poll() is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    process.send_signal(sent)
    _, told = process.communicate(timeout=60)
    assert process.returncode == code
    assert not (tmp_path / "a run" / "result.json").exists()
    again = ["a run/spec.toml", "--out", "a run", "--resume"]
    if sent is signal.SIGINT:
        assert "interrupted" in told
        assert "fedgt run 'a run/spec.toml' --out 'a run' --resume" in told
        assert "Traceback" not in told
    done = subprocess.run([*fedgt, *again, "--json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert comparable(RunResult.model_validate_json(done.stdout)) == comparable(run(spec(LONG)))
