"""`fedgt` called in this process: the same words, exit code and output as a process of its own, without its start."""

import contextlib
import io
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

from threadpoolctl import threadpool_limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a command has ended.

    Attributes:
        returncode: Its exit code.
        stdout: What it printed.
        stderr: What it said about it.
    """

    returncode: int
    stdout: str
    stderr: str


def called(*arguments: str | Path, cwd: Path | None = None) -> Done:
    """Call the command line with these arguments.

    Signals, readers that go away, colours and memory need a real process: tests of these start one.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code, before = 0, sys.argv
    with (
        warnings.catch_warnings(),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        threadpool_limits(1),
    ):
        warnings.simplefilter("ignore", DeprecationWarning)  # typer's own use of click
        from fedgt.cli import main

        sys.argv = ["fedgt", *map(str, arguments)]
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        finally:
            sys.argv = before
    return Done(
        returncode=code,
        stdout=out.buffer.getvalue().decode(),
        stderr=err.buffer.getvalue().decode(),
    )
