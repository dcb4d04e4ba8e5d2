"""The server's store of prekeys, and the messages in which they ride along with the last stage of a round."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedgt.errors import ProtocolError
from fedgt.secagg import Credentials, Identity, PrekeyRequest
from fedgt.secagg.frames import Sender, pack, unpack

_REQUEST, _REPLY = "finish", "finished"


@dataclass(slots=True, kw_only=True)
class PrekeyStore:
    """What clients have published for the coming round.

    Attributes:
        published: Client -> its message, as `fedgt.secagg.Prekeys.published` made it.
        request: What is to be asked for next; None asks for nothing.

    Examples:
        >>> from fedgt.engine import PrekeyStore
        >>> PrekeyStore().published  # empty until clients have answered once
        {}
    """

    published: dict[str, bytes] = field(default_factory=dict)
    request: PrekeyRequest | None = None

    def take(self) -> dict[str, bytes]:
        """What was published, once: no key serves two rounds."""
        published, self.published = self.published, {}
        return published

    def requests(self, unmask: Mapping[str, bytes], credentials: Credentials | None) -> dict[str, bytes]:
        """The requests of stage "finish": those of "unmask", each with the request for prekeys."""
        identity = None if credentials is None else credentials.identity
        return {client: finish_message(request, self.request, identity=identity) for client, request in unmask.items()}

    def replies(self, finished: Mapping[str, bytes]) -> dict[str, bytes]:
        """The replies of "unmask" out of those of "finish"; the prekeys are kept. Who sends rubbish has not replied."""
        replies = {}
        for client, payload in finished.items():
            try:
                replies[client], prekeys = read_finished(payload)
            except ProtocolError:
                continue
            if prekeys:
                self.published[client] = prekeys
        return replies


def finish_message(unmask: bytes, request: PrekeyRequest | None, *, identity: Identity | None) -> bytes:
    """An unmask request together with a request for prekeys."""
    entry = None if request is None else request.entry
    return pack({"kind": _REQUEST, "prekeys": entry}, unmask, identity=identity)


def read_finish(payload: bytes, *, sender: Sender | None) -> tuple[bytes, PrekeyRequest | None]:
    """The two halves of `finish_message`.

    Raises:
        SignatureError: If the signature is not the sender's.
        ProtocolError: If it is malformed.
    """
    header, body = unpack(payload, kind=_REQUEST, sender=sender)
    if set(header) != {"kind", "prekeys"}:
        raise ProtocolError("malformed message: the header has other fields than a finish message has")
    entry = header["prekeys"]
    return bytes(body), None if entry is None else PrekeyRequest.from_entry(entry)


def finished_message(unmask: bytes, prekeys: bytes) -> bytes:
    """An unmask reply together with prekeys (empty if none were asked for). Each is signed by itself."""
    return pack({"kind": _REPLY, "unmask": len(unmask)}, unmask, prekeys)


def read_finished(payload: bytes) -> tuple[bytes, bytes]:
    """The two halves of `finished_message`.

    Raises:
        ProtocolError: If it is malformed.
    """
    header, body = unpack(payload, kind=_REPLY)
    length = header.get("unmask")
    if set(header) != {"kind", "unmask"} or type(length) is not int or not 0 <= length <= len(body):
        raise ProtocolError("malformed message: a finished message needs the length of its first half")
    return bytes(body[:length]), bytes(body[length:])
