"""The groups to start from, for any federation: what `auto` means."""

from collections.abc import Mapping

from fedgt.defaults import NO_LIMIT
from fedgt.design import AnyDesign, Design, named_design, searched_design, searched_designs
from fedgt.errors import DesignError
from fedgt.planning.nested_groups import nested_groups
from fedgt.planning.power import detection_power
from fedgt.privacy import disclosed_share, minimum_support
from fedgt.privacy.disclosed_share import can_try

_KNOWN: Mapping[bool, Mapping[int, tuple[str, ...]]] = {
    True: {
        10: ("graded-10x6", "graded-10x5"),
        15: ("nested-15x12-r4", "graded-15x10-b", "graded-15x9-b"),
        20: ("graded-20x12", "graded-20x10"),
        30: ("graded-30x15", "graded-30x12"),
    },
    False: {15: ("bch-15x8",), 30: ("cyclic-30x12",), 31: ("bch-31x10",)},
}

FEWEST_ROWS = 4
"""Fewer sums leave two comparisons at most, in which a set of clients looks like others."""

ENOUGH_POWER = 0.75
"""The share of the attackers that is found; more rows are not spent once it is reached (`detection_power`)."""

SOME_POWER = 0.5
"""What groups with room for an absence must find, or a real run goes without the room."""

SPARE = 2
"""Rows that a run with other people's clients keeps back: after a fault its groups are drawn anew, which needs them."""

MOST_ROWS = 20
UPLOADS = 8
"""Groups of a client at most: what a test costs it, beside one upload of a training round."""


def default_design(
    clients: int,
    *,
    graded: bool,
    privacy: int = 4,
    absences: int = 0,
    spare: int = 0,
    largest_share: float = NO_LIMIT,
    colluders: int = 0,
) -> Design:
    """The design to start from.

    The known designs where they keep the promise: for binary outcomes those of the paper, for graded evidence those with few
    ties. For graded evidence of any other federation, or promise, nested groups: a partition first, then as few groups as
    find most attackers, or as many as the promise, the share and the uploads allow.

    Args:
        clients: n.
        graded: For graded evidence; binary outcomes otherwise.
        privacy: The promised r.
        absences: s: so many clients may be missing from a test, and r is kept all the same: groups are made for r + s.
        spare: So many rows of those that the promise permits are kept back, for tests after a fault (`SPARE`). Of known
            designs those with more rows are passed over; nested groups mostly leave room by themselves.
        largest_share: The promised limit of the disclosed share of any client, with equal weights.
        colluders: With whose help the share must keep the limit.

    Raises:
        DesignError: If there is none; the message says what is possible.

    Examples:
        >>> from fedgt.planning import default_design
        >>> default_design(15, graded=False).name
        'bch-15x8'
        >>> default_design(12, graded=True, privacy=3).name.startswith("nested-12x")
        True
        >>> default_design(15, graded=True).groups, default_design(15, graded=True, spare=2).groups
        (12, 10)
    """
    planned = privacy + absences
    for name in _KNOWN[graded].get(clients, ()):  # the most rows first, by rising r
        known = _known(name)
        if known.groups > clients - planned + 1 - spare:
            continue
        support = minimum_support(known.matrix, enough=planned)
        if support is not None and support.lower >= planned and within(known, largest_share, colluders):
            return known
    if not graded:
        raise DesignError(
            f"no default design for {clients} clients, privacy {privacy} and binary evidence (there are "
            f"{', '.join(name for names in _KNOWN[False].values() for name in names)}); find one with `fedgt design "
            f"--clients {clients} --privacy {planned} --max-malicious M` and give it as design.file, or take graded evidence"
        )
    if not _can_be_tested(clients, planned):
        raise DesignError(_no_evidence(clients, privacy, absences))
    return _fewest(clients, planned, largest_share, colluders)


