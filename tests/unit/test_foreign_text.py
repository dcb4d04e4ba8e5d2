"""What others wrote can neither forge a line of a log nor control a terminal nor fill a disk."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedgt.foreign_text import LONGEST, plain


@given(st.text())
@example("a" * 400)
@example("\ud800")
def test_whatever_was_written_is_one_printable_line_of_bounded_length(text: str) -> None:
    shown = plain(text)
    assert shown.isprintable()
    assert len(shown) <= LONGEST
    assert plain(shown) == shown
    shown.encode()


@given(st.text(st.characters(exclude_categories=["C", "Z"]), max_size=LONGEST))
def test_a_usual_text_stays_as_it_is(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b[2J",
        "\x9b31m",
        "\r\n2026-01-01 INFO all is well",
        "\u2028next line",
        "\u202eevil",
        "\u2066isolated",
        "\u200binvisible",
        "\x07",
        "\x00",
    ],
)
def test_nothing_controls_the_terminal_or_the_order_of_the_letters(hostile: str) -> None:
    shown = plain(f"disk full {hostile}")
    assert not any(one in shown for one in hostile if not one.isprintable())
    assert shown.startswith("disk full ")


def test_a_long_text_is_cut_and_says_so() -> None:
    assert plain("a" * 5_000_000) == "a" * (LONGEST - 1) + "…"
    assert plain(ValueError("b" * 500), longest=10) == "b" * 9 + "…"
    assert plain("c" * 500, longest=None) == "c" * 500
