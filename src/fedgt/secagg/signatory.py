"""One client as a signatory: it looks at all that is to be opened, writes it down, signs it, and counts signatures."""

from collections.abc import Collection, Mapping, Sequence

from fedgt.errors import PolicyError, ProtocolError, SignatureError
from fedgt.secagg.account import require_promise
from fedgt.secagg.agreement import (
    Link,
    OpenedGroup,
    Row,
    links_from_json,
    planned_rows,
    quorum,
    signatures_from_json,
    valid_signatures,
)
from fedgt.secagg.agreement_log import AgreementLog, head_bytes
from fedgt.secagg.identity import Credentials
from fedgt.secagg.membership import Membership
from fedgt.secagg.messages import GroupPart
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.policy import ClientPolicy


class Signatory:
    """What one client checks, signs and remembers of agreements.

    Args:
        credentials: Its identity and the keys that it trusts.
        policy: Its limits; the promises among them are computed here.
        log: What it has signed and knows to be signed.
    """

    def __init__(self, credentials: Credentials, policy: ClientPolicy, log: AgreementLog) -> None:
        """Nothing is signed yet in this session."""
        self._client = credentials.identity.name
        self._identity = credentials.identity
        self._policy = policy
        self._log = log
        self.signed: Link | None = None
        self.akin: frozenset[str] = frozenset()

    @property
    def head(self) -> bytes:
        """Where this client's record ends, for the server to know what it has missed."""
        self._log.refresh()
        return head_bytes(self._log.head)

    def count_as_one(self, plan: RoundPlan, models: Collection[str], *, stage: int) -> None:
        """Count other global models, by their hashes, as the plan's own from this stage on.

        Raises:
            PolicyError: If what is planned would break the promise then.
        """
        more = frozenset(models) - self.akin - {plan.inputs.get("model", "")}
        if more:
            self.akin |= more
            self.require_planned(plan, since=stage)

    def require_planned(self, plan: RoundPlan, *, since: int = 0) -> None:
        """As `require_promise`, of everything that a plan may open from a stage on."""
        self.require_promise(plan, planned_rows(plan, since=since))

    def require_promise(self, plan: RoundPlan, rows: Sequence[Row]) -> None:
        """Refuse sums that, with all that was signed before, would break the client's promise.

        Raises:
            PolicyError: With the combination that would be revealed.
        """
        policy = self._policy
        if policy.privacy or policy.privacy_over_runs or policy.largest_share < 1:
            require_promise(
                self._log.account(),
                {plan.inputs.get("model", ""), *self.akin},
                rows,
                promised=policy.privacy,
                cautious=policy.privacy_over_runs,
                largest_share=policy.largest_share,
                colluders=policy.colluders,
                weights={**self._log.weights, **plan.weights},
            )

    def catch_up(self, plan: RoundPlan, missed: bytes | memoryview, *, later: bool) -> None:
        """Take over the agreements that this client has missed, and look at the plan again with them.

        One with fewer signatures than the quorum was asked for and may have failed: it counts all the same.

        Args:
            plan: The plan.
            missed: The agreements.
            later: Whether a later stage of it runs. Who is really there then shows when this client signs; here it would
                refuse for who has left.

        Raises:
            ProtocolError: If they do not follow the record, or what is planned now would break the promise.
        """
        for link, signatures in links_from_json(missed, registry=self._log.registry):
            valid = valid_signatures(link, self._log.registry, signatures)
            self._log.append(link)
            if valid:
                self._log.add_signatures(link.number, valid)
        self.require_promise(plan, () if later else planned_rows(plan))

    def sign(
        self,
        plan: RoundPlan,
        proposed: bytes | memoryview,
        parts: Sequence[GroupPart],
        groups: Mapping[int, Membership],
        *,
        stage: int = 0,
    ) -> bytes:
        """The signature on the agreement; it is on record, and counts as opened, before the signature leaves.

        Args:
            plan: The plan.
            proposed: The agreement.
            parts: What the server says of this client's groups.
            groups: What this client knows of them.
            stage: The stage of the plan: groups of another one are not opened under this agreement.

        Raises:
            ProtocolError: If the agreement is not about this plan or stage, contradicts what this client knows, or does not
                follow its record.
            PolicyError: If what would be open breaks its promise.
        """
        link = Link.from_json(proposed)
        link.require_plan(plan)
        opened = {one.group: one for one in link.groups}
        if strange := sorted(set(opened) - set(plan.of_stage(stage))):
            raise ProtocolError(f"the agreement opens group {strange[0]}, which is of another stage of the plan")
        if {index for index, one in opened.items() if self._client in one.alive} != {part.group for part in parts}:
            raise ProtocolError("the agreement opens other groups of this client than the request names")
        for part in parts:
            _require_lists(part, groups[part.group], opened)
            if opened[part.group].keys != groups[part.group].keys:
                raise ProtocolError(f"group {part.group}: the agreement is about other keys than this client was shown")
            if reason := self._policy.too_small(len(part.members)):
                raise PolicyError(f"group {part.group}: {reason}")
        self.require_promise(plan, link.rows)
        self._log.append(link)
        self.signed = link
        return link.sign(self._identity)

    def require_quorum(
        self, plan: RoundPlan, given: bytes | memoryview, parts: Sequence[GroupPart], groups: Mapping[int, Membership]
    ) -> None:
        """Check that the groups are those of the agreement that this client and a quorum of the registry have signed.

        Raises:
            ProtocolError: If other lists are to be opened.
            SignatureError: If there are too few signatures.
        """
        link, registry = self.signed, self._log.registry
        if link is None:
            raise ProtocolError(f"client {self._client} has signed no agreement about these sums")
        opened = {one.group: one for one in link.groups}
        for part in parts:
            _require_lists(part, groups[part.group], opened)
        signatures = valid_signatures(link, registry, signatures_from_json(given, registry=registry))
        needed = quorum(len(registry.clients), colluders=plan.colluders)
        if len(signatures) < needed:
            raise SignatureError(
                f"{len(signatures)} of {len(registry.clients)} clients of the registry agree on who is alive, {needed} are "
                "needed"
            )
        self._log.add_signatures(link.number, signatures)


def _require_lists(part: GroupPart, membership: Membership, opened: Mapping[int, OpenedGroup]) -> None:
    alive, dropped = (tuple(membership.clients[p] for p in positions) for positions in (part.members, part.dropped))
    one = opened.get(part.group)
    if one is None or (alive, dropped) != (one.alive, one.dropped):
        raise ProtocolError(f"group {part.group}: the server names other survivors than the agreement")
