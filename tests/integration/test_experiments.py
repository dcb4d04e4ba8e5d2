"""Whole runs on the embedded data, through real secure aggregation."""

import csv
import dataclasses
import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fedgt.errors import ShapeError, SpecError
from fedgt.experiment import ExperimentSpec, make_spec, read_spec, run, run_into
from fedgt.record import RunResult
from fedgt.record.result import SCHEMA_VERSION
from slow_cases import slow

BASE: dict[str, Any] = {
    "seed": 1,
    "privacy": 4,
    "federation": {"rounds": 3},
    "training": {"learning_rate": 0.05, "batch_size": 8, "local_epochs": 5},
    "attack": {"kind": "label-flip", "malicious": 2, "source": 9, "target": 3},
    # The paper's screen and design; graded evidence, the default, has its own tests.
    "design": {"name": "bch-15x8"},
    "screen": {"kind": "clusters", "utility": "recall", "source_label": 9},
}


def spec(**changes: Any) -> ExperimentSpec:
    return make_spec(BASE, {key.replace("__", "."): value for key, value in changes.items()})


@cache
def plain() -> RunResult:
    """The run of the specification as it is, for all tests that compare with it."""
    return run(spec())


def comparable(result: RunResult) -> str:
    return json.dumps(result.model_dump(mode="json", exclude={"cpu_seconds"}), sort_keys=True)


def decisions(result: RunResult) -> Any:
    return result.model_dump(mode="json", exclude={"cpu_seconds"})


def test_the_same_specification_gives_the_same_result_to_the_byte() -> None:
    assert comparable(run(spec())) == comparable(plain())


@pytest.mark.parametrize("workers", [2, *slow(4)])
def test_the_number_of_workers_changes_nothing(workers: int) -> None:
    """Case 31."""
    assert decisions(plain()) == decisions(run(spec(secure_aggregation__workers=workers)))


