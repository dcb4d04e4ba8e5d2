"""Whole tests with coefficients: what is opened, what it says about clients, and what is on record (decision 0030)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt.design import StagedDesign, any_design, searched_design
from fedgt.errors import DesignError, SpecError
from fedgt.experiment import make_spec, run, run_into
from fedgt.experiment.unmasked import UnmaskedSums
from fedgt.federation import DecodeSettings, ScreenSettings, screening_round, staged_round
from fedgt.grouping import Grouping
from fedgt.privacy import disclosed_share
from fedgt.report import audit
from prototype_lab import NAMES, START, VALIDATION, updates

Make = Callable[..., Any]

DESIGN = searched_design("regular-15x10-r6-c3").design
GROUPING = Grouping.of(DESIGN, NAMES)


def screened(federation: Any, *, present: tuple[str, ...] = NAMES, **changes: Any) -> Any:
    options: dict[str, Any] = {
        "grouping": GROUPING,
        "validation": VALIDATION,
        "screen": ScreenSettings(),
        "decoding": DecodeSettings(),
    }
    return screening_round(federation, START, round=1, present=present, **(options | changes))


def test_ten_sums_of_fifteen_clients_keep_six_and_name_the_attackers(bench: Make) -> None:
    """No ten plain groups of fifteen clients can: six of them are all that were found."""
    attackers = {"c02", "c07", "c11"}
    made = bench(updates(attackers), privacy=6)
    found = screened(made.federation)
    assert set(found.exclusion.excluded) == attackers
    assert found.result.secure_sums == 10
    assert made.federation.ledger.account().strict == 6
    kept = [NAMES.index(name) for name in NAMES if name not in attackers]
    marker = np.asarray(found.result.parameters["marker"], dtype=np.float64)
    np.testing.assert_allclose(marker[[2, 7, 11]], 0.0, atol=1e-6)
    np.testing.assert_allclose(marker[kept].sum(), 1.0, atol=1e-5)


def test_the_record_has_the_real_weights(bench: Make) -> None:
    found = screened(bench(updates(set()), privacy=6).federation)
    for record, row in zip(found.result.records, DESIGN.matrix.tolist(), strict=True):
        assert dict(zip(record.members, record.weights, strict=True)) == {
            name: float(a) for name, a in zip(NAMES, row, strict=True) if a
        }


def test_sums_without_masks_say_the_same(bench: Make) -> None:
    made = bench(updates({"c02"}), privacy=6)
    plain = replace(bench(updates(set()), privacy=6).federation, take_sums=UnmaskedSums(clients=made.clients))
    one, other = screened(made.federation), screened(plain)
    assert one.result.records == other.result.records
    for name in START:
        assert np.array_equal(one.result.parameters[name], other.result.parameters[name])


def test_who_is_absent_is_in_no_row_and_the_ledger_counts_what_is_left(bench: Make) -> None:
    """A row at the bound keeps r - 1 without one of its members: some sums are refused, and the promise holds."""
    made = bench(updates({"c02"}), privacy=6)
    found = screened(made.federation, present=tuple(name for name in NAMES if name != "c05"))
    refused = [record for record in found.result.records if record.status == "refused"]
    assert refused
    assert all("the promise is 6" in record.reason for record in refused)
    assert made.federation.ledger.account().strict >= 6
    opened = [record for record in found.result.records if record.status == "open"]
    for record in opened:
        row = DESIGN.matrix[int(record.purpose.rpartition("-")[2])]
        weights = {name: float(a) for name, a in zip(NAMES, row.tolist(), strict=True) if a and name != "c05"}
        assert dict(zip(record.members, record.weights, strict=True)) == weights


def test_one_bit_a_group_takes_no_coefficients(bench: Make) -> None:
    with pytest.raises(SpecError, match="one bit a group is for plain groups"):
        screened(bench(updates(set()), privacy=6).federation, screen=ScreenSettings(kind="clusters"))


def test_stages_may_have_coefficients_where_they_are_no_training_round(bench: Make) -> None:
    nested = searched_design("nested-15x11-r5-c2").design
    options: dict[str, Any] = {
        "round": 1,
        "present": NAMES,
        "go_on": lambda opened: True,
        "screening": lambda *args, **more: screened(*args[:1], **{k: v for k, v in more.items() if k != "round"}),
    }
    made = bench(updates({"c02"}), privacy=5)
    found: Any = staged_round(
        made.federation, START, grouping=Grouping.of(nested, NAMES), stages=nested.stages, **options
    )
    assert found.exclusion.excluded == ("c02",)
    assert made.federation.ledger.account().strict == 5
    turned = StagedDesign(matrix=nested.matrix[::-1], stages=(8, 3), name="turned", source="by hand")
    with pytest.raises(SpecError, match="begin with rows of 0 and 1"):
        staged_round(
            bench(updates(set()), privacy=5).federation,
            START,
            grouping=Grouping.of(turned, NAMES),
            stages=turned.stages,
            **options,
        )


# Simulated runs ----------------------------------------------------------------------------------------------------------


def spec(**changes: Any) -> Any:
    base = {"seed": 1, "privacy": 6, "federation": {"rounds": 3}, "attack": {"malicious": 2}}
    return make_spec(base, {"design.coefficients": True, **{k.replace("__", "."): v for k, v in changes.items()}})


def test_a_run_with_coefficients_is_on_record_and_decided_again_by_its_report(tmp_path: Path) -> None:
    result = run_into(spec(), tmp_path)
    assert (result.missed, result.falsely_excluded) == (0, 0)
    assert result.privacy.strict == 6
    assert result.privacy.cautious == 6
    assert result.test is not None
    first = result.tests[0]
    assert [len(row) for row in first.coefficients] == [len(group) for group in first.groups]
    assert max(map(max, first.coefficients)) == 3
    report = audit(tmp_path)
    assert report["recheck"]["status"] == "same", report["recheck"]
    assert any("multiplied" in line for line in report["limits"])


def test_the_shares_are_those_of_the_weights_where_all_sums_multiply_somebody(tmp_path: Path) -> None:
    rows = DESIGN.matrix.copy()
    rows[:, 0] *= 3
    chosen = {"design.matrix": rows.tolist(), "federation.rounds": 1, "federation.weighting": "equal"}
    result = run_into(make_spec({"seed": 1, "privacy": 6, "design": {"coefficients": True}}, chosen), tmp_path)
    assert set(result.privacy.weights.values()) == {1}
    heavy, light = (disclosed_share(rows, weights=weights) for weights in (None, np.ones(15)))
    assert heavy is not None
    assert light is not None
    assert heavy.mean != pytest.approx(light.mean, abs=1e-3)
    assert result.privacy.share_mean == pytest.approx(light.mean)
    assert sorted(result.privacy.shares.values()) == pytest.approx(sorted(light.shares))
    recomputed = audit(tmp_path)["privacy"]
    assert recomputed["check"]["status"] == "same"
    assert recomputed["sets"][0]["share_mean"] == pytest.approx(light.mean)


@pytest.mark.slow
def test_further_tests_take_the_same_rows_with_their_coefficients() -> None:
    """The rows of another test about the same members, but with other coefficients, would break the promise."""
    results = [run(spec(seed=seed, attack__malicious=3, screen__schedule="first")) for seed in (0, 3)]
    further = [one for result in results for one in result.tests if one.design.startswith("repeated")]
    assert further, "no seed with a further test: take others"
    for result in results:
        assert result.privacy.cautious == 6


@pytest.mark.slow
def test_a_test_in_every_round_with_coefficients_judges_the_others_without_the_excluded() -> None:
    result = run(spec(screen__schedule="every-round", federation__rounds=4))
    assert (result.missed, result.falsely_excluded) == (0, 0)
    assert (result.privacy.strict, result.privacy.cautious) == (6, 6)


def test_without_coefficients_a_result_has_none() -> None:
    result = run(spec(design__coefficients=False, privacy=4, federation__rounds=1))
    assert result.test is not None
    assert result.test.coefficients == ()


def test_a_named_design_with_coefficients_needs_no_further_word() -> None:
    named = spec(design__coefficients=False, design__name="regular-15x10-r6-c3", federation__rounds=1)
    result = run(named)
    assert result.test is not None
    assert result.test.coefficients
    assert any_design("regular-15x10-r6-c3") is DESIGN


@pytest.mark.parametrize("given", ["matrix", "file"])
def test_entries_above_one_must_be_meant(given: str, tmp_path: Path) -> None:
    rows = DESIGN.matrix.tolist()
    (tmp_path / "A.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    place: dict[str, Any] = {"matrix": rows} if given == "matrix" else {"file": str(tmp_path / "A.csv")}
    content = {"privacy": 6, "federation": {"rounds": 1}, "design": place}
    with pytest.raises((DesignError, SpecError), match="0 or 1"):
        run(make_spec(content))
    result = run(make_spec(content, {"design.coefficients": True}))
    assert result.privacy.strict == 6
