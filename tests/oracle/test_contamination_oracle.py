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


def test_too_many_groups_are_refused_with_the_limit() -> None:
    with pytest.raises(DesignError, match="limited to 22 groups"):
        all_contaminated(from_matrix(np.eye(23, dtype=int) + np.eye(23, k=1, dtype=int)))


def test_groups_that_share_nobody_are_counted_however_many_there_are() -> None:
    assert max_malicious(identity(40)) == 39
    design = from_matrix([[1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0]])  # client 5 is in no group
    for q, row in enumerate(negative_group_counts(design)):
        expected = [0] * 4
        for chosen in combinations(range(6), q):
            expected[int((design.matrix[:, list(chosen)].sum(axis=1) == 0).sum())] += 1
        assert list(row) == expected
