"""Which rows a further test has: new ones that break the tie that is left, or those that were revealed already."""

from collections.abc import Collection, Sequence

import numpy as np

from fedgt.decode import RankedSet
from fedgt.design import Design
from fedgt.federation.next_rows import next_rows
from fedgt.federation.participants import Federation
from fedgt.types import FloatArray

_FEWEST_ROWS = 3


def further_design(
    federation: Federation,
    clients: Sequence[str],
    best: Sequence[RankedSet],
    revealed: Sequence[FloatArray],
    *,
    gone: Collection[str],
    groups: int,
    rng: np.random.Generator,
) -> Design | None:
    """The rows of another test round; None where none would help.

    Where no new rows keep the promise, those that were revealed already cost no privacy and still average noise away. They
    are of clients that are all still there, and too few are not worth a round.

    Args:
        federation: For the weights and the promise.
        clients: Client ids, by column.
        best: The most probable sets so far.
        revealed: float64[clients] each, the real rows of all test sums that were opened.
        gone: Who is excluded.
        groups: New rows at most.
        rng: Draws the candidates.
    """
    if not revealed:
        return None
    sets = np.zeros((len(best), len(clients)), dtype=np.bool_)
    for row, one in enumerate(best):
        sets[row, list(one.clients)] = True
    out = np.array([client in gone for client in clients])
    chosen = next_rows(
        np.array(revealed),
        sets,
        [one.probability for one in best],
        privacy=federation.ledger.promised,
        rows=groups,
        allowed=~out,
        weights=np.array([federation.weight(client) for client in clients], dtype=np.float64),
        rng=rng,
    )
    return _repeated(revealed, out) if chosen is None else chosen


def _repeated(revealed: Sequence[FloatArray], out: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Design | None:
    rows = np.unique([row > 0 for row in revealed if not row[out].any()], axis=0)
    if len(rows) < _FEWEST_ROWS:
        return None
    return Design(
        matrix=rows.astype(np.uint8), name=f"repeated-{len(out)}x{len(rows)}", source="rows of earlier test rounds"
    )
