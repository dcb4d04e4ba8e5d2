"""Runs that train together, sums without masks, and sweeps of many runs into one file."""

import csv
from pathlib import Path
from typing import Any

import pytest

from fedgt.errors import SpecError
from fedgt.experiment import ExperimentSpec, make_spec, run
from fedgt.experiment.batch import run_batch
from fedgt.record import RunResult
from fedgt.reproduction.sweep import COLUMNS, Planned, read_rows, sweep

BASE: dict[str, Any] = {
    "privacy": 4,
    "federation": {"rounds": 3},
    "training": {"learning_rate": 0.05, "batch_size": 8, "local_epochs": 5},
    "attack": {"kind": "label-flip", "malicious": 3, "source": 9, "target": 3},
}
CLUSTERS = {
    "design.name": "bch-15x8",
    "screen.kind": "clusters",
    "screen.utility": "recall",
    "screen.source_label": 9,
    "decode.on_undecidable": "keep-all",
}
RUNS: tuple[dict[str, Any], ...] = (
    {"method": "no-defence"},
    {"method": "no-defence", "attack.malicious": 0},
    {"method": "oracle"},
    {"method": "rfa"},
    {"method": "fedgt"},
    {"method": "fedgt", "screen.round": 2, "federation.weighting": "equal"},
    {"method": "fedgt", "attack.kind": "label-permutation", "attack.malicious": 5},
    {"method": "fedgt", "decode.strategy": "count", **CLUSTERS},
    {"method": "fedgt", "decode.after_test": "same-round", "decode.allow_below_promise": True, **CLUSTERS},
    {"method": "fedgt", "decode.after_test": "largest-sum", **CLUSTERS},
)


def specs(seed: int) -> list[ExperimentSpec]:
    return [make_spec(BASE, {"seed": seed, **changes}) for changes in RUNS]


def learnt(result: RunResult) -> Any:
    """All but what carrying the sums cost."""
    content = result.model_dump(mode="json", exclude={"cpu_seconds"})
    for row in content["rounds"]:
        del row["bytes_up"], row["bytes_down"]
    return content


@pytest.mark.slow
def test_sums_without_masks_are_those_of_the_protocol_to_the_last_bit() -> None:
    planned = specs(1)
    masked = run_batch(planned, masks=True)
    for spec, with_masks, without in zip(planned, masked, run_batch(planned, masks=False), strict=True):
        assert learnt(with_masks) == learnt(without), spec.method
        assert with_masks.rounds[0].bytes_up > 0
        assert without.rounds[0].bytes_up == 0


@pytest.mark.parametrize("chosen", [slice(0, 5, 4), pytest.param(slice(None), marks=pytest.mark.slow)], ids=str)
def test_runs_that_train_together_are_the_runs_themselves(chosen: slice) -> None:
    """Decisions are the same, accuracies up to the order of floating-point sums: at most one of 360 test images."""
    planned = specs(2)[chosen]
    for spec, together in zip(planned, run_batch(planned, masks=False), strict=True):
        alone = run(spec)
        assert [one.excluded for one in together.clients] == [one.excluded for one in alone.clients]
        assert [one.members for one in together.aggregates] == [one.members for one in alone.aggregates]
        assert together.privacy == alone.privacy
        for ours, theirs in zip(together.rounds, alone.rounds, strict=True):
            assert ours.top1_accuracy == pytest.approx(theirs.top1_accuracy, abs=1.5 / 360)


def test_runs_of_different_worlds_are_kept_apart_and_in_order() -> None:
    mixed = [one for pair in zip(specs(3)[:3], specs(4)[:3], strict=True) for one in pair]
    found = run_batch(mixed, masks=False)
    assert [one.spec_hash for one in found] == [spec.digest for spec in mixed]
    assert found[0].rounds != found[1].rounds


