"""Clients that break the rules of the sums where there is a test in every round, or on suspicion.

docs/threat-model.md names these tests line by line.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt import FederationRun
from fedgt.engine import ClientEndpoint, LocalTransport
from fedgt.federation import ScreenSettings, Step
from fedgt.secagg import AgreementLog, ClientPolicy, ClientSession, RunTerms, default_threshold, tensor_specs
from fedgt.types import Parameters
from liar_lab import NAMES, Lies, Site, attackers, people, run_of, spoils_tests
from lying_client import LyingClient
from secagg_lab import Consortium
from slow_cases import slow

START: Parameters = {"weight": np.zeros((4, 12))}
TEN = NAMES[:10]
BOTH = pytest.mark.parametrize("schedule", ["every-round", *slow("on-suspicion")])


def standing(transport: LocalTransport, schedule: Any, *, rounds: int, most: int = 3, **how: Any) -> FederationRun:
    return run_of(
        transport, rounds=rounds, tests=True, screen=ScreenSettings(schedule=schedule, most_rounds=most), **how
    )


def spoilers(names: Collection[str], **how: Any) -> dict[str, Lies]:
    return {name: spoils_tests(name, **how) for name in names}


def lost(steps: Sequence[Step]) -> list[int]:
    """The rounds that left the model as it was."""
    models = [START, *(step.parameters for step in steps)]
    return [n for n in range(1, len(models)) if np.array_equal(models[n]["weight"], models[n - 1]["weight"])]


def groups(step: Step) -> set[tuple[str, ...]]:
    assert step.screening is not None
    seats = step.screening.seats
    return {seats.members(number) for number in range(seats.design.groups)}


@BOTH
@pytest.mark.parametrize("liar", [TEN[2], *slow(*TEN[:2], *TEN[3:])])
def test_one_of_ten_clients_that_spoils_its_sums_does_not_stop_the_run(schedule: str, liar: str) -> None:
    """The sums that were left could not be compared, and each round was lost, for six of ten clients."""
    run = standing(people(spoilers([liar]), poison=True, names=TEN), schedule, rounds=4, names=TEN)
    steps = list(run.rounds(START))
    assert lost(steps) in ([], [1])
    assert set(steps[-1].excluded) <= {liar}
    assert run.state.waiting <= {liar}
    assert not any(record.status == "refused" for step in steps for record in step.result.records)
    cautious = run.federation.ledger.account().cautious
    assert cautious is not None
    assert cautious >= 4


@BOTH
@pytest.mark.parametrize("liars", ["00 08", *slow("01 06", "04 09", "07 12", "09 10")])
def test_two_that_spoil_their_sums_of_every_test_seldom_stop_the_run(schedule: str, liars: str) -> None:
    who = [f"site-{number}" for number in liars.split()]
    run = standing(people(spoilers(who), poison=True), schedule, rounds=5)
    steps = list(run.rounds(START))
    assert set(lost(steps)) <= {1, 2}
    assert set(steps[-1].excluded) <= set(who)
    assert run.federation.ledger.account().cautious == 4
    assert not any(record.status == "refused" for step in steps for record in step.result.records)


def test_after_a_fault_some_groups_are_added_and_the_others_stay() -> None:
    run = standing(people(spoilers(NAMES[:1], until=1)), "every-round", rounds=6)
    steps = list(run.rounds(START))
    first = groups(steps[0])
    assert len(first) == 10
    for step in steps[1:4]:
        assert first < groups(step)
        assert len(groups(step)) <= 18
    assert groups(steps[4]) == groups(steps[5]) == first
    assert run.state.home is None
    assert not steps[-1].excluded


@pytest.mark.slow
@BOTH
def test_who_was_left_out_and_goes_on_to_spoil_its_sums_is_in_no_added_group(schedule: str) -> None:
    """It goes on in its groups, and has nothing to lose; before, these were all that there was."""
    who = NAMES[:1]
    run = standing(people(spoilers(who), poison=True), schedule, rounds=5)
    rounds = run.rounds(START)
    steps = [next(rounds)]
    run._state = replace(run.state, excluded=frozenset(who))
    steps += rounds
    for step in steps[2:]:
        added = groups(step) - groups(steps[0])
        assert added
        assert not any(who[0] in members for members in added)
    assert not lost(steps)
    assert set(steps[-1].excluded) == set(who)


def test_added_groups_are_asked_for_with_all_their_members_or_not_at_all() -> None:
    away = NAMES[3]
    run = standing(
        people(spoilers(NAMES[:1], until=1)),
        "every-round",
        rounds=2,
        more={"present": lambda number: set(NAMES) - ({away} if number == 2 else set())},
    )
    steps = run.rounds(START)
    next(steps)
    grouping, home = run.state.grouping, run.state.home
    assert grouping is not None
    assert home is not None
    planned = {grouping.members(number) for number in range(grouping.design.groups)}
    assert any(away in grouping.members(number) for number in range(home.design.groups, grouping.design.groups))
    (second,) = steps
    asked = {record.members for record in second.result.records if record.members}
    assert asked == {members for members in planned if away not in members}


@pytest.mark.slow
@BOTH
def test_a_run_that_goes_on_from_its_folder_has_the_same_groups(schedule: str, tmp_path: Path) -> None:
    transport = people(spoilers(NAMES[:2]))

    def made(folder: str, **more: Any) -> FederationRun:
        return standing(transport, schedule, rounds=4, more={"folder": tmp_path / folder, "name": folder, **more})

    whole = list(made("whole").rounds(START))
    first = made("stopped")
    steps = first.rounds(START)
    next(steps), next(steps)
    home = first.state.home
    assert home is not None
    first.close()
    again = made("stopped", resume=True)
    again.begin(START)
    assert again.state.home is not None
    np.testing.assert_array_equal(again.state.home.rows, home.rows)
    later = list(again.rounds(START))
    assert [groups(step) for step in later] == [groups(step) for step in whole[2:]]
    np.testing.assert_array_equal(later[-1].parameters["weight"], whole[-1].parameters["weight"])


@pytest.mark.parametrize(
    ("schedule", "attack"),
    [
        ("on-suspicion", "equivocation"),
        *slow(
            *(
                (schedule, attack)
                for schedule in ("every-round", "on-suspicion")
                for attack in (
                    "now and then",
                    "no answer",
                    "first sums only",
                    "later sums only",
                    "wakes and equivocates",
                )
            )
        ),
    ],
)
def test_no_attack_of_one_client_gets_anybody_else_left_out(schedule: str, attack: str) -> None:
    run = standing(attackers(attack, NAMES[4:5]), schedule, rounds=5)
    steps = list(run.rounds(START))
    assert len(steps) == 5
    assert set(steps[-1].excluded) <= {NAMES[4]}
    # Who is excluded and sends another vector to later sums may cost a round in which a lot asks for these.
    assert len(lost(steps)) <= (2 if (schedule, attack) == ("on-suspicion", "first sums only") else 0)


# Identities -------------------------------------------------------------------------------------------------------------


class _Signed(ClientEndpoint):
    lies: Lies

    def _new_session(self) -> ClientSession:
        return _Spoiling(self)


class _Spoiling(LyingClient):
    def __init__(self, owner: _Signed) -> None:
        super().__init__(owner._id, policy=owner._policy, credentials=owner._credentials, agreements=owner._log)
        self._owner = owner

    def masked(self, *args: Any, **options: Any) -> bytes:
        self._pads = self._owner.lies(self.plan).get("pads", {})
        return super().masked(*args, **options)


def signed(liars: Mapping[str, Lies], terms: RunTerms | None = None) -> tuple[LocalTransport, dict[str, Any]]:
    """Clients with identities, each of which keeps its promise over all models and runs; and what the server needs."""
    consortium = Consortium.of(TEN)
    policy = ClientPolicy(privacy=4, privacy_over_runs=4, colluders=1)
    handlers = {}
    for number, name in enumerate(TEN):
        own = _Signed(
            name,
            Site(number),
            policy=policy,
            credentials=consortium.of_client(name),
            terms=terms,
        )
        own.lies = liars.get(name, lambda plan: {})
        handlers[name] = own.handle
    given = {"credentials": consortium.of_server(), "agreements": AgreementLog(consortium.registry), "name": "signed"}
    return LocalTransport(handlers), given


def test_clients_with_identities_take_part_in_added_groups_which_keep_their_promise() -> None:
    liar = TEN[2]
    transport, given = signed(spoilers([liar]))
    run = standing(transport, "every-round", rounds=3, names=TEN, more=given)
    steps = list(run.rounds(START))
    assert lost(steps) in ([], [1])
    added = groups(steps[1]) - groups(steps[0])
    opened = {record.members for record in steps[1].result.records if record.status == "open"}
    assert added & opened
    assert set(steps[-1].excluded) <= {liar}


def test_where_the_groups_are_pinned_the_same_come_again_and_no_client_refuses() -> None:
    liar = TEN[0]
    plain = standing(people({}, names=TEN), "every-round", rounds=1, most=1, names=TEN)
    assert plain.grouping is not None
    members = tuple(plain.grouping.members(number) for number in range(plain.grouping.design.groups))
    terms = RunTerms(
        run="signed",
        weights=dict.fromkeys(TEN, 40),
        clip=plain.federation.sums.clip,
        fraction_bits=plain.federation.sums.fraction_bits,
        tensors=tensor_specs(START),
        groups=members,
        thresholds=tuple(default_threshold(len(one), colluders=1) for one in members),
    )
    transport, given = signed(spoilers([liar]), terms)
    run = standing(transport, "every-round", rounds=3, most=1, names=TEN, more=given)
    steps = list(run.rounds(START))
    assert all(groups(step) == set(members) for step in steps)
    assert all(step.result.secure_sums for step in steps)
    assert run.state.home is None
