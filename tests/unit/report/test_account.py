"""The privacy account of a report: which sums can be combined, and how many honest clients are mixed."""

from typing import Any

from fedgt.record.result import PrivacyRow
from fedgt.report.privacy_part import privacy_account


def opened(number: int, members: str, model: str = "") -> dict[str, Any]:
    names = list(members)
    return {
        "round": number,
        "purpose": "training",
        "members": names,
        "weights": [1.0] * len(names),
        "status": "open",
        "reason": "",
        "dropped": {},
        "model": model,
    }


def result(*rows: dict[str, Any], **privacy: Any) -> dict[str, Any]:
    known = {"promised": 2, "strict": 2, "cautious": None, "with_training": 2, "overridden": False}
    recorded = PrivacyRow.model_validate(known).model_dump()
    return {
        "clients": [{"id": name} for name in "abcdef"],
        "aggregates": list(rows),
        "privacy": {**recorded, **privacy},
    }


def test_sums_about_one_model_are_combined_whatever_their_rounds() -> None:
    one, other = "1" * 64, "2" * 64
    account = privacy_account(result(opened(1, "abcdef", one), opened(2, "abcd", one), opened(3, "abcde", other)))
    assert [(entry["round"], entry["sums"], entry["r"]) for entry in account["sets"]] == [(1, 2, 2), (3, 1, 5)]
    assert account["most_exposed"]["clients"] == ["e", "f"]
    assert account["check"]["status"] == "same"


def test_a_record_that_reveals_more_over_its_rounds_than_it_says_is_pointed_out() -> None:
    model = "1" * 64
    account = privacy_account(result(opened(1, "abcdef", model), opened(2, "abcde", model)))
    assert account["check"]["status"] == "different"


def test_without_models_each_round_is_a_set() -> None:
    account = privacy_account(result(opened(1, "abcdef"), opened(2, "abcde"), strict=5))
    assert [entry["r"] for entry in account["sets"]] == [6, 5]


def test_honest_clients_are_those_that_are_mixed_less_those_that_may_collude() -> None:
    assert privacy_account(result(opened(1, "abcdef"), colluders=1, honest=1))["honest"] == 1


def test_the_shares_are_recomputed_and_a_record_that_states_less_is_pointed_out() -> None:
    rows = (opened(1, "abcdef"), opened(2, "abc", "1" * 64), opened(2, "def", "1" * 64))
    stated = dict.fromkeys("abcdef", 0.2)
    account = privacy_account(result(*rows, shares=stated, share_mean=0.2))
    assert [entry["share_mean"] for entry in account["sets"]] == [0, 0.2]
    assert account["check"]["status"] == "same"
    assert (account["share_largest"], account["share_client"]) == (0.2, "a")
    account = privacy_account(result(*rows, shares=stated | dict.fromkeys("abcdef", 0.1), share_mean=0.1))
    assert account["check"]["status"] == "different"


def test_a_record_without_shares_states_none() -> None:
    account = privacy_account(result(opened(1, "abcdef")))
    assert (account["shares"], account["share_mean"], account["share_largest"]) == ([], None, None)
    assert account["check"]["status"] == "same"
