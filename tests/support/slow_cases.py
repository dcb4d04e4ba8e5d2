"""Further cases of a rule of which one case is always tested, and how many."""

import os
from typing import Any

import pytest

EXAMPLES = int(os.environ.get("FEDGT_EXAMPLES", "60"))
"""Of each law, if it is not told: `make test` and CI ask for fewer."""


def tries(count: int) -> int:
    """How many of so many random cases are tried: all with 60 examples of each law, else as large a part of them."""
    return max(1, round(count * min(1.0, EXAMPLES / 60)))


def slow(*cases: Any) -> list[Any]:
    """These cases belong to the slow tests; a tuple has one value for each argument of the test."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow) for case in cases]
