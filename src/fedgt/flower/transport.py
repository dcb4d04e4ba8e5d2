"""Carries the engine's stages over a Flower grid: one message per client and stage, identified by message ids."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedgt.engine import Failure
from fedgt.errors import FedGTError, SpecError
from fedgt.flower.hello import hello_frame, name_in
from fedgt.flower.records import MESSAGE_TYPES, frame_of, frame_record
from fedgt.secagg import Credentials

logger = logging.getLogger(__name__)

_PATIENCE = 3  # a node that does not say who it is, is asked so many times: it must not slow down every round

MakeMessage = Callable[..., Message]
"""As the constructor of `flwr.app.Message`: (content, dst_node_id, message_type, *, ttl, group_id)."""


class FlowerTransport:
    """A `fedgt.engine.StreamingTransport` whose clients are Flower nodes.

    Names are the identity; which node has a name is found out by asking (`meet`). Nothing that a node does raises: it
    becomes a `Failure` with the node's own reason.

    Args:
        grid: From `@app.main()`, or an `InProcessGrid`.
        clients: The names that may take part.
        credentials: The server's identity and the clients' keys; None is anonymous mode, where nodes are believed.
        make_message: Makes the messages.
        poll: At most so many seconds between two looks for replies.

    Raises:
        SpecError: If no client is named.
    """

    def __init__(
        self,
        grid: Grid,
        clients: Collection[str],
        *,
        credentials: Credentials | None = None,
        make_message: MakeMessage = Message,
        poll: float = 0.5,
    ) -> None:
        """Nobody is asked yet."""
        if not clients:
            raise SpecError("no client is named: give the names that may take part")
        self._grid = grid
        self._clients = frozenset(clients)
        self._credentials = credentials
        self._make = make_message
        self._poll = poll
        self._nodes: dict[str, int] = {}
        self._refused: dict[int, str] = {}
        self._online: frozenset[int] = frozenset()
        self._silent: dict[int, int] = {}

    @property
    def nodes(self) -> Mapping[str, int]:
        """Client -> node id, of all that are connected and recognised."""
        return MappingProxyType(self._nodes)

    @property
    def refused(self) -> Mapping[int, str]:
        """Node id -> why it takes no part."""
        return MappingProxyType(self._refused)

    def meet(self, timeout: float) -> tuple[str, ...]:
        """Ask new nodes who they are; forget nodes that are gone. One trip if somebody is new, else none.

        A name that two nodes claim belongs to the one that still answers; if both do, to neither.

        Returns:
            The clients that are connected, sorted.
        """
        online = frozenset(self._grid.get_node_ids())
        self._nodes = {client: node for client, node in self._nodes.items() if node in online}
        if online != self._online:
            self._online, self._refused = online, {}  # who was refused because of another node may be right now
        known = {node: client for client, node in self._nodes.items()}
        given_up = {node for node in self._refused if self._silent.get(node, _PATIENCE) >= _PATIENCE}
        claims = self._ask(online - set(known) - given_up, timeout)
        if contested := {known[node] for node in known} & set(claims.values()):
            # The earlier node may be dead and not yet known to be: ask again.
            claims |= self._ask({node for node, client in known.items() if client in contested}, timeout)
            self._nodes = {client: node for client, node in self._nodes.items() if client not in contested}
        claimants: dict[str, list[int]] = {}
        for node, client in sorted(claims.items()):
            claimants.setdefault(client, []).append(node)
        for client, nodes in claimants.items():
            if client not in self._clients:
                self._refuse(nodes, f"client {client!r} is not registered for this run")
            elif len(nodes) > 1:
                self._refuse(nodes, f"nodes {', '.join(map(str, nodes))} all say that they are client {client!r}")
            else:
                self._nodes[client] = nodes[0]
        return tuple(sorted(self._nodes))

    def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        """See `fedgt.engine.Transport`."""
        replies = dict(self.replies(stage, messages, timeout))
        return {client: replies[client] for client in messages}

    def replies(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        """See `fedgt.engine.StreamingTransport`."""
        there = [client for client in messages if client in self._nodes]
        for client in messages:
            if client not in self._nodes:
                yield client, Failure(client=client, reason="no node of this client is connected")
        nodes = {self._nodes[client]: client for client in there}
        contents = _contents(messages[client] for client in there)
        sent = {node: contents[messages[client]] for node, client in nodes.items()}
        for node, answer in self._send(stage, sent, timeout):
            client = nodes[node]
            yield client, Failure(client=client, reason=answer) if isinstance(answer, str) else answer

    def _ask(self, nodes: Collection[int], timeout: float) -> dict[int, str]:
        """Node -> who it is, of all that answer well; the others are refused."""
        nonce, question = hello_frame(self._credentials)
        claims: dict[int, str] = {}
        for node, answer in self._send("hello", dict.fromkeys(sorted(nodes), frame_record(question)), timeout):
            try:
                if isinstance(answer, str):
                    self._silent[node] = self._silent.get(node, 0) + 1
                    raise FedGTError(answer)
                self._refused.pop(node, None)
                self._silent.pop(node, None)
                claims[node] = name_in(answer, nonce=nonce, credentials=self._credentials)
            except FedGTError as error:
                self._refuse([node], str(error))
        return claims

    def _refuse(self, nodes: Iterable[int], reason: str) -> None:
        for node in nodes:
            logger.warning("node %d takes no part: %s", node, reason)
            self._refused[node] = reason

    def _send(
        self, stage: str, contents: Mapping[int, RecordDict], timeout: float
    ) -> Iterator[tuple[int, bytes | str]]:
        """Node -> the frame of its reply, or why there is none, as they come."""
        began = time.monotonic()
        deadline = began + timeout
        order = list(contents)
        messages = [self._make(contents[node], node, MESSAGE_TYPES[stage], ttl=timeout) for node in order]
        ids = list(self._grid.push_messages(messages)) if messages else []
        # The id of a message that could not be pushed is None; without any id, none could.
        waiting = {name: node for name, node in zip(ids, order, strict=False) if name}
        for node in order:
            if node not in waiting.values():
                yield (
                    node,
                    "the message could not be handed to the SuperLink (is the node gone, or the model too large?)",
                )
        while waiting:
            arrived = False
            for reply in self._grid.pull_messages(list(waiting)):
                # The reply for a dead node comes from the SuperLink itself: only the message id says whose it is.
                replied = reply.metadata.reply_to_message_id
                if replied in waiting:
                    arrived = True
                    yield waiting.pop(replied), _answer(reply)
            if not arrived and waiting:
                now = time.monotonic()
                if now >= deadline:
                    break
                # Ten looks per stage that is quick, few for one that takes minutes.
                time.sleep(min(max(0.01, (now - began) / 10), self._poll, deadline - now))
        for node in waiting.values():
            yield node, f"timeout: no reply within {timeout:g} s"


def _answer(reply: Message) -> bytes | str:
    if reply.has_error():
        return f"error {reply.error.code} of its node: {reply.error.reason or 'no reason given'}"
    try:
        return frame_of(reply.content)
    except FedGTError as error:
        return str(error)


def _contents(frames: Iterable[bytes]) -> dict[bytes, RecordDict]:
    """Equal frames, such as the first of a round with the model in it, are one object, which Flower sends once."""
    contents: dict[bytes, RecordDict] = {}
    for frame in frames:
        if frame not in contents:
            contents[frame] = frame_record(frame)
    return contents
