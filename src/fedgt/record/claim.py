"""Who works on a run folder: a lock on its log, which the system lifts when the process ends, however it ends."""

import json
import os
import sys
import time
import weakref
from pathlib import Path
from typing import final

from fedgt.errors import SpecError

if sys.platform != "win32":  # there nobody is told apart
    import fcntl

FILE = "log"
PROGRESS = "progress.json"

_PATIENCE = 1.0
"""Seconds: whoever only looks holds the lock for a moment."""


@final
class Claim:
    """Work on a folder alone, until `release` or the end of the process; also a context manager.

    Args:
        folder: The folder; its log is made if it does not exist (mode 0600).

    Raises:
        SpecError: If another process does, with its number.
        OSError: If the log cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        """Take the lock, or wait a moment for it."""
        file = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._close = weakref.finalize(self, os.close, file)
        deadline = time.monotonic() + _PATIENCE
        while _locked(file) is False:
            if time.monotonic() > deadline:
                self.release()
                raise SpecError(
                    f"another process{_holder(folder)} is at work in {folder}; wait for it, stop it, or take another folder"
                )
            time.sleep(0.05)

    def release(self) -> None:
        """Let others work there; may be called again."""
        self._close()

    def __enter__(self) -> "Claim":
        """The claim stands already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release it."""
        self.release()


def claimed(folder: Path) -> bool | None:
    """Whether a process works on the folder; None if that cannot be told (no such file, no locks)."""
    try:
        file = os.open(folder / FILE, os.O_RDONLY)
    except OSError:
        return None
    try:
        free = _locked(file, shared=True)
    finally:
        os.close(file)
    return None if free is None else not free


def _holder(folder: Path) -> str:
    """Its number, as it says itself; empty where it has not."""
    try:
        number = json.loads((folder / PROGRESS).read_bytes())["process"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f" ({number})" if type(number) is int else ""


def _locked(file: int, *, shared: bool = False) -> bool | None:
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
