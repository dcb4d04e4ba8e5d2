"""The command line as a user calls it: data on stdout, errors in one line on stderr, documented exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import called as fedgt
from fedgt._version import __version__
from fedgt.design import named_design

ROWS = "\n".join(",".join(map(str, row)) for row in named_design("bch-15x8").matrix.tolist())


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    path = tmp_path / "A.csv"
    path.write_text(ROWS + "\n")
    return path


def test_version_and_help() -> None:
    assert fedgt("--version").stdout.strip() == f"fedgt {__version__}"
    text = fedgt("--help").stdout
    for command in ("demo", "run", "decode", "design"):
        assert command in text


def decoded(matrix: Path, *more: str) -> Any:
    done = fedgt("decode", "--matrix", matrix, "--outcomes", "1101?000", *more, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.parametrize("strategy", ["count", "delta", "bayes"])
def test_decode_prints_one_json_object(matrix: Path, strategy: str) -> None:
    answer = decoded(
        matrix, "--prevalence", "0.2", "--false-alarm", "0.05", "--misdetection", "0.05", "--strategy", strategy
    )
    assert {"log_odds", "flagged", "strategy", "estimated_malicious"} <= set(answer)
    assert len(answer["log_odds"]) == 15
    assert answer["strategy"] == strategy
    assert answer["estimated_malicious"] == 2
    assert 4 in answer["flagged"]


def test_decode_agrees_with_the_library(matrix: Path) -> None:
    from fedgt.decode import IndependentPrior, forward_backward
    from fedgt.types import ErrorRates, Outcomes

    expected = forward_backward(
        named_design("bch-15x8"),
        Outcomes.parse("1101?000"),
        ErrorRates(false_alarm=0.1, misdetection=0.02),
        IndependentPrior.uniform(15, 0.2),
    )
    answer = decoded(matrix, "--prevalence", "0.2", "--false-alarm", "0.1", "--misdetection", "0.02")
    assert answer["log_odds"] == pytest.approx(expected.log_odds.tolist())


def test_per_client_priors_and_infinite_log_odds(matrix: Path) -> None:
    priors = ",".join(["0", "1", *["0.2"] * 13])
    answer = decoded(matrix, "--priors", priors)
    assert answer["log_odds"][0] == "inf"
    assert answer["log_odds"][1] == "-inf"


def test_max_malicious_caps_the_estimate(matrix: Path) -> None:
    assert decoded(matrix, "--max-malicious", "1", "--strategy", "count")["estimated_malicious"] == 1


def test_ranked_lists_whole_sets_with_their_probabilities(matrix: Path) -> None:
    answer = decoded(matrix, "--strategy", "ranked", "--sets", "4")
    assert len(answer["sets"]) == 4
    probabilities = [one["probability"] for one in answer["sets"]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert answer["flagged"] == answer["sets"][0]["clients"]


def test_belief_propagation_is_named_and_says_that_it_is_not_exact(matrix: Path) -> None:
    answer = decoded(matrix, "--strategy", "bp", "--prevalence", "0.1")
    assert answer["exact"] is False
    assert "belief propagation, converged" in answer["reason"]


@pytest.mark.parametrize("strategy", ["map", "comp", "dd"])
def test_the_other_strategies_answer(matrix: Path, strategy: str) -> None:
    assert decoded(matrix, "--strategy", strategy)["strategy"] == strategy


def test_explain_says_which_groups_speak_for_and_against(matrix: Path) -> None:
    answer = decoded(matrix, "--explain")
    against = {part["group"] for part in answer["explanation"][1] if part["log_odds_change"] < 0}
    assert against == {0, 1}
    done = fedgt("decode", "--matrix", matrix, "--outcomes", "1101?000", "--explain")
    assert "group 0 (1) speaks against it" in done.stdout


def test_a_batch_answers_line_by_line(matrix: Path, tmp_path: Path) -> None:
    (tmp_path / "many.csv").write_text("1,1,0,1,?,0,0,0\n00000000\n\n11010010\n")
    done = fedgt("decode", "--matrix", matrix, "--batch", tmp_path / "many.csv", "--json")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [a["outcomes"] for a in answers] == ["1101?000", "00000000", "11010010"]
    assert answers[0]["flagged"] == decoded(matrix)["flagged"]
    (tmp_path / "B.csv").write_text("1,1,0\n1,1,0\n")
    (tmp_path / "two.csv").write_text("10\n11\n")
    exact = ("--false-alarm", "0", "--misdetection", "0", "--json")
    two = fedgt("decode", "--matrix", tmp_path / "B.csv", "--batch", tmp_path / "two.csv", *exact)
    assert json.loads(two.stdout.splitlines()[0])["status"] == "contradictory"
    assert len(two.stdout.splitlines()) == 2
    plain = fedgt("decode", "--matrix", matrix, "--batch", tmp_path / "many.csv")
    assert plain.stdout.splitlines()[1] == "00000000,"


def test_decode_without_json_is_a_table(matrix: Path) -> None:
    done = fedgt("decode", "--matrix", matrix, "--outcomes", "1101?000")
    assert done.returncode == 0
    assert "P(malicious)" in done.stdout
    assert done.stdout.count("flagged") >= 2


def test_design_prints_one_json_object(matrix: Path) -> None:
    done = fedgt("design", "--matrix", matrix, "--kappa", "0.2", "--json")
    answer = json.loads(done.stdout)
    assert (answer["clients"], answer["groups"], answer["privacy"], answer["max_malicious"]) == (15, 8, 4, 5)
    assert answer["group_sizes"] == [4] * 8
    assert len(answer["contamination"]) == 16
    assert answer["contamination"][3] == pytest.approx(0.006593, abs=1e-6)


def test_a_named_design_can_be_written_and_read_back(tmp_path: Path, matrix: Path) -> None:
    done = fedgt("design", "--name", "bch-15x8", "--write", tmp_path / "B.csv")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "B.csv").read_text() == matrix.read_text()
    assert "privacy r: 4" in done.stdout


def test_privacy_names_the_exposed_client_and_the_combination(matrix: Path) -> None:
    """Case 39: (u0 + u4 + u6 + u7 - u_final) / 3 is client 7."""
    done = fedgt("privacy", "--matrix", matrix, "--flagged", "2,12", "--json")
    answer = json.loads(done.stdout)
    assert (answer["r"], answer["exact"], answer["exposed_clients"]) == (1, True, [7])
    assert answer["combination"] == {"u0": "1/3", "u4": "1/3", "u6": "1/3", "u7": "1/3", "u_final": "-1/3"}
    plain = fedgt("privacy", "--matrix", matrix)
    assert "r = 4: no combination of 8 aggregates mixes fewer clients" in plain.stdout


def test_privacy_with_more_rows_and_colluders(matrix: Path) -> None:
    ones = ",".join(["1"] * 15)
    more = json.loads(fedgt("privacy", "--matrix", matrix, "--row", ones, "--json").stdout)
    helped = json.loads(fedgt("privacy", "--matrix", matrix, "--row", ones, "--colluding", "2", "--json").stdout)
    assert (more["r"], helped["r"]) == (3, 1)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["decode", "--matrix", "A.csv", "--outcomes", "0101"], 2, "4 outcomes for a design with 8 groups"),
        (["decode", "--matrix", "A.csv", "--outcomes", "0101x000"], 2, "'x'"),
        (["decode", "--matrix", "no.csv", "--outcomes", "0"], 2, "no.csv"),
        (["decode", "--matrix", "A.csv", "--outcomes", "00000000", "--prevalence", "2"], 2, "prevalence"),
        (["decode", "--matrix", "A.csv", "--outcomes", "00000000", "--priors", "0.1,x"], 2, "--priors"),
        (["decode", "--matrix", "A.csv", "--outcomes", "00000000", "--strategy", "viterbi"], 2, "count"),
        (
            ["decode", "--matrix", "B.csv", "--outcomes", "10", "--false-alarm", "0", "--misdetection", "0"],
            1,
            "contradict each other",
        ),
        (["decode", "--matrix", "A.csv"], 2, "--outcomes (one vector) or --batch"),
        (["decode", "--matrix", "A.csv", "--batch", "no.csv"], 2, "no.csv"),
        (["decode", "--matrix", "A.csv", "--batch", "bad.csv"], 2, "bad.csv line 2"),
        (["decode", "--matrix", "A.csv", "--batch", "A.csv", "--explain"], 2, "take --json"),
        (["privacy", "--matrix", "A.csv", "--row", "1,2"], 2, "15 finite weights are needed"),
        (["privacy", "--matrix", "A.csv", "--flagged", "15"], 2, "numbered 0 to 14"),
        (["privacy", "--matrix", "A.csv", "--colluding", "15"], 2, "0 to 14 is needed"),
        (["design"], 2, "--matrix FILE or --name NAME"),
        (["design", "--name", "bch-16x8"], 2, "known are bch-15x8"),
        (["run", "no.toml", "--out", "x"], 2, "no.toml"),
        (["run", "s.toml", "--out", "x", "--set", "decode.strategy"], 2, "KEY=VALUE"),
        (["run", "s.toml", "--out", "x", "--set", "decode.strtegy=count"], 2, "did you mean 'strategy'"),
        (["run", "s.toml", "--out", "x", "--strategy", "cuont"], 2, "did you mean 'count'"),
        (["nonsense"], 2, "nonsense"),
        (["run", "s.toml", "--out", "x", "--set", "privacy=true"], 2, "privacy = True"),
        (["run", "spec.toml", "--out", "."], 2, "would overwrite the specification"),
        (["run", "s.toml", "--out", "x", "--set", "design.name=identity-15"], 2, "give r = 1 at most"),
        (["decode", "--matrix", "A.csv", "--outcomes", "01010101", "--max-malicious", "99"], 2, "0 to 15"),
        (["design", "--name", "bch-15x8", "--write", "/nonexistent/x.csv"], 2, "/nonexistent/x.csv"),
        (["design", "--name", "identity-1000000"], 2, "1 to 10000"),
        (["design", "--name", "identity-3000"], 2, "at most 1000"),
        (["design", "--matrix", "null.json"], 2, "got None in row 0, column 1"),
    ],
)
def test_errors_are_one_line_on_stderr_with_the_documented_exit_code(
    tmp_path: Path, matrix: Path, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "B.csv").write_text("1,1,0\n1,1,0\n")
    (tmp_path / "s.toml").write_text("privacy = 4\n")
    (tmp_path / "spec.toml").write_text("privacy = 4\n")
    (tmp_path / "null.json").write_text("[[1, null]]")
    (tmp_path / "bad.csv").write_text("00000000\n0101\n")
    done = fedgt(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_run_writes_a_folder_and_prints_pure_json(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        "privacy = 4\n[federation]\nrounds = 2\n[screen]\nkind = 'clusters'\nutility = 'top1'\n"
    )
    done = fedgt("run", tmp_path / "s.toml", "--out", tmp_path / "out", "--seed", "3", "--malicious", "1", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["seed"] == 3
    assert sum(c["truth"] == "malicious" for c in answer["clients"]) == 1
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == answer
    again = fedgt("run", tmp_path / "s.toml", "--out", tmp_path / "out")
    assert again.returncode == 2
    assert "already holds" in again.stderr


def test_a_run_that_ends_early_exits_with_one(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        "privacy = 4\n[federation]\nrounds = 2\n[screen]\nkind = 'clusters'\nutility = 'top1'\n"
        + "".join(f"[[faults]]\nclient = {j}\nround = 1\n" for j in range(15))
    )
    done = fedgt("run", tmp_path / "s.toml", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "stopped: round 1: every group is erased" in done.stdout


def test_a_design_name_with_markup_is_printed_as_it_is(tmp_path: Path) -> None:
    rows = named_design("bch-15x8").matrix.tolist()
    (tmp_path / "A.json").write_text(json.dumps({"name": "my [/b] design", "matrix": rows}))
    (tmp_path / "s.toml").write_text(
        "privacy = 4\n[federation]\nrounds = 1\n[design]\nfile = 'A.json'\n[screen]\nkind = 'clusters'\nutility = 'top1'\n"
    )
    done = fedgt("run", tmp_path / "s.toml", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "my [/b] design" in done.stdout


@pytest.mark.slow
def test_the_demo_catches_those_who_wake_later_as_the_page_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "standing-tests.md").read_text(encoding="utf-8")
    block = page.split("`fedgt demo --first-round 5`")[1].split("```text\n")[1].split("```")[0]
    printed = fedgt("demo", "--first-round", "5").stdout
    assert len(block.splitlines()) == 3
    assert printed.endswith(block)
    refused = fedgt("demo", "--first-round", "5", "--method", "paper")
    assert refused.returncode == 2


@pytest.mark.slow
def test_the_demo_names_suspects_and_shows_three_accuracies(tmp_path: Path) -> None:
    done = fedgt("demo", "--out", tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for word in ("client-00", "P(malicious)", "truth", "attackers found", "no-defence", "fedgt", "oracle", "Privacy"):
        assert word in done.stdout
    result = json.loads((tmp_path / "demo" / "fedgt" / "result.json").read_text())
    assert result["seed"] == 1
    assert sum(c["truth"] == "malicious" for c in result["clients"]) == 5
