"""Carries the engine's stages over a Flower grid: one message per client and stage, identified by message ids."""

import time
from collections.abc import Collection, Iterator, Mapping

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedgt.engine import Failure, PrekeyStore
from fedgt.engine.roster import Roster
from fedgt.engine.transport import StreamingTransport
from fedgt.errors import FedGTError
from fedgt.flower.inprocess import InProcessGrid
from fedgt.flower.records import MESSAGE_TYPES, frame_of, frame_record
from fedgt.foreign_text import plain
from fedgt.secagg import Credentials

_GRACE = 10.0  # seconds


class FlowerTransport(StreamingTransport):
    """A `fedgt.engine.StreamingTransport` and `MeetingTransport` whose clients are Flower nodes.

    Names are the identity; the `roster` finds out by asking which node has which. Nothing that a node does raises: it
    becomes a `Failure` with the node's own reason.

    Args:
        grid: From `@app.main()`, or an `InProcessGrid`.
        clients: The names that may take part, those that the nodes have (`Site.client`).
        credentials: The server's identity and the clients' keys; None is ANONYMOUS MODE, where nodes are believed.
        wait: Seconds to wait for all clients to connect before the first round; then those who are there begin.
        patience: Seconds for a node to say who it is; it need not train for that.
        poll: At most so many seconds between two looks for replies.

    Attributes:
        prekeys: What the clients have published for the coming round.
        roster: Which client is which node, and why other nodes take no part.

    Raises:
        SpecError: If no client is named.

    Examples:
        >>> from fedgt import TrainedModel
        >>> from fedgt.flower import FlowerTransport, InProcessGrid, client_app
        >>> app = client_app(lambda parameters, round, context: TrainedModel(parameters=dict(parameters), samples=10))
        >>> grid = InProcessGrid(app, {1: {"fedgt-client": "ada"}, 2: {"fedgt-client": "bob"}})
        >>> transport = FlowerTransport(grid, ["ada", "bob"], poll=0.01)
        >>> isinstance(transport, FlowerTransport)
        True
    """

    def __init__(
        self,
        grid: Grid,
        clients: Collection[str],
        *,
        credentials: Credentials | None = None,
        wait: float = 60.0,
        patience: float = 120.0,
        poll: float = 0.5,
    ) -> None:
        """Nobody is asked yet."""
        self._grid = grid
        self._wait, self._patience, self._poll = wait, patience, poll
        self._make = grid.message if isinstance(grid, InProcessGrid) else Message
        self.prekeys = PrekeyStore()
        self.roster = Roster(
            clients,
            grid.get_node_ids,
            lambda nodes, question, timeout: self._send("hello", dict.fromkeys(nodes, frame_record(question)), timeout),
            credentials=credentials,
            prekeys=self.prekeys,
        )

    def meet(self, *, without: Collection[str] = (), wait: float = 0.0) -> tuple[str, ...]:
        """See `fedgt.engine.MeetingTransport`; the first time all clients are waited for."""
        wait, self._wait = max(wait, self._wait), 0.0
        return self.roster.gather(self._patience, wait=wait, without=without)

    def replies(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        """See `fedgt.engine.StreamingTransport`."""
        nodes = {self.roster.nodes[client]: client for client in messages if client in self.roster.nodes}
        for client in messages.keys() - set(nodes.values()):
            yield client, Failure(client=client, reason="no node of this client is connected")
        # Equal frames, such as the first of a round with the model in it, are one object, which Flower sends once.
        contents = {frame: frame_record(frame) for frame in set(messages.values())}
        sent = {node: contents[messages[client]] for node, client in nodes.items()}
        for node, answer in self._send(stage, sent, timeout):
            client = nodes[node]
            yield client, Failure(client=client, reason=answer) if isinstance(answer, str) else answer

    def _send(
        self, stage: str, contents: Mapping[int, RecordDict], timeout: float
    ) -> Iterator[tuple[int, bytes | str]]:
        """Node -> the frame of its reply, or why there is none, as they come."""
        began = time.monotonic()
        deadline = began + timeout
        order = list(contents)
        # They live a little longer than they are waited for, or the SuperLink says that it does not know them.
        messages = [self._make(contents[node], node, MESSAGE_TYPES[stage], ttl=timeout + _GRACE) for node in order]
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
        return plain(f"error {reply.error.code} of its node: {reply.error.reason or 'no reason given'}")
    try:
        return frame_of(reply.content)
    except FedGTError as error:
        return str(error)
