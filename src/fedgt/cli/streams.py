"""stdout and stderr whose reader may leave: a pager that has seen enough must not decide how a command ends.

Whatever the reader does, the work goes on and the exit code is that of the work. A full disk is an error that names the
stream, said once.
"""

import errno
import io
import os
import sys
from typing import TextIO

_ERROR = "standard error"


class _Stream(io.RawIOBase):
    """Writes to a file descriptor until nobody reads it any more."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__()
        self._descriptor, self._name, self._over = descriptor, name, False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, content: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        if not self._over:
            try:
                return os.write(self._descriptor, content)
            except OSError as error:
                self._over = True
                # Windows says EINVAL. What cannot be said on stderr cannot be said at all.
                if error.errno not in (errno.EPIPE, errno.EINVAL) and self._name != _ERROR:
                    raise OSError(error.errno, error.strerror, self._name) from None
        return len(content)


def forgive_readers() -> None:
    """Replace stdout and stderr by such streams, where they are files of the operating system."""
    sys.stdout = _forgiving(sys.stdout, "standard output")
    sys.stderr = _forgiving(sys.stderr, _ERROR)


def _forgiving(stream: TextIO, name: str) -> TextIO:
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or captured by a test
        return stream
    raw = _Stream(descriptor, name)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),  # type: ignore[type-var]
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=raw.isatty() or name == _ERROR,
    )
