"""What the report makes of a record: reasons, the decision again, the privacy account, who was missing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt.decode import CountPrior, explain, forward_backward
from fedgt.design import from_matrix, named_design
from fedgt.errors import SpecError
from fedgt.report import audit
from fedgt.report.charts import axis
from fedgt.report.recheck import recheck
from fedgt.types import ErrorRates, Outcomes
from report_lab import decided_result, spec_of, untested_result, write_folder

RATES = ErrorRates.symmetric(0.05)


def test_the_groups_for_and_against_each_client_are_those_of_the_decoder(tmp_path: Path) -> None:
    spec = spec_of(15)
    report = audit(write_folder(tmp_path, decided_result(spec), spec))
    changes = explain(named_design("bch-15x8"), Outcomes.parse("1101?000"), RATES, CountPrior.uniform(5))
    for row in report["verdicts"]:
        column = int(row["client"][-2:])
        expected = dict(zip(named_design("bch-15x8").groups_of(column), changes[column], strict=True))
        said = {one["group"]: one["change"] for one in row["against"] + row["for"]}
        assert said == pytest.approx({group: change for group, change in expected.items() if change})
        assert all(one["change"] < 0 for one in row["against"])
        assert all(one["change"] > 0 for one in row["for"])


def test_the_most_suspicious_client_comes_first(tmp_path: Path) -> None:
    spec = spec_of(15)
    rows = audit(write_folder(tmp_path, decided_result(spec), spec))["verdicts"]
    assert rows[0]["excluded"]
    posteriors = [row["posterior"] for row in rows if row["verdict"] == "keep"]
    assert posteriors == sorted(posteriors, reverse=True)


def test_the_evidence_against_nobody_is_bayes_rule_spelled_out() -> None:
    spec = spec_of(15)
    result = decided_result(spec, outcomes="11010000")
    nobody = recheck(result, spec.decode, True)["nobody"]
    found = forward_backward(named_design("bch-15x8"), Outcomes.parse("11010000"), RATES, CountPrior.uniform(5))
    somebody = CountPrior(weights=np.array([0.0, 1, 1, 1, 1, 1]))
    given_somebody = forward_backward(
        named_design("bch-15x8"), Outcomes.parse("11010000"), RATES, somebody
    ).log_evidence
    given_nobody = 3 * np.log(0.05) + 5 * np.log(0.95)
    assert nobody["posterior"] == pytest.approx(found.count[0])
    assert nobody["evidence_against"] == pytest.approx(given_somebody - given_nobody)


@pytest.mark.parametrize("strategy", ["bayes", "map", "count", "delta"])
@pytest.mark.parametrize("outcomes", ["1101?000", "00000000", "11111111"])
def test_an_untouched_record_is_decided_the_same_way_again(strategy: str, outcomes: str) -> None:
    spec = spec_of(15, overrides={"decode.strategy": strategy})
    checked = recheck(decided_result(spec, outcomes=outcomes), spec.decode, True)
    assert checked["status"] == "same", checked["reason"]


@pytest.mark.parametrize("what", ["posterior", "verdict", "outcomes"])
def test_a_record_that_was_changed_is_noticed(what: str) -> None:
    spec = spec_of(15)
    result = decided_result(spec, outcomes="11010000")
    guilty = next(client for client in result["clients"] if client["excluded"])
    if what == "posterior":
        guilty["posterior"] -= 0.01
    elif what == "verdict":
        guilty["verdict"] = "keep"
    else:
        result["test"]["outcomes"] = "11010100"
    checked = recheck(result, spec.decode, True)
    assert checked["status"] == "different"
    assert (guilty["id"] in checked["reason"]) == (what == "verdict")


def test_graded_evidence_is_not_decoded_as_if_it_were_bits() -> None:
    spec = spec_of(15)
    result = decided_result(spec)
    result["test"]["kind"] = "graded"
    assert recheck(result, spec.decode, True)["status"] == "not-made"


def test_the_most_exposed_client_is_found_from_the_recorded_sums(tmp_path: Path) -> None:
    """The three sums of two of three clients give each client away: r = 1, although each sum has two members."""
    design = from_matrix([[1, 1, 0], [1, 0, 1], [0, 1, 1]], name="triangle")
    spec = spec_of(3, design=design, overrides={"decode.max_malicious": 1, "attack.malicious": 1})
    result = decided_result(spec, design=design, outcomes="000")
    for row in result["aggregates"]:
        row["weights"] = [1.0] * len(row["members"])
    report = audit(write_folder(tmp_path, result, spec))
    worst = report["privacy"]["most_exposed"]
    assert (worst["round"], worst["r"], worst["clients"]) == (2, 1, ["client-00", "client-01", "client-02"])
    assert len(worst["combination"]) == 3
    assert report["privacy"]["check"]["status"] == "different"  # the record claims 2


def test_every_aggregate_is_listed_with_its_members(tmp_path: Path) -> None:
    spec = spec_of(15)
    result = decided_result(spec)
    rows = audit(write_folder(tmp_path, result, spec))["privacy"]["aggregates"]
    assert [row["members"] for row in rows] == [row["members"] for row in result["aggregates"]]
    assert [row["size"] for row in rows] == [len(row["members"]) for row in result["aggregates"]]


def test_dropouts_absences_and_unopened_sums_are_told_apart(tmp_path: Path) -> None:
    spec = spec_of(15)
    result = decided_result(spec)
    result["aggregates"][0]["members"].remove("client-05")
    result["aggregates"][0]["weights"].pop()
    result["rounds"][0]["participants"] -= 1
    said = audit(write_folder(tmp_path, result, spec))["incidents"]
    assert said["absent"] == [{"round": 1, "clients": ["client-05"]}]
    assert {row["what"] for row in said["dropouts"]} == {"masked: has left"}
    assert [row["purpose"] for row in said["not_opened"]] == ["test-group-4"]
    assert said["warnings"] == result["warnings"]


def test_communication_adds_up(tmp_path: Path) -> None:
    spec = spec_of(15)
    said = audit(write_folder(tmp_path, decided_result(spec), spec))["communication"]
    assert said["bytes_up"] == 3 * 1_234_567
    assert sum(row["bytes_up"] for row in said["by_purpose"]) == said["bytes_up"]
    assert sum(row["secure_sums"] for row in said["by_purpose"]) == said["secure_sums"] == 10


def test_a_run_without_a_test_judges_nobody(tmp_path: Path) -> None:
    spec = spec_of(15)
    report = audit(write_folder(tmp_path, untested_result(spec), spec))
    assert report["test"] is None
    assert report["summary"]["excluded"] == []
    assert "No group test" in report["limits"][0]


def broken(**changes: Any) -> dict[str, Any]:
    return decided_result(spec_of(15)) | changes


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "not a readable result"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ('{"a": 1e999}', "too large"),
        ("[" * 100_000, "not a readable result"),
        (b"\xff\xfe", "not a readable result"),
        ("[]", "result.json"),
        (json.dumps(broken(privacy=None)), "privacy"),
        (json.dumps(broken(schema_version=2)), "schema_version 2"),
        (json.dumps(broken(clients=broken()["clients"][:1] * 2)), "twice"),
        (json.dumps(broken(test=broken()["test"] | {"outcomes": "01"})), "test.outcomes"),
        (json.dumps(broken(test=broken()["test"] | {"outcomes": "0101010x"})), "test.outcomes"),
    ],
)
def test_what_is_no_result_is_refused_by_name(tmp_path: Path, content: str | bytes, named: str) -> None:
    (tmp_path / "result.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SpecError, match=named):
        audit(tmp_path)


def test_an_empty_folder_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="give a run folder"):
        audit(tmp_path)


def test_a_group_number_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    result = decided_result(spec_of(15))
    result["clients"][0]["groups"] = [8]
    with pytest.raises(SpecError, match="numbered 0 to 7"):
        audit(write_folder(tmp_path, result, None))


@pytest.mark.parametrize("values", [[0.0], [0.3, 0.3], [-5.0, 12.0], [1e-9, 2e-9], [0.0, 1e6]])
def test_an_axis_holds_its_values_and_has_a_few_round_ticks(values: list[float]) -> None:
    drawn = axis(values)
    assert drawn["low"] <= min(values) <= max(values) <= drawn["high"]
    assert drawn["low"] < drawn["high"]
    assert 1 <= len(drawn["ticks"]) <= 8
    assert all(drawn["low"] - 1e-9 <= tick <= drawn["high"] + 1e-9 for tick in drawn["ticks"])
