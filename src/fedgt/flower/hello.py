"""Who is behind a node: the server sends a nonce, the client answers with its name, signed if it has an identity."""

import secrets

from fedgt._version import __version__
from fedgt.errors import ProtocolError
from fedgt.secagg import Credentials
from fedgt.secagg.frames import Sender, pack, unpack

_KIND, _ANSWER = "hello", "hello-answer"


def hello_frame(credentials: Credentials | None) -> tuple[str, bytes]:
    """A nonce and the question that carries it; the server's credentials sign it."""
    nonce = secrets.token_hex(32)
    identity = None if credentials is None else credentials.identity
    return nonce, pack({"kind": _KIND, "nonce": nonce, "version": __version__}, identity=identity)


def signed_hello(question: bytes, *, client: str, credentials: Credentials | None) -> bytes:
    """The client's answer.

    Raises:
        SignatureError: If the question is not the pinned server's.
        ProtocolError: If it is malformed, or the server is of another version.
    """
    server = None if credentials is None else Sender(name="the server", public=credentials.registry.server)
    header, _ = unpack(question, kind=_KIND, sender=server)
    nonce, theirs = header.get("nonce"), header.get("version")
    if not isinstance(nonce, str) or theirs != __version__:
        raise ProtocolError(f"client {client} has fedgt {__version__}, the server has {theirs!r:.40}: install the same")
    answer = {"kind": _ANSWER, "nonce": nonce, "client": client, "version": __version__}
    return pack(answer, identity=None if credentials is None else credentials.identity)


def name_in(answer: bytes, *, nonce: str, credentials: Credentials | None) -> str:
    """The name that a node has proved to be (with credentials) or claims to be (without).

    Raises:
        SignatureError: If the name is not registered, or the answer is not signed by its key.
        ProtocolError: If the answer is malformed or to another question.
    """
    header, _ = unpack(answer, kind=_ANSWER)
    name = header.get("client")
    if not isinstance(name, str) or header.get("nonce") != nonce:
        raise ProtocolError("the node's answer is to another question")
    if credentials is not None:
        unpack(answer, kind=_ANSWER, sender=Sender(name=f"client {name}", public=credentials.registry.client_key(name)))
    return name
