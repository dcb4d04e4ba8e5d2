"""The client's own limits, and what it pins for a run."""

import math
from pathlib import Path
from typing import Any

import pytest

from fedgt.errors import PolicyError, ProtocolError, SpecError
from fedgt.secagg import (
    ClientPolicy,
    ClientSession,
    FixedPoint,
    RoundPlan,
    RunTerms,
    TensorSpec,
    read_policy,
    weiszfeld_encoding,
)
from fedgt.secagg.messages import plan_message, read_stage_message


def make_plan(**changes: Any) -> RoundPlan:
    fields: dict[str, Any] = {
        "run": "run",
        "colluders": 0,
        "round": 2,
        "purpose": "test",
        "groups": (("a", "b", "c", "d"), ("a", "b", "c")),
        "thresholds": (3, 2),
        "weights": {"a": 30, "b": 1, "c": 1, "d": 40},
        "encoding": FixedPoint(clip=8.0, fraction_bits=16, ring_bits=32),
        "tensors": (TensorSpec(name="w", shape=(3,)),),
    }
    return RoundPlan(**(fields | changes))


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (ClientPolicy(minimum_group_size=4, colluders=0), "below this client's minimum of 4"),
        (ClientPolicy(minimum_threshold=3, colluders=0), "threshold 2 is below this client's minimum_threshold 3"),
        (ClientPolicy(largest_weight_ratio=20.0, colluders=0), "weight 30 is more than 20 times"),
    ],
)
def test_a_group_that_the_policy_does_not_allow_is_refused_alone(policy: ClientPolicy, reason: str) -> None:
    plan = make_plan()
    session = ClientSession("a", policy=policy)
    reply = read_stage_message(session.keys(plan_message(plan)), plan=plan, stage="keys", client="a")
    assert [part.group for part in reply.parts] == [0]
    assert reason in reply.refused[1]


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (ClientPolicy(last_round=1, colluders=0), "round 2 is above this client's last_round 1"),
        (ClientPolicy(largest_model=2, colluders=0), "3 entries are above this client's largest_model 2"),
        (ClientPolicy(largest_clip=1.0, colluders=0), "clip 8 is above this client's largest_clip 1"),
    ],
)
def test_a_plan_that_the_policy_does_not_allow_is_refused_as_a_whole(policy: ClientPolicy, reason: str) -> None:
    with pytest.raises(PolicyError, match=reason):
        ClientSession("a", policy=policy).keys(plan_message(make_plan()))


def test_a_policy_cannot_be_weaker_than_the_protocol_or_make_no_sense() -> None:
    for changes in (
        {"near_model": -0.1},
        {"near_model": 1.0},
        {"near_model": math.nan},
        {"colluders": -1},
        {"colluders": 0.5},
        {"minimum_group_size": 0},
        {"minimum_group_size": 2.5},
        {"largest_clip": 0.0},
        {"largest_clip": math.nan},
        {"last_round": -1},
        {"privacy": True},
        {"largest_share": 0.0},
        {"largest_share": 1.5},
        {"largest_share": math.nan},
    ):
        with pytest.raises(SpecError):
            ClientPolicy(**changes)


def test_a_policy_file_is_read_and_what_it_leaves_out_has_its_default(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("minimum_group_size = 4\nlargest_clip = 2\n")
    assert read_policy(path) == ClientPolicy(minimum_group_size=4, largest_clip=2)
    for content in (
        "minimum_size = 4",
        'privacy = "4"',
        "privacy = true",
        "privacy = 1.5",
        "[a]",
        "largest_clip = nan",
    ):
        path.write_text(content)
        with pytest.raises(SpecError):
            read_policy(path)
    with pytest.raises(SpecError, match="cannot be read"):
        read_policy(tmp_path / "missing.toml")


def test_the_policy_holds_again_when_clients_have_dropped() -> None:
    plan = make_plan()
    session = ClientSession("a", policy=ClientPolicy(minimum_group_size=4, colluders=0))
    session.keys(plan_message(plan))
    assert session._policy.too_few(plan, 0, 3) == "a sum over 3 client(s) is below this client's minimum of 4"


def test_terms_know_what_they_are_about() -> None:
    terms = RunTerms.of(make_plan(), design=True)
    assert terms.digest == RunTerms.of(make_plan(), design=True).digest
    assert (
        len({terms.digest, RunTerms.of(make_plan()).digest, RunTerms.of(make_plan(run="x"), design=True).digest}) == 3
    )
    terms.require(make_plan(round=9))
    with pytest.raises(PolicyError, match="threshold of group 0 fell"):
        RunTerms.of(make_plan(thresholds=(4, 2)), design=True).require(make_plan())
    weights = {"a": 30, "b": 1, "c": 1, "d": 40, "e": 1}
    stranger = make_plan(groups=(("a", "b", "c", "e"), ("a", "b", "c")), weights=weights)
    with pytest.raises(PolicyError, match="client e is not in the agreed terms"):
        terms.require(stranger)
    with pytest.raises(SpecError, match="belong together"):
        RunTerms(run="r", weights={}, clip=1.0, fraction_bits=1, tensors=(), groups=(("a",),))


def test_terms_from_a_first_plan_pin_the_weights_of_clients_that_come_later() -> None:
    first = make_plan(groups=(("a", "b"),), thresholds=(2,), weights={"a": 30, "b": 1})
    terms = RunTerms.of(first).joined(make_plan())
    with pytest.raises(PolicyError, match="weight of d changed: agreed 40, now 41"):
        terms.require(make_plan(weights={"a": 30, "b": 1, "c": 1, "d": 41}))


def test_a_weiszfeld_sum_is_under_the_same_terms() -> None:
    encoding = weiszfeld_encoding(update_clip=8.0, smoothing=1e-6, members=4)
    step = make_plan(task="weiszfeld", smoothing=1e-6, update_clip=8.0, encoding=encoding)
    terms = RunTerms.of(step)
    terms.require(make_plan())
    assert terms.joined(make_plan()).fraction_bits == 16
    RunTerms.of(make_plan()).require(step)
    wider = weiszfeld_encoding(update_clip=16.0, smoothing=1e-6, members=4)
    with pytest.raises(PolicyError, match="clip of the run changed"):
        terms.require(make_plan(task="weiszfeld", smoothing=1e-6, update_clip=16.0, encoding=wider))


def test_credentials_and_policy_do_not_lower_the_minimum_of_the_session() -> None:
    with pytest.raises(ProtocolError, match="minimum of 5"):
        ClientSession("a", minimum_group_size=5, policy=ClientPolicy(colluders=0, minimum_group_size=2)).keys(
            plan_message(make_plan())
        )


def test_a_session_with_terms_refuses_a_plan_that_departs_from_them() -> None:
    session = ClientSession("a", terms=RunTerms.of(make_plan()))
    with pytest.raises(PolicyError, match="the run changed: agreed 'run', now 'another'"):
        session.keys(plan_message(make_plan(run="another")))
    assert session.closed
