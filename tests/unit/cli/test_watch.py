"""What `fedgt watch` reads and shows: every state of a run, and names that want to control the terminal."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedgt.errors import SpecError
from fedgt.record.claim import Claim
from fedgt.record.progress import ProgressFile, read_progress
from fedgt.record.result import ClientRow, Heading, RoundRow, TestRow

# typer still asks click for names that click is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:'click.utils:DeprecationWarning")

RUN = Heading(method="fedgt", seed=0, spec_hash="0" * 64, rounds=10)


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def row(number: int) -> RoundRow:
    return RoundRow(
        round=number, top1_accuracy=0.9375, balanced_accuracy=0.9, attack_accuracy=0.0625, secure_sums=1, bytes_up=1,
        bytes_down=1, participants=15, purpose="training",
    )  # fmt: skip


def client(name: str) -> ClientRow:
    return ClientRow(
        id=name,
        excluded=True,
        verdict="exclude",
        reason="",
        posterior=0.9999,
        log_odds=-9.0,
        groups=(0,),
        truth="benign",
    )


def a_test(design: str = "bch-15x8") -> TestRow:
    return TestRow(
        round=1, outcomes="1", truth="1", estimated_malicious=1, strategy="bayes", status="decided", reason="",
        screen_status="tested", screen_reason="", utilities=(), projection=(), clusters=(), design=design, groups=(("a",),),
    )  # fmt: skip


@pytest.fixture
def at_work(tmp_path: Path) -> Iterator[tuple[ProgressFile, Clock]]:
    """A run that this process works on."""
    clock = Clock()
    with Claim(tmp_path):
        yield ProgressFile(tmp_path, RUN, clock=clock), clock


def test_a_run_that_has_just_begun(tmp_path: Path, at_work: Any) -> None:
    found = read_progress(tmp_path)
    assert (found.state, found.finished, found.rounds, found.seconds_left) == ("running", 0, 10, None)
    assert found.spec_hash == RUN.spec_hash


def test_the_time_left_is_that_of_the_rounds_of_this_session(
    tmp_path: Path, at_work: tuple[ProgressFile, Clock]
) -> None:
    note, clock = at_work
    clock.now += 0.5
    note.round(row(1), finished=1, on_record=True)
    note.round(row(2), finished=2, on_record=True)
    clock.now += 6
    note.round(row(3), finished=3, on_record=False)
    clock.now += 10
    note.round(row(4), finished=4, on_record=False)
    found = read_progress(tmp_path)
    assert (found.finished, found.resumed) == (4, 2)
    assert found.seconds_left == pytest.approx(6 * 16 / 2)


def test_the_file_is_written_five_times_a_second_at_most(tmp_path: Path, at_work: tuple[ProgressFile, Clock]) -> None:
    note, clock = at_work
    note.stage(1, "training", "keys")
    assert read_progress(tmp_path).stage == ""
    clock.now += 0.25
    note.stage(1, "training", "shares")
    assert read_progress(tmp_path).stage == "shares"
    note.tested(a_test(), (client("a"),))  # what matters is written at once
    assert len(read_progress(tmp_path).tests) == 1


def test_a_run_whose_process_is_gone_is_interrupted(tmp_path: Path) -> None:
    with Claim(tmp_path):
        ProgressFile(tmp_path, RUN)
        assert read_progress(tmp_path).state == "running"
    assert read_progress(tmp_path).state == "interrupted"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "Invalid JSON"),
        ("[]", "progress.json: not the file of a run"),
        ('{"state": "asleep"}', "state"),
        ('{"stat": "running"}', "state: Field required"),
    ],
)
def test_a_file_that_is_none_of_a_run_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "progress.json").write_text(content)
    with pytest.raises(SpecError) as caught:
        read_progress(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_run_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="neither a run that goes on nor a result; give a run folder"):
        read_progress(tmp_path)


HOSTILE = "[bold red]x[/]\x1b[2J\x07\u202e\n\x9b31m"


def test_names_cannot_control_the_terminal(
    tmp_path: Path,
    at_work: tuple[ProgressFile, Clock],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fedgt.cli.watch_command import watch

    monkeypatch.setenv("COLUMNS", "200")
    note, clock = at_work
    note.tested(a_test(design=HOSTILE), (client(HOSTILE),))
    clock.now += 1
    note.stage(1, HOSTILE, HOSTILE)
    watch(tmp_path)
    shown = capsys.readouterr().out
    assert "[bold red]x[/]\ufffd[2J" in shown
    assert not set(shown) & set("\x1b\x07\u202e\x9b")
    watch(tmp_path, as_json=True)
    text = capsys.readouterr().out
    assert not set(text) & set("\x1b\x07\u202e\x9b")
    assert json.loads(text)["clients"][0]["id"] == HOSTILE


def test_a_terminal_follows_the_run_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The states that the file goes through, as if a run wrote them between two looks."""
    from typer import Exit

    from fedgt.cli import watch_command

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    with Claim(tmp_path):
        note = ProgressFile(tmp_path, RUN, clock=Clock())
        steps = [
            lambda: note.tested(a_test(), (client("client-07"),)),
            lambda: None,
            note.interrupted,
        ]
        monkeypatch.setattr(watch_command.time, "sleep", lambda _: steps.pop(0)())  # type: ignore[attr-defined]
        with pytest.raises(Exit) as left:
            watch_command.watch(tmp_path)
    assert left.value.exit_code == 1
    shown = capsys.readouterr().out
    assert steps == []
    assert shown.count("client-07") == 1
    assert "fedgt: interrupted, 0 of 10 rounds" in shown
    assert "--resume" in shown
