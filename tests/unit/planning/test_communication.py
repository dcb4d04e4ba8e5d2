"""What a test round costs, against the bytes that real rounds carry and the paper's own count."""

from dataclasses import replace

import numpy as np
import pytest

from fedgt.design import Design, from_matrix, named_design
from fedgt.engine import ClientEndpoint, LocalTransport, TrainedModel, secure_sums
from fedgt.planning.communication import communication, plan_bytes
from fedgt.secagg import ClientPolicy, FixedPoint, RoundPlan, TensorSpec, default_threshold
from fedgt.types import Parameters
from secagg_lab import Consortium
from slow_cases import slow

MODEL = {"w": np.zeros((3, 4), dtype=np.float32), "b": np.zeros(5, dtype=np.float32)}
UNEVEN = from_matrix([[1, 1, 1, 1, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]])
LEAST = ClientPolicy(privacy=2, colluders=0)


class Still:
    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        return TrainedModel(parameters=dict(parameters), samples=1)


def plan_of(design: Design, names: str, ring_bits: int = 32) -> RoundPlan:
    groups = tuple(tuple(names[j] for j in design.members(i)) for i in range(design.groups))
    return RoundPlan(
        run="r1",
        colluders=0,
        round=12,
        purpose="test",
        groups=groups,
        thresholds=tuple(default_threshold(len(group)) for group in groups),
        weights=dict.fromkeys(names, 1),
        encoding=FixedPoint(clip=8.0, fraction_bits=16, ring_bits=ring_bits),
        tensors=tuple(TensorSpec(name=name, shape=array.shape) for name, array in MODEL.items()),
    )


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("ring_bits", [32, *slow(64)])
@pytest.mark.parametrize("design", [UNEVEN, named_design("bch-15x8")], ids=["uneven", "bch"])
@pytest.mark.parametrize("coefficient", [1, 12])
def test_the_counted_bytes_are_those_of_a_real_round(
    design: Design, ring_bits: int, signed: bool, coefficient: int
) -> None:
    names = "abcdefghijklmno"[: design.clients]
    consortium = Consortium.of(names)
    transport = LocalTransport(
        {
            n: ClientEndpoint(n, Still(), policy=LEAST, credentials=consortium.of_client(n) if signed else None).handle
            for n in names
        }
    )
    plan = plan_of(design, names, ring_bits)
    rows = [[1] * len(group) for group in plan.groups]
    rows[0][0] = coefficient
    plan = replace(plan, coefficients=tuple(map(tuple, rows)))
    found = secure_sums(
        transport,
        plan,
        MODEL,
        authorise=lambda members: (None,) * len(members),
        timeout=30.0,
        credentials=consortium.of_server() if signed else None,
    )
    assert all(one.status == "open" for one in found.sums)
    up, down, messages = plan_bytes(plan, signed=signed)
    assert (sum(up.values()), sum(down.values())) == (found.bytes_up, found.bytes_down)
    assert messages == 2 * len(names) * (5 if signed else 4)


def test_the_paper_counts_a_test_round_of_15x8_as_about_two_secure_aggregations() -> None:
    """Section V.A: "approximately 2x the complexity of secure aggregation with 15 clients"."""
    cost = communication(named_design("bch-15x8"))
    assert cost.paper_ratio == pytest.approx(32 / 15)
    assert cost.secure_sums == 8


def test_one_group_of_everybody_costs_what_it_is_compared_with() -> None:
    cost = communication(named_design("single-group-6"))
    assert (cost.ratio, cost.paper_ratio) == (1.0, 1.0)


def test_a_client_in_more_groups_sends_more_and_a_larger_model_costs_its_entries() -> None:
    small, large = (communication(UNEVEN, tensors=[TensorSpec(name="w", shape=(entries,))]) for entries in (1000, 3000))
    busiest = int(UNEVEN.matrix.sum(axis=0).max())
    width = 4  # bytes of an entry in the 32-bit ring
    assert 0 <= large.client_up - small.client_up - busiest * 2000 * width <= 8  # a header may need one more word
    memberships = int(UNEVEN.matrix.sum())
    assert 0 <= large.bytes_up - small.bytes_up - memberships * 2000 * width <= 8 * UNEVEN.clients
