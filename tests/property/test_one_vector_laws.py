"""Laws of the check that every client sends one vector, each against slow arithmetic with Python's integers."""

import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.design import (
    AnyDesign,
    Design,
    design_of_rows,
    named_design,
    named_designs,
    searched_design,
    searched_designs,
)
from fedgt.errors import ProtocolError
from fedgt.secagg import FixedPoint, RoundPlan, TensorSpec
from fedgt.secagg.challenge import BLOCK, field_of, products, seed_hash
from fedgt.secagg.consistency import Equation, misfits
from fedgt.secagg.field import LARGE, SMALL, Field, field_for
from fedgt.secagg.masks import derive
from secagg_lab import make_plan

DESIGNS = tuple(name.replace("-N", "-15") for name in named_designs())
DEFAULTS = ("graded-15x10-b", "bch-15x8")


def plan_of(entries: int, *, ring_bits: int, fraction_bits: int, seed: bytes) -> RoundPlan:
    return make_plan(
        "abcd",
        "abc",
        encoding=FixedPoint(clip=8.0, fraction_bits=fraction_bits, ring_bits=ring_bits),
        tensors=(TensorSpec(name="w", shape=(entries,)),),
        challenges=(seed_hash(seed),),
    )


# Arithmetic -------------------------------------------------------------------------------------------------------------