def design_for_absences(
    clients: int, *, privacy: int = 4, largest_share: float = NO_LIMIT, colluders: int = 0
) -> tuple[Design, int]:
    """The design to start from in a real run, where a client may be missing from a test: graded evidence.

    Groups are made for one absence where they still find half of the attackers. Where they do not, an absence costs
    evidence instead: the ledger refuses sums, and the promise holds.

    Args:
        clients: n.
        privacy: The promised r.
        largest_share: As for `default_design`.
        colluders: As for `default_design`.

    Returns:
        The design, and for how many absences it has room: 1 or 0.

    Raises:
        DesignError: If there is none, also without room.

    Examples:
        >>> from fedgt.planning import design_for_absences
        >>> design_for_absences(15)[1], design_for_absences(8, privacy=3)[1]
        (1, 0)
    """
    try:
        roomy = default_design(
            clients,
            graded=True,
            privacy=privacy,
            absences=1,
            spare=SPARE,
            largest_share=largest_share,
            colluders=colluders,
        )
    except DesignError:
        roomy = None
    if roomy is not None and detection_power(roomy.matrix).found >= SOME_POWER:
        return roomy, 1
    plain = default_design(
        clients, graded=True, privacy=privacy, spare=SPARE, largest_share=largest_share, colluders=colluders
    )
    return plain, 0


def _fewest(clients: int, planned: int, largest_share: float, colluders: int) -> Design:
    """The first rows of the nested groups that find most attackers."""
    rows = nested_groups(clients, planned, groups=min(MOST_ROWS, clients - planned + 1), uploads=UPLOADS)
    best = None
    for count in range(FEWEST_ROWS, rows.groups + 1):
        design = rows.first(count).plain
        if not within(design, largest_share, colluders):
            break
        best = design
        if detection_power(design.matrix).found >= ENOUGH_POWER:
            break
    if best is None:
        share = disclosed_share(rows.first(FEWEST_ROWS).matrix, weights=[1.0] * clients, colluding=colluders)
        raise DesignError(
            f"largest_share = {largest_share:g} for {clients} clients with privacy {planned}: {FEWEST_ROWS} sums, "
            f"the fewest that say who it is, disclose {0 if share is None else share.largest:.2f}; promise that, or hold no "
            "tests"
        )
    return best


def _known(name: str) -> Design:
    return searched_design(name).design.plain if name in searched_designs() else named_design(name)


def within(design: AnyDesign, largest_share: float, colluders: int) -> bool:
    """Whether the sums of a design keep the limit of the disclosed share; with too many colluders to try it is not known."""
    if largest_share >= 1.0:
        return True
    if not can_try(design.clients, colluders):
        return False
    share = disclosed_share(design.matrix, weights=[1.0] * design.clients, colluding=colluders)
    return share is None or not share.exceeds(largest_share)


def _can_be_tested(clients: int, planned: int) -> bool:
    """Whether there are two groups that share nobody, and enough rows with them."""
    if clients - planned + 1 < FEWEST_ROWS or clients < 2 * planned:
        return False
    return nested_groups(clients, planned, groups=FEWEST_ROWS, uploads=UPLOADS).groups == FEWEST_ROWS


def _no_evidence(clients: int, privacy: int, absences: int) -> str:
    planned = privacy + absences
    spare = f" with {absences} missing" if absences else ""
    weaker = next((r for r in range(privacy - 1, 0, -1) if _can_be_tested(clients, r + absences)), None)
    more = next(n for n in range(clients + 1, 4 * planned + 9) if _can_be_tested(n, planned))
    possible = [f"privacy {weaker} can be tested{spare}"] if weaker is not None else []
    possible.append(f"{more} clients keep privacy {privacy} with a test")
    if clients >= 2 * planned and clients - planned + 1 >= FEWEST_ROWS:
        possible.append("groups with coefficients keep it (design.coefficients = true)")
    return (
        f"privacy {privacy}{spare} of {clients} clients: no {FEWEST_ROWS} plain groups were found that keep it, and fewer "
        f"do not tell who is malicious; {', '.join(possible)}, or hold no tests: full secure aggregation keeps any privacy"
    )
