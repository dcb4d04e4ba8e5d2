"""A round that looks closer on suspicion: its first sums are a training round, and all of them together are a test."""

from collections.abc import Callable, Sequence

from fedgt.engine import GoOn
from fedgt.errors import SpecError
from fedgt.federation.participants import Federation
from fedgt.federation.round import ScreeningRound
from fedgt.federation.sums import RoundResult, averaged, take, unusable
from fedgt.grouping import Grouping
from fedgt.types import Parameters


def staged_round(
    federation: Federation,
    parameters: Parameters,
    *,
    round: int,
    grouping: Grouping,
    stages: Sequence[int],
    present: Sequence[str],
    go_on: GoOn,
    screening: Callable[..., ScreeningRound],
) -> RoundResult | ScreeningRound:
    """The sums of the first stage; and, while `go_on` says so, those of the next stage of the same local models.

    Nobody trains twice. Clients know all stages from the plan, and each has the account of all of them before it sends
    anything; the ledger is asked again before each stage, about who is really there. See docs/secure-aggregation.md.

    Args:
        federation: Who takes part.
        parameters: The global model at the start of the round.
        round: Its number.
        grouping: Who shares a group; the rows of the first stage come first, and everybody is in one of them.
        stages: How many rows each stage opens, such as `fedgt.design.StagedDesign.stages`.
        present: The clients that take part; an absent client enters no group.
        go_on: The rule, or a person: gets the `SecureSums` of all stages until now, and says whether the next one is opened.
            It is asked after each stage but the last, while the clients wait, and need not remember anything.
        screening: `screening_round` with the arguments that are not given here, as `functools.partial`; called if more
            than the first stage was opened.

    Returns:
        If only the first stage was opened, a training round: the model has moved by the mean over everybody in its open
        sums. Else what the screening says of all sums that are open, as if they had been opened at once.

    Raises:
        SpecError: If the stages do not fit the groups, or somebody is in no row of the first or has a coefficient in it.

    Examples:
        >>> import numpy as np
        >>> from fedgt import ClientEndpoint, Ledger, LocalTransport, TrainedModel
        >>> from fedgt.design import Design
        >>> from fedgt.federation import Federation, staged_round
        >>> from fedgt.grouping import Grouping
        >>> class Site:
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters={"weight": parameters["weight"] + 1.0}, samples=10)
        >>> names = ("ada", "bob", "cleo", "dan")
        >>> federation = Federation(
        ...     run="example",
        ...     transport=LocalTransport({name: ClientEndpoint(name, Site()).handle for name in names}),
        ...     ledger=Ledger(clients=names, promised=2),
        ...     samples=dict.fromkeys(names, 10),
        ... )
        >>> rows = Design(matrix=[[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], name="nested", source="by hand")
        >>> result = staged_round(
        ...     federation,
        ...     {"weight": np.zeros(2)},
        ...     round=1,
        ...     grouping=Grouping(design=rows, clients=names),
        ...     stages=(2, 1),
        ...     present=names,
        ...     go_on=lambda opened: any(one.status != "open" for one in opened.sums),
        ...     screening=lambda *args, **more: None,  # it is not asked here
        ... )
        >>> result.secure_sums, result.parameters["weight"].round(3).tolist()
        (2, [1.0, 1.0])
    """
    if len(stages) < 2 or min(stages) < 1 or sum(stages) != grouping.design.groups:
        raise SpecError(
            f"stages of {list(stages)} rows; at least two positive numbers that add up to {grouping.design.groups} are "
            "needed"
        )
    if (grouping.rows[: stages[0]] > 1).any():
        raise SpecError(
            "the rows of the first stage have coefficients, but its sums are a training round, in which nobody counts more "
            "than its weight: begin with rows of 0 and 1"
        )
    groups = [grouping.members(i, present) for i in range(grouping.design.groups)]
    taken = take(
        federation,
        parameters,
        round=round,
        purpose="test",
        groups=groups,
        test=True,
        stages=stages,
        go_on=go_on,
        coefficients=[grouping.factors(i) for i in range(grouping.design.groups)],
    )
    sums = taken.sums.sums
    if len(sums) > stages[0]:
        found: ScreeningRound = screening(
            federation, parameters, round=round, grouping=grouping, present=present, taken=taken
        )
        return found
    notes = () if any(one.total is not None for one in sums) else unusable("the training sum", sums[0])
    return taken.result(averaged(parameters, sums), notes)
