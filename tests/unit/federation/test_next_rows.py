"""Further rows for another test round."""

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.federation.next_rows import confusion, next_rows
from fedgt.planning.ties import ties
from fedgt.privacy import minimum_support

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
