"""Where a search begins: the sets that a line points to."""

from functools import cache

import numpy as np
import pytest

from fedgt.evidence import contrasts
from fedgt.evidence.relaxed import relaxed_sets
from fedgt.planning import default_design
from fedgt.types import BoolArray, FloatArray


@cache
def shifts_of(clients: int) -> FloatArray:
    """Those of the groups of a federation of so many clients, privacy 6."""
    matrix = default_design(clients, graded=True, privacy=6).matrix.astype(np.float64)
    return contrasts(matrix, np.full(clients, 100.0)).shifts


def pointed(shifts: FloatArray, members: list[int], largest: int, noise: float, rng: np.random.Generator) -> BoolArray:
    """The two sets of the right size, where these members make the line and noise bends it."""
    line = shifts[:, members].sum(axis=1)
    line = line / np.linalg.norm(line) + noise * rng.normal(size=len(line)) / len(line) ** 0.5
    found = relaxed_sets(shifts, rng.choice([-1, 1]) * line / np.linalg.norm(line), largest)
    assert found.sum(axis=1).tolist() == np.repeat(np.arange(1, largest + 1), 2).tolist()
    fitting: BoolArray = found[found.sum(axis=1) == len(members)]
    return fitting


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("count", [1, 5, 9, 12])
def test_a_line_points_to_the_set_that_makes_it_whatever_its_sign(count: int, noise: float) -> None:
    shifts, rng = shifts_of(25), np.random.default_rng(count)
    for _ in range(4):
        members = sorted(rng.choice(25, count, replace=False).tolist())
        found = pointed(shifts, members, 12, noise, rng)
        assert members in [np.flatnonzero(one).tolist() for one in found]


def test_of_fifty_clients_with_nineteen_contrasts_most_members_are_among_those_pointed_at() -> None:
    """Too few contrasts for certainty: the search goes on from there."""
    shifts, rng = shifts_of(50), np.random.default_rng(0)
    shares = []
    for _ in range(4):
        members = sorted(rng.choice(50, 10, replace=False).tolist())
        found = pointed(shifts, members, 12, 0.0, rng)
        shares.append(max(float(one[members].mean()) for one in found))
    assert np.mean(shares) > 0.5


def test_clients_that_move_nothing_are_pointed_at_by_no_line() -> None:
    shifts = np.zeros((4, 6))
    shifts[:, :3] = np.eye(4, 3)
    found = relaxed_sets(shifts, np.array([1.0, 0.0, 0.0, 0.0]), 1)
    assert [0] in [np.flatnonzero(one).tolist() for one in found]
