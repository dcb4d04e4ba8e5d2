"""How messages reach clients: one call, one message per client and stage, one answer or failure for each.

The protocol code never knows what carries its bytes; `LocalTransport` runs the clients in this process.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, TypeAlias, runtime_checkable

from fedgt.engine.prekey_store import PrekeyStore
from fedgt.errors import FedGTError, SpecError
from fedgt.foreign_text import plain

Handler: TypeAlias = Callable[[str, bytes], bytes]
"""(stage, message) -> reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a client gave no reply.

    Attributes:
        client: Its id.
        reason: For people and reports. It may be a stranger's words: it is made `fedgt.foreign_text.plain`.

    Examples:
        >>> from fedgt import LocalTransport
        >>> transport = LocalTransport({"ada": lambda stage, message: message})
        >>> transport.exchange("a stage", {"bob": b"hello"}, timeout=5.0)["bob"].client
        'bob'
    """

    client: str
    reason: str

    def __post_init__(self) -> None:
        """Make the reason fit for a log."""
        object.__setattr__(self, "reason", plain(self.reason))


class Transport(Protocol):
    """Carries the messages of one stage to all clients and their replies back."""

    def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        """Send one message to each client and wait for the replies.

        Args:
            stage: The name of the stage.
            messages: Client id -> message.
            timeout: Seconds after which a client that has not replied becomes a `Failure`.

        Returns:
            For every client of `messages`, in that order, its reply or why there is none. Never raises for a client.
        """
        ...


@runtime_checkable
class StreamingTransport(Protocol):
    """A transport that can hand replies over one by one, so that large ones need not all be in memory at once."""

    def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        """See `Transport`."""
        replies = dict(self.replies(stage, messages, timeout))
        return {client: replies[client] for client in messages}

    def replies(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        """As `Transport.exchange`, but yields (client, reply or failure) as they come, in any order, each client once."""
        ...


@runtime_checkable
class MeetingTransport(Protocol):
    """A transport whose clients come and go, and which brings the keys of a round one round ahead, to save a trip.

    Attributes:
        prekeys: What the clients have published for the coming round, and what they are to be asked for next.
    """

    prekeys: PrekeyStore

    def meet(self, *, without: Collection[str] = (), wait: float = 0.0) -> tuple[str, ...]:
        """Who is there, sorted; new ones are asked who they are, and all but some for keys that are missing.

        Args:
            without: Clients that take no part any more.
            wait: At most so many seconds for all others, where clients that are away may come by themselves.
        """
        ...


class LocalTransport(StreamingTransport):
    """All clients in this process: for simulation and tests. NOT FOR DEPLOYMENT.

    Nothing is encrypted in transit or authenticated, and all secrets share one address space. A client that hangs
    becomes a failure after its timeout, which runs from the moment the message is handed to it; its thread is abandoned
    (it is a daemon), and the client counts as failed for as long as it goes on hanging. Replies depend neither on the
    number of workers nor on the order in which clients are registered.

    Args:
        handlers: Client id -> function of (stage, message).
        workers: How many clients work at the same time.

    Raises:
        SpecError: If there is no worker.

    Examples:
        >>> from fedgt import LocalTransport
        >>> transport = LocalTransport({"ada": lambda stage, message: message.upper()})
        >>> transport.exchange("a stage", {"ada": b"hello"}, timeout=5.0)
        {'ada': b'HELLO'}
    """

    def __init__(self, handlers: Mapping[str, Handler], workers: int = 1) -> None:
        """Remember the handlers; threads are started per message."""
        if workers < 1:
            raise SpecError(f"workers is {workers}; at least 1 is needed")
        self._handlers = MappingProxyType(dict(handlers))
        self._workers = workers
        self._hung: dict[str, threading.Thread] = {}

    def replies(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        """See `StreamingTransport`. With one worker the next client begins when the reply before has been taken."""
        finished: queue.SimpleQueue[tuple[str, bytes | Failure]] = queue.SimpleQueue()
        waiting: deque[str] = deque()
        for client in sorted(messages):
            if client not in self._handlers:
                yield client, Failure(client=client, reason="no such client is connected")
            elif client in self._hung and self._hung[client].is_alive():
                yield client, Failure(client=client, reason="still busy with an earlier message")
            else:
                waiting.append(client)
        threads: dict[str, threading.Thread] = {}
        deadlines: dict[str, float] = {}
        while waiting or deadlines:
            while waiting and len(deadlines) < self._workers:
                client = waiting.popleft()
                call = (client, self._handlers[client], stage, messages[client], finished)
                threads[client] = threading.Thread(target=_answer, args=call, name=f"fedgt-{client}", daemon=True)
                deadlines[client] = time.monotonic() + timeout
                threads[client].start()
            try:
                client, reply = finished.get(timeout=max(0.0, min(deadlines.values()) - time.monotonic()))
            except queue.Empty:
                for client in [late for late, deadline in deadlines.items() if deadline <= time.monotonic()]:
                    del deadlines[client]
                    self._hung[client] = threads[client]
                    yield client, Failure(client=client, reason=f"timeout: no reply within {timeout:g} s")
            else:
                # A reply after the deadline is not counted: the client is a failure of this stage already.
                if deadlines.pop(client, None) is not None:
                    yield client, reply
                del reply


def _answer(
    client: str,
    handler: Handler,
    stage: str,
    message: bytes,
    finished: "queue.SimpleQueue[tuple[str, bytes | Failure]]",
) -> None:
    """Call one client; whatever it raises becomes its failure."""
    reply: bytes | Failure
    try:
        answered: object = handler(stage, message)
        if isinstance(answered, bytes):
            reply = answered
        else:
            reply = Failure(client=client, reason=f"replied with {type(answered).__name__}, bytes are needed")
    except FedGTError as error:
        reply = Failure(client=client, reason=str(error))
    except BaseException as error:
        reply = Failure(client=client, reason=f"{type(error).__name__}: {error}")
    finished.put((client, reply))
