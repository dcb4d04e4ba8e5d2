"""Plain groups for any federation: a partition first, r kept by every part, few uploads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.errors import DesignError
from fedgt.planning import detection_power, nested_groups
from fedgt.privacy import minimum_support
from slow_cases import slow


@given(data=st.data(), clients=st.integers(2, 22))
@settings(max_examples=40, deadline=None)
def test_r_is_kept_by_rows_that_begin_with_a_partition(data: st.DataObject, clients: int) -> None:
    privacy = data.draw(st.integers(1, clients))
    groups, uploads = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 6))
    design = nested_groups(clients, privacy, groups=groups, uploads=uploads)
    support = minimum_support(design.matrix, enough=privacy)
    assert support is not None
    assert support.lower >= privacy
    assert design.largest_entry == 1
    assert design.groups <= min(groups, clients - privacy + 1)
    assert design.uploads.max() <= uploads
    first = design.stage(0)
    assert (first.sum(axis=0) == 1).all()
    assert len(first) == min(3, clients // privacy, groups)
    assert np.linalg.matrix_rank(design.matrix) == design.groups


@pytest.mark.parametrize(
    ("clients", "privacy", "rows"), [(8, 3, 5), (12, 4, 7), *slow((16, 4, 12), (25, 4, 18)), (50, 4, 20)]
)
def test_federations_of_any_size_have_rows(clients: int, privacy: int, rows: int) -> None:
    design = nested_groups(clients, privacy, groups=20)
    assert design.groups >= rows
    again = nested_groups.__wrapped__(clients, privacy, groups=20)
    np.testing.assert_array_equal(again.matrix, design.matrix)


def test_where_a_searched_design_reaches_the_bound_it_is_taken() -> None:
    assert nested_groups(15, 4, groups=12).name == "nested-15x12-r4"
    assert nested_groups(15, 4, groups=20).groups == 12
    assert nested_groups(15, 4, groups=12, uploads=6).groups < 12


def test_more_rows_find_more_attackers_and_wrong_no_more_honest_clients() -> None:
    rows = nested_groups(15, 4, groups=12).matrix
    powers = [detection_power(rows[:count]) for count in (3, 6, 9, 12)]
    assert [one.found for one in powers] == sorted(one.found for one in powers)
    assert powers[0].found < 0.1
    assert powers[-1].found > 0.7


@pytest.mark.parametrize("seed", range(3))
def test_the_power_is_that_of_the_row_space(seed: int) -> None:
    """Whoever knows sums knows their combinations: another basis, and coefficients, change nothing."""
    rows = nested_groups(12, 3, groups=7).matrix
    mix = np.abs(np.random.default_rng(seed).integers(1, 9, size=(7, 7)) + 9 * np.eye(7, dtype=int))
    assert detection_power(mix @ rows, seed=seed).found == pytest.approx(
        detection_power(rows, seed=seed).found, abs=0.01
    )


def test_single_clients_show_everything_and_one_sum_nothing() -> None:
    assert detection_power(np.eye(9), step=12.0).found == pytest.approx(1.0)
    assert detection_power(np.ones((1, 9)), step=12.0).found == 0.0


def test_nobody_malicious_is_hardly_ever_wronged() -> None:
    from fedgt.planning.margin import moves_of_rows
    from fedgt.planning.power import WRONGED, _Accuser

    moves = moves_of_rows(nested_groups(15, 4, groups=10).matrix.astype(float))
    accuser = _Accuser(moves, 4)
    rng = np.random.default_rng(1)
    accuser.calibrate(rng.standard_normal((2000, 15)) @ moves)
    wronged = accuser.accused(rng.standard_normal((4000, 15)) @ moves).sum() / 4000
    assert 0.3 * WRONGED < wronged < 2 * WRONGED


@pytest.mark.parametrize(
    ("rows", "n_max", "message"),
    [([[0, 0]], None, "no member"), ([[-1, 1]], None, "rows of shape"), ([[1] * 50], 9, "1 to 3 can be tried")],
)
def test_rows_and_attackers_that_cannot_be_judged_are_refused(
    rows: list[list[int]], n_max: int | None, message: str
) -> None:
    with pytest.raises(DesignError, match=message):
        detection_power(rows, n_max=n_max)


@pytest.mark.parametrize(("clients", "privacy"), [(1, 1), (5, 6), (5, 0)])
def test_numbers_without_a_meaning_are_refused(clients: int, privacy: int) -> None:
    with pytest.raises(DesignError, match=f"privacy {privacy} of {clients}"):
        nested_groups(clients, privacy, groups=3)
