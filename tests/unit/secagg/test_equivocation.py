"""A known limit, measured: which lies about a client's own vector a rank check can see."""

from collections.abc import Sequence

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.errors import ShapeError
from fedgt.secagg import (
    ClientSession,
    GroupSum,
    RoundPlan,
    ServerSession,
    TensorSpec,
    fit_fixed_point,
    weiszfeld_encoding,
)
from fedgt.secagg.equivocation import redundancy_check, visible_equivocation
from fedgt.secagg.messages import masked_message, read_stage_message
from fedgt.types import FloatArray

SPECS = (TensorSpec(name="w", shape=(3,)),)


def make_plan(*groups: str) -> RoundPlan:
    members = tuple(tuple(group) for group in groups)
    clients = sorted({client for group in members for client in group})
    return RoundPlan(
        run="run",
        colluders=0,
        round=0,
        purpose="test",
        groups=members,
        thresholds=tuple(len(group) // 2 + 1 for group in members),
        weights={client: position + 1 for position, client in enumerate(clients)},
        encoding=fit_fixed_point(clip=8.0, fraction_bits=16, weight_sum=40),
        tensors=SPECS,
    )


def take(plan: RoundPlan, *, lies: Sequence[int] = ()) -> tuple[GroupSum, ...]:
    """Client a adds 1 to its first masked entry in the groups where it lies."""
    clients = {name: ClientSession(name) for name in plan.clients}
    rng = np.random.default_rng(7)
    updates = {name: {"w": rng.normal(size=3)} for name in plan.clients}
    server = ServerSession(plan)
    requests = server.shares({name: clients[name].keys(message) for name, message in server.keys().items()})
    requests = server.masked({name: clients[name].shares(message) for name, message in requests.items()})
    replies = {name: clients[name].masked(message, updates[name]) for name, message in requests.items()}
    honest = read_stage_message(replies["a"], plan=plan, stage="masked", client="a")
    bodies = {part.group: np.frombuffer(part.body, dtype=plan.encoding.dtype) for part in honest.parts}

    def fill(vectors: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.unsignedinteger]]]) -> dict[int, bytes]:
        for group, vector in vectors.items():
            vector[:] = bodies[group]
            vector[0] += 2**16 if group in lies else 0
        return {}

    replies["a"] = masked_message(plan, "a", list(bodies), {}, fill)  # type: ignore[arg-type]
    requests = server.unmask(replies, authorise=lambda members: (None,) * len(members))
    return server.results({name: clients[name].unmask(message) for name, message in requests.items()})


def test_honest_sums_satisfy_every_equation() -> None:
    plan = make_plan("abc", "abd", "abc", "bcd", "abc")
    check = redundancy_check(plan, take(plan))
    assert check.redundant == 2
    assert check.residual <= check.tolerance < 1e-6
    assert not check.equivocation


def test_a_lie_between_two_equal_groups_is_seen_and_a_consistent_lie_is_none() -> None:
    plan = make_plan("abc", "abd", "abc", "bcd")
    assert redundancy_check(plan, take(plan, lies=[0])).equivocation
    assert not redundancy_check(plan, take(plan, lies=[0, 1, 2])).equivocation
    assert not redundancy_check(plan, take(plan, lies=[1])).equivocation  # no equation holds group 1


def test_without_redundant_rows_nothing_is_seen() -> None:
    plan = make_plan("abc", "abd", "bcd")
    check = redundancy_check(plan, take(plan, lies=[0]))
    assert (check.redundant, check.equivocation) == (0, False)


def test_erased_groups_are_not_part_of_an_equation() -> None:
    plan = make_plan("abc", "abc", "bcd")
    sums = take(plan, lies=[0])
    assert redundancy_check(plan, sums).equivocation
    assert redundancy_check(plan, sums[1:]).redundant == 0
    assert redundancy_check(plan, ()).redundant == 0


def test_a_weiszfeld_sum_is_not_compared() -> None:
    encoding = weiszfeld_encoding(update_clip=8.0, smoothing=1e-3, members=3)
    plan = RoundPlan(
        run="run",
        colluders=0,
        round=0,
        purpose="weiszfeld-0",
        groups=(("a", "b"),),
        thresholds=(2,),
        weights={"a": 1, "b": 1},
        encoding=encoding,
        tensors=SPECS,
        task="weiszfeld",
        smoothing=1e-3,
        update_clip=8.0,
    )
    with pytest.raises(ShapeError, match="mean"):
        redundancy_check(plan, ())


def with_everybody(matrix: FloatArray) -> FloatArray:
    return np.vstack([matrix, np.ones(matrix.shape[1])])


@pytest.mark.parametrize(
    ("name", "ways", "with_sum", "twice"),
    [
        ("bch-15x8", 17, 32, (32, 49)),
        ("cyclic-30x12", 42, 72, (72, 114)),
        ("hamming-15x4", 17, 32, (32, 49)),
        ("bch-31x10", 89, 120, (120, 209)),
    ],
)
def test_the_check_sees_nothing_on_the_named_designs(
    name: str, ways: int, with_sum: int, twice: tuple[int, int]
) -> None:
    """Their rows are independent, also with the sum over everybody. Taking each test twice shows some of it."""
    matrix = np.asarray(named_design(name).matrix, dtype=np.float64)
    assert visible_equivocation(matrix) == (0, ways)
    assert visible_equivocation(with_everybody(matrix)) == (0, with_sum)
    assert visible_equivocation(np.vstack([matrix, matrix])) == twice


def test_counting_visible_lies_agrees_with_trying_them() -> None:
    """The slow form: for each client and each direction of lying, does any equation move?"""
    rng = np.random.default_rng(3)
    for _ in range(20):
        matrix = (rng.random((7, 5)) < 0.5) * rng.integers(1, 4, size=(7, 5)).astype(np.float64)
        matrix[6] = matrix[0] + matrix[1]
        basis = np.linalg.svd(matrix)[0][:, np.linalg.matrix_rank(matrix) :]
        seen = 0
        for client in range(5):
            groups = np.flatnonzero(matrix[:, client])
            lies = np.eye(7)[groups]
            seen += int(np.linalg.matrix_rank(lies @ basis)) if groups.size else 0
        assert visible_equivocation(matrix)[0] == seen
