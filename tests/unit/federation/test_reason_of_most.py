"""When most clients leave for one reason, the run says which."""

from collections.abc import Mapping

from fedgt.federation.silence import reason_of_most
from fedgt.federation.sums import AggregateRecord


def record(dropped: Mapping[str, str]) -> AggregateRecord:
    return AggregateRecord(
        round=1,
        purpose="test-group-0",
        members=(),
        weights=(),
        status="erased",
        reason="nobody is left",
        dropped=dropped,
        model="",
    )


def test_one_reason_of_more_than_half_is_told_with_the_words_of_one_client() -> None:
    records = [record({"ada": "client ada refuses", "bob": "client bob refuses"}), record({"cleo": "timeout"})]
    assert reason_of_most(records, 3) == "; 2 of 3 clients left for the same reason; ada: client ada refuses"
    assert reason_of_most(records, 4) == "", "half of them is not most of them"


def test_a_client_counts_once_and_its_words_are_made_plain() -> None:
    records = [record({"ada": "no\n\x1b[2J"}), record({"ada": "no\n\x1b[2J"})]
    assert reason_of_most(records, 2) == ""
    assert reason_of_most(records, 1) == "; 1 of 1 clients left for the same reason; ada: no \ufffd[2J"
    assert reason_of_most([], 0) == ""
