"""More that an active server tries with up to two colluding clients: rows, models and roundings that only look harmless.

`tests/support/lying_server.py` plays the server; what it can unmask afterwards is the measure, not what it was told.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedgt.engine import ClientEndpoint
from fedgt.engine.round_message import RoundMessage, bound
from fedgt.secagg import ClientPolicy, FixedPoint, TensorSpec
from fedgt.secagg.frames import pack
from lying_server import LyingServer, least_mixed, model
from slow_cases import slow

NAMES = tuple(f"c{number}" for number in range(9))
PROMISE = 4
CLIP = 8.0
COLLUDERS = pytest.mark.parametrize("colluders", [*slow(0), 1, *slow(2)])


def lying(colluders: int, **options: Any) -> LyingServer:
    """Nine clients, of which the last few collude; the honest ones promise four."""
    bad = NAMES[len(NAMES) - colluders :]
    return LyingServer(NAMES, ClientPolicy(privacy=PROMISE, colluders=colluders), bad=bad, **options)


def opened(server: LyingServer, *groups: Any, sent: Mapping[str, Any] | None = None, **changes: Any) -> int:
    """A round as an honest server would play it: how many honest clients have released shares."""
    return len(server.open(server.play(server.plan(*groups, **changes), sent)))


def require_kept(server: LyingServer) -> None:
    mixed = least_mixed(server.revealed())
    assert mixed is None or mixed >= PROMISE - len(server.bad), f"{mixed} honest clients are mixed"


# Weiszfeld sums: the server does not know the weights, but has a say in them -------------------------------------------


@COLLUDERS
def test_two_weiszfeld_groups_of_one_plan_share_the_factor_of_each_client(colluders: int) -> None:
    """Each client's factor is the same in both groups, so that the difference is c0's update and its factor."""
    server = lying(colluders)
    assert not opened(server, NAMES, NAMES[1:], task="weiszfeld")
    assert all("mix only c0" in server.refusals[name] for name in server.honest)
    assert server.revealed() == []


@COLLUDERS
def test_dropouts_that_are_invented_in_two_weiszfeld_groups_open_nothing(colluders: int) -> None:
    server = lying(colluders)
    attempt = server.play(server.plan(NAMES, NAMES, task="weiszfeld"))
    server.open(attempt, {0: (NAMES, ()), 1: (NAMES[1:], NAMES[:1])})
    assert all("mix only c0" in server.refusals[name] for name in server.honest)
    require_kept(server)


@COLLUDERS
def test_a_large_smoothing_does_not_make_a_mean_of_other_members_out_of_a_weiszfeld_sum(colluders: int) -> None:
    """Above all distances the weights are equal and known: less a mean over everybody, the sum is c0's update."""
    server = lying(colluders)
    assert opened(server, NAMES) == len(server.honest)
    assert not opened(server, NAMES[1:], task="weiszfeld", smoothing=1e3, round=2)
    assert all("mix only c0" in server.refusals[name] for name in server.honest[1:])
    require_kept(server)


@COLLUDERS
def test_a_smoothing_between_two_distances_does_not_single_out_the_farthest_client(colluders: int) -> None:
    """Whoever is nearer has a known weight: mean less Weiszfeld sum over the same members is the farthest's alone."""
    server = lying(colluders)
    assert opened(server, NAMES) == len(server.honest)
    norms = sorted(float(np.linalg.norm(server.data[name].update(1))) for name in server.honest)
    middle = (norms[-1] + norms[-2]) / 2
    assert not opened(server, NAMES, task="weiszfeld", smoothing=middle, round=2)
    assert sum("would know its weight" in reason for reason in server.refusals.values()) == len(server.honest) - 1
    require_kept(server)


@COLLUDERS
def test_a_center_far_outside_all_updates_is_refused(colluders: int) -> None:
    """From there all distances are nearly the same, and so are the weights: the Weiszfeld sum is a mean, but for 1e-9."""
    server = lying(colluders)
    attempt = server.begin(server.plan(NAMES, task="weiszfeld"), model(1), center={"w": np.full(2, 1e9)})
    server.share(attempt)
    server.mask(attempt)
    assert {position for _, position in attempt.vectors} <= {NAMES.index(name) for name in server.bad}
    assert all("the center is outside the clip" in server.refusals[name] for name in server.honest)


@COLLUDERS
def test_an_ordinary_weiszfeld_round_after_a_mean_is_answered(colluders: int) -> None:
    server = lying(colluders)
    assert opened(server, NAMES) == len(server.honest)
    for number in (2, 3):
        assert opened(server, NAMES, task="weiszfeld", round=number) == len(server.honest)
    require_kept(server)


# Clipping and rounding --------------------------------------------------------------------------------------------------


