"""Drives the four stages of a plan over a transport: one call, all group sums."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from fedgt.engine.round_message import RoundMessage
from fedgt.engine.transport import Failure, Transport
from fedgt.errors import ShapeError
from fedgt.secagg import Authorise, GroupSum, RoundPlan, ServerSession
from fedgt.types import Parameters

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SecureSums:
    """The sums of one plan and what they cost.

    Attributes:
        sums: One per group of the plan, in its order.
        bytes_up: Bytes of all replies that arrived.
        bytes_down: Bytes of all messages that were sent.
        seconds: Stage -> wall-clock seconds, clients and server together ("unmask" includes the opening).
        warnings: What the user should know about this plan.
    """

    sums: tuple[GroupSum, ...]
    bytes_up: int
    bytes_down: int
    seconds: Mapping[str, float]
    warnings: tuple[str, ...] = ()


def secure_sums(
    transport: Transport,
    plan: RoundPlan,
    parameters: Parameters,
    *,
    authorise: Authorise,
    timeout: float,
    center: Parameters | None = None,
) -> SecureSums:
    """Take the sums of all groups of a plan.

    Args:
        transport: Reaches the clients.
        plan: What to sum.
        parameters: The global model of the round, float32 or float64, with the plan's names and shapes.
        authorise: Asked once before anything is opened: real members per group (empty for a lost group) -> None to open
            it or the reason to withhold it.
        timeout: Seconds per stage after which a silent client counts as dropped.
        center: The current Weiszfeld estimate in the space of updates (zeros at first); for task "weiszfeld" only.

    Returns:
        The sums; a group that is lost or withheld is an erasure with its reason, whatever the clients did.

    Raises:
        ShapeError: If parameters or center do not have the plan's tensors, or the center is missing or superfluous.
        ProtocolError: If `authorise` does not answer for each group; what it raises itself is passed on.
    """
    _require_tensors(plan, parameters, "parameters")
    if (center is not None) != (plan.task == "weiszfeld"):
        raise ShapeError(f'task "{plan.task}" {"needs a center" if center is None else "takes no center"}')
    if center is not None:
        _require_tensors(plan, center, "center")
    traffic = _Traffic(transport, timeout)
    session = ServerSession(plan)
    requests = {
        client: RoundMessage(session=message, parameters=parameters, center=center).to_bytes()
        for client, message in session.keys().items()
    }
    requests = session.shares(*traffic.exchange("keys", requests))
    requests = session.masked(*traffic.exchange("shares", requests))
    requests = session.unmask(*traffic.exchange("masked", requests), authorise=authorise)
    sums = session.results(*traffic.exchange("unmask", requests))
    traffic.stop()
    return SecureSums(
        sums=sums,
        bytes_up=traffic.bytes_up,
        bytes_down=traffic.bytes_down,
        seconds=MappingProxyType(traffic.seconds),
        warnings=() if plan.encoding.warning is None else (plan.encoding.warning,),
    )


class _Traffic:
    """Counts bytes and seconds of the exchanges of one plan."""

    def __init__(self, transport: Transport, timeout: float) -> None:
        self._transport = transport
        self._timeout = timeout
        self._stage = "keys"
        self._since = time.perf_counter()
        self.bytes_up = 0
        self.bytes_down = 0
        self.seconds: dict[str, float] = {}

    def exchange(self, stage: str, requests: Mapping[str, bytes]) -> tuple[dict[str, bytes], dict[str, str]]:
        """One stage: replies and failures; nobody is asked if there is nothing to ask."""
        self.stop()
        self._stage = stage
        outcome = self._transport.exchange(stage, requests, self._timeout) if requests else {}
        self.bytes_down += sum(len(message) for message in requests.values())
        replies: dict[str, bytes] = {}
        failures: dict[str, str] = {}
        for client in requests:
            answer = outcome.get(client, Failure(client=client, reason="no reply"))
            if isinstance(answer, Failure):
                failures[client] = answer.reason
                logger.warning("%s: client %s failed: %s", stage, client, answer.reason)
            else:
                replies[client] = answer
                self.bytes_up += len(answer)
        return replies, failures

    def stop(self) -> None:
        """Close the account of the running stage."""
        now = time.perf_counter()
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._since
        self._since = now


def _require_tensors(plan: RoundPlan, tensors: Parameters, what: str) -> None:
    agreed = {tensor.name: tensor.shape for tensor in plan.tensors}
    given = {name: np.shape(array) for name, array in tensors.items()}
    if given != agreed:
        raise ShapeError(f"the {what} have tensors {given}, the plan has {agreed}: make the plan from the parameters")
