"""Names of clients, runs and the like: what can be one, and which two are the same to whoever reads them."""

import unicodedata
from collections.abc import Iterable
from typing import TypeGuard

from fedgt.errors import SpecError

LONGEST_NAME = 200

_INVISIBLE = frozenset(
    chr(point)
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0xE0100, 0xE01EF),
    )
    for point in range(first, last + 1)
)
"""Printable to Python, and nothing to see: fillers, joiners, selectors of variants. The others are not printable at all."""


def is_name(value: object) -> TypeGuard[str]:
    """Whether `require_name` takes a value."""
    return isinstance(value, str) and value.isprintable() and 1 <= len(value) <= LONGEST_NAME


def require_name(value: object, what: str = "name") -> str:
    """The value, if it can stand on the wire and in a report.

    Raises:
        SpecError: If it is not 1 to 200 printable characters.
    """
    if not is_name(value):
        raise SpecError(f"{what} {value!r:.80}: 1 to {LONGEST_NAME} printable characters are needed")
    return value


def require_id(value: object, what: str = "id") -> str:
    """The value, if it can be an id, which people and programs must be able to tell from every other.

    Raises:
        SpecError: If it is not 1 to 200 printable characters in Unicode normal form C, has a space at an end or two in a
            row, or an invisible character.
    """
    name = require_name(value, what)
    if name.isascii():
        spaced = name != name.strip() or "  " in name
    else:
        spaced = name.split(" ") != name.split()
        if not unicodedata.is_normalized("NFC", name):
            composed = unicodedata.normalize("NFC", name)
            raise SpecError(f"{what} {name!a:.200} is not in Unicode normal form C; write it as {composed!a:.200}")
        if hidden := sorted(set(name) & _INVISIBLE):
            raise SpecError(f"{what} {name!a:.200} has characters that nobody sees: leave out {''.join(hidden)!a}")
    if spaced:
        raise SpecError(f"{what} {name!r:.200} has a space at an end, or two in a row: leave them out")
    return name


def is_id(value: object) -> TypeGuard[str]:
    """Whether `require_id` takes a value."""
    try:
        require_id(value)
    except SpecError:
        return False
    return True


def folded(name: str) -> str:
    """What a name looks like: the same for all that differ in case, width, ligatures or normal form only."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def require_distinct_ids(names: Iterable[str], what: str = "client id") -> None:
    """Check ids that stand side by side.

    Args:
        names: The ids; one that comes twice is no error here.
        what: For the message.

    Raises:
        SpecError: As `require_id`, or if two look alike: one participant would count twice, or be taken for another.
    """
    seen: dict[str, str] = {}
    for name in names:
        before = seen.setdefault(folded(require_id(name, what)), name)
        if before != name:
            raise SpecError(
                f"{what}s {before!a:.200} and {name!a:.200} look alike: they differ in case, width or spelling of the same "
                "letters only; give one of the two another name"
            )
