"""Who is behind a connection: the server sends a nonce, the client answers with its name, signed if it has an identity.

For transports whose addresses are not names. The answer brings the prekeys of the coming round, if the server asks for them.
"""

import secrets
from typing import NamedTuple

from fedgt._version import __version__
from fedgt.errors import ProtocolError
from fedgt.ids import is_id
from fedgt.secagg import Credentials, PrekeyRequest
from fedgt.secagg.frames import Sender, pack, unpack

_KIND, _ANSWER = "hello", "hello-answer"
_LONGEST_NONCE = 64
_LARGEST_ANSWER = 2**20  # prekeys for as many groups as a client publishes any for


class Question(NamedTuple):
    """What a server asks: the nonce, and which prekeys it wants, if any."""

    nonce: str
    prekeys: PrekeyRequest | None


class Acquaintance(NamedTuple):
    """Who has answered, with its prekeys (empty if none were asked for)."""

    client: str
    prekeys: bytes


def hello_frame(credentials: Credentials | None, prekeys: PrekeyRequest | None = None) -> tuple[str, bytes]:
    """A nonce and the question that carries it; the server's credentials sign it."""
    nonce = secrets.token_hex(32)
    identity = None if credentials is None else credentials.identity
    entry = None if prekeys is None else prekeys.entry
    header: dict[str, object] = {"kind": _KIND, "nonce": nonce, "version": __version__, "prekeys": entry}
    return nonce, pack(header, identity=identity)


def read_hello(question: bytes, *, client: str, credentials: Credentials | None) -> Question:
    """What the server asks.

    Raises:
        SignatureError: If the question is not the pinned server's.
        ProtocolError: If it is malformed, or the server is of another version.
    """
    server = None if credentials is None else Sender(name="the server", public=credentials.registry.server)
    header, _ = unpack(question, kind=_KIND, sender=server, body_bytes=0)
    nonce, theirs = header.get("nonce"), header.get("version")
    if not isinstance(nonce, str) or len(nonce) > _LONGEST_NONCE:
        raise ProtocolError(f"malformed message: a hello needs a nonce of at most {_LONGEST_NONCE} characters")
    if theirs != __version__:
        raise ProtocolError(f"client {client} has fedgt {__version__}, the server has {theirs!r:.40}: install the same")
    entry = header.get("prekeys")
    return Question(nonce, None if entry is None else PrekeyRequest.from_entry(entry))


def signed_hello(question: Question, *, client: str, credentials: Credentials | None, prekeys: bytes = b"") -> bytes:
    """The client's answer."""
    answer = {"kind": _ANSWER, "nonce": question.nonce, "client": client, "version": __version__}
    return pack(answer, prekeys, identity=None if credentials is None else credentials.identity)


def read_answer(answer: bytes, *, nonce: str, credentials: Credentials | None) -> Acquaintance:
    """The name that a node has proved to be (with credentials) or claims to be (without), and its prekeys.

    Raises:
        SignatureError: If the name is not registered, or the answer is not signed by its key.
        ProtocolError: If the answer is malformed or to another question.
    """
    header, body = unpack(answer, kind=_ANSWER, body_bytes=_LARGEST_ANSWER)
    name = header.get("client")
    if not isinstance(name, str) or header.get("nonce") != nonce:
        raise ProtocolError("the node's answer is to another question")
    if not is_id(name):
        raise ProtocolError(f"the node calls itself {name!a:.80}, which cannot be the id of a client")
    if credentials is not None:
        sender = Sender(name=f"client {name}", public=credentials.registry.client_key(name))
        _, body = unpack(answer, kind=_ANSWER, sender=sender)
    return Acquaintance(name, bytes(body))