def test_equal_trainings_are_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgt.train.runs import train_runs

    trained = []

    def counting(tasks: Any, **rest: Any) -> Any:
        trained.append(len(tasks))
        return train_runs(tasks, **rest)

    monkeypatch.setattr("fedgt.experiment.batch.train_runs", counting)
    same = [make_spec(BASE, {"seed": 5, "method": "no-defence", "privacy": r}) for r in (1, 2, 4)]
    run_batch(same, masks=False)
    assert sum(trained) == 15 * 3  # clients x rounds, once for all three runs
    trained.clear()
    attacked = make_spec(BASE, {"seed": 5, "method": "no-defence", "attack.kind": "label-permutation"})
    run_batch([same[0], attacked], masks=False)
    # In the first round only the three attackers differ, later everybody starts elsewhere.
    assert sum(trained) == (15 + 3) + 2 * 2 * 15


def test_unmasked_sums_know_no_clients_that_leave() -> None:
    faulty = make_spec(BASE, {"method": "no-defence", "faults": [{"client": 1, "round": 1}]})
    with pytest.raises(SpecError, match="need the protocol"):
        run_batch([faulty], masks=False)


@pytest.mark.slow
def test_a_sweep_goes_on_where_it_stopped_and_files_add_up(tmp_path: Path) -> None:
    planned = [Planned(spec=one, variant=f"v{number}") for number, one in enumerate(specs(6)[:3])]
    file = tmp_path / "rows.csv"
    first = sweep(planned[:1], file, workers=1, masks=False)
    seen: list[tuple[int, int]] = []
    rows = sweep(planned, file, workers=2, masks=False, on_progress=lambda done, of: seen.append((done, of)))
    assert rows[0] == first[0]
    assert [row["spec_hash"] for row in rows] == [one.spec.digest for one in planned]
    assert [row["variant"] for row in rows] == ["v0", "v1", "v2"]
    assert {row["sums"] for row in rows} == {"unmasked"}
    assert seen[-1] == (6, 6)  # two further runs of three rounds
    text = file.read_text()
    assert sweep(planned, file, masks=False) == rows
    assert file.read_text() == text

    # Rows of another machine, appended without the header, are known.
    elsewhere = tmp_path / "elsewhere.csv"
    (theirs,) = sweep(specs(7)[:1], elsewhere, workers=1, masks=False)
    file.write_text(text + elsewhere.read_text().split("\n", 1)[1])
    assert sweep(specs(7)[:1], file, masks=False) == [theirs]
    assert len(list(read_rows(file))) == 4


def test_a_file_with_other_columns_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerow(["spec_hash", "something"])
    before = file.read_text()
    with pytest.raises(SpecError, match="columns spec_hash, something"):
        sweep(specs(8)[:1], file, masks=False)
    assert file.read_text() == before


def test_a_run_that_fails_in_its_first_round_is_a_row_without_accuracies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedgt.errors import ProtocolError
    from fedgt.reproduction.sweep import row_of

    def failing(*_: Any, **__: Any) -> Any:
        raise ProtocolError("nothing works")

    monkeypatch.setattr("fedgt.federation.run.FederationRun.hold", failing)
    (result,) = run_batch(specs(6)[:1], masks=False)
    row = row_of(Planned(spec=specs(6)[0]), result, masks=False)
    assert (row["status"], row["top1_accuracy_percent"], row["attack_accuracy_percent"]) == ("failed", "", "")


@pytest.mark.slow
def test_an_empty_file_is_a_new_one(tmp_path: Path) -> None:
    """What is left of a sweep that was stopped before it wrote a word."""
    file = tmp_path / "rows.csv"
    file.touch()
    rows = sweep(specs(6)[:1], file, workers=1, masks=False)
    assert list(read_rows(file)) == rows


def test_a_row_says_what_was_run_and_found(tmp_path: Path) -> None:
    (row,) = sweep([specs(9)[7]], tmp_path / "rows.csv", workers=1, masks=True)
    assert tuple(row) == COLUMNS
    assert (row["sums"], row["strategy"], row["design"], row["conditioning"]) == ("secure", "count", "bch-15x8", "all")
    assert len(row["top1_accuracy_by_round_percent"].split()) == 3
    assert row["top1_accuracy_by_round_percent"].split()[-1] == f"{float(row['top1_accuracy_percent']):.3f}"
