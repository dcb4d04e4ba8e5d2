"""A design with coefficients for every number of clients and every r, at the bound, with a proof that anybody checks."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.design import proved, reed_solomon
from fedgt.errors import DesignError
from fedgt.privacy import disclosed_share, minimum_support
from slow_cases import slow


@pytest.mark.parametrize("clients", [*range(6, 16), *slow(*range(16, 30)), 30, *slow(*range(31, 50)), 50])
def test_every_r_up_to_half_the_clients_is_reached_at_the_bound_and_proved(clients: int) -> None:
    for privacy in range(2, clients // 2 + 1):
        design, proof = reed_solomon(clients, privacy)
        assert design.groups == clients - privacy + 1
        assert (proof.privacy, proved(design.matrix, proof)) == (privacy, True)
        first = design.stage(0)
        assert (first.sum(axis=0) == 1).all()
        assert first.max() == 1
        assert first.sum(axis=1).min() >= privacy
        assert set(np.count_nonzero(design.matrix[design.stages[0] :], axis=1)) <= {privacy}
        assert design.largest_entry < proof.prime < 2 * clients


@pytest.mark.parametrize("clients", range(4, 15))
def test_the_exhaustive_search_for_r_says_the_same(clients: int) -> None:
    for privacy in range(2, clients // 2 + 1):
        support = minimum_support(reed_solomon(clients, privacy)[0].matrix)
        assert support is not None
        assert support.exact
        assert support.r == privacy


@given(data=st.data(), clients=st.integers(4, 11))
@settings(max_examples=40, deadline=None)
def test_every_part_of_the_rows_keeps_r(data: st.DataObject, clients: int) -> None:
    privacy = data.draw(st.integers(2, clients // 2))
    matrix = reed_solomon(clients, privacy)[0].matrix
    part = data.draw(st.lists(st.sampled_from(range(len(matrix))), min_size=1, unique=True))
    support = minimum_support(matrix[part], enough=privacy)
    assert support is not None
    assert support.lower >= privacy


@given(data=st.data(), clients=st.integers(4, 9))
@settings(max_examples=120, deadline=None)
def test_a_proof_that_holds_is_true_whatever_was_changed(data: st.DataObject, clients: int) -> None:
    """Entries, points, multipliers, the prime and the claim are changed as a liar would."""
    privacy = data.draw(st.integers(2, clients // 2))
    design, proof = reed_solomon(clients, privacy)
    matrix = design.matrix.copy()
    for _ in range(data.draw(st.integers(0, 2))):
        row, column = data.draw(st.integers(0, len(matrix) - 1)), data.draw(st.integers(0, clients - 1))
        matrix[row, column] = data.draw(st.integers(0, proof.prime + 2))
    proof = replace(
        proof,
        privacy=data.draw(st.sampled_from([privacy, privacy + 1, clients])),
        prime=data.draw(st.sampled_from([proof.prime, proof.prime, 2, 9, 101])),
        points=data.draw(st.sampled_from([proof.points, (0,) * clients, proof.points[::-1]])),
    )
    if proved(matrix, proof):
        support = minimum_support(matrix)
        assert support is not None
        assert support.r >= proof.privacy


def test_a_changed_entry_breaks_the_proof() -> None:
    design, proof = reed_solomon(15, 4)
    matrix = design.matrix.copy()
    matrix[5, 0] += 1
    assert not proved(matrix, proof)
    assert not proved(np.vstack([design.matrix, design.matrix[:1]]), proof), "dependent rows prove nothing"
    assert not proved(design.matrix, replace(proof, privacy=5))
    assert not proved(design.matrix, replace(proof, multipliers=(0, *proof.multipliers[1:])))


def test_fewer_rows_disclose_less_and_are_the_first_of_all() -> None:
    whole, few = reed_solomon(15, 4)[0], reed_solomon(15, 4, groups=7)[0]
    np.testing.assert_array_equal(few.matrix, whole.matrix[:7])
    shares = [disclosed_share(one.matrix, weights=np.ones(15)) for one in (whole, few)]
    assert [one.mean for one in shares if one] == pytest.approx([11 / 14, 6 / 14])


@pytest.mark.parametrize(
    ("clients", "privacy", "groups", "message"),
    [
        (1, 1, None, "1 clients; 2 to 200"),
        (201, 4, None, "201 clients"),
        (15, 8, None, "1 to 7 is possible"),
        (15, 0, None, "privacy 0"),
        (15, 4, 13, "13 groups; 3 .* to 12"),
        (15, 4, 2, "2 groups; 3"),
    ],
)
def test_what_has_no_such_design_is_refused(clients: int, privacy: int, groups: int | None, message: str) -> None:
    with pytest.raises(DesignError, match=message):
        reed_solomon(clients, privacy, groups=groups)
