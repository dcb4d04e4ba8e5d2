"""The certificates of the designs for graded evidence, and the published ties of the code they replace."""

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.design.graded import graded_designs
from fedgt.planning.ties import ties
from fedgt.privacy import minimum_support

# name -> r, r with the sum over all clients revealed too, untied up to, expected wrong clients by ties for n_m = 0, 1, ...
CERTIFICATES: dict[str, tuple[int, int, int, list[float]]] = {
    "graded-15x10": (4, 4, 6, [0, 0, 0, 0, 0, 0, 0, 0.0008]),
    "graded-15x9": (5, 4, 4, [0, 0, 0, 0, 0, 0.0090, 0.0334, 0.0654]),
    "graded-15x8": (5, 4, 3, [0, 0, 0, 0, 0.0484, 0.1602, 0.3090, 0.4345]),
    "graded-15x10-b": (4, 4, 7, [0, 0, 0, 0, 0, 0, 0, 0]),
    "graded-15x9-b": (5, 4, 5, [0, 0, 0, 0, 0, 0, 0.0010, 0.0016]),
    "graded-15x8-b": (5, 4, 3, [0, 0, 0, 0, 0.0147, 0.0709, 0.1818, 0.2876]),
    "graded-10x5": (5, 4, 2, [0, 0, 0, 0.8000, 1.3905]),
    "graded-10x6": (4, 3, 2, [0, 0, 0, 0.0250, 0.1286]),
    "graded-20x10": (7, 6, 3, [0, 0, 0, 0, 0.0014, 0.0139]),
    "graded-20x12": (5, 4, 5, [0, 0, 0, 0, 0, 0]),
    "graded-30x12": (10, 10, 3, [0, 0, 0, 0, 0.0035]),
    "graded-30x15": (7, 7, 4, [0, 0, 0, 0, 0]),
}


def test_every_design_for_graded_evidence_has_a_certificate() -> None:
    assert set(graded_designs()) == set(CERTIFICATES)


@pytest.mark.parametrize("name", CERTIFICATES)
def test_designs_for_graded_evidence_keep_their_certificates(name: str) -> None:
    r, r_with_sum, untied, wrong = CERTIFICATES[name]
    design = named_design(name)
    for rows, expected in ((design.matrix, r), (np.vstack([design.matrix, np.ones(design.clients)]), r_with_sum)):
        support = minimum_support(rows)
        assert support is not None
        assert (support.lower, support.upper) == (expected, expected)
    found = ties(design, len(wrong) - 1)
    assert found.untied == untied
    np.testing.assert_allclose(found.expected_wrong, wrong, atol=5e-5)
    assert f"r = {r}," in design.source
    assert f"up to {untied} attackers" in design.source


@pytest.mark.parametrize("groups", [8, 9, 10])
def test_the_later_designs_for_15_clients_have_no_more_ties_at_any_n_m_and_the_same_r(groups: int) -> None:
    first, later = f"graded-15x{groups}", f"graded-15x{groups}-b"
    before, after = (ties(named_design(name), 7).expected_wrong for name in (first, later))
    assert (after <= before + 1e-12).all()
    assert after.sum() < before.sum()
    assert CERTIFICATES[later][0] == CERTIFICATES[first][0]


def test_ties_by_direction_on_the_code_for_15_clients() -> None:
    """Recomputed figures for the paper's 15 x 8 design; the one at n_m = 5 was stated as 1.05 and is 1.0445."""
    np.testing.assert_allclose(
        ties(named_design("bch-15x8"), 7).expected_wrong, [0, 0, 0, 0.125, 0.46, 1.05, 1.69, 2.29], atol=0.006
    )
