"""Laws of the disclosed share."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt.errors import PolicyError, PrivacyError, ShapeError
from fedgt.privacy import Ledger, disclosed_share, minimum_support
from fedgt.privacy.disclosed_share import weights_behind
from fedgt.secagg.account import require_promise
from fedgt.types import FloatArray


@st.composite
def sums(draw: st.DrawFn) -> FloatArray:
    """Rows over up to eight clients with one weighting; somebody is in some sum."""
    n, k = draw(st.integers(2, 8)), draw(st.integers(1, 6))
    bits = draw(st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=k, max_size=k))
    weights = draw(st.lists(st.integers(1, 30), min_size=n, max_size=n))
    rows = np.array(bits, dtype=float) * weights
    if not rows.any():
        rows[0] = weights
    return rows


@st.composite
def multiplied(draw: st.DrawFn) -> tuple[FloatArray, FloatArray]:
    """Sums with coefficients, in which a client may be multiplied everywhere, and the weights of everybody."""
    n, k = draw(st.integers(2, 6)), draw(st.integers(1, 5))
    entries = draw(st.lists(st.lists(st.integers(0, 5), min_size=n, max_size=n), min_size=k, max_size=k))
    everywhere = np.array(draw(st.lists(st.sampled_from([1, 1, 3, 50]), min_size=n, max_size=n)))
    weights = np.array(draw(st.lists(st.integers(1, 900), min_size=n, max_size=n)), dtype=float)
    rows = np.array(entries, dtype=float) * everywhere * weights
    if not rows.any():
        rows[0] = everywhere * weights
    return rows, weights


def shares(rows: FloatArray, *, colluding: int = 0) -> FloatArray:
    found = disclosed_share(rows, colluding=colluding)
    assert found is not None
    return np.array(found.shares)


@given(sums(), st.randoms(use_true_random=False))
def test_renaming_the_clients_renames_the_shares(rows: FloatArray, random: object) -> None:
    order = np.random.default_rng(random.randrange(2**31)).permutation(rows.shape[1])  # type: ignore[attr-defined]
    np.testing.assert_allclose(shares(rows[:, order]), shares(rows)[order], atol=1e-9)


@given(sums(), st.integers(0, 5), st.sampled_from([0.5, 3.0, 1e6]))
def test_scaled_repeated_and_added_rows_say_nothing_new(rows: FloatArray, one: int, scale: float) -> None:
    row = one % len(rows)
    weights = np.abs(rows).max(axis=0)
    members = weights > 0
    before = shares(rows)
    more = np.vstack([rows, rows[row], rows[row] * scale, rows.sum(axis=0)])
    found = disclosed_share(more, weights=np.where(members, weights, 1.0))
    assert found is not None
    np.testing.assert_allclose(found.shares, before, atol=1e-8)


@given(sums())
def test_more_rows_of_the_same_clients_never_tell_less(rows: FloatArray) -> None:
    weights = np.abs(rows).max(axis=0)
    rows = np.vstack([np.where(weights > 0, weights, 0.0), rows])
    for many in range(1, len(rows)):
        assert (shares(rows[: many + 1]) >= shares(rows[:many]) - 1e-9).all()


@given(sums())
def test_more_colluders_never_tell_less(rows: FloatArray) -> None:
    found = [shares(rows, colluding=colluding) for colluding in range(min(4, rows.shape[1]))]
    for few, many in pairwise(found):
        assert (many >= few - 1e-12).all()


@given(sums())
def test_a_known_client_has_share_1_and_one_without_a_sum_0(rows: FloatArray) -> None:
    found = disclosed_share(rows)
    support = minimum_support(rows)
    assert found is not None
    assert support is not None
    assert all(0 <= share <= 1 for share in found.shares)
    assert all(found.shares[j] == 0 for j in range(rows.shape[1]) if j not in found.members)
    if support.upper == 1:
        assert found.shares[support.clients[0]] == pytest.approx(1, abs=1e-6)


@given(st.integers(2, 9), st.integers(1, 9), st.integers(0, 2**31))
def test_with_equal_weights_and_the_total_the_mean_is_k_less_1_of_n_less_1(n: int, k: int, seed: int) -> None:
    rows = np.random.default_rng(seed).integers(0, 3, size=(k, n)).astype(float)
    rows[0] = 1.0
    found = disclosed_share(rows, weights=np.ones(n))
    assert found is not None
    assert found.mean == pytest.approx((np.linalg.matrix_rank(rows) - 1) / (n - 1), abs=1e-9)


@given(multiplied())
def test_a_ledger_that_knows_the_weights_states_the_shares_of_them(case: tuple[FloatArray, FloatArray]) -> None:
    rows, weights = case
    names = [f"c{j}" for j in range(len(weights))]
    expected, helped = (disclosed_share(rows, weights=weights, colluding=colluding) for colluding in (0, 1))
    assert expected is not None
    assert helped is not None
    account = opened(rows, names, dict(zip(names, weights.tolist(), strict=True))).account()
    assert account.share_cautious is not None
    assert tuple(account.shares.values()) == pytest.approx(expected.shares, abs=1e-9)
    assert account.share_cautious.shares == pytest.approx(expected.shares, abs=1e-9)
    assert account.share_helped == pytest.approx(helped.largest, abs=1e-9)


@given(multiplied())
def test_a_client_that_knows_the_weights_permits_what_a_ledger_permits(case: tuple[FloatArray, FloatArray]) -> None:
    rows, weights = case
    names = [f"c{j}" for j in range(len(weights))]
    expected = disclosed_share(rows, weights=weights)
    assert expected is not None
    known = {name: int(weight) for name, weight in zip(names, weights, strict=True)}
    asked = [dict(zip(names, row, strict=True)) for row in rows.tolist()]
    sums = [{name: weight for name, weight in row.items() if weight} for row in asked]
    for limit in (expected.largest, expected.largest - 1e-6):
        if not 0 < limit < 1:
            continue
        ledger = Ledger(clients=names, promised=1, largest_share=limit)
        ledger.weigh(known)
        try:
            require_promise({}, "", sums, promised=0, largest_share=limit, weights=known)
            kept = True
        except PolicyError:
            kept = False
        assert kept == (ledger.overshare(asked) is None) == (limit == expected.largest)


@given(sums(), st.integers(0, 2**31))
def test_sums_in_other_weights_than_the_announced_ones_are_measured_in_their_own(rows: FloatArray, seed: int) -> None:
    """Of a Weiszfeld step the server books weights in general position: one sum over everybody still discloses nothing."""
    assert weights_behind(rows * 256, np.ones(rows.shape[1])) is None
    names = [f"c{j}" for j in range(5)]
    booked = np.random.default_rng(seed).integers(256, 1 << 20, size=(1, 5)).astype(float)
    assert opened(booked, names, dict.fromkeys(names, 1)).account().share_largest == pytest.approx(0, abs=1e-9)


def opened(rows: FloatArray, names: list[str], weights: dict[str, float]) -> Ledger:
    ledger = Ledger(clients=names, promised=1, colluders=1)
    ledger.weigh(weights | {"a stranger": 7})
    ledger.permit([dict(zip(names, row, strict=True)) for row in rows.tolist()], models="one", test=True)
    return ledger


def test_three_times_a_client_everywhere_is_not_three_times_its_weight() -> None:
    """By hand: one sum over two clients, of which one is multiplied by 3.

    v = (3, 1) / 4 is the only combination whose entries sum to 1: the errors are |e_1 - v|^2 = 1/8 and |e_2 - v|^2 = 9/8.
    Whoever knows the mean of equal weights has (C C')_jj = 1/2. With a weight of 3 it would be 1/8 and 9/8 as well.
    """
    rows = np.array([[3.0, 1.0]])
    equal, inferred = disclosed_share(rows, weights=[1, 1]), disclosed_share(rows)
    assert equal is not None
    assert inferred is not None
    assert (equal.shares, inferred.shares) == ((0.75, 0), (0, 0))


def test_one_sum_over_everybody_discloses_nothing_and_three_groups_of_five_a_seventh() -> None:
    assert shares(np.arange(1.0, 16.0)[None]).max() == 0
    np.testing.assert_allclose(shares(np.repeat(np.eye(3), 5, axis=1)), 1 / 7)


def test_a_heavy_client_is_disclosed_more() -> None:
    weights = np.array([20.0, 1, 1, 1, 1, 1])
    heavy, *light = shares(np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]) * weights)
    assert heavy > 0.8
    assert max(light) < 0.6


def test_the_last_client_that_does_not_collude_is_known() -> None:
    assert shares(np.ones((1, 2)), colluding=1).tolist() == [1.0, 1.0]
    assert shares(np.array([[1.0, 0, 0], [1, 1, 0]]), colluding=2).tolist() == [1.0, 1.0, 0.0]


def test_nothing_revealed_discloses_nothing() -> None:
    assert disclosed_share(np.zeros((2, 3))) is None
    assert disclosed_share(np.zeros((0, 3))) is None


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([1.0, 1.0], {}),
        ([[np.inf, 1.0]], {}),
        ([[1.0, 1.0]], {"weights": [1.0]}),
        ([[1.0, 1.0]], {"weights": [1.0, 0.0]}),
        ([[1.0, 1.0]], {"weights": [1.0, np.nan]}),
        ([[1.0, 1.0]], {"colluding": 2}),
        ([[1.0, 1.0]], {"colluding": -1}),
    ],
)
def test_what_is_no_matrix_or_does_not_fit_is_refused(rows: object, options: dict[str, object]) -> None:
    with pytest.raises(ShapeError):
        disclosed_share(rows, **options)  # type: ignore[arg-type]


def test_more_colluders_than_can_be_tried_are_refused() -> None:
    with pytest.raises(PrivacyError, match="sets"):
        disclosed_share(np.ones((1, 60)), colluding=5)
