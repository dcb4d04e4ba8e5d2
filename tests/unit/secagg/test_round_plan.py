"""The plan: what it refuses, and its canonical bytes."""

from typing import Any

import numpy as np
import pytest

from fedgt.errors import ModulusOverflowError, ProtocolError, SpecError
from fedgt.secagg import FixedPoint, RoundPlan, TensorSpec, default_threshold, weiszfeld_encoding


def plan(**changes: Any) -> RoundPlan:
    fields: dict[str, Any] = {
        "run": "run-1",
        "colluders": 0,
        "round": 0,
        "purpose": "test",
        "groups": (("a", "b", "c"), ("c", "d")),
        "thresholds": (2, 2),
        "weights": {"a": 1, "b": 2, "c": 3, "d": 4},
        "encoding": FixedPoint(clip=8.0, fraction_bits=16, ring_bits=32),
        "tensors": (TensorSpec(name="w", shape=(2, 3)), TensorSpec(name="b", shape=())),
    }
    return RoundPlan(**(fields | changes))


def test_the_default_threshold_is_the_smallest_number_above_half() -> None:
    assert [default_threshold(size) for size in (1, 2, 3, 4, 15)] == [1, 2, 2, 3, 8]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run": ""}, "run"),
        ({"purpose": "a\nb"}, "purpose"),
        ({"round": -1}, "round"),
        ({"round": True}, "round"),
        ({"groups": (("a", "b", "a"), ("c", "d"))}, "more than once"),
        ({"thresholds": (2,)}, "as many thresholds"),
        ({"thresholds": (1, 2)}, "threshold 1 of 3"),
        ({"thresholds": (2, 1)}, "threshold 1 of 2"),
        ({"thresholds": (4, 2)}, "threshold 4 of 3"),
        ({"weights": {"a": 1, "b": 2, "c": 3}}, "'d' has weight None"),
        ({"weights": {"a": 0, "b": 2, "c": 3, "d": 4}}, "'a' has weight 0"),
        ({"weights": {"a": 1.5, "b": 2, "c": 3, "d": 4}}, "'a' has weight 1.5"),
        ({"tensors": ()}, "0 entries"),
        ({"tensors": (TensorSpec(name="w", shape=(2,)),) * 2}, "unique"),
        ({"task": "median"}, "task"),
        ({"smoothing": 1e-6}, "smoothing"),
        ({"task": "weiszfeld", "smoothing": 0.0, "update_clip": 1.0}, "smoothing"),
        ({"task": "weiszfeld", "smoothing": 1e-6, "update_clip": 1.0}, "weiszfeld_encoding"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        plan(**changes)


def test_a_tensor_with_a_negative_dimension_is_refused() -> None:
    with pytest.raises(SpecError, match="shape"):
        TensorSpec(name="w", shape=(2, -1))


def test_a_plan_whose_worst_sum_overflows_its_ring_is_refused() -> None:
    with pytest.raises(ModulusOverflowError, match=r"sum of weights 60006"):
        plan(weights={"a": 1, "b": 60_002, "c": 3, "d": 4})
    with pytest.raises(ModulusOverflowError, match="may all be clipped"):
        plan(tensors=(TensorSpec(name="w", shape=(2**30,)),))


def test_a_group_of_one_has_threshold_one() -> None:
    assert plan(groups=(("a",),), thresholds=(1,)).thresholds == (1,)


def test_weights_of_clients_outside_all_groups_are_left_out() -> None:
    assert dict(plan(groups=(("a", "b"),), thresholds=(2,)).weights) == {"a": 1, "b": 2}


def test_numpy_integers_are_weights_too() -> None:
    weights = dict(zip("abcd", np.arange(1, 5), strict=True))
    assert plan(weights=weights).digest == plan().digest


def test_a_plan_survives_its_canonical_bytes() -> None:
    reach = weiszfeld_encoding(update_clip=8.0, smoothing=1e-6, members=3)
    for original in (plan(), plan(task="weiszfeld", smoothing=1e-6, update_clip=8.0, encoding=reach)):
        copy = RoundPlan.from_json(original.to_json())
        assert copy == original
        assert copy.digest == original.digest


def test_the_digest_depends_on_every_field_and_not_on_the_order_of_the_weights() -> None:
    assert plan(weights={"d": 4, "c": 3, "b": 2, "a": 1}).digest == plan().digest
    changed = [
        plan(run="run-2"),
        plan(round=1),
        plan(purpose="training"),
        plan(groups=(("a", "b", "d"), ("c", "d"))),
        plan(thresholds=(3, 2)),
        plan(weights={"a": 1, "b": 2, "c": 3, "d": 5}),
        plan(encoding=FixedPoint(clip=8.0, fraction_bits=15, ring_bits=32)),
        plan(tensors=(TensorSpec(name="w", shape=(3, 2)), TensorSpec(name="b", shape=()))),
    ]
    assert len({other.digest for other in [plan(), *changed]}) == 1 + len(changed)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 100_000,
        plan().to_json() + b" ",
        plan().to_json().replace(b'"round":0', b'"round":0.0'),
        plan().to_json().replace(b'"round":0', b'"round":"0"'),
        plan().to_json().replace(b'"clip":8.0', b'"clip":NaN'),
        plan().to_json().replace(b'"clip":8.0', b'"clip":' + b"9" * 400),
        plan().to_json().replace(b'["a","b","c"]', b'"abc"'),
        plan().to_json().replace(b'["a","b","c"]', b'["a","b","b"]'),
        plan().to_json().replace(b'"thresholds":[2,2]', b'"thresholds":[1,2]'),
        plan().to_json().replace(b'"task":"mean"', b'"task":{}'),
    ],
)
def test_bytes_that_are_not_a_canonical_plan_are_a_protocol_error(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        RoundPlan.from_json(payload)
