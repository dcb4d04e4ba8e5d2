"""Paths into `report.json`, such as `verdicts[3].posterior`: how the page names the value behind every number it shows."""

import re
from typing import Any

from fedgt.errors import SpecError

_STEP = re.compile(r"\.?([A-Za-z_]\w*)|\[(\d+)\]")


def value_at(report: Any, path: str) -> Any:
    """The value that a path names.

    Raises:
        SpecError: If there is none.
    """
    value, place = report, 0
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None:
            raise SpecError(f"path {path!r}: a name or [number] is needed at position {place}")
        name, number = step.groups()
        try:
            value = value[name] if number is None else value[int(number)]
        except (KeyError, IndexError, TypeError) as error:
            raise SpecError(f"path {path!r}: the report has nothing there") from error
        place = step.end()
    return value
