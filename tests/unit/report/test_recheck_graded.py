"""Graded evidence is decided again from what the folder keeps; a record that was changed is noticed."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedgt import ScreenSettings
from fedgt.federation.kept_evidence import FILE, read_kept
from fedgt.report import audit
from slow_cases import slow
from small_run import ATTACKERS, START, made

TWICE: dict[str, Any] = {"test_rounds": (1, 3)}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, of which each test has a copy."""
    folder = tmp_path_factory.mktemp("ended") / "run"
    list(made(folder=folder).rounds(START))
    return folder


@pytest.fixture
def folder(ended: Path, tmp_path: Path) -> Path:
    return shutil.copytree(ended, tmp_path / "run")


def changed(folder: Path, **change: Any) -> dict[str, Any]:
    result = json.loads((folder / "result.json").read_text())
    client = next(one for one in result["clients"] if one["id"] in ATTACKERS)
    client |= change
    (folder / "result.json").write_text(json.dumps(result))
    again: dict[str, Any] = audit(folder)["recheck"]
    return again


def test_the_same_record_is_decided_the_same_way(folder: Path) -> None:
    found = audit(folder)["recheck"]
    assert found["status"] == "same", found["reason"]
    assert found["largest_difference"] < 1e-9


@pytest.mark.slow
def test_so_is_one_of_two_tests(tmp_path: Path) -> None:
    list(made(folder=tmp_path / "run", **TWICE).rounds(START))
    kept = read_kept(tmp_path / "run")
    assert kept is not None
    assert [one.round for one in kept.tests] == [1, 3]
    assert audit(tmp_path / "run")["recheck"]["status"] == "same"


@pytest.mark.slow
def test_so_are_tests_in_every_round_after_somebody_was_left_out(tmp_path: Path) -> None:
    every = ScreenSettings(schedule="every-round")
    list(made(folder=tmp_path / "run", screen=every, rounds=4).rounds(START))
    found = audit(tmp_path / "run")
    assert found["recheck"]["status"] == "same", found["recheck"]["reason"]
    assert {one["client"]: one["decided_in"] for one in found["verdicts"] if one["excluded"]} == dict.fromkeys(
        ATTACKERS, 1
    )
    assert changed(tmp_path / "run", posterior=0.5)["status"] == "different"


@pytest.mark.parametrize("change", [{"verdict": "keep", "excluded": False}, {"posterior": 0.5}])
def test_a_record_that_was_changed_is_noticed(folder: Path, change: dict[str, Any]) -> None:
    found = changed(folder, **change)
    assert found["status"] == "different"
    assert any(name in found["reason"] for name in ATTACKERS)


@pytest.mark.parametrize("what", ["gone", "damaged", *slow("of another run")])
def test_without_what_was_compared_nothing_is_claimed(folder: Path, tmp_path: Path, what: str) -> None:
    if what == "gone":
        (folder / FILE).unlink()
    elif what == "damaged":
        (folder / FILE).write_bytes((folder / FILE).read_bytes()[:-40])
    else:
        list(made(folder=tmp_path / "other", seed=2).rounds(START))
        (folder / FILE).write_bytes((tmp_path / "other" / FILE).read_bytes())
    assert audit(folder)["recheck"]["status"] == ("different" if what == "of another run" else "not-made")


def test_no_model_and_no_sum_is_kept(folder: Path) -> None:
    """Whatever is in the file is far smaller than what a sum of updates would need, and the classes that may be in it have
    no place for one."""
    kept = read_kept(folder)
    assert kept is not None
    (test,) = kept.tests
    assert not hasattr(test.evidence, "updates")
    assert getattr(test.evidence, "compared", None) is None  # contrasts of a layer are not kept, only their products
