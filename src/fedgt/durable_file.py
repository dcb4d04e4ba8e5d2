"""Files that must not be lost or half written: what is in them is on the disk before anybody relies on it."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedgt.errors import SpecError


def write_durably(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Put a file in the place of another, whole or not at all; only its owner can read it (mode 0600).

    It is on the disk, name and all, when this returns: a crash at any moment leaves the old file or the new one.

    Args:
        path: Where.
        content: What.
        sync: False does not wait for the disk: a killed process leaves the old file or the new one, a power cut may leave
            neither. For what can be made again.

    Raises:
        SpecError: If it cannot be written; the old file is as it was.
    """
    try:
        with _draft(path, content, sync=sync) as draft:
            draft.replace(path)
        if sync:
            sync_folder(path.parent)
    except OSError as error:
        raise SpecError(f"{path} cannot be written: {error.strerror}") from error


def write_once(path: Path, content: bytes) -> None:
    """Make a file that does not exist yet (mode 0600), whole and on the disk when this returns.

    Raises:
        FileExistsError: If it exists: of several processes one makes it.
        OSError: If it cannot be written.
    """
    with _draft(path, content, sync=True) as draft:
        try:
            os.link(draft, path)
        except FileExistsError:
            raise
        except OSError:  # no hard links here
            _write_new(path, content, sync=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _draft(path: Path, content: bytes, *, sync: bool) -> Iterator[Path]:
    """The content in a file beside another, which is gone afterwards."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write_new(draft, content, sync=sync)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _write_new(path: Path, content: bytes, *, sync: bool) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        if sync:
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that belongs to a file, so that no other process reads it, decides, and writes it at the same time.

    The lock is an empty file beside it; it ends with the process, however that ends.

    Raises:
        SpecError: If there are no locks here: on some network file systems, and where the system has none.
    """
    try:
        import fcntl
    except ImportError as error:
        raise SpecError(f"{path}: this system has no file locks, so two servers could use it at once") from error
    try:
        lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise SpecError(f"{path} cannot be locked: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise SpecError(f"{path} cannot be locked ({error.strerror}): keep it on a local disk") from error
        yield
    finally:
        os.close(lock)