def slow_product(plan: RoundPlan, seed: bytes, vector: Sequence[int]) -> int:
    """The definition, number by number: 48 bits for each place in a block, then 256 bits for each block."""
    field = field_of(plan)
    assert field is not None
    key = derive(seed, f"challenge {plan.digest}".encode())
    stream = Cipher(algorithms.AES256(key), modes.CTR((2).to_bytes(16, "big"))).encryptor()
    halves = stream.update(bytes(8 * BLOCK))
    half = [int.from_bytes(halves[4 * i : 4 * i + 3], "little") for i in range(2 * BLOCK)]
    within = [half[i] + 2**24 * half[BLOCK + i] for i in range(BLOCK)]
    between = [int.from_bytes(stream.update(bytes(32)), "big") for _ in range(0, plan.length, BLOCK)]
    return sum(between[j // BLOCK] * within[j % BLOCK] * value for j, value in enumerate(vector)) % field.prime


@pytest.mark.parametrize(("ring_bits", "fraction_bits", "bits"), [(32, 16, 61), (64, 16, 61), (64, 45, 127)])
@pytest.mark.parametrize("entries", [1, 2, BLOCK - 2, BLOCK - 1, BLOCK, 2 * BLOCK + 5])
def test_the_fast_product_is_the_slow_one(ring_bits: int, fraction_bits: int, bits: int, entries: int) -> None:
    """Random entries over all that a sum can reach, and its ends."""
    seed = bytes([entries % 251]) * 16
    plan = plan_of(entries, ring_bits=ring_bits, fraction_bits=fraction_bits, seed=seed)
    field = field_of(plan)
    assert field is not None
    assert field.bits == bits
    rng = np.random.default_rng([entries, ring_bits])
    some = rng.integers(-plan.reach, plan.reach, size=plan.length, endpoint=True)
    ends = np.resize(np.array([plan.reach, -plan.reach, -1, 0, 1]), plan.length)
    vectors = [some, ends, *([ends.astype(np.int32)] if plan.reach < 2**31 else [])]
    assert products(plan, seed, vectors) == tuple(slow_product(plan, seed, vector.tolist()) for vector in vectors)


def test_another_plan_or_seed_asks_another_question() -> None:
    """Also with the same seed: no two plans share a question."""
    seed, other = bytes(16), bytes(15) + b"\1"
    plan = plan_of(3, ring_bits=32, fraction_bits=16, seed=seed)
    vector = np.arange(1, 5)
    again = make_plan(*("abcd", "abc"), round=9, challenges=(seed_hash(seed),))
    asked = {products(plan, seed, [vector]), products(again, seed, [vector]), products(plan, other, [vector])}
    assert len(asked) == 3


@pytest.mark.parametrize("reach", [1, 2**31, 2**43 - 1, 2**43, 2**62, 2**63 - 1])
def test_the_prime_is_larger_than_combinations_of_sums_can_reach(reach: int) -> None:
    field = field_for(reach)
    assert field.prime > 4 * 2**16 * reach
    assert field == (SMALL if reach < 2**43 else LARGE)


def test_both_moduli_are_prime_and_numbers_have_one_form() -> None:
    from sympy import isprime

    for field in (SMALL, LARGE):
        assert isprime(field.prime)
        for number in (0, 1, field.prime - 1):
            assert field.from_bytes(field.to_bytes(number)) == number
        assert field.to_bytes(field.prime) == bytes(field.size)
        for wrong in (field.prime.to_bytes(field.size, "big"), bytes(field.size - 1), bytes(field.size + 1), b""):
            with pytest.raises(ProtocolError, match="no number"):
                field.from_bytes(wrong)
        assert all(0 <= field.draw() < field.prime for _ in range(100))


# Which groups do not fit ------------------------------------------------------------------------------------------------


def rank(rows: Sequence[Sequence[int]], prime: int) -> int:
    left, found = [[value % prime for value in row] for row in rows], 0
    for column in range(len(left[0]) if left else 0):
        pivot = next((row for row in range(found, len(left)) if left[row][column]), None)
        if pivot is None:
            continue
        left[found], left[pivot] = left[pivot], left[found]
        scale = pow(left[found][column], -1, prime)
        for row in range(found + 1, len(left)):
            factor = left[row][column] * scale % prime
            left[row] = [(a - factor * b) % prime for a, b in zip(left[row], left[found], strict=True)]
        found += 1
    return found


def solvable(field: Field, equations: Sequence[Equation], answers: Mapping[str, int]) -> bool:
    """Rouche and Capelli: the right-hand side adds nothing to the rank."""
    silent = sorted({client for one in equations for client in one.coefficients} - set(answers))
    left = [[one.coefficients.get(client, 0) for client in silent] for one in equations]
    right = [one.value - sum(a * answers.get(client, 0) for client, a in one.coefficients.items()) for one in equations]
    wide = [[*row, value] for row, value in zip(left, right, strict=True)]
    return rank(wide, field.prime) == rank(left, field.prime)


@given(data=st.data())
@settings(max_examples=5 * settings().max_examples, deadline=None)
def test_the_groups_at_fault_are_those_of_the_smallest_contradictions(data: st.DataObject) -> None:
    """Against a look at every set of groups. Coefficients other than one, too."""
    field = data.draw(st.sampled_from([SMALL, LARGE]))
    clients = [f"c{number}" for number in range(data.draw(st.integers(1, 6)))]
    z = {client: data.draw(st.integers(0, field.prime - 1)) for client in clients}
    silent = data.draw(st.sets(st.sampled_from(clients)))
    equations = {}
    for group in range(data.draw(st.integers(0, 7))):
        members = data.draw(st.lists(st.sampled_from(clients), min_size=1, unique=True))
        coefficients = {client: data.draw(st.sampled_from([1, 1, 1, 2, 3])) for client in members}
        lie = data.draw(st.sampled_from([0, 0, 0, 1, 2, field.prime - 1]))
        value = sum(a * z[client] for client, a in coefficients.items()) + lie
        equations[group] = Equation(coefficients=coefficients, value=value)
    answers = {client: z[client] for client in clients if client not in silent}
    smallest: list[tuple[int, ...]] = []
    for size in range(1, len(equations) + 1):
        for some in itertools.combinations(equations, size):
            if not any(set(one) <= set(some) for one in smallest):
                smallest += [] if solvable(field, [equations[group] for group in some], answers) else [some]
    found = misfits(field, equations, answers)
    assert {group for one in found for group in one} == {group for one in smallest for group in one}
    assert sum(map(len, found)) == len({group for one in found for group in one}), "no group twice"
    assert all(any(set(one) <= set(some) for some in found) for one in smallest), "no contradiction is torn apart"


# Every way to send two vectors ------------------------------------------------------------------------------------------


def trial(
    design: AnyDesign, rng: random.Random, *, coalition: int, answer: str, silent: int = 0, erased: int = 0
) -> bool:
    """A coalition sends what it likes; the check finds it exactly if no vectors of the coalition explain its sums.

    The honest clients' part is right by itself and drops out of every equation, so only what is added to it is looked at.
    Everything is chosen before the question is known, but the answers. Returns whether there was something to find.
    """
    field, groups = SMALL, list(range(design.groups))
    rng.shuffle(groups)
    opened = sorted(groups[erased:])
    clients = rng.sample(range(design.clients), coalition + silent)
    liars, quiet = clients[:coalition], clients[coalition:]
    added, pads = {}, {}
    vectors = {liar: [[rng.randrange(-9, 10) for _ in range(3)] for _ in range(2)] for liar in liars}
    for group in opened:
        here = [liar for liar in liars if design.matrix[group, liar]]
        parts = [[int(design.matrix[group, liar]) * one for one in vectors[liar][rng.randrange(2)]] for liar in here]
        added[group] = [sum(column) for column in zip(*parts, strict=True)] or [0, 0, 0]
        pads[group] = rng.choice([0, 0, rng.randrange(field.prime)]) if here else 0
    question = [rng.randrange(field.prime) for _ in range(3)]
    values = {group: sum(a * b for a, b in zip(question, added[group], strict=True)) + pads[group] for group in opened}
    honest = {f"{j}": rng.randrange(field.prime) for j in range(design.clients) if j not in liars}
    answers = {name: z for name, z in honest.items() if int(name) not in quiet}
    for liar in liars:
        mine = [group for group in opened if design.matrix[group, liar]]
        if answer == "one of its groups" and mine:
            group = rng.choice(mine)
            answers[f"{liar}"] = values[group] * pow(int(design.matrix[group, liar]), -1, field.prime)
        elif answer == "anything":
            answers[f"{liar}"] = rng.randrange(field.prime)
    equations = {}
    for group in opened:
        members = {f"{j}": int(design.matrix[group, j]) for j in range(design.clients) if design.matrix[group, j]}
        equations[group] = Equation(
            coefficients=members, value=values[group] + sum(a * honest.get(name, 0) for name, a in members.items())
        )
    found = misfits(field, equations, answers)
    # What explains the sums: a vector and a pad for each liar, and for each honest client that fell silent.
    unknown = [*liars, *quiet]
    left = [[int(design.matrix[group, j]) for j in unknown] for group in opened]
    wide = [[*row, *added[group], pads[group]] for row, group in zip(left, opened, strict=True)]
    lied = rank(wide, field.prime) > rank(left, field.prime)
    if lied:
        assert found, f"{design.name}: liars {liars}, silent {quiet}, added {added}, answers {answer}"
    for one in found:
        assert any(design.matrix[group, liar] for group in one for liar in liars), "a contradiction has a liar in it"
    return lied


def trials(design: AnyDesign, count: int, seed: int) -> None:
    """So many lies that no vectors explain; where everybody is in one group nothing can be seen, and nothing may fail."""
    rng = random.Random(seed)
    lies, number = 0, 0
    partition = bool((design.matrix.sum(axis=0) <= 1).all())
    while (number if partition else lies) < count:
        lies += trial(
            design,
            rng,
            coalition=1 + number % 3 if design.clients > 4 else 1,
            answer=("one of its groups", "anything", "nothing")[number // 3 % 3],
            silent=number // 9 % 3 if design.clients > 5 else 0,
            erased=number // 27 % 3 if design.groups > 3 else 0,
        )
        number += 1
    assert number < 20 * count


@pytest.mark.parametrize("name", DESIGNS)
def test_every_way_to_send_two_vectors_is_found_on_every_named_design(name: str) -> None:
    trials(named_design(name), 100, 1)


@pytest.mark.parametrize("name", [name for name in searched_designs() if "-c" in name])
def test_every_way_to_send_two_vectors_is_found_with_coefficients(name: str) -> None:
    """A row more, the sum over everybody, so that the equations depend on each other."""
    design = searched_design(name).design
    rows = np.vstack([design.matrix, np.ones(design.clients, dtype=np.int64)])
    trials(design_of_rows(rows, coefficients=True, name=name), 100, 5)


@pytest.mark.slow
@pytest.mark.parametrize("name", DESIGNS)
def test_every_way_to_send_two_vectors_is_found_in_10000_trials(name: str) -> None:
    trials(named_design(name), 10_000, 2)


def honest_rounds(design: Design, count: int, seed: int) -> None:
    """Real products of real ring vectors, with answers that are missing, members that dropped and sums that were erased."""
    rng = np.random.default_rng(seed)
    question = bytes(16)
    names = [f"c{j:03d}" for j in range(design.clients)]
    groups = tuple(tuple(names[j] for j in design.members(i)) for i in range(design.groups))
    plan = make_plan(
        groups=groups,
        thresholds=tuple(len(group) for group in groups),
        weights={name: 1 + j for j, name in enumerate(names)},
        encoding=FixedPoint(clip=8.0, fraction_bits=16, ring_bits=64),
        challenges=(seed_hash(question),),
    )
    field = field_of(plan)
    assert field is not None
    vectors = rng.integers(-(2**19), 2**19, size=(count, design.clients, plan.length))
    answers = np.array(products(plan, question, list(vectors.reshape(-1, plan.length))), dtype=object).reshape(
        count, design.clients
    )
    for number in range(count):
        pads = [field.draw() for _ in names]
        there = design.matrix * (rng.random(design.matrix.shape) > 0.1)
        opened = [i for i in range(design.groups) if there[i].any() and rng.random() > 0.1]
        totals = [there[i] @ vectors[number] for i in opened]
        values = products(plan, question, totals) if opened else ()
        equations = {
            i: Equation(
                coefficients={name: 1 for j, name in enumerate(names) if there[i, j]},
                value=value + sum(pads[j] for j in np.flatnonzero(there[i])),
            )
            for i, value in zip(opened, values, strict=True)
        }
        said = {name: int(answers[number, j]) + pads[j] for j, name in enumerate(names) if rng.random() > 0.1}
        assert misfits(field, equations, said) == ()


@pytest.mark.parametrize("name", DEFAULTS)
def test_no_honest_round_fails(name: str) -> None:
    honest_rounds(named_design(name), 100, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFAULTS)
def test_no_honest_round_fails_in_10000(name: str) -> None:
    honest_rounds(named_design(name), 10_000, 4)


# What the answers tell --------------------------------------------------------------------------------------------------

TINY = 3
"""In the field of three numbers every pad can be tried."""


def views(
    rows: Sequence[Sequence[int]], vectors: Sequence[int], question: int, *, answered: Sequence[int], bad: Sequence[int]
) -> Counter[tuple[int, ...]]:
    """Everything that the server and its colluders see beside the opened sums, over all pads of the honest clients."""
    seen: Counter[tuple[int, ...]] = Counter()
    clients = range(len(vectors))
    honest = [i for i in clients if i not in bad]
    for drawn in itertools.product(range(TINY), repeat=len(honest)):
        pads = dict.fromkeys(bad, 1) | dict(zip(honest, drawn, strict=True))
        z = [(question * vectors[i] + pads[i]) % TINY for i in answered]
        opened = [sum(a * pads[i] for i, a in enumerate(row)) % TINY for row in rows]
        seen[(*z, *opened)] += 1
    return seen


@pytest.mark.parametrize("question", [1, 2])
@pytest.mark.parametrize("bad", [(), (0,), (0, 3)])
@pytest.mark.parametrize("answered", [(0, 1, 2, 3), (0, 1, 3), (0, 2), ()])
@pytest.mark.parametrize(
    "rows",
    [
        ((1, 1, 1, 1),),
        ((1, 1, 1, 0), (0, 1, 1, 1)),
        ((1, 1, 1, 0), (1, 1, 1, 1)),
        ((1, 1, 0, 0), (0, 1, 1, 0), (1, 0, 1, 1)),
    ],
)
def test_vectors_with_the_same_opened_sums_cannot_be_told_apart(
    rows: Sequence[Sequence[int]], answered: Sequence[int], bad: Sequence[int], question: int
) -> None:
    """The proof of docs/secure-aggregation.md by exhaustion: answers and pads have one distribution for all such vectors.

    Groups that are not in `rows` were withheld or lost; who is not in `answered` dropped after its vector.
    """
    alike: dict[tuple[int, ...], list[Counter[tuple[int, ...]]]] = {}
    for vectors in itertools.product(range(TINY), repeat=4):
        known = (
            *(sum(a * x for a, x in zip(row, vectors, strict=True)) % TINY for row in rows),
            *(vectors[i] for i in bad),
        )
        alike.setdefault(known, []).append(views(rows, vectors, question, answered=answered, bad=bad))
    assert any(len(some) > 1 for some in alike.values()) or len(bad) + len(rows) >= 4
    for some in alike.values():
        assert all(one == some[0] for one in some)


def test_one_pad_for_two_questions_would_tell_vectors_apart() -> None:
    """The test above can fail: with another question for one client the same vectors have different views."""

    def told(vectors: Sequence[int]) -> Counter[tuple[int, ...]]:
        seen: Counter[tuple[int, ...]] = Counter()
        for pads in itertools.product(range(TINY), repeat=2):
            z = [(question * x + r) % TINY for question, x, r in zip((2, 1), vectors, pads, strict=True)]
            seen[(*z, sum(pads) % TINY)] += 1
        return seen

    assert told((0, 1)) != told((1, 0))
