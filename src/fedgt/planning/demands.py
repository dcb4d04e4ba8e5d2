"""What a consortium asks of a design, and the bounds that say when it asks too much."""

from dataclasses import dataclass
from math import ceil, comb
from typing import Literal, get_args

from fedgt.defaults import ERROR_RATE, KAPPA
from fedgt.errors import DesignError, SpecError
from fedgt.planning.ties import MAX_SETS, set_count
from fedgt.types import ErrorRates

Evidence = Literal["binary", "graded"]
EVIDENCE: tuple[Evidence, ...] = get_args(Evidence)

DEFAULT_GROUPS = 12
"""Groups up to which a search goes when no limit is given: all 2^12 outcomes of a design are counted in milliseconds."""
_MOST_GROUPS = 18  # and if the demands need more than that, up to two more than they need, within this
_MOST_PLACES = 100_000_000  # sets of attackers times clients


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What is asked.

    Attributes:
        clients: n, at least 2.
        privacy: r: no combination of the sums may mix fewer clients, 1 to n.
        max_malicious: The most attackers that are feared. With binary evidence n_m^max must reach it.
        kappa: Accepted P(all groups contaminated) at n_m^max.
        groups_max: The most groups; None is 12 (two more than the demands need, if that is more, up to 18), and never
            more than n - r + 1.
        error_rate: False alarm and misdetection rate of one group's test (binary evidence).
        dropouts: How many clients are expected to be missing from a test round.
        evidence: `binary` outcomes, or `graded` evidence.

    Raises:
        SpecError: If a value is out of its range.

    Examples:
        >>> from fedgt.planning import Demands
        >>> demands = Demands(clients=10, privacy=3, max_malicious=2)
        >>> demands.groups_needed, demands.groups_limit
        (2, 8)
    """

    clients: int
    privacy: int
    max_malicious: int
    kappa: float = KAPPA
    groups_max: int | None = None
    error_rate: float = ERROR_RATE
    dropouts: int = 0
    evidence: Evidence = "binary"

    def __post_init__(self) -> None:
        """Check each value on its own."""
        if self.clients < 2:
            raise SpecError(f"{self.clients} clients; at least 2 are needed, or there is nobody to hide among")
        if not 1 <= self.privacy <= self.clients:
            raise SpecError(
                f"privacy {self.privacy} for {self.clients} clients: a sum mixes 1 to {self.clients} of them; nearest "
                f"possible is {min(max(self.privacy, 1), self.clients)}"
            )
        if not 1 <= self.max_malicious < self.clients:
            raise SpecError(
                f"max_malicious {self.max_malicious} for {self.clients} clients: 1 to {self.clients - 1} is needed"
            )
        if not 0.0 <= self.kappa < 1.0:
            raise SpecError(f"kappa = {self.kappa}; a probability from 0 to below 1 is needed")
        if not 0.0 <= self.error_rate < 0.5:
            raise SpecError(f"error_rate = {self.error_rate}; from 0 to below 0.5: at 0.5 a test says nothing")
        if self.groups_max is not None and self.groups_max < 1:
            raise SpecError(f"groups_max = {self.groups_max}; at least 1 group is needed")
        if not 0 <= self.dropouts < self.clients:
            raise SpecError(f"{self.dropouts} dropouts of {self.clients} clients; 0 to {self.clients - 1} is needed")
        if self.evidence not in EVIDENCE:
            raise SpecError(f"unknown evidence {self.evidence!r}; known are {', '.join(EVIDENCE)}")

    @property
    def rates(self) -> ErrorRates:
        """The noise of one group's test."""
        return ErrorRates.symmetric(self.error_rate)

    @property
    def groups_limit(self) -> int:
        """The most groups that are searched: the given limit, and never more than n - r + 1.

        k independent rows over n clients contain a combination that vanishes on k - 1 of them, so r <= n - k + 1.
        """
        return _limit(self, self.privacy, self.max_malicious)

    @property
    def groups_needed(self) -> int:
        """A lower bound on the groups of any design that meets the demands.

        Each group has at least r members, so it stays clean with probability at most C(n - r, q) / C(n, q), q being
        max_malicious; by the union bound ceil((1 - kappa) / that) groups are needed for P(some group clean) >= 1 - kappa.
        Graded evidence needs no clean group.
        """
        return _needed(self.clients, self.privacy, self.max_malicious, self.kappa, self.evidence)


