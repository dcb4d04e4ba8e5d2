"""The picture of the trade-off."""

from pathlib import Path

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.errors import SpecError
from fedgt.planning import Demands, Evaluation, SearchResult, draw_tradeoff
from fedgt.planning.evaluation import evaluate, figures


def result() -> SearchResult:
    demands = Demands(clients=15, privacy=4, max_malicious=5)
    front: list[Evaluation] = [
        evaluate(figures(named_design(name), demands), demands) for name in ("bch-15x8", "graded-15x9")
    ]
    return SearchResult(
        demands=demands,
        front=tuple(front),
        recommended=front[0],
        rule="by hand",
        looked_at=2,
        planned=2,
        seconds=20.0,
        seed=0,
    )


def test_the_picture_shows_a_line_for_each_r_and_the_same_result_gives_the_same_file(tmp_path: Path) -> None:
    one, two = tmp_path / "one.svg", tmp_path / "two.svg"
    draw_tradeoff(one, result())
    draw_tradeoff(two, result())
    text = one.read_text()
    assert text == two.read_text()
    assert "r = 4" in text
    assert "r = 5" in text
    assert len(text) < 60_000


def test_other_formats_and_wrong_endings(tmp_path: Path) -> None:
    draw_tradeoff(tmp_path / "p.png", result())
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(SpecError, match=r"one of \.svg, \.png, \.pdf"):
        draw_tradeoff(tmp_path / "p.gif", result())


def test_what_the_table_says_of_dropouts_is_the_worst_case_and_the_share_that_keeps_the_promise() -> None:
    """15 x 8 with one client missing: r = 3 in the worst case, and every client sits in some group of four."""
    demands = Demands(clients=15, privacy=4, max_malicious=5, dropouts=1)
    one = evaluate(figures(named_design("bch-15x8"), demands), demands)
    assert one.r_after == 3
    assert one.keeps_promise == 0.0
    weaker = Demands(clients=15, privacy=3, max_malicious=5, dropouts=1)
    assert evaluate(figures(named_design("bch-15x8"), weaker), weaker).keeps_promise == 1.0
    np.testing.assert_allclose(one.missed + one.accused, one.wrong)
