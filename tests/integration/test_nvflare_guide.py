"""The guide of NVIDIA FLARE runs as written, on loopback: from the startup kits to the report."""

import importlib
import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install '.[nvflare]'")

from doc_blocks import run_page
from fedgt import FederationRun, Validation
from fedgt.federation import SumSettings
from fedgt.planning import read_plan
from site_of_app import LocalSite, end_processes

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "nvflare.md"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("nvflare") is None, reason="needs nvflare on the PATH"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty one; whatever FLARE still runs there in the end is ended."""
    yield tmp_path
    end_processes(tmp_path)


def alike(folder: Path) -> dict[str, Any]:
    """`result.json` without versions, seconds, the settings' hash, and what the messages cost."""
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    for key in ("version", "spec_hash", "cpu_seconds"):
        del result[key]
    for row in result["rounds"]:
        del row["bytes_up"], row["bytes_down"]
    return result


def test_the_guide_ends_with_the_report_of_the_run_that_it_set_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_page(GUIDE, folder, seconds=540) >= 6
    there = folder / "runs" / "winter"
    report = json.loads((there / "report.json").read_text())
    assert not report["simulation"]
    assert (there / "report.html").is_file()

    monkeypatch.syspath_prepend(str(folder / "programs"))
    model = importlib.import_module("consortium.model")
    samples = tomllib.loads((folder / "samples.toml").read_text())
    with np.load(folder / "validation.npz") as data:
        images, labels = data["images"], data["labels"]
    run = FederationRun(
        {site: LocalSite(model, folder / f"{site}.npz") for site in samples},
        privacy=2,
        samples=samples,
        grouping=read_plan(folder / "plan.json"),
        validation=Validation(
            logits=lambda parameters: model.logits(parameters, images), labels=labels, inputs=lambda _: images
        ),
        rounds=2,
        sums=SumSettings(colluders=0),
        folder=folder / "local",
    )
    steps = list(run.rounds(model.first()))
    assert steps[-1].excluded == ("delft",)
    assert alike(there) == alike(folder / "local"), "real sites change no number"
