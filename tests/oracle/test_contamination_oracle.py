"""Exact contamination counts against listing every set of malicious clients."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt.design import (
    Design,
    all_contaminated,
    from_matrix,
    identity,
    max_malicious,
    named_design,
    negative_group_counts,
    single_group,
)
from fedgt.design.contamination import Contamination, _by_open_groups, _sampled, contamination
from fedgt.errors import DesignError


@st.composite
def designs(draw: st.DrawFn, max_clients: int = 8, max_groups: int = 5) -> Design:
    n = draw(st.integers(1, max_clients))
    rows = draw(
        st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(any), min_size=1, max_size=max_groups)
    )
    return from_matrix(rows)


@given(designs())
def test_negative_group_counts_equal_the_listing_of_all_sets(design: Design) -> None:
    counts = negative_group_counts(design)
    for q in range(design.clients + 1):
        expected = [0] * (design.groups + 1)
        for chosen in combinations(range(design.clients), q):
            negative = int((design.matrix[:, list(chosen)].sum(axis=1) == 0).sum())
            expected[negative] += 1
        assert list(counts[q]) == expected


@given(designs())
def test_every_row_of_counts_adds_up_to_the_number_of_sets(design: Design) -> None:
    for q, row in enumerate(negative_group_counts(design)):
        assert sum(row) == comb(design.clients, q)


@given(designs())
def test_contamination_never_falls_with_more_malicious_clients(design: Design) -> None:
    assert (np.diff(all_contaminated(design)) >= -1e-15).all()


def test_a_single_group_is_contaminated_by_the_first_attacker() -> None:
    design = single_group(6)
    assert all_contaminated(design).tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert max_malicious(design) == 0


def test_the_identity_stays_partly_clean_until_everybody_is_malicious() -> None:
    assert all_contaminated(identity(5)).tolist() == [0, 0, 0, 0, 0, 1]
    assert max_malicious(identity(5)) == 4


def test_kappa_must_be_a_probability() -> None:
    with pytest.raises(DesignError, match="kappa = 2"):
        max_malicious(named_design("bch-15x8"), 2)


@given(designs())
def test_all_contaminated_equals_the_listing_of_all_sets(design: Design) -> None:
    found = contamination(design)
    assert found.exact
    assert not found.standard_error.any()
    for q in range(design.clients + 1):
        hit = sum(design.matrix[:, list(chosen)].any(axis=1).all() for chosen in combinations(range(design.clients), q))
        assert found.probability[q] == hit / comb(design.clients, q)


@given(designs())
def test_the_pass_over_open_groups_equals_the_count_over_sets_of_groups(design: Design) -> None:
    found = _by_open_groups(design.matrix)
    assert found is not None
    np.testing.assert_allclose(found, all_contaminated(design), rtol=1e-13, atol=0)


@given(designs(), st.integers(0, 2**32 - 1))
def test_samples_agree_with_the_count_within_five_standard_errors(design: Design, seed: int) -> None:
    exact = all_contaminated(design)
    found = _sampled(design, np.random.default_rng(seed), 2000)
    assert (np.abs(found.probability - exact) <= 5 * found.standard_error).all()


def test_the_pass_over_open_groups_gives_the_golden_values_of_30x12() -> None:
    """DESIGN.md section 4."""
    golden = [0, 0, 0, 0, 0.000584, 0.006007, 0.028848, 0.083578, 0.175501, 0.296742]
    found = _by_open_groups(named_design("cyclic-30x12").matrix)
    assert found is not None
    np.testing.assert_allclose(found[:10], golden, atol=6e-7)


def band(groups: int, step: int, width: int) -> Design:
    rows = np.zeros((groups, (groups - 1) * step + width), dtype=int)
    for group in range(groups):
        rows[group, group * step : group * step + width] = 1
    return from_matrix(rows)


def test_many_groups_in_a_band_are_counted_exactly_even_when_the_clients_are_shuffled() -> None:
    design = band(60, 2, 6)
    shuffled = from_matrix(design.matrix[:, np.random.default_rng(1).permutation(design.clients)])
    one, other = contamination(design), contamination(shuffled)
    assert one.exact
    assert other.exact
    np.testing.assert_allclose(one.probability, other.probability, rtol=1e-12)
    sampled = _sampled(design, np.random.default_rng(2), 20_000)
    assert (np.abs(sampled.probability - one.probability) <= 5 * sampled.standard_error).all()
    assert max_malicious(design) == one.max_malicious(0.2)
    assert one.probability[max_malicious(design)] <= 0.2 < one.probability[max_malicious(design) + 1]


def test_many_groups_without_structure_are_refused_without_an_rng_and_sampled_with_one() -> None:
    rows = np.random.default_rng(0).integers(0, 2, size=(30, 60))
    design = from_matrix(rows)
    with pytest.raises(DesignError, match=r"limited to 22 groups.*give an rng"):
        all_contaminated(design)
    with pytest.raises(DesignError, match="limited to 22 groups"):
        max_malicious(design)
    found = contamination(design, rng=np.random.default_rng(0), samples=5000)
    assert not found.exact
    assert found.probability[0] == 0.0
    assert found.probability[-1] == 1.0
    assert found.standard_error[0] == found.standard_error[-1] == 0.0
    assert 0 < found.standard_error.max() < 0.01
    again = contamination(design, rng=np.random.default_rng(0), samples=5000)
    np.testing.assert_array_equal(found.probability, again.probability)
    with pytest.raises(DesignError, match="samples = 1"):
        contamination(design, rng=np.random.default_rng(0), samples=1)


def test_a_sampled_probability_counts_with_two_standard_errors_added() -> None:
    probability = np.array([0.0, 0.19, 0.3])
    sure = Contamination(probability=probability, standard_error=np.zeros(3), exact=True)
    unsure = Contamination(probability=probability, standard_error=np.array([0.0, 0.01, 0.01]), exact=False)
    assert (sure.max_malicious(0.2), unsure.max_malicious(0.2)) == (1, 0)


def test_groups_that_share_nobody_are_counted_however_many_there_are() -> None:
    assert max_malicious(identity(40)) == 39
    design = from_matrix([[1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0]])  # client 5 is in no group
    for q, row in enumerate(negative_group_counts(design)):
        expected = [0] * 4
        for chosen in combinations(range(6), q):
            expected[int((design.matrix[:, list(chosen)].sum(axis=1) == 0).sum())] += 1
        assert list(row) == expected
