"""The page says what `report.json` says, and nothing else; and nothing in a result can act on its reader."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedgt.report import audit, render_html, write_report
from fedgt.report.paths import value_at
from report_lab import Page, decided_result, graded_result, spec_of, untested_result, write_folder

HOSTILE = (
    "<script>alert(1)</script>",
    '"onmouseover=alert(1) x="',
    "{{ 7*7 }}{% raw %}",
    "</style><img src=http://example.org/x>",
    "]]>&amp;<!--",
    "h\u00f4pital \u05e9\u05dc\u05d5\u05dd \u4e2d\u6587",
    "a\u202egnp.exe",
    "a\u200bgnp.exe",
    "very-long-" * 30,
)
SCALE = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "%": 0.01}


def report_of(folder: Path, kind: str) -> dict[str, Any]:
    spec = spec_of(15)
    names = [*HOSTILE, *(f"c{j}" for j in range(15 - len(HOSTILE)))]
    result = {
        "tested": lambda: decided_result(spec),
        "hostile": lambda: decided_result(spec, names=names),
        "deployed": lambda: decided_result(spec, simulation=False),
        "all-positive": lambda: decided_result(spec, outcomes="1" * 8),
        "untested": lambda: untested_result(spec),
        "graded": lambda: graded_result(spec),
    }[kind]()
    return write_report(write_folder(folder, result, spec))


KINDS = ("tested", "hostile", "deployed", "all-positive", "untested", "graded")


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_and_every_text_of_the_page_equals_report_json(tmp_path: Path, kind: str) -> None:
    report_of(tmp_path, kind)
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert len(page.fields) > (60 if kind == "untested" else 300)
    for path, exact, text in page.fields:
        value = value_at(report, path)
        if exact is None:
            assert text == str(value), path
        else:
            assert json.loads(exact) == value, path
            assert_rounded(text, value, path)


def assert_rounded(text: str, value: Any, path: str) -> None:
    """The text is the value rounded to the places shown, worked out apart from the code that wrote it."""
    if value is None or isinstance(value, str):
        assert text in ("unknown", "\u221e", "\u2212\u221e"), path
        return
    found = re.fullmatch(r"([<>]?)([+\u2212]?[\d,]*\.?\d+(?:e[+\u2212]\d+)?)(?: (B|kB|MB|GB|%))?", text)
    assert found, (path, text)
    bound, digits, unit = found.groups()
    digits = digits.replace("\u2212", "-").replace(",", "")
    factor = SCALE[unit] if unit else 1.0
    shown = float(digits) * factor
    if bound:
        assert (value < shown) if bound == "<" else (value > shown), path
        return
    mantissa, _, exponent = digits.partition("e")
    last = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) * factor
    assert abs(shown - value) <= 0.5000001 * last, (path, text, value)


@pytest.mark.parametrize("kind", KINDS)
def test_no_digit_stands_on_the_page_outside_a_field_of_report_json(tmp_path: Path, kind: str) -> None:
    page = Page(render_html(report_of(tmp_path, kind)))
    assert [text for text in page.outside if re.search(r"\d", text)] == []


def test_names_are_escaped_and_nothing_of_them_becomes_markup(tmp_path: Path) -> None:
    plain = Page(render_html(report_of(tmp_path / "plain", "tested")))
    hostile = Page(render_html(report_of(tmp_path / "hostile", "hostile")))
    assert {tag for tag, _ in hostile.tags} == {tag for tag, _ in plain.tags}
    known = {name for _, attributes in plain.tags for name in attributes}
    assert {name for _, attributes in hostile.tags for name in attributes} == known
    shown = {text for path, _, text in hostile.fields if re.fullmatch(r"verdicts\[\d+\]\.client", path)}
    visible = {name for name in HOSTILE if "gnp" not in name}
    assert visible <= shown
    assert {"a\\u202egnp.exe", "a\\u200bgnp.exe"} <= shown


def test_the_page_can_load_and_run_nothing(tmp_path: Path) -> None:
    text = render_html(report_of(tmp_path, "hostile"))
    page = Page(text)
    tags = [tag for tag, _ in page.tags]
    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & set(tags)
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'; style-src 'sha256-")
    for _, attributes in page.tags:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        for name in ("href", "src", "xlink:href"):
            assert str(attributes.get(name, "#")).startswith("#")
    assert "http://" not in re.sub(r"&lt;/style&gt;&lt;img src=http://example.org/x&gt;", "", text)
    assert "url(" not in text
    assert "@import" not in text


def test_what_only_a_simulation_knows_is_marked_and_else_absent(tmp_path: Path) -> None:
    simulated = report_of(tmp_path / "simulated", "tested")
    page = render_html(simulated)
    assert "This is a simulation" in page
    marked = Page(re.sub(r"<(t[dh]|g|li|div)( [^>]*)?data-simulation.*?</\1>", "", page, flags=re.DOTALL))
    assert not [path for path, _, _ in marked.fields if path.endswith((".truth", ".attack_accuracy"))]
    deployed = report_of(tmp_path / "deployed", "deployed")
    text = json.dumps(deployed)
    assert '"truth"' not in text
    assert "attack_accuracy" not in text
    assert "[attack]" not in deployed["specification"]["toml"]
    other = Page(render_html(deployed))
    assert not [tag for tag, attributes in other.tags if "data-simulation" in attributes]
    assert "simulation only" not in "".join(other.outside)


def test_the_same_record_gives_the_same_bytes(tmp_path: Path) -> None:
    report_of(tmp_path, "tested")
    before = [(tmp_path / name).read_bytes() for name in ("report.html", "report.json")]
    report_of(tmp_path, "tested")
    assert [(tmp_path / name).read_bytes() for name in ("report.html", "report.json")] == before


def test_the_page_is_complete_for_a_reader_who_hears_it(tmp_path: Path) -> None:
    page = Page(render_html(report_of(tmp_path, "tested")))
    tags = [tag for tag, _ in page.tags]
    assert dict(page.tags)["html"]["lang"] == "en"
    assert tags.count("h1") == 1
    assert tags.count("caption") == tags.count("table") >= 7
    for tag, attributes in page.tags:
        if tag == "th":
            assert attributes["scope"] in ("col", "row")
        if tag == "svg" and attributes.get("role") == "img":
            assert attributes["aria-label"]


def test_graded_evidence_is_told_in_its_own_words(tmp_path: Path) -> None:
    report = report_of(tmp_path, "graded")
    assert report["test"]["binary"] is False
    assert report["recheck"]["status"] == "not-made"
    assert [row["round"] for row in report["tests"]] == [1, 2]
    assert report["figures"]["curves"]["test_rounds"] == [1, 2]
    assert report["figures"]["scatter"]["vertical"] == "loss"
    page = Page(render_html(report))
    said = {path: text for path, _, text in page.fields}
    assert said["test.graded.against_nobody"] == "+21.50"
    assert said["test.graded.label.classes[0].label"] == "9"
    assert said["test.sets[0].clients[1]"] == "client-02"
    assert not [path for path in said if path.endswith(".outcome")]


def test_a_folder_without_its_specification_still_has_a_report(tmp_path: Path) -> None:
    spec = spec_of(15)
    report = audit(write_folder(tmp_path, decided_result(spec), None))
    assert report["recheck"]["status"] == "not-made"
    assert "the run folder does not hold it" in render_html(report)


def test_a_specification_that_is_not_that_of_the_result_is_an_alarm(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, decided_result(spec_of(15)), spec_of(15, overrides={"seed": 5}))
    report = audit(folder)
    assert report["run"]["spec_matches"] is False
    assert report["recheck"]["status"] == "not-made"
    assert "The record does not fit together" in render_html(report)


def _sentences(report: dict[str, Any]) -> str:
    """The text of the page without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", render_html(report))).replace("&lt;", "<")


def test_a_clean_run_says_that_its_strongest_line_is_no_attack(tmp_path: Path) -> None:
    report = report_of(tmp_path, "graded")
    report["test"]["graded"] |= {"attacks": 0, "signal": 49.0}
    said = _sentences(report)
    assert "no line was found that an attack explains" in said
    assert "lines found" not in said
    assert "which honest training explains as well: 49" in said


def test_a_tiny_p_value_negative_factors_and_several_tests_are_written_as_people_do(tmp_path: Path) -> None:
    report = report_of(tmp_path, "graded")
    report["test"]["graded"]["label"] = {
        "kind": "targeted",
        "classes": [{"label": 1, "rise": 2.0, "p_value": 1e-9}, {"label": 3, "rise": 1.0, "p_value": 0.002}],
    }
    report["privacy"]["most_exposed"]["combination"] = [
        {"factor": "1/178", "purpose": "test-group-0"},
        {"factor": "-1/178", "purpose": "test-group-3"},
    ]
    report["tests"] = [report["tests"][0], {**report["tests"][0], "round": 2}]
    said = _sentences(report)
    assert "(p <0.0001)" in said
    assert "(p = 0.0020)" in said
    assert "+ -" not in said
    assert "with a test in rounds 1 and 2" in said
