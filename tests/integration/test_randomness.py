"""Keys, masks, shares and challenges come from the operating system: a specification and its seed say nothing about them."""

import ast
import os
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedgt
from fedgt.engine import Failure, Transport, secure_sums
from fedgt.engine.hello import hello_frame
from fedgt.engine.round_message import bound
from fedgt.experiment import make_spec, run
from fedgt.secagg import GroupSum, PrekeyRequest, Prekeys, RoundPlan
from fedgt.secagg.challenge import draw_seed, seed_hash
from fedgt.secagg.masks import KEY_BYTES
from fedgt.secagg.messages import read_stage_message
from fedgt.types import Parameters

SPEC: dict[str, Any] = {
    "seed": 7,
    "privacy": 4,
    "federation": {"rounds": 2},
    "training": {"learning_rate": 0.05, "batch_size": 8, "local_epochs": 1},
    "attack": {"kind": "label-flip", "malicious": 2, "source": 9, "target": 3},
    "design": {"name": "bch-15x8"},
    "screen": {"kind": "clusters", "utility": "recall", "source_label": 9},
}


class Tapped:
    """A transport whose replies an observer keeps."""

    def __init__(self, inner: Transport, plan: RoundPlan, kept: dict[Any, bytes]) -> None:
        self.inner, self.plan, self.kept = inner, plan, kept

    def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        replies = self.inner.exchange(stage, messages, timeout)
        for client, reply in replies.items():
            if stage == "unmask":
                continue
            assert isinstance(reply, bytes)
            message = read_stage_message(reply, plan=self.plan, stage=stage, client=client)
            for part in message.parts:
                self.kept[self.plan.round, self.plan.purpose, stage, client, part.group] = bytes(part.body)
        return replies


def observed() -> tuple[dict[Any, bytes], list[GroupSum], str]:
    """What a run of the specification sends, its sums, and its digest of all plans."""
    kept: dict[Any, bytes] = {}
    sums: list[GroupSum] = []
    digests: list[str] = []

    def tapped(transport: Transport, plan: RoundPlan, parameters: Parameters, **options: Any) -> Any:
        seed = draw_seed()
        asked = replace(bound(plan, parameters), challenges=(seed_hash(seed),) if plan.shares_clients else ())
        with pytest.MonkeyPatch.context() as known:
            known.setattr("fedgt.engine.aggregate.draw_seed", lambda: seed)
            taken = secure_sums(Tapped(transport, asked, kept), plan, parameters, **options)
        digests.append(bound(plan, parameters).digest)
        sums.extend(taken.sums)
        return taken

    # Whoever seeds the generators of the process must not seed the protocol.
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedgt.experiment.simulation.secure_sums", tapped)
        run(make_spec(SPEC))
    return kept, sums, " ".join(digests)


def test_two_runs_of_one_specification_and_seed_share_no_key_and_no_mask_and_give_the_same_sums() -> None:
    (first, sums, plans), (second, again, same_plans) = observed(), observed()
    assert plans == same_plans
    assert len(sums) == len(again) > 8
    for one, other in zip(sums, again, strict=True):
        assert (one.status, one.members) == (other.status, other.members)
        for name in one.total or {}:
            assert one.total is not None
            assert other.total is not None
            np.testing.assert_array_equal(one.total[name], other.total[name])
    assert first.keys() == second.keys()
    assert {stage for _, _, stage, _, _ in first} == {"keys", "shares", "masked"}
    public = [
        body[start : start + KEY_BYTES]
        for kept in (first, second)
        for (_, _, stage, _, _), body in kept.items()
        if stage == "keys"
        for start in range(0, len(body), KEY_BYTES)
    ]
    assert len(set(public)) == len(public) > 250
    for place, body in first.items():
        if place[2] == "keys":
            continue
        these, those = (np.frombuffer(kept, dtype=np.uint8) for kept in (body, second[place]))
        assert these.size == those.size
        # Independent bytes agree in one place of 256.
        assert np.count_nonzero(these == those) < these.size / 256 + 6 * np.sqrt(these.size / 256) + 2


def test_every_secret_of_a_client_is_256_bits_that_the_operating_system_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    system = os.urandom

    def counted(length: int) -> bytes:
        asked.append(length)
        return system(length)

    monkeypatch.setattr("fedgt.secagg.membership.os.urandom", counted)
    request = PrekeyRequest(run="run", round=1, groups=5)
    drawn = [Prekeys.draw("a", request) for _ in range(2)]
    assert asked.count(32) == 10
    published = [one.published(None) for one in drawn]
    assert published[0] != published[1]
    nonces = {hello_frame(None)[0] for _ in range(50)}
    assert len(nonces) == 50
    assert {len(bytes.fromhex(nonce)) for nonce in nonces} == {32}


SEEDED = {("secagg/agreement.py", "_general"), ("engine/nearness.py", "sketched")}
"""Weights that stand for secret ones in an account; and sketches, whose seed is 256 bits from the operating system."""


def generators(path: Path) -> set[str]:
    """The functions (or the module) in which a file uses a generator that can be seeded."""
    found: set[str] = set()

    def visit(node: ast.AST, inside: str) -> None:
        if isinstance(node, ast.FunctionDef):
            inside = node.name
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Attribute):
            names = [node.attr] if node.attr in ("default_rng", "RandomState", "Generator") else []
        if any(name in ("random", "numpy.random", "default_rng", "RandomState", "Generator") for name in names):
            found.add(inside)
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


def test_the_protocol_and_its_engines_use_no_generator_that_can_be_seeded() -> None:
    home = Path(fedgt.__file__).parent
    used = {
        (path.relative_to(home).as_posix(), function)
        for part in ("secagg", "engine", "flower")
        for path in sorted((home / part).rglob("*.py"))
        for function in generators(path)
    }
    assert used <= SEEDED
    assert generators(home / "engine" / "nearness.py")  # the search finds what it looks for
