"""Further cases of a rule of which one case is always tested."""

from typing import Any

import pytest


def slow(*cases: Any) -> list[Any]:
    """These cases belong to the slow tests; a tuple has one value for each argument of the test."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow) for case in cases]
