"""JSON from strangers: what is read is shallow, has numbers of a usual length and no key twice."""

import json
import re
from typing import Any

DEEPEST = 8
"""Lists and objects inside each other."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_LONG_NUMBER = re.compile(rb"[0-9]{40}")
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))


def parse(text: bytes, *, deepest: int = DEEPEST) -> Any:
    """The value of a JSON text.

    Args:
        text: In UTF-8.
        deepest: Lists and objects inside each other, at most.

    Raises:
        ValueError: If it is not JSON in UTF-8, nests deeper, has a number of 40 digits, `NaN` or `Infinity`,
            or an object with a key twice. Depth and digits are looked at before a value is made.
    """
    bare = _STRING.sub(b"", text)
    if _LONG_NUMBER.search(bare):
        raise ValueError("a number is too long")
    brackets = bare.translate(None, _NO_BRACKET)
    for _ in range(deepest):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets:
        raise ValueError("it is nested too deeply, or a bracket is missing")
    # As a text: of bytes json would also take other encodings, in which brackets are not what they were above.
    return json.loads(text.decode(), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key occurs twice")
    return content


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")
