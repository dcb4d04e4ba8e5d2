"""Whatever is wrong with a specification: the message names file, line or key, value, what is needed and what was meant."""

from pathlib import Path
from typing import Any

import pytest

from fedgt.errors import DesignError, SpecError
from fedgt.experiment import make_spec, read_spec, run

OK = "privacy = 4\n"

TEXTS = [
    # (what, the file, the message after its name)
    ("nothing in it", "", ": 'privacy' is missing: The promised r"),
    ("an unknown key", OK + "privcy = 3\n", ": unknown key 'privcy'; did you mean 'privacy'?"),
    ("an unknown key like none", OK + "zzz = 3\n", ": unknown key 'zzz'; known are method, seed, privacy, data,"),
    ("another case", OK + "Seed = 3\n", ": unknown key 'Seed'; did you mean 'seed'?"),
    ("a key of a section", OK + "[screen]\nrounds = 1\n", ": unknown key 'screen.rounds'; did you mean 'round'?"),
    ("a dash", OK + "[rfa]\nsmooth-ing = 1\n", ": unknown key 'rfa.smooth-ing'; did you mean 'smoothing'?"),
    ("an unknown section", OK + "[atack]\nmalicious = 1\n", ": unknown section 'atack'; did you mean 'attack'?"),
    ("a section inside a value", OK + "[seed]\nx = 1\n", ": seed = {'x': 1}: an integer is needed"),
    ("a value for a section", OK + "screen = 5\n", ": screen = 5: a section is needed: [screen]"),
    (
        "one section for several",
        OK + "[faults]\nclient = 1\n",
        ": faults = {'client': 1}: sections are needed: [[faults]]",
    ),
    ("a number in quotes", "privacy = '4'\n", ": privacy = '4': an integer is needed; did you mean 4, without quotes?"),
    ("words for a number", "privacy = 'four'\n", ": privacy = 'four': an integer is needed"),
    ("a float for an integer", "privacy = 4.0\n", ": privacy = 4.0: an integer is needed; did you mean 4?"),
    ("a broken integer", "privacy = 4.5\n", ": privacy = 4.5: an integer is needed"),
    ("true for a number", "privacy = true\n", ": privacy = True: an integer is needed"),
    (
        "text for true",
        OK + "[attack]\nrequire_clean_group = 'True'\n",
        "'True': true or false is needed; did you mean true,",
    ),
    ("a number for text", OK + "[design]\nname = 15\n", ": design.name = 15: text in quotes is needed"),
    ("text for a list", OK + "[design]\nmatrix = 'x'\n", ": design.matrix = 'x': a list in brackets is needed"),
    ("text inside a matrix", OK + "[design]\nmatrix = [[1, 'x']]\n", ": design.matrix.0.1 = 'x': an integer is needed"),
    ("not a number", OK + "[rfa]\nsmoothing = nan\n", ": rfa.smoothing = nan: a finite number is needed"),
    ("too small", "privacy = 0\n", ": privacy = 0: at least 1 is needed"),
    ("zero", OK + "[rfa]\nsmoothing = 0.0\n", ": rfa.smoothing = 0.0: a number above 0.0 is needed"),
    ("too large", OK + "[secure_aggregation]\nfraction_bits = 53\n", "fraction_bits = 53: at most 52 is possible"),
    ("not below", OK + "[decode]\nnobody = 1.0\n", ": decode.nobody = 1.0: a number below 1.0 is needed"),
    ("an unknown choice", OK + "[data]\nname = 'mnits'\n", "is needed; did you mean 'mnist'?"),
    ("a choice in capitals", OK + "[data]\nname = 'MNIST'\n", "data.name = 'MNIST': one of digits, mnist,"),
    ("a choice with a underscore", OK + "method = 'no_defence'\n", "did you mean 'no-defence'?"),
    ("a number for a choice", OK + "method = 3\n", ": method = 3: one of fedgt, no-defence, oracle, rfa is needed"),
    (
        "a strategy",
        OK + "[decode]\nstrategy = 'cuont'\n",
        ": decode.strategy = 'cuont': one of auto, count, delta, bayes,",
    ),
    ("a strategy, nearly", OK + "[decode]\nstrategy = 'cuont'\n", "did you mean 'count'?"),
    ("a fault's key", OK + "[[faults]]\nclient = 1\nrond = 1\n", ": 'faults.0.round' is missing: From 1."),
    ("a fault's key, nearly", OK + "[[faults]]\nclient = 1\nrond = 1\n", "'faults.0.rond'; did you mean 'round'?"),
    ("a fault's stage", OK + "[[faults]]\nclient = 1\nround = 1\nstage = 'mask'\n", "did you mean 'masked'?"),
    (
        "an unknown client",
        OK + "[[faults]]\nclient = 15\nround = 1\n",
        ": faults: client 15, but clients are numbered 0 to 14",
    ),
    ("a late fault", OK + "[[faults]]\nclient = 1\nround = 11\n", ": faults: round 11, but there are 10 rounds"),
    ("two faults", OK + "[[faults]]\nclient = 1\nround = 1\n" * 2, ": faults: client 1 has two faults in round 1"),
    ("too much privacy", "privacy = 16\n", ": privacy = 16, but there are 15 clients"),
    ("too many attackers", OK + "[attack]\nmalicious = 16\n", ": attack.malicious = 16, but there are 15 clients"),
    ("too late a test", OK + "[screen]\nround = 11\n", ": screen.round = 11, but there are 10 rounds"),
    (
        "too many suspects",
        OK + "[decode]\nmax_malicious = 99\n",
        ": decode.max_malicious = 99, but there are 15 clients",
    ),
    ("a missing label", OK + "[screen]\nkind = 'clusters'\nutility = 'recall'\n", "needs screen.source_label"),
    (
        "two designs",
        OK + "[design]\nfile = 'a.csv'\nmatrix = [[1]]\n",
        ": design.file and design.matrix are both given",
    ),
    ("a missing design", OK + "[design]\nfile = 'a.csv'\n", ": design.file = 'a.csv': "),
    ("two errors", "privacy = 0\nsed = 1\n", "did you mean 'seed'?"),
    ("a long value", OK + f"method = '{'x' * 500}'\n", "...: one of fedgt,"),
    ("no value", "privacy = \n", ":1:11: not valid TOML: Invalid value"),
    ("a broken line", OK + "\n[screen\n", ":3:8: not valid TOML: "),
    ("the same key twice", OK + "privacy = 5\n", ":2:12: not valid TOML: Cannot overwrite a value"),
    ("an open string", "method = 'fedgt\n", ":1:16: not valid TOML: "),
]


