"""The evidence of a scatter matrix, with its scale and its number of dimensions unknown."""

import numpy as np
import pytest

from fedgt.errors import ShapeError
from fedgt.evidence.sphericity import sphericity, statistic


def test_equal_contrasts_have_the_statistic_nought_and_any_others_less() -> None:
    assert float(statistic(np.full(5, 3.0), np.ones(1))[0]) == pytest.approx(0.0, abs=1e-12)
    assert float(statistic(np.array([4.0, 1, 1, 1]), np.ones(1))[0]) < 0
    # Dividing the first by what it is too large makes them equal.
    assert float(statistic(np.array([4.0, 1, 1, 1]), np.array([4.0]))[0]) == pytest.approx(0.0, abs=1e-12)


def test_the_statistic_does_not_know_the_scale() -> None:
    values, divided = np.array([9.0, 2, 1, 0.5]), np.array([1.0, 3.0, 10.0])
    np.testing.assert_allclose(statistic(values * 1e6, divided), statistic(values, divided), atol=1e-9)


@pytest.mark.parametrize(("contrasts", "features"), [(1, 2), (3, 50), (9, 7850)])
def test_the_evidence_rises_with_the_statistic(contrasts: int, features: int) -> None:
    table = sphericity(contrasts, features)
    x = -np.geomspace(1e-6, 50, 200)
    evidence = table.log_evidence(x)
    assert np.isfinite(evidence).all()
    assert (np.diff(evidence) < 0).all()  # x falls along the array
    assert table.log_evidence(x.reshape(4, 50)).shape == (4, 50)


def test_the_more_equal_the_contrasts_the_more_features_vary_independently() -> None:
    table = sphericity(9, 7850)
    found = [table.effective_features(float(x)) for x in -np.geomspace(1e-4, 20, 50)]
    assert (np.diff(found) < 0).all()
    assert 9 < found[-1] < 20
    assert 2000 < found[0] < 7851


@pytest.mark.parametrize(("contrasts", "features"), [(0, 5), (5, 5), (6, 5)])
def test_a_matrix_with_no_more_features_than_contrasts_is_refused(contrasts: int, features: int) -> None:
    with pytest.raises(ShapeError, match="more features than contrasts"):
        sphericity(contrasts, features)
