"""What holds for the requests of every stage, whatever a stage asks for."""

from collections.abc import Mapping

from fedgt.errors import ProtocolError
from fedgt.secagg.membership import Membership
from fedgt.secagg.messages import StageMessage


def require_request(
    stage: str, message: StageMessage, client: str, groups: Mapping[int, Membership], *, attached: bool
) -> None:
    """Check a request that is authentic, and of the plan and stage that are due.

    Args:
        stage: Which stage it is of.
        message: The request.
        client: Who is asked.
        groups: Those in which this client still takes part.
        attached: Whether the stage may have something attached.

    Raises:
        ProtocolError: If it says what no honest server says in this stage.
    """
    if message.refused:
        raise ProtocolError("a server message cannot refuse groups")
    if message.attached and not attached:
        raise ProtocolError("this request has nothing attached")
    for part in message.parts:
        if part.group not in groups:
            raise ProtocolError(f"group {part.group} is none that client {client} takes part in")
        if groups[part.group].position not in part.members:
            raise ProtocolError(f"group {part.group}: client {client} itself is missing from its members")
        if stage == "masked" and not set(part.members) <= set(groups[part.group].peers):
            raise ProtocolError(f"group {part.group}: a client has shared that published no keys")
        if part.dropped and stage not in ("agree", "unmask"):
            raise ProtocolError(f"group {part.group}: dropped clients are named only when a sum is opened")
        if part.body and stage in ("agree", "unmask"):
            raise ProtocolError(f"group {part.group}: this request has no body")


def bare(message: StageMessage) -> StageMessage:
    """The request itself, which begins a further stage.

    Raises:
        ProtocolError: If it says anything about groups.
    """
    if message.parts or message.refused or message.attached:
        raise ProtocolError("the request for a further stage says nothing about groups")
    return message
