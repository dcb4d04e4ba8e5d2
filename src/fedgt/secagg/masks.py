"""Keys, mask streams and encrypted shares, over `cryptography`; nothing here is home-made.

X25519 pairs are ephemeral: one client has two fresh pairs per (run, round, purpose, group). HKDF-SHA256 turns an agreed
secret into a 256-bit key whose info names the plan, run, round, purpose, group, pair and use, so no key serves twice;
that is what makes the constant nonces below safe.
"""

import hashlib
import json
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedgt.errors import ProtocolError
from fedgt.secagg.field import Field
from fedgt.secagg.fixed_point import RingArray
from fedgt.secagg.plan import RoundPlan

KEY_BYTES = 32
TAG_BYTES = 16

CHUNK_BYTES = 2**18
"""How much of a vector is worked on at once: it stays in the cache of one core from the first mask to the last."""

_ZEROS = bytes(CHUNK_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupContext:
    """Which instance of the protocol a key belongs to: one group of one plan. `pads` is how many it carries at most."""

    plan: str
    run: str
    round: int
    purpose: str
    group: int
    pads: int = 1

    @classmethod
    def of(cls, plan: RoundPlan, group: int) -> "GroupContext":
        """The context of a group of a plan."""
        return cls(
            plan=plan.digest,
            run=plan.run,
            round=plan.round,
            purpose=plan.purpose,
            group=group,
            pads=len(plan.stages) - plan.stage_of(group),
        )

    @property
    def seeds_bytes(self) -> int:
        """The length of the seeds of all masks between two clients: of the vector, and of each pad."""
        return KEY_BYTES * (1 + self.pads)

    @classmethod
    def ahead(cls, run: str, round: int, group: int) -> "GroupContext":
        """The context in which prekeys are published: no plan yet, so no plan's digest."""
        return cls(plan="", run=run, round=round, purpose="prekeys", group=group)

    def info(self, use: str, *clients: str) -> bytes:
        """plan|run|round|purpose|group|use|clients as a JSON list, so that no two of them read the same."""
        return json.dumps([self.plan, self.run, self.round, self.purpose, self.group, use, *clients]).encode()


def derive(secret: bytes, info: bytes, *, length: int = KEY_BYTES) -> bytes:
    """HKDF-SHA256: pseudorandom bytes that serve what `info` says, and nothing else."""
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=info).derive(secret)


def _agree(own: X25519PrivateKey, peer: bytes | memoryview) -> bytes:
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(bytes(peer)))
    except ValueError as error:
        raise ProtocolError("a public key is not a usable X25519 point") from error


def pair_seed(
    context: GroupContext, own: X25519PrivateKey, peer: bytes | memoryview, clients: tuple[str, str]
) -> bytes:
    """The seeds of the masks that two clients share in one group: 32 bytes for the vector, then 32 for each pad.

    Args:
        context: The group.
        own: The mask key of one of the two.
        peer: The 32-byte public mask key of the other.
        clients: Both ids, in the order of the group, so that both sides derive the same seed.

    Raises:
        ProtocolError: If the public key is not usable.
    """
    return derive(_agree(own, peer), context.info("pair-mask", *clients), length=context.seeds_bytes)


def self_seed(context: GroupContext, secret: bytes | bytearray, client: str) -> bytes:
    """The seeds of a client's own masks, from its 32 secret bytes: 32 bytes for the vector, then 32 for each pad."""
    return derive(bytes(secret), context.info("self-mask", client), length=context.seeds_bytes)


def seed_commitment(context: GroupContext, secret: bytes | bytearray, client: str) -> bytes:
    """SHA-256 that lets the server check a reconstructed self-mask secret (256 random bits: it reveals nothing)."""
    return hashlib.sha256(context.info("commitment", client) + bytes(secret)).digest()


def pad_masks(field: Field, seeds: bytes) -> list[int]:
    """The masks of a client's pads in one group, from what follows the first of the seeds of a pair or of its own."""
    return [field.uniform(seeds[start : start + KEY_BYTES]) for start in range(KEY_BYTES, len(seeds), KEY_BYTES)]


