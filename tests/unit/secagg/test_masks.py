"""Mask streams and encrypted shares."""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedgt.errors import ProtocolError
from fedgt.secagg.fixed_point import RingArray
from fedgt.secagg.masks import (
    GroupContext,
    add_mask,
    decrypt_share,
    encrypt_share,
    pair_seed,
    seed_commitment,
    self_seed,
)

CONTEXT = GroupContext(plan="digest", run="run", round=3, purpose="test", group=1)
OTHERS = [
    replace(CONTEXT, plan="other"),
    replace(CONTEXT, run="other"),
    replace(CONTEXT, round=4),
    replace(CONTEXT, purpose="training"),
    replace(CONTEXT, group=2),
]


def stream(seed: bytes, length: int = 64) -> RingArray:
    vector = np.zeros(length, dtype="<u8")
    add_mask(vector, seed)
    return vector


@pytest.mark.parametrize("dtype", ["<u4", "<u8"])
@pytest.mark.parametrize("length", [0, 1, 1000, 2**20 // 4 + 7])
def test_the_mask_is_one_aes_counter_stream_over_the_whole_vector(dtype: str, length: int) -> None:
    vector: RingArray = np.arange(length, dtype=dtype)
    add_mask(vector, b"k" * 32)
    cipher = Cipher(algorithms.AES256(b"k" * 32), modes.CTR((2).to_bytes(16, "big"))).encryptor()
    expected = np.frombuffer(cipher.update(bytes(vector.nbytes)), dtype=dtype) + np.arange(length, dtype=dtype)
    np.testing.assert_array_equal(vector, expected)


def test_a_mask_taken_away_leaves_the_vector() -> None:
    vector = np.arange(1000, dtype="<u4")
    add_mask(vector, b"k" * 32)
    assert not np.array_equal(vector, np.arange(1000, dtype="<u4"))
    add_mask(vector, b"k" * 32, subtract=True)
    np.testing.assert_array_equal(vector, np.arange(1000, dtype="<u4"))


def test_both_clients_of_a_pair_derive_the_same_seed() -> None:
    first, second = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    one = pair_seed(CONTEXT, first, second.public_key().public_bytes_raw(), ("a", "b"))
    other = pair_seed(CONTEXT, second, first.public_key().public_bytes_raw(), ("a", "b"))
    assert one == other
    assert len(one) == 64
    assert pair_seed(CONTEXT, first, second.public_key().public_bytes_raw(), ("a", "c")) != one


def test_the_streams_of_two_plans_rounds_or_groups_differ_even_for_the_same_keys() -> None:
    first, second = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key().public_bytes_raw()
    contexts = [CONTEXT, *OTHERS]
    seeds = [pair_seed(context, first, second, ("a", "b")) for context in contexts]
    seeds += [self_seed(context, b"s" * 32, "a") for context in contexts]
    streams = np.array([stream(seed) for seed in seeds])
    assert len(np.unique(streams)) == streams.size


def test_names_cannot_be_confused_across_their_borders() -> None:
    assert CONTEXT.info("share", "a", "b,c") != CONTEXT.info("share", "a,b", "c")
    assert CONTEXT.info("share", 'a", "b') != CONTEXT.info("share", "a", "b")


def test_a_share_is_read_by_its_receiver_and_in_its_place_only() -> None:
    sender, receiver, stranger = (X25519PrivateKey.generate() for _ in range(3))
    public = sender.public_key().public_bytes_raw()
    to = receiver.public_key().public_bytes_raw()
    box = encrypt_share(CONTEXT, sender, to, sender="a", receiver="b", share=b"x" * 64)
    assert decrypt_share(CONTEXT, receiver, public, sender="a", receiver="b", ciphertext=box) == b"x" * 64
    for context in OTHERS:
        with pytest.raises(ProtocolError, match="cannot be read"):
            decrypt_share(context, receiver, public, sender="a", receiver="b", ciphertext=box)
    for names in ({"sender": "b", "receiver": "a"}, {"sender": "c", "receiver": "b"}, {"sender": "a", "receiver": "c"}):
        with pytest.raises(ProtocolError, match="cannot be read"):
            decrypt_share(CONTEXT, receiver, public, **names, ciphertext=box)
    with pytest.raises(ProtocolError, match="cannot be read"):
        decrypt_share(CONTEXT, stranger, public, sender="a", receiver="b", ciphertext=box)
    with pytest.raises(ProtocolError, match="cannot be read"):
        decrypt_share(CONTEXT, receiver, public, sender="a", receiver="b", ciphertext=bytes([box[0] ^ 1]) + box[1:])


def test_a_public_key_of_low_order_is_refused() -> None:
    with pytest.raises(ProtocolError, match="X25519"):
        pair_seed(CONTEXT, X25519PrivateKey.generate(), bytes(32), ("a", "b"))


def test_a_commitment_fits_one_secret_of_one_client_only() -> None:
    fits = seed_commitment(CONTEXT, b"s" * 32, "a")
    assert fits == seed_commitment(CONTEXT, bytearray(b"s" * 32), "a")
    assert fits != seed_commitment(CONTEXT, b"t" * 32, "a")
    assert fits != seed_commitment(CONTEXT, b"s" * 32, "b")
