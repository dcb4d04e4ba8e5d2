"""The orders that ship with named designs are orders, and no search finds a cheaper one."""

import numpy as np
import pytest

from fedgt.decode.known_orders import _ORDERS, known_order
from fedgt.decode.ordering import client_order, order_cost, searched_order
from fedgt.design import Design, named_design, named_designs

NAMES = [name for name in named_designs() if not name.endswith("-N")]


def one_each(design: Design) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.ones(design.groups, dtype=np.int64)


@pytest.mark.parametrize("name", NAMES)
def test_every_named_design_has_an_order_as_cheap_as_the_search_finds(name: str) -> None:
    design = named_design(name)
    order = known_order(design.matrix)
    assert order is not None
    assert sorted(order.tolist()) == list(range(design.clients))
    weights = np.ones(design.groups)
    found = searched_order(design.matrix, one_each(design))
    assert order_cost(design.matrix, weights, order) <= order_cost(design.matrix, weights, found) + 1e-9


def test_no_order_is_of_a_design_that_has_no_name() -> None:
    assert len(_ORDERS) == len(NAMES)
    design = named_design("bch-15x8")
    assert known_order(design.matrix[:, ::-1].copy()) is None


def test_a_group_of_everybody_changes_no_order() -> None:
    """Such as the one that a prior on the number of malicious clients adds."""
    design = named_design("cyclic-30x12")
    everybody = np.ones((1, design.clients), dtype=np.uint8)
    matrix, caps = np.concatenate([design.matrix, everybody]), np.append(one_each(design), 8)
    assert client_order(matrix, caps).tolist() == client_order(design.matrix, one_each(design)).tolist()
    assert sorted(client_order(everybody, np.array([5])).tolist()) == list(range(design.clients))