def keystream(key: bytes) -> CipherContext:
    """AES-256 in counter mode: encrypt zeros with it. A key is used for one stream.

    It is that of GCM with a nonce of zeros, from the second block on. OpenSSL has faster code for it than for the plain mode
    on processors that encrypt several blocks at once; the tag is never asked for.
    """
    return Cipher(algorithms.AES256(key), modes.GCM(bytes(12))).encryptor()


class MaskStream:
    """The mask of one seed as a stream: AES-256 in counter mode, read as little-endian ring integers.

    Args:
        seed: Its first 32 bytes are used, for this one stream only.
        subtract: Take the mask away instead of adding it.
    """

    def __init__(self, seed: bytes, *, subtract: bool = False) -> None:
        """At the beginning of the stream."""
        self._stream = keystream(seed[:KEY_BYTES])
        self._apply = np.subtract if subtract else np.add

    def apply(self, chunk: RingArray, scratch: bytearray, *, source: RingArray | None = None) -> None:
        """Write `source` (by default the chunk itself) plus the next piece of the mask into the chunk.

        Args:
            chunk: ring[at most CHUNK_BYTES], contiguous.
            scratch: From `mask_scratch`; overwritten.
            source: ring of the same length.
        """
        self._stream.update_into(memoryview(_ZEROS)[: chunk.nbytes], scratch)
        mask = np.frombuffer(scratch, dtype=chunk.dtype, count=chunk.size)
        self._apply(chunk if source is None else source, mask, out=chunk)


def mask_scratch() -> bytearray:
    """Memory for one chunk of a mask; the cipher asks for one block more."""
    return bytearray(CHUNK_BYTES + 16)


def add_mask(vector: RingArray, seed: bytes, *, subtract: bool = False) -> None:
    """Add the whole mask of a seed to a ring vector, in place, modulo the ring: one pass.

    Args:
        vector: uint32[length] or uint64[length], little-endian, contiguous.
        seed: Its first 32 bytes are used, for this one stream only.
        subtract: Take it away instead.
    """
    stream, scratch = MaskStream(seed, subtract=subtract), mask_scratch()
    step = CHUNK_BYTES // vector.itemsize
    for start in range(0, len(vector), step):
        stream.apply(vector[start : start + step], scratch)


def tag_key(context: GroupContext, own: X25519PrivateKey, peer: bytes | memoryview, client: str) -> bytes:
    """The key of the one Poly1305 tag over a client's masked vector, agreed between that client and the server.

    Raises:
        ProtocolError: If the public key is not usable.
    """
    return derive(_agree(own, peer), context.info("masked-tag", client))


def encrypt_share(
    context: GroupContext, own: X25519PrivateKey, peer: bytes | memoryview, *, sender: str, receiver: str, share: bytes
) -> bytes:
    """A share for one peer, readable and forgeable by nobody else (ChaCha20-Poly1305).

    Each direction of a pair has its own key, used for this one message.

    Raises:
        ProtocolError: If the public key is not usable.
    """
    info = context.info("share", sender, receiver)
    return ChaCha20Poly1305(derive(_agree(own, peer), info)).encrypt(bytes(12), share, info)


def decrypt_share(
    context: GroupContext,
    own: X25519PrivateKey,
    peer: bytes | memoryview,
    *,
    sender: str,
    receiver: str,
    ciphertext: bytes | memoryview,
) -> bytearray:
    """The share that `encrypt_share` sent.

    Raises:
        ProtocolError: If it was changed, or made for another plan, run, round, group, sender or receiver.
    """
    info = context.info("share", sender, receiver)
    try:
        cipher = ChaCha20Poly1305(derive(_agree(own, peer), info))
        return bytearray(cipher.decrypt(bytes(12), bytes(ciphertext), info))
    except InvalidTag as error:
        raise ProtocolError(f"the share from {sender} cannot be read: changed, or made for something else") from error
