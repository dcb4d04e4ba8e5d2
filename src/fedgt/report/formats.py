"""How a value of `report.json` is written for people. The exact value stands beside it in the page (`data-value`)."""

import json
from typing import Any

_UNKNOWN = {"inf": "\u221e", "-inf": "\u2212\u221e"}
_PATTERNS = {
    "count": (",.0f", 1, ""),
    "plain": (".0f", 1, ""),
    "nats": ("+.2f", 1, ""),
    "percent": (".2f", 100, " %"),
    "share": (".0f", 100, " %"),
    "tick": (".6g", 1, ""),
    "percent-tick": (".6g", 100, " %"),
    "number": (".4g", 1, ""),
}
"""Kind -> format, factor, unit."""

_MINUS = "\u2212"


def written(value: Any, kind: str) -> str:
    """A number as text.

    Args:
        value: An int or float, "inf", "-inf" or None (unknown).
        kind: `count` (1,234), `plain` (a name that is a number), `probability` (four places), `nats` (two places and sign),
            `percent` and `share` (a fraction as per cent, with two places and none), `bytes` (decimal units), `number`
            (four significant digits), `tick` and
            `percent-tick` for axes.
    """
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return _UNKNOWN.get(value, value)
    text = _probability(value) if kind == "probability" else _bytes(value) if kind == "bytes" else _plain(value, kind)
    return text.replace("-", _MINUS)


def _plain(value: float, kind: str) -> str:
    pattern, factor, unit = _PATTERNS[kind]
    return f"{factor * value:{pattern}}{unit}"


def exact(value: Any) -> str:
    """The value as JSON has it."""
    return json.dumps(value, allow_nan=False)


def _probability(value: float) -> str:
    if 0 < value < 0.00005:
        return "<0.0001"
    if 0.99995 <= value < 1:
        return ">0.9999"
    return f"{value:.4f}"


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.2f} {unit}"
