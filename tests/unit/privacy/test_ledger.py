"""The ledger is asked before a sum is opened, and refuses what would break the promise."""

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.errors import PrivacyError, SpecError
from fedgt.privacy import Ledger

CLIENTS = [f"c{j:02d}" for j in range(15)]
GROUPS = [{CLIENTS[j]: 1.0 for j in np.flatnonzero(row)} for row in named_design("bch-15x8").matrix]
EVERYBODY = dict.fromkeys(CLIENTS, 1.0)


def ledger(promised: int = 4) -> Ledger:
    return Ledger(clients=CLIENTS, promised=promised)


def test_the_eight_groups_of_15x8_keep_a_promise_of_four() -> None:
    account = ledger()
    assert account.permit(GROUPS, models="round-1", test=True) == (None,) * 8
    assert account.account().strict == 4
    assert account.account().cautious == 4


def test_the_sum_over_everybody_of_the_same_models_is_refused_at_four_and_allowed_at_three() -> None:
    strict = ledger(4)
    strict.permit(GROUPS, models="round-1", test=True)
    (refusal,) = strict.permit([EVERYBODY], models="round-1", test=False)
    assert refusal is not None
    assert "mixes only 3 clients" in refusal
    assert strict.account().strict == 4

    loose = ledger(3)
    loose.permit(GROUPS, models="round-1", test=True)
    assert loose.permit([EVERYBODY], models="round-1", test=False) == (None,)
    assert loose.account().strict == 3


def test_the_aggregate_that_reveals_client_7_is_refused_by_name() -> None:
    """Case 39."""
    account = ledger(3)
    account.permit(GROUPS, models="round-1", test=True)
    final = {c: 1.0 for c in CLIENTS if c not in ("c02", "c12")}
    with pytest.raises(PrivacyError, match=r"mixes only 1 client \(c07\), the promise is 3"):
        account.require(final, models="round-1")


def test_the_same_sum_of_other_models_is_a_new_account() -> None:
    account = ledger()
    account.permit(GROUPS, models="round-1", test=True)
    assert account.permit([EVERYBODY], models="round-2", test=False) == (None,)
    report = account.account()
    assert (report.strict, report.cautious, report.with_training) == (4, 4, 3)


def test_repeating_the_same_rows_adds_nothing_to_either_account() -> None:
    account = ledger()
    for number in range(3):
        assert account.permit(GROUPS, models=f"round-{number}", test=True) == (None,) * 8
    assert account.account().cautious == 4


def test_a_second_arbitrary_placement_is_refused_by_the_cautious_account() -> None:
    account = ledger()
    account.permit(GROUPS, models="round-1", test=True)
    order = np.random.default_rng(1).permutation(15)
    moved = [{CLIENTS[order[int(c[1:])]]: 1.0 for c in row} for row in GROUPS]
    verdicts = account.permit(moved, models="round-2", test=True)
    refused = [v for v in verdicts if v is not None]
    assert refused
    assert all("all test rounds together" in v for v in refused)


def test_an_override_by_name_opens_the_sum_and_is_on_record() -> None:
    account = ledger()
    account.permit(GROUPS, models="round-1", test=True)
    assert account.permit([EVERYBODY], models="round-1", test=False, override=True) == (None,)
    report = account.account()
    assert report.overridden
    assert report.strict == 3


def test_weighted_and_unweighted_sums_of_the_same_models_are_not_both_opened() -> None:
    account = ledger()
    account.permit(GROUPS, models="round-1", test=True)
    weighted = [{c: 100.0 + int(c[1:]) for c in row} for row in GROUPS]
    verdicts = account.permit(weighted, models="round-1", test=True)
    assert any(v is not None for v in verdicts)
    assert account.account().strict is not None
    assert account.account().strict == 4


def test_groups_that_shrank_below_the_promise_are_withheld_and_the_others_opened() -> None:
    """Case 12, the ledger's part: client 3 left, so groups 0, 2 and 3 have three members."""
    shrunk = [{c: w for c, w in row.items() if c != "c03"} for row in GROUPS]
    verdicts = ledger(4).permit(shrunk, models="round-1", test=True)
    assert [i for i, v in enumerate(verdicts) if v is not None] == [0, 2, 3]
    assert ledger(3).permit(shrunk, models="round-1", test=True) == (None,) * 8


def test_an_empty_group_is_never_permitted() -> None:
    (verdict,) = ledger().permit([{}], models="round-1", test=True)
    assert verdict == "no member of the group took part"


def test_a_permission_counts_even_if_the_opening_failed() -> None:
    account = ledger()
    account.permit(GROUPS[:1], models="round-1", test=True)
    assert account.account().strict == 4


@pytest.mark.parametrize("promised", [0, 16])
def test_an_impossible_promise_is_refused(promised: int) -> None:
    with pytest.raises(SpecError, match="privacy ="):
        ledger(promised)


def test_a_participant_registered_twice_is_an_error() -> None:
    with pytest.raises(SpecError, match="registered twice"):
        Ledger(clients=["a", "a"], promised=1)


def test_unknown_clients_and_bad_weights_are_errors() -> None:
    with pytest.raises(SpecError, match="unknown to the ledger: x"):
        ledger().permit([{"x": 1.0}], models="m", test=True)
    with pytest.raises(SpecError, match="weight nan"):
        ledger().permit([{"c00": float("nan")}], models="m", test=True)


def test_single_models_need_a_promise_of_one() -> None:
    alone = [{c: 1.0} for c in CLIENTS]
    assert ledger(1).permit(alone, models="m", test=True) == (None,) * 15
    assert all(v is not None for v in ledger(2).permit(alone, models="m", test=True))
