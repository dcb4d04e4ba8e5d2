"""Terms that a consortium signs: who is bound by them, and what a file that was changed is worth."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedgt.engine import ClientEndpoint, TrainedModel
from fedgt.errors import SignatureError, SpecError
from fedgt.secagg import (
    Identity,
    RunTerms,
    add_to_registry,
    read_terms,
    sign_terms,
    terms_signers,
    write_private_key,
    write_terms,
)
from fedgt.types import Parameters
from secagg_lab import FOUR, make_plan

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer and newer click
    from typer.testing import CliRunner

    from fedgt.cli import app

TERMS = replace(RunTerms.of(make_plan("abcd", "abc"), design=True), privacy=3, colluders=1)


class Still:
    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        return TrainedModel(parameters=dict(parameters), samples=1)


def signed(path: Path, by: str) -> Path:
    write_terms(path, TERMS)
    for name in by:
        assert sign_terms(path, FOUR.of_client(name)) == TERMS
    return path


def test_terms_bind_whoever_has_signed_them_with_a_quorum(tmp_path: Path) -> None:
    path = signed(tmp_path / "terms.json", "abc")
    assert read_terms(path, FOUR.of_client("a")) == TERMS
    assert terms_signers(path, FOUR.registry) == ("a", "b", "c")
    with pytest.raises(SignatureError, match="d has not signed"):
        read_terms(path, FOUR.of_client("d"))
    ClientEndpoint("a", Still(), terms=read_terms(path, FOUR.of_client("a")), credentials=FOUR.of_client("a"))


def test_a_quorum_is_needed_and_the_server_is_nobody(tmp_path: Path) -> None:
    path = signed(tmp_path / "terms.json", "ab")
    with pytest.raises(SignatureError, match="2 of 4 clients of the registry have signed these terms, 3 are needed"):
        read_terms(path, FOUR.of_client("a"))
    with pytest.raises(SpecError, match="signed by clients"):
        sign_terms(path, FOUR.of_server())


@pytest.mark.parametrize(
    "change", [{"privacy": 1}, {"clip": 99.0}, {"run": "other"}, {"groups": [["a", "b"], ["c", "d"]]}]
)
def test_terms_that_were_changed_after_they_were_signed_have_no_signature(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path = signed(tmp_path / "terms.json", "abcd")
    content = json.loads(path.read_text())
    content["terms"] |= change
    path.write_text(json.dumps(content))
    assert terms_signers(path, FOUR.registry) == ()
    with pytest.raises(SignatureError, match="has not signed"):
        read_terms(path, FOUR.of_client("a"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"terms": {}, "signatures": {}}',
        b'{"terms": 1, "signatures": []}',
        b"\xff",
        b'{"terms": null}',
    ],
)
def test_rubbish_is_no_terms(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "terms.json"
    path.write_bytes(content)
    with pytest.raises(SpecError, match="holds no terms"):
        read_terms(path, FOUR.of_client("a"))


def test_terms_are_never_overwritten(tmp_path: Path) -> None:
    path = signed(tmp_path / "terms.json", "a")
    with pytest.raises(SpecError, match="never overwritten"):
        write_terms(path, TERMS)


def test_the_command_line_shows_and_signs_them(tmp_path: Path) -> None:
    registry, path = tmp_path / "consortium.toml", tmp_path / "terms.json"
    add_to_registry(registry, FOUR.server, server=True)
    for name, identity in FOUR.clients.items():
        add_to_registry(registry, identity, server=False)
        write_private_key(tmp_path / f"{name}.pem", identity)
    write_terms(path, TERMS)
    for count, name in enumerate("abc", start=1):
        options = ["--registry", str(registry), "--sign", "--name", name, "--key", str(tmp_path / f"{name}.pem")]
        found = CliRunner().invoke(app, ["terms", str(path), *options, "--json"])
        assert found.exit_code == (0 if count == 3 else 1)
        assert len(json.loads(found.stdout)["signed"]) == count
    shown = CliRunner().invoke(app, ["terms", str(path), "--registry", str(registry)])
    assert shown.exit_code == 0
    assert TERMS.digest in shown.stdout
    assert "not yet     d" in shown.stdout


def test_a_stranger_cannot_sign(tmp_path: Path) -> None:
    path = signed(tmp_path / "terms.json", "abc")
    content = json.loads(path.read_text())
    stranger = Identity.generate("d")
    content["signatures"]["d"] = stranger.sign("terms", bytes.fromhex(TERMS.digest)).hex()
    path.write_text(json.dumps(content))
    assert terms_signers(path, FOUR.registry) == ("a", "b", "c")
