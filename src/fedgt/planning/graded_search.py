"""A search for designs for graded evidence: few wrong clients by ties, then few under noise, under a promised r.

Random designs are repaired until no short combination of groups breaks the promise, then improved by local moves: flip an
entry, move a client between groups, exchange clients of a group. A move is kept when the design stays as good or gets
better; the privacy of every design that is kept is certified exactly. Larger sets only add ties, so most bad moves are found
among the small sets alone. The second phase minimises the wrong clients under noise and not the margin itself: the margin is
the worst of millions of pairs, and designs with a larger one are not always better.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from fedgt.deadline import Deadline
from fedgt.design import Design
from fedgt.errors import DesignError
from fedgt.planning.margin import Margin, NoiseTrials, draw_trials, margin, wrong_under_noise
from fedgt.planning.ties import Ties, set_count, ties
from fedgt.privacy import Support, minimum_support
from fedgt.types import BitArray, FloatArray, IntArray, frozen

Progress = Callable[[int, int], None]
"""Called with (moves tried, moves to try)."""

_JUDGED = (2_500, 20_000)  # sets on which a move is judged first, before all that are asked
_TRIALS = 64  # noise trials for each number of malicious clients
_DRAWS = 50  # cheap draws of one move
_COMBINATIONS = 6_000  # short combinations of groups that are watched for support below the promise


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradedDesign:
    """A design for graded evidence with its certificates.

    Attributes:
        design: The groups.
        support: The exact minimum support of the group sums.
        support_with_sum: The same when the sum over all clients is revealed too.
        found: The ties by direction of all sets of at most n_max malicious clients, equal weights.
        apart: The margin over the sets of at most `margin_n_max` clients, equal weights and samples.
        margin_n_max: n_max, or less where n_max has too many sets.
        noisy_wrong: float64[margin_n_max + 1]: the sampled mean number of wrong clients under noise for each number of
            malicious clients (`wrong_under_noise`).

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.planning import certify
        >>> found = certify(named_design("graded-15x10-b"), 2, rng=np.random.default_rng(0), per_size=50)
        >>> found.support_with_sum.r <= found.support.r  # one more sum of the same models never adds privacy
        True
    """

    design: Design
    support: Support
    support_with_sum: Support
    found: Ties
    apart: Margin
    margin_n_max: int
    noisy_wrong: FloatArray

    @property
    def wrong(self) -> float:
        """The expected number of wrong clients, averaged over n_m = 0..n_max."""
        return float(self.found.expected_wrong.mean())

    @property
    def separation(self) -> float:
        """The smallest separation over all numbers of malicious clients, in s per unit of theta."""
        return float(self.apart.separation.min())


def certify(
    design: Design,
    n_max: int,
    *,
    rng: np.random.Generator,
    step: float = 8.0,
    per_size: int = 500,
    margin_sets: int = 40_000,
) -> GradedDesign:
    """The exact privacy, ties and margin of a design, equal weights, and its wrong clients under noise.

    Args:
        design: The groups.
        n_max: The largest number of malicious clients that is considered.
        rng: For the noise.
        step: The step per malicious client in standard deviations of one client's model.
        per_size: Noise trials for each number of malicious clients.
        margin_sets: Margin and noise are taken over the sets up to the largest size of which there are at most this many.

    Raises:
        DesignError: If n_max is out of range or has more than 3 million sets.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.planning import certify
        >>> found = certify(named_design("graded-15x10-b"), 2, rng=np.random.default_rng(0), per_size=50)
        >>> found.support.r
        4
    """
    support = minimum_support(design.matrix)
    with_sum = minimum_support(np.vstack([design.matrix, np.ones(design.clients)]))
    if support is None or with_sum is None:  # pragma: no cover - a design has no empty group
        raise DesignError(f"design {design.name!r} reveals nothing")
    found = ties(design, n_max)
    size = _size_within(design.clients, n_max, margin_sets)
    part = found if size == n_max else ties(design, size)
    return GradedDesign(
        design=design,
        support=support,
        support_with_sum=with_sum,
        found=found,
        apart=margin(design, part),
        margin_n_max=size,
        noisy_wrong=frozen(
            wrong_under_noise(design, part, draw_trials(design.clients, size, per_size, rng=rng), step=step), np.float64
        ),
    )


def search_graded(
    clients: int,
    groups: int,
    *,
    privacy: int,
    rng: np.random.Generator,
    size_range: tuple[int, int] | None = None,
    n_max: int | None = None,
    privacy_with_sum: int | None = None,
    restarts: int = 4,
    moves: int = 400,
    polish: int = 300,
    step: float = 8.0,
    name: str | None = None,
    progress: Progress | None = None,
    deadline: Deadline | None = None,
) -> GradedDesign | None:
    """The best design found by local moves from several random starts: first for fewer ties, then for less error in noise.

    The result depends on `rng` and the arguments alone, and on time only if the deadline passes. The starts draw from
    generators spawned from `rng`, so a search is continued with another generator, and the better result kept.

    Args:
        clients: Columns, at least 2.
        groups: Rows, 2..clients - 1.
        privacy: The promised minimum support r of the group sums.
        rng: Its state advances only by the spawning of children.
        size_range: Smallest and largest number of members of a group; None for (privacy, about 60 % of the clients).
        n_max: The largest number of malicious clients; None for (clients - 1) // 2, less where that has too many sets for a
            search (30 clients: 4).
        privacy_with_sum: What must remain of r when the sum over all clients is revealed too; None for min(privacy, 4).
        restarts: Random starts.
        moves: Local moves from each start, for fewer ties; 10 to 30 ms each for 15 clients.
        polish: Moves from the best of them, for fewer wrong clients under noise and no more by ties.
        step: The noise of the second phase: theta / s as in `wrong_under_noise`.
        name: The name of the design; None for `graded-<clients>x<groups>`.
        progress: Called after every move.
        deadline: When to stop, about; without one 20 seconds from now.

    Returns:
        The best design, or None when no start met the promise (in time).

    Raises:
        DesignError: If a demand is impossible by counting; the message names it and the nearest possible value.

    Examples:
        >>> import numpy as np
        >>> from fedgt.planning import search_graded
        >>> found = search_graded(
        ...     8, 5, privacy=2, n_max=2, rng=np.random.default_rng(0), restarts=1, moves=20, polish=5
        ... )
        >>> found.design.groups, found.support.r >= 2
        (5, True)
    """
    demands = _demands(clients, groups, privacy, size_range, privacy_with_sum)
    n_max = _size_within(clients, (clients - 1) // 2, 40_000) if n_max is None else n_max
    deadline = Deadline() if deadline is None else deadline
    total = restarts * moves + polish
    best: _Climb | None = None
    for restart, child in enumerate(rng.spawn(restarts)):
        if deadline.passed():
            break
        climb = _Climb(demands, n_max, child)
        for done in range(moves):
            if deadline.passed():
                break
            climb.move()
            if progress is not None:
                progress(restart * moves + done + 1, total)
        if climb.accepted is not None and (best is None or climb.wrong < best.wrong):
            best = climb
    if best is None or best.accepted is None:
        return None
    best.begin_polish(step)
    for done in range(polish):
        if deadline.passed():
            break
        best.move()
        if progress is not None:
            progress(restarts * moves + done + 1, total)
    design = Design(
        matrix=best.accepted,
        name=name or f"graded-{clients}x{groups}",
        source=f"local search, privacy {privacy}, groups of {demands.smallest} to {demands.largest} clients",
    )
    return certify(design, n_max, rng=rng.spawn(1)[0], step=step)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demands:
    clients: int
    groups: int
    privacy: int
    with_sum: int
    smallest: int
    largest: int


def _demands(
    clients: int, groups: int, privacy: int, size_range: tuple[int, int] | None, with_sum: int | None
) -> _Demands:
    if clients < 2 or not 2 <= groups < clients:
        raise DesignError(f"{groups} groups of {clients} clients: 2 to clients - 1 groups are needed")
    if privacy < 1:
        raise DesignError(f"privacy {privacy}: at least 1 is needed; 1 allows groups of one client")
    if privacy > clients - groups + 1:
        raise DesignError(
            f"privacy {privacy} with {groups} independent sums of {clients} clients is impossible: r is at most clients - "
            f"groups + 1 = {clients - groups + 1}; at most {max(clients - privacy + 1, 0)} groups keep {privacy}"
        )
    smallest, largest = (privacy, max(privacy, round(0.6 * clients))) if size_range is None else size_range
    if not privacy <= smallest <= largest < clients:
        raise DesignError(
            f"groups of {smallest} to {largest} of {clients} clients with privacy {privacy}: "
            f"{privacy} <= smallest <= largest <= {clients - 1} is needed"
        )
    floor = min(privacy, 4) if with_sum is None else with_sum
    if floor > clients - groups:
        raise DesignError(
            f"privacy {floor} with the sum over all clients and {groups} groups of {clients} clients is impossible: r is "
            f"then at most clients - groups = {clients - groups}; take fewer groups or a smaller privacy_with_sum"
        )
    return _Demands(clients=clients, groups=groups, privacy=privacy, with_sum=floor, smallest=smallest, largest=largest)


class _Climb:
    """One start and its local moves; `accepted` is the best design that met the promise, or None so far."""

    def __init__(self, demands: _Demands, n_max: int, rng: np.random.Generator) -> None:
        self.demands, self.n_max, self.rng = demands, n_max, rng
        self.sizes = sorted({_size_within(demands.clients, n_max, count) for count in _JUDGED})
        self.short = _short_combinations(demands.groups)
        self.current = self._random()
        self.mixed = self.short @ self.current.astype(np.int64)
        self.deficit = self._deficit(self.mixed)
        self.accepted: BitArray | None = None
        self.wrong = math.inf  # expected wrong clients by ties, summed over n_m
        self.noisy = math.inf
        self.trials: NoiseTrials | None = None
        self.step = 0.0

    def begin_polish(self, step: float) -> None:
        """From now on also minimise the wrong clients under noise, on one draw of it."""
        if self.accepted is not None:
            self.step = step
            self.trials = draw_trials(self.demands.clients, self.sizes[-1], _TRIALS, rng=self.rng)
            self.noisy = self._noisy(self.accepted)

    def move(self) -> None:
        """Try one move and keep it if the design does not become worse."""
        for _ in range(_DRAWS):  # moves that break a group size or the promise cost next to nothing: draw again
            changed = self._changed()
            if changed is None:
                continue
            mixed = self._remixed(changed)
            deficit = self._deficit(mixed)
            if deficit > self.deficit:
                continue
            if deficit == 0 and _clients_differ(changed):
                self._judge(changed, mixed)
                return
            if self.accepted is None:
                self.current, self.mixed, self.deficit = changed, mixed, deficit

    def _judge(self, changed: BitArray, mixed: IntArray) -> None:
        wrong = self._wrong(changed)
        if wrong > self.wrong + 1e-12:
            return
        noisy = self._noisy(changed)
        if noisy > self.noisy and wrong > self.wrong - 1e-12:
            return
        private = self._private(changed)
        if private or self.accepted is None:  # before the first success any design may serve as a step on the way
            self.current, self.mixed, self.deficit = changed, mixed, 0
        if private:
            self.accepted, self.wrong, self.noisy = changed, wrong, noisy

    def _wrong(self, matrix: BitArray) -> float:
        """The expected wrong clients by ties summed over n_m, or a part of them that exceeds the current ones."""
        total = 0.0
        for size in sorted({*self.sizes, self.n_max}):
            total = float(ties(_candidate(matrix), size).expected_wrong.sum())
            if total > self.wrong + 1e-12:
                break
        return total

    def _noisy(self, matrix: BitArray) -> float:
        if self.trials is None:
            return math.inf
        design = _candidate(matrix)
        return float(wrong_under_noise(design, ties(design, self.sizes[-1]), self.trials, step=self.step).sum())

    def _private(self, matrix: BitArray) -> bool:
        with_sum = np.vstack([matrix, np.ones((1, matrix.shape[1]), dtype=np.uint8)])
        for rows, least in ((matrix, self.demands.privacy), (with_sum, self.demands.with_sum)):
            support = minimum_support(rows, enough=least)
            if support is None or support.lower < least:
                return False
        return True

    def _deficit(self, mixed: IntArray) -> int:
        """How much is missing from the promise over all watched combinations; one that vanishes misses all of it."""
        support = np.count_nonzero(mixed, axis=1)
        return int(np.maximum(self.demands.privacy - support, 0).sum())

    def _remixed(self, changed: BitArray) -> IntArray:
        columns = np.flatnonzero((changed != self.current).any(axis=0))
        mixed = self.mixed.copy()
        mixed[:, columns] = self.short @ changed[:, columns].astype(np.int64)
        return mixed

    def _random(self) -> BitArray:
        d = self.demands
        matrix = np.zeros((d.groups, d.clients), dtype=np.uint8)
        for row in matrix:
            size = int(self.rng.integers(d.smallest, d.largest + 1))
            row[self.rng.choice(d.clients, size=size, replace=False)] = 1
        return matrix

    def _changed(self) -> BitArray | None:
        """The current matrix after a random move, or None when a group would become too small or too large."""
        matrix = self.current.copy()
        kind = self.rng.integers(4)
        group, client = int(self.rng.integers(matrix.shape[0])), int(self.rng.integers(matrix.shape[1]))
        if kind == 0:
            matrix[group, client] ^= 1
        elif kind == 1:  # exchange a member of a group for another client
            other = int(self.rng.integers(matrix.shape[1]))
            matrix[group, [client, other]] = matrix[group, [other, client]]
        elif kind == 2:  # a client changes groups
            other = int(self.rng.integers(matrix.shape[0]))
            matrix[[group, other], client] = matrix[[other, group], client]
        else:  # two independent flips
            matrix[group, client] ^= 1
            matrix[int(self.rng.integers(matrix.shape[0])), int(self.rng.integers(matrix.shape[1]))] ^= 1
        sizes = matrix.sum(axis=1)
        inside = self.demands.smallest <= sizes.min() and sizes.max() <= self.demands.largest
        return matrix if inside and (matrix != self.current).any() else None


def _candidate(matrix: BitArray) -> Design:
    return Design(matrix=matrix, name="candidate", source="search")


def _clients_differ(matrix: BitArray) -> bool:
    """Whether every client is tested and no two share all their groups."""
    columns = np.left_shift(1, np.arange(matrix.shape[0])) @ matrix.astype(np.int64)
    return bool((columns > 0).all()) and len(np.unique(columns)) == len(columns)


def _short_combinations(groups: int) -> IntArray:
    """int64[combinations, groups] with entries -1, 0, 1, the first one 1: up to as many groups as `_COMBINATIONS` allows."""
    rows: list[list[int]] = []
    for size in range(1, groups + 1):
        if len(rows) + math.comb(groups, size) * 2 ** (size - 1) > _COMBINATIONS:
            break
        for chosen in combinations(range(groups), size):
            for signs in product((1, -1), repeat=size - 1):
                row = [0] * groups
                for i, sign in zip(chosen, (1, *signs), strict=True):
                    row[i] = sign
                rows.append(row)
    return np.array(rows, dtype=np.int64)


def _size_within(clients: int, n_max: int, most: int) -> int:
    """The largest size up to `n_max` (at least 1) of which there are at most so many sets."""
    return max([q for q in range(1, n_max + 1) if set_count(clients, q) <= most], default=min(1, n_max))
