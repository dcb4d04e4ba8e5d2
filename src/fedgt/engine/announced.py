"""A transport that says which stage begins, for whoever shows how far a round is."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias, final

from fedgt.engine.transport import Failure, MeetingTransport, StreamingTransport, Transport

OnStage: TypeAlias = Callable[[int, str, str], None]
"""(round, purpose of the sums, stage of the secure aggregation; `opened` when it is over)."""


def announced(transport: Transport, told: Callable[[str], None]) -> Transport:
    """The same transport, of the same kind, which calls `told` with the stage before its messages are sent."""
    if isinstance(transport, MeetingTransport):
        return _AnnouncedMeeting(transport, told)
    return _Announced(transport, told)


class _Announced:
    """Implements `StreamingTransport` over any transport."""

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


@final
class _AnnouncedMeeting(_Announced):
    """Implements `MeetingTransport`, too."""

    def __init__(self, transport: Any, told: Callable[[str], None]) -> None:
        super().__init__(transport, told)
        self.prekeys = transport.prekeys
        self._meeting: MeetingTransport = transport

    def meet(self, *, without: Collection[str] = (), wait: float = 0.0) -> tuple[str, ...]:
        return self._meeting.meet(without=without, wait=wait)
