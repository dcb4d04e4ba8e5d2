"""Drives the stages of a plan over a transport: one call, all group sums."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol, TypeAlias

import numpy as np

from fedgt.engine.prekey_store import PrekeyStore
from fedgt.engine.round_message import RoundMessage, bound
from fedgt.engine.transport import Failure, MeetingTransport, StreamingTransport, Transport
from fedgt.errors import ShapeError
from fedgt.secagg import AgreementLog, Authorise, Credentials, Fault, GroupSum, RoundPlan, ServerSession
from fedgt.secagg.challenge import draw_seed, seed_hash
from fedgt.types import Parameters

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SecureSums:
    """The sums of one plan and what they cost.

    Attributes:
        sums: One per group of the plan, in its order; if not all of its stages were opened, of those that were.
        bytes_up: Bytes of all replies that arrived.
        bytes_down: Bytes of all messages that were sent.
        seconds: Stage -> wall-clock seconds, clients and server together (the last one includes the opening).
        warnings: What the user should know about this plan.
        faults: What groups show about their members.
        struck: Groups whose sum was open, and is none any more because a member was not seen again in a later stage. This
            says nothing about anybody.

    Examples:
        >>> import numpy as np
        >>> from fedgt import ClientEndpoint, LocalTransport, TrainedModel, secure_sums
        >>> from fedgt.secagg import RoundPlan, fit_fixed_point, tensor_specs
        >>> class Site:
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters=dict(parameters), samples=1)
        >>> names, model = ("ada", "bob", "cleo"), {"weight": np.zeros(2)}
        >>> encoding = fit_fixed_point(clip=8.0, fraction_bits=24, weight_sum=3)
        >>> plan = RoundPlan(
        ...     run="example",
        ...     round=1,
        ...     purpose="training",
        ...     groups=(names,),
        ...     thresholds=(3,),
        ...     weights=dict.fromkeys(names, 1),
        ...     encoding=encoding,
        ...     tensors=tensor_specs(model),
        ... )
        >>> transport = LocalTransport({name: ClientEndpoint(name, Site()).handle for name in names})
        >>> taken = secure_sums(transport, plan, model, authorise=lambda members: ("not today",), timeout=10.0)
        >>> taken.sums[0].status, taken.bytes_up > 0
        ('erased', True)
    """

    sums: tuple[GroupSum, ...]
    bytes_up: int
    bytes_down: int
    seconds: Mapping[str, float]
    warnings: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    struck: tuple[int, ...] = ()


GoOn: TypeAlias = Callable[[SecureSums], bool]
"""What is open by now -> whether the next stage of the plan is opened, too: the rule of a run, or a person.

