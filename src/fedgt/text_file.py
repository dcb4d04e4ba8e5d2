"""Text files that users write: one reader for all of them.

Spreadsheets and some editors begin a file with a byte order mark. It is not part of the text.
"""

import codecs
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedgt.errors import FedGTError, SpecError

LARGEST = 2**26
"""Bytes of a file at most, unless the caller has a smaller limit."""

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def read_text(path: Path, what: str, *, error: type[FedGTError] = SpecError, largest: int = LARGEST) -> str:
    """The text of a file, without a byte order mark; UTF-16 where the mark says so, else UTF-8.

    Args:
        path: The file.
        what: What it is, for messages, such as `policy`.
        error: What to raise.
        largest: Bytes at most.

    Raises:
        FedGTError: `error`, if the file cannot be read, is larger, or is not such text.
    """
    return decoded(read_content(path, what, error=error, largest=largest), f"{what} {path}", error=error)


def read_content(path: Path, what: str, *, error: type[FedGTError] = SpecError, largest: int = LARGEST) -> bytes:
    """The bytes of a file; arguments and errors as `read_text`."""
    try:
        with path.open("rb") as file:
            content = file.read(largest + 1)
    except (OSError, ValueError) as problem:  # a path with a null character is a ValueError
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else problem
        raise error(f"{what} {path} cannot be read: {reason}") from problem
    if len(content) > largest:
        raise error(f"{what} {path} is larger than {largest} bytes: this is no {what}")
    return content


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say which file it was, if something in this block cannot be written: a full disk names none.

    Raises:
        OSError: The same, with the name of the file.
    """
    try:
        yield
    except OSError as problem:
        if problem.filename is None:
            raise OSError(problem.errno, problem.strerror, str(path)) from problem
        raise


def write_text(path: Path, text: str) -> None:
    """Write a file in UTF-8.

    Raises:
        OSError: If it cannot be written; names the file.
    """
    with writing(path):
        path.write_text(text, encoding="utf-8")


def replace_text(path: Path, text: str) -> None:
    """Put a text, for everybody to read, in the place of another, whole or not at all.

    Raises:
        SpecError: If it cannot be written; the old one is as it was.
    """
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise SpecError(f"{path} cannot be written: {error.strerror}") from error


def decoded(content: bytes, what: str, *, error: type[FedGTError] = SpecError) -> str:
    """The text of these bytes; see `read_text`."""
    mark, encoding = next(((mark, name) for mark, name in _MARKS if content.startswith(mark)), (b"", "utf-8"))
    try:
        return content[len(mark) :].decode(encoding)
    except UnicodeDecodeError as problem:
        raise error(f"{what} is no text: byte {problem.start + len(mark)} is not {encoding.upper()}") from problem
