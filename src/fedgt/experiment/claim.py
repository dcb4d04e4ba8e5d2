"""Who works on a run folder: a lock on its log, which the system lifts when the process ends, however it ends."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fedgt.errors import SpecError

if sys.platform != "win32":  # there nobody is told apart
    import fcntl

FILE = "log"

_PATIENCE = 1.0
"""Seconds: whoever only looks holds the lock for a moment."""


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Work on the folder alone.

    Raises:
        SpecError: If another process does.
    """
    with (folder / FILE).open("ab") as file:
        deadline = time.monotonic() + _PATIENCE
        while _locked(file) is False:
            if time.monotonic() > deadline:
                raise SpecError(f"another process is at work in {folder}; wait for it, or take another folder")
            time.sleep(0.05)
        yield


def claimed(folder: Path) -> bool | None:
    """Whether a process works on the folder; None if that cannot be told (no such file, no locks)."""
    try:
        with (folder / FILE).open("rb") as file:
            free = _locked(file, shared=True)
    except OSError:
        return None
    return None if free is None else not free


def _locked(file: BinaryIO, *, shared: bool = False) -> bool | None:
    """Whether the lock could be had; None where the system or the file system has no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
