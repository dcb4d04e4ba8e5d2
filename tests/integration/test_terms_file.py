"""Terms that a consortium signs: who is bound by them, and what a file that was changed is worth."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedgt.engine import ClientEndpoint, TrainedModel
from fedgt.errors import PolicyError, SignatureError, SpecError
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


def test_what_is_signed_is_shown_with_its_weights_and_groups(tmp_path: Path) -> None:
    registry = tmp_path / "consortium.toml"
    add_to_registry(registry, FOUR.server, server=True)
    for identity in FOUR.clients.values():
        add_to_registry(registry, identity, server=False)
    free = replace(TERMS, groups=None, thresholds=None, weights={"a": 7, "b": 9}, members_only=True)
    for number, (terms, shown) in enumerate(
        [
            (TERMS, ("groups      2 groups and no other", "weights     a 1, b 1, c 1, d 1")),
            (free, ("groups      any groups that keep the promise", "weights     a 7, b 9", "2 clients\n")),
            (replace(free, members_only=False), ("2 clients and whoever else is in the registry",)),
        ]
    ):
        write_terms(tmp_path / f"{number}.json", terms)
        told = CliRunner().invoke(app, ["terms", str(tmp_path / f"{number}.json"), "--registry", str(registry)]).stdout
        assert [one for one in shown if one not in told] == []


@pytest.mark.parametrize("weight", [0, -1, 1.5, True])
def test_terms_with_a_weight_that_is_none_are_neither_made_nor_signed(tmp_path: Path, weight: Any) -> None:
    with pytest.raises(SpecError, match="no weight of at least 1 to a: fill in how many samples"):
        replace(TERMS, weights={"a": weight, "b": 1})
    path = tmp_path / "terms.json"
    write_terms(path, TERMS)
    content = json.loads(path.read_text())
    content["terms"]["weights"]["a"] = weight
    path.write_text(json.dumps(content))
    with pytest.raises(SpecError, match="no weight of at least 1"):
        sign_terms(path, FOUR.of_client("a"))


def test_terms_for_members_only_refuse_everybody_else() -> None:
    plan = make_plan("abcd", "abc")
    terms = replace(RunTerms.of(plan), weights={"a": 1, "b": 1, "c": 1})
    terms.require(plan)
    with pytest.raises(PolicyError, match="client d is not in the agreed terms"):
        replace(terms, members_only=True).require(plan)
    assert RunTerms.from_json(replace(terms, members_only=True).to_json()).members_only
