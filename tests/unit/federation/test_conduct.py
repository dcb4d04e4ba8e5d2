"""Who waits for a test, and why; see also tests/integration/test_liars_in_tests.py."""

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from fedgt import DecodeSettings, Ledger
from fedgt.federation import Verdict
from fedgt.federation.conduct import MOST_LIKELY, made_to_wait
from fedgt.federation.liars import Suspicions
from fedgt.federation.silence import Silences
from fedgt.federation.state import RunState

CLIENTS = tuple(f"c{number:02d}" for number in range(15))
FAULTS = [frozenset({"c00", "c01", "c02"}), frozenset({"c00", "c03", "c04"})]


def state(said: dict[str, tuple[str, float]], **changes: Any) -> RunState:
    """After a test with two faults, both with c00; everybody else is kept."""
    verdicts = {
        client: Verdict(
            client=client,
            verdict=said.get(client, ("keep", 0.001))[0],  # type: ignore[arg-type]
            excluded=False,
            reason="by the test",
            posterior=said.get(client, ("keep", 0.001))[1],
            log_odds=0.0,
            groups=(),
        )
        for client in CLIENTS
    }
    fields: dict[str, Any] = {
        "parameters": {"weight": np.zeros(2)},
        "ledger": Ledger(clients=CLIENTS, promised=4),
        "verdicts": MappingProxyType(verdicts),
        "suspicions": Suspicions().after(1, FAULTS, FAULTS),
    }
    return RunState(**{**fields, **changes})


def waits(before: RunState, **policies: Any) -> set[str]:
    after, told = made_to_wait(before, CLIENTS, DecodeSettings(**policies), least=4)
    assert {one.partition(" ")[0] for one in told} == after.waiting
    assert all(after.verdicts[client].reason in told for client in after.waiting)
    return set(after.waiting)


def often(*clients: str) -> Silences:
    seen = Silences()
    for _ in range(3):
        seen = seen.after(CLIENTS, dict.fromkeys(clients, "unmask"))
    return seen


def test_who_stands_out_waits_while_nobody_explains_the_faults() -> None:
    """Whether it mislabels was not confirmed, so it was kept; but somebody spoils the sums that would tell."""
    odd = {"c07": ("suspicious", 0.998)}
    assert waits(state(odd)) == {"c07"}
    assert waits(state(odd, excluded=frozenset({"c00"}))) == set(), "it may merely own other classes"
    assert waits(state(odd, suspicions=Suspicions())) == set()
    assert waits(state(odd), on_undecided="keep") == set()


def test_who_leaves_again_and_again_waits_if_it_may_be_behind_the_faults() -> None:
    assert waits(state({}, silences=often("c01", "c09"))) == {"c01"}, "c09 is in no sum that was spoilt"
    assert waits(state({}, silences=often("c01"), excluded=frozenset({"c00"}))) == set()
    assert waits(state({}, silences=often("c01"), suspicions=Suspicions())) == set(), "it is only reported"


def test_of_the_undecided_those_wait_who_are_most_likely_behind_the_faults() -> None:
    unclear = dict.fromkeys(("c00", "c01", "c09"), ("undecided", 0.2))
    assert waits(state(unclear)) == {"c00"}, "c01 would need a second liar, and c09 is in no fault"
    one = state(unclear, suspicions=Suspicions().after(1, FAULTS[:1], FAULTS[:1]))
    assert waits(one) == {"c00", "c01"}, "both are as likely"
    assert waits(state({"c00": ("keep", 0.01)})) == set(), "a test has cleared it"
    assert waits(state({"c00": ("keep", 0.2)})) == {"c00"}, "no harm was shown, so it was kept; but it is not cleared"
    assert waits(state({"c00": ("keep", 0.2)}, excluded=frozenset({"c00"}))) == set()


def test_who_was_not_heard_at_all_is_not_compared() -> None:
    nothing = {client: ("undecided", float("nan")) for client in CLIENTS[1:6]}
    assert waits(state({**nothing, "c00": ("undecided", 0.2)})) == {"c00"}


def test_one_fault_of_many_makes_few_wait() -> None:
    fault = [frozenset(CLIENTS[:8])]
    many = state(dict.fromkeys(CLIENTS, ("undecided", 0.2)), suspicions=Suspicions().after(1, fault, fault))
    assert len(waits(many)) == MOST_LIKELY


def test_complaints_alone_make_nobody_wait() -> None:
    """They cost no sum, so the test has heard everybody."""
    seen = Suspicions().after(1, [], complaints=[frozenset({"c00", "c01"})])
    assert waits(state({"c01": ("undecided", 0.4), "c02": ("suspicious", 0.99)}, suspicions=seen)) == set()


@pytest.mark.parametrize("accused", [0.6, 0.2])
def test_at_most_a_minority_waits(accused: float) -> None:
    everybody = state(dict.fromkeys(CLIENTS, ("undecided", accused)), silences=often(*CLIENTS[:5]))
    assert len(waits(everybody)) <= 7