def test_who_is_malicious_never_reaches_the_defence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same data with the truth exchanged: every decision, outcome and model stays."""
    import fedgt.experiment.one_run as module

    honest = plain()
    simulate = module.simulate  # type: ignore[attr-defined]

    def lying(*args: Any, **kwargs: Any) -> Any:
        simulation = simulate(*args, **kwargs)
        history: Any = simulation.run.history
        history._witness = dataclasses.replace(history._witness, truth=dict.fromkeys(simulation.clients, "benign"))
        return simulation

    monkeypatch.setattr(module, "simulate", lying)
    lied = run(spec())
    assert [c.truth for c in honest.clients] != [c.truth for c in lied.clients]
    assert [(c.verdict, c.posterior) for c in honest.clients] == [(c.verdict, c.posterior) for c in lied.clients]
    assert honest.rounds == lied.rounds
    assert honest.test is not None
    assert lied.test is not None
    assert honest.test.outcomes == lied.test.outcomes


def test_an_excluded_client_is_in_no_later_sum() -> None:
    result = plain()
    gone = {c.id for c in result.clients if c.excluded}
    assert gone
    later = [a for a in result.aggregates if a.round > 1]
    assert later
    assert all(not gone & set(a.members) for a in later)
    assert result.rounds[-1].participants == 15 - len(gone)


def test_the_oracle_trains_without_the_malicious_from_the_start() -> None:
    result = run(spec(method="oracle"))
    malicious = {c.id for c in result.clients if c.truth == "malicious"}
    assert len(malicious) == 2
    assert all(not malicious & set(a.members) for a in result.aggregates)
    assert result.test is None
    assert {c.verdict for c in result.clients} == {"untested"}


def test_methods_share_data_attackers_and_starting_point() -> None:
    """All methods are identical but for the defence, so that they can be compared run by run."""
    none, tested_late = run(spec(method="no-defence")), run(spec(screen__round=3))
    assert [c.truth for c in none.clients] == [c.truth for c in tested_late.clients]
    assert none.rounds[:2] == tested_late.rounds[:2]


def test_rfa_takes_three_sums_a_round_and_says_what_its_privacy_rests_on() -> None:
    result = run(spec(method="rfa", federation__rounds=2))
    assert [r.secure_sums for r in result.rounds] == [3, 3]
    assert any("general position" in w for w in result.warnings)
    assert result.privacy.strict == 13


def test_when_every_group_is_contaminated_the_run_stops_unless_the_policy_says_otherwise() -> None:
    """Case 38 end to end: a screen that calls all groups positive cannot be had from k-means, so outcomes are given."""
    import fedgt.federation.measure as screening_module
    from fedgt.types import Outcomes

    real = screening_module.cluster_screen  # type: ignore[attr-defined]

    def all_positive(*args: Any, **kwargs: Any) -> Any:
        return dataclasses.replace(real(*args, **kwargs), outcomes=Outcomes.parse("11111111"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(screening_module, "cluster_screen", all_positive)
        stopped = run(spec())
        kept = run(spec(decode__on_undecidable="keep-all"))
    assert stopped.status == "stopped"
    assert "nobody can be cleared" in stopped.reason
    assert len(stopped.rounds) == 1
    assert {c.verdict for c in stopped.clients} == {"undecided"}
    assert kept.status == "finished"
    assert any("everybody is kept, as the policy says" in w for w in kept.warnings)


@pytest.mark.parametrize("stage", ["absent", *slow("keys", "shares"), "masked", "unmask"])
def test_a_client_that_leaves_in_the_test_round_never_stops_the_run(stage: str) -> None:
    result = run(spec(faults=[{"client": 3, "round": 1, "stage": stage}]))
    assert result.status == "finished"
    assert len(result.rounds) == 3
    assert result.privacy.strict == 4
    assert result.test is not None
    erased = result.test.outcomes.count("?")
    assert erased == (0 if stage == "unmask" else len(result.clients[3].groups))


def test_all_clients_failing_in_the_test_round_keeps_everybody_in_the_history() -> None:
    """Case 10."""
    result = run(spec(faults=[{"client": j, "round": 1, "stage": "masked"} for j in range(15)]))
    assert len(result.clients) == 15
    assert {c.verdict for c in result.clients} == {"untested"}
    assert any("every group is erased" in w for w in result.warnings)
    assert result.rounds[-1].participants == 15


def test_the_same_round_aggregate_is_refused_at_the_promise_and_the_run_goes_on() -> None:
    result = run(spec(seed=0, decode__after_test="same-round", federation__rounds=1))
    (row,) = [a for a in result.aggregates if a.purpose == "same-round"]
    assert row.status == "refused"
    assert result.privacy.strict == 4
    assert not result.privacy.overridden
    by_name = run(spec(seed=0, decode__after_test="same-round", decode__allow_below_promise=True, federation__rounds=1))
    (row,) = [a for a in by_name.aggregates if a.purpose == "same-round"]
    assert row.status == "open"
    assert by_name.privacy.overridden
    assert by_name.privacy.strict is not None
    assert by_name.privacy.strict < 4


def test_some_group_clean_is_an_explicit_option() -> None:
    for seed in range(2):
        result = run(spec(seed=seed, attack__malicious=7, attack__require_clean_group=True, federation__rounds=1))
        assert result.test is not None
        assert result.test.truth is not None
        assert "0" in result.test.truth
    with pytest.raises(SpecError, match="contaminated every group"):
        run(spec(attack__malicious=15, attack__require_clean_group=True))


@pytest.mark.parametrize("kind", ["label-permutation", "random-labels"])
def test_untargeted_attacks_have_no_attack_accuracy(kind: str) -> None:
    result = run(spec(attack__kind=kind, screen__utility="top1", screen__source_label=None, federation__rounds=2))
    assert [r.attack_accuracy for r in result.rounds] == [None, None]


def test_a_dirichlet_partition_and_equal_weights_run(tmp_path: Path) -> None:
    result = run(spec(data__partition="dirichlet", federation__weighting="equal", federation__rounds=2))
    assert all(set(a.weights) == {1.0} for a in result.aggregates)


def test_a_run_folder_holds_everything_needed_to_repeat_the_run(tmp_path: Path) -> None:
    result = run_into(spec(), tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "log",
        "plan.json",
        "result.json",
        "rounds.csv",
        "spec.toml",
    ]
    again = read_spec(tmp_path / "run" / "spec.toml")
    assert again.digest == result.spec_hash == spec().digest
    stored = RunResult.model_validate(json.loads((tmp_path / "run" / "result.json").read_text()))
    assert comparable(stored) == comparable(result)
    with (tmp_path / "run" / "rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert float(rows[-1]["top1_accuracy_percent"]) == pytest.approx(
        100 * (result.rounds[-1].top1_accuracy or 0), abs=1e-3
    )
    assert "round 1" in (tmp_path / "run" / "log").read_text()


def test_a_folder_with_a_result_is_not_overwritten_by_accident(tmp_path: Path) -> None:
    run_into(spec(federation__rounds=1), tmp_path)
    with pytest.raises(SpecError, match=r"already holds spec\.toml, result\.json"):
        run_into(spec(federation__rounds=1), tmp_path)
    run_into(spec(federation__rounds=1), tmp_path, overwrite=True)


def test_the_schema_version_is_still_the_first() -> None:
    """Fields are only ever added; tests/integration/test_documentation.py compares the schema with docs."""
    assert SCHEMA_VERSION == 1


def test_infinite_log_odds_are_strings_and_unknown_ones_null() -> None:
    result = run(spec(federation__rounds=1, attack__malicious=0, decode__false_alarm=0.0, decode__misdetection=0.0))
    text = json.dumps(result.model_dump(mode="json"), allow_nan=False)
    assert '"inf"' in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy": 5}, "give r = 4 at most"),
        ({"design__name": "identity-15"}, "give r = 1 at most"),
        ({"screen__layer": "fc"}, "classification layer of linear is 'weight'"),
        ({"screen__source_label": 42}, "source label 42 was given"),
        ({"data__validation": 1}, "9 has no sample"),
    ],
)
def test_what_would_break_the_test_round_is_refused_before_the_first_round(changes: Any, message: str) -> None:
    with pytest.raises((SpecError, ShapeError), match=message):
        run(spec(**changes))


def test_an_error_in_a_round_keeps_what_was_opened_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    import fedgt.federation.measure as screening_module
    from fedgt.errors import ProtocolError

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise ProtocolError("the screen broke")

    monkeypatch.setattr(screening_module, "cluster_screen", broken)
    result = run(spec(screen__round=2))
    assert result.status == "failed"
    assert result.reason == "round 2 failed: the screen broke"
    assert len(result.rounds) == 1
    assert result.privacy.strict == 4  # the eight group sums of round 2 were opened and count


def test_attackers_who_fall_silent_in_the_test_round_are_left_out() -> None:
    malicious = [i for i, c in enumerate(plain().clients) if c.truth == "malicious"]
    faults = [{"client": j, "round": 1, "stage": "masked"} for j in malicious]
    result = run(spec(faults=faults, federation__rounds=1))
    assert {result.clients[j].verdict for j in malicious} == {"untested"}
    assert all(result.clients[j].excluded for j in malicious)
    assert any("left out untested" in w for w in result.warnings)
    kept = run(spec(faults=faults, decode__on_untested="keep", federation__rounds=1))
    assert not any(kept.clients[j].excluded for j in malicious)


def test_the_hash_holds_the_matrix_itself_and_not_how_the_work_is_done(tmp_path: Path) -> None:
    (tmp_path / "A.csv").write_text("1,1,0\n0,1,1\n")
    (tmp_path / "s.toml").write_text("privacy = 2\n[federation]\nclients = 3\nrounds = 1\n[design]\nfile = 'A.csv'\n")
    first = read_spec(tmp_path / "s.toml")
    assert first.design.matrix == ((1, 1, 0), (0, 1, 1))
    assert make_spec(tomllib.loads(first.to_toml())).digest == first.digest
    (tmp_path / "A.csv").write_text("1,1,1\n0,1,1\n")
    assert read_spec(tmp_path / "s.toml").digest != first.digest
    assert spec(secure_aggregation__workers=4).digest == spec().digest
    assert spec(secure_aggregation__clip=4.0).digest != spec().digest


def test_a_design_of_another_size_is_refused() -> None:
    with pytest.raises(SpecError, match=r"is for 15 clients, federation\.clients = 14"):
        run(spec(federation__clients=14))


def test_missing_data_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="MNIST"):
        run(spec(data__name="mnist"), data_dir=tmp_path)
