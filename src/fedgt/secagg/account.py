"""A client's own account of what was opened, over stages, rounds and runs; it does not believe the server.

*Strict*: everything about one global model, byte for byte: local models trained from it may be the same again. *Cautious*:
everything at all, whatever the model, run and purpose, as if the client's updates repeated.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from fedgt.defaults import NO_LIMIT
from fedgt.errors import PolicyError, PrivacyError
from fedgt.secagg.agreement import PlannedSum, Row
from fedgt.types import FloatArray


def require_promise(
    signed: Mapping[str, Sequence[Row]],
    models: Collection[str],
    rows: Sequence[Row],
    *,
    promised: int,
    cautious: int = 0,
    largest_share: float = NO_LIMIT,
    colluders: int = 0,
    weights: Mapping[str, int],
) -> None:
    """Refuse sums that, with all that was signed before, mix fewer clients or disclose a larger share than promised.

    Args:
        signed: Hash of a global model -> the sums that were signed about it; they count as opened.
        models: The hash of the global model that the sums are about, and of those that count as the same.
        rows: The sums.
        promised: The promise r for the strict account; 0 promises nothing.
        cautious: The same for the cautious account.
        largest_share: The limit of what the strict account may explain of anybody's particular update; 1 is none.
        colluders: How many clients may help the server to that share.
        weights: Client -> its announced weight, without the coefficients that the sums may have.

    Raises:
        PolicyError: With the account, the combination found, and the promise.
    """
    strict = [*(row for model in models for row in signed.get(model, ())), *rows]
    if promised:
        _require(strict, promised, "one global model")
    if largest_share < 1:
        _require_share(strict, largest_share, colluders, weights)
    if cautious:
        _require([*(row for about in signed.values() for row in about), *rows], cautious, "all models and runs")


def smallest_support(rows: Iterable[Row], *, enough: int | None = None) -> tuple[int, tuple[str, ...]] | None:
    """(Proved lower bound of r, the clients of the lightest combination found); None without rows.

    Args:
        rows: The sums.
        enough: Stop when this much is proved.
    """
    # Imported here because scipy doubles the time that a client's process needs to start.
    from fedgt.privacy import minimum_support

    matrix, names = _matrix(rows)
    support = minimum_support(matrix, enough=enough)
    return None if support is None else (support.lower, tuple(names[j] for j in support.clients))


def _matrix(rows: Iterable[Row]) -> tuple[FloatArray, list[str]]:
    """(float[distinct sums, clients], the clients)."""
    distinct = list({tuple(sorted(row.items())): row for row in rows if row}.values())
    names = sorted({client for row in distinct for client in row})
    column = {client: number for number, client in enumerate(names)}
    matrix = np.zeros((len(distinct), len(names)))
    for number, row in enumerate(distinct):
        for client, weight in row.items():
            matrix[number, column[client]] = weight
    return matrix, names


def _require(rows: Sequence[Row], promised: int, about: str) -> None:
    found = smallest_support(rows, enough=promised)
    counts = [row.counts if isinstance(row, PlannedSum) else dict.fromkeys(row, 1) for row in rows]
    scale: dict[str, float] = {}
    pairs = [
        (client, row[client] / times)
        for row, count in zip(rows, counts, strict=True)
        for client, times in count.items()
    ]
    if any(scale.setdefault(client, weight) != weight for client, weight in pairs):
        # The number of clipped entries travels without a weight, so it is another combination than that of the updates.
        counted = smallest_support(counts, enough=promised)
        found = min((one for one in (found, counted) if one is not None), default=None)
    if found is not None and found[0] < promised:
        raise PolicyError(
            f"the sums about {about}, with what was signed before, can be combined to mix only "
            f"{', '.join(found[1][:8])}; this client's promise is {promised} clients"
        )


def _require_share(rows: Sequence[Row], limit: float, colluders: int, weights: Mapping[str, int]) -> None:
    from fedgt.privacy.disclosed_share import disclosed_share, weights_behind

    matrix, names = _matrix(rows)
    try:
        found = disclosed_share(
            matrix,
            weights=weights_behind(matrix, np.array([weights.get(name, 0) for name in names], dtype=np.float64)),
            colluding=min(colluders, max(len(names) - 1, 0)),
        )
    except PrivacyError as error:
        raise PolicyError(f"largest_share = {limit:g} cannot be checked: {error}") from error
    if found is not None and found.exceeds(limit):
        helped = f" and {colluders} colluders" if colluders else ""
        raise PolicyError(
            f"the sums about one global model, with what was signed before, tell the server{helped} {found.largest:.2f} of "
            f"what is particular to {names[found.client]}; this client's largest_share is {limit:g}"
        )
