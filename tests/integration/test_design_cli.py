"""`fedgt design --clients ...` as a user calls it."""

import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fedgt.design import read_design
from fedgt.federation import ScreenSettings
from fedgt.planning import read_plan
from fedgt.privacy import minimum_support
from small_run import Site, made

DEMANDS = ("--clients", "8", "--privacy", "2", "--max-malicious", "2", "--groups-max", "5", "--effort", "0.02")


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def fedgt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """The command line in this process, in a folder of its own."""

    def run(*arguments: str | Path) -> Done:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["fedgt", *map(str, arguments)])
        code = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # typer's own use of click
            from fedgt.cli import main

            try:
                main()
            except SystemExit as stop:
                code = int(stop.code or 0)
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return run


def test_a_search_prints_a_table_and_writes_plan_picture_and_matrix(fedgt: Run, tmp_path: Path) -> None:
    done = fedgt("design", *DEMANDS, "--dropouts", "1", "--out", "plan.json", "--plot", "p.svg", "--write", "A.csv")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for word in (
        "groups",
        "attackers",
        "then still",
        "recommended:",
        "rule:",
        "secure sums",
        "bayes",
        "the paper counts",
    ):
        assert word in done.stdout
    plan = read_plan(tmp_path / "plan.json")
    assert (plan.privacy.promised, plan.strategy.largest) == (2, 2)
    design = read_design(tmp_path / "A.csv")
    assert design.matrix.tolist() == plan.assignment.matrix.tolist()
    support = minimum_support(design.matrix)
    assert support is not None
    assert support.lower >= 2
    assert "<svg" in (tmp_path / "p.svg").read_text()


def test_the_same_seed_prints_the_same_object(fedgt: Run) -> None:
    texts = [fedgt("design", *DEMANDS, "--seconds", "600", "--json").stdout for _ in range(2)]
    assert texts[0] == texts[1]
    answer = json.loads(texts[0])
    assert answer["demands"]["clients"] == 8
    names = [one["name"] for one in answer["designs"]]
    assert answer["recommended"] in names
    for one in answer["designs"]:
        assert one["privacy"] >= 2
        assert one["max_malicious"] >= 2
        assert len(one["matrix"]) == one["groups"] == one["secure_sums"] <= 5
        assert len(one["expected_wrong"]) == 3
        assert one["share_mean"] == pytest.approx((np.linalg.matrix_rank(one["matrix"]) - 1) / 7, abs=0.1)
        assert one["share_mean"] <= one["share_largest"] < 1
    chosen = answer["designs"][names.index(answer["recommended"])]
    bayes = answer["strategies"]["bayes"]
    wrong = [missed + accused for missed, accused in zip(bayes["missed"], bayes["accused"], strict=True)]
    assert wrong == pytest.approx(chosen["expected_wrong"])
    assert answer["communication"]["secure_sums"] == chosen["groups"]


def test_the_frontier_shows_what_each_further_sum_buys(fedgt: Run, tmp_path: Path) -> None:
    done = fedgt("design", "--clients", "12", "--privacy", "4", "--write", "A.csv", "--seconds", "600")
    assert done.returncode == 0, done.stderr
    for word in ("sums", "disclosed share", "stages", "uploads", "attackers", "found", "* nested-12x7-r4"):
        assert word in done.stdout
    assert "with --coefficients up to 9 sums keep this promise" in done.stdout
    support = minimum_support(read_design(tmp_path / "A.csv").matrix)
    assert support is not None
    assert support.r >= 4
    answer = json.loads(
        fedgt("design", "--clients", "12", "--privacy", "3", "--dropouts", "1", "--json", "--seconds", "600").stdout
    )
    lines = answer["frontier"]
    assert [one["sums"] for one in lines] == list(range(3, 8))
    assert all(one["r"] >= 4 for one in lines)
    assert all(abs(one["share_mean"] - (one["sums"] - 1) / 11) < 0.02 for one in lines)
    assert [one["power"] for one in lines] == sorted(one["power"] for one in lines)
    assert answer["default"] == "nested-12x7-r4"


def test_with_coefficients_the_frontier_reaches_the_bound_and_is_drawn(fedgt: Run, tmp_path: Path) -> None:
    asked = ("design", "--clients", "15", "--privacy", "6", "--coefficients", "--seconds", "600")
    done = fedgt(*asked, "--write", "A.csv", "--plot", "A.svg")
    assert done.returncode == 0, done.stderr
    assert "* regular-15x10-r6-c3" in done.stdout
    assert "coefficient" in done.stdout
    assert "disclosed, most" in (tmp_path / "A.svg").read_text()
    lines = json.loads(fedgt(*asked, "--json").stdout)["frontier"]
    assert lines[-1]["sums"] == 15 - 6 + 1
    assert all(one["r"] >= 6 for one in lines)
    assert max(one["largest_coefficient"] for one in lines) == 3
    for command in (("design", "--coefficients"), ("privacy",)):
        told = fedgt(*command, "--matrix", "A.csv")
        assert told.returncode == 0, told.stderr
        assert "r: 6" in told.stdout or "r = 6" in told.stdout
    refused = fedgt("design", "--matrix", "A.csv")
    assert refused.returncode == 2
    assert "entries must be 0 or 1" in refused.stderr


def test_coefficients_belong_to_no_search(fedgt: Run) -> None:
    done = fedgt("design", *DEMANDS, "--coefficients")
    assert done.returncode == 2
    assert "leave out --max-malicious" in done.stderr


def test_where_no_test_is_possible_the_frontier_says_what_is(fedgt: Run) -> None:
    done = fedgt("design", "--clients", "8", "--privacy", "5")
    assert done.returncode == 0
    assert "no default: privacy 5 of 8 clients" in done.stdout


