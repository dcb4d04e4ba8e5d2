"""Fixed point: what fits, what is refused, and how exact it is."""

import math

import numpy as np
import pytest

from fedgt.errors import ModulusOverflowError, ShapeError, SpecError
from fedgt.secagg.fixed_point import FixedPoint, fit_fixed_point, weiszfeld_encoding


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf])
def test_a_clip_that_is_not_positive_and_finite_is_refused_at_construction(clip: float) -> None:
    """Case 2."""
    with pytest.raises(SpecError, match="clip"):
        FixedPoint(clip=clip, fraction_bits=10, ring_bits=32)


@pytest.mark.parametrize(("fraction_bits", "ring_bits"), [(-1, 32), (53, 64), (10, 16), (10, 0)])
def test_unusable_bits_are_refused_at_construction(fraction_bits: int, ring_bits: int) -> None:
    with pytest.raises(SpecError):
        FixedPoint(clip=1.0, fraction_bits=fraction_bits, ring_bits=ring_bits)


def test_a_clip_below_one_step_is_refused() -> None:
    with pytest.raises(SpecError, match="steps"):
        FixedPoint(clip=0.25, fraction_bits=1, ring_bits=32)


def test_entries_above_the_clip_are_clipped_and_counted() -> None:
    """Case 1: the count says that the sum is not the exact one."""
    encoding = FixedPoint(clip=8.0, fraction_bits=10, ring_bits=32)
    update = np.array([0.5, 7.9, 9.0, 100.0])
    total = np.zeros(4, dtype=encoding.dtype)
    clipped = 0
    for _ in range(3):
        levels, count = encoding.encode(update)
        total = total + levels
        clipped += count
    assert clipped == 6
    np.testing.assert_allclose(encoding.decode(total), [1.5, 23.7, 24.0, 24.0], atol=3 * encoding.step / 2)


def test_nothing_is_clipped_when_the_clip_is_large_enough() -> None:
    levels, count = FixedPoint(clip=100.0, fraction_bits=10, ring_bits=32).encode(np.array([0.5, 7.9, 9.0, 100.0]))
    assert count == 0
    assert levels.tolist() == [512, 8090, 9216, 102400]


@pytest.mark.parametrize("clients", [2, 3, 4, 255])
def test_the_sum_is_right_for_any_number_of_clients(clients: int) -> None:
    """Case 5."""
    encoding = fit_fixed_point(clip=1.0, fraction_bits=16, weight_sum=clients)
    vector = np.array([0.1, -0.2])
    total = np.zeros(2, dtype=encoding.dtype)
    for _ in range(clients):
        total = total + encoding.encode(vector)[0]
    np.testing.assert_allclose(encoding.decode(total), clients * vector, rtol=0, atol=clients * encoding.step / 2)


def test_a_32_bit_ring_that_is_too_small_is_refused_with_the_arithmetic() -> None:
    """Case 4: 15 clients x 60,000 samples, 22-bit values (21 bits and a sign)."""
    with pytest.raises(ModulusOverflowError) as raised:
        fit_fixed_point(clip=1.0, fraction_bits=21, weight_sum=15 * 60_000, ring_bits=32)
    for number in ("900000", "2097152", "1887436800000", "2147483647"):
        assert number in str(raised.value)


def test_the_64_bit_ring_is_chosen_where_32_bits_do_not_do() -> None:
    assert fit_fixed_point(clip=1.0, fraction_bits=21, weight_sum=15 * 60_000).ring_bits == 64
    assert fit_fixed_point(clip=1.0, fraction_bits=21, weight_sum=15).ring_bits == 32
    assert fit_fixed_point(clip=1.0, fraction_bits=1, weight_sum=15, count_sum=2**31).ring_bits == 64


def test_what_fits_into_no_ring_is_refused() -> None:
    with pytest.raises(ModulusOverflowError, match="64-bit"):
        fit_fixed_point(clip=1.0, fraction_bits=50, weight_sum=2**20)
    with pytest.raises(ModulusOverflowError, match="counted"):
        fit_fixed_point(clip=1.0, fraction_bits=1, weight_sum=15, count_sum=2**31, ring_bits=32)


def test_the_largest_sum_that_is_allowed_does_not_wrap_around() -> None:
    encoding = FixedPoint(clip=1.0, fraction_bits=0, ring_bits=32)
    encoding.require_room(2**31 - 1)
    levels, _ = encoding.encode(np.array([1.0, -1.0]), 2**31 - 1)
    assert encoding.decode(levels).tolist() == [2**31 - 1, -(2**31 - 1)]
    with pytest.raises(ModulusOverflowError):
        encoding.require_room(2**31)


def test_values_that_are_not_finite_are_never_encoded() -> None:
    with pytest.raises(ShapeError, match="2 values"):
        FixedPoint(clip=1.0, fraction_bits=8, ring_bits=32).encode(np.array([math.nan, 1.0, -math.inf]))


def test_a_coarse_resolution_is_stated_in_a_warning() -> None:
    """Case 7: about ten levels, clip 3."""
    coarse = FixedPoint(clip=3.0, fraction_bits=1, ring_bits=32)
    assert coarse.levels == 13
    assert coarse.warning is not None
    assert "13 levels" in coarse.warning
    assert "step of 0.5" in coarse.warning
    assert FixedPoint(clip=3.0, fraction_bits=16, ring_bits=32).warning is None


def test_rounding_is_to_nearest_with_ties_to_even() -> None:
    encoding = FixedPoint(clip=8.0, fraction_bits=0, ring_bits=32)
    assert encoding.decode(encoding.encode([0.5, 1.5, -0.5, -1.5, 2.4, -2.6])[0]).tolist() == [0, 2, 0, -2, 2, -3]


@pytest.mark.parametrize("members", [1, 15, 100])
def test_the_weiszfeld_encoding_holds_the_largest_weight_of_every_member(members: int) -> None:
    encoding = weiszfeld_encoding(update_clip=8.0, smoothing=1e-6, members=members)
    assert encoding.ring_bits == 64
    assert encoding.clip >= 8e6
    encoding.require_room(members)
    assert encoding.step < 1e-6


def test_a_weiszfeld_range_beyond_the_ring_is_refused() -> None:
    with pytest.raises(SpecError, match="smoothing"):
        weiszfeld_encoding(update_clip=8.0, smoothing=1e-18, members=15)
    with pytest.raises(SpecError, match="smoothing"):
        weiszfeld_encoding(update_clip=8.0, smoothing=0.0, members=15)
