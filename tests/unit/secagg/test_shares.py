"""Shamir shares of 32-byte secrets."""

import itertools
import os

import pytest

from fedgt.errors import ProtocolError, TooFewSharesError
from fedgt.secagg.shares import combine_shares, split_secret


@pytest.mark.parametrize(
    "secret",
    [bytes(range(32)), bytes(32), b"\xff" * 32, bytes(31) + b"\x01"],
    ids=["counting", "zeros", "ones", "last-bit"],
)
def test_every_subset_of_threshold_size_gives_the_secret(secret: bytes) -> None:
    shares = split_secret(secret, threshold=3, count=5)
    for size in (3, 4, 5):
        for positions in itertools.combinations(range(5), size):
            assert combine_shares({position: shares[position] for position in positions}, threshold=3) == secret


def test_fewer_shares_than_the_threshold_are_refused() -> None:
    shares = split_secret(os.urandom(32), threshold=3, count=5)
    with pytest.raises(TooFewSharesError, match="2 shares, 3 are needed"):
        combine_shares(dict(enumerate(shares[:2])), threshold=3)


def test_fewer_shares_than_the_threshold_do_not_determine_the_secret() -> None:
    secret = os.urandom(32)
    first, second = (split_secret(secret, threshold=2, count=2) for _ in range(2))
    assert first[0] != second[0]
    assert secret not in first


def test_a_single_member_keeps_its_secret_in_one_share() -> None:
    secret = os.urandom(32)
    assert combine_shares(dict(enumerate(split_secret(secret, threshold=1, count=1))), threshold=1) == secret


def test_secrets_and_shares_of_another_length_are_refused() -> None:
    with pytest.raises(ProtocolError):
        split_secret(bytes(16), threshold=1, count=1)
    with pytest.raises(ProtocolError):
        split_secret(bytes(32), threshold=3, count=2)
    with pytest.raises(ProtocolError):
        combine_shares({0: bytes(32)}, threshold=1)
