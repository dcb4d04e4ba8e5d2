"""What the server learns about a group, and whom it asks before it learns it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fedgt.types import FloatArray

Authorise: TypeAlias = Callable[[tuple[tuple[str, ...], ...]], tuple[str | None, ...]]
"""Real members per group, in the order of the plan (empty: already lost) -> None to open, or why it is withheld."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupSum:
    """What the server learns about one group.

    Attributes:
        group: The number of the group in the plan.
        members: The clients whose input arrived: exactly those that an open sum is over, in the order of the group.
        dropped: Client -> "stage: reason". One that left at the unmask is in `members` as well: its input was in.
        status: "open", or "erased": there is no sum.
        reason: Why the group is erased; empty if it is open.
        total: Tensor name -> float64 array, the sum of weight * update over the members, times their coefficients in the
            group (task "weiszfeld": of beta * update); None if erased.
        weight: The sum of the members' weights, times their coefficients.
        clipped: How many entries the members clipped, together, times their coefficients; 0 if erased.
        beta_total: The sum of the Weiszfeld weights beta; None for task "mean" or if erased.
        faults: Client -> what it has provably done wrong when the group was opened, such as releasing a false share.

    Examples:
        >>> from fedgt.secagg import GroupSum
        >>> erased = GroupSum(
        ...     group=0,
        ...     members=("ada", "bob"),
        ...     dropped={"cleo": "no reply"},
        ...     status="erased",
        ...     reason="too few shares",
        ...     total=None,
        ...     weight=0,
        ...     clipped=0,
        ... )
        >>> erased.total is None, erased.faults
        (True, {})
    """

    group: int
    members: tuple[str, ...]
    dropped: Mapping[str, str]
    status: Literal["open", "erased"]
    reason: str
    total: Mapping[str, FloatArray] | None
    weight: int
    clipped: int
    beta_total: float | None = None
    faults: Mapping[str, str] = field(default_factory=dict)
