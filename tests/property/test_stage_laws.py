"""Laws of sums in stages: they are those of all groups at once, a liar has one vector in all of them, and nothing leaks."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt.secagg import FixedPoint
from fedgt.secagg.policy import ANONYMOUS
from stage_lab import GROUPS, NAMES, Bench, exact, state

ROWS = st.lists(
    st.sets(st.sampled_from(NAMES), min_size=2).map(lambda row: "".join(sorted(row))), min_size=1, max_size=4
)
FIRST = st.sets(st.sampled_from(NAMES), min_size=2, max_size=4).map(
    lambda part: ["".join(sorted(part)), "".join(sorted({*NAMES} - part))]
)
ENCODINGS = st.sampled_from(
    [
        FixedPoint(clip=8.0, fraction_bits=16, ring_bits=32),
        FixedPoint(clip=8.0, fraction_bits=16, ring_bits=64),
        FixedPoint(clip=8.0, fraction_bits=45, ring_bits=64),
    ]
)


@given(first=FIRST, rows=ROWS, cut=st.integers(1, 3), encoding=ENCODINGS)
def test_sums_in_stages_are_those_of_all_groups_at_once_to_the_last_bit(
    first: list[str], rows: list[str], cut: int, encoding: FixedPoint
) -> None:
    groups, later = [*first, *rows], len(rows)
    stages = (len(first), later) if cut >= later else (len(first), cut, later - cut)
    staged = Bench(None, policy=ANONYMOUS).take(*groups, stages=stages, encoding=encoding)
    at_once = Bench(None, policy=ANONYMOUS).take(*groups, stages=(), encoding=encoding)
    assert state(staged) == state(at_once) == "o" * len(groups)
    for one, other in zip(staged.sums, at_once.sums, strict=True):
        assert one.total is not None
        assert other.total is not None
        assert one.total["w"].tobytes() == other.total["w"].tobytes()
        assert (one.members, one.weight, one.clipped) == (other.members, other.weight, other.clipped)


VECTOR = st.sampled_from([[0, 0, 0], [2**15, 0, -7], [9, 0, 0]])


@given(
    vectors=st.dictionaries(st.integers(0, 5), VECTOR),
    about=st.dictionaries(st.integers(0, 2), st.one_of(st.none(), VECTOR)),
)
def test_in_all_sums_that_count_in_the_end_a_liar_has_one_vector(
    vectors: dict[int, Any], about: dict[int, Any]
) -> None:
    groups = (*GROUPS, "acef", "bcde")
    bench = Bench(None, policy=ANONYMOUS, liars={"a": {"vectors": vectors, "about": about}})
    taken = bench.take(*groups, stages=(2, 2, 2))
    sent = {
        tuple(vectors.get(one.group, [0, 0, 0])) for one in taken.sums if "a" in one.members and one.total is not None
    }
    assert len(sent) <= 1
    assert all("a" in fault.suspects for fault in taken.faults)


@given(
    lost=st.dictionaries(
        st.sampled_from(NAMES), st.tuples(st.integers(0, 1), st.sampled_from(["shares", "masked", "unmask", "further"]))
    )
)
def test_whoever_leaves_when_it_likes_what_is_open_is_exact_and_was_seen_twice(
    lost: dict[str, tuple[int, str]],
) -> None:
    order = {"further": 0, "shares": 1, "masked": 2, "unmask": 3}

    def gone(stage: int, message: str, client: str) -> bool:
        at = lost.get(client)
        return (
            at is not None
            and (stage, order.get(message, 0)) >= (at[0], order[at[1]])
            and (stage, message) != (0, "keys")
        )

    bench = Bench(None, policy=ANONYMOUS)
    taken = bench.take(lost=gone)
    assert exact(taken, bench)
    later = {client for one in taken.sums[2:] if one.total is not None for client in one.members}
    for one in taken.sums[:2]:
        assert one.total is None or set(one.members) <= later
    assert not taken.faults


# What the answers tell --------------------------------------------------------------------------------------------------

TINY = 3
"""In the field of three numbers every pad can be tried."""
CLIENTS = range(3)
FIRST_ROWS, LATER_ROWS = ((1, 1, 1),), ((1, 1, 0),)


def view(
    vectors: Sequence[int], questions: Sequence[Sequence[int]], *, answered: Sequence[Sequence[int]], stages: int
) -> Counter[tuple[int, ...]]:
    """What a server sees beside the sums, over all pads: the pads of both lanes in the first sums, and so on.

    Args:
        vectors: Of the clients, one entry each.
        questions: Stage -> client -> what it is asked; the same for all, if nobody cheats.
        answered: Stage -> who answers.
        stages: How many of the two are opened.
    """
    seen: Counter[tuple[int, ...]] = Counter()
    for pads in itertools.product(range(TINY), repeat=2 * len(CLIENTS)):
        lanes = pads[:3], pads[3:]
        told = [sum(a * r for a, r in zip(row, lane, strict=True)) % TINY for row in FIRST_ROWS for lane in lanes]
        told += [(questions[0][i] * vectors[i] + lanes[0][i]) % TINY for i in answered[0]]
        if stages == 2:
            told += [sum(a * r for a, r in zip(row, lanes[1], strict=True)) % TINY for row in LATER_ROWS]
            told += [(questions[1][i] * vectors[i] + lanes[1][i]) % TINY for i in answered[1]]
        seen[tuple(told)] += 1
    return seen


def alike(stages: int, questions: Sequence[Sequence[int]], answered: Sequence[Sequence[int]]) -> bool:
    """Whether vectors with the same opened sums have the same view."""
    rows = FIRST_ROWS + (LATER_ROWS if stages == 2 else ())
    views: dict[tuple[int, ...], list[Counter[tuple[int, ...]]]] = {}
    for vectors in itertools.product(range(TINY), repeat=len(CLIENTS)):
        known = tuple(sum(a * x for a, x in zip(row, vectors, strict=True)) % TINY for row in rows)
        views.setdefault(known, []).append(view(vectors, questions, answered=answered, stages=stages))
    assert any(len(some) > 1 for some in views.values())
    return all(one == some[0] for some in views.values() for one in some)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("answered", [((0, 1, 2), (0, 1, 2)), ((0, 1), (0, 2)), ((), (1,))])
@pytest.mark.parametrize("asked", [(1, 1), (1, 2), (2, 1)])
def test_vectors_with_the_same_opened_sums_of_all_stages_cannot_be_told_apart(
    stages: int, answered: Sequence[Sequence[int]], asked: tuple[int, int]
) -> None:
    """The proof of docs/secure-aggregation.md by exhaustion, also where a later stage never comes."""
    assert alike(stages, [[one] * 3 for one in asked], answered)


def test_another_question_for_one_client_in_the_second_stage_would_tell_them_apart() -> None:
    """The law above can fail: the first sums and answers are open by then, so one entry could be read."""
    assert not alike(2, [[1, 1, 1], [2, 1, 1]], ((0, 1, 2), (0, 1, 2)))
