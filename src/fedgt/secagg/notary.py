"""The server's side of the agreements: what the clients are asked to sign, and whether enough of them have."""

from collections.abc import Mapping, Sequence

from fedgt.secagg.agreement import Link, links_to_json, quorum, signatures_to_json, valid_signatures
from fedgt.secagg.agreement_log import AgreementLog, read_head
from fedgt.secagg.opening import ServerGroup
from fedgt.secagg.plan import RoundPlan


class Notary:
    """What the server writes down before anybody signs it, and the signatures that come back.

    Args:
        log: What the clients have signed so far.
    """

    def __init__(self, log: AgreementLog) -> None:
        """Nothing is proposed yet."""
        self._log = log
        self._link: Link | None = None

    def begin(self) -> None:
        """A stage of the plan begins: nothing of it is proposed yet."""
        self._link = None

    def missed(self, head: bytes | memoryview) -> bytes:
        """The agreements that a client has not heard of, whose record ends here.

        Raises:
            ProtocolError: If its record is no beginning of this one.
        """
        return links_to_json(self._log.after(read_head(head)))

    def propose(self, plan: RoundPlan, groups: Sequence[ServerGroup]) -> bytes:
        """The agreement about all groups that are to be opened: on record before anybody hears of it."""
        self._log.refresh()
        head = self._log.head
        alive = sorted({client for group in groups for client in group.members})
        self._link = Link(
            number=head.number + 1,
            previous=head.digest,
            plan=plan.digest,
            run=plan.run,
            round=plan.round,
            purpose=plan.purpose,
            task=plan.task,
            model=plan.inputs.get("model", ""),
            weights={client: plan.weights[client] for client in alive},
            groups=tuple(group.opened(plan) for group in groups),
        )
        self._log.append(self._link)
        return self._link.to_json()

    def require_signed(self, client: str, signature: bytes | memoryview) -> None:
        """Check what a client gives as its signature.

        Raises:
            SignatureError: If it is not one of this client on what was proposed.
        """
        if self._link is not None:
            self._link.require_signed(self._log.registry, client, signature)

    def counted(
        self, given: Mapping[str, bytes | memoryview], groups: Sequence[ServerGroup], *, colluders: int
    ) -> bytes:
        """The good signatures on the agreement; all these groups are lost if they are too few."""
        if self._link is None:
            return signatures_to_json({})
        registry = self._log.registry
        signatures = valid_signatures(
            self._link, registry, {client: bytes(signature) for client, signature in given.items()}
        )
        needed = quorum(len(registry.clients), colluders=colluders)
        if len(signatures) < needed:
            for group in groups:
                group.reason = (
                    f"agree: {len(signatures)} of {len(registry.clients)} clients of the registry agree on who is alive, "
                    f"{needed} are needed"
                )
        self._log.add_signatures(self._link.number, signatures)
        return signatures_to_json(signatures)
