"""The progress display: what a terminal shows, and silence everywhere else."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

# typer still asks click for names that click is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:'click.utils:DeprecationWarning")

ROW = SimpleNamespace(purpose="training", top1_accuracy=0.9375, attack_accuracy=0.0625)


def display(what: str) -> Any:
    from fedgt.cli.round_bar import round_bar

    return round_bar(what)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes stderr for a terminal
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_it_is_silent_where_stderr_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with display("fedgt") as told:
        told(1, 2)
        told(2, 2, ROW)
        told.stage(2, "training", "keys")
        told.tested(SimpleNamespace(), ())
        logging.getLogger("fedgt.experiment").info("2 of 15 clients flagged")
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("terminal")
def test_a_terminal_shows_rounds_and_the_current_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    with display("fedgt") as told:
        told(1, 2)
        told(2, 2, ROW)
    out, err = capsys.readouterr()
    assert out == ""
    assert "2/2" in err
    assert "training, top-1 accuracy 93.75 %, attack accuracy 6.25 %" in err


@pytest.mark.usefixtures("terminal")
def test_a_terminal_shows_the_stage_of_the_secure_aggregation(capsys: pytest.CaptureFixture[str]) -> None:
    with display("fedgt") as told:
        told(1, 2)
        told.stage(2, "training\x1b[2J", "unmask")
    assert "training\ufffd[2J: opening the sums" in capsys.readouterr().err


@pytest.mark.usefixtures("terminal")
def test_a_terminal_shows_the_verdicts_of_a_test_as_soon_as_they_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    from fedgt.experiment import make_spec, run

    found = run(make_spec({"privacy": 4, "federation": {"rounds": 1}}))
    assert found.test is not None
    with display("fedgt") as told:
        told.tested(found.test, found.clients)
        shown = capsys.readouterr().err
    assert "group test in round 1" in shown
    assert all(client.id in shown for client in found.clients)


@pytest.mark.usefixtures("terminal")
def test_what_the_library_logs_is_shown_above_the_bar_and_cannot_control_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger = logging.getLogger("fedgt")
    before = (logger.level, list(logger.handlers))
    with display("fedgt") as told:
        told(1, 2)
        logging.getLogger("fedgt.experiment").info("round 1: [bold]%s[/bold] is excluded", "client\x1b[2J")
        logging.getLogger("fedgt.engine").warning("masked: client c7 failed")
    err = capsys.readouterr().err
    assert "round 1: [bold]client\ufffd[2J[/bold] is excluded" in err
    assert "warning: masked: client c7 failed" in err
    assert (logger.level, logger.handlers) == before
