"""The client's end of a transport: trains once per round, answers the four stages."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedgt.engine.round_message import RoundMessage, fingerprint
from fedgt.errors import ProtocolError, ShapeError
from fedgt.secagg import ClientSession, RoundPlan
from fedgt.types import FloatArray, Parameters

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainedModel:
    """What local training returns.

    Attributes:
        parameters: Tensor name -> array, with the names and shapes of the model that was received.
        samples: The number of local samples; at least 1.
    """

    parameters: Mapping[str, npt.NDArray[np.floating]]
    samples: int


class Client(Protocol):
    """All that a client of any framework has to do: parameters in, parameters and sample count out."""

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        """Train locally, starting at the global parameters of this round (read-only arrays)."""
        ...


@dataclass(slots=True, kw_only=True)
class _Round:
    """What is kept for the sums of one (run, round): the received model, and the update once it is trained."""

    run: str
    number: int
    parameters: Parameters
    fingerprint: bytes
    purposes: set[str] = field(default_factory=set)
    update: Mapping[str, FloatArray] | None = None
    samples: int = 0


class ClientEndpoint:
    """Answers the messages of all stages for one client; `handle` is what a transport calls.

    The client is trained in the first "masked" stage of a (run, round), once; later sums of that round (the test, the
    same-round aggregate, the Weiszfeld iterations) use the same local model. Each (run, round, purpose) is answered
    once; a round before the latest one of the run is refused.

    Args:
        client_id: The id under which the plan names this client.
        client: Does the training.
        minimum_group_size: Refuse sums over fewer clients than this.
    """

    def __init__(self, client_id: str, client: Client, *, minimum_group_size: int = 2) -> None:
        """Nothing happens before the first message."""
        self._id = client_id
        self._client = client
        self._minimum = minimum_group_size
        self._round: _Round | None = None
        self._session: ClientSession | None = None
        self._center: Parameters | None = None

    def handle(self, stage: str, payload: bytes) -> bytes:
        """The reply to one message.

        Raises:
            ProtocolError: If the message is malformed, out of order, repeated, or of another run or round; if the plan
                gives this client a weight that is neither 1 nor its sample count.
            ShapeError: If the received or the trained model does not fit the plan; the message names client and tensor.
        """
        if stage == "keys":
            return self._keys(payload)
        if self._session is None:
            raise ProtocolError(f"client {self._id}: stage {stage!r} is refused: the keys stage comes first")
        if stage == "shares":
            return self._session.shares(payload)
        if stage == "masked":
            return self._masked(self._session, payload)
        if stage == "unmask":
            return self._session.unmask(payload)
        raise ProtocolError(f"client {self._id}: there is no stage {stage!r}; keys, shares, masked and unmask exist")

    def _keys(self, payload: bytes) -> bytes:
        message = RoundMessage.from_bytes(payload)
        session = ClientSession(self._id, minimum_group_size=self._minimum)
        reply = session.keys(message.session)
        plan = session.plan
        _require_shapes(plan, message.parameters, self._id)
        state = self._round_of(plan, message.parameters)
        state.purposes.add(plan.purpose)
        if self._session is not None:
            self._session.close()
        self._round, self._session, self._center = state, session, message.center
        return reply

    def _round_of(self, plan: RoundPlan, parameters: Parameters) -> _Round:
        """The state of this round, new or known; refuses what would reuse or confuse local models."""
        known = self._round
        if known is None or known.run != plan.run or known.number < plan.round:
            return _Round(run=plan.run, number=plan.round, parameters=parameters, fingerprint=fingerprint(parameters))
        if known.number > plan.round:
            raise ProtocolError(f"client {self._id}: round {plan.round} is over, the latest is {known.number}")
        if plan.purpose in known.purposes:
            raise ProtocolError(
                f"client {self._id}: run {plan.run!r}, round {plan.round}, purpose {plan.purpose!r} was answered already"
            )
        if fingerprint(parameters) != known.fingerprint:
            raise ProtocolError(f"client {self._id}: round {plan.round} came with another global model before")
        return known

    def _masked(self, session: ClientSession, payload: bytes) -> bytes:
        state = self._round
        if state is None or session.closed:
            raise ProtocolError(f"client {self._id}: stage 'masked' is refused: the session is over")
        try:
            update = self._update(state, session.plan)
        except Exception:
            session.close()
            raise
        return session.masked(payload, update, self._center)

    def _update(self, state: _Round, plan: RoundPlan) -> Mapping[str, FloatArray]:
        """Trained minus received, in float64; trains only if this round has not been trained yet."""
        if state.update is None:
            trained = self._client.train(state.parameters, round=state.number)
            _require_shapes(plan, trained.parameters, self._id)
            state.samples = int(trained.samples)
            state.update = MappingProxyType(
                {
                    name: np.asarray(trained.parameters[name], dtype=np.float64) - received.astype(np.float64)
                    for name, received in state.parameters.items()
                }
            )
        weight = plan.weights[self._id]
        if weight not in (1, state.samples):
            raise ProtocolError(
                f"client {self._id}: the plan gives it weight {weight}; 1 or its {state.samples} samples are allowed"
            )
        return state.update


def _require_shapes(plan: RoundPlan, parameters: Parameters, client: str) -> None:
    """Check names and shapes of a model against the plan."""
    agreed = {tensor.name: tensor.shape for tensor in plan.tensors}
    if set(parameters) != set(agreed):
        raise ShapeError(f"client {client}: the model has tensors {sorted(parameters)}, agreed are {sorted(agreed)}")
    for name, shape in agreed.items():
        if np.shape(parameters[name]) != shape:
            raise ShapeError(
                f"client {client}: tensor {name!r} has shape {np.shape(parameters[name])}, agreed is {shape}"
            )
