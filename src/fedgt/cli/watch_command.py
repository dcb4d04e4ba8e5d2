"""`fedgt watch`: how far is the run in this folder?"""

import json
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedgt.cli.tables import accuracies, evidence_line, printable, stage_text, verdict_table

if TYPE_CHECKING:
    from rich.console import Console

    from fedgt.record import RunProgress

_INTERVAL = 0.25


def watch(
    run_dir: Annotated[Path, typer.Argument(help="A folder of a run, real or simulated; only read.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object about this moment and exit.")] = False,
) -> None:
    """Rounds, time left, accuracy, stage of the secure aggregation and, after a test, the verdicts of a run that goes on.

    On a terminal until the run ends (Ctrl-C leaves the run alone); elsewhere this moment only. Exit code 1 if the run has
    been interrupted or has ended early.
    """
    from rich.console import Console

    from fedgt.record import read_progress

    progress = read_progress(run_dir)
    console = Console(highlight=False, soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(progress.model_dump(mode="json"), allow_nan=False))
    elif console.is_terminal and progress.state == "running":
        progress = _follow(run_dir, progress, console)
        _print(run_dir, progress, console, verdicts=False)
    else:
        _print(run_dir, progress, console)
    if progress.state not in ("running", "finished"):
        raise typer.Exit(1)


def _follow(run_dir: Path, progress: "RunProgress", console: "Console") -> "RunProgress":
    """Show the run until it ends; each test is printed once, above the line that changes."""
    from rich.live import Live
    from rich.text import Text

    from fedgt.record import read_progress

    shown = 0
    with Live(console=console, transient=True, refresh_per_second=4) as live:
        while True:
            if len(progress.tests) > shown:
                shown = len(progress.tests)
                _print_verdicts(progress, live.console)
            if progress.state != "running":
                return progress
            live.update(Text(_line(progress), no_wrap=True, overflow="ellipsis"))
            time.sleep(_INTERVAL)
            progress = read_progress(run_dir)


def _print(run_dir: Path, progress: "RunProgress", console: "Console", *, verdicts: bool = True) -> None:
    if verdicts and progress.tests:
        _print_verdicts(progress, console)
    console.print(_line(progress), markup=False)
    if progress.reason:
        console.print(printable(progress.reason), markup=False)
    if progress.state == "interrupted":
        words = ["fedgt", "run", str(run_dir / "spec.toml"), "--out", str(run_dir), "--resume"]
        real = f"FederationRun(..., folder={str(run_dir)!r}, resume=True)"
        how = real if (run_dir / "settings.toml").exists() else shlex.join(words)
        console.print(printable(f"go on with: {how}"), markup=False)


def _print_verdicts(progress: "RunProgress", console: "Console") -> None:
    console.print(verdict_table(progress.tests, progress.clients))
    graded = progress.tests[-1].graded
    if graded is not None:
        console.print(printable(f"evidence: {evidence_line(graded)}"), markup=False)


def _line(progress: "RunProgress") -> str:
    """The run at this moment, in one line."""
    parts = [f"{progress.method}: {progress.state}, {progress.finished} of {progress.rounds} rounds"]
    if progress.seconds_left is not None:
        parts.append(f"{_duration(progress.seconds_left)} left")
    if progress.last is not None:
        parts.append(accuracies(progress.last))
    if progress.state == "running" and progress.stage:
        parts.append(f"round {progress.round}, {stage_text(progress.purpose, progress.stage)}")
    return printable("; ".join(parts))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
