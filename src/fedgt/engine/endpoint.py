"""The client's end of a transport: trains once per round, answers the stages, refuses what was not agreed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedgt.engine.hello import read_hello, signed_hello
from fedgt.engine.journal import RoundJournal
from fedgt.engine.nearness import AnsweredModel, akin_answers, akin_models, answered
from fedgt.engine.prekey_store import finished_message, read_finish
from fedgt.engine.round_message import RoundMessage, fingerprint, require_inputs, require_own_inputs
from fedgt.engine.suspended_endpoint import Suspended, SuspendedRound
from fedgt.errors import PolicyError, ProtocolError, ShapeError, SpecError
from fedgt.foreign_text import plain
from fedgt.ids import require_id
from fedgt.secagg import ClientPolicy, ClientSession, Credentials, PrekeyRequest, Prekeys, RoundPlan, RunTerms
from fedgt.secagg.account import require_promise
from fedgt.secagg.agreement import planned_rows
from fedgt.secagg.frames import Sender
from fedgt.secagg.policy import ANONYMOUS
from fedgt.secagg.terms import clip_of
from fedgt.types import Parameters

logger = logging.getLogger(__name__)

_NOTHING: Mapping[str, str] = MappingProxyType({})
_STAGES = ("hello", "keys", "shares", "begin", "masked", "agree", "unmask", "finish", "further")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainedModel:
    """What local training returns.

    Attributes:
        parameters: Tensor name -> array, with the names and shapes of the model that was received.
        samples: The number of local samples; at least 1.

    Examples:
        >>> import numpy as np
        >>> from fedgt import TrainedModel
        >>> TrainedModel(parameters={"weight": np.zeros((2, 3))}, samples=100).samples
        100
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
    """What is kept for the sums of one (run, round): the received model, and the trained one once it exists."""

    run: str
    number: int
    parameters: Parameters
    fingerprint: bytes
    purposes: set[str] = field(default_factory=set)
    rows: list[Mapping[str, float]] = field(default_factory=list)
    trained: Mapping[str, npt.NDArray[np.generic]] | None = None
    samples: int = 0


