"""`fedgt privacy` tells every client the smallest combination that contains it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import called
from fedgt.design import named_design

Command = Callable[..., str]


@pytest.fixture
def privacy(tmp_path: Path) -> Command:
    path = tmp_path / "A.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in named_design("bch-15x8").matrix.tolist()) + "\n")

    def run(*arguments: str) -> str:
        done = called("privacy", "--matrix", path, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_each_client_has_its_own_combination_in_the_json(privacy: Command) -> None:
    answer = json.loads(privacy("--flagged", "2,12", "--json"))
    assert (answer["r"], answer["exact"], answer["exposed_clients"]) == (1, True, [7])
    assert [one["r"] for one in answer["clients"]] == [3, 3, 4, 3, 3, 3, 3, 1, 3, 3, 3, 3, 4, 3, 3]
    assert answer["clients"][7]["combination"] == answer["combination"]
    assert answer["clients"][2] == {
        "client": 2,
        "r": 4,
        "upper": 4,
        "share": pytest.approx(0.57, abs=0.01),
        "combination": {"u1": "1"},
        "combination_clients": [1, 2, 4, 8],
    }


def test_colluders_lower_what_is_said_about_each_client(privacy: Command) -> None:
    answer = json.loads(privacy("--flagged", "2,12", "--colluding", "2", "--json"))
    assert [one["r"] for one in answer["clients"]] == [1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1]


def test_the_most_exposed_client_comes_first_in_the_text(privacy: Command) -> None:
    text = privacy("--flagged", "2,12")
    listed = [line.strip() for line in text.splitlines() if line.startswith("  client")]
    assert listed[0] == "client 7: mixes 1, share 1.00, as in 1/3 u0 + 1/3 u4 + 1/3 u6 + 1/3 u7 - 1/3 u_final"
    assert listed[-1] == "client 12: mixes 4, share 0.25, as in 1 u5"


def test_a_row_of_any_weights_is_taken_exactly(privacy: Command) -> None:
    # Group 0 is {0, 1, 3, 7}; the same sum but for client 7's weight gives client 7 away.
    row = ",".join({0: "1", 1: "1", 3: "1", 7: "0.1"}.get(j, "0") for j in range(15))
    answer = json.loads(privacy("--row", row, "--json"))
    assert (answer["r"], answer["combination_clients"]) == (1, [7])


def test_the_share_and_the_colluders_that_expose_are_told(privacy: Command) -> None:
    answer = json.loads(privacy("--json"))
    assert answer["share_mean"] == pytest.approx(0.5, abs=0.02)
    assert answer["share_mean"] < answer["share_largest"] == max(one["share"] for one in answer["clients"])
    fewest = [answer[f"exposing_{whom}"] for whom in ("somebody", "somebody_upper", "everybody")]
    assert fewest == [answer["r"] - 1, answer["r"] - 1, 15 - 8]
    helped = json.loads(privacy("--colluding", "1", "--json"))
    assert helped["share_largest"] > answer["share_largest"]
    text = privacy("--flagged", "2,12")
    assert "expose somebody: 0; all others at once: 6" in text
    assert "1.00 at most (client 7)" in text


def test_more_colluders_than_can_be_tried_are_told_of_without_a_share(privacy: Command) -> None:
    answer = json.loads(privacy("--colluding", "14", "--json"))
    assert (answer["r"], answer["share_mean"], answer["share_largest"]) == (1, None, None)
    text = privacy("--colluding", "14")
    assert "not computed, up to 14 colluders are more than 20000 sets" in text
    assert "client 0: mixes 4, as in 1 u0" in text


def test_what_is_not_settled_in_time_is_an_interval_that_says_so(privacy: Command) -> None:
    text = privacy("--seconds", "1e-9", "--colluding", "2")
    assert text.startswith("r = 1 at least (a combination of 4 exists; not settled in 1e-09 s, more time: --seconds)")
    assert "disclosed share: not computed, not done after 1e-09 s" in text
    assert "client 0: mixes 1 to 4" in text
