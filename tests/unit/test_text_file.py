"""Files that spreadsheets and editors saved with a byte order mark are read as those without."""

import codecs
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import called
from fedgt.design import named_design, read_design
from fedgt.errors import DesignError, FedGTError, SpecError
from fedgt.experiment import read_spec
from fedgt.planning import Demands, make_plan, read_plan, write_plan
from fedgt.planning.evaluation import figures
from fedgt.secagg import Identity, add_to_registry, read_policy, read_private_key, read_registry, write_private_key
from fedgt.text_file import read_text

MARKED: dict[str, Callable[[str], bytes]] = {
    "utf-8": lambda text: codecs.BOM_UTF8 + text.encode(),
    "utf-16-le": lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
    "utf-16-be": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
    "crlf": lambda text: codecs.BOM_UTF8 + text.replace("\n", "\r\n").encode(),
}
CSV, JSON = "1,1,0\n0,1,1\n", '{"name": "x", "matrix": [[1, 1, 0], [0, 1, 1]]}'


def written(path: Path, text: str, mark: str) -> Path:
    path.write_bytes(MARKED[mark](text))
    return path


@pytest.mark.parametrize("mark", MARKED)
@pytest.mark.parametrize(("name", "text"), [("m.csv", CSV), ("m.json", JSON), ("m.json", "[[1, 1, 0], [0, 1, 1]]")])
def test_a_matrix_with_a_mark_is_the_same_design(tmp_path: Path, name: str, text: str, mark: str) -> None:
    found = read_design(written(tmp_path / name, text, mark))
    assert found.matrix.tolist() == [[1, 1, 0], [0, 1, 1]]


@pytest.mark.parametrize("mark", MARKED)
def test_a_registry_policy_and_specification_with_a_mark_are_the_same(tmp_path: Path, mark: str) -> None:
    registry = tmp_path / "registry.toml"
    add_to_registry(registry, Identity.generate("one"), server=False)
    add_to_registry(registry, Identity.generate("server"), server=True)
    before = read_registry(registry)
    assert read_registry(written(registry, registry.read_text(), mark)) == before
    add_to_registry(registry, Identity.generate("two"), server=False)
    assert set(read_registry(registry).clients) == {"one", "two"}
    assert read_policy(written(tmp_path / "policy.toml", "privacy = 3\n", mark)).privacy == 3
    assert read_spec(written(tmp_path / "spec.toml", "privacy = 4\n[attack]\nmalicious = 2\n", mark)).privacy == 4


@pytest.mark.parametrize("mark", MARKED)
def test_a_plan_with_a_mark_is_the_same_plan(tmp_path: Path, mark: str) -> None:
    demands = Demands(clients=15, privacy=4, max_malicious=5)
    made = make_plan(figures(named_design("bch-15x8"), demands), demands)
    write_plan(tmp_path / "plan.json", made)
    assert read_plan(written(tmp_path / "plan.json", (tmp_path / "plan.json").read_text(), mark)) == made


@pytest.mark.parametrize("mark", ["utf-8", "utf-16-le"])
def test_outcomes_with_a_mark_are_decoded(tmp_path: Path, mark: str) -> None:
    matrix, batch = written(tmp_path / "m.csv", CSV, mark), written(tmp_path / "outcomes.csv", "1,0\n0,0\n", mark)
    found = called("decode", "--matrix", matrix, "--batch", batch)
    assert found.returncode == 0, found.stderr


def test_a_private_key_with_a_mark_is_the_same_key(tmp_path: Path) -> None:
    one = Identity.generate("one")
    write_private_key(tmp_path / "key.pem", one)
    content = (tmp_path / "key.pem").read_bytes()
    (tmp_path / "key.pem").write_bytes(codecs.BOM_UTF8 + content)
    assert read_private_key(tmp_path / "key.pem", "one").public == one.public


READERS: dict[str, Callable[[Path], Any]] = {
    "design": read_design,
    "plan": read_plan,
    "policy": read_policy,
    "registry": read_registry,
    "specification": read_spec,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00", b"\xfe\xff\xd8\x00", b"\xef\xbb\xbf\xef\xbb\xbf1", b"\xef\xbb\xbf", b"\xc3(", b"1\x000"],
)
def test_what_is_no_text_is_an_error_that_names_the_file(tmp_path: Path, reader: str, content: bytes) -> None:
    path = tmp_path / "given.csv"
    path.write_bytes(content)
    if reader == "policy" and content == codecs.BOM_UTF8:
        assert read_policy(path) == read_policy(written(path, "", "utf-8"))
        return
    with pytest.raises(FedGTError, match=r"given\.csv"):
        READERS[reader](path)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("place", ["", "missing", "file/below", "nul\0"])
def test_what_cannot_be_opened_is_an_error_that_names_the_file(tmp_path: Path, reader: str, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedGTError, match="cannot be read"):
        READERS[reader](tmp_path / place)


def test_a_file_that_is_too_large_is_refused_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 11)
    assert read_text(tmp_path / "big", "note", largest=11) == "x" * 11
    with pytest.raises(DesignError, match="larger than 10 bytes"):
        read_text(tmp_path / "big", "note", error=DesignError, largest=10)
    with pytest.raises(SpecError, match="larger than 10 bytes"):
        read_text(tmp_path / "big", "note", largest=10)


@pytest.mark.parametrize(
    "value", ["3" + "9" * 5000, "[" * 20_000, "[" * 20_000 + "]" * 20_000], ids=["digits", "open", "nested"]
)
def test_numbers_of_thousands_of_digits_and_lists_in_lists_are_errors_about_the_file(
    tmp_path: Path, value: str
) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(f"privacy = 4\n[attack]\nmalicious = {value}\n")
    with pytest.raises(SpecError) as error:
        read_spec(path)
    assert str(path) in str(error.value)
    assert called("run", str(path), "--out", str(tmp_path / "run")).returncode == 2
    path.write_text("privacy = 4\n")
    assert (
        called("run", str(path), "--out", str(tmp_path / "run"), "--set", f"attack.malicious={value}").returncode == 2
    )
