"""Shamir sharing of 32-byte secrets over a prime field (Shamir 1979, How to share a secret).

The field has the first prime above 2^256, so that every secret is one element of it. Position p of the group (0-based) holds
the value of the polynomial at x = p + 1. Integers of Python do the arithmetic: a group of 15 costs a fraction of a
millisecond.
"""

import secrets
from collections.abc import Mapping

from fedgt.errors import ProtocolError, TooFewSharesError

SECRET_BYTES = 32
SHARE_BYTES = 33
"""An element of the field needs one bit more than a secret."""

PRIME = 2**256 + 297


def split_secret(secret: bytes | bytearray, *, threshold: int, count: int) -> tuple[bytes, ...]:
    """Shares of a secret, one per position.

    Args:
        secret: 32 bytes.
        threshold: How many shares are needed to get it back; 1 to count.
        count: How many shares to make.

    Returns:
        `count` shares of 33 bytes; fewer than `threshold` of them say nothing about the secret.

    Raises:
        ProtocolError: If the secret is not 32 bytes or the threshold is out of range.
    """
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= count:
        raise ProtocolError(
            f"cannot share {len(secret)} bytes with threshold {threshold} of {count}: 32 bytes and a threshold from 1 "
            "to the number of shares are needed"
        )
    polynomial = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return tuple(_value(polynomial, position + 1).to_bytes(SHARE_BYTES, "big") for position in range(count))


def combine_shares(shares: Mapping[int, bytes | memoryview], *, threshold: int) -> bytes:
    """The secret that was split. Wrong shares of no more than the threshold give a wrong secret, so the caller checks it.

    Args:
        shares: Position -> share of 33 bytes. All that are given must lie on one polynomial.
        threshold: As at the split.

    Returns:
        32 bytes.

    Raises:
        TooFewSharesError: If there are fewer shares than the threshold.
        ProtocolError: If a share is no element of the field, or the shares are not those of one secret.
    """
    if len(shares) < threshold:
        raise TooFewSharesError(f"{len(shares)} shares, {threshold} are needed")
    points = []
    for position, share in sorted(shares.items()):
        value = int.from_bytes(share, "big")
        if len(share) != SHARE_BYTES or value >= PRIME:
            raise ProtocolError(f"a share is not {SHARE_BYTES} bytes, or no element of the field")
        points.append((position + 1, value))
    used, others = points[:threshold], points[threshold:]
    if any(_interpolated(used, x) != value for x, value in others):
        raise ProtocolError("the shares do not belong to one secret")
    secret = _interpolated(used, 0)
    if secret >> (8 * SECRET_BYTES):
        raise ProtocolError("the shares are not those of 32 bytes")
    return secret.to_bytes(SECRET_BYTES, "big")


def _value(polynomial: list[int], x: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * x + coefficient) % PRIME
    return value


def _interpolated(points: list[tuple[int, int]], x: int) -> int:
    """The value at x of the polynomial of lowest degree through the points (Lagrange)."""
    total = 0
    for xi, yi in points:
        above = below = 1
        for xj, _ in points:
            if xj != xi:
                above = above * (x - xj) % PRIME
                below = below * (xi - xj) % PRIME
        total += yi * above * pow(below, -1, PRIME)
    return total % PRIME
