"""Text that somebody else wrote, made fit for a log, an error or a report: one line, printable, and short.

Names, reasons of failure and error texts come from other parties. Raw, they could forge lines of a log, control a terminal,
show text in another order than it has, or fill a disk.
"""

LONGEST = 300
"""Characters that are kept of a text, in all."""

_UNPRINTABLE = "\ufffd"


def plain(text: object, *, longest: int | None = LONGEST) -> str:
    r"""The text in one line, without anything that is not printable.

    Args:
        text: Whatever has a `str`, such as an exception.
        longest: A longer text ends with an ellipsis at so many characters; None keeps them all.

    Returns:
        White space of any kind as a space; control characters, escape sequences, bidirectional and invisible formats and
        unpaired surrogates as U+FFFD.

    Examples:
        >>> plain("disk full\n2026-01-01 INFO all is well \x1b[2J")
        'disk full 2026-01-01 INFO all is well \ufffd[2J'
    """
    written = text if isinstance(text, str) else str(text)
    if longest is not None and len(written) > longest:
        written = written[: longest - 1] + "\u2026"
    if written.isprintable():
        return written
    return "".join(_shown(one) for one in written)


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else _UNPRINTABLE
