"""A run of one's own clients: what is refused before anybody trains, and what it does when it may not go on."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedgt import FederationRun, ScreenSettings, Validation, named_design
from fedgt.errors import ClientsFailedError, DesignError, FedGTError, RunHaltedError, ShapeError, SpecError
from fedgt.evidence import decode_graded
from fedgt.federation import DecodeSettings, RfaSettings, SumSettings
from fedgt.privacy import Ledger
from fedgt.types import Parameters
from small_run import ATTACKERS, LABELS, NAMES, START, Site, logits, made


def test_attackers_are_excluded_and_the_others_train_on() -> None:
    sites = {name: Site(name) for name in NAMES}
    run = made(sites)
    steps = list(run.rounds(START))
    assert [step.round for step in steps] == [1, 2, 3]
    assert steps[0].purpose == "test"
    assert set(steps[-1].excluded) == ATTACKERS
    assert run.kept == tuple(sorted(set(NAMES) - ATTACKERS))
    assert sites["c02"].asked[-1] < 3
    assert sites["c00"].asked == [1, 2, 3]
    assert run.state.ledger.account().strict == 4


def test_the_same_seed_gives_the_same_model_and_another_seed_other_seats() -> None:
    first, again = (list(made().rounds(START))[-1].parameters["weight"] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    one, other = made().grouping, made(seed=2).grouping
    assert one is not None
    assert other is not None
    assert one.clients != other.clients


def test_without_a_validation_set_nobody_is_tested() -> None:
    steps = list(made(validation=None).rounds(START))
    assert [step.purpose for step in steps] == ["training"] * 3
    assert steps[-1].excluded == ()


def test_a_promise_that_the_groups_cannot_keep_is_refused_before_anybody_trains() -> None:
    sites = {name: Site(name) for name in NAMES}
    with pytest.raises(SpecError, match="give r = 4 at most"):
        made(sites, privacy=9, grouping=named_design("graded-15x10-b"))
    with pytest.raises(DesignError, match="privacy 7 can be tested, 19 clients keep privacy 9"):
        made(sites, privacy=9)
    assert not any(site.asked for site in sites.values())


def test_a_federation_of_any_size_and_promise_has_groups_of_its_own() -> None:
    assert made(samples=dict.fromkeys(NAMES[:8], 10), privacy=3).grouping is not None
    grouping = made(sums=SumSettings(largest_share=0.8, colluders=0)).grouping
    assert grouping is not None
    assert grouping.design.groups < 10


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"rounds": 0}, SpecError),
        ({"excluded": ["stranger"]}, SpecError),
        ({"screen": ScreenSettings(round=4)}, SpecError),
        ({"samples": dict.fromkeys(NAMES[:6], 10)}, DesignError),
        ({"samples": dict.fromkeys([*NAMES[:14], "x"], 10), "grouping": made().grouping}, SpecError),
        ({"grouping": named_design("bch-15x8"), "validation": None}, SpecError),
        ({"rfa": RfaSettings()}, SpecError),
        ({"rfa": True, "validation": None}, SpecError),
        ({"test_rounds": (1,), "screen": ScreenSettings(most_rounds=2)}, SpecError),
        ({"privacy": 0}, SpecError),
    ],
)
def test_what_does_not_fit_is_refused_when_the_run_is_made(changes: dict[str, Any], error: type[FedGTError]) -> None:
    with pytest.raises(error):
        made(**changes)


@pytest.mark.parametrize(
    ("changes", "start", "error", "named"),
    [
        ({}, [1, 2], ShapeError, "list"),
        ({}, {"weight": [[1.0]]}, ShapeError, "weight"),
        ({}, {"weight": np.zeros((4, 6), dtype=int)}, ShapeError, "floating-point"),
        ({"screen": ScreenSettings(layer="fc")}, START, SpecError, "'fc'"),
        ({"screen": ScreenSettings(source_label=9)}, START, SpecError, "9 has no sample"),
        ({"validation": Validation(logits=logits, labels=LABELS.astype(float))}, START, ShapeError, "labels"),
        ({"validation": Validation(logits=logits, labels=LABELS[:5])}, START, ShapeError, "logits"),
        ({"validation": Validation(logits=lambda _: np.zeros((48, 3)), labels=LABELS)}, START, ShapeError, "logits"),
        ({"validation": Validation(logits=lambda _: np.zeros((48, 1)), labels=LABELS)}, START, ShapeError, "logit"),
        (
            {"validation": Validation(logits=lambda _: np.zeros((48, 4)), labels=LABELS)},
            {"weight": np.zeros((6, 4))},
            SpecError,
            "transpose",
        ),
        ({"validation": Validation(logits=lambda p: logits(p) * np.nan, labels=LABELS)}, START, ShapeError, "finite"),
        (
            {"validation": Validation(logits=logits, labels=LABELS, inputs=lambda _: np.zeros(48))},
            START,
            ShapeError,
            "inputs",
        ),
    ],
)
def test_a_wrong_model_layer_label_or_score_is_refused_before_anybody_trains(
    changes: dict[str, Any], start: Any, error: type[FedGTError], named: str
) -> None:
    sites = {name: Site(name) for name in NAMES}
    with pytest.raises(error, match=named):
        next(made(sites, **changes).rounds(start))
    assert not any(site.asked for site in sites.values())


class Returns:
    """A client whose train is something else than it should be."""

    def __init__(self, train: Callable[[Parameters], Any]) -> None:
        self._train = train

    def train(self, parameters: Parameters, *, round: int) -> Any:
        return self._train(parameters)


def test_a_train_that_returns_a_dict_is_named_and_is_no_round_of_dropouts() -> None:
    run = made({name: Returns(dict) for name in NAMES})
    with pytest.raises(ClientsFailedError, match=r"train returned a dict; return fedgt\.TrainedModel") as raised:
        next(run.rounds(START))
    assert isinstance(raised.value.__cause__, ShapeError)
    assert run.state.round == 0


def test_an_error_that_all_clients_share_is_raised_with_its_cause() -> None:
    def broken(_: Parameters) -> Any:
        raise KeyError("no such column")

    with pytest.raises(ClientsFailedError, match="KeyError") as raised:
        next(made({name: Returns(broken) for name in NAMES}).rounds(START))
    assert isinstance(raised.value.__cause__, KeyError)


def test_one_client_whose_train_fails_is_a_dropout() -> None:
    sites: dict[str, Any] = {name: Site(name) for name in NAMES}
    sites["c07"] = Returns(dict)
    step = next(made(sites, validation=None).rounds(START))
    (record,) = step.result.records
    assert record.status == "open"
    assert "train returned a dict" in record.dropped["c07"]


def test_something_without_train_is_no_client() -> None:
    with pytest.raises(SpecError, match="'c00' is a int without a method train"):
        made(dict.fromkeys(NAMES, 1))


def close(run: FederationRun) -> None:
    """From now on the ledger refuses everything."""
    run.federation.ledger.permit = lambda rows, **_: ("the account is closed",) * len(rows)  # type: ignore[method-assign]


def test_a_run_whose_test_cannot_tell_raises_and_keeps_nobody() -> None:
    run = made()
    run.begin(START)
    coming = run.coming()
    assert coming is not None
    close(run)
    with pytest.raises(RunHaltedError, match="the account is closed") as raised:
        run.hold(coming)
    step: Any = raised.value.step
    assert step.screening.exclusion.halt
    np.testing.assert_array_equal(step.parameters["weight"], START["weight"])
    for kept in (lambda: run.kept, lambda: step.screening.exclusion.kept, lambda: run.hold(coming)):
        with pytest.raises(RunHaltedError):
            kept()


def test_whoever_says_so_goes_on_with_everybody() -> None:
    run = made(decode=DecodeSettings(on_undecidable="keep-all"))
    run.begin(START)
    coming = run.coming()
    assert coming is not None
    close(run)
    step = run.hold(coming)
    assert step.excluded == ()
    assert run.kept == tuple(NAMES)


def test_a_run_that_has_not_begun_has_no_state() -> None:
    with pytest.raises(SpecError, match="has not begun"):
        _ = made().state


def test_where_no_set_explains_a_further_test_what_was_found_before_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(decode=DecodeSettings(undecided=1e-300))
    run.begin(START)
    for number in (1, 2):
        coming = run.coming()
        assert coming is not None
        assert (coming.round, coming.purpose) == (number, "test")
        if number == 2:

            def unexplained(*args: Any, **options: Any) -> Any:
                return dataclasses.replace(
                    decode_graded(*args, **options), status="unexplained", reason="no set explains it"
                )

            monkeypatch.setattr("fedgt.federation.measure.decode_graded", unexplained)
        step = run.hold(coming)
    assert set(step.excluded) == ATTACKERS
    assert step.screening is not None
    assert step.screening.exclusion.reason.startswith("no set explains it; what was found before stands")
    assert coming is not None
    assert not np.array_equal(step.parameters["weight"], coming.parameters["weight"])
    third = run.coming()
    assert third is not None
    assert third.purpose == "training"
    assert set(third.members) == set(NAMES) - ATTACKERS


def test_groups_that_would_disclose_more_than_the_promised_share_are_refused_before_anybody_trains() -> None:
    sites = {name: Site(name) for name in NAMES}
    with pytest.raises(SpecError, match=r"largest_share is 0\.5"):
        made(sites, sums=SumSettings(largest_share=0.5), grouping=named_design("graded-15x10-b"))
    assert not any(site.asked for site in sites.values())


def test_a_promised_share_that_the_groups_keep_changes_nothing() -> None:
    run = made(sums=SumSettings(largest_share=0.99, colluders=0))
    steps = list(run.rounds(START))
    assert all(record.status == "open" for step in steps for record in step.result.records)
    account = run.state.ledger.account()
    assert account.largest_share == 0.99
    assert account.share_largest is not None
    assert 0.5 < account.share_largest < 0.99


def test_an_account_that_promised_another_share_is_not_gone_on_with() -> None:
    with pytest.raises(SpecError, match="largest_share"):
        made(sums=SumSettings(largest_share=0.99), ledger=Ledger(clients=NAMES, promised=4))


def test_agreed_test_rounds_are_held_with_the_same_groups_whatever_was_found() -> None:
    steps = list(made(test_rounds=(1, 3), rounds=4).rounds(START))
    assert [step.purpose for step in steps] == ["test", "training", "test", "training"]
    tested = [step.screening.grouping.design.groups for step in steps if step.screening is not None]
    assert tested == [10, 10]
    assert set(steps[0].excluded) == ATTACKERS


def test_a_client_that_was_cleared_and_is_absent_in_a_further_test_is_kept() -> None:
    run = made(test_rounds=(1, 2), present=lambda round: NAMES if round == 1 else [n for n in NAMES if n != "c07"])
    assert "c07" not in list(run.rounds(START))[-1].excluded


def test_a_run_goes_on_after_a_round_with_its_model_its_account_and_those_who_are_out() -> None:
    first = made(rounds=3)
    step = next(first.rounds(START))
    second = made(rounds=3, excluded=step.excluded, ledger=first.state.ledger, test_rounds=(1,))
    second.begin(step.parameters, after=1)
    coming = second.coming()
    assert coming is not None
    assert (coming.round, coming.purpose) == (2, "training")
    assert set(coming.members) == set(NAMES) - set(step.excluded)
    assert second.hold(coming).result.records[0].status == "open"
    assert second.state.ledger is first.state.ledger
