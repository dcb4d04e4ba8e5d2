"""A run in a folder goes on after its server stopped, with the same settings, and asks for nothing twice."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt import ScreenSettings, named_design
from fedgt.errors import SpecError
from fedgt.federation import SumSettings
from fedgt.federation.run_folder import RunFolder
from fedgt.privacy import Ledger
from slow_cases import slow
from small_run import ATTACKERS, NAMES, START, TWICE, Crash, Site, crashing, interrupted, made, result_of, same

# typer still asks click for names that click is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:'click.utils:DeprecationWarning")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was interrupted after the first of its four rounds; a test works on a copy of it."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    interrupted(folder, 1, rounds=4)
    return folder


@pytest.mark.parametrize("after", [1, *slow(2, 3)])
@pytest.mark.parametrize("changes", [{"rounds": 4}, *slow(TWICE, {"test_rounds": (1, 3), "rounds": 4})])
def test_a_run_that_went_on_between_two_rounds_is_the_run_that_was_never_interrupted(
    tmp_path: Path, changes: dict[str, Any], after: int
) -> None:
    whole = made(name="one", **changes)
    list(whole.rounds(START))
    interrupted(tmp_path / "run", after, name="one", **changes)
    again = made(folder=tmp_path / "run", resume=True, **changes)
    steps = list(again.rounds({**START, "weight": START["weight"] + 1}))  # it has its own
    assert [step.round for step in steps] == list(range(after + 1, 5))
    assert same(again.result()) == same(whole.result())
    np.testing.assert_array_equal(again.state.parameters["weight"], whole.state.parameters["weight"])
    assert again.federation.ledger.to_json() == whole.federation.ledger.to_json()


@pytest.mark.parametrize("features", ["weights", *slow("outputs", "margins")])
def test_every_kind_of_evidence_goes_on(tmp_path: Path, features: Any) -> None:
    changes: dict[str, Any] = {"screen": ScreenSettings(features=features), "test_rounds": (1, 2)}
    if features == "outputs":
        changes["grouping"] = named_design("bch-15x8")  # few features need few groups
    whole = made(name="one", **changes)
    list(whole.rounds(START))
    interrupted(tmp_path / "run", 1, name="one", **changes)
    again = made(folder=tmp_path / "run", resume=True, **changes)
    list(again.rounds(START))
    assert len(again.state.evidence) == len(whole.state.evidence) == 2
    for kept, fresh in zip(again.state.evidence, whole.state.evidence, strict=True):
        sets = np.eye(15, dtype=bool)
        np.testing.assert_array_equal(kept.log_likelihood(sets), fresh.log_likelihood(sets))
    assert same(again.result()) == same(whole.result())


@pytest.mark.parametrize("stage", [*slow("keys"), "masked", "unmask", *slow("opened")])
def test_a_test_that_was_under_way_is_lost_counts_as_opened_and_is_made_up_for(tmp_path: Path, stage: str) -> None:
    crashing(tmp_path / "run", 1, stage)
    before = Ledger.load(tmp_path / "run" / "ledger.json")
    run = made(folder=tmp_path / "run", resume=True)
    steps = list(run.rounds(START))
    assert [(step.round, step.purpose) for step in steps] == [(2, "test"), (3, "training"), (4, "training")]
    assert set(steps[-1].excluded) == ATTACKERS
    result = result_of(tmp_path / "run")
    lost = [row for row in result.aggregates if row.round == 1]
    # Authorised in the last stage but one: what came later was asked for.
    assert len(lost) == (10 if stage in ("unmask", "opened") else 0)
    assert {row.status for row in lost} <= {"open"}
    assert any("round 1 (test) was lost" in warning for warning in result.warnings)
    account = Ledger.load(tmp_path / "run" / "ledger.json")
    assert not before.since(account)


def test_clients_are_never_asked_again_for_a_round_that_was_under_way(tmp_path: Path) -> None:
    sites: dict[str, Any] = {name: Site(name) for name in NAMES}

    def told(round: int, _: str, stage: str) -> None:
        if (round, stage) == (2, "unmask"):
            raise Crash

    with pytest.raises(Crash):
        list(made(sites, folder=tmp_path / "run", on_stage=told).rounds(START))
    list(made(sites, folder=tmp_path / "run", resume=True).rounds(START))
    assert sites["c00"].asked == [1, 2, 3, 4]


def test_a_round_that_was_lost_twice_is_lost_twice(tmp_path: Path) -> None:
    crashing(tmp_path / "run", 2, "masked")
    crashing_again = made(
        folder=tmp_path / "run",
        resume=True,
        on_stage=lambda *event: (_ for _ in ()).throw(Crash) if event[0] == 3 else None,
    )
    with pytest.raises(Crash):
        list(crashing_again.rounds(START))
    run = made(folder=tmp_path / "run", resume=True)
    assert [step.round for step in run.rounds(START)] == [4, 5]
    assert run.state.lost == (2, 3)


OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"rounds": 5}, "rounds = 4 there, 5 here"),
    ({"seed": 2}, "seed = 1 there, 2 here"),
    ({"name": "another"}, "name = "),
    ({"samples": dict.fromkeys(NAMES, 11)}, r"samples\.c00 = 10 there, 11 here"),
    ({"screen": ScreenSettings(most_rounds=2)}, r"screen\.most_rounds = 3 there, 2 here"),
    ({"excluded": ["c03"]}, "excluded = "),
    ({"inputs": {"config": "0" * 64}}, r"inputs\.config"),
]


@pytest.mark.parametrize(("changes", "named"), OTHERS)
def test_a_run_does_not_go_on_with_other_settings(
    tmp_path: Path, stopped: Path, changes: dict[str, Any], named: str
) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.name != "log"}
    with pytest.raises(SpecError, match=f"holds another run: .*{named}"):
        list(made(folder=tmp_path / "run", resume=True, **({"rounds": 4} | changes)).rounds(START))
    after = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.name != "log"}
    assert after == before


def test_a_run_does_not_go_on_with_another_promise_or_another_plan(tmp_path: Path) -> None:
    run = interrupted(tmp_path / "run", 1, rounds=4)
    with pytest.raises(SpecError, match="privacy = 3"):
        made(folder=tmp_path / "run", resume=True, rounds=4, privacy=3)
    assert run.grouping is not None
    seats = type(run.grouping)(design=run.grouping.design, clients=run.grouping.clients[::-1])
    with pytest.raises(SpecError, match=r"another plan: .*plan\.json"):
        list(made(folder=tmp_path / "run", resume=True, rounds=4, grouping=seats).rounds(START))


def test_how_long_to_wait_may_change(tmp_path: Path) -> None:
    interrupted(tmp_path / "run", 1, rounds=4)
    list(made(folder=tmp_path / "run", resume=True, rounds=4, sums=SumSettings(timeout_seconds=9.0)).rounds(START))
    assert result_of(tmp_path / "run").status == "finished"


def test_resuming_begins_where_nothing_was_begun_and_repeats_nothing_that_has_ended(tmp_path: Path) -> None:
    run = made(folder=tmp_path / "run", resume=True)
    assert len(list(run.rounds(START))) == 3
    before = (tmp_path / "run" / "result.json").read_bytes()
    again = made(folder=tmp_path / "run", resume=True)
    assert list(again.rounds(START)) == []
    np.testing.assert_array_equal(again.state.parameters["weight"], run.state.parameters["weight"])
    assert again.kept == run.kept
    assert again.result() == run.result()
    assert (tmp_path / "run" / "result.json").read_bytes() == before


def test_a_run_that_was_killed_before_its_result_was_written_ends_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise Crash

    run = made(folder=tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "end", killed)
        with pytest.raises(Crash):
            list(run.rounds(START))
    assert not (tmp_path / "run" / "result.json").exists()
    again = made(folder=tmp_path / "run", resume=True)
    assert list(again.rounds(START)) == []
    assert result_of(tmp_path / "run").status == "finished"
    assert {row.round for row in result_of(tmp_path / "run").rounds} == {1, 2, 3}


def spoilt(content: bytes) -> bytes:
    return content[:-20] + bytes(20)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("state.npz", spoilt),
        ("ledger.json", spoilt),
        ("ledger.json", None),
        ("settings.toml", lambda _: b"fedgt = 3"),
        ("under-way.json", lambda _: b"[]"),
    ],
)
def test_a_folder_that_was_changed_is_not_gone_on_with(
    tmp_path: Path, stopped: Path, name: str, change: Callable[[bytes], bytes] | None
) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    path = tmp_path / "run" / name
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(SpecError):
        list(made(folder=tmp_path / "run", resume=True, rounds=4).rounds(START))


def test_an_old_copy_of_the_state_is_no_way_around_the_account(tmp_path: Path) -> None:
    """The rows that were permitted since are lost rounds' rows: they count as opened."""
    run = made(folder=tmp_path / "run", rounds=4)
    steps = run.rounds(START)
    next(steps)
    old = (tmp_path / "run" / "state.npz").read_bytes()
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    (tmp_path / "run" / "state.npz").write_bytes(old)
    again = made(folder=tmp_path / "run", resume=True, rounds=4)
    assert [step.round for step in again.rounds(START)] == [3, 4, 5]
    assert [row.reason for row in again.result().aggregates if row.round == 2] == [
        "the server stopped in this round; what it may have opened counts as opened"
    ]


def test_resuming_needs_a_folder() -> None:
    with pytest.raises(SpecError, match="give the folder"):
        made(resume=True)