@COLLUDERS
@pytest.mark.parametrize(("clip", "bits"), [(1.0, 16), (CLIP, 1)])
def test_sums_of_one_model_are_not_clipped_or_rounded_in_two_ways(colluders: int, clip: float, bits: int) -> None:
    """Two sums over the same clients differ by what only the largest updates lose: an entry of one client."""
    server = lying(colluders)
    assert opened(server, NAMES) == len(server.honest)
    encoding = FixedPoint(clip=clip, fraction_bits=bits, ring_bits=32)
    assert not opened(server, NAMES, run="another", encoding=encoding)
    assert all("nearly the same model was answered with clip 8" in server.refusals[name] for name in server.honest)


def test_a_policy_that_knows_no_near_models_looks_at_the_rounding_of_the_same_one() -> None:
    server = LyingServer(NAMES, ClientPolicy(privacy=PROMISE, near_model=0.0))
    assert opened(server, NAMES)
    assert not opened(server, NAMES, run="another", encoding=FixedPoint(clip=1.0, fraction_bits=16, ring_bits=32))
    assert opened(server, NAMES, sent=model(1, 1e-9), run="a third")


@COLLUDERS
def test_the_number_of_clipped_entries_of_one_client_is_not_singled_out(colluders: int) -> None:
    """It travels without a weight: rows that are far apart in the updates differ by one client in the counts."""
    samples = {name: 2 + number for number, name in enumerate(NAMES)}
    server = lying(colluders, samples=samples)
    assert opened(server, NAMES) == len(server.honest)
    assert not opened(server, NAMES[1:], run="weighted", weights=samples)
    assert all("mix only c0" in server.refusals[name] for name in server.honest[1:])
    require_kept(server)


# Models that are another one in name only -------------------------------------------------------------------------------

FIRST: dict[str, Any] = {"w": np.array([0.0, 100.0]), "v": np.array([0.0, 3.0])}
DISGUISES: dict[str, dict[str, Any]] = {
    "the tensors in another order": {"v": FIRST["v"], "w": FIRST["w"]},
    "another dtype": {"w": FIRST["w"].astype(np.float32), "v": FIRST["v"].astype(np.float16)},
    "the sign of zero": {"w": np.array([-0.0, 100.0]), "v": np.array([-0.0, 3.0])},
    "a denormal number": {"w": np.array([5e-324, 100.0]), "v": FIRST["v"]},
    "one more tensor": {**FIRST, "z": np.array([1e9])},
    "one more tensor that comes first": {"a": np.array([1e9]), **FIRST},
    "one more integer": {**FIRST, "z": np.array([7])},
    "an empty tensor": {**FIRST, "z": np.zeros((0, 3))},
    "a tensor that nobody trains, far away": {"w": FIRST["w"], "v": np.array([1e300, -1e300])},
    "a tensor that nobody trains, not finite": {"w": FIRST["w"], "v": np.array([np.nan, np.inf])},
}


def specs(sent: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    """Only the first tensor is summed."""
    return tuple(
        TensorSpec(name=name, shape=values.shape, kind="mean" if name == "w" else "keep")
        for name, values in sorted(sent.items())
    )


@pytest.mark.parametrize("what", DISGUISES)
@COLLUDERS
def test_a_model_in_disguise_counts_as_the_one_that_was_answered(what: str, colluders: int) -> None:
    """Its hash is another, and what is trained from it is the same."""
    server = lying(colluders)
    disguised = DISGUISES[what]
    assert opened(server, NAMES, sent=FIRST, tensors=specs(FIRST)) == len(server.honest)
    assert not opened(server, NAMES[1:], sent=disguised, run="another", tensors=specs(disguised))
    assert all("mix only c0" in server.refusals[name] for name in server.honest[1:])
    require_kept(server)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30, 1e300])
@COLLUDERS
def test_entries_that_nobody_trains_do_not_hide_what_was_answered(value: float, colluders: int) -> None:
    """From the first round on a kept tensor is huge or not finite, and would drown whatever is compared."""
    server = lying(colluders)
    strange, near = ({"w": np.array([step, 100.0]), "v": np.full(500, value)} for step in (0.0, 1e-9))
    assert opened(server, NAMES, sent=strange, tensors=specs(strange)) == len(server.honest)
    assert not opened(server, NAMES[1:], sent=near, run="another", tensors=specs(near))
    assert all("mix only c0" in server.refusals[name] for name in server.honest[1:])
    require_kept(server)


# Groups, plans and numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colluders", [1, 2])
def test_a_group_in_which_nobody_honest_sits_stops_the_plan(colluders: int) -> None:
    """The colluders could fill an agreement with sums of their own; honest clients count these, too."""
    server = lying(colluders)
    assert not opened(server, NAMES, server.bad)
    assert all("mix only" in server.refusals[name] for name in server.honest)
    assert server.revealed() == []