class ClientEndpoint:
    """Answers the messages of all stages for one client; `handle` is what a transport calls.

    The client is trained in the first "masked" stage of a (run, round), once; later sums of that round (the test, the
    same-round aggregate, the Weiszfeld iterations) use the same local model. Each (run, round, purpose) is answered
    once; a round before the latest one of its run is refused. Weights, clip, bits and tensors of a run are pinned with
    its first plan, and may not change. If the plan has later stages, the masked vector is kept until the next plan comes: a
    later stage adds it up in other groups, and an endpoint that has lost it refuses.

    Args:
        client_id: The id under which the plan names this client.
        client: Does the training.
        minimum_group_size: Refuse sums over fewer clients than this; the promise asks for at least r.
        policy: Further limits that the server cannot override.
        terms: What was agreed for the run beforehand; other runs are refused then.
        credentials: The client's identity and the keys that it trusts. None is ANONYMOUS MODE, for simulations.
        journal: A file that remembers over a restart of the client what it has answered and signed.
        inputs: Name -> SHA-256 of what else this client trains with and the server has a say in, such as the configuration
            of the run: with credentials, a plan that does not name the very same is refused.

    Raises:
        SpecError: With credentials, if neither policy nor terms promise at least two clients more than may collude.

    Examples:
        >>> from fedgt import ClientEndpoint, TrainedModel
        >>> class Site:
        ...     def train(self, parameters, *, round):  # your training: arrays in, arrays out
        ...         return TrainedModel(parameters={"weight": parameters["weight"] + 1.0}, samples=100)
        >>> endpoint = ClientEndpoint("ada", Site(), minimum_group_size=3)  # it joins no smaller sum
        >>> callable(endpoint.handle)
        True
    """

    def __init__(
        self,
        client_id: str,
        client: Client,
        *,
        minimum_group_size: int = 2,
        policy: ClientPolicy | None = None,
        terms: RunTerms | None = None,
        credentials: Credentials | None = None,
        journal: Path | None = None,
        inputs: Mapping[str, str] = _NOTHING,
    ) -> None:
        """Nothing happens before the first message."""
        self._id = require_id(client_id, "client id")
        self._client = client
        self._minimum = minimum_group_size
        self._policy = _strictest(policy, terms, signed=credentials is not None)
        self._inputs = MappingProxyType(dict(inputs))
        self._agreed = terms
        self._terms = terms
        self._credentials = credentials
        self._server = None if credentials is None else Sender(name="the server", public=credentials.registry.server)
        self._journal = RoundJournal(journal)
        self._log = None if credentials is None else self._journal.agreements(credentials.registry)
        self._round: _Round | None = None
        self._session: ClientSession | None = None
        self._center: Parameters | None = None
        self._prekeys: Prekeys | None = None

    def handle(self, stage: str, payload: bytes) -> bytes:
        """The reply to one message.

        Raises:
            SignatureError: If something is not signed by whom it should be.
            PolicyError: If the plan is outside the policy or the terms.
            ProtocolError: If the message is malformed, out of order, repeated, or of another run or round; if the plan
                gives this client a weight that is neither 1 nor its sample count.
            ShapeError: If the received or the trained model does not fit the plan; the message names client and tensor.
        """
        if stage == "hello":
            return self._hello(payload)
        if stage == "keys":
            return self._open(payload, ClientSession.keys)
        if stage == "begin":
            return self._begin(payload)
        if self._session is None:
            raise ProtocolError(f"client {self._id}: stage {stage!r} is refused: no plan has come yet")
        if stage == "shares":
            return self._session.shares(payload)
        if stage == "masked":
            return self._masked(self._session, payload)
        if stage == "agree":
            self._look_again(self._session)
            return self._session.agree(payload)
        if stage == "unmask":
            return self._session.unmask(payload)
        if stage == "finish":
            return self._finish(self._session, payload)
        if stage == "further":
            run, most = self._session.plan.run, self._policy.later_stages
            return self._session.further(payload, lambda: self._journal.take_part_later(run, most=most))
        raise ProtocolError(f"client {self._id}: there is no stage {stage!r}; {', '.join(_STAGES)} exist")

    def suspend(self) -> bytes:
        """What another process needs to go on with the next message; this object forgets its secrets.

        The bytes hold, in clear: of an open session the keys and shares; prekeys of a coming round; until the local model is
        trained the global one; always the pinned terms and the latest round of each run. Of the local model they hold the
        update as it was masked, until the question of the last stage of its plan is answered or another plan comes. A round
        whose model was trained takes no sums of another plan after `resume`. Resume the bytes once: whoever does so twice
        can be made to answer a stage twice.
        """
        state, session = self._round, self._session
        going_on = session is not None and not session.closed
        untrained = state is not None and going_on and state.trained is None
        suspended = Suspended(
            client=self._id,
            terms=self._terms,
            rounds=self._journal.rounds,
            later=self._journal.later,
            models=() if self._journal.keeps else self._journal.models,
            seed=self._journal.seed,
            agreements=() if self._journal.keeps or self._log is None else self._log.links,
            session=session.suspend() if session is not None and going_on else b"",
            prekeys=b"" if self._prekeys is None else self._prekeys.to_bytes(),
            round=SuspendedRound(
                run=state.run,
                number=state.number,
                purposes=tuple(sorted(state.purposes)),
                rows=tuple(state.rows),
                models=RoundMessage(session=b"", parameters=state.parameters, center=self._center),
            )
            if state is not None and untrained
            else None,
        )
        self._round = self._session = self._center = self._prekeys = None
        return suspended.to_bytes()

    def resume(self, suspended: bytes) -> None:
        """Go on where `suspend` left; only for an endpoint that has had no message, made with the same arguments.

        Raises:
            ProtocolError: If it has had a message, the bytes are not a suspended endpoint of this client, or the journal
                says that they were resumed before.
        """
        if self._session is not None or self._round is not None or self._prekeys is not None:
            raise ProtocolError(f"client {self._id}: only an endpoint without messages can resume another")
        known = Suspended.from_bytes(suspended, client=self._id)
        self._journal.spend(suspended)
        self._journal.recall(known.rounds, known.later, known.models, known.seed)
        if self._log is not None and not self._journal.keeps:
            for link in known.agreements:
                self._log.append(link)
        agreed = self._agreed
        if known.terms is not None:
            self._terms = (
                known.terms
                if agreed is None
                else replace(agreed, weights=known.terms.weights, fraction_bits=known.terms.fraction_bits)
            )
        if known.prekeys:
            self._prekeys = Prekeys.from_bytes(known.prekeys, client=self._id)
        if known.session:
            self._session = self._new_session()
            self._session.resume(known.session)
        if known.round is not None:
            models = known.round.models
            self._round = _Round(
                run=known.round.run,
                number=known.round.number,
                parameters=models.parameters,
                fingerprint=fingerprint(models.parameters),
                purposes=set(known.round.purposes),
                rows=[dict(row) for row in known.round.rows],
            )
            self._center = models.center

    def _new_session(self) -> ClientSession:
        return ClientSession(
            self._id,
            minimum_group_size=self._minimum,
            policy=self._policy,
            credentials=self._credentials,
            agreements=self._log,
        )

    def _hello(self, payload: bytes) -> bytes:
        question = read_hello(payload, client=self._id, credentials=self._credentials)
        return signed_hello(
            question, client=self._id, credentials=self._credentials, prekeys=self._publish(question.prekeys)
        )

    def _publish(self, request: PrekeyRequest | None) -> bytes:
        """Prekeys for a coming round, which stage "begin" uses up; the same as before while they are not used.

        Only a later round replaces those that are held, or another run: anybody may record a request and send it again.
        """
        if request is None:
            return b""
        held = self._prekeys
        if held is None or not held.answers(request):
            past = held is not None and held.request.run == request.run and request.round < held.request.round
            if past or request.round < self._journal.latest(request.run):
                raise ProtocolError(
                    f"client {self._id}: prekeys for round {request.round} of run {request.run!r} are refused: a later "
                    "round has begun or is prepared"
                )
            if held is not None:
                held.forget()
            self._prekeys = held = Prekeys.draw(self._id, request)
        return held.published(self._credentials)

    def _finish(self, session: ClientSession, payload: bytes) -> bytes:
        unmask, request = read_finish(payload, sender=self._server)
        reply = session.unmask(unmask)
        return finished_message(reply, self._publish(request))

    def _begin(self, payload: bytes) -> bytes:
        prekeys = self._prekeys
        if prekeys is None:
            raise ProtocolError(f"client {self._id}: stage 'begin' is refused: no prekeys are held for a coming round")
        try:
            return self._open(payload, lambda session, plan: session.begin(plan, prekeys))
        finally:
            if prekeys.spent:  # what is not authentic, or for another round, spends nothing
                prekeys.forget()
                self._prekeys = None

    def _open(self, payload: bytes, answer: Callable[[ClientSession, bytes], bytes]) -> bytes:
        """Begin a session, of which `answer` gives the first reply; nothing of it leaves before all is checked."""
        message = RoundMessage.from_bytes(payload, sender=self._server)
        session = self._new_session()
        reply = answer(session, message.session)
        plan = session.plan
        try:
            if self._credentials is not None:
                require_inputs(plan, message, self._inputs)
            _require_shapes(plan, message.parameters, self._id)
            terms = self._terms_for(plan)
            terms.require(plan)
            state = self._round_of(plan, message.parameters)
            rows = planned_rows(plan)
            if self._log is None:  # with identities the session looks at what is really to be opened, in all rounds
                require_promise(
                    {},
                    "",
                    [*state.rows, *rows],
                    promised=self._policy.privacy,
                    largest_share=self._policy.largest_share,
                    colluders=self._policy.colluders,
                    weights={**terms.weights, **plan.weights},
                )
            if self._log is not None:
                near = akin_models(
                    message.parameters,
                    self._journal.models,
                    model=plan.inputs.get("model", ""),
                    part=self._policy.near_model,
                    seed=self._journal.seed,
                )
                self._count_as_one(session, near)
            self._journal.begin(plan.run, plan.round, plan.purpose)
        except Exception:
            session.close()
            raise
        state.purposes.add(plan.purpose)
        state.rows += rows
        if self._session is not None:
            self._session.close()
        self._round, self._session, self._center, self._terms = state, session, message.center, terms.joined(plan)
        return reply

    def _terms_for(self, plan: RoundPlan) -> RunTerms:
        """What was agreed beforehand; else what the first plan of this run said; else this is the first plan."""
        if self._agreed is not None or (self._terms is not None and self._terms.run == plan.run):
            return self._terms or RunTerms.of(plan)
        return RunTerms.of(plan)

    def _round_of(self, plan: RoundPlan, parameters: Parameters) -> _Round:
        """The state of this round, new or known; refuses what would reuse or confuse local models."""
        known = self._round
        latest = self._journal.latest(plan.run)
        if plan.round > latest:
            return _Round(run=plan.run, number=plan.round, parameters=parameters, fingerprint=fingerprint(parameters))
        if known is None or (known.run, known.number) != (plan.run, plan.round):
            raise ProtocolError(
                f"client {self._id}: round {plan.round} is over, the latest of run {plan.run!r} is {latest}"
            )
        if plan.purpose in known.purposes:
            raise ProtocolError(
                f"client {self._id}: run {plan.run!r}, round {plan.round}, purpose {plan.purpose!r} was answered already"
            )
        if len(known.purposes) >= self._policy.sums_per_round:
            raise PolicyError(
                f"client {self._id}: {len(known.purposes)} batches of sums about the local model of round {plan.round} "
                "were answered: this is the client's sums_per_round"
            )
        if fingerprint(parameters) != known.fingerprint:
            raise ProtocolError(f"client {self._id}: round {plan.round} came with another global model before")
        return known

    def _remember(self, state: _Round, session: ClientSession) -> None:
        """Write down what is about to be answered, and look at the sums again if it was nearly answered before."""
        trained = state.trained or {}
        model = session.plan.inputs.get("model", "")
        clip, bits = _rounding(session.plan)
        update = answered(
            state.parameters, trained, model=model, seed=self._journal.seed, clip=clip, fraction_bits=bits
        )
        self._journal.answer(update)
        self._look_again(session)

    def _look_again(self, session: ClientSession) -> None:
        """Count as one what is nearly this session's model in the record by now; another process may have added to it."""
        if self._log is not None and not session.closed:
            model = session.plan.inputs.get("model", "")
            near = akin_answers(model, self._journal.models, part=self._policy.near_model)
            self._count_as_one(session, near)

    def _count_as_one(self, session: ClientSession, near: Sequence[AnsweredModel]) -> None:
        """Count models as one for the promise, and refuse to clip or round their updates in two ways.

        Raises:
            PolicyError: If sums about them were clipped or rounded otherwise: of two such sums over the same clients the
                difference can be one client's. Or if what is planned would break the promise.
        """
        clip, bits = _rounding(session.plan)
        for one in near:
            if one.rounds_otherwise(clip, bits):
                raise PolicyError(
                    f"client {self._id}: nearly the same model was answered with clip {one.clip:g} and "
                    f"{one.fraction_bits} fraction bits, the plan has {clip:g} and {bits}: begin at another model"
                )
        session.count_as_one({one.model for one in near})

    def _masked(self, session: ClientSession, payload: bytes) -> bytes:
        if session.later:
            return session.masked(payload, {})
        state = self._round
        if session.closed or state is None:
            raise ProtocolError(f"client {self._id}: stage 'masked' is refused: the session is over")
        # Nothing is trained for a message that is not authentic.
        return session.masked(payload, lambda: self._train(state, session), self._center, base=state.parameters)

    def _train(self, state: _Round, session: ClientSession) -> Mapping[str, npt.NDArray[np.generic]]:
        """The trained model; trains only if this round has not been trained yet."""
        plan = session.plan
        if self._credentials is not None:
            require_own_inputs(plan, self._inputs)  # another process may have begun, with another configuration
        if state.trained is None:
            trained = self._client.train(state.parameters, round=state.number)
            _require_trained(trained, self._id)
            _require_shapes(plan, trained.parameters, self._id)
            state.samples = int(trained.samples)
            # A copy: a client that goes on training in the same memory must not change what later sums of the round see.
            state.trained = MappingProxyType({name: np.array(trained.parameters[name]) for name in state.parameters})
            if self._log is not None:
                self._remember(state, session)
        weight = plan.weights[self._id]
        if weight not in (1, state.samples):
            raise ProtocolError(
                f"client {self._id}: the plan gives it weight {weight}; 1 or its {state.samples} samples are allowed"
            )
        return state.trained


