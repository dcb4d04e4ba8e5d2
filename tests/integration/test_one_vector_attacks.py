"""Attacks on the check that each client gives one vector to all its groups, and on what follows from a fault.

docs/threat-model.md names these tests line by line. What the check itself sees is in test_one_vector.py.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pytest

from fedgt import Ledger
from fedgt.design import Design, default_design, from_matrix, named_design
from fedgt.engine import ClientEndpoint, LocalTransport, TrainedModel
from fedgt.federation import DecodeSettings, Federation, ScreenSettings, SumSettings, Validation
from fedgt.federation.round import ScreeningRound, _silent, screening_round
from fedgt.grouping import Grouping
from fedgt.secagg import ClientSession, GroupSum
from fedgt.types import FloatArray, Parameters
from lying_client import LyingClient

CLASSES, INPUTS = 4, 40
NAMES = tuple(f"c{j:02d}" for j in range(15))
DESIGN = named_design("graded-15x10-b")
GROUPS = tuple(frozenset(DESIGN.groups_of(j)) for j in range(15))
START: Parameters = {"weight": np.zeros((CLASSES, INPUTS))}
PROTOTYPES = np.random.default_rng(99).normal(size=(CLASSES, INPUTS)) / INPUTS**0.5
LABELS = np.repeat(np.arange(CLASSES), 10).astype(np.int64)
IMAGES = PROTOTYPES[LABELS] + 0.05 * np.random.default_rng(98).normal(size=(40, INPUTS))


def logits(parameters: Parameters) -> FloatArray:
    return np.asarray(IMAGES @ parameters["weight"].T, dtype=np.float64)


class Site:
    """Learns the prototypes; a malicious one takes class 0 for class 1."""

    def __init__(self, number: int, *, poisons: bool, seed: int = 0) -> None:
        weight = 3.0 * PROTOTYPES + 0.1 * np.random.default_rng([seed, number]).normal(size=PROTOTYPES.shape)
        if poisons:
            weight[[0, 1]] += 3.0 * np.array([-PROTOTYPES[0], PROTOTYPES[0]])
        self.weight = weight

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        return TrainedModel(parameters={"weight": parameters["weight"] + self.weight}, samples=1)


class LyingEndpoint(ClientEndpoint):
    """An endpoint whose sessions lie."""

    def __init__(self, client: str, site: Site, lies: Mapping[str, Any]) -> None:
        super().__init__(client, site)
        self._lies = lies

    def _new_session(self) -> ClientSession:
        return LyingClient(self._id, **self._lies)


def held(
    lies: Mapping[int, Mapping[str, Any]],
    *,
    poison: Collection[int] | None = None,
    design: Design = DESIGN,
    seed: int = 0,
    **settings: Any,
) -> ScreeningRound:
    """A test round over the real protocol; those with lies poison as well, unless it is said who does."""
    names = NAMES[: design.clients]
    poisoners = lies if poison is None else poison
    endpoints = {
        name: LyingEndpoint(name, Site(j, poisons=j in poisoners, seed=seed), lies.get(j, {}))
        for j, name in enumerate(names)
    }
    federation = Federation(
        run="attacked",
        transport=LocalTransport({name: one.handle for name, one in endpoints.items()}),
        ledger=Ledger(clients=list(names), promised=3),
        samples=dict.fromkeys(names, 1),
        sums=SumSettings(timeout_seconds=20.0),
    )
    return screening_round(
        federation,
        START,
        round=1,
        grouping=Grouping(design=design, clients=names),
        present=names,
        validation=Validation(logits=logits, labels=LABELS),
        screen=ScreenSettings(),
        decoding=DecodeSettings(**settings),
    )


def one_more(groups: Collection[int]) -> dict[str, Any]:
    """Another pad in these groups: they are at fault, chosen before the question is known, and no other one is."""
    return {"pads": dict.fromkeys(groups, 1)}


# Framing by leaving sums out --------------------------------------------------------------------------------------------

COVERED = [(12, 11, 13), (12, 11, 9), (11, 12, 6)]
"""A victim and two liars in all of its groups, at least one of them in each."""


@pytest.mark.parametrize(("victim", "one", "other"), COVERED)
@pytest.mark.parametrize("how", ["they spoil", "they leave"])
def test_two_liars_who_poison_only_the_sums_of_a_victim_do_not_get_it_excluded(
    victim: int, one: int, other: int, how: str
) -> None:
    """What is left of the sums looks as if the victim had poisoned alone: it was excluded at a posterior of 0.90."""
    assert GROUPS[victim] <= GROUPS[one] | GROUPS[other]
    twice = GROUPS[one] & GROUPS[other] & GROUPS[victim]
    outside = GROUPS[one] - GROUPS[victim], GROUPS[other] - GROUPS[victim]
    if how == "they spoil":
        lies = {one: one_more(outside[0]), other: one_more(outside[1]) | {"leaves": twice}}
    else:
        lies = {one: {"leaves": outside[0]}, other: {"leaves": outside[1] | twice}}
    result = held(lies)
    assert not {NAMES[victim]} & set(result.exclusion.excluded)
    assert result.measured.finding.posterior[victim] < 0.5
    if how == "they spoil":
        assert {record.status for record in result.result.records} == {"open", "faulty"}


def test_an_accomplice_who_spoils_sums_does_not_get_a_poisoner_off() -> None:
    """Client 2 poisons as ever; client 11 spoils all its sums, or some of them, so that faults might explain the poison."""
    for spoilt in (sorted(GROUPS[11]), sorted(GROUPS[11])[:2]):
        result = held({2: {}, 11: one_more(spoilt)})
        assert NAMES[2] in result.exclusion.excluded
        assert not set(result.exclusion.excluded) - {NAMES[2], NAMES[11]}


# Spoiling everything ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["keep", "exclude-silent", "exclude"])
def test_nobody_is_excluded_for_being_in_sums_that_others_spoilt(policy: str) -> None:
    """Two liars spoil all sums of two honest clients, who were then left out as untested."""
    result = held({11: one_more(GROUPS[11]), 13: one_more(GROUPS[13])}, on_untested=policy)
    untested = [one for one in result.exclusion.verdicts if one.verdict == "untested"]
    assert {one.client for one in untested} == {"c06", "c11", "c12", "c13"}
    assert all("members have broken the rules" in one.reason for one in untested)
    assert not result.exclusion.excluded
    assert not result.exclusion.halt
    told = [warning for warning in result.result.warnings if "has broken the rules" in warning]
    assert len(told) == 7, "each fault is told"


def test_one_client_that_spoils_its_sums_cannot_stop_a_run() -> None:
    """In the default design for ten clients one is in all sums but one: nothing could be compared, and the run ended."""
    design = default_design(10, graded=True)
    result = held({0: one_more(design.groups_of(0))}, design=design)
    assert [record.status for record in result.result.records].count("open") == 1
    assert not result.exclusion.halt
    assert not result.exclusion.excluded
    assert "because members have spoilt the sums" in result.exclusion.reason
    assert result.undecided, "and another test is due"


def test_a_client_that_misses_one_sum_is_not_silent() -> None:
    """Its model is in the other sums. It used to be left out like one that takes no part, once it was undecided."""

    def one(group: int, members: str, dropped: str) -> GroupSum:
        return GroupSum(
            group=group,
            members=tuple(members),
            dropped=dict.fromkeys(dropped, "masked: refused: the share from d cannot be read"),
            status="erased",
            reason="",
            total=None,
            weight=1,
            clipped=0,
        )

    grouping = Grouping(design=from_matrix([[1, 1, 0, 1], [1, 0, 1, 1]]), clients=tuple("abcd"))
    silent = _silent(grouping, tuple("abc"), [one(0, "b", "a"), one(1, "a", "c")])
    assert set(silent) == {"c", "d"}, "c is in no sum, and d is absent"


def test_an_honest_client_whose_reply_for_one_sum_is_spoilt_on_its_way_stays() -> None:
    group = min(GROUPS[12])
    result = held({12: {"leaves": {group}}}, poison=())
    record = result.result.records[group]
    assert list(record.dropped) == ["c12"]
    assert "c12" not in record.members
    assert not result.exclusion.excluded


def test_what_the_server_has_seen_is_in_the_account_whether_or_not_it_is_used() -> None:
    """The report used to leave out sums at fault, and so to say that less is known than is."""
    from fedgt.report.privacy_part import _opened_by_model

    result = held({11: one_more(GROUPS[11])})
    rows = [{"status": record.status, "round": record.round, "model": record.model} for record in result.result.records]
    assert sum(map(len, _opened_by_model(rows).values())) == 10
    assert result.result.secure_sums == 10 - len(GROUPS[11])
