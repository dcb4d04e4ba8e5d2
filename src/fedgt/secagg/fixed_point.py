"""Fixed point: real updates <-> integers of the ring Z_2^32 or Z_2^64.

An entry v becomes rint(clip(v) * 2^fraction_bits) * weight, a signed integer in two's complement, so that sums of
encodings are encodings of sums. Rounding is deterministic (to nearest, ties to even).

Error bound, tested: |decode(sum of encodings) - sum of weight * clip(v)| <= step / 2 * (sum of weights), with
step = 2^-fraction_bits. Above 2^53 the conversion of the sum to float64 adds at most 2^-53 of its magnitude.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fedgt.errors import ModulusOverflowError, ShapeError, SpecError
from fedgt.types import FloatArray

RingArray: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""uint32 or uint64, little-endian."""

RING_BITS = (32, 64)
_LARGEST_ENTRY = 2**52  # above it float64 can no longer round every entry to the nearest step
_COARSE_LEVELS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPoint:
    """How a real number becomes a ring element.

    Attributes:
        clip: Entries of the update are clipped to [-clip, clip] (and counted); in the unit of the update.
        fraction_bits: The step is 2^-fraction_bits.
        ring_bits: 32 or 64: sums are taken modulo 2^ring_bits.

    Raises:
        SpecError: If the clip is not a positive finite number, the ring is neither 32 nor 64 bits wide, or the entries
            would have no level or more levels than float64 can tell apart.
        ModulusOverflowError: If a single entry does not fit into the ring.

    Examples:
        >>> import numpy as np
        >>> from fedgt.secagg import FixedPoint
        >>> encoding = FixedPoint(clip=8.0, fraction_bits=24, ring_bits=32)
        >>> encoding.ring_bits
        32
    """

    clip: float
    fraction_bits: int
    ring_bits: int

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise SpecError(f"clip is {self.clip}; a finite number above 0 is needed: the largest |entry| of an update")
        if self.ring_bits not in RING_BITS:
            raise SpecError(f"ring_bits is {self.ring_bits}; 32 or 64 is needed")
        if type(self.fraction_bits) is not int or not 0 <= self.fraction_bits <= 52:
            raise SpecError(f"fraction_bits is {self.fraction_bits}; an integer from 0 to 52 is needed")
        if not 1 <= self.clip * 2.0**self.fraction_bits <= _LARGEST_ENTRY:
            raise SpecError(
                f"clip {self.clip} with {self.fraction_bits} fraction bits is {self.clip * 2.0**self.fraction_bits:g} "
                f"steps of {self.step:g}; between 1 and 2^52 are needed: change the clip or fraction_bits"
            )
        self.require_room(1)

    @property
    def step(self) -> float:
        """The distance of two neighbouring levels, in the unit of the update."""
        return 2.0**-self.fraction_bits

    @property
    def largest(self) -> int:
        """The largest integer that one entry of weight 1 can become."""
        return round(self.clip * 2.0**self.fraction_bits)

    @property
    def levels(self) -> int:
        """How many different values one entry can take."""
        return 2 * self.largest + 1

    @property
    def capacity(self) -> int:
        """The largest magnitude that a sum may have without wrapping around: 2^(ring_bits - 1) - 1."""
        return int(2 ** (self.ring_bits - 1)) - 1

    @property
    def warning(self) -> str | None:
        """What to tell the user about a coarse resolution; None if there are at least 1024 levels."""
        if self.levels >= _COARSE_LEVELS:
            return None
        return (
            f"coarse fixed point: {self.levels} levels from -{self.clip:g} to {self.clip:g}, a step of {self.step:g}; "
            f"smaller changes of an entry are lost, raise fraction_bits (now {self.fraction_bits})"
        )

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """Little-endian uint32 or uint64, on every machine."""
        return np.dtype("<u4") if self.ring_bits == 32 else np.dtype("<u8")

    def require_room(self, weight_sum: int) -> None:
        """Check that the worst-case sum of entries with this sum of weights does not wrap around.

        Raises:
            ModulusOverflowError: With the arithmetic, if it does not fit.
        """
        worst = weight_sum * self.largest
        if worst > self.capacity:
            raise ModulusOverflowError(
                f"sum of weights {weight_sum} x largest entry {self.largest} (clip {self.clip:g} x "
                f"2^{self.fraction_bits}) = {worst}, above 2^{self.ring_bits - 1} - 1 = {self.capacity} of the "
                f"{self.ring_bits}-bit ring: take 64 bits, fewer fraction bits, a smaller clip or smaller weights"
            )

    def encode(self, values: npt.ArrayLike, weight: int = 1) -> tuple[RingArray, int]:
        """Clip, round and weight.

        Args:
            values: float[...], finite.
            weight: A public integer weight, at least 1.

        Returns:
            The ring integers, of `dtype` and the shape of the values, and the number of clipped entries.

        Raises:
            ShapeError: If a value is not finite.
            ModulusOverflowError: If the weight alone makes an entry wrap around.
        """
        array = np.array(values, dtype=np.float64)
        levels = np.empty(array.shape, dtype=self.dtype)
        return levels, self.encode_in_place(array, levels, weight)

    def encode_in_place(self, values: FloatArray, levels: RingArray, weight: int = 1) -> int:
        """As `encode`, for values whose memory may be used up.

        Args:
            values: float64[...]; overwritten.
            levels: Ring integers of `dtype` and the same shape; written.
            weight: A public integer weight, at least 1.

        Returns:
            The number of clipped entries.

        Raises:
            ShapeError: If a value is not finite.
            ModulusOverflowError: If the weight alone makes an entry wrap around.
        """
        self.require_room(weight)
        clipped = 0
        if values.size and not (values.max() <= self.clip and values.min() >= -self.clip):  # both are NaN if a value is
            if wrong := int(np.count_nonzero(~np.isfinite(values))):
                raise ShapeError(f"{wrong} values are not finite: they have no fixed-point form")
            clipped = int(np.count_nonzero(np.abs(values) > self.clip))
            np.clip(values, -self.clip, self.clip, out=values)
        np.multiply(values, 2.0**self.fraction_bits, out=values)
        np.rint(values, out=values)
        signed = levels.view("<i4" if self.ring_bits == 32 else "<i8")
        np.copyto(signed, values, casting="unsafe")
        if weight != 1:  # fits, by the check above
            np.multiply(signed, signed.dtype.type(weight), out=signed)
        return clipped

    def decode(self, total: RingArray) -> FloatArray:
        """The real numbers that a sum of encodings stands for.

        Args:
            total: Ring integers of `dtype`, any shape.

        Returns:
            float64 of the same shape.
        """
        array = np.asarray(total, dtype=self.dtype)
        values = np.empty(array.shape, dtype=np.float64)
        np.multiply(array.view("<i4" if self.ring_bits == 32 else "<i8"), self.step, out=values)
        return values


