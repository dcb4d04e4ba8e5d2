"""The first page: plain, complete, and fair to those whom it names."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt.record.verdict_words import MEANINGS
from fedgt.report import audit, render_html
from fedgt.report.first_picture import MOST_ROWS, first_picture
from report_lab import Page, decided_result, graded_result, spec_of, untested_result, write_folder

GUIDE = Path(__file__).parents[3] / "docs" / "howto" / "read-a-report.md"


def page_of(folder: Path, result: dict[str, Any], **said: str) -> dict[str, Any]:
    """The first page of a result in which these clients have other verdicts."""
    for client in result["clients"]:
        word = said.get(client["id"].replace("-", "_"))
        if word is not None:
            client |= {"verdict": word, "excluded": word.startswith("exclude")}
    page: dict[str, Any] = audit(write_folder(folder, result, None))["first_page"]
    return page


def sentences(page: dict[str, Any]) -> list[str]:
    texts = [page["headline"], page["lead"], *(one["meaning"] for one in page["decided"])]
    texts += [text for part in ("sure", "missed", "learned", "next") for text in page[part]]
    return [one for text in texts for one in re.split(r"(?<=[.!?]) ", text)]


def all_kinds() -> list[dict[str, Any]]:
    spec = spec_of(15)
    powerful = graded_result(spec)
    powerful["tests"][0]["power"] = [{"attackers": 1, "shift": 2.0}, {"attackers": 3, "shift": None}]
    weighty = decided_result(spec)
    weighty["privacy"] |= {"colluders": 1, "share_mean": 0.5, "share_helped": 0.9, "shares": {"client-03": 0.75}}
    stopped = decided_result(spec) | {"status": "stopped", "reason": "round 2: nobody is left"}
    return [decided_result(spec, simulation=False), powerful, weighty, stopped, untested_result(spec)]


@pytest.mark.parametrize("number", range(5))
def test_its_sentences_are_short_and_have_no_symbols(tmp_path: Path, number: int) -> None:
    for one in sentences(page_of(tmp_path, all_kinds()[number])):
        assert len(one.split()) <= 30, one
        assert not re.search(r"\br\b|\bnats\b|posterior|P\(|log-odds|poison|\bfederat", one), one


def test_it_presumes_nobody_guilty(tmp_path: Path) -> None:
    text = " ".join(sentences(page_of(tmp_path, decided_result(spec_of(15), simulation=False), client_01="exclude")))
    assert not re.search(r"\battackers? (is|are|was|were)\b|malicious|guilty|culprit|criminal", text)
    assert "does not say why they differ" in text
    assert "before anybody is blamed" in text


def test_every_client_stands_under_one_word_and_uncertain_exclusions_are_marked(tmp_path: Path) -> None:
    words = {"client_01": "exclude", "client_02": "exclude (uncertain)", "client_03": "suspicious"}
    page = page_of(tmp_path, decided_result(spec_of(15)), **words)
    named = [client for row in page["decided"] for client in row["clients"]]
    assert sorted(named) == [f"client-{j:02d}" for j in range(15)]
    rows = {row["word"]: row for row in page["decided"]}
    assert rows["exclude (uncertain)"]["left_out"]
    assert "client-02" in rows["exclude (uncertain)"]["clients"]
    assert any("may well be honest" in one for one in page["sure"])
    assert [row["meaning"] for row in page["decided"]] == [MEANINGS[row["word"]] for row in page["decided"]]


def test_what_could_have_been_missed_stands_on_the_page_before_any_probability(tmp_path: Path) -> None:
    result = graded_result(spec_of(15))
    result["tests"][0]["power"] = [{"attackers": 1, "shift": 4.0}, {"attackers": 3, "shift": 2.5}]
    result["tests"][1]["power"] = result["test"]["power"] = [{"attackers": 1, "shift": None}]
    report = audit(write_folder(tmp_path, result, None))
    said = " ".join(report["first_page"]["missed"])
    assert "strongest of 2 tests (round 1)" in said
    assert "4" in said
    assert "2.5" in said
    assert "not that nothing is there" in said
    page = render_html(report)
    assert page.index("What could have been missed?") < page.index("P(malicious)")


def test_tests_of_unknown_power_say_so(tmp_path: Path) -> None:
    assert "not known" in page_of(tmp_path, decided_result(spec_of(15)))["missed"][0]


def test_the_worst_of_everything_that_was_opened_is_told(tmp_path: Path) -> None:
    result = decided_result(spec_of(15))
    result["privacy"] |= {"with_training": 1, "colluders": 1, "share_mean": 0.5, "share_helped": 0.97}
    result["privacy"] |= {"shares": {"client-03": 0.75, "client-04": 0.4}, "share_cautious_largest": 0.86}
    said = " ".join(page_of(tmp_path, result)["learned"])
    for fact in ("mixes 2 clients or more", "mix one client", "86 % at most", "97 % if a client helped"):
        assert fact in said


def test_the_guide_gives_each_word_the_meaning_that_it_has() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z() ]+)` \| (.+) \|$", guide, flags=re.MULTILINE))
    assert {word: rows.get(word) for word in MEANINGS} == dict(MEANINGS)


def exact_result(attackers: list[str]) -> dict[str, Any]:
    """A graded result whose sums lie exactly where the share of these clients puts them."""
    result = graded_result(spec_of(15))
    groups = result["test"]["groups"]
    place = [10.0 * len(set(group) & set(attackers)) / len(group) - 3.0 for group in groups]
    for test in (*result["tests"], result["test"]):
        test["projection"] = place
    for row in result["aggregates"]:
        row["weights"] = [1.0] * len(row["members"])
    return result


def test_the_picture_puts_sums_where_the_verdict_predicts_them_if_it_is_right() -> None:
    attackers = ["client-01", "client-02"]
    result = exact_result(attackers)
    verdicts = [
        {"client": c["id"], "verdict": "exclude" if c["id"] in attackers else "keep", "excluded": c["id"] in attackers}
        for c in result["clients"]
    ]
    picture = first_picture(result, verdicts)
    assert picture is not None
    assert picture["why"] == "named"
    assert picture["explained"] == pytest.approx(1.0)
    for group in picture["groups"]:
        assert group["predicted"] == pytest.approx(group["measured"])
    shares = [group["named"] for group in picture["groups"]]
    assert shares == sorted(shares)
    wrong = [row | {"verdict": "exclude" if row["client"] == "client-08" else "keep"} for row in verdicts]
    other = first_picture(result, wrong)
    assert other is not None
    assert other["explained"] is None or other["explained"] < 0.9


def test_of_many_clients_those_who_were_kept_are_not_drawn() -> None:
    result = exact_result(["client-01"])
    names = [f"c{j}" for j in range(MOST_ROWS + 5)]
    verdicts = [{"client": c, "verdict": "exclude" if c == "c3" else "keep", "excluded": c == "c3"} for c in names]
    picture = first_picture(result, verdicts)
    assert picture is not None
    assert [row["client"] for row in picture["clients"]] == ["c3"]
    assert picture["hidden"] == len(names) - 1


def test_groups_without_a_sum_are_drawn_without_a_place() -> None:
    result = exact_result(["client-01"])
    for test in result["tests"]:
        test["projection"] = [None, *test["projection"][1:]]
    verdicts = [{"client": c["id"], "verdict": "keep", "excluded": False} for c in result["clients"]]
    picture = first_picture(result, verdicts)
    assert picture is not None
    (lost,) = [group for group in picture["groups"] if group["measured"] is None]
    assert lost["predicted"] is None
    assert np.ptp([group["predicted"] for group in picture["groups"] if group is not lost]) == pytest.approx(0.0)


def test_the_page_begins_with_the_decision_and_the_picture(tmp_path: Path) -> None:
    page = render_html(audit(write_folder(tmp_path, decided_result(spec_of(15)), None)))
    order = [page.index(mark) for mark in ("<h1>", 'class="first"', 'id="decided"', 'id="missed"', 'id="appendix"')]
    assert order == sorted(order)
    assert Page(page).fields[0][0] == "first_page.headline"
