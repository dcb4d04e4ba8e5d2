"""The groups of the test after a fault: they keep the promise with all that is open, and hear whom nobody has heard."""

import itertools

import numpy as np
import pytest

from fedgt.federation.liars import Suspicions
from fedgt.federation.redraw import RESERVED, Room, keep_promise_together, redrawn, reserved_rows, told_apart
from fedgt.planning import default_design
from fedgt.privacy import minimum_support
from fedgt.types import BoolArray, FloatArray

PRIVACY = 4


def support(rows: FloatArray) -> int:
    found = minimum_support(rows, enough=PRIVACY)
    assert found is not None
    return found.lower


def room(faults: BoolArray, first: FloatArray, spare: FloatArray, weights: FloatArray, seed: int = 0) -> Room:
    return Room(
        faults=faults,
        open_to=np.vstack([first, spare]),
        weights=weights,
        allowed=np.ones(len(weights), dtype=np.bool_),
        privacy=PRIVACY,
        groups=4,
        rng=np.random.default_rng(seed),
    )


def after_one_liar(clients: int, liar: int, weights: FloatArray, seed: int = 0) -> tuple[FloatArray, FloatArray, int]:
    """The first test, of which a liar spoils each of its sums; then the new rows, and how many are reserved."""
    first = default_design(clients, graded=True, privacy=PRIVACY).matrix.astype(np.float64)
    spoilt = first[:, liar] > 0
    names = [f"c{j:02d}" for j in range(clients)]
    seen = Suspicions().after(1, [{names[j] for j in np.flatnonzero(row)} for row in first[spoilt]])
    posterior = seen.posterior(names)
    spare = reserved_rows(first * weights, weights, privacy=PRIVACY, rng=np.random.default_rng([seed, 7]))
    design = redrawn(
        np.array([posterior[name] for name in names]),
        np.array([not column.any() for column in first[~spoilt].T]),
        room(np.array([[name in one for name in names] for one in seen.sets]), first * weights, spare, weights, seed),
    )
    assert design is not None
    return first, design.matrix.astype(np.float64), len(spare)


@pytest.mark.parametrize("clients", [10, 12, 15, 20])
@pytest.mark.parametrize("even", [True, False], ids=["equal weights", "other weights"])
def test_new_groups_keep_the_promise_with_all_that_may_be_open(clients: int, even: bool) -> None:
    rng = np.random.default_rng(clients)
    weights = np.ones(clients) if even else rng.integers(20, 400, clients).astype(np.float64)
    for liar in range(0, clients, 4):
        first, again, spare = after_one_liar(clients, liar, weights)
        assert spare == min(RESERVED, clients - PRIVACY + 1 - len(first)) or spare < RESERVED
        assert support(np.vstack([first, again]) * weights) >= PRIVACY
        assert len(again) >= 3


def test_the_reserve_is_independent_and_keeps_the_promise() -> None:
    first = default_design(15, graded=True, privacy=PRIVACY).matrix.astype(np.float64)
    weights = np.ones(15)
    spare = reserved_rows(first, weights, privacy=PRIVACY, rng=np.random.default_rng(3))
    again = reserved_rows(first, weights, privacy=PRIVACY, rng=np.random.default_rng(3))
    assert np.array_equal(spare, again), "whoever goes on with a run has the same"
    assert np.linalg.matrix_rank(np.vstack([first, spare])) == 12, "as many as the promise allows"
    assert support(np.vstack([first, spare])) >= PRIVACY


def test_new_groups_of_few_clients_are_all_sums_that_cost_nothing() -> None:
    """Each is a combination of rows that may be open anyway: checked one by one, by rank."""
    first, again, _ = after_one_liar(15, 7, np.ones(15))
    spare = reserved_rows(first, np.ones(15), privacy=PRIVACY, rng=np.random.default_rng([0, 7]))
    held = np.vstack([first, spare])
    for row in again:
        assert np.linalg.matrix_rank(np.vstack([held, row])) == np.linalg.matrix_rank(held)


@pytest.mark.parametrize(
    "clients", [12, pytest.param(15, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.slow)]
)
def test_a_liar_that_spoils_its_sums_again_is_nearer_to_being_found(clients: int) -> None:
    names = [f"c{j:02d}" for j in range(clients)]
    nearer = []
    for liar in range(clients):
        first, again, _ = after_one_liar(clients, liar, np.ones(clients))
        spoilt = [
            [{names[j] for j in np.flatnonzero(row)} for row in rows[rows[:, liar] > 0]] for rows in (first, again)
        ]
        before = Suspicions().after(1, spoilt[0])
        after = before.after(2, spoilt[1])
        was, now = before.posterior(names), after.posterior(names)
        assert max(now, key=lambda name: now[name]) == names[liar] or now[names[liar]] > was[names[liar]] - 1e-9
        nearer.append(now[names[liar]] > was[names[liar]] + 0.01)
    assert np.mean(nearer) > 0.4


def test_two_clients_that_look_alike_are_told_apart() -> None:
    """Client 7 has spoilt every sum that it is in, and another one is not in or the other way round."""
    first = default_design(15, graded=True, privacy=PRIVACY).matrix.astype(np.float64)
    spare = reserved_rows(first, np.ones(15), privacy=PRIVACY, rng=np.random.default_rng([0, 7]))
    for other in (3, 5, 9):
        spoilt = (first[:, 7] != first[:, other]) & (first[:, 7] > 0)
        sets = np.zeros((3, 15), dtype=np.bool_)
        sets[1, 7] = sets[2, other] = True
        design = told_apart(
            sets,
            np.array([0.1, 0.45, 0.45]),
            room(first[spoilt] > 0, first, spare, np.ones(15)),
        )
        assert design is not None
        rows = design.matrix
        assert (rows[:, 7] != rows[:, other]).any()
        assert support(np.vstack([first, rows])) >= PRIVACY
        for row, fault in itertools.product(rows, first[spoilt]):
            assert (fault > row).any(), "a sum that holds all suspects of a fault would be spoilt again"


def test_what_is_planned_gives_way_to_what_is_open() -> None:
    """A client has left a sum: the row that is open, and the planned one, differ by one client."""
    planned = np.array([[1.0, 1, 1, 1, 1, 0, 0, 0], [0.0, 0, 0, 0, 1, 1, 1, 1]])
    known = planned[:1].copy()
    known[0, 4] = 0.0
    kept = keep_promise_together(known, planned, PRIVACY)
    assert support(kept) >= PRIVACY
    assert kept.tolist() == [known[0].tolist(), planned[1].tolist()]


def test_three_rows_or_none() -> None:
    rows = np.array(list(itertools.islice(itertools.permutations([1.0, 1, 1, 1, 0]), 1)))
    nothing = redrawn(
        np.full(5, 0.02),
        np.zeros(5, dtype=np.bool_),
        room(np.zeros((0, 5), dtype=np.bool_), rows, rows[:0], np.ones(5)),
    )
    assert nothing is None
