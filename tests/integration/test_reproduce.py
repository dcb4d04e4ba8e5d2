"""`fedgt reproduce`, `fedgt report tables` and `fedgt features` as a user calls them."""

import csv
import json
from pathlib import Path

import pytest

from command_line import called as call


def test_the_robustness_table_needs_no_data(tmp_path: Path) -> None:
    result = call("reproduce", "robustness", "--out", str(tmp_path))
    assert result.returncode == 0
    assert "43 of 45 cells" in result.stdout
    with (tmp_path / "robustness.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 45
    assert json.loads(call("reproduce", "robustness", "--json").stdout)["rows"][0]["malicious"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--methods", "krum"), "unknown method krum"),
        (("--malicious", "three"), "numbers separated by commas"),
        (("--malicious", "0", "--methods", "oracle"), "no run is left"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_read(arguments: tuple[str, ...], said: str) -> None:
    result = call("reproduce", "targeted", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert said in result.stderr


@pytest.mark.parametrize("command", [("reproduce", "targeted", "--dataset", "cifar10"), ("features", "cifar10")])
def test_features_need_a_folder_with_the_images(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDGT_DATA", raising=False)
    assert "set FEDGT_DATA or --data-dir" in call(*command).stderr
    # Without torch the extra is named, with it the missing images.
    failed = call(*command, "--data-dir", str(tmp_path))
    assert failed.returncode == 2
    assert "fedgt[train]" in failed.stderr or "official binary version" in failed.stderr


def test_tables_of_an_empty_folder(tmp_path: Path) -> None:
    result = call("report", "tables", "--results", str(tmp_path))
    assert result.returncode == 2
    assert "fedgt reproduce targeted" in result.stderr


@pytest.mark.slow
@pytest.mark.needs_mnist
def test_a_reproduction_on_mnist_from_rows_to_tables(mnist_dir: Path, tmp_path: Path) -> None:
    """Two seeds of three methods; a second call runs nothing."""
    arguments = ("reproduce", "targeted", "--seeds", "2", "--malicious", "5", "--methods", "no-defence,oracle,graded")
    first = call(*arguments, "--out", str(tmp_path), "--data-dir", str(mnist_dir), "--workers", "2")
    assert first.returncode == 0, first.stderr
    rows = (tmp_path / "mnist.csv").read_text()
    assert call(*arguments, "--out", str(tmp_path)).returncode == 0
    assert (tmp_path / "mnist.csv").read_text() == rows
    found = json.loads(call("report", "tables", "--results", str(tmp_path), "--json").stdout)["comparisons"]
    values = {(one["cell"]["variant"], one["metric"]): one for one in found}
    assert values["no-defence", "attack_accuracy"]["mean"] > 2
    assert values["graded", "attack_accuracy"]["mean"] < 0.2
    assert values["graded", "attack_accuracy"]["missed"] == 0
    assert values["no-defence", "attack_accuracy"]["verdict"] == "within"
    text = call("report", "tables", "--results", str(tmp_path)).stdout
    assert "| 5 | graded | attack |" in text
