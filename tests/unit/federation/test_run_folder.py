"""The folder of a real run: what is in it, what is not, and who may work there."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt import FederationRun, ScreenSettings, Validation, named_design
from fedgt.engine import secure_sums
from fedgt.errors import DesignError, FedGTError, RunHaltedError, SpecError
from fedgt.federation import DecodeSettings, RfaSettings
from fedgt.planning import read_plan
from fedgt.privacy import Ledger
from fedgt.record import read_progress
from fedgt.record.claim import Claim
from fedgt.report import write_report
from fedgt.report.schema import Report
from small_run import (
    ATTACKERS,
    NAMES,
    START,
    TWICE,
    VALIDATION,
    Site,
    crashing,
    held,
    interrupted,
    made,
    result_of,
    same,
)

# typer still asks click for names that click is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:'click.utils:DeprecationWarning")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[FederationRun, Path]:
    """A run, and its folder with all that a run leaves; nothing may be changed there."""
    folder = tmp_path_factory.mktemp("ended") / "run"
    return held(folder), folder


@pytest.fixture(scope="module")
def folder(ended: tuple[FederationRun, Path]) -> Path:
    return ended[1]


def test_a_run_leaves_its_plan_its_account_its_result_and_its_log(ended: tuple[FederationRun, Path]) -> None:
    run, folder = ended
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "evidence.npz", "ledger.json", "ledger.json.lock", "log", "plan.json", "result.json", "rounds.csv",
        "settings.toml", "state.npz",
    }  # fmt: skip
    result = result_of(folder)
    assert result == run.result()
    assert result.status == "finished"
    assert result.measured_on == "validation set"
    assert {client.id for client in result.clients if client.excluded} == ATTACKERS
    assert {client.truth for client in result.clients} == {None}
    assert result.test is not None
    assert result.test.truth is None
    assert [row.attack_accuracy for row in result.rounds] == [None] * 3
    assert all(row.top1_accuracy is not None for row in result.rounds)
    assert len((folder / "rounds.csv").read_text().splitlines()) == 4
    assert "left out: c" in (folder / "log").read_text()


def test_the_folder_is_for_its_owner_only(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_run_in_a_folder_is_the_run_in_memory(tmp_path: Path) -> None:
    bare = made(name="one")
    steps = list(bare.rounds(START))
    kept = held(tmp_path / "run", name="one")
    assert same(bare.result()) == same(kept.result())
    np.testing.assert_array_equal(steps[-1].parameters["weight"], kept.state.parameters["weight"])


def test_no_group_sum_and_no_local_model_is_in_the_folder_of_a_run_that_has_ended(tmp_path: Path) -> None:
    """Not in any file, as raw bytes of any of its rows."""
    sums: list[Any] = []

    def watched(*args: Any, **options: Any) -> Any:
        taken = secure_sums(*args, **options)
        sums.extend(one.total["weight"] for one in taken.sums if one.total is not None)
        return taken

    held(tmp_path / "run", take_sums=watched)
    content = b"".join(path.read_bytes() for path in (tmp_path / "run").iterdir())
    rows = [row for total in sums for one in (total, total / 10) for row in np.asarray(one, dtype=np.float64)]
    assert len(rows) > 40
    assert not [row for row in rows if row.tobytes() in content]


def test_the_plan_of_the_run_is_the_plan_that_was_given(tmp_path: Path, folder: Path) -> None:
    plan = read_plan(folder / "plan.json")
    again = held(tmp_path / "second", grouping=plan, seed=7)
    assert (tmp_path / "second" / "plan.json").read_bytes() == (folder / "plan.json").read_bytes()
    assert again.grouping is not None
    assert again.grouping.clients == plan.members


def test_a_fresh_plan_takes_its_members_from_the_run(tmp_path: Path, folder: Path) -> None:
    fresh = read_plan(folder / "plan.json").model_copy(update={"members": None})
    run = held(tmp_path / "second", grouping=fresh)
    written = read_plan(tmp_path / "second" / "plan.json")
    assert run.grouping is not None
    assert written.members == run.grouping.clients
    assert set(run.grouping.clients) == set(NAMES)
    assert written.model_copy(update={"members": None}) == fresh


def test_a_plan_that_promises_more_than_the_run_is_refused(folder: Path) -> None:
    plan = read_plan(folder / "plan.json")
    with pytest.raises(SpecError, match="privacy = 3, but the plan promises 4"):
        made(grouping=plan, privacy=3)


def test_a_run_without_tests_leaves_no_plan(tmp_path: Path) -> None:
    result = held(tmp_path / "run", validation=None).result()
    assert not (tmp_path / "run" / "plan.json").exists()
    assert result.method == "no-defence"
    assert [row.top1_accuracy for row in result.rounds] == [None] * 3


def test_rfa_leaves_a_record_too(tmp_path: Path) -> None:
    result = held(tmp_path / "run", validation=None, rfa=RfaSettings(iterations=2)).result()
    assert result.method == "rfa"
    assert "only the clients know" in result.privacy.assumption


def test_a_run_that_may_not_go_on_leaves_a_result_that_says_why(tmp_path: Path) -> None:
    run = made(folder=tmp_path / "run")
    run.federation.ledger.permit = lambda rows, **_: ("the account is closed",) * len(rows)  # type: ignore[method-assign]
    with pytest.raises(RunHaltedError):
        list(run.rounds(START))
    result = result_of(tmp_path / "run")
    assert result.status == "stopped"
    assert "the account is closed" in result.reason
    again = made(folder=tmp_path / "run", resume=True)
    with pytest.raises(RunHaltedError, match="the account is closed"):
        list(again.rounds(START))
    assert result_of(tmp_path / "run") == result


def test_what_is_refused_before_the_first_message_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DesignError):
        made(folder=tmp_path / "run", privacy=9)
    assert not (tmp_path / "run").exists()
    with pytest.raises(FedGTError):
        list(made(folder=tmp_path / "run", screen=ScreenSettings(layer="fc")).rounds(START))
    assert list((tmp_path / "run").iterdir()) == []


def test_a_folder_that_holds_a_run_is_not_begun_anew(folder: Path) -> None:
    with pytest.raises(SpecError, match=r"already holds plan\.json.*resume=True"):
        made(folder=folder)


def test_two_processes_do_not_work_in_one_folder_and_the_other_is_named(tmp_path: Path) -> None:
    run = made(folder=tmp_path / "run")
    run.begin(START)
    number = read_progress(tmp_path / "run").process
    with pytest.raises(SpecError, match=rf"another process \({number}\) is at work"):
        made(folder=tmp_path / "run", resume=True)
    run.close()
    with Claim(tmp_path / "run"):
        assert read_progress(tmp_path / "run").state == "interrupted"


def test_how_far_a_run_is_can_be_watched(tmp_path: Path) -> None:
    seen: list[str] = []
    run = made(folder=tmp_path / "run", on_stage=lambda *event: seen.append(event[2]))
    steps = run.rounds(START)
    next(steps)
    found = read_progress(tmp_path / "run")
    assert (found.state, found.finished, found.rounds) == ("running", 1, 3)
    assert {client.id for client in found.clients if client.excluded} == ATTACKERS
    assert seen[0] == "keys"
    assert seen[-1] == "opened"
    steps.close()  # type: ignore[attr-defined]
    assert read_progress(tmp_path / "run").state == "interrupted"


def test_an_account_that_lies_elsewhere_stays_there(tmp_path: Path) -> None:
    shared = Ledger.kept_in(tmp_path / "account.json", clients=NAMES, promised=4)
    held(tmp_path / "run", ledger=shared)
    assert not (tmp_path / "run" / "ledger.json").exists()
    assert Ledger.load(tmp_path / "account.json").account().strict == 4


def test_the_validation_set_of_the_server_is_what_accuracies_are_of(tmp_path: Path) -> None:
    wrong = Validation(logits=VALIDATION.logits, labels=VALIDATION.labels[::-1].copy())
    run = made(folder=tmp_path / "run", validation=wrong, decode=DecodeSettings(on_undecidable="keep-all"))
    steps = list(run.rounds(START))
    predicted = wrong.predict(steps[-1].parameters)
    assert run.result().rounds[-1].top1_accuracy == float((predicted == wrong.labels).mean())


def test_the_marker_of_a_round_is_on_the_disk_before_anybody_is_asked(tmp_path: Path) -> None:
    found: list[Any] = []

    def told(*event: Any) -> None:
        if event[2] == "keys":
            found.append(json.loads((tmp_path / "run" / "under-way.json").read_text()))

    list(made(folder=tmp_path / "run", on_stage=told).rounds(START))
    assert found == [
        {"round": 1, "purpose": "test"}, {"round": 2, "purpose": "training"}, {"round": 3, "purpose": "training"},
    ]  # fmt: skip


class Talks(Site):
    """A site whose training fails with what must not leave it."""

    def train(self, parameters: Any, *, round: int) -> Any:
        if round == 2:
            raise RuntimeError("patient 4711 has no birthday")
        return super().train(parameters, round=round)


def test_what_the_training_of_a_site_says_is_nowhere_in_the_folder(tmp_path: Path) -> None:
    sites: dict[str, Any] = {name: (Talks if name == "c07" else Site)(name) for name in NAMES}
    run = made(sites, folder=tmp_path / "run")
    list(run.rounds(START))
    (dropped,) = [row.dropped for row in run.result().aggregates if row.round == 2 and row.dropped]
    assert dropped == {"c07": "masked: its training failed with RuntimeError"}
    assert not [path.name for path in (tmp_path / "run").iterdir() if b"4711" in path.read_bytes()]


# Report and watch ----------------------------------------------------------------------------------------------------


def shown(page: str) -> str:
    """The text that a reader sees."""
    return re.sub(r"<[^>]*>", "", re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL))


SIMULATED = ("simulation", "simulated", "attack accuracy", "truth", "test set", "fedgt run spec.toml")


def test_the_report_of_a_real_run_has_its_names_and_nothing_that_only_a_simulation_knows(tmp_path: Path) -> None:
    crashing(tmp_path / "run", 2, "opened", name="one")
    list(made(folder=tmp_path / "run", resume=True, name="one").rounds(START))
    report = write_report(tmp_path / "run")
    assert report["simulation"] is False
    assert set(report["summary"]["excluded"]) == ATTACKERS
    assert report["run"]["spec_matches"] is True
    assert report["run"]["rounds_planned"] == 3
    assert report["privacy"]["check"]["status"] == "same"
    assert report["incidents"]["absent"] == []
    assert any("round 2 (training) was lost" in one for one in report["incidents"]["warnings"])
    page = shown((tmp_path / "run" / "report.html").read_text())
    assert not [word for word in SIMULATED if word in page.lower()]
    assert "of the validation set" in page
    assert "How the run was set up" in page
    Report.model_validate(report)


def test_the_report_of_a_real_run_by_clusters_decides_the_same_again(tmp_path: Path) -> None:
    held(
        tmp_path / "run",
        grouping=named_design("bch-15x8"),
        screen=ScreenSettings(kind="clusters"),
        decode=DecodeSettings(on_undecidable="keep-all"),
    )
    assert write_report(tmp_path / "run")["recheck"]["status"] == "same"


@pytest.mark.slow
def test_a_client_that_an_earlier_test_has_left_out_sits_in_no_group_of_the_last(tmp_path: Path) -> None:
    run = held(tmp_path / "run", **TWICE, seed=1)
    report = write_report(tmp_path / "run")
    assert len(report["tests"]) > 1
    earlier = {client.id for client in run.result().clients if client.excluded and not client.groups}
    assert report["summary"]["excluded_count"] == len(ATTACKERS) >= len(earlier)


@pytest.mark.slow
def test_who_was_left_out_from_the_beginning_is_so_in_the_record(tmp_path: Path) -> None:
    held(tmp_path / "run", excluded=["c02"])
    report = write_report(tmp_path / "run")
    (row,) = [one for one in report["verdicts"] if one["client"] == "c02"]
    assert row["excluded"]
    assert report["incidents"]["absent"] == []


def test_watching_a_real_run_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from typer import Exit

    from fedgt.cli.watch_command import watch

    interrupted(tmp_path / "run", 1)
    with pytest.raises(Exit) as left:
        watch(tmp_path / "run")
    assert left.value.exit_code == 1
    shown = capsys.readouterr().out
    assert "interrupted, 1 of 3 rounds" in shown
    assert "resume=True" in shown
    assert "truth" not in shown
