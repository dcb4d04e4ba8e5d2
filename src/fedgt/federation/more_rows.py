"""Further groups beside those of a standing schedule: while somebody is undecided, and for some rounds after a fault.

The same groups again say the same of who is undecided. So the next test has the groups that a further test would have, of
what the promise has room for or what is reserved (`fedgt.federation.further`).

After a fault of the secure sums the same groups have the same suspects for ever, and two clients that spoil theirs can leave
too few to compare. So the next tests have some groups in which suspects sit apart, of the same room
(`fedgt.federation.redraw`).

The groups of the first test stay: they are all that is asked for again when nobody is undecided, and without a further
fault. No group that is added holds anybody who was left out.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from fedgt.decode import RankedSet
from fedgt.federation.further import further_design
from fedgt.federation.group_means import real_rows
from fedgt.federation.participants import Federation
from fedgt.federation.redraw import LISTED, RESERVED, Room, keep_promise_together, possible_rows, redrawn, reserved_rows
from fedgt.federation.round import ScreeningRound
from fedgt.federation.state import RunState
from fedgt.grouping import Grouping
from fedgt.types import BoolArray, FloatArray, IntArray

_RESERVES, _DRAWN = 9, 10
"""Streams of randomness of their own; see `seats`."""

_TRIED = 40
"""Reserves that are compared: of 15 clients their spans hold 12 to 22 sums, and two liars may be in nearly all of 12."""


def with_more_groups(
    state: RunState,
    screening: ScreeningRound | None,
    *,
    federation: Federation,
    planned: Grouping,
    groups: int,
    seed: int,
) -> RunState:
    """The state with the groups of the next test: those of the first one, and where that helps some more.

    Args:
        state: After a round of a standing schedule, with its faults and verdicts.
        screening: The test, if another one may decide what it has left undecided; else None.
        federation: For the weights and the promise.
        planned: Who was to share a group in the first test.
        groups: The most that are added.
        seed: Of the run.
    """
    if state.grouping is None:
        return state
    home = state.grouping
    if state.home is not None:
        home = home.of_rows(_really(state.home.rows, home.rows))
    state = replace(state, grouping=home, home=None)
    # A liar that was left out goes on in its groups, and may go on to spoil them.
    if state.suspicions.apart(state.round + 1):
        added = _added(state, home, federation=federation, planned=planned, groups=groups, seed=seed)
    elif screening is not None and screening.undecided:
        added = _telling(state, screening, home, federation=federation, planned=planned, groups=groups, seed=seed)
    else:
        return state
    if not len(added):
        return state
    return replace(state, grouping=home.of_rows(np.vstack([home.rows, added])), home=home)


def _telling(
    state: RunState,
    screening: ScreeningRound,
    home: Grouping,
    *,
    federation: Federation,
    planned: Grouping,
    groups: int,
    seed: int,
) -> IntArray:
    """int64[up to groups, clients]: groups that tell the undecided apart, and those of this kind that were opened before."""
    clients = home.clients
    design = further_design(
        federation,
        planned,
        _seated(screening.measured.best, screening.grouping.clients, clients),
        state.revealed,
        suspicions=state.suspicions,
        spoilt=(),
        gone=state.excluded,
        groups=groups,
        seed=seed,
        same_again=screening.measured.same_again,
    )
    weights = np.array([federation.weight(client) for client in clients], dtype=np.float64)
    known = np.rint(np.array(state.revealed).reshape(-1, len(clients)) / weights).astype(np.int64)
    wanted = known if design is None else np.vstack([known, Grouping.of(design, clients).rows])
    out = np.array([client in state.excluded for client in clients])
    new = [row for row in wanted if not row[out].any() and not (row == home.rows).all(axis=1).any()]
    return np.array(list(dict.fromkeys(map(tuple, new)))[:groups], dtype=np.int64).reshape(-1, len(clients))


def _seated(best: Sequence[RankedSet], judged: Sequence[str], clients: Sequence[str]) -> list[RankedSet]:
    """The sets with the places that their clients have among all."""
    return [replace(one, clients=tuple(clients.index(judged[place]) for place in one.clients)) for one in best]


def _added(
    state: RunState, home: Grouping, *, federation: Federation, planned: Grouping, groups: int, seed: int
) -> IntArray:
    """int64[up to groups, clients]: the groups that are added."""
    clients, privacy = home.clients, federation.ledger.promised
    weights = np.array([federation.weight(client) for client in clients], dtype=np.float64)
    first = real_rows(federation, planned)
    spare = _reserve(first.tobytes(), first.shape, weights.tobytes(), privacy, seed)
    known = np.array(state.revealed).reshape(-1, len(clients))
    unexplained = state.suspicions.unexplained(state.excluded)
    posterior = state.suspicions.posterior(clients, state.excluded)
    room = _room(
        keep_promise_together(known, np.vstack([first, spare]), privacy),
        weights,
        privacy,
        faults=np.array([[client in one for client in clients] for one in unexplained], dtype=np.bool_),
        allowed=np.array([client not in state.excluded for client in clients]),
        groups=groups,
        rng=np.random.default_rng([seed, _DRAWN, state.round]),
    )
    liar = np.array([posterior.get(client, 1.0) for client in clients])
    unheard = np.array([client in state.waiting for client in clients])
    design = redrawn(liar, unheard, room, beside=home.rows > 0)
    return np.zeros((0, len(clients)), dtype=np.int64) if design is None else design.matrix.astype(np.int64)


@lru_cache(maxsize=8)
def _reserve(content: bytes, shape: tuple[int, int], weighed: bytes, privacy: int, seed: int) -> FloatArray:
    """float64[up to `RESERVED`, clients]: what is reserved, drawn so that many sums are in the span."""
    first, weights = np.frombuffer(content).reshape(shape), np.frombuffer(weighed)
    most, best, rows = -1, np.empty((0, shape[1])), RESERVED
    for number in range(_TRIED if shape[1] <= LISTED else 1):
        rng = np.random.default_rng([seed, _RESERVES, number])
        spare = reserved_rows(first, weights, privacy=privacy, rng=rng, rows=rows)
        rows = min(rows, len(spare))  # to look for more than there are takes longest
        sums = len(possible_rows(_room(np.vstack([first, spare]), weights, privacy))) if shape[1] <= LISTED else 0
        if sums > most:
            most, best = sums, spare
    return best


def _room(
    open_to: FloatArray,
    weights: FloatArray,
    privacy: int,
    *,
    faults: BoolArray | None = None,
    allowed: BoolArray | None = None,
    groups: int = 0,
    rng: np.random.Generator | None = None,
) -> Room:
    clients = len(weights)
    return Room(
        faults=np.zeros((0, clients), dtype=np.bool_) if faults is None or not len(faults) else faults,
        open_to=open_to,
        weights=weights,
        allowed=np.ones(clients, dtype=np.bool_) if allowed is None else allowed,
        privacy=privacy,
        groups=groups,
        rng=np.random.default_rng(0) if rng is None else rng,
    )


def _really(rows: IntArray, real: IntArray) -> IntArray:
    """The same rows without members who were missing where they were opened; the order of the real ones may be another."""
    parts = ((row, [one for one in real if ((one == 0) | (one == row)).all()]) for row in rows)
    return np.array([max(some, key=np.count_nonzero, default=row) for row, some in parts])
