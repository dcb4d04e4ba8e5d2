"""Which message a client answers next: each stage once and in order, whoever asks, and in whatever order they ask."""

import threading
from collections.abc import Callable
from typing import TypeVar

from fedgt.errors import ProtocolError
from fedgt.secagg.messages import SIGNED_STAGES, STAGES, order_of
from fedgt.secagg.plan import RoundPlan

_Message = TypeVar("_Message")


class Turns:
    """The order of one session.

    Args:
        client: Whose session it is, for the errors.
        signed: Whether the clients agree, by signature, before anything is opened.

    Attributes:
        next: The number of the message that is due, among those of all stages of the plan.
    """

    def __init__(self, client: str, *, signed: bool) -> None:
        """Until the plan is known, it is taken to have one stage."""
        self._client = client
        self._signed = signed
        self._one_stage: tuple[str, ...] = SIGNED_STAGES if signed else STAGES
        self._order: tuple[str, ...] = self._one_stage
        self._lock = threading.Lock()
        self.next = 0

    def expect(self, plan: RoundPlan) -> None:
        """The plan is known, and with it the whole order."""
        self._order = order_of(plan, signed=self._signed)

    def resume(self, plan: RoundPlan, due: int) -> None:
        """Go on in the midst of a plan.

        Raises:
            ProtocolError: If nothing can be due there.
        """
        order = order_of(plan, signed=self._signed)
        if not 0 < due < len(order):
            raise ProtocolError(f"client {self._client}: a suspended session is at stage 1 to {len(order) - 1}")
        self._order, self.next = order, due

    def skip_to(self, stage: str) -> None:
        """Of the first stage of the plan, this message is due next."""
        self.next = self._order.index(stage)

    def end(self) -> None:
        """Nothing is due any more."""
        self.next = len(self._order)

    @property
    def over(self) -> bool:
        """Whether nothing is due any more."""
        return self.next >= len(self._order)

    @property
    def at(self) -> int:
        """The stage of the plan that runs, or that was the last to run; while a request is answered, its own."""
        return max(self.next - 1, 0) // len(self._one_stage)

    def take(self, stage: str, read: Callable[[], _Message]) -> _Message:
        """Read a message of a stage; what is not due, or cannot be read, changes nothing.

        Raises:
            ProtocolError: If the stage is not due, or what `read` raises.
        """
        self._require_due(stage)
        message = read()
        with self._lock:  # the same message may be handed to two threads
            self._require_due(stage)
            self.next += 1
        return message

    def _require_due(self, stage: str) -> None:
        if self.over or self._order[self.next] != stage:
            state = "the session is over" if self.over else f"the next stage is {self._order[self.next]!r}"
            raise ProtocolError(f"client {self._client}: stage {stage!r} is refused, {state}; each stage runs once")
