"""The largest sum of kept clients that may still be opened about the same local models."""

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, combinations
from math import comb

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError
from fedgt.privacy.support import Support, minimum_support
from fedgt.types import BoolArray, FloatArray, IntArray, as_count, as_integers, as_numbers

_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSum:
    """A set of kept clients whose sum may be opened.

    Attributes:
        clients: The set, ascending.
        support: What is proved about the revealed rows with this sum: at least the promise.
        exact: Whether it is proved that no larger set, and no other of the same size with more weight, is allowed.
        checks: How many sets needed a search of their own.

    Examples:
        >>> from fedgt.privacy import largest_kept_sum
        >>> found = largest_kept_sum([[1, 1, 0, 0], [0, 0, 1, 1]], weights=[1, 1, 1, 1], kept=[0, 1, 2], privacy=2)
        >>> found.clients, found.exact
        ((0, 1), True)
    """

    clients: tuple[int, ...]
    support: Support
    exact: bool
    checks: int


def largest_kept_sum(
    rows: npt.ArrayLike,
    *,
    weights: npt.ArrayLike,
    kept: Iterable[int],
    privacy: int,
    max_sets: int = 1_100_000,
    max_checks: int = 100,
) -> KeptSum | None:
    """The largest set of kept clients whose weighted sum keeps the promise, together with everything revealed.

    Sets are visited from the largest down, those of one size by their total weight and then in lexicographic order. A set
    that fails yields a vector g of the span of the revealed rows such that g + (sum of the set) has too few clients; the
    number of clients in g + (any other set) is linear in the set, so one failure rules out many sets at once, exactly.

    Beyond `max_sets` or `max_checks` an integer program over these rules takes over: the largest set that obeys those known
    so far is tried, and adds a rule if it fails. What it finds keeps the promise like any other, but is not claimed to be
    the largest: sets that are a combination of what is revealed already obey no rule, and are passed over.

    Args:
        rows: float or int [aggregates, clients], the real weights of everything revealed about these local models.
        weights: float [clients], the weight of each client in the sum; the weighting of the rows.
        kept: The clients that may be in it.
        privacy: The promised r.
        max_sets: Sets to visit at most, by the exact search.
        max_checks: Minimum supports to compute at most, by either search.

    Returns:
        None when no set is allowed (or, beyond the limits, none was found), or the revealed rows break the promise already.

    Raises:
        ShapeError: If the rows are no finite matrix, the weights are not one positive number per kept client, or a kept
            client is out of range.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.privacy import largest_kept_sum
        >>> rows = named_design("bch-15x8").matrix
        >>> kept = [client for client in range(15) if client != 2]
        >>> found = largest_kept_sum(rows, weights=np.ones(15), kept=kept, privacy=4)
        >>> len(found.clients), found.support.r
        (12, 4)
    """
    array = np.atleast_2d(as_numbers(rows, "revealed rows"))
    weight = as_numbers(weights, "weights")
    given = sorted(kept) if isinstance(kept, Set) else kept
    members = np.unique(as_integers(given, "kept clients"))
    as_count(privacy, "privacy", error=ShapeError)
    clients = array.shape[-1]
    if array.ndim != 2 or weight.shape != (clients,):
        raise ShapeError(f"{weight.shape} weights for rows of shape {array.shape}; one per client is needed")
    if members.size and not (members[0] >= 0 and members[-1] < clients):
        raise ShapeError(f"kept clients {members.tolist()}: clients are numbered 0 to {clients - 1}")
    if not (np.isfinite(weight[members]) & (weight[members] > 0)).all():
        raise ShapeError("every kept client needs a finite weight > 0")
    before = minimum_support(array, enough=privacy)
    if before is not None and before.lower < privacy:
        return None
    search = _Search(array, weight, members, privacy)
    visited = 0
    for left_out in range(max(0, len(members) - privacy + 1)):
        visited += comb(len(members), left_out)
        if visited > max_sets:
            return search.programmed(max_checks)
        for chosen in search.open_sets(left_out):
            if search.checks >= max_checks:
                return search.programmed(max_checks)
            support = search.check(chosen)
            if support is not None:
                return search.result(chosen, support, exact=not search.unproved)
    return None


