"""Measures how hard a page is to read, so that tired readers are not lost where nobody looked.

    python docs/measure_prose.py                         # the README and the tutorial
    python docs/measure_prose.py docs/limits.md --details
    python docs/measure_prose.py --check                 # every page against the rules; the tests do so, too

| column | meaning |
|---|---|
| ease | Flesch reading ease: 206.835 - 1.015 (words a sentence) - 84.6 (syllables a word); 50 is fairly difficult, 70 easy |
| words | words a sentence in the mean, and in the longest one |
| numbers | numbers a sentence in the mean |
| symbols | mathematical symbols that the page does not explain where they first stand |
| no zero | decimals that begin with their point |
| long | lines of more than 100 characters outside of tables and code |

Only sentences are measured: code, tables, pictures, headings and the addresses of links are left out. A term of `TERMS`, a
name, a number and a piece of code in a sentence count as words of it, but not in the syllables a word: the page explains a
term once, and a reader does not stumble over it again. A symbol is explained where it is set in bold or italics.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", DOCS / "tutorial.md")
LONGEST_LINE = 100
LONGEST_SENTENCE = 30
EASIEST, EASY = 50, 40
"""The least reading ease of `PAGES`, and of all others."""

WRITTEN_BY_COMMANDS = ("docs/reference/", "docs/results/reproduction/", "docs/changelog.md")
PENDING = (
    "CHANGELOG.md",
    "docs/secure-aggregation.md",
)
"""Pages that do not keep the rules yet. A page that does is taken off this list, and none is put on it."""

TERMS = {
    "accuracy", "aggregate", "aggregated", "aggregation", "client", "clients", "federated", "federation", "federations",
    "fedgt", "hospital", "hospitals", "malicious", "privacy", "probability", "security", "validation",
}  # fmt: skip
"""What the field and this project call things. Words that have a simpler one do not belong here."""

PEOPLE = "Graell i Amat"
"""A name with a lone letter, which is no symbol."""

_CODE = "\N{WHITE SQUARE}"
_IN_WORD = r"\w'\u2019\-"
_ABBREVIATION = re.compile(r"(?:e\.g|i\.e|et al|cf|vs|approx|Fig|Sec|No)\.$")
_WORD = re.compile(rf"{_CODE}|e\.g\.|i\.e\.|[^\W\d_][{_IN_WORD}]*|\d[\d.,]*(?:-\w+)?")
_SYMBOL = re.compile(
    rf"(?<![{_IN_WORD}./])(?<!\d )(?:[A-Za-z]{{1,2}}_\w+|[b-zB-HJ-Z](?![{_IN_WORD}]|\.\w))"  # r, n_m; not 3 s, i.e.
    r"|\b(?:alpha|beta|delta|epsilon|kappa|lambda|sigma)\b|[\u0391-\u03c9\u00b1\u2208\u2211\u2248\u2260\u2264\u2265]",
    re.ASCII,
)
_NO_ZERO = re.compile(r"(?<![\w.,/)\]])\.\d+")


@dataclass(frozen=True)
class Measured:
    """What was measured on one page.

    Attributes:
        sentences: Every sentence, with `\N{WHITE SQUARE}` in the place of code.
        ease: Flesch reading ease; the higher the easier.
        symbols: Symbols that are not explained where they first stand.
        no_zero: Decimals that begin with their point, tables included.
        long_lines: Numbers of the lines that are too long.
    """

    sentences: tuple[str, ...]
    ease: float
    symbols: tuple[str, ...]
    no_zero: tuple[str, ...]
    long_lines: tuple[int, ...]

    @property
    def words(self) -> list[int]:
        """Words of each sentence."""
        return [len(_WORD.findall(one)) for one in self.sentences]

    @property
    def numbers(self) -> list[int]:
        """Numbers of each sentence."""
        return [sum(word[0].isdigit() for word in _WORD.findall(one)) for one in self.sentences]


def syllables(word: str) -> int:
    """Syllables of an English word, by its vowels; right for about nine words of ten, and unbiased over a page."""
    word = re.sub(r"[^a-z]", "", word.lower())
    count = len(re.findall(r"[aeiouy]+", word))
    # Two vowels that are said apart: radio, science, video, actual, idea, going, obvious.
    apart = r"i[ao](?!n\b|ns\b|us|l\b|lly\b)|ience|eo(?!p)|[^gq]ua|(?:cr|id|ar)ea|[aeiou]ing\b|vious"
    count += len(re.findall(apart, word))
    # An e that is not heard: time, named, labels' plural groups' names, useful, safely.
    silent = r"[^aeiouyl]e$|[aeiouy]le$|[^aeiouytd]ed$|[^aeiouyscxzgh]es$|[^aeiouyl]e(?:ful|less|ness|ly|ment)s?$"
    return max(count - bool(re.search(silent, word)), 1)


def without_code(text: str) -> str:
    """The page without front matter, blocks of code, HTML and comments; code in a line becomes a mark."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"^(`{3,})[^\n]*\n.*?^\1`*$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->|<svg\b.*?</svg>", "", text, flags=re.DOTALL)
    text = re.sub(r"(?<=\n\n)(?: {4}[^\n]*\n)+", "", text)
    return re.sub(r"`[^`]+`", _CODE, re.sub(r"</?[a-zA-Z][^>]*>", "", text))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page, without tables, headings and pictures; of links the text stays."""
    lines = [line for line in without_code(text).splitlines() if not re.match(r"\s*(?:\||#|!!!)", line)]
    kept = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", "\n".join(lines))
    kept = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", kept)
    for paragraph in re.split(r"\n\s*\n|\n\s*(?=[-*] |\d+\. )", kept):
        plain = " ".join(re.sub(r"^\s*(?:[-*]|\d+\.) ", "", paragraph.replace("**", "")).split())
        part = ""
        for piece in re.split(r"(?<=[.!?])[\"')\]*]*\s+|(?<=[.!?][\"')*])\s+", plain):
            part = f"{part} {piece}".strip()
            if not _ABBREVIATION.search(part):
                if _WORD.search(part):
                    yield part
                part = ""


def _explained(symbol: str, text: str) -> bool:
    """Whether the page sets the symbol in bold or italics where it first stands."""
    first = re.search(rf"(?<!\w){re.escape(symbol)}(?!\w)", text)
    before = text[: first.start()] if first else ""
    return before.endswith("*") or before.endswith("_")


def reading_ease(found: tuple[str, ...]) -> float:
    """Flesch reading ease of sentences, terms, names, numbers and code not counted in the syllables a word."""
    words = [word for one in found for word in _WORD.findall(one)]
    plain = [
        word
        for word in words
        if word.lower() not in TERMS and word.isascii() and re.fullmatch(r"[A-Za-z]?[a-z'-]*", word)
    ]
    if not plain:
        return 100.0
    return 206.835 - 1.015 * len(words) / len(found) - 84.6 * sum(map(syllables, plain)) / len(plain)


def measure(text: str) -> Measured:
    """Measure a page of Markdown."""
    found = tuple(sentences(text))
    code_left_out = without_code(text)
    symbols = {one for sentence in found for one in _SYMBOL.findall(sentence.replace(PEOPLE, ""))}
    fenced = False
    long_lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        fenced ^= line.startswith("```")
        code = fenced or line.startswith("    ")
        if len(line) > LONGEST_LINE and not code and not line.lstrip().startswith(("|", "<", "![")):
            long_lines.append(number)
    return Measured(
        sentences=found,
        ease=reading_ease(found),
        symbols=tuple(sorted(one for one in symbols if not _explained(one, code_left_out))),
        no_zero=tuple(_NO_ZERO.findall(code_left_out)),
        long_lines=tuple(long_lines),
    )


def faults(text: str, *, ease: float = EASY) -> list[str]:
    """What a page has against the rules, in words; empty if it keeps them."""
    one = measure(text)
    long = [sentence for sentence, words in zip(one.sentences, one.words, strict=True) if words > LONGEST_SENTENCE]
    found = [f"more than {LONGEST_SENTENCE} words: {sentence}" for sentence in long]
    found += [f"no zero before the point: {number}" for number in one.no_zero]
    found += [f"line {number} is longer than {LONGEST_LINE} characters" for number in one.long_lines]
    if one.ease < ease:
        found.append(f"reading ease {one.ease:.0f}, {ease:.0f} is needed")
    return found


def pages() -> dict[Path, float]:
    """Every page that must keep the rules, and its least reading ease."""
    paths = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("examples/*/README.md")]
    return {
        path: EASIEST if path in PAGES else EASY
        for path in sorted(paths)
        if not path.relative_to(ROOT).as_posix().startswith(WRITTEN_BY_COMMANDS + PENDING)
    }


def _check() -> int:
    """Print the faults of all pages; 1 if there are any."""
    found = 0
    for path, ease in pages().items():
        for fault in faults(path.read_text(encoding="utf-8"), ease=ease):
            print(f"{path.relative_to(ROOT)}: {fault}")
            found += 1
    return min(found, 1)


def main() -> None:
    """Print a row for each page, and what is to be mended if asked."""
    parser = argparse.ArgumentParser(description="How hard is a page to read?")
    parser.add_argument(
        "pages", nargs="*", type=Path, default=PAGES, help="Markdown; the README and the tutorial if not given"
    )
    parser.add_argument("--details", action="store_true", help="also the sentences, symbols and numbers to mend")
    parser.add_argument("--check", action="store_true", help="only say what every page has against the rules")
    asked = parser.parse_args()
    if asked.check:
        sys.exit(_check())
    print("| page | lines | ease | words, longest | numbers | symbols | no zero | long |")
    print("|---|---|---|---|---|---|---|---|")
    for page in asked.pages:
        text = page.read_text(encoding="utf-8")
        one = measure(text)
        count = max(len(one.sentences), 1)
        cells = (
            page.name,
            len(text.splitlines()),
            f"{one.ease:.0f}",
            f"{sum(one.words) / count:.1f}, {max(one.words, default=0)}",
            f"{sum(one.numbers) / count:.1f}",
            len(one.symbols),
            len(one.no_zero),
            len(one.long_lines),
        )
        print(f"| {' | '.join(map(str, cells))} |")
        if asked.details:
            print(f"\nsymbols: {', '.join(one.symbols) or 'none'}; no zero: {', '.join(one.no_zero) or 'none'}")
            print(f"long lines: {', '.join(map(str, one.long_lines)) or 'none'}")
            for sentence, words, numbers in zip(one.sentences, one.words, one.numbers, strict=True):
                if words > 30 or numbers > 2:
                    print(f"- {words} words, {numbers} numbers: {sentence}")
            print()


if __name__ == "__main__":
    main()
