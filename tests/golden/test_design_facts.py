"""Published and recomputed numbers of the named designs: contamination, n_m^max, the estimate of n_m, privacy r."""

from itertools import combinations

import numpy as np
import pytest

from fedgt.decode import estimate_malicious
from fedgt.design import all_contaminated, max_malicious, named_design
from fedgt.privacy import minimum_support
from fedgt.types import Outcomes


def test_all_groups_contaminated_for_15x8_and_30x12_to_six_digits() -> None:
    small = [0, 0, 0, 0.006593, 0.05641, 0.191142, 0.3998, 0.62129, 0.798757]
    large = [0, 0, 0, 0, 0.000584, 0.006007, 0.028848, 0.083578, 0.175501, 0.296742]
    np.testing.assert_allclose(all_contaminated(named_design("bch-15x8"))[:9], small, atol=5e-7)
    np.testing.assert_allclose(all_contaminated(named_design("cyclic-30x12"))[:10], large, atol=5e-7)


def test_n_m_max_at_kappa_one_fifth_is_five_and_eight() -> None:
    assert max_malicious(named_design("bch-15x8"), 0.2) == 5  # section V.A of the paper
    assert max_malicious(named_design("cyclic-30x12"), 0.2) == 8


@pytest.mark.parametrize(
    ("name", "estimates"),
    [
        ("bch-15x8", [5, 5, 4, 3, 2, 1, 1, 1, 0]),
        ("cyclic-30x12", [8, 8, 7, 6, 4, 3, 3, 3, 2, 1, 1, 1, 0]),
    ],
)
def test_the_estimate_of_n_m_for_every_number_of_negative_groups(name: str, estimates: list[int]) -> None:
    design = named_design(name)
    found = [
        estimate_malicious(design, Outcomes(values=np.array([0] * z + [1] * (design.groups - z)))).malicious
        for z in range(design.groups + 1)
    ]
    assert found == estimates


@pytest.mark.parametrize(("name", "r"), [("bch-15x8", 4), ("cyclic-30x12", 6), ("hamming-15x4", 8)])
def test_real_minimum_support_of_the_named_designs(name: str, r: int) -> None:
    support = minimum_support(named_design(name).matrix)
    assert support is not None
    assert (support.lower, support.upper) == (r, r)


def test_over_the_reals_the_three_by_three_example_reveals_single_clients() -> None:
    """Its GF(2) distance is 2, its real minimum support 1."""
    support = minimum_support([[1, 1, 0], [1, 0, 1], [0, 1, 1]])
    assert support is not None
    assert support.r == 1


def test_the_papers_own_aggregate_lowers_15x8_to_three_when_nobody_is_flagged() -> None:
    design = named_design("bch-15x8")
    support = minimum_support(np.vstack([design.matrix, np.ones(15)]))
    assert support is not None
    assert (support.lower, support.upper) == (3, 3)


def test_flagging_2_and_12_reveals_client_7_exactly() -> None:
    """Case 39: (u0 + u4 + u6 + u7 - u_final) / 3 is client 7's model."""
    design = named_design("bch-15x8")
    final = np.ones(15)
    final[[2, 12]] = 0
    rows = np.vstack([design.matrix, final])
    support = minimum_support(rows)
    assert support is not None
    assert support.r == 1
    assert support.clients == (7,)
    assert [float(3 * b) for b in support.combination] == [1, 0, 0, 0, 1, 0, 1, 1, -1]
    np.testing.assert_allclose(np.array(support.combination, dtype=float) @ rows, np.eye(15)[7], atol=1e-12)


@pytest.mark.parametrize(
    ("flagged", "exposing"), [(2, 1), (3, 1), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((4, 0), (5, 9)))]
)
def test_the_number_of_flag_sets_that_expose_a_single_client(flagged: int, exposing: int) -> None:
    design = named_design("bch-15x8")
    found = 0
    for chosen in combinations(range(15), flagged):
        final = np.ones(15)
        final[list(chosen)] = 0
        support = minimum_support(np.vstack([design.matrix, final]), enough=2)
        assert support is not None
        found += support.lower < 2
    assert found == exposing


def test_weighted_and_unweighted_sums_of_the_same_models_reveal_everything() -> None:
    matrix = named_design("bch-15x8").matrix
    weights = np.arange(100, 115)
    both = np.vstack([matrix, matrix * weights])
    support = minimum_support(both)
    assert np.linalg.matrix_rank(both) == 15
    assert support is not None
    assert support.r == 1


@pytest.mark.parametrize(
    ("name", "r", "n_m_max"), [("graded-15x10", 4, 3), ("graded-15x9", 5, None), ("graded-15x8", 5, None)]
)
def test_designs_for_graded_evidence_keep_their_privacy(name: str, r: int, n_m_max: int | None) -> None:
    design = named_design(name)
    assert 4 <= design.group_sizes.min() <= design.group_sizes.max() <= 9
    support = minimum_support(design.matrix)
    assert support is not None
    assert (support.lower, support.upper) == (r, r)
    with_everybody = minimum_support(np.vstack([design.matrix, np.ones(15)]))
    assert with_everybody is not None
    assert with_everybody.r >= 4
    if n_m_max is not None:
        assert max_malicious(design, 0.2) == n_m_max


def directions(matrix: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], largest: int) -> list[list[int]]:
    """For n_m = 0..largest, how many sets of that size share their direction of P d with a set of at most that size."""
    fractions = matrix / matrix.sum(axis=1, keepdims=True)
    seen: dict[bytes, int] = {}
    shared = []
    for q in range(1, largest + 1):
        keys = []
        for chosen in combinations(range(matrix.shape[1]), q):
            move = fractions[:, list(chosen)].sum(axis=1)
            move = move - move.mean()
            length = np.linalg.norm(move)
            keys.append(np.round(move / length if length > 1e-12 else move, 9).tobytes())
        for key in keys:
            seen[key] = seen.get(key, 0) + 1
        shared.append([sum(seen[key] > 1 for key in keys), len(keys)])
    return shared


@pytest.mark.parametrize(("name", "untied"), [("graded-15x10", 6), ("graded-15x9", 4), ("graded-15x8", 3)])
def test_small_sets_of_attackers_move_the_group_means_in_different_directions(name: str, untied: int) -> None:
    """Sets of up to so many clients, equal weights; 15x8 from the code has ties from three attackers on."""
    assert all(tied == 0 for tied, _ in directions(named_design(name).matrix, untied))
    assert any(tied > 0 for tied, _ in directions(named_design("bch-15x8").matrix, 3))
