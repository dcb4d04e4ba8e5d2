"""Shamir sharing of 32-byte secrets, over pycryptodome.

The library shares 16-byte blocks in GF(2^128); a secret is two blocks, shared independently with the same indices.
Position p of the group (0-based) holds the point x = p + 1.
"""

from collections.abc import Mapping

from Crypto.Protocol.SecretSharing import Shamir

from fedgt.errors import ProtocolError, TooFewSharesError

SECRET_BYTES = 32
_BLOCK = 16


def split_secret(secret: bytes | bytearray, *, threshold: int, count: int) -> tuple[bytes, ...]:
    """Shares of a secret, one per position.

    Args:
        secret: 32 bytes.
        threshold: How many shares are needed to get it back; 1 to count.
        count: How many shares to make.

    Returns:
        `count` shares of 32 bytes; fewer than `threshold` of them say nothing about the secret.

    Raises:
        ProtocolError: If the secret is not 32 bytes or the threshold is out of range.
    """
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= count:
        raise ProtocolError(
            f"cannot share {len(secret)} bytes with threshold {threshold} of {count}: 32 bytes and a threshold from 1 "
            "to the number of shares are needed"
        )
    low = Shamir.split(threshold, count, bytes(secret[:_BLOCK]), False)
    high = Shamir.split(threshold, count, bytes(secret[_BLOCK:]), False)
    return tuple(first + second for (_, first), (_, second) in zip(low, high, strict=True))


def combine_shares(shares: Mapping[int, bytes | memoryview], *, threshold: int) -> bytes:
    """The secret that was split; a wrong share gives a wrong secret, so the caller checks it.

    Args:
        shares: Position -> share of 32 bytes; the `threshold` lowest positions are used.
        threshold: As at the split.

    Returns:
        32 bytes.

    Raises:
        TooFewSharesError: If there are fewer shares than the threshold.
        ProtocolError: If a share is not 32 bytes.
    """
    if len(shares) < threshold:
        raise TooFewSharesError(f"{len(shares)} shares, {threshold} are needed")
    chosen = sorted(shares.items())[:threshold]
    if any(len(share) != SECRET_BYTES for _, share in chosen):
        raise ProtocolError("a share is not 32 bytes")
    low = Shamir.combine([(position + 1, bytes(share[:_BLOCK])) for position, share in chosen], False)
    high = Shamir.combine([(position + 1, bytes(share[_BLOCK:])) for position, share in chosen], False)
    return bytes(low) + bytes(high)
