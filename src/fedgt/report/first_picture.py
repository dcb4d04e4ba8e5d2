"""The picture that a report begins with: who is in which group, and where the sums lie against what the verdict predicts.

If the verdict is right, a group lies the further out the larger the share of the named clients in its sum. A straight line
through that share is what the verdict predicts; dots that keep to it speak for the verdict, dots that scatter do not.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedgt.report.charts import axis

MOST_ROWS = 20
"""Clients up to which all are drawn; of more, those that were kept are left to the appendix."""


def first_picture(result: Mapping[str, Any], verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What it shows; None without a test.

    Returns:
        `round`; `why` (`named`, `suspicious` or `nobody`: of which clients the prediction is made); `groups` in the order
        of the columns, each with `group`, `measured`, `predicted` (null where nothing was compared) and `named` (the share
        of these clients in its sum); `clients`, the rows, the most suspicious first, each with `client`, `word`, `left_out`
        and `groups`; `hidden`, how many kept clients are not drawn; `binary`; `explained`, which part of how the sums
        differ the prediction explains; the axis `y`.
    """
    if not result["tests"]:
        return None
    why, named = _of_whom(verdicts)
    test = _test_about(result["tests"], named)
    shares = _shares(result, test, named)
    measured = _measured(test)
    predicted, explained = _predicted(test, shares, measured)
    order = sorted(range(len(test["groups"])), key=lambda i: (shares[i], _number(measured[i])))
    drawn = [one for one in verdicts if len(verdicts) <= MOST_ROWS or one["verdict"] != "keep"]
    known = [value for value in (*measured, *predicted) if value is not None]
    return {
        "round": test["round"],
        "why": why,
        "binary": bool(test["outcomes"]),
        "groups": [
            {"group": i, "measured": measured[i], "predicted": predicted[i], "named": round(shares[i], 4)}
            for i in order
        ],
        "clients": [
            {
                "client": one["client"],
                "word": one["verdict"],
                "left_out": one["excluded"],
                "groups": [i for i in order if one["client"] in test["groups"][i]],
            }
            for one in drawn
        ],
        "hidden": len(verdicts) - len(drawn),
        "explained": explained,
        "y": axis(known) if known else None,
    }


def _of_whom(verdicts: Sequence[Mapping[str, Any]]) -> tuple[str, set[str]]:
    """Those to whom the tests point; if there are none, those who stand out."""
    for why, words in (("named", ("exclude", "exclude (uncertain)")), ("suspicious", ("suspicious",))):
        clients = {one["client"] for one in verdicts if one["verdict"] in words}
        if clients:
            return why, clients
    return "nobody", set()


def _test_about(tests: Sequence[Mapping[str, Any]], named: set[str]) -> Mapping[str, Any]:
    """The largest test that all of them were in; the later one of two."""

    def rank(test: Mapping[str, Any]) -> tuple[int, int, int]:
        present = {client for group in test["groups"] for client in group}
        return len(named & present), len(test["groups"]), test["round"]

    return max(tests, key=rank)


def _shares(result: Mapping[str, Any], test: Mapping[str, Any], named: set[str]) -> list[float]:
    """The share of the named clients in each sum, by real weights where they are on record."""
    weights = {
        row["purpose"]: dict(zip(row["members"], row["weights"], strict=False))
        for row in result["aggregates"]
        if row["round"] == test["round"] and row["status"] == "open"
    }
    shares = []
    for number, members in enumerate(test["groups"]):
        row = weights.get(f"test-group-{number}") or dict.fromkeys(members, 1.0)
        total = sum(row.values())
        shares.append(sum(weight for client, weight in row.items() if client in named) / total if total else 0.0)
    return shares


def _measured(test: Mapping[str, Any]) -> list[float | None]:
    """Where each sum lies: along the strongest line, or the outcome of one bit a group."""
    if test["outcomes"]:
        return [{"0": 0.0, "1": 1.0}.get(outcome) for outcome in test["outcomes"]]
    values = [float(one) if isinstance(one, int | float) else None for one in test["projection"]]
    return [*values, *[None] * (len(test["groups"]) - len(values))]


def _predicted(
    test: Mapping[str, Any], shares: Sequence[float], measured: Sequence[float | None]
) -> tuple[list[float | None], float | None]:
    """Where each sum would lie if exactly the named clients pushed alike, and how much of the differences that explains."""
    if test["outcomes"]:
        return [
            None if value is None else float(share > 0) for value, share in zip(measured, shares, strict=True)
        ], None
    at = [i for i, value in enumerate(measured) if value is not None]
    if len(at) < 2:
        return [None] * len(measured), None
    seen, share = np.array([measured[i] for i in at], dtype=np.float64), np.array([shares[i] for i in at])
    slope = 0.0
    if np.ptp(share) > 0:
        slope = float(np.cov(share, seen)[0, 1] / np.var(share, ddof=1))
    fitted = seen.mean() + slope * (share - share.mean())
    spread = float(np.square(seen - seen.mean()).sum())
    explained = 1.0 - float(np.square(seen - fitted).sum()) / spread if spread > 0 and slope else None
    predicted: list[float | None] = [None] * len(measured)
    for i, value in zip(at, fitted.tolist(), strict=True):
        predicted[i] = value
    return predicted, explained


def _number(value: float | None) -> float:
    return float("-inf") if value is None else value