def _strictest(policy: ClientPolicy | None, terms: RunTerms | None, *, signed: bool) -> ClientPolicy:
    """What the policy and the agreed terms promise, together.

    Raises:
        SpecError: With identities, if that is less than two clients more than may collude.
    """
    if policy is None:
        policy = ClientPolicy() if signed else ANONYMOUS
    if terms is not None:
        policy = replace(
            policy,
            privacy=max(policy.privacy, terms.privacy),
            privacy_over_runs=max(policy.privacy_over_runs, terms.privacy_over_runs),
            largest_share=min(policy.largest_share, terms.largest_share),
            colluders=max(policy.colluders, terms.colluders),
        )
    if signed and policy.privacy < policy.colluders + 2:
        raise SpecError(
            f"this client has an identity, but its policy and terms promise {policy.privacy} clients with "
            f"{policy.colluders} colluders: at least {policy.colluders + 2} are needed, or the server could see one client. "
            f"Write a policy.toml with privacy = {policy.colluders + 2} or more, or give the agreed terms of the run"
        )
    return policy


def _rounding(plan: RoundPlan) -> tuple[float, int | None]:
    """Clip and fraction bits of the updates in a plan; of the Weiszfeld task the bits are as many as there can be."""
    return clip_of(plan), plan.encoding.fraction_bits if plan.task == "mean" else None


def _require_trained(trained: object, client: str) -> None:
    """Check the type of what `train` returned; a protocol cannot be checked when the client is registered."""
    if not isinstance(trained, TrainedModel):
        raise ShapeError(
            f"client {client}: train returned a {type(trained).__name__}; return "
            "fedgt.TrainedModel(parameters={name: array, ...}, samples=number of samples)"
        )


def _require_shapes(plan: RoundPlan, parameters: Parameters, client: str) -> None:
    """Check names and shapes of a model against the plan."""
    agreed = {tensor.name: tensor.shape for tensor in plan.tensors}
    if set(parameters) != set(agreed):
        there, wanted = plain(sorted(parameters)), plain(sorted(agreed))
        raise ShapeError(f"client {client}: the model has tensors {there}, agreed are {wanted}")
    for name, shape in agreed.items():
        if np.shape(parameters[name]) != shape:
            raise ShapeError(
                f"client {client}: tensor {name!r} has shape {np.shape(parameters[name])}, agreed is {shape}"
            )