class _Search:
    """The failures found so far, each a linear rule that every allowed set obeys."""

    def __init__(self, rows: FloatArray, weight: FloatArray, members: IntArray, privacy: int) -> None:
        self.rows, self.weight, self.members, self.privacy = rows, weight, members, privacy
        self.checks = 0
        self.unproved = False
        self.base: list[int] = []
        self.change: list[IntArray] = []

    def open_sets(self, left_out: int) -> Iterator[BoolArray]:
        """bool[members] of every set with so many left out that no known failure rules out, in the documented order."""
        for chosen in _by_weight(self.weight[self.members], left_out):
            known = len(self.base)
            for one in chosen[~self.failures(chosen, 0).any(axis=1)]:
                if not self.failures(one[None], known).any():
                    yield one

    def failures(self, chosen: BoolArray, since: int) -> BoolArray:
        """bool[B, failures]: which of the sets are ruled out by which failures, the first few aside."""
        if since >= len(self.base):
            return np.zeros((len(chosen), 0), dtype=bool)
        counts = np.array(self.base[since:]) + chosen @ np.array(self.change[since:]).T
        # A sum of nobody is no sum: then the set is a combination of what is revealed already.
        failing: BoolArray = (counts < self.privacy) & (counts > 0)
        return failing

    def check(self, chosen: BoolArray) -> Support | None:
        """The proof that this set is allowed, or None; a failure is kept."""
        self.checks += 1
        row = np.zeros(len(self.weight))
        row[self.members[chosen]] = self.weight[self.members[chosen]]
        support = minimum_support(np.vstack([self.rows, row]), enough=self.privacy)
        if support is None or support.lower >= self.privacy:
            return support
        if support.upper >= self.privacy:
            self.unproved = True
            return None
        *combination, own = support.combination
        if own == 0:  # pragma: no cover - the rows without it keep the promise
            return None
        g = [
            sum((b * Fraction(float(v)) for b, v in zip(combination, column, strict=True) if b and v), Fraction(0))
            / own
            for column in self.rows.T
        ]
        there = np.array([v != 0 for v in g], dtype=np.int64)
        stays = np.array([g[j] != -Fraction(float(self.weight[j])) for j in self.members], dtype=np.int64)
        self.base.append(int(there.sum()))
        self.change.append(stays - there[self.members])
        return None

    def programmed(self, max_checks: int) -> KeptSum | None:
        """The largest set under the rules so far, a new rule for each that fails, until one holds."""
        # Not at the top, as in `fedgt.privacy.span`.
        from scipy.optimize import Bounds, LinearConstraint, milp

        n = len(self.members)
        share = self.weight[self.members] / (
            2 * n * self.weight[self.members].max()
        )  # decides between equal sizes only
        for _ in range(max_checks):
            rules = [LinearConstraint(np.ones((1, n)), lb=self.privacy)]
            if self.base:
                rules.append(LinearConstraint(np.array(self.change), lb=self.privacy - np.array(self.base)))
            solved = milp(-(1.0 + share), integrality=np.ones(n), bounds=Bounds(0, 1), constraints=rules)
            if solved.x is None:
                return None
            chosen = solved.x > 0.5
            known = len(self.base)
            support = self.check(chosen)
            if support is not None:
                return self.result(chosen, support, exact=False)
            if len(self.base) == known:  # nothing was learnt: the same set would come again
                return None
        return None

    def result(self, chosen: BoolArray, support: Support, *, exact: bool) -> KeptSum:
        return KeptSum(clients=tuple(self.members[chosen].tolist()), support=support, exact=exact, checks=self.checks)


def _by_weight(weight: FloatArray, left_out: int) -> Iterator[BoolArray]:
    """All sets with so many left out, heaviest first, in chunks; equally heavy ones in lexicographic order."""
    n = len(weight)
    every = chain.from_iterable(combinations(range(n), left_out))
    # Backwards, so that of equally heavy sets those with the lower numbers come first.
    out = np.fromiter(every, dtype=np.int64).reshape(comb(n, left_out), left_out)[::-1]
    order = np.argsort(weight[out].sum(axis=1), kind="stable")
    for begin in range(0, len(order), _AT_ONCE):
        part = out[order[begin : begin + _AT_ONCE]]
        chosen = np.ones((len(part), n), dtype=bool)
        np.put_along_axis(chosen, part, False, axis=1)
        yield chosen
