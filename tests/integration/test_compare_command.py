"""`fedgt compare`: the same federations for every method, rows that add up, and what is refused."""

import csv
import json
from pathlib import Path

import pytest

from command_line import called
from fedgt.experiment import make_spec, run

SPEC = """\
privacy = 4
federation.rounds = 1
training = {learning_rate = 0.05, batch_size = 8, local_epochs = 2}
attack = {kind = "label-flip", source = 9, target = 3, malicious = 3}
"""


def compare(folder: Path, *arguments: str) -> tuple[int, str]:
    (folder / "spec.toml").write_text(SPEC, encoding="utf-8")
    done = called("compare", "spec.toml", "--out", "rows.csv", "--workers", "1", *arguments, cwd=folder)
    return done.returncode, done.stdout


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "rows.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_method_has_the_same_runs_and_more_seeds_only_add_rows(tmp_path: Path) -> None:
    code, said = compare(tmp_path, "--methods", "oracle,no-defence", "--malicious", "0,3", "--seeds", "1")
    assert code == 0
    first = rows(tmp_path)
    assert [(row["method"], row["malicious_clients"], row["seed"]) for row in first] == [
        ("oracle", "0", "0"),
        ("no-defence", "0", "0"),
        ("oracle", "3", "0"),
        ("no-defence", "3", "0"),
    ]
    # Where nobody attacks, the bounds are the same run.
    assert first[0]["top1_accuracy_percent"] == first[1]["top1_accuracy_percent"]
    assert len(said.splitlines()) == 1 + 4 + 1
    code, said = compare(tmp_path, "--methods", "oracle", "--malicious", "3", "--seeds", "2", "--json")
    assert code == 0
    assert rows(tmp_path)[:4] == first
    assert len(rows(tmp_path)) == 5
    assert {row["seed"] for row in json.loads(said.splitlines()[-1])["rows"]} == {"0", "1"}


@pytest.mark.slow
def test_a_row_is_what_the_run_itself_gives(tmp_path: Path) -> None:
    assert (
        compare(tmp_path, "--methods", "fedgt", "--seeds", "1", "--first-seed", "5", "--set", "federation.rounds=1")[0]
        == 0
    )
    changes = {"seed": 5, "federation.rounds": 1}
    spec = make_spec({"privacy": 4, "training": {"learning_rate": 0.05, "batch_size": 8, "local_epochs": 2}}, changes)
    spec = make_spec(spec.model_dump(), {"attack": {"kind": "label-flip", "source": 9, "target": 3, "malicious": 3}})
    (row,) = rows(tmp_path)
    result = run(spec)
    assert row["missed_clients"] == str(result.missed)
    accuracy = result.rounds[-1].top1_accuracy
    assert accuracy is not None
    assert row["top1_accuracy_percent"] == f"{100 * accuracy:.4f}"


@pytest.mark.parametrize(
    "arguments",
    [("--methods", "krum"), ("--methods", "fedgt,fedgt"), ("--malicious", "0,x"), ("--attacks", "label-flip,")],
)
def test_what_cannot_be_run_is_refused_and_leaves_no_file(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, _ = compare(tmp_path, *arguments)
    assert code == 2
    assert not (tmp_path / "rows.csv").exists()
