"""plan.json: written, read back, and refused when something in it is not true."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt.design import StagedDesign, any_design, named_design
from fedgt.errors import DesignError, SpecError
from fedgt.planning import Demands, Plan, make_plan, plan_schema, read_plan, write_plan
from fedgt.planning.evaluation import figures
from fedgt.planning.plan_file import plan_of
from fedgt.secagg import Identity

DEMANDS = Demands(clients=15, privacy=4, max_malicious=5)


def plan(**options: Any) -> Plan:
    found = figures(named_design("bch-15x8"), DEMANDS)
    return make_plan(found, DEMANDS, **options)


def changed(path: Path, **parts: Any) -> Path:
    """The plan in the file with some fields replaced: `design__name` is design.name."""
    write_plan(path, plan())
    content = json.loads(path.read_text())
    for name, value in parts.items():
        at = content
        *sections, last = name.split("__")
        for section in sections:
            at = at[section]
        at[last] = value
    path.write_text(json.dumps(content))
    return path


def test_a_plan_that_is_written_is_read_back_the_same(tmp_path: Path) -> None:
    made = plan(utility="recall", source_label=3)
    write_plan(tmp_path / "plan.json", made)
    again = read_plan(tmp_path / "plan.json")
    assert again == made
    np.testing.assert_array_equal(again.assignment.matrix, named_design("bch-15x8").matrix)
    assert (again.privacy.promised, again.privacy.r, again.privacy.exact) == (4, 4, True)
    assert (again.strategy.largest, again.strategy.false_alarm) == (5, 0.05)
    assert len((tmp_path / "plan.json").read_text().splitlines()[7].split(",")) >= 15  # a row of the matrix is one line


def test_a_plan_with_coefficients_says_that_they_are_meant(tmp_path: Path) -> None:
    names = tuple(f"c{j:02d}" for j in range(15))
    made = plan_of(any_design("regular-15x10-r6-c3"), privacy=6, evidence="graded", largest=7, members=names)
    write_plan(tmp_path / "plan.json", made)
    again = read_plan(tmp_path / "plan.json")
    assert again == made
    assert isinstance(again.assignment, StagedDesign)
    assert (again.privacy.r, again.assignment.largest_entry) == (6, 3)
    content = json.loads((tmp_path / "plan.json").read_text())
    assert content["design"].pop("coefficients") is True
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(SpecError, match=r"design\.coefficients = true if they are meant"):
        read_plan(tmp_path / "plan.json")
    content["design"]["coefficients"], content["evidence"] = True, "binary"
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(SpecError, match="coefficients are for graded evidence"):
        read_plan(tmp_path / "plan.json")
    content["design"]["matrix"][0][1] += 1  # another coefficient is another design
    content["evidence"] = "graded"
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(SpecError, match="privacy"):
        read_plan(tmp_path / "plan.json")


def test_a_plan_without_coefficients_does_not_mention_them(tmp_path: Path) -> None:
    write_plan(tmp_path / "plan.json", plan())
    assert "coefficients" not in (tmp_path / "plan.json").read_text()


def test_what_the_consortium_adds_survives_the_round_trip(tmp_path: Path) -> None:
    members = [f"hospital-{j}" for j in range(15)]
    added = {
        "members": members,
        "keys": {name: Identity.generate(name).public.hex() for name in [*members, "server"]},
        "thresholds": [3] * 8,
        "clip": 8.0,
        "fraction_bits": 24,
        "ring_bits": 64,
        "signature": "cd" * 64,
    }
    read = read_plan(changed(tmp_path / "plan.json", **added))
    write_plan(tmp_path / "again.json", read)
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads((tmp_path / "plan.json").read_text())
    assert read.members == tuple(members)


LETTERS = "abcdefghijklmno"
RAISED = {  # a true combination of two groups, but not the one of least support
    "promised": 4,
    "r": 7,
    "exact": True,
    "combination": {"u0": "1", "u4": "1"},
    "clients": np.flatnonzero(named_design("bch-15x8").matrix[[0, 4]].sum(axis=0)).tolist(),
}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"version": 2}, "version"),
        ({"colour": "red"}, "colour"),
        ({"evidence": "vibes"}, "evidence"),
        ({"design__matrix": [[1, 2], [1, 1]]}, "design.matrix"),
        ({"design__matrix": [[1, 1], [1]]}, "same length"),
        ({"design__matrix": [[1] * 15, [0] * 15]}, "group 1 has no members"),
        ({"privacy__promised": 5}, "privacy 5 is promised, but the design gives r = 4"),
        (
            {"privacy__promised": 5, "privacy__r": 5},
            "privacy 5 is promised, but a combination of its groups mixes fewer",
        ),
        ({"privacy__combination": {"u0": "1", "u1": "1"}}, "does not mix the clients"),
        ({"privacy__combination": {"u9": "1"}}, "there is no group 'u9'"),
        ({"privacy__combination": {"u0": "1/0"}}, "not a rational number"),
        ({"privacy__combination": {"u0": "1e99999999"}}, "privacy.combination.u0: String should match pattern"),
        ({"privacy": RAISED}, "privacy.r = 7, but only 4 can be proved"),
        ({"privacy": {**RAISED, "exact": False}}, "privacy.r = 7, but only 4 can be proved"),
        ({"screen": {"silhouette_threshold": 7.0}}, "silhouette_threshold"),
        ({"screen": {"silhouette_threshold": float("nan")}}, "finite"),
        ({"strategy__false_alarm": 0.6, "strategy__misdetection": 0.6}, "add up to 1 or more"),
        ({"privacy__r": 3, "privacy__promised": 3}, "the combination mixes 4 clients"),
        ({"strategy__name": "guess"}, "strategy.name"),
        ({"strategy__largest": 16}, "16 attackers of 15"),
        ({"strategy__beta": "0.5"}, "strategy.beta"),
        ({"screen": {"utility": "recall"}}, "needs the source_label"),
        ({"members": ["a", "b"]}, "2 members for 15 columns"),
        ({"members": ["a"] * 15}, "all different"),
        ({"thresholds": [3] * 7}, "7 thresholds for 8 groups"),
        ({"thresholds": [2] * 8}, "group 0: threshold 2 of 4"),
        ({"members": ["", *"abcdefghijklmn"]}, "member ''"),
        ({"keys": {"a": "xyz"}}, "keys"),
        ({"keys": {"a": "ab" * 32, "b": "ab" * 32}}, "two of the keys are the same"),
        ({"members": [*LETTERS], "keys": {one: f"{ord(one):064x}" for one in LETTERS + "z"}}, "keys of z, who are no"),
        ({"clip": -1.0}, "clip"),
        ({"ring_bits": 16}, "ring_bits"),
        ({"signature": "00"}, "signature"),
    ],
)
def test_a_plan_that_is_wrong_is_refused_by_name(tmp_path: Path, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read_plan(changed(tmp_path / "plan.json", **parts))


def test_a_field_that_stands_there_twice_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path / "plan.json")
    path.write_text(path.read_text().replace('"promised":', '"promised": 1, "promised":', 1))
    with pytest.raises(SpecError, match="'promised' stands there twice"):
        read_plan(path)


def test_a_matrix_that_was_changed_after_the_promise_is_noticed(tmp_path: Path) -> None:
    rows = named_design("bch-15x8").matrix.tolist()
    rows[1] = [1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]  # differs from row 0 in two clients: r = 2
    with pytest.raises(SpecError, match="privacy 4 is promised, but a combination"):
        read_plan(changed(tmp_path / "plan.json", design__matrix=rows))


def test_a_file_that_is_no_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[" * 100_000)
    for path in (tmp_path / "x.json", tmp_path / "missing.json"):
        with pytest.raises(SpecError, match=r"x\.json|missing\.json"):
            read_plan(path)


def test_a_promise_that_the_design_does_not_keep_makes_no_plan() -> None:
    found = figures(named_design("bch-15x8"), DEMANDS)
    with pytest.raises(DesignError, match="does not keep privacy 5: r = 4"):
        make_plan(found, Demands(clients=15, privacy=5, max_malicious=5))


def test_the_schema_names_every_field_and_what_is_required() -> None:
    schema = plan_schema()
    assert set(schema["required"]) == {"evidence", "design", "privacy", "strategy"}
    assert {"members", "keys", "thresholds", "clip", "fraction_bits", "ring_bits", "signature"} <= set(
        schema["properties"]
    )
    assert schema["additionalProperties"] is False
