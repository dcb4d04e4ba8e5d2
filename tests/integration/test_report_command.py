"""`fedgt report` on a real run, and on the largest federation it is meant for."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from command_line import called as fedgt
from fedgt.design import Design, from_matrix
from fedgt.experiment import make_spec, run_into
from fedgt.report import audit, write_report
from report_lab import decided_result, spec_of, write_folder


def test_a_real_run_gives_two_files_whose_decision_is_confirmed(tmp_path: Path) -> None:
    overrides = {"screen.kind": "clusters"} if hasattr(make_spec({"privacy": 4}).screen, "kind") else {}
    content = {
        "privacy": 4,
        "federation": {"rounds": 2},
        "attack": {"malicious": 2},
        "design": {"name": "bch-15x8"},
        "screen": {"utility": "top1"},
        "decode": {"on_undecidable": "keep-all", "strategy": "bayes"},
        "faults": [{"client": 3, "round": 2}],
    }
    run_into(make_spec(content, overrides), tmp_path / "run")
    done = fedgt("report", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "same decision again: same" in done.stdout
    report = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    assert report["privacy"]["check"]["status"] == "same"
    assert report["incidents"]["absent"] == [{"round": 2, "clients": ["client-03"]}]
    assert (tmp_path / "run" / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_json_goes_to_stdout_and_files_where_they_are_wanted(tmp_path: Path) -> None:
    spec = spec_of(15)
    folder = write_folder(tmp_path / "run", decided_result(spec), spec)
    done = fedgt("report", folder, "--out", tmp_path / "there", "--json")
    assert json.loads(done.stdout) == json.loads((tmp_path / "there" / "report.json").read_text(encoding="utf-8"))
    assert not (folder / "report.html").exists()


def test_a_folder_without_a_result_is_bad_input(tmp_path: Path) -> None:
    done = fedgt("report", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "holds no result.json" in done.stderr


def wide(members: int) -> Design:
    rng = np.random.default_rng(1)
    matrix = np.zeros((20, 50), dtype=np.uint8)
    for row in matrix:
        row[rng.permutation(50)[:members]] = 1
    matrix[rng.integers(20, size=50), np.arange(50)] = 1
    return from_matrix(matrix, name="wide")


@pytest.mark.parametrize("members", [3, 9])
def test_fifty_clients_in_twenty_groups_stay_small_and_fast(tmp_path: Path, members: int) -> None:
    """Two seconds of processor time and 2 MB: also where the decoder is too wide to be run again."""
    spec = spec_of(50, rounds=10, design=wide(members))
    result = decided_result(spec, design=wide(members), outcomes="01" * 10, rounds=10)
    folder = write_folder(tmp_path, result, spec)
    audit(folder)  # what is imported on first use does not count
    began = time.process_time()
    report = write_report(folder)
    assert time.process_time() - began < 2.0
    assert (folder / "report.html").stat().st_size < 2_000_000
    assert report["summary"]["clients"] == 50
    assert report["recheck"]["status"] == ("same" if members == 3 else "not-made")
