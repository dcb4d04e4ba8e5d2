"""From demands to designs: all families, then small improvements, then the Pareto set and one recommendation.

The result depends on demands, effort and seed alone, and on time only where the deadline passed: then it says how far it
came. All numbers of groups share the time: first their families, then the climbs, then the figures of what was found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from fedgt.deadline import NEVER, Deadline
from fedgt.design import Design, candidates
from fedgt.errors import DesignError, SpecError
from fedgt.planning.climb import Progress, Steps, climbed
from fedgt.planning.demands import Demands, Evidence, require_possible
from fedgt.planning.evaluation import Evaluation, Figures, evaluate, figures, private, states
from fedgt.planning.expected import MAX_TABLE
from fedgt.planning.graded_search import search_graded
from fedgt.planning.ties import set_count, ties
from fedgt.privacy import minimum_support

_FIRST = "of the designs whose worst r after the expected dropouts keeps the demanded privacy (of all, if none does): "
RULES: Mapping[Evidence, str] = MappingProxyType(
    {
        "binary": _FIRST
        + "the fewest groups that give 85 % of the largest reduction of wrong clients, compared with accusing "
        "nobody; of these the fewest wrong clients",
        "graded": _FIRST
        + "the fewest groups that give 98 % of the largest reduction of wrong clients, compared with accusing "
        "nobody; of these the largest margin",
    }
)
"""How one design of the Pareto set is recommended."""

_WORK = 250_000_000  # array elements that the improvement of one number of groups may touch, times the effort
_MOST_MOVES = 1200
_GRADED_MOVES = 60
_POLISH_SHARE = 0.5  # further moves of the search for graded evidence, for fewer errors under noise
_GRADED_WORK = 1_000_000  # sets of attackers that the moves for one number of groups may cost, times the effort
_CANDIDATE_WORK = 500_000  # and the candidates
_GLANCE = 2_000  # sets by which candidates for graded evidence are compared before all are looked at
_FAMILY_SHARE, _CLIMB_SHARE, _FIGURES_UNTIL = 0.3, 0.3, 0.8  # of the time; the rest is for the rest of the table
_SHARE: Mapping[Evidence, float] = MappingProxyType({"binary": 0.85, "graded": 0.98})
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchResult:
    """What was found.

    Attributes:
        demands: What was asked.
        front: The Pareto set of the designs that meet the demands, by groups, then by expected error. Nothing found is at
            least as good in all columns and better in one.
        recommended: One of the front.
        rule: How it was chosen, in words.
        looked_at: How many designs were looked at.
        planned: How many would have been with enough time.
        seconds: The time that the search had; it was enough if it looked at all that was planned.
        seed: Of the search.

    Examples:
        >>> from fedgt.planning import Demands, search
        >>> found = search(Demands(clients=8, privacy=2, max_malicious=1), effort=0.1, draws=1)
        >>> found.recommended in found.front
        True
    """

    demands: Demands
    front: tuple[Evaluation, ...]
    recommended: Evaluation
    rule: str
    looked_at: int
    planned: int
    seconds: float
    seed: int

    @property
    def far(self) -> str:
        """How far the search came, for a reader; empty if it did all that was planned."""
        return _far(self.looked_at, self.planned, self.seconds)


def search(
    demands: Demands,
    *,
    seed: int = 0,
    effort: float = 1.0,
    draws: int = 12,
    progress: Progress | None = None,
    deadline: Deadline | None = None,
) -> SearchResult:
    """The Pareto set of designs that meet the demands.

    Binary evidence: every family of `fedgt.design.candidates` for every number of groups, and from the best of each a climb
    by single moves (a client takes another's place, two groups trade clients, one joins or leaves) that keeps r and lowers
    the expected error of `bayes`. Graded evidence: the same families judged by ties and margin (of many candidates those
    with the fewest ties among small sets, for each r), and `search_graded`.

    Args:
        demands: What is asked.
        seed: The same seed gives the same result.
        effort: Scales the moves of the climbs; 1 takes about half a minute for 20 clients on one core.
        draws: Designs of each random family for every number of groups.
        progress: Told after every step.
        deadline: When to stop, about; without one 20 seconds from now.

    Raises:
        SpecError: If the effort is not positive.
        DesignError: If no design can meet the demands, or none was found: with the demand that binds and what is nearest.

    Examples:
        >>> from fedgt.planning import Demands, search
        >>> found = search(Demands(clients=8, privacy=2, max_malicious=1), effort=0.1, draws=1)
        >>> found.recommended.figures.r >= 2, found.looked_at > 0
        (True, True)
    """
    if not 0 < effort < np.inf:
        raise SpecError(f"effort = {effort}; a finite number above 0 is needed")
    require_possible(demands)
    first = max(2 if demands.evidence == "graded" else 1, demands.groups_needed)
    sizes = list(range(first, demands.groups_limit + 1))
    if not sizes:
        raise DesignError(
            f"privacy {demands.privacy} of {demands.clients} clients leaves {demands.groups_limit} group(s), at least "
            f"{first} are needed: lower the privacy to {demands.clients - first + 1} or less"
        )
    deadline = Deadline() if deadline is None else deadline
    work = _Work(demands, effort, sizes, progress)
    rng = np.random.default_rng(seed)
    children = dict(zip(sizes, rng.spawn(len(sizes)), strict=True))
    for place, groups in enumerate(sizes, start=1):
        work.families(groups, draws, children[groups], deadline.part(_FAMILY_SHARE * place / len(sizes)))
    for place, groups in enumerate(sizes, start=1):
        share = _FAMILY_SHARE + _CLIMB_SHARE * place / len(sizes)
        work.improve(groups, children[groups], deadline.part(share))
    until = deadline.part(_FIGURES_UNTIL)
    found = _judged(work.designs, demands, seed, until)
    looked_at = work.looked_at - (len(work.designs) - len(found))
    meeting = [one for one in found if _meets(one, demands)]
    if not meeting:
        if first > 1 and not deadline.passed():  # with too few groups for the attackers, privacy may at least be kept
            fewer = candidates(demands.clients, groups=range(1, first), rng=rng, draws=min(draws, 4))
            found += _judged([one for one in fewer if private(one, demands.privacy)], demands, seed, until)
        others = _judged(work.near, demands, seed, until)
        far = _far(looked_at, work.planned, deadline.seconds)
        raise DesignError(_nothing(demands, found, others, looked_at) + (f"; {far}" if far else ""))
    front = tuple(evaluate(one, demands, seed=seed, deadline=deadline) for one in pareto(meeting))
    return SearchResult(
        demands=demands,
        front=front,
        recommended=recommended(front, demands),
        rule=RULES[demands.evidence],
        looked_at=looked_at,
        planned=work.planned,
        seconds=deadline.seconds,
        seed=seed,
    )


def pareto(evaluations: Sequence[Figures]) -> tuple[Figures, ...]:
    """Those that no other one beats; of equals the one with the least error, then the largest margin, then the first.

    They come by groups, then by expected error.
    """
    evaluations = sorted(evaluations, key=lambda one: (one.expected_mean, -(one.margin or 0.0)))
    gains = np.array([one.gains for one in evaluations])
    kept = []
    for i, one in enumerate(evaluations):
        at_least = (gains >= gains[i]).all(axis=1)
        better = at_least & (gains > gains[i]).any(axis=1)
        equal_before = (gains[:i] == gains[i]).all(axis=1)
        if not better.any() and not equal_before.any():
            kept.append(one)
    return tuple(sorted(kept, key=lambda one: (one.groups, one.expected_mean, -one.r, one.design.name)))


def recommended(front: Sequence[Evaluation], demands: Demands) -> Evaluation:
    """One of the front, by `RULES`."""
    keeping = [one for one in front if one.r_after >= demands.privacy] or list(front)
    nobody = demands.max_malicious / 2  # wrong clients on average when nobody is ever accused
    least = min(one.figures.expected_mean for one in keeping)
    # Where the best is worse than accusing nobody, nothing but the best is close to it.
    enough = max(least, nobody - _SHARE[demands.evidence] * (nobody - least)) + _ROUNDING
    close = [one for one in keeping if one.figures.expected_mean <= enough]
    fewest = min(one.figures.groups for one in close)
    return min(
        (one for one in close if one.figures.groups == fewest),
        key=lambda one: (
            -round(one.figures.margin or 0.0, 3),  # 0 for binary evidence
            round(one.figures.expected_mean, 3),
            -one.figures.r,
            one.design.name,
        ),
    )


def _far(looked_at: int, planned: int, seconds: float) -> str:
    if looked_at >= planned:
        return ""
    return f"searched {looked_at} of {planned} designs in {seconds:g} s; more time: --seconds"


def _judged(designs: Sequence[Design], demands: Demands, seed: int, deadline: Deadline) -> list[Figures]:
    """The figures of the designs, in their order; when the time is up, at least of the first one."""
    turn: dict[int, int] = {}  # the numbers of groups take turns, so that none is without when the time is up
    turns = []
    for place, design in enumerate(designs):
        turns.append((turn.get(design.groups, 0), place))
        turn[design.groups] = turn.get(design.groups, 0) + 1
    found: dict[int, Figures] = {}
    for _, place in sorted(turns):
        if found and deadline.passed():
            break
        found[place] = figures(designs[place], demands, seed=seed)
    return [found[place] for place in sorted(found)]


class _Work:
    """What a search has found and done so far."""

    def __init__(self, demands: Demands, effort: float, sizes: Sequence[int], progress: Progress | None) -> None:
        self.demands, self.effort = demands, effort
        self.moves = {groups: _moves(demands, groups, effort) for groups in sizes}
        self.keeping: dict[int, list[Design]] = {}
        self.improved: dict[int, list[Design]] = {}
        self.near: list[Design] = []
        self.looked_at = self.planned = 0
        self.steps = Steps(progress, sum(1 + count for count in self.moves.values()))

    @property
    def designs(self) -> list[Design]:
        """What is worth to be judged, by groups."""
        return [one for groups in self.moves for one in (*self.keeping.get(groups, ()), *self.improved.get(groups, ()))]

    def families(self, groups: int, draws: int, rng: np.random.Generator, deadline: Deadline) -> None:
        """Look through all families of one number of groups."""
        keeping: list[Design] = []
        near: list[Design] = []
        family = list(candidates(self.demands.clients, groups=range(groups, groups + 1), rng=rng, draws=draws))
        self.planned += len(family)
        for design in family:
            if deadline.passed():
                break
            self.looked_at += 1
            (keeping if private(design, self.demands.privacy) else near).append(design)
        self.near += near[:40]
        if self.demands.evidence == "graded":
            keeping = promising(keeping, self.demands, self.effort, deadline)
        self.keeping[groups] = keeping
        self.steps.done()

    def improve(self, groups: int, rng: np.random.Generator, deadline: Deadline) -> None:
        """Climb from the best of one number of groups, or search for graded evidence."""
        moves, before = self.moves[groups], self.steps.count
        if self.demands.evidence == "graded":
            self.improved[groups] = _graded(self.demands, groups, moves, rng, self.steps, deadline)
        else:
            starts = self.keeping.get(groups, ())
            self.improved[groups] = climbed(self.demands, starts, moves, rng, self.steps, deadline)
        tried = self.steps.count - before
        self.looked_at += tried
        self.planned += moves if deadline.passed() else tried
        self.steps.done(moves - tried)


def _moves(demands: Demands, groups: int, effort: float) -> int:
    if demands.evidence == "graded":
        if groups >= demands.clients:
            return 0
        affordable = min(_GRADED_MOVES, max(4, _GRADED_WORK // set_count(demands.clients, demands.max_malicious)))
        return max(2, round(affordable * effort))
    if demands.clients << groups > MAX_TABLE:
        return 0
    size = (demands.clients << groups) * groups
    return min(round(_MOST_MOVES * effort), max(2, round(_WORK * effort / size)))


def promising(designs: Sequence[Design], demands: Demands, effort: float, deadline: Deadline = NEVER) -> list[Design]:
    """The designs that are worth to have all their ties counted: for each r those with few among small sets, in turn."""
    n, most = demands.clients, demands.max_malicious
    wanted = max(4, round(_CANDIDATE_WORK * effort) // set_count(n, most))
    if len(designs) <= wanted:
        return list(designs)
    small = max(q for q in range(1, most + 1) if q == 1 or set_count(n, q) <= _GLANCE)

    by_r: dict[int, list[tuple[float, int]]] = {}
    for place, design in enumerate(designs):
        support = minimum_support(design.matrix, max_states=states(n))
        wrong = float(ties(design, small).expected_wrong.mean())
        by_r.setdefault(0 if support is None else support.lower, []).append((wrong, place))
        if deadline.passed():
            break
    turns = [sorted(by_r[r]) for r in sorted(by_r, reverse=True)]
    chosen = [turn[k][1] for k in range(len(designs)) for turn in turns if k < len(turn)]
    return [designs[place] for place in sorted(chosen[:wanted])]


def _graded(
    demands: Demands, groups: int, moves: int, rng: np.random.Generator, steps: Steps, deadline: Deadline
) -> list[Design]:
    if moves == 0 or deadline.passed():
        return []
    polish = round(moves * _POLISH_SHARE / (1 + _POLISH_SHARE))
    found = search_graded(
        demands.clients,
        groups,
        privacy=demands.privacy,
        rng=rng,
        n_max=demands.max_malicious,
        privacy_with_sum=max(1, min(demands.privacy, 4, demands.clients - groups)),
        restarts=1,
        moves=moves - polish,
        polish=polish,
        name=f"searched-graded-{demands.clients}x{groups}",
        progress=lambda done, total: steps.done(),
        deadline=deadline,
    )
    return [] if found is None else [found.design]


def _meets(one: Figures, demands: Demands) -> bool:
    enough = one.max_malicious is None or one.max_malicious >= demands.max_malicious
    return one.r >= demands.privacy and enough


def _nothing(demands: Demands, private: Sequence[Figures], others: Sequence[Figures], looked_at: int) -> str:
    """What binds when nothing was found, and what came nearest."""
    head = (
        f"no design of {demands.clients} clients with privacy {demands.privacy}, max_malicious {demands.max_malicious} at "
        f"kappa {demands.kappa:g} and {demands.groups_limit} groups at most was found among {looked_at} (the bounds do not "
        "rule one out)"
    )
    nearest = []
    stands = [one for one in private if one.max_malicious is not None]
    if stands:
        most = max(stands, key=lambda one: (one.max_malicious or 0, -one.groups))
        nearest.append(f"privacy {demands.privacy} with max_malicious {most.max_malicious} ({most.groups} groups)")
    graded = demands.evidence == "graded"  # any number of attackers up to a minority then
    standing = [one for one in others if graded or (one.max_malicious or 0) >= demands.max_malicious]
    if standing:
        most = max(standing, key=lambda one: (one.r, -one.groups))
        nearest.append(f"max_malicious {demands.max_malicious} with privacy {most.r} ({most.groups} groups)")
    binds = "max_malicious binds" if stands else "privacy binds"
    return f"{head}; {binds}. Nearest found: {', or '.join(nearest) or 'none: lower several demands, or allow more groups'}"
