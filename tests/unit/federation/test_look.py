"""How one of many tests is held and judged."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt import Grouping, named_design
from fedgt.evidence import GradedDecoding, decode_graded
from fedgt.federation import DecodeSettings, Exclusion, ScreenSettings, Verdict
from fedgt.federation.group_means import GroupMeans
from fedgt.federation.look import Look, without
from fedgt.federation.schedule import Standing

NAMES = tuple(f"c{j:02d}" for j in range(15))
DESIGN = named_design("graded-15x10-b")
SEATS = Grouping(design=DESIGN, clients=NAMES)
ROWS = DESIGN.matrix.astype(np.float64)


def means(updates: Any, rows: Any = ROWS, samples: Any = None, closed: Any = ()) -> GroupMeans:
    shares = rows / rows.sum(axis=1, keepdims=True)
    return GroupMeans(
        start={"weight": np.zeros(updates.shape[1])},
        updates=[None if i in closed else {"weight": share @ updates} for i, share in enumerate(shares)],
        rows=rows,
        samples=np.full(len(updates), 10.0) if samples is None else samples,
    )


def vectors(found: GroupMeans) -> Any:
    return np.array([one["weight"] for one in found.updates if one is not None])


@given(
    st.integers(0, 2**32 - 1),
    st.sets(st.integers(0, 14), min_size=1, max_size=5),
    st.sets(st.integers(0, 9), max_size=2),
)
def test_whatever_is_sent_cancels_and_no_other_difference_is_lost(seed: int, gone: set[int], closed: set[int]) -> None:
    rng = np.random.default_rng(seed)
    samples = rng.integers(5, 50, 15).astype(float)
    rows = ROWS * samples
    out = np.isin(np.arange(15), list(gone))
    honest = rng.normal(size=(15, 6))
    wild = np.where(out[:, None], rng.normal(scale=1e3, size=(15, 6)), honest)
    one, other = (without(means(sent, rows, samples, closed), out) for sent in (honest, wild))
    np.testing.assert_allclose(vectors(one), vectors(other), rtol=0, atol=1e-8)
    opened = [i for i, update in enumerate(one.updates) if update is not None]
    assert not closed & set(opened)
    # Each is the mean that its row says, of the clients that are left, with a total weight of 1.
    np.testing.assert_allclose(one.rows[opened].sum(axis=1), 1.0)
    np.testing.assert_allclose(one.rows[opened] @ honest[~out], vectors(one), atol=1e-8)
    there = [i for i in range(10) if i not in closed]
    rank = np.linalg.matrix_rank(rows[there]) - np.linalg.matrix_rank(rows[there][:, out])
    if len(opened) == len(there):
        assert np.linalg.matrix_rank(one.rows[opened], tol=1e-9) == rank


def test_a_group_without_members_who_are_judged_is_left_out() -> None:
    gone = frozenset(NAMES[j] for j in DESIGN.members(1))
    seats, found = Look(aside=gone).judged(SEATS, means(np.ones((15, 3))))
    assert seats.clients == tuple(name for name in NAMES if name not in gone)
    assert seats.design.groups == len(found.updates) == len(found.rows) < 10


def test_nobody_is_taken_out_where_nobody_was_left_out() -> None:
    given_means = means(np.ones((15, 3)))
    assert Look().judged(SEATS, given_means) == (SEATS, given_means)


def found(posterior: list[float], against: float, *, suspicious: bool = False) -> GradedDecoding:
    values = np.array(posterior)
    flagged = values > 0.5
    nothing = decode_graded([], clients=len(values), largest=2)
    return replace(
        nothing,
        posterior=values,
        log_odds=np.log1p(-values) - np.log(values),
        flagged=flagged & (not suspicious),
        unconfirmed=flagged & suspicious,
        against_nobody=against,
        status="decided",
        reason="found",
    )


@pytest.mark.parametrize("suspicious", [False, True])
def test_who_is_named_is_sure_enough_for_many_tests(suspicious: bool) -> None:
    look = Look(standing=True, error=0.001)
    prior = float(np.log(0.05 / 0.95))
    sure = found([0.99999, 0.01, 0.01, 0.01], 8.0 + prior, suspicious=suspicious)
    assert look.controlled(sure, nobody=0.95) is sure
    # exp(6.5) is less than 1 / 0.001: some attack is not sure enough.
    faint = look.controlled(found([0.99999, 0.01, 0.01, 0.01], 6.5 + prior, suspicious=suspicious), nobody=0.95)
    assert not (faint.flagged | faint.suspicious).any()
    assert faint.undecided.tolist() == [True, False, False, False]
    assert "not named" in faint.reason
    # One of two is not sure enough to be one of them.
    one = look.controlled(found([0.99999, 0.99, 0.01, 0.01], 20.0, suspicious=suspicious), nobody=0.95)
    assert (one.flagged | one.suspicious).tolist() == [True, False, False, False]
    assert one.undecided.tolist() == [False, True, False, False]


def test_the_prior_of_nobody_is_not_counted_twice() -> None:
    """That somebody attacks is sure enough by the ratio. The first client is in each set of attackers, the second is not."""
    look, nobody = Look(standing=True, error=0.01), 0.95
    against = 5.0 + float(np.log(0.05 / 0.95))  # ratio exp(5) > 100
    somebody = 1.0 / (1.0 + np.exp(-against))
    one = look.controlled(found([somebody, 0.95 * somebody, 0.01, 0.01], against), nobody=nobody)
    assert 1.0 - somebody > 0.1  # by the posterior alone nobody would be named
    assert one.flagged.tolist() == [True, False, False, False]


def test_a_test_that_stands_for_itself_controls_nothing() -> None:
    faint = found([0.99, 0.01, 0.01, 0.01], 3.1)
    assert Look().controlled(faint, nobody=0.5) is faint


def verdict(client: str, said: Any, posterior: float, *, excluded: bool = False) -> Verdict:
    return Verdict(
        client=client, verdict=said, excluded=excluded, reason="", posterior=posterior, log_odds=0.0, groups=()
    )


VERDICTS = Exclusion(
    verdicts=(
        verdict("a", "keep", 0.01),
        verdict("b", "undecided", 0.4),
        verdict("c", "undecided", 0.6),
        verdict("d", "suspicious", 0.99),
        verdict("e", "suspicious", 0.99),
        verdict("f", "exclude", 0.999, excluded=True),
        verdict("g", "untested", float("nan")),
    ),
    halt=False,
    reason="",
)


def test_who_is_more_likely_malicious_than_not_sits_out_and_who_becomes_suspicious_too() -> None:
    later = Look(standing=True, later=True, odd=frozenset({"d"}))
    assert later.sits_out(VERDICTS, DecodeSettings()) == {"c", "e"}
    assert later.sits_out(VERDICTS, DecodeSettings(beta=0.7)) == {"b", "c", "e"}
    assert Look(standing=True).sits_out(VERDICTS, DecodeSettings()) == {"c"}
    assert Look().sits_out(VERDICTS, DecodeSettings()) == set()


def test_a_former_group_is_asked_for_with_the_very_same_members_or_not_at_all() -> None:
    weights = ROWS * 10.0
    look = Look(opened=(weights[0], weights[1]))
    member = SEATS.members(0)[0]
    asked = look.groups(weights, SEATS, set(NAMES) - {member})
    for number, members in enumerate(asked):
        whole = SEATS.members(number)
        if member not in whole:
            assert members == whole
        else:  # only what was opened before is not asked for again
            assert members == (() if number in (0, 1) else tuple(one for one in whole if one != member))


@given(st.integers(2, 200), st.floats(0.001, 0.5), st.floats(0.05, 0.95))
def test_what_is_spent_on_false_alarms_and_the_prior_add_up_over_the_run(
    rounds: int, allowed: float, nobody: float
) -> None:
    every = Standing(
        secret=0,
        rounds=rounds,
        screen=ScreenSettings(schedule="every-round", false_exclusions=allowed),
        decode=DecodeSettings(nobody=nobody),
    )
    tests = range(1, rounds + 1)
    assert sum(map(every.error, tests)) == pytest.approx(allowed)
    assert np.prod([every.nobody(test) for test in tests if test > 1]) == pytest.approx(nobody)
    assert every.nobody(1) == nobody
