"""The client's side of one batch of secure sums: one call per stage, bytes in and bytes out, no I/O.

Double masking after Bonawitz et al. 2017 (Practical secure aggregation for privacy-preserving machine learning), one
independent instance per group. A message that cannot be read, is not the pinned server's, or is of another plan or stage
is refused and changes nothing: anybody can send one. What is authentic and breaks the protocol ends the session.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from fedgt.errors import PolicyError, ProtocolError, SpecError
from fedgt.ids import require_id
from fedgt.secagg.agreement_log import AgreementLog
from fedgt.secagg.challenge import Committed, split_seed
from fedgt.secagg.frames import Sender
from fedgt.secagg.identity import Credentials
from fedgt.secagg.masking import masked_reply
from fedgt.secagg.masks import GroupContext
from fedgt.secagg.membership import Membership, with_fresh_keys
from fedgt.secagg.messages import (
    GroupPart,
    StageMessage,
    read_begin_message,
    read_plan_message,
    read_stage_message,
    stage_message,
)
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.policy import ANONYMOUS, ClientPolicy
from fedgt.secagg.prekeys import Prekeys
from fedgt.secagg.requests import bare, require_request
from fedgt.secagg.signatory import Signatory
from fedgt.secagg.suspended_session import SuspendedSession
from fedgt.secagg.terms import RunTerms
from fedgt.secagg.turns import Turns
from fedgt.secagg.vector import Tensors

_Message = TypeVar("_Message")


class ClientSession:
    """One client in all its groups of one plan.

    The methods must be called once each, in the order of the stages (`begin` may stand for `keys` and `shares`); each takes
    the server's bytes and returns the client's. A group that this client cannot accept is refused alone (the server hears
    why). A message that is not authentic, not of this plan or not of the stage that is due raises `ProtocolError` and leaves
    everything as it was; whatever else the protocol forbids ends the session. After the unmask, or such an end, keys and
    shares are gone: bytearrays are zeroed; the private keys inside `cryptography` and short-lived `bytes` copies
    are only released, not overwritten.

    If the plan has later stages, the vector and the pads of their questions outlive the unmask. `further` begins such a
    stage, with fresh keys, and `shares`, `masked`, `agree` and `unmask` follow once more. `close` gives them up.

    Args:
        client: This client's id.
        minimum_group_size: Refuse to take part in, or help to open, a sum over fewer clients than this. The policy's own
            limit holds as well.
        policy: The client's limits.
        terms: What is pinned for the run; a plan that departs from it is refused.
        credentials: Its identity and the keys that it trusts. None is ANONYMOUS MODE, for simulations: nothing is signed,
            the stage "agree" does not exist, and a server that lies can open more than the sums (docs/threat-model.md).
        agreements: What it has signed and knows to be signed, with credentials; None begins a record that ends with the
            process.

    Raises:
        ProtocolError: If the minimum is below 1.
        SpecError: If the id cannot be one, or the credentials are another client's.

    Examples:
        >>> import numpy as np
        >>> from fedgt.errors import ProtocolError
        >>> from fedgt.secagg import ClientSession, RoundPlan, ServerSession, fit_fixed_point, tensor_specs
        >>> plan = RoundPlan(
        ...     run="example",
        ...     round=1,
        ...     purpose="training",
        ...     groups=(("ada", "bob"),),
        ...     thresholds=(2,),
        ...     weights={"ada": 1, "bob": 1},
        ...     encoding=fit_fixed_point(clip=8.0, fraction_bits=24, weight_sum=2),
        ...     tensors=tensor_specs({"weight": np.zeros(2)}),
        ... )
        >>> asked = ServerSession(plan).keys()["ada"]
        >>> try:
        ...     ClientSession("ada", minimum_group_size=3).keys(asked)
        ... except ProtocolError:
        ...     print("ada joins no sum of fewer than three")
        ada joins no sum of fewer than three
    """

    def __init__(
        self,
        client: str,
        *,
        minimum_group_size: int = 2,
        policy: ClientPolicy | None = None,
        terms: RunTerms | None = None,
        credentials: Credentials | None = None,
        agreements: AgreementLog | None = None,
    ) -> None:
        """Nothing is drawn before the plan is known."""
        if minimum_group_size < 1:
            raise ProtocolError(f"minimum_group_size is {minimum_group_size}; at least 1 is needed")
        if credentials is not None and (credentials.serves or credentials.identity.name != client):
            raise SpecError(f"client {client} has the credentials of {credentials.identity.name}: take its own")
        self._client = require_id(client, "client id")
        policy = ANONYMOUS if policy is None else policy
        self._policy = replace(policy, minimum_group_size=max(minimum_group_size, policy.minimum_group_size))
        self._terms = terms
        self._credentials = credentials
        self._identity = None if credentials is None else credentials.identity
        self._server = None if credentials is None else Sender(name="the server", public=credentials.registry.server)
        self._signatory: Signatory | None = None
        if credentials is not None:
            log = AgreementLog(credentials.registry) if agreements is None else agreements
            self._signatory = Signatory(credentials, self._policy, log)
        self._plan: RoundPlan | None = None
        self._groups: dict[int, Membership] = {}
        self._committed: Committed | None = None
        self._turns = Turns(client, signed=credentials is not None)

    @property
    def plan(self) -> RoundPlan:
        """The plan of the keys request.

        Raises:
            ProtocolError: Before the keys stage.
        """
        if self._plan is None:
            raise ProtocolError("this session has no plan yet: the keys stage comes first")
        return self._plan

    def count_as_one(self, models: Collection[str]) -> None:
        """Count other global models as the plan's own for this client's promise; only with credentials.

        Args:
            models: Their hashes.

        Raises:
            PolicyError: If what is planned would break the promise then.
        """
        if self._signatory is not None:
            self._signatory.count_as_one(self.plan, models, stage=self._turns.at)

    @property
    def later(self) -> bool:
        """Whether a later stage of the plan has begun: its vector is that of the first one, and nothing is trained."""
        return self._turns.at > 0

    @property
    def closed(self) -> bool:
        """Whether the session is over and its secrets are gone."""
        return self._turns.over

    def close(self) -> None:
        """End the session and forget its secrets."""
        self._forget_groups()
        if self._committed is not None:
            self._committed.forget()
            self._committed = None
        self._turns.end()

    def _forget_groups(self) -> None:
        for membership in self._groups.values():
            membership.forget()
        self._groups.clear()

    def suspend(self) -> bytes:
        """The session as bytes, secrets in clear, for another process to go on with; this object forgets it.

        Nothing stops the bytes from being resumed twice: a holder that does so breaks "each stage runs once".

        Raises:
            ProtocolError: Before the keys stage, or if the session is over: there is nothing to keep then.
        """
        if self.closed or self._plan is None:
            raise ProtocolError(f"client {self._client}: there is no open session to suspend")
        one = self._signatory
        signed, akin = (None, frozenset[str]()) if one is None else (one.signed, one.akin)
        suspended = SuspendedSession(
            plan=self._plan,
            stage=self._turns.next,
            groups=self._groups,
            signed=signed,
            akin=akin,
            committed=self._committed,
        ).to_bytes(self._client)
        self.close()
        return suspended

    def resume(self, suspended: bytes) -> None:
        """Go on where `suspend` left; only for a session that has not begun, made with the same arguments.

        Raises:
            ProtocolError: If this session has begun, or the bytes are not a suspended session of this client.
        """
        if self._turns.next or self._plan is not None:
            raise ProtocolError(f"client {self._client}: only a session that has not begun can resume another")
        known = SuspendedSession.from_bytes(suspended, client=self._client)
        self._turns.resume(known.plan, known.stage)
        self._plan, self._groups = known.plan, dict(known.groups)
        self._committed = known.committed
        if self._signatory is not None:
            self._signatory.signed, self._signatory.akin = known.signed, known.akin

    def keys(self, payload: bytes) -> bytes:
        """Stage "keys": read the plan, make fresh keys for each of this client's groups, publish the public halves.

        Raises:
            ProtocolError: If the plan is not valid, not the pinned server's, not within policy and terms, does not name
                this client, or all its groups are refused.
        """
        return self._run("keys", lambda: read_plan_message(payload, sender=self._server), self._keys)

    def shares(self, payload: bytes) -> bytes:
        """Stage "shares": share both secrets of each group among the clients that published keys.

        Raises:
            ProtocolError: If the request is malformed or not of this session, or a key is not its pinned owner's.
        """
        return self._run("shares", lambda: self._read("shares", payload), self._shares)

    def begin(self, payload: bytes, prekeys: Prekeys) -> bytes:
        """Stage "begin", in the place of "keys" and "shares": the plan comes with everybody's prekeys, the shares go back.

        Args:
            payload: The server's message.
            prekeys: This client's own, of which each is used once.

        Raises:
            ProtocolError: As `keys` and `shares`, or if the prekeys are for another round or too few.
        """
        return self._run(
            "keys", lambda: self._read_begin(payload, prekeys), lambda message: self._begin(*message, prekeys)
        )

    def masked(
        self,
        payload: bytes,
        update: Tensors | Callable[[], Tensors],
        center: Tensors | None = None,
        *,
        base: Tensors | None = None,
    ) -> bytes:
        """Stage "masked": the update, encoded and masked against the clients that shared.

        Args:
            payload: The server's message.
            update: Tensor name -> finite array of the agreed shape; or a function that gives it, such as the local training,
                which is called only when the request is authentic and every share that it brings has been read. In a later
                stage of the plan it is not used: what was masked first is masked again.
            center: The current Weiszfeld estimate; for that task only.
            base: Taken away from the update, in float64, a piece at a time: give the trained model as the update and the
                received one as the base, and no third model is ever in memory.

        Raises:
            ProtocolError: If the request is malformed or not of this session.
            ShapeError: If the update does not fit the plan or is not finite; the message names the tensor.
        """
        return self._run(
            "masked", lambda: self._read("masked", payload), lambda message: self._masked(message, update, center, base)
        )

    def agree(self, payload: bytes) -> bytes:
        """Stage "agree", with identities only: sign who is alive in all groups, before anything is opened.

        What is signed is on record before the signature leaves, and counts as opened from then on.

        Raises:
            ProtocolError: If the request is malformed, not of this session, contradicts itself or what was signed before.
            PolicyError: If a sum is smaller than this client allows, or what would be open breaks its promise.
        """
        return self._run("agree", lambda: self._read("agree", payload), self._agree)

    def unmask(self, payload: bytes) -> bytes:
        """Stage "unmask": of each group that may be opened, the shares that open it; then forget everything.

        Before a later stage of the plan only keys and shares are forgotten.

        For a client whose input is in, the share of its self-mask secret; for one that dropped, of its mask key; never
        both. With identities only under the one link that this client and a quorum of the registry have signed.

        Raises:
            ProtocolError: If the request is malformed, not of this session, or asks for what must stay secret.
        """
        reply = self._run("unmask", lambda: self._read("unmask", payload), self._unmask)
        if self.closed or self._committed is None:
            self.close()
        else:
            self._forget_groups()
        return reply

    def further(self, payload: bytes, allow: Callable[[], None] = lambda: None) -> bytes:
        """Message "further", in the place of "keys": a later stage of the plan begins, with fresh keys for its groups.

        Args:
            payload: The server's message.
            allow: Called before anything is answered, when the request is authentic and due; what it raises ends the
                session.

        Raises:
            ProtocolError: If the request is malformed, not of this session, or the vector of the first stage is lost.
        """
        return self._run("further", lambda: bare(self._read("further", payload)), lambda _: self._further(allow))

    def _run(self, stage: str, read: Callable[[], _Message], answer: Callable[[_Message], bytes]) -> bytes:
        """Each stage once and in order. What cannot be read changes nothing; an error of the answer ends the session."""
        message = self._turns.take(stage, read)
        try:
            return answer(message)
        except BaseException:
            self.close()
            raise

    def _keys(self, plan: RoundPlan) -> bytes:
        refused: dict[int, str] = {}
        return self._reply("keys", self._drawn(self._admitted(plan, refused)), refused)

    def _further(self, allow: Callable[[], None]) -> bytes:
        self._vector()
        allow()
        if self._signatory is not None:
            self._signatory.signed = None
        refused: dict[int, str] = {}
        return self._reply("further", self._drawn(self._willing(self.plan, refused)), refused)

    def _drawn(self, groups: list[int]) -> list[GroupPart]:
        """Fresh keys for these groups, and what is published of them."""
        drawn = [with_fresh_keys(self.plan, index, self._client, self._credentials) for index in groups]
        self._groups |= {part.group: membership for membership, part in drawn}
        return [part for _, part in drawn]

    def _read_begin(self, payload: bytes, prekeys: Prekeys) -> tuple[RoundPlan, Mapping[int, GroupPart]]:
        plan, published = read_begin_message(payload, sender=self._server)
        prekeys.spend(plan)
        return plan, published

    def _begin(self, plan: RoundPlan, published: Mapping[int, GroupPart], prekeys: Prekeys) -> bytes:
        self._turns.skip_to("masked")
        parts: list[GroupPart] = []
        refused: dict[int, str] = {}
        for index in self._admitted(plan, refused):
            part = published.get(index)
            membership = prekeys.membership(plan, index)
            if part is None or membership.position not in part.members:
                membership.forget()  # this group is over for the server, too
                continue
            self._groups[index] = membership
            signed_in = GroupContext.ahead(plan.run, plan.round, index)
            membership.read_public_keys(part, self._credentials, signed_in=signed_in)
            parts += self._shared_out(part, refused)
        return self._reply("shares", parts, refused)

    def _shared_out(self, part: GroupPart, refused: dict[int, str]) -> list[GroupPart]:
        """The shares for the peers that published keys; none, and the group is over, if these are too few."""
        if reason := self._policy.too_few(self.plan, part.group, len(part.members)):
            self._refuse(part.group, reason, refused)
            return []
        return [GroupPart(group=part.group, body=self._groups[part.group].share_out())]

    def _admitted(self, plan: RoundPlan, refused: dict[int, str]) -> list[int]:
        """This client's groups that it takes part in; the others are added to `refused`."""
        if self._client not in plan.clients:
            raise ProtocolError(f"client {self._client} is in no group of the plan")
        if len(plan.stages) > 1 and not plan.challenges:
            raise ProtocolError("a plan with later stages needs a challenge for each: two of its groups share a client")
        self._policy.require(plan)
        if self._terms is not None:
            self._terms.require(plan)
        willing = self._willing(plan, refused)
        if not willing:
            raise ProtocolError(f"client {self._client} refuses every group: {next(iter(refused.values()))}")
        self._plan = plan
        self._turns.expect(plan)
        if self._signatory is not None:  # all stages may be opened
            self._signatory.require_planned(plan)
        return willing

    def _willing(self, plan: RoundPlan, refused: dict[int, str]) -> list[int]:
        """The groups of the stage that this client takes part in; the others are added to `refused`."""
        mine = [index for index in plan.of_stage(self._turns.at) if self._client in plan.groups[index]]
        refusals = {index: self._policy.refusal(plan, index, self._client) for index in mine}
        refused |= {index: reason for index, reason in refusals.items() if reason}
        return [index for index in mine if index not in refused]

    def _shares(self, message: StageMessage) -> bytes:
        self._require("shares", message)
        parts: list[GroupPart] = []
        refused: dict[int, str] = {}
        for part in message.parts:
            self._groups[part.group].read_public_keys(part, self._credentials)
            parts += self._shared_out(part, refused)
        return self._reply("shares", parts, refused)

    def _masked(
        self,
        message: StageMessage,
        update: Tensors | Callable[[], Tensors],
        center: Tensors | None,
        base: Tensors | None,
    ) -> bytes:
        self._require("masked", message)
        if self._signatory is not None:
            self._signatory.catch_up(self.plan, message.attached, later=self.later)
        refused: dict[int, str] = {}
        unreadable: dict[int, tuple[int, ...]] = {}
        for part in message.parts:
            membership = self._groups[part.group]
            if reason := self._policy.too_few(self.plan, part.group, len(part.members)):
                self._refuse(part.group, reason, refused)
                continue
            if bad := membership.open_parcels(part, tagged=self._credentials is not None):
                unreadable[part.group] = bad
                # Of clients with another plan nothing can be read. So few shares show that most of the group has one.
                if len(part.members) - len(bad) < membership.threshold:
                    names = ", ".join(membership.clients[position] for position in bad)
                    self._refuse(part.group, f"the shares of {names} cannot be read", refused)
        tensors = self._vector() if self.later else update() if callable(update) else update
        mine, at = self._groups, self._turns.at
        reply, self._committed = masked_reply(
            self.plan, self._client, mine, refused, unreadable, tensors, center, base, self._identity, at=at
        )
        return reply

    def _agree(self, message: StageMessage) -> bytes:
        self._require("agree", message)
        if self._signatory is None or not message.attached:
            if message.parts:
                raise ProtocolError("sums are to be opened without an agreement")
            return self._reply("agree", [], {})
        for part in message.parts:
            self._groups[part.group].require_survivors(part)
            if reason := self._policy.too_few(self.plan, part.group, len(part.members)):
                raise PolicyError(f"group {part.group}: {reason}")
        seed, link = split_seed(self.plan, message.attached)
        answer = self._answer(seed)
        signature = self._signatory.sign(self.plan, link, message.parts, self._groups, stage=self._turns.at)
        parts = [GroupPart(group=part.group) for part in message.parts]
        return self._reply("agree", parts, {}, attached=signature + answer)

    def _unmask(self, message: StageMessage) -> bytes:
        self._require("unmask", message)
        answer = b""
        if self._signatory is not None and message.parts:
            self._signatory.require_quorum(self.plan, message.attached, message.parts, self._groups)
        if self._signatory is None and (message.parts or message.attached):
            answer = self._answer(message.attached)
        parts: list[GroupPart] = []
        refused: dict[int, str] = {}
        for part in message.parts:
            membership = self._groups[part.group]
            membership.require_survivors(part)
            if reason := self._policy.too_few(self.plan, part.group, len(part.members)):
                refused[part.group] = reason
                continue
            parts.append(GroupPart(group=part.group, body=membership.shares_for(part)))
        return self._reply("unmask", parts, refused, attached=answer)

    def _answer(self, seed: bytes | memoryview) -> bytes:
        """The answer to the plan's challenge; nothing if it has none."""
        return self._vector().answer(self.plan, seed, self._turns.at) if self.plan.challenges else b""

    def _vector(self) -> Committed:
        """What was masked in the first stage, which later stages and answers are about."""
        if self._committed is None:
            raise ProtocolError(f"client {self._client} has no vector any more")
        return self._committed

    def _reply(self, stage: str, parts: list[GroupPart], refused: Mapping[int, str], *, attached: bytes = b"") -> bytes:
        if stage == "shares" and self._signatory is not None:
            attached = self._signatory.head
        return stage_message(
            self.plan,
            stage,
            self._client,
            parts,
            refused,
            attached=attached,
            at=self._turns.at,
            identity=self._identity,
        )

    def _read(self, stage: str, payload: bytes) -> StageMessage:
        at = self._turns.at + (1 if stage == "further" else 0)
        return read_stage_message(payload, plan=self.plan, stage=stage, client=self._client, at=at, sender=self._server)

    def _require(self, stage: str, message: StageMessage) -> None:
        """Check what holds for the requests of every stage; groups that it does not mention are over."""
        seed = self._credentials is None and stage == "unmask" and self.plan.challenges
        attached = bool(seed) or (self._credentials is not None and stage != "shares")
        require_request(stage, message, self._client, self._groups, attached=attached)
        for index in set(self._groups) - {part.group for part in message.parts}:
            self._groups.pop(index).forget()

    def _refuse(self, group: int, reason: str, refused: dict[int, str]) -> None:
        self._groups.pop(group).forget()
        refused[group] = reason