def fit_fixed_point(
    *, clip: float, fraction_bits: int, weight_sum: int, count_sum: int = 0, ring_bits: int | None = None
) -> FixedPoint:
    """The smallest ring in which no sum can wrap around: 32 bits, else 64.

    Args:
        clip: See `FixedPoint`.
        fraction_bits: See `FixedPoint`.
        weight_sum: The largest sum of weights of any group.
        count_sum: The largest sum of the counts that travel along (entries x members of the largest group).
        ring_bits: 32 or 64 to ask for one ring and no other.

    Raises:
        SpecError: If the clip or the bits cannot be used.
        ModulusOverflowError: If the worst-case sum fits into no allowed ring; the message shows the arithmetic.

    Examples:
        >>> from fedgt.secagg import fit_fixed_point
        >>> fit_fixed_point(clip=8.0, fraction_bits=24, weight_sum=4).ring_bits
        32
        >>> fit_fixed_point(clip=8.0, fraction_bits=24, weight_sum=1500).ring_bits  # the sums would not fit into 32 bits
        64
    """
    for bits in RING_BITS if ring_bits is None else (ring_bits,):
        # Of two rings the larger, unless the smaller has a bit to spare: a sum that its members cannot reach is seen then.
        spare = 2 if ring_bits is None and bits != RING_BITS[-1] else 1
        try:
            encoding = FixedPoint(clip=clip, fraction_bits=fraction_bits, ring_bits=bits)
            encoding.require_room(spare * weight_sum)
        except ModulusOverflowError:
            if bits == (ring_bits or RING_BITS[-1]):
                raise
        else:
            if count_sum <= encoding.capacity or bits == RING_BITS[-1]:
                return encoding
    raise ModulusOverflowError(
        f"{count_sum} clipped entries may have to be counted, above 2^{(ring_bits or 64) - 1} - 1: use the 64-bit ring"
    )


def weiszfeld_encoding(*, update_clip: float, smoothing: float, members: int) -> FixedPoint:
    """The finest 64-bit encoding for smoothed Weiszfeld sums: entries up to max(1, update_clip) / smoothing.

    One entry is beta * u or beta, with beta = alpha / max(smoothing, distance) <= 1 / smoothing and |u| <= update_clip
    (Pillutla et al. 2022, algorithm 2).

    Args:
        update_clip: The clip of the update itself.
        smoothing: nu, above 0.
        members: The number of clients of the largest group.

    Raises:
        SpecError: If the clip or the smoothing is not positive and finite, or the range is too large to encode.

    Examples:
        >>> from fedgt.secagg import weiszfeld_encoding
        >>> weiszfeld_encoding(update_clip=8.0, smoothing=1e-6, members=15).ring_bits
        64
    """
    for name, value in (("update_clip", update_clip), ("smoothing", smoothing)):
        if not (math.isfinite(value) and value > 0):
            raise SpecError(f"{name} is {value}; a finite number above 0 is needed")
    reach = max(1.0, update_clip) / smoothing
    if reach * max(members, 1) >= 2.0**62 or reach > _LARGEST_ENTRY:
        raise SpecError(
            f"weights up to {reach:g} x {members} members do not fit into the 64-bit ring: raise the smoothing"
        )
    room = min(_LARGEST_ENTRY, 2**62 // max(members, 1))
    fraction_bits = min(52, max(0, math.floor(math.log2(room / reach))))
    return FixedPoint(clip=reach, fraction_bits=fraction_bits, ring_bits=64)
