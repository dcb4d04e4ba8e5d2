"""Which rows a further test has: new ones that tell most, or those that were revealed already."""

from collections.abc import Collection, Sequence

import numpy as np

from fedgt.decode import RankedSet
from fedgt.design import AnyDesign, StagedDesign
from fedgt.evidence import contrasts
from fedgt.federation.group_means import real_rows
from fedgt.federation.liars import Suspicions
from fedgt.federation.next_rows import next_rows
from fedgt.federation.participants import Federation
from fedgt.federation.redraw import Room, keep_promise_together, redrawn, reserved_rows, told_apart
from fedgt.grouping import Grouping
from fedgt.secagg import quorum
from fedgt.types import BoolArray, FloatArray

_FEWEST_ROWS = 3
_ROWS, _RESERVED = 5, 7  # independent streams of the seed; see `seats`


def further_design(
    federation: Federation,
    planned: Grouping,
    best: Sequence[RankedSet],
    revealed: Sequence[FloatArray],
    *,
    suspicions: Suspicions,
    spoilt: Collection[str],
    gone: Collection[str],
    groups: int,
    seed: int,
    same_again: bool = True,
) -> AnyDesign | None:
    """The rows of another test round; None where none would help.

    If somebody was not heard because of faults that nobody explains, they are drawn anew, so that it is heard apart from
    those who may be the liar. Else they break the tie that is left, after a fault with what was reserved. Where no new
    rows keep the promise, those that were revealed already come again, and without a fault what was reserved beside them.
    They are of clients that are all still there, and too few are not worth a round.

    Args:
        federation: For the weights and the promise.
        planned: Who shared a group in the first test; what is reserved beside it goes to tests after a fault.
        best: The most probable sets so far.
        revealed: float64[clients] each, the real rows of all test sums that were opened.
        suspicions: What the faults say by now.
        spoilt: Who was not heard yet because of faults.
        gone: Who is excluded.
        groups: New rows at most.
        seed: Of the run; draws the candidates.
        same_again: Whether sums that were opened tell more if they come again by themselves, or some new ones alone. By
            margins they do not: there all of them come again beside what is reserved, or none.
    """
    clients, privacy = planned.clients, federation.ledger.promised
    weights = np.array([federation.weight(client) for client in clients], dtype=np.float64)
    allowed = np.array([client not in gone for client in clients])
    first = real_rows(federation, planned)
    spare = reserved_rows(first, weights, privacy=privacy, rng=np.random.default_rng([seed, _RESERVED]))
    rng = np.random.default_rng([seed, _ROWS])
    known = np.array(revealed).reshape(-1, len(clients))
    sets = np.zeros((len(best), len(clients)), dtype=np.bool_)
    for row, one in enumerate(best):
        sets[row, list(one.clients)] = True
    chances = [one.probability for one in best]
    if unexplained := suspicions.unexplained(gone):
        posterior = suspicions.posterior(clients, gone)
        faults = np.array([[client in one for client in clients] for one in unexplained])
        open_to = keep_promise_together(known, np.vstack([first, spare]), privacy)
        room = Room(
            faults=faults,
            open_to=open_to,
            weights=weights,
            allowed=allowed,
            privacy=privacy,
            groups=groups,
            rng=rng,
        )
        liar = np.array([posterior.get(client, 1.0) for client in clients])
        unheard = np.array([client in spoilt for client in clients])
        again = redrawn(liar, unheard, room) if spoilt else told_apart(sets, np.array(chances), room)
        samples = np.array([federation.samples[client] for client in clients], dtype=np.float64)
        # Sums that cannot be compared would end the run.
        if again is not None and contrasts(again.matrix * weights, samples).size >= 2:
            return again
    if not len(known):
        return None
    # Sums that were spoilt may have been seen as well: they say nothing, and count.
    chosen = None
    if same_again:
        chosen = next_rows(
            keep_promise_together(federation.ledger.test_rows(clients), spare, privacy),
            sets,
            chances,
            privacy=privacy,
            rows=groups,
            allowed=allowed,
            weights=weights,
            fewest=quorum(len(clients), colluders=federation.sums.colluders),
            rng=rng,
        )
    if chosen is not None:
        return chosen
    # What is reserved tells more than the same rows alone; while faults are open it waits for them.
    together = [*revealed, *spare]
    more = not unexplained and federation.ledger.overshare([_named(row, clients) for row in together]) is None
    if not same_again:
        added = np.linalg.matrix_rank(np.array(together)) > np.linalg.matrix_rank(known)
        return _repeated(together, weights, ~allowed) if more and added else None
    return _repeated(together if more else revealed, weights, ~allowed)


def _named(row: FloatArray, clients: Sequence[str]) -> dict[str, float]:
    return {client: float(weight) for client, weight in zip(clients, row, strict=True) if weight}


def _repeated(revealed: Sequence[FloatArray], weights: FloatArray, out: BoolArray) -> AnyDesign | None:
    """These rows, with their coefficients: others of the same members would be new ones."""
    rows = np.unique([np.rint(row / weights).astype(np.int64) for row in revealed if not row[out].any()], axis=0)
    if len(rows) < _FEWEST_ROWS:
        return None
    name, source = f"repeated-{len(out)}x{len(rows)}", "rows of earlier test rounds"
    found = StagedDesign(matrix=rows, stages=(len(rows),), name=name, source=source)
    return found.plain if found.largest_entry == 1 else found
