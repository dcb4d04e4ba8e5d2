"""What can be asked, and what is said when too much is asked."""

from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np
import pytest

from fedgt.errors import DesignError, SpecError
from fedgt.planning import Demands, require_possible


def demands(**changes: Any) -> Demands:
    return Demands(**({"clients": 20, "privacy": 4, "max_malicious": 4} | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": 1}, "1 clients; at least 2"),
        ({"privacy": 21}, "privacy 21 for 20 clients.*nearest possible is 20"),
        ({"privacy": 0}, "nearest possible is 1"),
        ({"max_malicious": 20}, "1 to 19 is needed"),
        ({"max_malicious": 0}, "1 to 19 is needed"),
        ({"kappa": 1.0}, "kappa = 1.0"),
        ({"error_rate": 0.5}, "at 0.5 a test says nothing"),
        ({"groups_max": 0}, "groups_max = 0"),
        ({"dropouts": 20}, "20 dropouts of 20 clients"),
        ({"evidence": "vibes"}, "known are binary, graded"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_range(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        demands(**changes)


def test_demands_that_a_design_meets_pass() -> None:
    require_possible(demands())
    require_possible(demands(clients=15, max_malicious=5, groups_max=8))  # the 15 x 8 design
    require_possible(demands(clients=30, privacy=6, max_malicious=8, groups_max=12))  # the 30 x 12 design
    require_possible(demands(evidence="graded", max_malicious=9))


def test_privacy_binds_when_it_leaves_too_few_groups() -> None:
    with pytest.raises(
        DesignError, match=r"privacy binds: r = 9 allows at most n - r \+ 1 = 12.*max_malicious 4, or priv"
    ):
        require_possible(demands(privacy=9, max_malicious=8))


def test_groups_bind_when_fewer_are_allowed_than_the_attackers_need() -> None:
    with pytest.raises(DesignError, match=r"at least 6 groups.*groups_max = 3 binds.*max_malicious 3.*groups_max 6"):
        require_possible(demands(clients=15, max_malicious=5, groups_max=3))


def test_more_attackers_than_any_group_can_avoid_are_refused() -> None:
    with pytest.raises(DesignError, match=r"no group is ever clean.*max_malicious 1"):
        require_possible(demands(clients=15, privacy=12, max_malicious=5))


def test_graded_evidence_needs_a_minority_of_attackers() -> None:
    with pytest.raises(DesignError, match="nearest possible is 9"):
        require_possible(demands(evidence="graded", max_malicious=10))


def test_the_nearest_demands_that_are_named_are_not_refused_themselves() -> None:
    require_possible(demands(privacy=9, max_malicious=4))
    require_possible(demands(privacy=4, max_malicious=8))
    require_possible(demands(clients=15, max_malicious=3, groups_max=3))
    require_possible(demands(clients=15, max_malicious=5, groups_max=6))


@pytest.mark.parametrize(("clients", "privacy", "malicious"), [(5, 2, 2), (6, 3, 2), (5, 2, 1)])
def test_no_small_design_gets_by_with_fewer_groups_than_the_bound_needs(
    clients: int, privacy: int, malicious: int
) -> None:
    """Against all sets of groups: the fewest groups, each of r members at least, that keep a group clean often enough."""
    asked = demands(clients=clients, privacy=privacy, max_malicious=malicious, kappa=0.5)
    groups = [np.array(row) for row in product((0, 1), repeat=clients) if sum(row) >= privacy]
    attackers = [list(one) for one in combinations(range(clients), malicious)]
    for count in range(1, asked.groups_needed):
        for chosen in combinations(groups, count):
            clean = sum(any(row[one].sum() == 0 for row in chosen) for one in attackers)
            assert clean < (1 - asked.kappa) * comb(clients, malicious)


def test_the_default_number_of_groups_grows_with_what_the_attackers_need() -> None:
    assert demands().groups_limit == 12
    assert demands(privacy=12).groups_limit == 9  # n - r + 1
    needy = demands(clients=30, privacy=8, max_malicious=7)
    assert needy.groups_needed > 8
    assert needy.groups_limit == max(12, needy.groups_needed + 2)
    assert demands(groups_max=7).groups_limit == 7
