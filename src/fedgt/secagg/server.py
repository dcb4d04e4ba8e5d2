"""The server's side of one batch of secure sums: one call per stage, bytes in and bytes out, no I/O.

`keys()` and `shares(...)`, or `begin(...)` in their place; `masked(...)`, with identities `agree(...)`, and `unmask(...)`
each return one message per client for that stage; `results` returns one `GroupSum` per group. If the plan has a later stage,
`further()` may begin it, in the place of `keys()`, and the others follow once more.

What a client does wrong costs that client, at worst its groups, never an exception.
"""

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.poly1305 import Poly1305

from fedgt.errors import ProtocolError, SignatureError, SpecError
from fedgt.foreign_text import plain
from fedgt.secagg.agreement_log import AgreementLog
from fedgt.secagg.challenge import pad_bytes
from fedgt.secagg.correspondence import Check, Correspondence, Requests
from fedgt.secagg.faults import Fault, complaints, erase_faulty, erase_unreadable, strike
from fedgt.secagg.group_sum import Authorise, GroupSum
from fedgt.secagg.identity import Credentials
from fedgt.secagg.masks import KEY_BYTES, TAG_BYTES, GroupContext, tag_key
from fedgt.secagg.membership import public_bytes, require_usable, shared_bytes, verify_keys
from fedgt.secagg.messages import SIGNED_STAGES, STAGES, GroupPart, begin_message, plan_message
from fedgt.secagg.notary import Notary
from fedgt.secagg.opening import ServerGroup, hashes_for, open_group, parcel_for
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.prekeys import read_prekeys
from fedgt.secagg.questions import Questions
from fedgt.secagg.shares import SHARE_BYTES
from fedgt.secagg.vector import read_sum

logger = logging.getLogger(__name__)

_NO_FAILURES: Mapping[str, str] = MappingProxyType({})