def test_a_search_out_of_time_says_how_far_it_came(fedgt: Run) -> None:
    done = fedgt("design", *DEMANDS, "--seconds", "1e-9")
    assert done.returncode == 2
    assert "searched 0 of" in done.stderr
    assert "in 1e-09 s; more time: --seconds" in done.stderr


def test_a_description_out_of_time_is_an_interval_that_says_so(fedgt: Run) -> None:
    done = fedgt("design", "--name", "bch-127x35", "--seconds", "1e-9")
    assert done.returncode == 0
    assert "privacy r: 1 (at least;" in done.stdout
    assert "--seconds look" in done.stdout


@pytest.mark.parametrize("command", [["design", "--name", "bch-15x8"], ["design", *DEMANDS]])
@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_seconds_that_are_no_time_are_refused(fedgt: Run, command: list[str], seconds: str) -> None:
    done = fedgt(*command, "--seconds", seconds)
    assert done.returncode == 2
    assert "a number above 0 is needed" in done.stderr


def test_graded_evidence_has_a_margin_and_no_contamination_limit(fedgt: Run) -> None:
    done = fedgt("design", *DEMANDS, "--evidence", "graded", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["strategies"] == {}
    assert all(one["max_malicious"] is None and one["margin"] > 0 for one in answer["designs"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clients", "8"], "--privacy (the promised r) is needed"),
        (["--clients", "8", "--privacy", "3", "--out", "plan.json"], "--out belong to a search"),
        (["--clients", "8", "--name", "bch-15x8"], "give --matrix FILE or --name NAME to describe"),
        (["--name", "bch-15x8", "--out", "plan.json"], "--out belong to a search"),
        ([*DEMANDS, "--plot", "p.txt"], "the name must end with one of .svg, .png, .pdf"),
        ([*DEMANDS, "--evidence", "vibes"], "known are binary, graded"),
        ([*DEMANDS, "--seed", "-1"], "--seed -1"),
        (["--name", "bch-15x8", "--seed", "-1"], "--seed -1"),
        ([*DEMANDS, "--effort", "inf"], "effort = inf"),
        ([*DEMANDS, "--out", "nowhere/plan.json"], "--out nowhere/plan.json: a file in a folder that exists"),
        ([*DEMANDS, "--write", "."], "--write .: a file in a folder that exists"),
        (["--clients", "15", "--privacy", "9", "--max-malicious", "3", "--groups-max", "8"], "privacy binds"),
        (["--clients", "8", "--privacy", "9", "--max-malicious", "2"], "nearest possible is 8"),
    ],
)
def test_impossible_and_wrong_demands_are_one_line_on_stderr(fedgt: Run, arguments: list[str], message: str) -> None:
    done = fedgt("design", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_picture_without_matplotlib_is_refused_with_the_way_to_install_it(
    fedgt: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = fedgt("design", *DEMANDS, "--plot", "p.svg")
    assert done.returncode == 2
    assert "pip install '.[plots]'" in done.stderr


HOSTILE = "\x1b[2J\r\nr = 15, all is well\u202e"


def test_a_design_file_cannot_forge_lines_or_control_the_terminal(fedgt: Run, tmp_path: Path) -> None:
    path = tmp_path / "design.json"
    path.write_text(json.dumps({"name": HOSTILE * 1000, "matrix": [[1, 1, 0], [0, 1, 1]]}))
    done = fedgt("design", "--matrix", path)
    assert done.returncode == 0
    assert all(line.isprintable() and len(line) < 400 for line in done.stdout.split("\n"))
    assert not any(line.startswith("r = 15") for line in done.stdout.splitlines())


def test_an_error_about_a_file_cannot_control_the_terminal(fedgt: Run, tmp_path: Path) -> None:
    path = tmp_path / "consortium.toml"
    path.write_text(f"{json.dumps(HOSTILE)} = 1\n")
    for arguments in (("doctor", "--registry", path), ("doctor", "--policy", path)):
        done = fedgt(*arguments)
        assert done.returncode == 1
        assert "[2J" in done.stdout
        assert all(line.isprintable() for line in (done.stdout + done.stderr).split("\n"))


def test_the_plan_of_a_search_goes_into_a_simulation_its_report_and_a_run_of_ones_own(
    fedgt: Run, tmp_path: Path
) -> None:
    assert fedgt("design", *DEMANDS, "--out", "plan.json").returncode == 0
    plan = read_plan(tmp_path / "plan.json")
    assert plan.members is None
    text = "privacy = 2\nscreen.kind = 'clusters'\nfederation = {clients = 8, rounds = 1}\ndesign.file = 'plan.json'\n"
    (tmp_path / "s.toml").write_text(text + "attack.malicious = 1\ndecode.on_undecidable = 'keep-all'\n")
    assert fedgt("run", "s.toml", "--out", "run").returncode == 0
    written = read_plan(tmp_path / "run" / "plan.json")
    assert written.design.matrix == plan.design.matrix
    assert written.members is not None
    assert fedgt("report", "run").returncode == 0
    names = [f"site-{number}" for number in range(8)]
    run = made(
        {name: Site("c00") for name in names},
        grouping=plan,
        privacy=2,
        samples=dict.fromkeys(names, 10),
        screen=ScreenSettings(kind="clusters"),
    )
    assert run.grouping is not None
    assert run.grouping.design.matrix.tolist() == plan.assignment.matrix.tolist()
    assert set(run.grouping.clients) == set(names)
    (tmp_path / "s.toml").write_text(text.replace("privacy = 2", "privacy = 1"))
    done = fedgt("run", "s.toml", "--out", "other")
    assert done.returncode != 0
    assert "the plan promises 2, but privacy = 1" in done.stderr