It is asked between two stages of a plan, never after the last, and while the clients wait. It gets the sums of all stages
until now, with faults and struck sums taken out of them already, and need not remember anything."""


class TakesSums(Protocol):
    """Takes the sums of all groups of a plan; `secure_sums` is the one, and documents the arguments."""

    def __call__(
        self,
        transport: Transport,
        plan: RoundPlan,
        parameters: Parameters,
        *,
        authorise: Authorise,
        timeout: float,
        center: Parameters | None = None,
        credentials: Credentials | None = None,
        agreements: AgreementLog | None = None,
        go_on: GoOn | None = None,
    ) -> SecureSums:
        """The sums, one per group of the stages that were opened."""
        ...


def secure_sums(
    transport: Transport,
    plan: RoundPlan,
    parameters: Parameters,
    *,
    authorise: Authorise,
    timeout: float,
    center: Parameters | None = None,
    credentials: Credentials | None = None,
    agreements: AgreementLog | None = None,
    prekeys: PrekeyStore | None = None,
    go_on: GoOn | None = None,
) -> SecureSums:
    """Take the sums of all groups of a plan, stage by stage if it has several.

    Args:
        transport: Reaches the clients.
        plan: What to sum. The hashes of the models are put into it here, and that of a fresh challenge for each stage
            (decisions 0021, 0026) where a client is in two groups.
        parameters: The global model of the round, with the plan's names and shapes.
        authorise: Asked once before anything of a stage is opened: real members per group (empty for a lost group, and for
            those of other stages) -> None to open it or the reason to withhold it.
        timeout: Seconds per stage after which a silent client counts as dropped.
        center: The current Weiszfeld estimate in the space of updates (zeros at first); for task "weiszfeld" only.
        credentials: The server's identity and the clients' keys. None is anonymous mode, for simulations: nothing is
            signed, and clients that have pinned a server refuse.
        agreements: What clients have signed so far, with credentials; it must outlive the server's process.
        prekeys: What the clients published for this round ahead; it is used up, and refilled for the round that the store
            asks for. Stage "begin" then stands for "keys" and "shares", and "finish" for "unmask". None takes the store of
            a `MeetingTransport`; over any other, keys are published in the round itself.
        go_on: Whether another stage of the plan is opened, asked after each one. None opens the first only.

    Returns:
        The sums; a group that is lost or withheld is an erasure with its reason, whatever the clients did.

    Raises:
        ShapeError: If parameters or center do not have the plan's tensors, or the center is missing or superfluous.
        ProtocolError: If `authorise` does not answer for each group; what it raises itself is passed on.

    Examples:
        >>> import numpy as np
        >>> from fedgt import ClientEndpoint, LocalTransport, TrainedModel, secure_sums
        >>> from fedgt.secagg import RoundPlan, fit_fixed_point, tensor_specs
        >>> class Site:
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters={"weight": parameters["weight"] + 1.0}, samples=1)
        >>> names, model = ("ada", "bob", "cleo"), {"weight": np.zeros(2)}
        >>> plan = RoundPlan(
        ...     run="example",
        ...     round=1,
        ...     purpose="training",
        ...     groups=(names,),
        ...     thresholds=(3,),
        ...     weights=dict.fromkeys(names, 1),
        ...     encoding=fit_fixed_point(clip=8.0, fraction_bits=24, weight_sum=3),
        ...     tensors=tensor_specs(model),
        ... )
        >>> transport = LocalTransport({name: ClientEndpoint(name, Site()).handle for name in names})
        >>> taken = secure_sums(transport, plan, model, authorise=lambda members: (None,) * len(members), timeout=10.0)
        >>> taken.sums[0].status, taken.sums[0].total["weight"].round(3).tolist()
        ('open', [3.0, 3.0])
    """
    _require_tensors(plan, parameters, "parameters")
    if (center is not None) != (plan.task == "weiszfeld"):
        raise ShapeError(f'task "{plan.task}" {"needs a center" if center is None else "takes no center"}')
    if center is not None:
        _require_tensors(plan, center, "center")
    if prekeys is None and isinstance(transport, MeetingTransport):
        prekeys = transport.prekeys
    traffic = _Traffic(transport, timeout, "keys" if prekeys is None else "begin")
    plan = bound(plan, parameters, center)
    checked = plan.shares_clients or len(plan.stages) > 1
    seeds = tuple(draw_seed() for _ in plan.stages) if checked else ()
    plan = replace(plan, challenges=tuple(map(seed_hash, seeds)))
    session = ServerSession(plan, credentials=credentials, agreements=agreements, seeds=seeds)

    def opened(requests: Mapping[str, bytes]) -> SecureSums:
        """The messages that every stage of the plan ends with."""
        failures = traffic.stream("masked", requests, session.receive)
        if credentials is None:
            requests = session.unmask({}, failures, authorise=authorise)
        else:
            requests = session.agree({}, failures, authorise=authorise)
            requests = session.unmask(*traffic.exchange("agree", requests))
        if prekeys is None:
            sums = session.results(*traffic.exchange("unmask", requests))
        else:
            replies, failures = traffic.exchange("finish", prekeys.requests(requests, credentials))
            sums = session.results(prekeys.replies(replies), failures)
        traffic.stop()
        return SecureSums(
            sums=sums,
            bytes_up=traffic.bytes_up,
            bytes_down=traffic.bytes_down,
            seconds=MappingProxyType(dict(traffic.seconds)),
            warnings=() if plan.encoding.warning is None else (plan.encoding.warning,),
            faults=session.faults,
            struck=session.struck,
        )

    if prekeys is None:
        requests = _openings(session.keys(), parameters, center, credentials)
        requests = session.shares(*traffic.exchange("keys", requests))
        requests = session.masked(*traffic.exchange("shares", requests))
    else:
        requests = _openings(session.begin(prekeys.take()), parameters, center, credentials)
        requests = session.masked(*traffic.exchange("begin", requests))
    taken = opened(requests)
    while session.later and go_on is not None and go_on(taken):
        traffic.begin("further")
        requests = session.shares(*traffic.exchange("further", session.further()))
        taken = opened(session.masked(*traffic.exchange("shares", requests)))
    return taken


class _Traffic:
    """Counts bytes and seconds of the exchanges of one plan."""

    def __init__(self, transport: Transport, timeout: float, stage: str) -> None:
        self._transport = transport
        self._timeout = timeout
        self._stage = stage
        self._since = time.perf_counter()
        self.bytes_up = 0
        self.bytes_down = 0
        self.seconds: dict[str, float] = {}

    def exchange(self, stage: str, requests: Mapping[str, bytes]) -> tuple[dict[str, bytes], dict[str, str]]:
        """One stage: replies and failures; nobody is asked if there is nothing to ask."""
        replies: dict[str, bytes] = {}
        failures = self.stream(stage, requests, replies.__setitem__)
        return replies, failures

    def stream(
        self, stage: str, requests: Mapping[str, bytes], receive: Callable[[str, bytes], None]
    ) -> dict[str, str]:
        """As `exchange`, but each reply is handed over as it arrives, and only the failures are kept."""
        self.stop()
        self._stage = stage
        self.bytes_down += sum(len(message) for message in requests.values())
        failures = dict.fromkeys(requests, "no reply")
        for client, answer in self._answers(stage, requests):
            if client not in failures:
                continue
            if isinstance(answer, Failure):
                failures[client] = answer.reason
            else:
                del failures[client]
                self.bytes_up += len(answer)
                receive(client, answer)
        for client, reason in failures.items():
            logger.warning("%s: client %s failed: %s", stage, client, reason)
        return failures

    def _answers(self, stage: str, requests: Mapping[str, bytes]) -> Iterable[tuple[str, bytes | Failure]]:
        if not requests:
            return ()
        if isinstance(self._transport, StreamingTransport):
            return self._transport.replies(stage, requests, self._timeout)
        return self._transport.exchange(stage, requests, self._timeout).items()

    def begin(self, stage: str) -> None:
        """Seconds until now, such as those of a decision, are nobody's; from now on they are those of a stage."""
        self._stage, self._since = stage, time.perf_counter()

    def stop(self) -> None:
        """Close the account of the running stage."""
        now = time.perf_counter()
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._since
        self._since = now


