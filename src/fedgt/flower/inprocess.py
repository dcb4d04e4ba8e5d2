"""A grid whose nodes are in this process: no Ray, no server. For tests and first steps; NOT FOR DEPLOYMENT."""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import Context, Error, Message, Metadata, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

ClientAppFunction = ClientApp | Callable[[Message, Context], Message]

_SERVER, _RAISED = 1, 2


class InProcessGrid(Grid):
    """Runs a ClientApp for every node, one message at a time, when its reply is pulled.

    What Flower guarantees holds here too: a handler gets nothing but its message and its context, whose state is all that
    is left for the next message, and an exception becomes an error reply.

    Args:
        app: The ClientApp of all nodes.
        nodes: Node id -> its node config.
        run_config: The same for all.

    Examples:
        >>> from fedgt import TrainedModel
        >>> from fedgt.flower import InProcessGrid, client_app
        >>> app = client_app(lambda parameters, round, context: TrainedModel(parameters=dict(parameters), samples=10))
        >>> grid = InProcessGrid(app, {1: {"fedgt-client": "ada"}, 2: {"fedgt-client": "bob"}})
        >>> sorted(grid.get_node_ids())
        [1, 2]
    """

    def __init__(
        self,
        app: ClientAppFunction,
        nodes: Mapping[int, Mapping[str, Any]],
        run_config: Mapping[str, Any] | None = None,
    ) -> None:
        """Nothing runs yet."""
        self._app = app
        self._contexts = {
            node: Context(
                run_id=1,
                node_id=node,
                node_config=dict(config),
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for node, config in nodes.items()
        }
        self._numbers = itertools.count(1)
        self._pushed: dict[str, Message] = {}

    @property
    def contexts(self) -> Mapping[int, Context]:
        """Node id -> its context, to look at in tests."""
        return self._contexts

    def set_run(self, run: Any) -> None:
        """There is one run; nothing is set."""

    @property
    def run(self) -> Any:
        """There is no run object of Flower here."""
        return None

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """See `Grid`."""
        return self.message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def message(
        self,
        content: RecordDict,
        node: int,
        message_type: str,
        *,
        ttl: float | None = None,
        group_id: str | None = None,
    ) -> Message:
        """As the constructor of `flwr.app.Message`, which needs a process that Flower itself has started."""
        metadata = Metadata(
            run_id=1,
            message_id=str(next(self._numbers)),
            src_node_id=_SERVER,
            dst_node_id=node,
            reply_to_message_id="",
            group_id=group_id or "",
            created_at=time.time(),
            ttl=ttl or 3600.0,
            message_type=message_type,
        )
        return Message(content, metadata=metadata)  # type: ignore[call-overload,no-any-return]

    def get_node_ids(self) -> Iterable[int]:
        """See `Grid`."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """See `Grid`."""
        pushed = {message.metadata.message_id: message for message in messages}
        self._pushed |= pushed
        return list(pushed)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """See `Grid`: the next reply, if there is one."""
        for name in message_ids:
            if name in self._pushed:
                return [self._answer(self._pushed.pop(name))]
        return []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """See `Grid`."""
        return [self._answer(self._pushed.pop(name)) for name in self.push_messages(messages)]

    def _answer(self, message: Message) -> Message:
        context = self._contexts.get(message.metadata.dst_node_id)
        try:
            if context is None:
                raise LookupError(f"there is no node {message.metadata.dst_node_id}")
            return self._app(message, context)
        except Exception as error:
            reason = f"{type(error)}:<'{error}'>"
            return Message(Error(code=_RAISED, reason=reason), reply_to=message)