class ServerSession:
    """All groups of one plan, from the keys to the sums.

    The methods must be called in order. Each takes the replies to the messages that the one before returned (client ->
    bytes) and the failures (client -> reason); a client in neither has not replied. A server that restarts has lost the
    round: no client answers the same (run, round, purpose) again, and nothing of it can be opened.

    Args:
        plan: What is to be summed.
        credentials: The server's identity and the clients' keys. None is ANONYMOUS MODE, for simulations.
        agreements: What the clients have signed, with credentials; it must go on over rounds, runs and restarts. None begins
            a new record, which clients that have signed before refuse.
        seeds: Of the plan's challenges, if it has any: fresh, and shown to nobody before all vectors of their stage have
            arrived.

    Raises:
        SpecError: If the credentials are a client's.
        ProtocolError: If the seeds are not those of the plan.

    Examples:
        >>> import numpy as np
        >>> from fedgt.secagg import ClientSession, RoundPlan, ServerSession, fit_fixed_point, tensor_specs
        >>> names = ("ada", "bob", "cleo")
        >>> plan = RoundPlan(
        ...     run="example",
        ...     round=1,
        ...     purpose="training",
        ...     groups=(names,),
        ...     thresholds=(3,),
        ...     weights=dict.fromkeys(names, 1),
        ...     encoding=fit_fixed_point(clip=8.0, fraction_bits=24, weight_sum=3),
        ...     tensors=tensor_specs({"weight": np.zeros(2)}),
        ... )
        >>> server, clients = ServerSession(plan), {name: ClientSession(name) for name in names}
        >>> asked = server.keys()  # one message for each client; a transport carries it
        >>> replies = {name: clients[name].keys(message) for name, message in asked.items()}
        >>> sorted(server.shares(replies))  # and so on, stage by stage: `fedgt.secure_sums` does all of them
        ['ada', 'bob', 'cleo']
    """

    def __init__(
        self,
        plan: RoundPlan,
        *,
        credentials: Credentials | None = None,
        agreements: AgreementLog | None = None,
        seeds: Sequence[bytes] = (),
    ) -> None:
        """Everybody is expected."""
        if credentials is not None and not credentials.serves:
            raise SpecError(f"the server has the credentials of client {credentials.identity.name}: take its own")
        self._plan = plan
        self._questions = Questions(plan, seeds, signed=credentials is not None)
        self._sums: dict[int, GroupSum] = {}
        self._faults: tuple[Fault, ...] = ()
        self._struck: tuple[int, ...] = ()
        self._credentials = credentials
        self._identity = None if credentials is None else credentials.identity
        self._notary: Notary | None = None
        if credentials is not None:
            self._notary = Notary(AgreementLog(credentials.registry) if agreements is None else agreements)
        self._tag_key = X25519PrivateKey.generate()
        self._order = (*(STAGES if credentials is None else SIGNED_STAGES), "results")
        self._groups = [
            ServerGroup(
                index=index,
                published_in=GroupContext.of(plan, index),
                clients=clients,
                threshold=threshold,
                present=set(range(len(clients))),
                reason="" if clients else "the group has no clients",
            )
            for index, (clients, threshold) in enumerate(zip(plan.groups, plan.thresholds, strict=True))
        ]
        self._letters = Correspondence(
            plan, self._groups, self._questions, credentials=credentials, notary=self._notary
        )
        self._next = 0
        if plan.encoding.warning is not None:
            logger.warning("%s", plan.encoding.warning)

    def keys(self) -> dict[str, bytes]:
        """Stage 1, requests: the plan."""
        self._advance("keys")
        self._expect_keys()
        message = plan_message(self._plan, identity=self._identity)
        return dict.fromkeys(self._plan.clients, message)

    def further(self) -> dict[str, bytes]:
        """Message "further", requests: the next stage of the plan begins. Everybody who has left by now is left out of it.

        Raises:
            ProtocolError: If the stage before is not over, or was the last.
        """
        if self._next < len(self._order) or not self.later:
            raise ProtocolError(
                "'further' was called out of order: it follows the results of a stage that is not the last"
            )
        self._letters.at += 1
        self._next = 1
        if self._notary is not None:
            self._notary.begin()
        self._questions.show(self._letters.at, ())  # nobody has answered about this stage
        for group in self._current():
            for client in group.clients:
                if client in self._letters.left:
                    group.drop(client, self._letters.left[client])
        self._expect_keys()
        self._require_thresholds("further")
        return self._letters.messages("further", self._letters.everybody())

    @property
    def later(self) -> bool:
        """Whether the plan has a stage that has not begun."""
        return self._letters.at + 1 < len(self._plan.stages)

    def _expect_keys(self) -> None:
        self._letters.due = {
            client: {
                group.index: public_bytes(self._credentials)
                for group in self._current()
                if client in group.clients and not group.reason
            }
            for client in self._plan.clients
            if client not in self._letters.left
        }

    def shares(self, replies: Mapping[str, bytes], failures: Mapping[str, str] = _NO_FAILURES) -> dict[str, bytes]:
        """Stage 2, requests: everybody's public keys."""
        self._advance("shares")
        collected = self._collect("further" if self._letters.at else "keys", replies, failures, self._check_keys)
        requests = self._letters.everybody()
        for group in self._running():
            group.public = collected[group.index]
            self._ask_for_shares(requests, group)
        return self._letters.messages("shares", requests)

    def begin(self, published: Mapping[str, bytes], failures: Mapping[str, str] = _NO_FAILURES) -> dict[str, bytes]:
        """Stages 1 and 2 in one, requests: the plan and everybody's prekeys, one message for all. Next comes `masked`.

        Args:
            published: Client -> the message with its prekeys for this run and round.
            failures: Client -> why it has published none.
        """
        self._advance("keys")
        self._advance("shares")
        prekeys: dict[str, tuple[memoryview, ...]] = {}
        reasons = dict(failures)
        for client in self._plan.clients:
            try:
                if client in published and client not in failures:
                    prekeys[client] = read_prekeys(
                        published[client], client=client, plan=self._plan, credentials=self._credentials
                    )
            except ProtocolError as error:
                reasons[client] = str(error)
        for group in self._current():
            group.published_in = GroupContext.ahead(self._plan.run, self._plan.round, group.index)
            for position, client in enumerate(group.clients):
                try:
                    if client not in prekeys:
                        raise ProtocolError(reasons.get(client, "it has published no keys for this round"))
                    self._check_keys(group, client, prekeys[client][group.index])
                    group.public[position] = prekeys[client][group.index]
                except ProtocolError as error:
                    group.drop(client, f"keys: {error}")
        self._require_thresholds("keys")
        self._letters.left = {
            client: plain(f"keys: {reasons.get(client, 'no keys')}")
            for client in self._plan.clients
            if client not in prekeys
        }
        self._letters.due = {}
        requests = self._letters.everybody()
        parts = [self._ask_for_shares(requests, group) for group in self._running()]
        message = begin_message(self._plan, parts, identity=self._identity)
        return dict.fromkeys(sorted(requests), message)

    def masked(self, replies: Mapping[str, bytes], failures: Mapping[str, str] = _NO_FAILURES) -> dict[str, bytes]:
        """Stage 3, requests: to each client the encrypted shares that its peers made for it."""
        self._advance("masked")
        published = {group.index: tuple(sorted(group.present)) for group in self._groups}
        collected = self._collect("shares", replies, failures)
        signed = self._credentials is not None
        vector = self._plan.length * self._plan.encoding.dtype.itemsize
        tag = TAG_BYTES if signed else 0
        server = [self._tag_key.public_key().public_bytes_raw()] if signed else []
        requests = self._letters.everybody()
        for group in self._running():
            length = vector + pad_bytes(self._plan, group.index) + tag
            group.sharers = tuple(sorted(group.present))
            shared, everybody = collected[group.index], published[group.index]
            group.hashes = {
                sender: {holder: hashes_for(shared[sender], everybody, sender, holder) for holder in group.sharers}
                for sender in group.sharers
            }
            for receiver in group.sharers:
                parcels = [
                    parcel_for(shared[sender], everybody, sender, receiver)
                    for sender in group.sharers
                    if sender != receiver
                ]
                part = GroupPart(group=group.index, members=group.sharers, body=b"".join([*server, *parcels]))
                self._letters.ask(requests, group, receiver, part, length)
        missed = {}
        if self._notary is not None:
            missed = {client: self._notary.missed(self._letters.attached[client]) for client in requests}
        return self._letters.messages("masked", requests, missed)

    def receive(self, client: str, payload: bytes) -> None:
        """Take one reply of the masked stage as it arrives; it need not be kept then, nor given again.

        Raises:
            ProtocolError: If no reply of this client is due.
        """
        if self._next != self._order.index("masked") + 1 or client not in self._letters.due:
            raise ProtocolError(f"no masked input of client {client} is due")
        self._add_input(client, {client: payload}, _NO_FAILURES)

    def agree(
        self, replies: Mapping[str, bytes], failures: Mapping[str, str] = _NO_FAILURES, *, authorise: Authorise
    ) -> dict[str, bytes]:
        """Stage "agree", requests, with identities only: of each group that may be opened, who is alive and who dropped.

        Takes the replies of the masked stage, less those that `receive` has taken, and asks `authorise` as `unmask` does
        in anonymous mode.

        Raises:
            ProtocolError: As `unmask`.
        """
        self._advance("agree")
        return self._ask_to_open("agree", replies, failures, authorise, 0)

    def unmask(
        self,
        replies: Mapping[str, bytes],
        failures: Mapping[str, str] = _NO_FAILURES,
        *,
        authorise: Authorise | None = None,
    ) -> dict[str, bytes]:
        """Stage "unmask", requests: of each group that may be opened, who is alive and who dropped.

        In anonymous mode this takes the replies of the masked stage, less those that `receive` has taken. `authorise` is
        asked once, before any request exists, unless every group is lost already. With identities it takes the replies of
        the agree stage, at which `authorise` was asked. Every client whose input is in gets a message, even if it names
        no group: it ends that client's session, so that a withheld sum can never be opened later.

        Raises:
            ProtocolError: If `authorise` does not answer for each group, is missing, or is given where it was asked
                before. What it raises itself is passed on; nothing has been opened then.
        """
        self._advance("unmask")
        if (authorise is None) != (self._credentials is not None):
            raise ProtocolError("authorise belongs to the stage after masked: agree with identities, else unmask")
        if authorise is not None:
            return self._ask_to_open("unmask", replies, failures, authorise, SHARE_BYTES)
        self._collect("agree", replies, failures, self._check_agreement)
        signatures = b""
        if self._notary is not None:
            signatures = self._notary.counted(self._letters.attached, self._running(), colluders=self._plan.colluders)
        requests: Requests = {client: [] for client in self._finished()}
        for group in self._running():
            part = GroupPart(group=group.index, members=group.alive, dropped=group.gone)
            for position in sorted(group.present.intersection(group.alive)):
                self._letters.ask(requests, group, position, part, SHARE_BYTES * len(group.sharers))
        return self._letters.messages("unmask", requests, dict.fromkeys(requests, signatures))

    def results(self, replies: Mapping[str, bytes], failures: Mapping[str, str] = _NO_FAILURES) -> tuple[GroupSum, ...]:
        """The sums, one per group of the stages until now; lost and withheld groups are erasures that say why.

        Sums of an earlier stage that a later one contradicts are erasures from then on, and so are those whose members it
        has not all seen again.
        """
        self._advance("results")
        running = self._running()
        collected = self._collect("unmask", replies, failures)
        self._faults += erase_unreadable(self._running(), collected)
        for group in running:
            if not group.reason:
                try:
                    open_group(self._plan, group, collected[group.index])
                except ProtocolError as error:
                    group.reason = plain(f"unmask: {error}")
        open_until_now = self._groups[: self._plan.of_stage(self._letters.at).stop]
        seed, answers = self._questions.seed(self._letters.at), self._questions.answers
        self._faults += erase_faulty(self._plan, open_until_now, seed, answers, self._letters.at)
        self._struck += strike(self._plan, open_until_now, self._letters.at)
        return tuple(self._result(group) for group in open_until_now)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What groups show about their members, once there are results."""
        return self._faults

    @property
    def struck(self) -> tuple[int, ...]:
        """The groups of earlier stages that are given up because a member was not seen again."""
        return self._struck

    def _advance(self, stage: str) -> None:
        if self._next >= len(self._order) or self._order[self._next] != stage:
            raise ProtocolError(f"{stage!r} was called out of order: the order is {', '.join(self._order)}, once each")
        self._next += 1

    def _ask_to_open(
        self,
        stage: str,
        replies: Mapping[str, bytes],
        failures: Mapping[str, str],
        authorise: Authorise,
        per_sharer: int,
    ) -> dict[str, bytes]:
        """The inputs are complete: who is alive is decided here, and what may be opened."""
        for client in list(self._letters.due):
            self._add_input(client, replies, failures)
        self._faults += complaints(self._current())
        self._faults += erase_unreadable(self._running(), {group.index: group.alive for group in self._groups})
        self._require_thresholds("masked")
        for group in self._current():
            group.alive = tuple(sorted(group.alive))
        if self._running():
            self._authorise(authorise)
        requests: Requests = {client: [] for client in self._finished()}
        for group in self._current():
            if group.reason:
                group.total = None
                continue
            part = GroupPart(group=group.index, members=group.alive, dropped=group.gone)
            for position in group.alive:
                self._letters.ask(requests, group, position, part, per_sharer * len(group.sharers))
        if stage != "agree":
            asked = {client for client, parts in requests.items() if parts}
            asked |= set(self._letters.everybody()) if self._running() else set()
            return self._letters.messages(
                stage, requests, dict.fromkeys(asked, self._questions.show(self._letters.at, asked))
            )
        for client in requests:
            self._letters.due.setdefault(client, {})  # all sign, also those of whom no group is opened
        if self._notary is None or not self._running():
            return self._letters.messages(stage, requests)
        link = self._notary.propose(self._plan, self._running())
        seed = self._questions.show(self._letters.at, requests)
        return self._letters.messages(stage, requests, dict.fromkeys(requests, seed + link))

    def _finished(self) -> set[str]:
        """Every client whose input is in some group of the stage; with several stages, everybody who has not left."""
        return {group.clients[position] for group in self._current() for position in group.alive} | set(
            self._letters.everybody()
        )

    def _current(self) -> list[ServerGroup]:
        """The groups of the stage."""
        now = self._plan.of_stage(self._letters.at)
        return self._groups[now.start : now.stop]

    def _ask_for_shares(self, requests: Requests, group: ServerGroup) -> GroupPart:
        """Queue everybody's public keys for all members of a group."""
        members = tuple(sorted(group.present))
        part = GroupPart(group=group.index, members=members, body=b"".join(group.public[one] for one in members))
        for position in members:
            self._letters.ask(requests, group, position, part, shared_bytes(len(members)))
        return part

    def _require_thresholds(self, stage: str) -> None:
        for group in self._current():
            group.require_threshold(stage)

    def _collect(
        self, stage: str, replies: Mapping[str, bytes], failures: Mapping[str, str], check: Check | None = None
    ) -> dict[int, dict[int, memoryview]]:
        """Read all replies: group -> position -> body. Who gave none leaves its groups, and some groups are lost."""
        collected = self._letters.collect(stage, replies, failures, check)
        self._require_thresholds(stage)
        return collected

    def _add_input(self, client: str, replies: Mapping[str, bytes], failures: Mapping[str, str]) -> None:
        """Add one client's masked vectors to the totals of its groups."""
        for index, body in self._letters.take("masked", client, replies, failures, self._check_input).items():
            vector = np.frombuffer(body, dtype=self._plan.encoding.dtype, count=self._plan.length)
            self._groups[index].add(client, vector, self._questions.pads(index, body[vector.nbytes :]))

    def _running(self) -> list[ServerGroup]:
        return [group for group in self._current() if not group.reason]

    def _check_keys(self, group: ServerGroup, client: str, body: memoryview) -> None:
        """What one client publishes badly is its own fault: its peers never see it, and their sessions go on."""
        if self._credentials is not None:
            verify_keys(self._credentials, group.published_in, client, body)
        require_usable(self._tag_key, body)

    def _check_input(self, group: ServerGroup, client: str, body: memoryview) -> None:
        self._questions.pads(group.index, body[self._plan.length * self._plan.encoding.dtype.itemsize :])
        if self._credentials is None:
            return
        public = group.public[group.clients.index(client)]
        key = tag_key(GroupContext.of(self._plan, group.index), self._tag_key, public[:KEY_BYTES], client)
        try:
            Poly1305.verify_tag(key, body[:-TAG_BYTES], bytes(body[-TAG_BYTES:]))
        except InvalidSignature as error:
            raise SignatureError("the masked vector was changed on its way") from error

    def _check_agreement(self, group: ServerGroup, client: str, body: memoryview) -> None:
        if self._notary is not None:
            self._notary.require_signed(client, self._letters.attached[client])

    def _authorise(self, authorise: Authorise) -> None:
        """Ask for every group that could be opened; mark the withheld ones."""
        running = {group.index for group in self._running()}
        members = tuple(
            tuple(group.clients[position] for position in group.alive) if group.index in running else ()
            for group in self._groups
        )
        answers = authorise(members)
        if len(answers) != len(members):
            raise ProtocolError(f"authorise answered for {len(answers)} groups, {len(members)} were asked about")
        for group, answer in zip(self._groups, answers, strict=True):
            if answer is not None and group.index in running:
                group.reason = f"withheld: {answer}"

    def _result(self, group: ServerGroup) -> GroupSum:
        total = group.total
        if group.reason or not self.later:
            group.total = None  # a later stage looks at it again
        before = self._sums.get(group.index)
        if before is not None and before.reason == group.reason:
            return before
        members = group.members
        opened = None if group.reason or total is None else read_sum(self._plan, total)
        self._sums[group.index] = GroupSum(
            group=group.index,
            members=members,
            dropped=MappingProxyType(dict(group.dropped)),
            status="erased" if opened is None else "open",
            reason=group.reason,
            total=None if opened is None else opened.total,
            weight=self._plan.weight_of(group.index, members),
            clipped=0 if opened is None else opened.clipped,
            beta_total=None if opened is None else opened.beta_total,
            faults=MappingProxyType(dict(group.faults)),
        )
        return self._sums[group.index]
