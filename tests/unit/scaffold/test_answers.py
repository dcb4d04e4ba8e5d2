"""Names become files, shell words and TOML keys: what cannot be all of these is refused."""

from typing import Any

import pytest

from fedgt.errors import SpecError
from fedgt.scaffold import Answers

GOOD: dict[str, Any] = {
    "sites": ("aarhus", "bergen-2", "cadiz_3", "4"),
    "privacy": 3,
    "framework": "scikit-learn",
    "rounds": 1,
    "run": "winter",
}


def test_plain_names_are_taken() -> None:
    assert Answers(**GOOD).sites == GOOD["sites"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"sites": ("a", "b c")},
        {"sites": ("a", "../b")},
        {"sites": ("a", "$(reboot)")},
        {"sites": ("a", "-rf")},
        {"sites": ("a", "Ärzte")},
        {"sites": ("a", "")},
        {"sites": ("a", "a")},
        {"sites": ("a", "server")},
        {"sites": ("a", "b" * 41)},
        {"run": "x y"},
        {"framework": "jax"},
        {"privacy": 2},
        {"rounds": 0},
    ],
    ids=str,
)
def test_what_cannot_be_a_file_or_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        Answers(**GOOD | wrong)
