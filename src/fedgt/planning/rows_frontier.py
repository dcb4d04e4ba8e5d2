"""What each further sum buys and costs: the frontier between what a test finds and what it discloses."""

from dataclasses import dataclass

from fedgt.deadline import Deadline
from fedgt.design import StagedDesign
from fedgt.errors import DesignError
from fedgt.planning.default import FEWEST_ROWS, MOST_ROWS, UPLOADS
from fedgt.planning.nested_groups import nested_groups
from fedgt.planning.power import Power, detection_power
from fedgt.planning.with_coefficients import rows_at_the_bound
from fedgt.privacy import DisclosedShare, disclosed_share, minimum_support

STATES = 1_000_000
"""What the exact r of one row of the table may cost; beyond it the promise, which is proved, is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierRow:
    """The first so many rows of nested groups.

    Attributes:
        design: They; `stages` says how many are opened when, `uploads` what it costs a client.
        r: The proved minimum support, at least the promise.
        share: What is disclosed of each client, if clients differ equally and independently.
        power: How many attackers are found at 0.05 honest clients wronged a run.

    Examples:
        >>> from fedgt.planning import frontier
        >>> rows = frontier(8, 2, groups=4)
        >>> all(row.r >= 2 for row in rows)
        True
    """

    design: StagedDesign
    r: int
    share: DisclosedShare
    power: Power


def frontier(
    clients: int,
    privacy: int,
    *,
    groups: int = MOST_ROWS,
    uploads: int = UPLOADS,
    deadline: Deadline | None = None,
    coefficients: bool = False,
) -> tuple[FrontierRow, ...]:
    """One line for each number of sums, from the partition on; every line keeps the promise.

    Args:
        clients: n.
        privacy: The promised r, with the clients that may be missing added to it.
        groups: The most sums.
        uploads: In how many sums a client may be at most.
        deadline: When to stop; without one 20 seconds from now. The lines that are there are right.
        coefficients: Whether clients may multiply their updates: rows at the bound n - r + 1, searched or constructed.

    Raises:
        DesignError: As `nested_groups`; with coefficients also if there are no two groups of r clients, or too few rows.

    Examples:
        >>> from fedgt.planning import frontier
        >>> [(line.design.groups, line.r) for line in frontier(8, 3, groups=4)]
        [(2, 4), (3, 3), (4, 3)]
    """
    deadline = Deadline() if deadline is None else deadline
    rows = (
        _with_coefficients(clients, privacy, groups)
        if coefficients
        else nested_groups(clients, privacy, groups=groups, uploads=uploads)
    )
    lines: list[FrontierRow] = []
    # Rows that were searched as a whole have no first stage; any part of them keeps r as well.
    for count in range(rows.stages[0] if len(rows.stages) > 1 else min(FEWEST_ROWS, rows.groups), rows.groups + 1):
        design = rows.first(count)
        if design.uploads.max() > uploads:
            break
        support = minimum_support(design.matrix, max_states=STATES)
        share = disclosed_share(design.matrix, weights=[1.0] * clients)
        if support is None or share is None:  # a design has no empty group
            raise DesignError(f"design {design.name!r} reveals nothing")
        lines.append(
            FrontierRow(design=design, r=max(support.lower, privacy), share=share, power=detection_power(design.matrix))
        )
        if deadline.passed():
            break
    return tuple(lines)


def _with_coefficients(clients: int, privacy: int, groups: int) -> StagedDesign:
    rows = rows_at_the_bound(clients, privacy)
    if rows is None:
        raise DesignError(
            f"privacy {privacy} of {clients} clients: coefficients need two groups of {privacy} clients at least, and "
            f"{FEWEST_ROWS} sums"
        )
    return rows.first(min(groups, rows.groups))
