"""Further rows for another test round."""

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.federation.next_rows import confusion, next_rows
from fedgt.planning.ties import ties
from fedgt.privacy import Support, minimum_support

ROWS = named_design("bch-15x8").matrix.astype(np.float64)


def tied_sets() -> np.ndarray:
    """Two sets that move the group means of 15 x 8 along the same line."""
    found = ties(named_design("bch-15x8"), 4)
    labels = found.label[1:]
    values, counts = np.unique(labels, return_counts=True)
    wanted = values[counts > 1][0]
    return np.asarray(found.sets[1:][labels == wanted][:2], dtype=np.bool_)


def test_the_new_rows_keep_the_promise_together_with_the_old_ones_and_break_the_tie() -> None:
    sets = tied_sets()
    found = next_rows(ROWS, sets, [0.5, 0.5], privacy=4, candidates=10, rng=np.random.default_rng(0))
    assert found is not None
    support = minimum_support(np.vstack([ROWS, found.matrix]))
    assert support is not None
    assert support.lower >= 4
    assert 3 <= found.groups <= 4
    assert confusion(ROWS, sets, np.array([0.5, 0.5])) > 10 * confusion(
        found.matrix.astype(float), sets, np.array([0.5, 0.5])
    )


def test_only_clients_that_may_take_part_are_in_the_new_rows_and_equal_seeds_give_equal_rows() -> None:
    allowed = np.ones(15, dtype=np.bool_)
    allowed[[2, 9]] = False
    drawn = [
        next_rows(ROWS, tied_sets(), [1, 1], privacy=4, candidates=3, allowed=allowed, rng=np.random.default_rng(1))
        for _ in range(2)
    ]
    assert drawn[0] is not None
    assert drawn[1] is not None
    assert not drawn[0].matrix[:, ~allowed].any()
    assert (drawn[0].matrix == drawn[1].matrix).all()


@pytest.mark.parametrize("privacy", [9, 15])
def test_where_no_rows_keep_the_promise_there_are_none(privacy: int) -> None:
    assert next_rows(ROWS, tied_sets(), [1, 1], privacy=privacy, candidates=2, rng=np.random.default_rng(0)) is None


def test_with_one_set_left_nothing_is_open() -> None:
    assert next_rows(ROWS, tied_sets()[:1], [1.0], privacy=4, rng=np.random.default_rng(0)) is None


def all_but(normal: list[float]) -> np.ndarray:
    """Rows that span everything orthogonal to this: as much as a promise of two clients permits."""
    return np.array(
        [
            np.eye(len(normal))[j] * normal[j + 1] - np.eye(len(normal))[j + 1] * normal[j]
            for j in range(len(normal) - 1)
        ]
    )


APART = np.eye(15, dtype=np.bool_)[[0, 2, 4, 6]]


def test_where_one_group_alone_is_left_it_does_not_come_four_times() -> None:
    """Nothing in such a test could be compared, and two clients of fifteen are no quorum."""
    rows = all_but([1.0, -1.0, *(2.0**j for j in range(2, 15))])
    few = np.arange(15) < 4
    assert next_rows(rows, APART, [1.0] * 4, privacy=2, allowed=few, rng=np.random.default_rng(0)) is None


def test_groups_that_miss_the_quorum_are_not_taken_and_no_group_is_a_combination_of_the_others() -> None:
    """Three pairs of clients, and what they make together, is all that is left: six of fifteen clients."""
    rows = all_but([1.0, -1.0, 2.0, -2.0, 4.0, -4.0, *(2.0**j for j in range(4, 13))])
    drawn = [
        next_rows(
            rows,
            APART,
            [1.0] * 4,
            privacy=2,
            rows=3,
            fewest=fewest,
            allowed=np.arange(15) < 6,
            rng=np.random.default_rng(0),
        )
        for fewest in (0, 6)
    ]
    for found in drawn:
        assert found is not None
        assert np.linalg.matrix_rank(found.matrix) == found.groups == 3
        assert np.linalg.matrix_rank(np.vstack([rows, found.matrix])) == 14
        assert found.matrix.any(axis=0).sum() == 6
    assert next_rows(rows, APART, [1.0] * 4, privacy=2, rows=3, fewest=9, rng=np.random.default_rng(0)) is None


@pytest.mark.parametrize("privacy", [3, 6])
def test_of_many_clients_the_best_groups_are_proved_and_the_others_are_not(
    privacy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far from the bound nearly all groups keep the promise; to prove each one took a minute for 50 clients."""
    rng, asked = np.random.default_rng(3), []
    rows = (rng.random((12, 40)) < 0.4).astype(np.float64)

    def counted(rows: np.ndarray, *, enough: int) -> Support | None:
        asked.append(len(rows))
        return minimum_support(rows, enough=enough)

    monkeypatch.setattr("fedgt.federation.next_rows.minimum_support", counted)
    sets = np.eye(40, dtype=np.bool_)[:4]
    found = next_rows(rows, sets, [1.0] * 4, privacy=privacy, rng=np.random.default_rng(0))
    assert found is not None
    support = minimum_support(np.vstack([rows, found.matrix]), enough=privacy)
    assert support is not None
    assert support.lower >= privacy
    assert len(asked) <= (2 if privacy == 6 else 42)
