"""Groups of which all are contaminated by one attacker too often for kappa: one attacker is considered all the same."""

import numpy as np
import pytest

from fedgt.decode import decision_table, decode, estimate_from_outcomes, estimate_malicious, most_considered
from fedgt.design import Design, from_matrix, max_malicious, single_group
from fedgt.types import ErrorRates, Outcomes

RATES = ErrorRates.symmetric(0.05)
FOUR = from_matrix([[1, 1, 1, 0], [1, 1, 0, 1], [1, 0, 1, 1]])
NEIGHBOURS = [
    (FOUR, "110"),
    (FOUR, "011"),
    (from_matrix([[1, 1, 1, 1, 0], [1, 1, 1, 0, 1]]), "10"),
    (from_matrix([[1, 1, 1, 1], [1, 1, 1, 0], [0, 1, 1, 1]]), "1?0"),
    (single_group(6), "1"),
    (single_group(6), "0"),
]


@pytest.mark.parametrize("strategy", ["bayes", "map", "count"])
def test_nobody_is_innocent_for_certain_where_kappa_allows_no_attacker(strategy: str) -> None:
    assert max_malicious(FOUR) == 0
    found = decode(FOUR, Outcomes.parse("110"), rates=RATES, strategy=strategy)  # type: ignore[arg-type]
    assert found.flagged.tolist() == [False, True, False, False]
    assert "n_m^max = 0" in found.reason
    if strategy != "count":
        asked = decode(FOUR, Outcomes.parse("110"), rates=RATES, strategy=strategy, largest=1)  # type: ignore[arg-type]
        np.testing.assert_allclose(found.posterior, asked.posterior)
        assert found.posterior[1] == pytest.approx(0.935, abs=5e-4)
        assert "n_m^max = 0" not in asked.reason


@pytest.mark.parametrize(("design", "outcomes"), NEIGHBOURS)
@pytest.mark.parametrize("strategy", ["bayes", "map"])
def test_every_posterior_of_such_groups_lies_between_the_certainties(
    design: Design, outcomes: str, strategy: str
) -> None:
    found = decode(design, Outcomes.parse(outcomes), rates=RATES, strategy=strategy, kappa=0.1)  # type: ignore[arg-type]
    assert ((found.posterior > 0.0) & (found.posterior < 1.0)).all()


def test_estimates_and_tables_consider_one_attacker_too() -> None:
    assert most_considered(FOUR, 0.2) == 1
    assert estimate_malicious(FOUR, Outcomes.parse("110")).largest == 1
    assert estimate_from_outcomes(FOUR, np.array([[1, 1, 0]], dtype=np.int8), RATES).tolist() == [1]
    table = decision_table(FOUR, np.array([[1, 1, 0]], dtype=np.int8), rates=RATES, strategy="bayes")
    assert table.tolist() == [[False, True, False, False]]


def test_who_asks_for_no_attacker_is_told_that_nobody_can_be_accused() -> None:
    found = decode(FOUR, Outcomes.parse("110"), rates=RATES, largest=0)
    assert not found.flagged.any()
    assert "nobody can be accused" in found.reason
