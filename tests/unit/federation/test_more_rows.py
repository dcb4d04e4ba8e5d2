"""The groups that are added after a fault keep the promise, and the first ones can be told from them again."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedgt import FederationRun
from fedgt.federation.liars import Suspicions
from fedgt.federation.more_rows import with_more_groups
from fedgt.federation.state import RunState
from fedgt.privacy import minimum_support
from fedgt.types import FloatArray
from liar_lab import NAMES, people, run_of

GROUPS = 8


def begun(clients: int = 15) -> FederationRun:
    names = (*NAMES, *(f"more-{number:02d}" for number in range(clients)))[:clients]
    return run_of(people({}, names=names), rounds=2, tests=True, names=names)


def rows_of(run: FederationRun, state: RunState) -> FloatArray:
    assert state.grouping is not None
    weights = np.array([run.federation.weight(client) for client in state.grouping.clients], dtype=np.float64)
    return state.grouping.rows * weights


def after_faults(run: FederationRun, liars: list[int], **changes: Any) -> RunState:
    """All groups of the liars were spoilt in round 1."""
    assert run.grouping is not None
    spoilt = run.grouping.rows[:, liars].any(axis=1)
    members = [frozenset(run.grouping.members(number)) for number in np.flatnonzero(spoilt).tolist()]
    fields: dict[str, Any] = {
        "parameters": {},
        "ledger": run.federation.ledger,
        "round": 1,
        "grouping": run.grouping,
        "revealed": tuple(rows_of(run, RunState(parameters={}, ledger=run.federation.ledger, grouping=run.grouping))),
        "suspicions": Suspicions().after(1, members),
    }
    return RunState(**(fields | changes))


def added(run: FederationRun, state: RunState) -> RunState:
    assert run.grouping is not None
    return with_more_groups(state, None, federation=run.federation, planned=run.grouping, groups=GROUPS, seed=1)


@pytest.mark.parametrize("clients", [10, 15, 20])
def test_all_groups_of_many_rounds_together_keep_the_promise(clients: int) -> None:
    run = begun(clients)
    state = after_faults(run, [0, 3])
    known = {row.tobytes(): row for row in state.revealed}
    for number in range(1, 5):
        state = added(run, state)
        assert state.home is not None
        assert run.grouping is not None
        np.testing.assert_array_equal(state.home.rows, run.grouping.rows)
        more = state.grouping.design.groups - state.home.design.groups if state.grouping is not None else 0
        assert 0 < more <= GROUPS
        known |= {row.tobytes(): row for row in rows_of(run, state)}
        found = minimum_support(np.array(list(known.values())), enough=4)
        assert found is not None
        assert found.lower >= 4
        assert state.grouping is not None
        last = frozenset(state.grouping.members(state.grouping.design.groups - 1))
        seen = state.suspicions.after(number + 1, [last])
        state = replace(state, round=number + 1, suspicions=seen, revealed=tuple(known.values()))


def test_nobody_who_was_left_out_is_in_an_added_group() -> None:
    run = begun()
    out = NAMES[2]
    assert run.grouping is not None
    state = added(run, after_faults(run, [run.grouping.clients.index(out)], excluded=frozenset({out})))
    assert state.grouping is not None
    assert state.home is not None
    groups = range(state.home.design.groups, state.grouping.design.groups)
    assert groups
    assert not any(out in state.grouping.members(number) for number in groups)


def test_without_a_fault_nothing_is_added_and_some_rounds_later_nothing_any_more() -> None:
    run = begun()
    assert added(run, after_faults(run, [0], suspicions=Suspicions())).home is None
    state = added(run, after_faults(run, [0]))
    assert state.home is not None
    later = added(run, replace(state, round=4))
    assert later.home is None
    assert later.grouping is not None
    assert run.grouping is not None
    np.testing.assert_array_equal(later.grouping.rows, run.grouping.rows)


def test_the_first_groups_are_known_again_in_another_order_and_without_who_has_left() -> None:
    """Rounds on suspicion put their first sums in front, and who leaves a sum is in this group no more."""
    run = begun()
    state = added(run, after_faults(run, [0]))
    assert state.grouping is not None
    assert state.home is not None
    rows = state.grouping.rows.copy()
    place = int(np.flatnonzero(rows[0])[0])
    rows[0, place] = 0
    order = np.random.default_rng(0).permutation(len(rows))
    moved = state.grouping.of_rows(rows[order])
    back = added(run, replace(state, round=4, grouping=moved))
    assert back.grouping is not None
    np.testing.assert_array_equal(back.grouping.rows[1:], state.home.rows[1:])
    np.testing.assert_array_equal(back.grouping.rows[0], rows[0])
