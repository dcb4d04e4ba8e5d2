"""The server's letters to the clients and back: who owes a reply, how long it must be, and who leaves for want of it."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from fedgt.errors import ProtocolError
from fedgt.foreign_text import plain
from fedgt.secagg.frames import Sender
from fedgt.secagg.identity import Credentials
from fedgt.secagg.messages import GroupPart, StageMessage, read_stage_message, stage_message
from fedgt.secagg.notary import Notary
from fedgt.secagg.opening import ServerGroup
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.questions import Questions

Requests: TypeAlias = dict[str, list[GroupPart]]
"""Client -> what it is asked about each of its groups."""

Check: TypeAlias = Callable[[ServerGroup, str, memoryview], None]
"""Raises `ProtocolError` if what a client says about a group is not good."""

_NOTHING: Mapping[str, bytes] = MappingProxyType({})


class Correspondence:
    """The requests of one plan and what comes back. A reply that is not good drops its client, never raises.

    Args:
        plan: The plan.
        groups: Its groups, from which clients are dropped.
        questions: Keeps the answers that replies end with.
        credentials: As of the session.
        notary: Says whether a client's record fits; None in anonymous mode.

    Attributes:
        at: The stage of the plan.
        due: Client -> group -> the bytes of the reply that is due; no reply of any other client is.
        left: Client -> at which message it has left, and why.
        attached: Client -> what its last reply had attached.
    """

    def __init__(
        self,
        plan: RoundPlan,
        groups: Sequence[ServerGroup],
        questions: Questions,
        *,
        credentials: Credentials | None,
        notary: Notary | None,
    ) -> None:
        """Nobody is asked yet."""
        self._plan = plan
        self._groups = groups
        self._questions = questions
        self._credentials = credentials
        self._notary = notary
        self.at = 0
        self.due: dict[str, dict[int, int]] = {}
        self.left: dict[str, str] = {}
        self.attached: dict[str, memoryview] = {}

    def everybody(self) -> Requests:
        """Requests for everybody who has not left, in a group of the stage or not; for nobody if the plan has one stage."""
        requests: Requests = {}
        if len(self._plan.stages) > 1:
            requests = {client: [] for client in self._plan.clients if client not in self.left}
        for client in requests:
            self.due.setdefault(client, {})
        return requests

    def ask(self, requests: Requests, group: ServerGroup, position: int, part: GroupPart, reply: int) -> None:
        """Queue a part for a client and note how many bytes must come back."""
        client = group.clients[position]
        requests.setdefault(client, []).append(part)
        self.due.setdefault(client, {})[group.index] = reply

    def messages(
        self, stage: str, requests: Mapping[str, Sequence[GroupPart]], attached: Mapping[str, bytes] = _NOTHING
    ) -> dict[str, bytes]:
        """The message to each client that is asked."""
        return {
            client: stage_message(
                self._plan,
                stage,
                client,
                requests[client],
                attached=attached.get(client, b""),
                at=self.at,
                identity=None if self._credentials is None else self._credentials.identity,
            )
            for client in sorted(requests)
        }

    def collect(
        self, stage: str, replies: Mapping[str, bytes], failures: Mapping[str, str], check: Check | None = None
    ) -> dict[int, dict[int, memoryview]]:
        """Read all replies that are due: group -> position -> body."""
        self.attached = {}
        collected: dict[int, dict[int, memoryview]] = {group.index: {} for group in self._groups}
        for client in list(self.due):
            for index, body in self.take(stage, client, replies, failures, check).items():
                collected[index][self._groups[index].clients.index(client)] = body
        return collected

    def take(
        self,
        stage: str,
        client: str,
        replies: Mapping[str, bytes],
        failures: Mapping[str, str],
        check: Check | None = None,
    ) -> dict[int, memoryview]:
        """The good bodies of one client by group; from the other groups that were asked for it is dropped."""
        lengths = self.due.pop(client)
        bodies, problems = self._read(stage, client, lengths, replies, failures)
        for index in lengths:
            group = self._groups[index]
            if index in bodies and check is not None:
                try:
                    check(group, client, bodies[index])
                except ProtocolError as error:
                    problems[index] = str(error)
                    del bodies[index]
            if index not in bodies:
                group.drop(client, f"{stage}: {problems[index]}")
        return bodies

    def _read(
        self,
        stage: str,
        client: str,
        lengths: Mapping[int, int],
        replies: Mapping[str, bytes],
        failures: Mapping[str, str],
    ) -> tuple[dict[int, memoryview], dict[int, str]]:
        """Bodies by group, and for every other group that was asked for the reason why there is none."""
        try:
            if client in failures or client not in replies:
                raise ProtocolError(failures.get(client, "no reply"))
            message = self._parse(stage, client, replies[client])
            self.attached[client] = self._questions.read(stage, client, memoryview(message.attached))
            if stage == "shares" and self._notary is not None:
                self._notary.missed(self.attached[client])  # its record must be a beginning of the one here
        except ProtocolError as error:
            self.left.setdefault(client, plain(f"{stage}: {error}"))
            return {}, dict.fromkeys(lengths, str(error))
        bodies: dict[int, memoryview] = {}
        problems = dict.fromkeys(lengths, "no answer for this group")
        problems |= {index: f"refused: {reason}" for index, reason in message.refused.items()}
        for index in set(message.unreadable) & set(lengths):
            self._groups[index].complain(client, message.unreadable[index], refuses=index in message.refused)
        for part in message.parts:
            if part.group not in lengths:
                continue
            if len(part.body) == lengths[part.group]:
                bodies[part.group] = memoryview(part.body)
            else:
                problems[part.group] = f"{len(part.body)} bytes where {lengths[part.group]} are due"
        return bodies, problems

    def _parse(self, stage: str, client: str, payload: bytes) -> StageMessage:
        sender = None
        if self._credentials is not None:
            sender = Sender(name=client, public=self._credentials.registry.client_key(client))
        return read_stage_message(
            payload,
            plan=self._plan,
            stage=stage,
            client=client,
            at=self.at,
            sender=sender,
            in_place=stage == "masked",
        )