@COLLUDERS
def test_a_group_that_was_withheld_is_not_opened_later(colluders: int) -> None:
    """Two groups that are fine together; one is opened, and the other one under a second agreement, or a later one."""
    server = lying(colluders)
    attempt = server.play(server.plan(NAMES, NAMES[:5]))
    first = server.link(attempt, {0: (NAMES, ())})
    server.sign(attempt, first)
    server.head = first
    assert len(server.unmask(attempt, first)) == len(server.honest)
    second = server.link(attempt, {1: (NAMES[:5], ())})
    assert set(server.sign(attempt, second)) == set(server.bad)
    assert server.unmask(attempt, second, {**server.known[first.digest][1]}) == {}
    require_kept(server)


@COLLUDERS
def test_clients_that_are_told_of_fewer_peers_do_not_sign(colluders: int) -> None:
    """Half of the group is masked against one half only: their sum alone could be unmasked."""
    server = lying(colluders)
    attempt = server.begin(server.plan(NAMES), model(1))
    server.share(attempt)
    few = NAMES[:7]
    server.mask(attempt, hidden=dict.fromkeys(few, NAMES[7:]))
    link = server.link(attempt, {0: (NAMES, ())})
    signatures = server.sign(attempt, link)
    server.unmask(attempt, link)
    assert not set(signatures) & set(few) - set(server.bad)
    other = server.link(attempt, {0: (few, ())})
    server.sign(attempt, other)
    server.unmask(attempt, other)
    require_kept(server)


@COLLUDERS
def test_two_plans_for_the_prekeys_of_one_round_open_nothing(colluders: int) -> None:
    """Half of the clients spend their prekeys on a plan of nine, half on a plan of eight with the same model."""
    server = lying(colluders)
    whole = server.begin(server.plan(NAMES), model(1), ahead=True, silent=server.honest[:4])
    less = server.begin(server.plan(NAMES[1:]), model(1), ahead=True, silent=server.honest[4:])
    for attempt in (whole, less):
        server.mask(attempt)
        server.open(attempt)
    require_kept(server)


@COLLUDERS
def test_the_largest_round_number_ends_one_run_and_no_other(colluders: int) -> None:
    server = lying(colluders)
    assert not opened(server, NAMES, round=10**30)
    assert all("above this client's last_round" in server.refusals[name] for name in server.honest)
    assert opened(server, NAMES, round=2**31 - 1) == len(server.honest)
    assert not opened(server, NAMES, round=3)
    assert opened(server, NAMES, round=3, run="another") == len(server.honest)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"c0":1', '"c0":0'),
        ('"c0":1', '"c0":-1'),
        ('"c0":1', '"c0":1,"c0":1'),
        ('"thresholds":[6]', '"thresholds":[1]'),
        ('"colluders":1', '"colluders":0'),
        ('"round":1', '"round":1.0'),
        ('"round":1', '"round":true'),
        ('"c0","c1"', '"c0","c0"'),
        ('"c0","c1"', '"c0","C0"'),
        ('"c0","c1"', '"c0","c1\\u200b"'),
        ('"run":"run"', '"run": "run"'),
        ('"smoothing":0.0', '"smoothing":NaN'),
    ],
)
def test_a_plan_that_no_honest_server_could_write_is_refused(before: str, after: str) -> None:
    """Weights of zero, one client twice, a lower threshold, another spelling: changed in the bytes, and signed."""
    server = lying(1)
    text = bound(server.plan(NAMES), model(1)).to_json().decode()
    assert before in text
    forged = pack({"kind": "plan"}, text.replace(before, after, 1).encode(), identity=server.people.server)
    opening = RoundMessage(session=forged, parameters=model(1)).to_bytes(identity=server.people.server)
    assert server.tell("c0", "keys", opening) is None
    assert "colluders, this client's policy" in server.refusals["c0"] or "not a valid plan" in server.refusals["c0"]


@pytest.mark.parametrize("inputs", [{}, {"config": "0" * 64}, {"model": "0" * 64}, {"center": "0" * 64}])
def test_a_plan_with_other_inputs_than_a_client_has_is_refused_before_it_trains(inputs: Mapping[str, str]) -> None:
    """A hash that is missing, or one that the client knows nothing about."""
    server = lying(0, inputs={"schedule": "1" * 64})
    attempt = server.begin(server.plan(NAMES), model(1), extra=inputs)
    assert attempt.keys == {}
    assert all("the plan is about another" in server.refusals[name] for name in server.honest)
    assert isinstance(server.endpoint("c0"), ClientEndpoint)