@pytest.mark.parametrize(("text", "message"), [case[1:] for case in TEXTS], ids=[case[0] for case in TEXTS])
def test_an_error_in_a_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_spec(path)
    told = str(caught.value)
    assert told.startswith(str(path))
    assert message in told.removeprefix(str(path))
    assert "\n" not in told
    assert len(told) < 800


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no\.toml cannot be read: No such file or directory"):
        read_spec(tmp_path / "no.toml")
    (tmp_path / "binary.toml").write_bytes(b"ab\xff\xfe")
    with pytest.raises(SpecError, match=r"binary\.toml is no text: byte 2 is not UTF-8"):
        read_spec(tmp_path / "binary.toml")
    with pytest.raises(SpecError, match="cannot be read"):
        read_spec(tmp_path)


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("\ufeffprivacy = 4\n")
    assert read_spec(tmp_path / "s.toml").privacy == 4


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"decode.strtegy": "count"},
            "unknown key 'decode.strtegy'; did you mean 'strategy'? (set by an option, not in the file)",
        ),
        ({"scren.round": 1}, "unknown section 'scren'; did you mean 'screen'?"),
        ({"seed": "x"}, "seed = 'x': an integer is needed (set by an option, not in the file)"),
        ({"seed.x": 1}, "'seed.x' cannot be set, 'seed' is a value, not a section"),
    ],
)
def test_an_error_in_an_option(tmp_path: Path, overrides: dict[str, Any], message: str) -> None:
    (tmp_path / "s.toml").write_text("seed = 1\n" + OK)
    with pytest.raises(SpecError) as caught:
        read_spec(tmp_path / "s.toml", overrides)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("design", "message"),
    [
        ({"name": "bhc-15x8"}, "design.name = 'bhc-15x8': unknown design 'bhc-15x8'; did you mean 'bch-15x8'?"),
        ({"name": "graded-15x11"}, "did you mean 'graded-15x1"),
        ({"matrix": [[1, 1], [1]]}, "design.matrix: "),
        ({"name": "identity-0"}, "design.name = 'identity-0': "),
    ],
)
def test_an_error_in_the_design(design: dict[str, Any], message: str) -> None:
    with pytest.raises(DesignError) as caught:
        run(make_spec({"privacy": 1, "design": design}))
    assert message in str(caught.value)
