"""A transport that says which stage begins, for whoever shows how far a round is."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, final

from fedgt.engine.transport import Failure, StreamingTransport, Transport

OnStage: TypeAlias = Callable[[int, str, str], None]
"""(round, purpose of the sums, stage of the secure aggregation; `opened` when it is over)."""


@final
class Announced:
    """Implements `StreamingTransport` over any transport.

    Args:
        transport: Carries the messages.
        told: Called with the stage before they are sent.
    """

    def __init__(self, transport: Transport, told: Callable[[str], None]) -> None:
        """Nothing is sent yet."""
        self._transport = transport
        self._told = told

    def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        """See `Transport`."""
        self._told(stage)
        return self._transport.exchange(stage, messages, timeout)

    def replies(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        """See `StreamingTransport`."""
        self._told(stage)
        if isinstance(self._transport, StreamingTransport):
            yield from self._transport.replies(stage, messages, timeout)
        else:
            yield from self._transport.exchange(stage, messages, timeout).items()
