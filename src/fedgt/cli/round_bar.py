"""The progress display of a run: on stderr, and silent when that is not a terminal."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedgt.cli.tables import accuracies, printable, stage_text, verdict_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from fedgt.record.result import ClientRow, TestRow


class RoundBar:
    """What a run tells: call it with `on_round`, `stage` with `on_stage`, `tested` with `on_test`.

    Attributes:
        finished: Rounds that are over.
        rounds: All rounds; 0 before the first is over.
    """

    def __init__(self, what: str, progress: "Progress") -> None:
        """A bar without an end until the number of rounds is known."""
        self.finished = self.rounds = 0
        self._progress = progress
        self._task = progress.add_task(what, total=None, measured="", stage="")

    def __call__(self, finished: int, rounds: int, row: Any = None, /) -> None:
        """Take note of (finished rounds, all rounds) and, where the run gives it, the `RoundRow` of the round."""
        self.finished, self.rounds = finished, rounds
        measured = "" if row is None else f"{row.purpose}, {accuracies(row)}"
        self._progress.update(self._task, completed=finished, total=rounds, measured=measured, stage="")

    def stage(self, _round: int, purpose: str, stage: str, /) -> None:
        """Show which stage of the secure aggregation began."""
        self._progress.update(self._task, stage=stage_text(purpose, stage))

    def tested(self, test: "TestRow", clients: "tuple[ClientRow, ...]", /) -> None:
        """Print the verdicts of a test round above the bar."""
        console = self._progress.console
        if console.is_terminal:
            console.print(verdict_table((test,), clients))


@contextmanager
def round_bar(what: str, unit: str = "rounds") -> Iterator[RoundBar]:
    """Rounds, time left, accuracy, stage of the secure aggregation; above: verdicts, and what fedgt logs (dropouts, ...).

    Yields:
        What a run takes as `on_round`; its methods are for `on_stage` and `on_test`.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[measured]}", markup=False),
        TextColumn("{task.fields[stage]}", markup=False, style="dim"),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as progress:
        bar = RoundBar(what, progress)
        with _messages(console):
            yield bar


class _AboveTheBar(logging.Handler):
    """Prints what the library logs above the bar."""

    def __init__(self, console: "Console") -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        mark = "warning: " if record.levelno >= logging.WARNING else ""
        # A message may hold client ids: nothing in it is markup, and no control character reaches the terminal.
        self._console.print(mark + printable(record.getMessage()), markup=False)


@contextmanager
def _messages(console: "Console") -> Iterator[None]:
    if not console.is_terminal:
        yield
        return
    logger = logging.getLogger("fedgt")
    handler, before = _AboveTheBar(console), logger.level
    logger.addHandler(handler)
    logger.setLevel(min(before or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
