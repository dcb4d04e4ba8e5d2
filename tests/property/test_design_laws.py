"""Laws that the families of designs obey for all their parameters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt.design import (
    Design,
    banded,
    candidates,
    constant_column_weight,
    constant_row_weight,
    faults,
    from_matrix,
    named_design,
    punctured,
    shortened,
)
from fedgt.design.codes import check_polynomials, parity_check_matrix
from fedgt.errors import DesignError
from fedgt.privacy import minimum_support

seeds = st.integers(0, 2**32 - 1)


@st.composite
def column_weights(draw: st.DrawFn) -> tuple[int, int, int]:
    clients, groups = draw(st.integers(1, 40)), draw(st.integers(1, 14))
    return clients, groups, draw(st.integers(1, groups))


@given(column_weights(), seeds)
def test_constant_column_weight_keeps_its_weight_and_balances_the_groups(
    numbers: tuple[int, int, int], seed: int
) -> None:
    clients, groups, weight = numbers
    if clients * weight < groups:
        with pytest.raises(DesignError, match=f"at most {clients * weight} groups"):
            constant_column_weight(clients, groups, per_client=weight, rng=np.random.default_rng(seed))
        return
    design = constant_column_weight(clients, groups, per_client=weight, rng=np.random.default_rng(seed))
    assert design.matrix.shape == (groups, clients)
    assert (design.matrix.sum(axis=0) == weight).all()
    assert np.ptp(design.group_sizes) <= 1
    again = constant_column_weight(clients, groups, per_client=weight, rng=np.random.default_rng(seed))
    np.testing.assert_array_equal(design.matrix, again.matrix)


@given(column_weights(), seeds)
def test_constant_row_weight_keeps_its_weight_and_balances_the_clients(
    numbers: tuple[int, int, int], seed: int
) -> None:
    groups, clients, weight = numbers
    if groups * weight < clients:
        with pytest.raises(DesignError, match="would be in no group"):
            constant_row_weight(clients, groups, per_group=weight, rng=np.random.default_rng(seed))
        return
    design = constant_row_weight(clients, groups, per_group=weight, rng=np.random.default_rng(seed))
    assert (design.group_sizes == weight).all()
    assert np.ptp(design.matrix.sum(axis=0, dtype=int)) <= 1
    assert not design.untested


@given(st.integers(2, 60), st.data(), seeds)
def test_banded_clients_stay_inside_their_window(clients: int, data: st.DataObject, seed: int) -> None:
    groups = data.draw(st.integers(2, min(clients, 20)))
    window = data.draw(st.integers(1, min(groups, 7)))
    weight = data.draw(st.integers(1, window))
    design = banded(clients, groups, per_client=weight, window=window, rng=np.random.default_rng(seed))
    rows = np.arange(groups)[:, None]
    lowest = np.where(design.matrix, rows, groups).min(axis=0)
    highest = np.where(design.matrix, rows, -1).max(axis=0)
    assert (design.matrix.sum(axis=0) == weight).all()
    assert (highest - lowest < window).all()
    first, last = design.matrix.argmax(axis=1), clients - 1 - design.matrix[:, ::-1].argmax(axis=1)
    opened = ((first[:, None] <= np.arange(clients)) & (np.arange(clients) <= last[:, None])).sum(axis=0)
    assert opened.max() <= window


@given(st.integers(9, 14), seeds)
def test_shortening_takes_at_most_one_from_r_for_every_column(clients: int, seed: int) -> None:
    parent = named_design("bch-15x8")
    design = shortened(parent, clients, rng=np.random.default_rng(seed))
    support = minimum_support(design.matrix)
    assert support is not None
    assert support.r >= 4 - (15 - clients)
    # Every column is one of the parent's, in the parent's order.
    columns, position = [c.tobytes() for c in parent.matrix.T.copy()], -1
    for column in design.matrix.T.copy():
        position = columns.index(column.tobytes(), position + 1)


@given(st.integers(10, 30), st.integers(1, 4), st.data())
def test_puncturing_the_last_clients_of_a_cyclic_code_leaves_the_upper_left_corner(
    n: int, gone: int, data: st.DataObject
) -> None:
    groups = data.draw(st.integers(gone + 1, n - 1))
    known = [h for h in check_polynomials(n, n - groups) if h[-1] == 0]
    if not known:
        return
    matrix = parity_check_matrix(n, data.draw(st.sampled_from(known)))
    parent = from_matrix(matrix)
    try:
        design = punctured(parent, n - gone)
    except DesignError:
        return
    np.testing.assert_array_equal(design.matrix, matrix[:-gone, :-gone])


CASES: tuple[tuple[int, range, int], ...] = (
    (1, range(1, 4), 5),
    (2, range(1, 4), 5),
    (3, range(1, 7), 5),
    (5, range(1, 9), 5),
    (7, range(2, 6), 4),
    (10, range(3, 9), 4),
    (15, range(8, 9), 5),
    (20, range(4, 13, 4), 4),
    (30, range(12, 13), 3),
    (50, range(14, 9, -4), 3),
)


@pytest.mark.parametrize(("clients", "groups", "draws"), CASES)
def test_candidates_are_sound_different_named_and_reproducible(clients: int, groups: range, draws: int) -> None:
    def listed() -> list[Design]:
        return list(candidates(clients, groups=groups, rng=np.random.default_rng(7), draws=draws))

    found = listed()
    assert found
    assert [d.name for d in found] == [d.name for d in listed()]
    keys = [b"".join(sorted(row.tobytes() for row in d.matrix)) for d in found]
    assert len(set(keys)) == len(keys)
    assert len({d.name for d in found}) == len(found)
    positions = [groups.index(d.groups) for d in found]
    assert positions == sorted(positions)
    for design in found:
        assert design.clients == clients
        assert not faults(design, privacy=1 if design.name == f"identity-{clients}" else min(2, clients))
        assert design.groups == 1 or design.group_sizes.max() < clients
        assert design.source
    for design in found[:: max(1, len(found) // 25)]:
        np.testing.assert_array_equal(named_design(design.name).matrix, design.matrix)


def test_other_seeds_draw_other_designs_and_the_same_codes() -> None:
    def names(seed: int) -> set[str]:
        return {d.name for d in candidates(20, groups=range(8, 9), rng=np.random.default_rng(seed), draws=3)}

    shared = names(1) & names(2)
    assert any(name.startswith("cyclic-20x8") for name in shared)
    assert not any("-s" in name and "w1-s0" not in name and "-of-" not in name for name in shared)
    assert names(1) - shared
