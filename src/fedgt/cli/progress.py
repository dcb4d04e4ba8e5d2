"""The progress bar of a run: on stderr, and silent when that is not a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def round_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar over rounds.

    Yields:
        A function of (finished rounds, all rounds).
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda finished, rounds: progress.update(task, completed=finished, total=rounds)