def _openings(
    plans: Mapping[str, bytes], parameters: Parameters, center: Parameters | None, credentials: Credentials | None
) -> dict[str, bytes]:
    """The first message to each client: plan (with prekeys) and model. Equal for all, so that it is in memory once."""
    identity = None if credentials is None else credentials.identity
    made: dict[bytes, bytes] = {}
    for plan in plans.values():
        if plan not in made:
            made[plan] = RoundMessage(session=plan, parameters=parameters, center=center).to_bytes(identity=identity)
    return {client: made[plan] for client, plan in plans.items()}


def _require_tensors(plan: RoundPlan, tensors: Parameters, what: str) -> None:
    agreed = {tensor.name: tensor.shape for tensor in plan.tensors}
    given = {name: np.shape(array) for name, array in tensors.items()}
    if given != agreed:
        raise ShapeError(f"the {what} have tensors {given}, the plan has {agreed}: make the plan from the parameters")
    averaged = {tensor.name for tensor in plan.tensors if tensor.kind == "mean"}
    if integers := sorted(name for name in averaged if np.asarray(tensors[name]).dtype.kind != "f"):
        raise ShapeError(
            f"tensor {', '.join(integers)} of the {what} is not floating-point, so it has no mean: give it kind "
            '"keep" in the plan, as tensor_specs does'
        )
