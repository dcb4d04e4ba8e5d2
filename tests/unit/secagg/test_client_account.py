"""A client's account of sums with coefficients: the updates, and the clipped entries that are counted beside them."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from fedgt.design import searched_design, searched_designs
from fedgt.errors import PolicyError
from fedgt.privacy import minimum_support
from fedgt.secagg.account import require_promise
from fedgt.secagg.agreement import Row, rows_of

NAMES = ("ada", "bob", "cleo")


def planned(weights: Mapping[str, int], *groups: Mapping[str, int]) -> Sequence[Row]:
    return rows_of("mean", "", weights, groups)


def of_design(name: str) -> tuple[dict[str, int], list[dict[str, int]]]:
    design = searched_design(name).design
    names = [f"c{j:02d}" for j in range(design.clients)]
    groups = [{c: a for c, a in zip(names, row, strict=True) if a} for row in design.matrix.tolist()]
    return {c: 100 + 7 * j for j, c in enumerate(names)}, groups


@pytest.mark.parametrize("name", searched_designs())
def test_a_client_permits_a_searched_design_and_nothing_above_its_promise(name: str) -> None:
    """With coefficients the mere members of the groups promise less, and nothing of that kind is ever sent."""
    weights, groups = of_design(name)
    support = minimum_support(searched_design(name).design.matrix)
    assert support is not None
    require_promise({}, "", planned(weights, *groups), promised=support.lower, cautious=support.lower, weights=weights)
    with pytest.raises(PolicyError, match=f"promise is {support.upper + 1} clients"):
        require_promise({}, "", planned(weights, *groups), promised=support.upper + 1, weights=weights)


def test_some_searched_design_promises_less_by_its_members_alone() -> None:
    """Otherwise the test above says nothing."""
    design = searched_design("regular-15x10-r6-c3").design
    support = minimum_support((design.matrix > 0).astype(np.int64))
    assert support is not None
    assert support.upper < 6


def test_clipped_entries_are_counted_with_the_coefficients_and_not_with_the_weights() -> None:
    """The updates of two runs are far apart; their counts, (2, 1, 1) and (1, 1, 1), differ by one client."""
    first = planned(dict.fromkeys(NAMES, 1), {"ada": 2, "bob": 1, "cleo": 1})
    weights = {"ada": 5, "bob": 7, "cleo": 9}
    second = planned(weights, dict.fromkeys(NAMES, 1))
    signed = {"m": first}
    with pytest.raises(PolicyError, match="mix only ada"):
        require_promise(signed, ["m"], second, promised=2, weights=weights)
    require_promise(
        {"m": planned(dict.fromkeys(NAMES, 1), *[dict.fromkeys(NAMES, 1)])}, ["m"], second, promised=2, weights=weights
    )
