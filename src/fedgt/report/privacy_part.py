"""The privacy account, rebuilt from the recorded aggregates: what the server saw, and who is exposed most by it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedgt.privacy import disclosed_share, exposure
from fedgt.privacy.disclosed_share import weights_behind
from fedgt.types import FloatArray

_ROUNDING = 1e-6

MAX_STATES = 100_000
"""Work allowed per set of local models; beyond it the account states an interval."""


def privacy_account(result: Mapping[str, Any]) -> dict[str, Any]:
    """Promised and achieved r, every aggregate, and the most revealing combination of each set of local models.

    Sums about one global model are one set: its local models may be the same, whatever the rounds. Sums whose weights only
    the clients know are counted but not combined.

    Returns:
        `promised`, `strict`, `cautious`, `with_training`, `overridden`, `colluders`, `honest`, `shares` and the like,
        `assumption` as recorded; `share_largest` and `share_client` (who is disclosed most);
        `sets` (one entry a global model with an open sum, under its first round), `most_exposed` (client, r, round; all
        clients with the least r), `check` (whether the recomputed r agrees with the recorded one) and `aggregates`.
    """
    recorded = dict(result["privacy"])
    shares, weights = recorded.pop("shares"), recorded.get("weights", {})
    most = max(shares, key=lambda client: shares[client], default=None)
    clients = [client["id"] for client in result["clients"]]
    sets = [
        _one_set(number, rows, clients, np.array([weights.get(client, 0.0) for client in clients]))
        for number, rows in sorted(_opened_by_model(result["aggregates"]).items())
        if rows
    ]
    return {
        **recorded,
        "shares": [{"client": client, "share": share} for client, share in shares.items()],
        "share_largest": None if most is None else shares[most],
        "share_client": most,
        "sets": sets,
        "most_exposed": _most_exposed(sets),
        "check": _check(sets, recorded["strict"], None if most is None else shares[most]),
        "aggregates": [_aggregate(row) for row in result["aggregates"]],
    }


def _opened_by_model(aggregates: Sequence[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    """First round of a global model -> the sums about it."""
    first: dict[object, int] = {}
    sets: dict[int, list[Mapping[str, Any]]] = {}
    for row in aggregates:
        if row["status"] in ("open", "faulty"):  # what was seen is known, whether or not it was used
            number = first.setdefault(row["model"] or row["round"], row["round"])
            sets.setdefault(number, []).append(row)
    return sets


def _one_set(
    number: int, rows: Sequence[Mapping[str, Any]], clients: Sequence[str], weights: FloatArray
) -> dict[str, Any]:
    column = {client: j for j, client in enumerate(clients)}
    entry: dict[str, Any] = {
        "round": number,
        "sums": len(rows),
        "r": None,
        "upper": None,
        "exposed": [],
        "complete": True,
        "combination": [],
        "share_mean": None,
        "share_largest": None,
    }
    known = all(
        len(row["weights"]) == len(row["members"]) and all(member in column for member in row["members"])
        for row in rows
    )
    if not known:
        return entry
    if len(rows) == 1:  # one sum: everybody in it is hidden among all its members
        (row,) = rows
        members = [member for member, weight in zip(row["members"], row["weights"], strict=True) if weight]
        found = {"r": len(members), "upper": len(members), "exposed": members}
        return entry | found | _share(_matrix(rows, column), weights)
    combined = exposure(_matrix(rows, column), max_states=MAX_STATES)
    if combined is None:
        return entry
    return entry | {
        "r": combined.r,
        "upper": combined.support.upper,
        "exposed": [clients[j] for j in combined.clients],
        "complete": combined.complete,
        **_share(_matrix(rows, column), weights),
        "combination": [
            {"purpose": row["purpose"], "factor": str(factor)}
            for row, factor in zip(rows, combined.support.combination, strict=True)
            if factor
        ],
    }


def _matrix(rows: Sequence[Mapping[str, Any]], column: Mapping[str, int]) -> FloatArray:
    matrix = np.zeros((len(rows), len(column)))
    for i, row in enumerate(rows):
        matrix[i, [column[member] for member in row["members"]]] = row["weights"]
    return matrix


def _share(rows: FloatArray, weights: FloatArray) -> dict[str, float | None]:
    found = disclosed_share(rows, weights=weights_behind(rows, weights))
    if found is None:
        return {}
    return {"share_mean": found.mean, "share_largest": found.largest}


def _most_exposed(sets: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    computed = [one for one in sets if one["r"] is not None]
    if not computed:
        return None
    worst = min(computed, key=lambda one: (one["r"], one["round"]))
    return {key: worst[key] for key in ("round", "r", "upper", "complete", "combination")} | {
        "clients": worst["exposed"]
    }


def _check(sets: Sequence[Mapping[str, Any]], strict: int | None, share: float | None) -> dict[str, Any]:
    """A permitted sum counts as revealed even if its opening failed, so the recorded account may say that more is known."""
    if not sets or strict is None or any(one["r"] is None for one in sets):
        return {"status": "not-made", "reason": "no sum with known weights to recompute r from"}
    more = share is not None and max(one["share_largest"] for one in sets) > share + _ROUNDING
    if min(one["upper"] for one in sets) < strict or more:
        return {"status": "different", "reason": "the recorded sums reveal more than the recorded privacy account says"}
    return {"status": "same", "reason": "recomputing it from the recorded sums does not contradict the account"}


def _aggregate(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{key: row[key] for key in ("round", "purpose", "status", "reason")},
        "size": len(row["members"]),
        "members": list(row["members"]),
        "dropped": [{"client": client, "what": what} for client, what in sorted(row["dropped"].items())],
    }
