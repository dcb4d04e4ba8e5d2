"""The progress display of a run: on stderr, and silent when that is not a terminal."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Told(Protocol):
    """What a run calls after each round."""

    def __call__(self, finished: int, rounds: int, row: Any = None, /) -> None:
        """Take note of (finished rounds, all rounds) and, where the run gives it, the `RoundRow` of the round."""
        ...


@contextmanager
def round_bar(what: str, unit: str = "rounds") -> Iterator[Told]:
    """Rounds, time left, the accuracy when the run reports it, and what fedgt logs (dropouts, the decision of the test).

    Yields:
        What a run takes as `on_round`.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[measured]}", markup=False),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as progress:
        task = progress.add_task(what, total=None, measured="")

        def told(finished: int, rounds: int, row: Any = None, /) -> None:
            progress.update(task, completed=finished, total=rounds, measured=_measured(row))

        with _messages(console):
            yield told


def _measured(row: Any) -> str:
    if row is None:
        return ""
    text = f"{row.purpose}, top-1 accuracy {100 * row.top1_accuracy:.2f} %"
    return text if row.attack_accuracy is None else f"{text}, attack accuracy {100 * row.attack_accuracy:.2f} %"


class _AboveTheBar(logging.Handler):
    """Prints what the library logs above the bar."""

    def __init__(self, console: Any) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        mark = "warning: " if record.levelno >= logging.WARNING else ""
        # A message may hold client ids: nothing in it is markup, and no control character reaches the terminal.
        text = "".join(one if one.isprintable() else "\ufffd" for one in record.getMessage())
        self._console.print(f"{mark}{text}", markup=False)


@contextmanager
def _messages(console: Any) -> Iterator[None]:
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