def require_possible(demands: Demands) -> None:
    """Refuse demands that no design can meet.

    Raises:
        DesignError: With the demand that binds, and the nearest that the bounds do not rule out.

    Examples:
        >>> from fedgt.planning import Demands, require_possible
        >>> require_possible(Demands(clients=10, privacy=3, max_malicious=2))
        >>> try:
        ...     require_possible(Demands(clients=10, privacy=9, max_malicious=4))
        ... except ValueError:
        ...     print("no design meets these demands")
        no design meets these demands
    """
    n, r, q, limit = demands.clients, demands.privacy, demands.max_malicious, demands.groups_limit
    if demands.evidence == "graded":
        if q > (n - 1) // 2:
            raise DesignError(
                f"graded evidence tells which side is the smaller one: max_malicious {q} of {n} clients is no minority; "
                f"nearest possible is {(n - 1) // 2}"
            )
        if not comparable(n, q):
            raise DesignError(
                f"max_malicious {q} of {n} clients has too many sets to compare all of them; graded evidence can be asked "
                f"for up to {max(x for x in range(q) if comparable(n, x))}"
            )
        return
    if demands.groups_needed <= limit:
        return
    fewer = next((x for x in range(q - 1, 0, -1) if _possible(demands, r, x)), None)
    weaker = next((x for x in range(r - 1, 0, -1) if _possible(demands, x, q)), None)
    nearest = []
    if fewer is not None:
        nearest.append(f"max_malicious {fewer}")
    if weaker is not None:
        nearest.append(f"privacy {weaker}")
    if demands.groups_needed <= n - r + 1:
        nearest.append(f"groups_max {demands.groups_needed}")
    if q > n - r:
        why = f"any group of at least {r} of {n} clients holds one of {q} malicious ones, so no group is ever clean"
    else:
        clean = comb(n - r, q) / comb(n, q)
        why = (
            f"a group of at least {r} of {n} clients escapes {q} malicious ones with probability at most {clean:.3g}, so "
            f"at least {demands.groups_needed} groups are needed for kappa = {demands.kappa:g}"
        )
    if demands.groups_max is not None and limit == demands.groups_max < n - r + 1:
        binds = f"groups_max = {demands.groups_max} binds"
    elif limit == n - r + 1:
        binds = f"privacy binds: r = {r} allows at most n - r + 1 = {limit} independent groups"
    else:
        binds = f"a search goes up to {limit} groups unless groups_max says more"
    raise DesignError(
        f"impossible demands: {why}; {binds}. Nearest that this bound does not rule out: "
        f"{', or '.join(nearest) or 'none: lower several demands'}"
    )


def comparable(clients: int, malicious: int) -> bool:
    """Whether all sets of so many clients can be compared in seconds: what a search does for each design."""
    sets = set_count(clients, malicious)
    return sets <= MAX_SETS and sets * clients <= _MOST_PLACES


def _limit(demands: Demands, privacy: int, malicious: int) -> int:
    wanted = demands.groups_max
    if wanted is None:
        needed = _needed(demands.clients, privacy, malicious, demands.kappa, demands.evidence)
        wanted = max(DEFAULT_GROUPS, min(needed + 2, _MOST_GROUPS))
    return min(wanted, demands.clients - privacy + 1)


def _possible(demands: Demands, privacy: int, malicious: int) -> bool:
    needed = _needed(demands.clients, privacy, malicious, demands.kappa, demands.evidence)
    return needed <= _limit(demands, privacy, malicious)


def _needed(n: int, r: int, q: int, kappa: float, evidence: Evidence) -> int:
    if evidence == "graded":
        return 2
    ways = comb(n - r, q)
    # Without any clean group possible, more groups than clients stand for "no number is enough".
    return ceil((1.0 - kappa) * comb(n, q) / ways - 1e-9) if ways else n + 1
