"""What docs/measure_prose.py measures, on sentences whose words and symbols one can count by hand."""

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "measure_prose.py"
MEASURED = runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def prose() -> dict[str, Any]:
    return MEASURED


def test_code_tables_headings_and_pictures_are_no_sentences(prose: dict[str, Any]) -> None:
    page = """---
hide: [toc]
---

# A heading. Another one.

One [link](https://example.org/a.b?c) and `x.y = .5` here. It costs 0.30 e.g. today! **Is it?** Yes
it is.

![A picture. Of nothing.](a.png)

```python
print("no. sentence.")
```

| a. b. | c. |
|---|---|

- First point
- Second point

    make demo   # no. sentence.
"""
    mark = "\N{WHITE SQUARE}"
    assert list(prose["sentences"](page)) == [
        f"One link and {mark} here.",
        "It costs 0.30 e.g. today!",
        "Is it?",
        "Yes it is.",
        "First point",
        "Second point",
    ]
    measured = prose["measure"](page)
    assert measured.words == [5, 5, 2, 3, 2, 2]
    assert measured.numbers == [0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("The promise is r = 4.", ("r",)),
        ("At n_m = 5 and kappa of 0.20 it holds.", ("kappa", "n_m")),
        ("It is 5 \u00b1 1.", ("\u00b1",)),
        ("The smallest number, *r*, is kept. So r is 4.", ()),
        ("A client's data, i.e. what it has, took 0.5 s; I know.", ()),
        ("Graell i Amat wrote it.", ()),
        ("The command is `r = 4`.", ()),
    ],
)
def test_a_symbol_that_the_page_does_not_explain_is_named(
    prose: dict[str, Any], text: str, symbols: tuple[str, ...]
) -> None:
    assert prose["measure"](text).symbols == symbols


def test_decimals_without_their_zero_are_named_in_tables_too_but_not_in_code(prose: dict[str, Any]) -> None:
    text = "It is .20, not 0.30 or 1.5 or `.40`.\n\n| a |\n|---|\n| .5 / 0.6 |\n\n```text\n.7\n```\n"
    assert prose["measure"](text).no_zero == (".20", ".5")


def test_lines_are_too_long_outside_of_tables_and_code_only(prose: dict[str, Any]) -> None:
    long = "word " * 21
    assert prose["measure"](f"{long}\n\n| {long} |\n\n```text\n{long}\n```\n\n{long}\n").long_lines == (1, 9)


def test_long_words_and_long_sentences_read_worse(prose: dict[str, Any]) -> None:
    easy = prose["measure"]("The cat sat on the mat. It was glad.").ease
    long_words = prose["measure"]("Considerable incompatibilities necessitated reconsideration. It was glad.").ease
    long_sentence = prose["measure"](" ".join(["the cat sat on the mat and"] * 8) + ".").ease
    assert long_words < 50 < long_sentence < easy
    # 206.835 - 1.015 (9 words / 2 sentences) - 84.6 (9 syllables / 9 words)
    assert easy == pytest.approx(206.835 - 1.015 * 4.5 - 84.6)


def test_terms_names_numbers_and_code_count_as_words_but_not_as_syllables(prose: dict[str, Any]) -> None:
    assert prose["measure"]("The federated aggregation of MNIST took 1,060 `runs`.").ease == pytest.approx(
        206.835 - 1.015 * 8 - 84.6 * 3 / 3
    )


@pytest.mark.parametrize(
    ("word", "count"),
    [
        *[
            ("the", 1),
            ("people", 2),
            ("table", 2),
            ("used", 1),
            ("wanted", 2),
            ("names", 1),
            ("boxes", 2),
            ("science", 2),
        ],
        *[
            ("idea", 3),
            ("going", 2),
            ("question", 2),
            ("combination", 4),
            ("measured", 2),
            ("safely", 2),
            ("obvious", 3),
        ],
        *[("useful", 2), ("created", 3), ("special", 2), ("radio", 3), ("promises", 3), ("trains", 1), ("excluded", 3)],
    ],
)
def test_syllables_are_those_of_the_dictionary(prose: dict[str, Any], word: str, count: int) -> None:
    assert prose["syllables"](word) == count


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("word " * 31 + ".", "more than 30 words"),
        ("It is .20 of all.", "no zero before the point: .20"),
        ("It is good.\n\n" + "word " * 14 + ". " + "word " * 10 + ".", "line 3 is longer"),
        ("Considerable incompatibilities necessitated extraordinary reconsideration.", "reading ease"),
    ],
)
def test_a_page_that_breaks_a_rule_is_told_which(prose: dict[str, Any], text: str, fault: str) -> None:
    assert any(fault in one for one in prose["faults"](text))
    assert prose["faults"]("The cat sat on the mat. It was 0.20 m wide.") == []


@pytest.mark.parametrize("page", [path.relative_to(ROOT).as_posix() for path in MEASURED["pages"]()])
def test_a_tired_reader_can_read_every_page(prose: dict[str, Any], page: str) -> None:
    path = ROOT / page
    assert prose["faults"](path.read_text(encoding="utf-8"), ease=prose["pages"]()[path]) == []


def test_pages_that_may_still_break_the_rules_exist(prose: dict[str, Any]) -> None:
    assert [page for page in prose["PENDING"] if not (ROOT / page).is_file()] == []
    assert len(prose["pages"]()) > 40
