"""Messages show numbers and strings as a user writes them, wherever they came from."""

from collections.abc import Callable

import numpy as np
import pytest

from fedgt.decode import IndependentPrior
from fedgt.design import from_matrix, max_malicious
from fedgt.errors import DesignError, FedGTError, SpecError
from fedgt.grouping import Grouping
from fedgt.types import ErrorRates, Outcomes

ROWS = np.array([[1, 1, 0], [0, 1, 1]])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: from_matrix(ROWS * 2), "got 2 in row 0"),
        (lambda: from_matrix(ROWS.astype(np.float32) / 2), "got 0.5 in row 0"),
        (lambda: from_matrix(ROWS.astype(str)), "'"),
        (lambda: from_matrix(ROWS).restricted(np.array([5])), "group 5"),  # type: ignore[arg-type]
        (lambda: max_malicious(from_matrix(ROWS), np.float64(1.5)), "kappa = 1.5"),
        (lambda: ErrorRates.symmetric(np.float64(2.0)), "2.0"),
        (lambda: Outcomes(values=np.array([0, 1, 7], dtype=np.int8)), "7"),
        (lambda: IndependentPrior(prevalence=np.array([0.5, 1.5])), "1.5"),
        (lambda: Grouping(design=from_matrix(ROWS), clients=tuple(np.array(["1", "1", "2"]))), "'1'"),
    ],
)
def test_no_message_shows_how_numpy_writes_a_number(call: Callable[[], object], said: str) -> None:
    with pytest.raises(FedGTError) as caught:
        call()
    assert said in str(caught.value)
    assert "np." not in str(caught.value)


def test_numbers_in_lists_are_shown_as_numbers_and_other_words_stay() -> None:
    values = (np.int64(2), np.float32(0.5), np.str_("1"), np.bool_(True), np.uint8(3))
    assert str(SpecError(f"given {list(values)}")) == "given [2, 0.5, '1', True, 3]"
    assert str(DesignError("use np.asarray(x) and np.int64")) == "use np.asarray(x) and np.int64"
    assert DesignError("a", 3).args == ("a", 3)
    assert str(FedGTError()) == ""
