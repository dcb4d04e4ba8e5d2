"""The pictures of the paper are for files, so they never touch pyplot."""

import sys
from typing import Any

import numpy as np
import pytest

from fedgt.errors import SpecError
from fedgt.reproduction import figures as draw

pytest.importorskip("matplotlib")


def legend_of(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_papers_values_stand_beside_ours() -> None:
    ours = {"rfa": {0: [0.1, 0.3], 5: [0.2, 0.2]}}
    (axes,) = draw.malicious_figure(ours, label="attack accuracy (%)", paper={"rfa": {5: (0.17, 0.03)}}).axes
    assert legend_of(axes) == ["rfa", "rfa, paper"]


def test_each_number_of_attackers_has_its_panel_and_the_mean_of_its_runs() -> None:
    runs = {3: {"graded": np.array([[84.0, 86.0, 88.0], [84.0, 87.0, 90.0]])}}
    (axes,) = draw.rounds_grid_figure(runs, metric="top1_accuracy", test_round=1).axes
    assert np.asarray(axes.lines[0].get_ydata(), dtype=float).tolist() == [84.0, 86.5, 89.0]
    assert any(line.get_label() == "test round" for line in axes.lines)


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(SpecError, match="nothing to draw"):
        draw.malicious_figure({"fedgt": {}}, label="x")
    with pytest.raises(SpecError, match="nothing to draw"):
        draw.rounds_grid_figure({}, metric="attack_accuracy")


def test_pyplot_is_never_loaded() -> None:
    draw.malicious_figure({"rfa": {0: [0.1], 5: [0.2]}}, label="x")
    assert "matplotlib.pyplot" not in sys.modules
