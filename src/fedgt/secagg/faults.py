"""What opened sums show about their members: that at least one has broken the rules. Such sums are none."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fedgt.errors import ProtocolError
from fedgt.secagg.challenge import products
from fedgt.secagg.consistency import Equation, misfits
from fedgt.secagg.field import field_for
from fedgt.secagg.opening import ServerGroup
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.vector import require_range, signed


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What groups show together: at least one of these clients has broken the rules, and nothing says which.

    Attributes:
        kind: "complaint": one of the two has dealt shares that cannot be read, or the other says so falsely. "parcels": of
            such complaints there are too many in a group to open it. "range": the sum is one that its members cannot reach.
            "vectors": no vector of each client, the same in all its groups, fits the sums and the answers.
        groups: The groups. Their sums are erased, but for complaints, which by themselves cost nothing.
        suspects: The two of a complaint; of another fault everybody in the groups, sorted.

    Examples:
        >>> from fedgt.secagg import Fault
        >>> fault = Fault(kind="range", groups=(2,), suspects=("ada", "bob", "cleo"))
        >>> fault.suspects  # somebody of them, and nobody knows who: being named here is no reason to be left out
        ('ada', 'bob', 'cleo')
    """

    kind: Literal["complaint", "parcels", "range", "vectors"]
    groups: tuple[int, ...]
    suspects: tuple[str, ...]

    @property
    def erases(self) -> bool:
        """Whether the sums of the groups are erased."""
        return self.kind != "complaint"


def complaints(groups: Sequence[ServerGroup]) -> tuple[Fault, ...]:
    """Who cannot read whose shares, or says so: one fault for each two clients. Which of them lies, nobody can say.

    Args:
        groups: All groups of a stage, when all vectors have arrived.
    """
    pairs: dict[tuple[str, ...], list[int]] = {}
    for group in groups:
        for dealer, holders in group.complaints.items():
            for holder in holders:
                pair = tuple(sorted((group.clients[dealer], group.clients[holder])))
                pairs.setdefault(pair, []).append(group.index)
    return tuple(
        Fault(kind="complaint", groups=tuple(sorted(set(where))), suspects=pair)
        for pair, where in sorted(pairs.items())
    )


def erase_unreadable(groups: Sequence[ServerGroup], there: Mapping[int, Collection[int]]) -> tuple[Fault, ...]:
    """Give up the groups that could be opened if nobody complained of shares.

    So are those in which somebody takes no part because it can read too few. Without it the group could go on, but then
    dealers could choose whose updates are in the sums beside their own.

    Args:
        groups: Those that may still be opened.
        there: Group -> who can still release shares in it, by position.
    """
    faults = []
    for group in groups:
        here = there[group.index]
        short = [dealer for dealer in group.sharers if len(group.holders(dealer, here)) < group.threshold <= len(here)]
        if short or group.refusing:
            names = ", ".join(group.clients[position] for position in short or sorted(group.complaints))
            group.reason = (
                f"masked: too many members cannot read the shares of {names}: at least one has broken the rules"
            )
            suspects = (group.clients[position] for position in group.sharers)
            faults.append(Fault(kind="parcels", groups=(group.index,), suspects=tuple(sorted(suspects))))
    return tuple(faults)


def erase_faulty(
    plan: RoundPlan, groups: Sequence[ServerGroup], seed: bytes, answers: Mapping[str, int], stage: int = 0
) -> tuple[Fault, ...]:
    """Look at all opened groups of a plan together; those at fault get a reason, and are no sums from then on.

    Args:
        plan: The plan.
        groups: All of its groups up to this stage; those with a reason are passed over.
        seed: Of the challenge of the stage, if there is one.
        answers: Client -> its answer.
        stage: Whose groups were opened just now.
    """
    faults = []
    for group in _open(groups[plan.of_stage(stage).start :]):
        try:
            require_range(plan, group.index, group.total, group.members)  # type: ignore[arg-type]
        except ProtocolError as error:
            group.reason = f"unmask: {error}"
            faults.append(Fault(kind="range", groups=(group.index,), suspects=tuple(sorted(group.members))))
    if not plan.challenges:
        return tuple(faults)
    opened = {group.index: group for group in _open(groups)}
    sums = products(plan, seed, [signed(group.total) for group in opened.values() if group.total is not None])
    equations = {
        index: Equation(
            coefficients={client: a for client, a in plan.factors(index).items() if client in group.members},
            value=product + group.pads[stage - plan.stage_of(index)],
        )
        for (index, group), product in zip(opened.items(), sums, strict=True)
    }
    for misfit in misfits(field_for(plan.reach), equations, answers):
        suspects = sorted({client for index in misfit for client in opened[index].members})
        faults.append(Fault(kind="vectors", groups=misfit, suspects=tuple(suspects)))
        where = "this sum does" if len(misfit) == 1 else f"the sums of groups {', '.join(map(str, misfit))} do"
        for index in misfit:
            opened[index].reason = (
                f"unmask: {where} not fit one vector of each client, the same in all its groups: at least one of the "
                "members has sent different vectors, or has answered falsely"
            )
    return tuple(faults)


def strike(plan: RoundPlan, groups: Sequence[ServerGroup], stage: int) -> tuple[int, ...]:
    """Give up sums of earlier stages whose members were not all seen again; nobody is blamed for it.

    Whoever is in an open sum of an earlier stage, has a group in this one and is in no open sum of it, may have given the
    earlier sum another vector than it would have given now.

    Args:
        plan: The plan.
        groups: All of its groups up to this stage.
        stage: The one that is over.

    Returns:
        The groups that are given up.
    """
    now = plan.of_stage(stage)
    due = {client for index in now for client in plan.groups[index]}
    seen = {client for group in _open(groups) if group.index in now for client in group.members}
    struck = []
    for group in _open(groups[: now.start]):
        if missing := sorted(set(group.members) & due - seen):
            group.reason = (
                f"struck: {', '.join(missing)} is in no open sum of stage {stage + 1}, so nothing shows that this sum holds "
                "the same vector"
            )
            struck.append(group.index)
    return tuple(struck)


def _open(groups: Sequence[ServerGroup]) -> list[ServerGroup]:
    return [group for group in groups if not group.reason and group.total is not None]
