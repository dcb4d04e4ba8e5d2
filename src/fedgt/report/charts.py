"""What the pictures of the page show: axes with their ticks, as data. The template only scales them to the drawing."""

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from typing import Any

_STEPS = (1.0, 2.0, 5.0, 10.0)
_TICKS = 5  # about so many on an axis
_PERCENT_SERIES = ("top1_accuracy", "balanced_accuracy", "attack_accuracy")


def curves(rounds: Sequence[Mapping[str, Any]], test_rounds: Sequence[int]) -> dict[str, Any] | None:
    """Accuracies over rounds; None where nothing was measured.

    Returns:
        `test_rounds`; `panels`, each with `unit` (`percent`), `series` (a key of the rounds and its points) and
        the axes `x` and `y` (`low`, `high`, `ticks`).
    """
    if not rounds:
        return None
    numbers = [row["round"] for row in rounds]
    x = axis([min(numbers), max(numbers)], whole=True, padded=False)
    series = [
        {"name": name, "points": points}
        for name in _PERCENT_SERIES
        if (points := [[row["round"], row[name]] for row in rounds if _finite(row.get(name))])
    ]
    if not series:
        return None
    values = [point[1] for one in series for point in one["points"]]
    panel = {"unit": "percent", "series": series, "x": x, "y": axis([0.0, *values], padded=False)}
    return {"test_rounds": list(test_rounds), "panels": [panel]}


def scatter(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Groups in the plane of their evidence: utility (graded evidence: loss) against the projection.

    Returns:
        `groups` (those that have both), `vertical` (`utility` or `loss`) and the axes; None where fewer than two have both.
    """
    vertical = "utility" if any(_finite(one.get("utility")) for one in groups) else "loss"
    placed = [
        number for number, one in enumerate(groups) if _finite(one.get(vertical)) and _finite(one.get("projection"))
    ]
    if len(placed) < 2:
        return None
    return {
        "groups": placed,
        "vertical": vertical,
        "x": axis([groups[number]["projection"] for number in placed]),
        "y": axis([groups[number][vertical] for number in placed]),
    }


def axis(values: Sequence[float], *, whole: bool = False, padded: bool = True) -> dict[str, Any]:
    """A range that holds the values, and about five ticks at round numbers inside it.

    Args:
        values: At least one.
        whole: Ticks at whole numbers only.
        padded: Room beyond the outermost values.
    """
    low, high = float(min(values)), float(max(values))
    spread = high - low or abs(high) or 1.0
    step = 10 ** floor(log10(spread / _TICKS))
    step *= next(one for one in _STEPS if spread / (one * step) <= _TICKS)
    if whole:
        step = max(1.0, round(step))
    if padded:
        low, high = low - 0.08 * spread, high + 0.08 * spread
    elif not whole:
        high = ceil(high / step - 1e-9) * step
    if high == low:
        low, high = low - 0.5 * step, high + 0.5 * step
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return {"low": low, "high": high, "ticks": [round(k * step, 12) + 0.0 for k in range(first, last + 1)]}


def _finite(value: Any) -> bool:
    return isinstance(value, int | float)
