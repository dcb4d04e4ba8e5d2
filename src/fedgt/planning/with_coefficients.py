"""The groups to start from where clients may multiply their updates by whole numbers: more sums for the same promise."""

from functools import lru_cache

from fedgt.defaults import NO_LIMIT
from fedgt.design import AnyDesign, StagedDesign, reed_solomon, searched_design, searched_designs
from fedgt.errors import DesignError
from fedgt.planning.default import ENOUGH_POWER, FEWEST_ROWS, MOST_ROWS, UPLOADS, default_design, within
from fedgt.planning.power import detection_power


@lru_cache(maxsize=64)
def design_with_coefficients(
    clients: int,
    *,
    privacy: int = 4,
    absences: int = 0,
    largest_share: float = NO_LIMIT,
    colluders: int = 0,
) -> AnyDesign:
    """The design to start from where coefficients are allowed: graded evidence.

    The plain default where it finds enough attackers. Otherwise rows at the bound n - r + 1, searched ones where some are
    known and constructed ones elsewhere: the first of them that find enough, or as many as the share and the uploads allow.
    If they find no more than the plain default, that is taken.

    Args:
        clients: n.
        privacy: The promised r.
        absences: s: so many clients may be missing from a test, and r is kept all the same.
        largest_share: As for `default_design`.
        colluders: As for `default_design`.

    Raises:
        DesignError: If there is none; the message says what is possible.

    Examples:
        >>> from fedgt.planning import design_with_coefficients
        >>> design = design_with_coefficients(15, privacy=6)
        >>> design.name, design.groups
        ('regular-15x10-r6-c3', 10)
    """
    plain, refusal = None, None
    try:
        plain = default_design(
            clients,
            graded=True,
            privacy=privacy,
            absences=absences,
            largest_share=largest_share,
            colluders=colluders,
        )
    except DesignError as error:
        refusal = error
    reached = 0.0 if plain is None else detection_power(plain.matrix).found
    if plain is not None and reached >= ENOUGH_POWER:
        return plain
    rows = rows_at_the_bound(clients, privacy + absences)
    best = None if rows is None else _fewest(rows, largest_share, colluders)
    if best is not None and (plain is None or detection_power(best.matrix).found > reached):
        return best if best.largest_entry > 1 else best.plain
    if plain is None:
        raise DesignError(str(refusal))
    return plain


def rows_at_the_bound(clients: int, planned: int) -> StagedDesign | None:
    """As many rows as r allows, 20 at most; None where there are no two groups, or too few rows.

    Args:
        clients: n.
        planned: r.
    """
    if planned < 1 or clients < 2 * planned or clients - planned + 1 < FEWEST_ROWS:
        return None
    known = [searched_design(name) for name in searched_designs()]
    fits = [one.design for one in known if (one.design.clients, one.privacy) == (clients, planned)]
    if fits:  # nested rows stand before others
        return next((one for one in fits if len(one.stages) > 1), fits[0])
    groups = max(clients // planned, min(MOST_ROWS, clients - planned + 1))
    return reed_solomon(clients, planned, groups=groups)[0]


def _fewest(rows: StagedDesign, largest_share: float, colluders: int) -> StagedDesign | None:
    """The fewest of the rows that find enough; or as many as are allowed; None if too few are."""
    least = max(FEWEST_ROWS, rows.stages[0] if len(rows.stages) > 1 else rows.groups)
    allowed = []
    for count in range(least, rows.groups + 1):
        first = rows.first(count)
        if first.uploads.max() > UPLOADS or not within(first, largest_share, colluders):
            break
        allowed.append(first)
    if not allowed or detection_power(allowed[-1].matrix).found < ENOUGH_POWER:
        return allowed[-1] if allowed else None
    return next(one for one in allowed if detection_power(one.matrix).found >= ENOUGH_POWER)
