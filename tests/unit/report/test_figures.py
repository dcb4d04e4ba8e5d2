"""The figures draw what the report says; they are for scripts, so they never touch pyplot."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt.errors import SpecError
from fedgt.report import audit
from fedgt.report import figures as draw
from report_lab import decided_result, spec_of, untested_result, write_folder

pytest.importorskip("matplotlib")


@pytest.fixture
def report(tmp_path: Path) -> dict[str, Any]:
    spec = spec_of(15)
    names = ["$x^2$", *(f"c{j}" for j in range(14))]
    return audit(write_folder(tmp_path, decided_result(spec, names=names), spec))


def legend_of(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_assignment_shows_every_seat_once(report: dict[str, Any], tmp_path: Path) -> None:
    figure = draw.assignment_figure(report)
    (axes,) = figure.axes
    drawn = sum(len(np.asarray(one.get_offsets())) for one in axes.collections)
    assert drawn == sum(len(row["groups"]) for row in report["verdicts"])
    labels = axes.get_yticklabels()
    assert [label.get_fontweight() == "bold" for label in labels] == [
        bool(row["excluded"]) for row in report["verdicts"]
    ]
    figure.savefig(tmp_path / "a.png")  # a name with $ is no formula


def test_the_evidence_has_one_point_for_each_tested_group(report: dict[str, Any]) -> None:
    (axes,) = draw.evidence_figure(report).axes
    assert len(axes.lines) == 7
    assert {text.get_text() for text in axes.texts} == {"0 +", "1 +", "2", "3 +", "5", "6", "7"}


def test_the_curves_are_the_rounds_in_per_cent(report: dict[str, Any]) -> None:
    (axes,) = draw.curves_figure(report).axes
    drawn = np.asarray(axes.lines[0].get_ydata(), dtype=float)
    assert drawn == pytest.approx([100 * row["top1_accuracy"] for row in report["rounds"]])
    assert any(line.get_label() == "test round" for line in axes.lines)


def test_the_papers_values_stand_beside_ours() -> None:
    ours = {"rfa": {0: [0.1, 0.3], 5: [0.2, 0.2]}}
    (axes,) = draw.malicious_figure(ours, label="attack accuracy (%)", paper={"rfa": {5: (0.17, 0.03)}}).axes
    assert legend_of(axes) == ["rfa", "rfa, paper"]


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    spec = spec_of(15)
    untested = audit(write_folder(tmp_path / "untested", untested_result(spec), spec))
    with pytest.raises(SpecError, match="no group test"):
        draw.assignment_figure(untested)
    with pytest.raises(SpecError, match="nothing to draw"):
        draw.malicious_figure({"fedgt": {}}, label="x")


def test_pyplot_is_never_loaded(report: dict[str, Any]) -> None:
    draw.curves_figure(report)
    assert "matplotlib.pyplot" not in sys.modules
