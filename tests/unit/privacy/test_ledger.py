"""The ledger is asked before a sum is opened, and refuses what would break the promise."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.errors import SpecError
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
    (refusal,) = account.permit([final], models="round-1", test=False)
    assert refusal is not None
    assert "mixes only 1 client (c07), the promise is 3" in refusal


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


# The disclosed share ----------------------------------------------------------------------------------------------------

PAIRS = [dict.fromkeys(names, 1.0) for names in (("a", "b"), ("c", "d"))]
ACROSS = dict.fromkeys(("a", "c"), 1.0)


def test_a_row_that_pushes_a_share_above_the_limit_is_refused_although_r_is_kept() -> None:
    ledger = Ledger(clients="abcd", promised=2, largest_share=0.4)
    assert ledger.permit(PAIRS, models="m", test=True) == (None, None)
    (refusal,) = ledger.permit([ACROSS], models="m", test=False)
    assert refusal is not None
    assert "largest_share is 0.4" in refusal
    assert ledger.permit([ACROSS], models="another", test=False) == (None,), "other local models are another account"
    account = ledger.account()
    assert account.shares == dict.fromkeys("abcd", pytest.approx(1 / 3))
    assert account.share_mean == account.share_largest == pytest.approx(1 / 3)
    assert account.largest_share == 0.4


def test_the_limit_counts_the_colluders_help_and_the_account_states_it() -> None:
    """With one of a pair colluding the other one is known."""
    ledger = Ledger(clients="abcd", promised=2, colluders=1)
    ledger.permit(PAIRS, models="m", test=True)
    assert ledger.account().share_helped == 1
    limited = Ledger(clients="abcd", promised=2, largest_share=0.9, colluders=1)
    assert limited.permit(PAIRS, models="m", test=True)[1] is not None


def test_the_cautious_share_is_that_of_all_test_rows_together() -> None:
    ledger = Ledger(clients="abcd", promised=2)
    ledger.permit(PAIRS, models="m", test=True)
    ledger.permit([ACROSS], models="another", test=True)
    account = ledger.account()
    assert account.share_cautious is not None
    assert account.share_cautious.mean == pytest.approx(2 / 3)
    assert account.share_mean == pytest.approx(1 / 3)


def test_an_override_opens_above_the_limit_and_the_account_says_so() -> None:
    ledger = Ledger(clients="abcd", promised=2, largest_share=0.4)
    ledger.permit([*PAIRS, ACROSS], models="m", test=False, override=True)
    account = ledger.account()
    assert account.overridden
    assert account.share_largest == pytest.approx(2 / 3)


def test_an_empty_account_discloses_nothing() -> None:
    account = Ledger(clients="abcd", promised=2).account()
    assert account.shares == {}
    assert (account.share_mean, account.share_largest, account.share_helped, account.share_cautious) == (None,) * 4


def test_too_many_colluders_to_try_are_no_number_and_no_limit() -> None:
    clients = [f"c{number:02d}" for number in range(60)]
    ledger = Ledger(clients=clients, promised=2, colluders=5)
    ledger.permit([dict.fromkeys(clients, 1.0)], models="m", test=False)
    assert ledger.account().share_helped is None
    with pytest.raises(SpecError, match="sets of colluders"):
        Ledger(clients=clients, promised=2, largest_share=0.5, colluders=5)


@pytest.mark.parametrize("limit", [{"largest_share": 0.0}, {"largest_share": 1.1}, {"colluders": -1}])
def test_a_limit_that_makes_no_sense_is_refused(limit: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        Ledger(clients="abcd", promised=2, **limit)


def test_the_largest_part_is_none_where_its_share_would_be_too_large() -> None:
    ledger = Ledger(clients="abcdef", promised=2, largest_share=0.4)
    ledger.permit([dict.fromkeys("abc", 1.0), dict.fromkeys("def", 1.0)], models="m", test=True)
    assert ledger.largest_part(dict.fromkeys("abde", 1.0), models="m") is None
    free = Ledger(clients="abcdef", promised=2)
    free.permit([dict.fromkeys("abc", 1.0), dict.fromkeys("def", 1.0)], models="m", test=True)
    assert free.largest_part(dict.fromkeys("abde", 1.0), models="m") == tuple("abde")


def test_an_account_in_a_file_goes_on_with_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    kept: dict[str, Any] = {"clients": "abcd", "promised": 2, "largest_share": 0.4}
    Ledger.kept_in(path, **kept).permit(PAIRS, models="m", test=True)
    again = Ledger.kept_in(path, **kept, begun=True)
    assert again.permit([ACROSS], models="m", test=False) != (None,)
    with pytest.raises(SpecError, match="largest_share"):
        Ledger.kept_in(path, **kept | {"largest_share": 0.9})
    with pytest.raises(SpecError, match="no largest_share"):
        Ledger.kept_in(path, clients="abcd", promised=2)


def test_what_is_foreseen_is_what_would_be_permitted_and_is_not_on_record() -> None:
    account, asked = ledger(), [*GROUPS, EVERYBODY]
    before = account.to_json()
    foreseen = account.foresee(asked, models="round-1", test=False)
    assert account.to_json() == before
    assert foreseen == account.permit(asked, models="round-1", test=False)
    assert foreseen[:8] == (None,) * 8
    assert foreseen[8] is not None
