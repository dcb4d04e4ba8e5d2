"""One random question about each client's vector, the same for all clients, and the answers (decision 0021).

The server draws a seed and puts its hash into the plan. When all vectors have arrived it shows the seed. Each client then
answers z = <c, x> + r: c is expanded from the seed, x is the vector of whole numbers that it has masked in all its groups,
and r is the pad that it has masked beside it. The hash is in the plan's digest, and so in every key: a client that was
asked another question than the others answers it to nobody.

Each stage of a plan has a question and a pad of its own. A group carries the pads of its stage and of all later ones, so
that each question can be about every sum that is open by then (decision 0026).
"""

import hashlib
import hmac
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedgt.errors import ProtocolError
from fedgt.secagg.field import Field, field_for
from fedgt.secagg.fixed_point import RingArray
from fedgt.secagg.masks import derive, keystream
from fedgt.secagg.plan import RoundPlan
from fedgt.types import FloatArray, IntArray

SEED_BYTES = 16

BLOCK = 2**13
"""Entries: products of 16 and 24 bits, added up over so many, are exact in float64."""

_HALF_BITS = 24
_HALF = 2**_HALF_BITS - 1


def draw_seed() -> bytes:
    """A fresh seed, from the operating system. Used for one plan, shown when its vectors have arrived."""
    return os.urandom(SEED_BYTES)


def seed_hash(seed: bytes | memoryview) -> str:
    """What the plan holds of a seed: SHA-256, 64 hexadecimal digits."""
    return hashlib.sha256(b"fedgt challenge" + bytes(seed)).hexdigest()


def require_seed(plan: RoundPlan, seed: bytes | memoryview, stage: int = 0) -> None:
    """Check that a seed is the one whose hash everybody's plan holds for a stage.

    Raises:
        ProtocolError: If it is another one, or the plan has none.
    """
    expected = plan.challenges[stage] if plan.challenges else ""
    if len(seed) != SEED_BYTES or not hmac.compare_digest(seed_hash(seed), expected):
        raise ProtocolError("the challenge is not the one that the plan holds the hash of")


def split_seed(plan: RoundPlan, attached: bytes | memoryview) -> tuple[memoryview, memoryview]:
    """What a request has attached: the seed if the plan has a challenge, then the rest."""
    length = SEED_BYTES if plan.challenges else 0
    view = memoryview(attached)
    return view[:length], view[length:]


def field_of(plan: RoundPlan) -> Field | None:
    """The field of a plan's challenge; None if it has none."""
    return field_for(plan.reach) if plan.challenges else None


def pad_bytes(plan: RoundPlan, group: int) -> int:
    """How many bytes beside every masked vector of a group are its masked pads."""
    chosen = field_of(plan)
    return 0 if chosen is None else chosen.size * len(lanes(plan, group))


def lanes(plan: RoundPlan, group: int) -> range:
    """The stages whose pads a group carries: its own, and all later ones."""
    return range(plan.stage_of(group), len(plan.stages))


@dataclass(slots=True)
class Committed:
    """What a client has masked in all its groups, kept until it has answered the question of the last stage.

    Attributes:
        vector: int32 or int64[plan.length], the plain vector.
        pads: Stage -> the plain pad, of the stages whose question is not answered yet.
    """

    vector: IntArray = field(repr=False)
    pads: dict[int, int] = field(repr=False)

    @classmethod
    def empty(cls, plan: RoundPlan) -> "Committed":
        """Fresh pads, and a vector that is still to be filled in."""
        chosen = field_for(plan.reach)
        return cls(
            np.empty(plan.length, dtype=narrowest(plan)), {stage: chosen.draw() for stage in range(len(plan.stages))}
        )

    def answer(self, plan: RoundPlan, seed: bytes | memoryview, stage: int = 0) -> bytes:
        """Z = <c, x> + r, with the question and the pad of a stage.

        Raises:
            ProtocolError: If the seed is not the plan's, or an answer was given already.
        """
        if stage not in self.pads:
            raise ProtocolError("the challenge was answered already: each pad answers one")
        require_seed(plan, seed, stage)
        chosen = field_for(plan.reach)
        (product,) = products(plan, seed, [self.vector])
        number = chosen.to_bytes(product + self.pads.pop(stage))
        if not self.pads:
            self.forget()
        return number

    def chunks(self, plan: RoundPlan, step: int) -> Iterator[tuple[int, RingArray]]:
        """The same vector once more, for a later stage: where a piece starts, and ring[piece]."""
        ring = plan.encoding.dtype
        for start in range(0, self.vector.size, step):
            yield start, self.vector[start : start + step].astype(f"<i{ring.itemsize}").view(ring)

    def forget(self) -> None:
        """Overwrite what Python lets us overwrite."""
        self.vector[:] = 0
        self.vector, self.pads = np.empty(0, dtype=self.vector.dtype), {}


def narrowest(plan: RoundPlan) -> np.dtype[np.signedinteger[Any]]:
    """Whole numbers in which a vector of a plan fits: half the memory for most."""
    return np.dtype("<i4" if plan.reach < 2**31 else "<i8")


def products(plan: RoundPlan, seed: bytes | memoryview, vectors: Sequence[IntArray]) -> tuple[int, ...]:
    """<c, v> of each vector, modulo the prime of the plan.

    Entry j of block i has the coefficient c = a_i b_j. All b_j are below 2^48 and all a_i below the prime, drawn from one
    keystream of AES-256 in counter mode. Two vectors that differ have one product with a probability of at most 2^-47: the
    b_j must miss a block in which they differ, or the a_i its value (Schwartz 1980, lemma 1).

    Vectors are cut into limbs of 16 bits, so that a block is one matrix product, which is exact in float64.

    Args:
        plan: The plan.
        seed: Its seed.
        vectors: int32 or int64[plan.length] each, little-endian, no entry larger than `plan.reach`.
    """
    chosen = field_for(plan.reach)
    stream = keystream(derive(bytes(seed), f"challenge {plan.digest}".encode()))
    halves = np.frombuffer(stream.update(bytes(8 * BLOCK)), dtype="<u4").reshape(2, BLOCK)
    within = (halves & _HALF).astype(np.float64)
    totals, narrow = [0] * len(vectors), narrowest(plan)
    limbs = np.empty((plan.reach.bit_length() // 16 + 1, BLOCK))
    for start in range(0, plan.length, BLOCK):
        count = min(BLOCK, plan.length - start)
        between = chosen.uniform(stream.update(bytes(32)))
        for number, vector in enumerate(vectors):
            _cut(vector[start : start + count].astype(narrow, copy=False), limbs[:, :count])
            totals[number] += between * _number(limbs[:, :count] @ within[:, :count].T)
    return tuple(total % chosen.prime for total in totals)


def _cut(piece: IntArray, limbs: FloatArray) -> None:
    """Write the limbs of whole numbers, the lowest first; the highest has the sign."""
    for number, limb in enumerate(limbs[:-1]):
        limb[:] = (piece >> 16 * number) & 0xFFFF
    limbs[-1] = piece >> 16 * (len(limbs) - 1)


def _number(product: FloatArray) -> int:
    """The whole number whose limbs were multiplied with both halves of the coefficients."""
    rows = product.tolist()
    return sum((int(low) + (int(high) << _HALF_BITS)) << 16 * limb for limb, (low, high) in enumerate(rows))
