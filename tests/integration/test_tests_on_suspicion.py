"""Tests on suspicion: a quiet round opens few sums, and whoever attacks later is named in that round all the same."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import called
from fedgt import ClientEndpoint, DecodeSettings, FederationRun, LocalTransport, ScreenSettings, TrainedModel
from fedgt.engine import Failure
from fedgt.errors import SpecError
from fedgt.experiment import make_spec, run, run_into
from fedgt.experiment.batch import run_batch
from fedgt.federation import Step
from fedgt.federation.schedule import Standing
from fedgt.secagg import AgreementLog, ClientPolicy
from fedgt.train import load
from fedgt.types import Parameters
from secagg_lab import Consortium
from sleepers import Sleeper, harm, held
from small_run import ATTACKERS, NAMES, START, made

NEVER = ScreenSettings(schedule="on-suspicion", unannounced=0.0)
ALWAYS = ScreenSettings(schedule="on-suspicion", unannounced=1.0)


def sites(wakes: int = 99, **how: Any) -> dict[str, Any]:
    return {name: Sleeper(name, wakes=wakes, **how) for name in NAMES}


def watched(who: Mapping[str, Any] | None = None, **changes: Any) -> FederationRun:
    return made(who or sites(), **({"rounds": 5, "screen": NEVER} | changes))


def opened(step: Step) -> set[tuple[str, ...]]:
    return {record.members for record in step.result.records if record.status == "open"}


def test_where_nobody_attacks_only_the_first_round_opens_all_sums() -> None:
    run = watched()
    steps = held(run)
    assert [step.purpose for step in steps] == ["test", *["training"] * 4]
    assert len(opened(steps[0])) == 10
    few = opened(steps[1])
    assert len(few) == 3
    assert set(NAMES) == {client for members in few for client in members}
    assert all(opened(step) == few for step in steps[1:])
    assert few < opened(steps[0])
    assert [row.round for row in run.result().tests] == [1]
    assert [row.secure_sums for row in run.result().rounds] == [10, 3, 3, 3, 3]


def test_the_model_of_a_quiet_round_is_nearly_the_mean_of_everybody() -> None:
    tested, plain = held(watched()), held(made(sites(), validation=None, rounds=5))
    for one, other in zip(tested, plain, strict=True):
        np.testing.assert_allclose(one.parameters["weight"], other.parameters["weight"], atol=0.02)


@pytest.mark.parametrize("wakes", [4, pytest.param(2, marks=pytest.mark.slow)])
def test_sleepers_are_named_in_the_round_they_wake_and_their_poison_is_in_no_model(wakes: int) -> None:
    run = watched(sites(wakes))
    steps = held(run)
    assert [set(step.excluded) for step in steps] == [ATTACKERS if step.round >= wakes else set() for step in steps]
    assert all(harm(step.parameters) < 0.1 for step in steps)
    assert harm(held(made(sites(wakes), rounds=5))[-1].parameters) > 0.1  # the harm that is measured is real
    why = {row.round: row.opened_for for row in run.result().tests}
    assert why[wakes]
    assert "earlier rounds" in why[wakes] or "turned" in why[wakes] or "loss" in why[wakes]


def test_one_attacker_in_each_first_sum_moves_no_difference_and_is_named_all_the_same() -> None:
    few = opened(held(watched(rounds=2))[1])
    assert len(few) == 3
    taken: list[str] = []
    for members in sorted(few):
        taken.append(next(client for client in members if client not in taken and _alone(client, few)))
    steps = held(watched(sites(3, attackers=frozenset(taken), times=6.0), rounds=4))
    assert set(steps[2].excluded) == set(taken)
    assert all(harm(step.parameters) < 0.1 for step in steps)


def _alone(client: str, groups: set[tuple[str, ...]]) -> bool:
    return sum(client in members for members in groups) == 1


def test_after_an_exclusion_quiet_rounds_come_back_and_nothing_of_the_excluded_is_in_a_model() -> None:
    runs = [held(watched(sites(3, later=later, named=3), rounds=7)) for later in (0.0, 100.0)]
    for steps in runs:
        assert [step.purpose for step in steps] == ["test", "training", "test", "test", *["training"] * 3]
        assert set(steps[-1].excluded) == ATTACKERS
        assert all(len(opened(step)) < 10 for step in steps[4:])
    for one, other in zip(*runs, strict=True):
        np.testing.assert_allclose(one.parameters["weight"], other.parameters["weight"], rtol=0, atol=1e-7)


def test_the_account_stays_as_it_is_after_the_first_round() -> None:
    run = watched(sites(3))
    accounts = []
    for _ in run.rounds(START):
        account = run.federation.ledger.account()
        accounts.append((account.strict, account.cautious, account.with_training))
    assert accounts == accounts[:1] * 5
    assert accounts[0][1] is not None
    assert accounts[0][1] >= 4


@pytest.mark.slow
def test_the_lot_opens_all_sums_of_a_round_in_which_nothing_is_suspicious() -> None:
    run = watched(screen=ALWAYS)
    steps = held(run)
    assert [step.purpose for step in steps] == ["test"] * 5
    assert {row.opened_for for row in run.result().tests[1:]} == {"it was drawn by lot"}
    assert not steps[-1].excluded


def test_nobody_can_work_out_the_lots_of_a_real_run_from_its_seed() -> None:
    half = ScreenSettings(schedule="on-suspicion", unannounced=0.5)

    def lots(run: FederationRun) -> list[bool]:
        assert run._standing is not None
        return [run._standing.drawn(number) for number in range(1, 200)]

    one, other = (lots(watched(screen=half, seed=7)) for _ in range(2))
    assert one != other
    assert 60 < sum(one) < 140
    again = [Standing.of(half, DecodeSettings(), rounds=3, tested=True, secret=5) for _ in range(2)]
    assert [one.drawn(number) for one in again if one for number in range(9)] == 2 * [
        again[0].drawn(number) for number in range(9) if again[0]
    ]


def test_who_is_away_costs_a_test_and_its_groups_are_not_asked_for_without_it() -> None:
    steps = held(watched(rounds=6, present=lambda number: set(NAMES) - ({"c07"} if number in (3, 4) else set())))
    assert [step.purpose for step in steps] == ["test", "training", "test", "training", "test", "training"]
    every = opened(steps[0])
    for step in steps[2:4]:
        assert opened(step) <= {members for members in every if "c07" not in members}
    assert "c07" not in steps[-1].excluded
    assert not any(record.status == "refused" for step in steps for record in step.result.records)


@pytest.mark.parametrize("stops", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_that_is_resumed_ends_as_one_that_never_stopped(stops: int, tmp_path: Path) -> None:
    whole = watched(sites(4), folder=tmp_path / "whole")
    last = held(whole)[-1]
    folder = tmp_path / "stopped"
    first = watched(sites(4), folder=folder)
    list(islice(first.rounds(START), stops))
    first.close()
    second = watched(sites(4), folder=folder, resume=True)
    after = held(second)[-1]
    np.testing.assert_array_equal(after.parameters["weight"], last.parameters["weight"])
    same = [
        one.result().model_dump(exclude={"cpu_seconds", "spec_hash", "aggregates", "rounds"}) for one in (whole, second)
    ]
    assert same[0] == same[1]


@pytest.mark.slow
def test_a_simulated_run_of_one_seed_is_the_same_with_and_without_masks_and_after_a_restart(tmp_path: Path) -> None:
    spec = make_spec(
        {
            "privacy": 4,
            "seed": 1001,
            "federation": {"rounds": 4},
            "attack": {"kind": "label-permutation", "malicious": 3, "first_round": 3},
            "screen": {"schedule": "on-suspicion", "unannounced": 0.3},
        }
    )

    class Stopped(Exception):
        pass

    def stop(finished: int, *_: Any) -> None:
        if finished == 2:
            raise Stopped

    with pytest.raises(Stopped):
        run_into(spec, tmp_path / "run", on_round=stop)
    result = run_into(spec, tmp_path / "run", resume=True)
    named = {client.id: client.decided_in for client in result.clients if client.excluded}
    assert named == {client.id: 3 for client in result.clients if client.truth == "malicious"}
    different = {"cpu_seconds"}
    assert run(spec).model_dump(exclude=different) == result.model_dump(exclude=different)
    (plain,) = run_batch([spec], data=load(spec.data.name, None), masks=False)
    assert [row.purpose for row in plain.rounds] == [row.purpose for row in result.rounds]
    assert [row.top1_accuracy for row in plain.rounds] == [row.top1_accuracy for row in result.rounds]


@dataclass
class Losing:
    """A transport that loses the replies of some: told (round, stage of the plan, message, client)."""

    handlers: Mapping[str, Any]
    loses: Callable[[int, int, str, str], bool] = lambda *_: False
    round: int = 0
    stage: int = 0

    def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        self.stage = 0 if stage in ("keys", "begin") else self.stage + int(stage == "further")
        found = LocalTransport(dict(self.handlers)).exchange(stage, messages, timeout)
        lost = [client for client in found if self.loses(self.round, self.stage, stage, client)]
        return {**found, **{client: Failure(client=client, reason="lost") for client in lost}}


def endpoints(who: Mapping[str, Any], **how: Any) -> dict[str, Any]:
    how = how or {"minimum_group_size": 4}
    return {name: ClientEndpoint(name, site, **how).handle for name, site in who.items()}


def played(wire: Losing, **changes: Any) -> tuple[FederationRun, list[Step]]:
    run = made(wire, **({"rounds": 8, "screen": NEVER} | changes))
    run.begin(START)
    steps = []
    while (coming := run.coming()) is not None:
        wire.round = coming.round
        steps.append(run.hold(coming))
    return run, steps


def lost(steps: Sequence[Step]) -> list[int]:
    return [step.round for step in steps if any("is lost" in warning for warning in step.result.warnings)]


class Cover(Sleeper):
    """Stands out without harm, and attacks later: what the first looks have got used to would cover it."""

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        trained = Sleeper(self.name, wakes=self.wakes).train(parameters, round=round)
        weight = np.array(trained.parameters["weight"])
        if self.name in ATTACKERS and round < self.wakes:
            weight[[2, 3], 4] += [0.4, -0.4]
        return TrainedModel(parameters={"weight": weight, "bias": parameters["bias"]}, samples=10)


def test_a_push_that_was_found_suspicious_is_no_cover_for_an_attack() -> None:
    steps = held(watched({name: Cover(name, wakes=4) for name in NAMES}))
    assert {one.verdict for one in steps[0].verdicts if one.client in ATTACKERS} == {"suspicious"}
    assert [set(step.excluded) for step in steps] == [set(), set(), set(), ATTACKERS, ATTACKERS]
    assert all(harm(step.parameters) < 0.1 for step in steps)


class Shy(Sleeper):
    """Pushes against the others where a plan has a later stage, and leaves when that comes; behaves in announced tests."""

    pushes = False

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        trained = super().train(parameters, round=round)
        weight = np.asarray(parameters["weight"])
        moved = np.asarray(trained.parameters["weight"]) - weight
        times = -3.0 if self.name == "c01" and Shy.pushes else 1.0
        return TrainedModel(parameters={"weight": weight + times * moved, "bias": parameters["bias"]}, samples=10)


def shy(**changes: Any) -> list[Step]:
    def leaves(round: int, stage: int, message: str, client: str) -> bool:
        return client == "c01" and stage == 1 and message == "further"

    wire = Losing(endpoints({name: Shy(name) for name in NAMES}), leaves)
    run = made(wire, rounds=11, screen=NEVER, **changes)
    run.begin(START)
    steps: list[Step] = []
    while (coming := run.coming()) is not None:
        wire.round = coming.round
        assert run._standing is not None
        Shy.pushes = not run._standing.at_once(run.state)
        steps.append(run.hold(coming))
    return steps


def test_who_leaves_when_more_sums_are_asked_for_costs_few_rounds_and_is_reported() -> None:
    steps = shy()
    # The pauses between the rounds that it spoils double.
    assert lost(steps) == [2, 5, 10]
    assert not steps[-1].excluded
    told = [warning for step in steps for warning in step.warnings if "just when more sums" in warning]
    assert told
    assert all(warning.startswith("c01") for warning in told)


@pytest.mark.slow
def test_the_policy_leaves_out_who_leaves_again_when_more_sums_are_asked_for() -> None:
    steps = shy(decode=DecodeSettings(on_silent="exclude"))
    assert lost(steps) == [2, 5]
    assert steps[-1].excluded == ("c01",)


@pytest.mark.slow
def test_clients_at_their_limit_of_later_stages_are_not_blamed_and_the_run_goes_on() -> None:
    policy = ClientPolicy(privacy=4, colluders=0, later_stages=2)
    wire = Losing(endpoints(sites(), policy=policy))
    _, steps = played(wire, screen=ALWAYS, decode=DecodeSettings(on_silent="exclude"), rounds=10)
    assert lost(steps) == [4, 7]
    assert not steps[-1].excluded


@pytest.mark.parametrize("schedule", ["first", pytest.param("every-round", marks=pytest.mark.slow), "on-suspicion"])
@pytest.mark.parametrize("how", ["absent", pytest.param("left", marks=pytest.mark.slow)])
def test_with_identities_one_client_that_is_missing_in_the_first_test_costs_no_round(schedule: Any, how: str) -> None:
    consortium = Consortium.of(NAMES)
    policy = ClientPolicy(privacy=4, colluders=0)
    who = {
        name: ClientEndpoint(name, site, policy=policy, credentials=consortium.of_client(name)).handle
        for name, site in sites().items()
    }
    wire = Losing(
        who, lambda round, _, message, client: how == "left" and (round, message, client) == (1, "masked", "c07")
    )
    _, steps = played(
        wire,
        screen=ScreenSettings(schedule=schedule, most_rounds=1, unannounced=0.0),
        decode=DecodeSettings(on_untested="keep"),
        rounds=3,
        credentials=consortium.of_server(),
        agreements=AgreementLog(consortium.registry),
        present=lambda number: set(NAMES) - ({"c07"} if how == "absent" and number == 1 else set()),
    )
    assert not lost(steps)
    models = [START["weight"], *(step.parameters["weight"] for step in steps)]
    assert all(not np.array_equal(one, other) for one, other in pairwise(models))


def test_a_sum_that_the_ledger_refuses_is_not_among_the_first() -> None:
    wire = Losing(
        endpoints(sites()), lambda round, _, message, client: (round, message, client) == (1, "masked", "c07")
    )
    _, steps = played(wire, decode=DecodeSettings(on_untested="keep"), rounds=5)
    assert any(record.status == "refused" for record in steps[0].result.records)
    # The second test, of the groups that are left, leaves somebody undecided.
    assert [step.purpose for step in steps][3:] == ["training"] * 2


def test_the_report_says_why_a_round_was_a_test_and_that_the_others_were_watched(tmp_path: Path) -> None:
    held(watched(sites(4), folder=tmp_path / "run", rounds=6))
    page = called("report", str(tmp_path / "run"), "--json")
    assert page.returncode == 0
    said = json.loads(page.stdout)
    assert [row["opened_for"] != "" for row in said["tests"]] == [True, True, True]
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "In every round a few sums were compared with those of earlier rounds" in text
    assert "an attack that changes the first sums little is not found" in text
    assert "All sums were opened: " in text


class Growing(Sleeper):
    """One in each of the first sums, and a little more in every round: nothing changes at once."""

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        trained = Sleeper(self.name).train(parameters, round=round)
        weight = np.array(trained.parameters["weight"])
        if self.name in self.attackers:
            weight[[2, 3], [3, 2]] += 0.04 * max(0, round - 2)
        return TrainedModel(parameters={"weight": weight, "bias": parameters["bias"]}, samples=10)


@pytest.mark.parametrize("back", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_what_was_done_between_two_tests_is_undone_where_the_settings_say_so(back: bool, tmp_path: Path) -> None:
    few = opened(held(watched(rounds=2))[1])
    taken: list[str] = []
    for members in sorted(few):
        taken.append(next(client for client in members if client not in taken and _alone(client, few)))
    who = {name: Growing(name, attackers=frozenset(taken)) for name in NAMES}
    screen = ScreenSettings(schedule="on-suspicion", unannounced=0.0, roll_back=back)
    run = watched(who, screen=screen, rounds=8, folder=tmp_path / "run")
    steps: list[Step] = []
    run.begin(START)
    while (coming := run.coming()) is not None:
        if coming.round == 7 and run._standing is not None:  # the lot falls on this round
            run._standing = replace(run._standing, screen=screen.model_copy(update={"unannounced": 1.0}))
        steps.append(run.hold(coming))
    assert [step.purpose for step in steps][:6] == ["test", *["training"] * 5]
    assert set(steps[6].excluded) == set(taken)
    told = any("back to the model of round 1" in warning for warning in steps[6].warnings)
    assert told == back
    assert np.array_equal(steps[6].parameters["weight"], steps[0].parameters["weight"]) == back
    assert (harm(steps[6].parameters) < 0.02) == back
    account = run.federation.ledger.account()
    assert account.strict is not None
    assert account.cautious is not None
    assert min(account.strict, account.cautious) >= 4
    run.close()


def test_to_roll_back_needs_rounds_between_tests() -> None:
    with pytest.raises(ValueError, match="on-suspicion"):
        ScreenSettings(schedule="every-round", roll_back=True)


def test_a_schedule_that_does_not_fit_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(ValueError, match="needs graded evidence"):
        ScreenSettings(schedule="on-suspicion", kind="clusters")
    with pytest.raises(SpecError, match="leave out test_rounds"):
        watched(test_rounds=[2])
    with pytest.raises(SpecError, match="give one"):
        made(validation=None, screen=NEVER)


@pytest.mark.slow
@pytest.mark.parametrize(("known", "named"), [(True, 6), (False, None)])
def test_a_line_that_was_not_there_before_is_none_of_honest_clients(
    known: bool, named: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five sleepers on little data push unequally hard. Their line was clear, and left open as one of honest clients."""
    if not known:
        monkeypatch.setattr("fedgt.federation.on_suspicion.grown", lambda look, before: None)
    spec = make_spec(
        {"privacy": 4, "seed": 99_928, "data": {"name": "digits"}, "attack": {"malicious": 5, "first_round": 5}}
    )
    (result,) = run_batch([spec], data=load("digits", None), masks=False)
    attackers = [one for one in result.clients if one.truth == "malicious"]
    assert [one.decided_in if one.excluded else None for one in attackers] == [named] * 5
    assert not any(one.excluded for one in result.clients if one.truth == "benign")
