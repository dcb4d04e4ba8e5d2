"""Bytes on the wire: a bounded JSON header, then raw binary, then a signature; no pickle.

frame = magic (4 bytes) | header length (4 bytes, big-endian) | header (a JSON object, padded with spaces so that the
body begins at a multiple of 8) | body | Ed25519 signature over the SHA-256 of all before it (64 bytes)

The one large message, masked vectors, is signed without its body, whose parts carry Poly1305 tags of their own (SHA-256
over them would cost as much as all the masks).

Without identities (anonymous mode, for simulations) there is no signature. Which of the two is expected follows from the
reader's own credentials, never from the message.
"""

import ctypes
import hashlib
import io
import json
import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedgt import strict_json
from fedgt.errors import ProtocolError
from fedgt.secagg.identity import SIGNATURE_BYTES, Identity, verify

_MAGIC = b"FGT1"
_PREFIX = struct.Struct(">4sI")
_ALIGNMENT = 8
_LARGEST_FRAME = 2**33

_LARGE = 2**22
"""Bytes: below it the memory is mostly some that was used before."""

SMALL_HEADER = 2**13
"""Bytes: more than three names of the greatest length need, each character as twelve bytes of JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Whose signature a frame must carry.

    Attributes:
        name: For messages.
        public: Its pinned Ed25519 key.
    """

    name: str
    public: bytes


def pack(header: Mapping[str, object], *bodies: bytes | memoryview, identity: Identity | None = None) -> bytes:
    """One frame: the header and the bodies one after the other, signed if there is an identity."""
    start = _start(header)
    if identity is None:
        return b"".join((start, *bodies))
    digest = hashlib.sha256(start)
    for body in bodies:
        digest.update(body)
    return b"".join((start, *bodies, identity.sign("frame", digest.digest())))


def pack_in_place(
    header: Mapping[str, object], length: int, fill: Callable[[memoryview], None], *, identity: Identity | None = None
) -> bytes:
    """As `pack`, for a large body that is written where it is sent from: no second copy exists at any time.

    Args:
        header: The header.
        length: The number of bytes of the body.
        fill: Writes the body into the zeroed memory that it is given, and keeps no reference to it.
        identity: Signs the header, not the body: its parts must carry tags of their own.
    """
    start = _start(header)
    signature = 0 if identity is None else SIGNATURE_BYTES
    stream = io.BytesIO(bytes(len(start) + length + signature))
    view = stream.getbuffer()
    _ask_for_large_pages(view)
    view[: len(start)] = start
    fill(view[len(start) : len(start) + length])
    if identity is not None:
        view[-signature:] = identity.sign("header", hashlib.sha256(start).digest())
    del view
    return stream.getvalue()


def _ask_for_large_pages(memory: memoryview) -> None:
    """Ask Linux for pages of 2 MB, as numpy does for its arrays: to get a vector's 4 kB pages costs as much as two masks.

    It is a hint about memory that nobody has touched yet. Nothing depends on whether it is followed.
    """
    if len(memory) < _LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    skipped = -address % mmap.PAGESIZE
    ctypes.CDLL(None).madvise(
        ctypes.c_void_p(address + skipped), ctypes.c_size_t(len(memory) - skipped), mmap.MADV_HUGEPAGE
    )


def _start(header: Mapping[str, object]) -> bytes:
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-(_PREFIX.size + len(text)) % _ALIGNMENT)
    return _PREFIX.pack(_MAGIC, len(text)) + text


def unpack(
    payload: bytes,
    *,
    kind: str,
    sender: Sender | None = None,
    in_place: bool = False,
    header_bytes: int = SMALL_HEADER,
    body_bytes: int = _LARGEST_FRAME,
) -> tuple[dict[str, Any], memoryview]:
    """Header and body of a frame whose header says `kind`.

    Args:
        payload: The frame.
        kind: What it must be.
        sender: Whose signature it must carry; None for a frame without signature. Checked before the header is parsed.
        in_place: It comes from `pack_in_place`: the signature is over the header only.
        header_bytes: The longest header that the reader can use; a longer one is refused before anything is hashed.
        body_bytes: The same for the body.

    Raises:
        SignatureError: If the signature is not the sender's.
        ProtocolError: If the bytes are not such a frame, or too many.
    """
    view, signature, body = _pieces(payload, signed=sender is not None)
    length = body - _PREFIX.size
    if length > header_bytes or len(view) - body > body_bytes:
        raise ProtocolError(
            f"malformed message: {length} bytes of header and {len(view) - body} of body; a {kind!r} message has at most "
            f"{header_bytes} and {body_bytes} here"
        )
    if sender is not None:
        use, signed = ("header", view[:body]) if in_place else ("frame", view)
        verify(sender.public, use, hashlib.sha256(signed).digest(), signature, signer=sender.name)
    try:
        header = strict_json.parse(bytes(view[_PREFIX.size : body]))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"malformed message: the header is not JSON ({error})") from error
    if not isinstance(header, dict) or header.get("kind") != kind:
        raise ProtocolError(f"malformed message: a {kind!r} message was expected")
    return header, view[body:]


def require_authentic(payload: bytes, *, sender: Sender) -> None:
    """Check who sent a frame, whatever it says: before anything is read from a disk or taken out of its place for it.

    Raises:
        SignatureError: If the signature is not the sender's.
        ProtocolError: If the bytes are no frame.
    """
    view, signature, _ = _pieces(payload, signed=True)
    verify(sender.public, "frame", hashlib.sha256(view).digest(), signature, signer=sender.name)


def _pieces(payload: bytes, *, signed: bool) -> tuple[memoryview, memoryview, int]:
    """What is signed, the signature (empty without), and where the body begins."""
    least = _PREFIX.size + (SIGNATURE_BYTES if signed else 0)
    if not isinstance(payload, bytes | bytearray | memoryview) or not least <= len(payload) <= _LARGEST_FRAME:
        raise ProtocolError("malformed message: too short, too long or not bytes")
    view = memoryview(payload)
    signature = view[:0]
    if signed:
        signature, view = view[-SIGNATURE_BYTES:], view[:-SIGNATURE_BYTES]
    magic, length = _PREFIX.unpack_from(view)
    if magic != _MAGIC or length > len(view) - _PREFIX.size:
        raise ProtocolError("malformed message: the frame does not begin as this protocol's do, or is cut off")
    return view, signature, _PREFIX.size + length
