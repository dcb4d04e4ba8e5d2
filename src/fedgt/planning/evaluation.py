"""One design under the demands of a consortium: everything that the search compares."""

from dataclasses import dataclass
from itertools import combinations, product
from math import comb

import numpy as np

from fedgt.deadline import NEVER, Deadline
from fedgt.design import Design, contamination
from fedgt.errors import DesignError, OutOfTimeError
from fedgt.planning.demands import Demands
from fedgt.planning.expected import MAX_TABLE, expected, least_wrong
from fedgt.planning.margin import margin
from fedgt.planning.ties import set_count, ties
from fedgt.privacy import minimum_support
from fedgt.types import FloatArray, frozen

_STATES = 300_000  # sets of columns that the exact r may cost inside a search; beyond it a proved lower bound counts
_PLACES = 60_000_000  # the same in array elements
_SAMPLES = 2_000  # sets of malicious clients where not all outcomes can be listed
_FEWEST_SAMPLES = 50
_SAMPLED = 20_000_000  # array elements of all that are drawn for a design
_DROPOUT_SETS = 60  # sets of dropouts that are looked at
_MARGIN_SETS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Figures:
    """What designs are compared by; larger gains are better.

    Attributes:
        design: The design.
        r: The proved minimum support: the privacy that may be claimed.
        r_exact: Whether r is known and not only bounded from below.
        max_malicious: n_m^max at the demanded kappa; None for graded evidence, which needs no clean group.
        expected_mean: Expected wrong (missed and falsely accused) clients, averaged over n_m = 0..max_malicious demanded.
        standard_error: Of `expected_mean`; 0 where exact.
        margin: Graded evidence: the smallest separation of two sets that are not tied, in standard deviations of one
            client's model per unit of attack; None for binary outcomes.

    Examples:
        >>> from fedgt import named_design
        >>> from fedgt.planning import Figures
        >>> figures = Figures(design=named_design("bch-15x8"), r=4, r_exact=True, max_malicious=5, expected_mean=1.4)
        >>> figures.groups, figures.gains
        (8, (-8, 4, 5.0, -1.4))
    """

    design: Design
    r: int
    r_exact: bool
    max_malicious: int | None
    expected_mean: float
    standard_error: float = 0.0
    margin: float | None = None

    @property
    def groups(self) -> int:
        """The number of groups, which is the number of secure sums of a test round."""
        return self.design.groups

    @property
    def gains(self) -> tuple[float, float, float, float]:
        """Fewer groups, r, n_m^max or margin, fewer wrong clients; .01 clients and .05 of margin are no difference."""
        third = self.max_malicious if self.max_malicious is not None else round(20.0 * (self.margin or 0.0))
        return (-self.groups, self.r, float(third), -round(self.expected_mean, 2))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluation:
    """The figures of a design of the Pareto set, and what a reader of the table wants to know besides.

    Attributes:
        figures: What it was compared by.
        r_after: The worst r once the expected number of clients are missing: max(1, r - dropouts), attained when they sit in
            one least combination.
        keeps_promise: The fraction of sets of that many missing clients after which r is still at least the demanded
            privacy (all of them, or 60 drawn at random, fewer when time is
            up); 1 with no dropouts.
        missed: float64[max_malicious + 1]: expected malicious clients not flagged, by n_m. For graded evidence, where only
            their sum is known, NaN; where time was up, all three are.
        accused: float64[max_malicious + 1]: expected benign clients flagged, by n_m; NaN likewise.
        wrong: float64[max_malicious + 1]: both together.

    Examples:
        >>> from fedgt.planning import Demands, search
        >>> found = search(Demands(clients=8, privacy=2, max_malicious=1), effort=0.1, draws=1)
        >>> found.recommended.r_after >= 2, found.recommended.keeps_promise  # nobody is expected to be missing
        (True, 1.0)
    """

    figures: Figures
    r_after: int
    keeps_promise: float
    missed: FloatArray
    accused: FloatArray
    wrong: FloatArray

    @property
    def design(self) -> Design:
        """The design."""
        return self.figures.design

    @property
    def expected_most(self) -> float:
        """Expected wrong clients at n_m = the demanded max_malicious."""
        return float(self.wrong[-1])


def figures(design: Design, demands: Demands, *, seed: int = 0) -> Figures:
    """What a design is compared by.

    Args:
        design: Of the demanded number of clients.
        demands: What is asked.
        seed: Of what has to be sampled (with the design itself, so that the order of evaluations does not matter).

    Raises:
        DesignError: If the design has another number of clients, or more sets than graded evidence can compare.
    """
    if design.clients != demands.clients:
        raise DesignError(f"design {design.name!r} has {design.clients} clients, {demands.clients} are demanded")
    support = minimum_support(design.matrix, max_states=states(demands.clients))
    if support is None:  # pragma: no cover - a design has no empty group
        raise DesignError(f"design {design.name!r} reveals nothing")
    stands: int | None = None
    error, apart = 0.0, None
    if demands.evidence == "graded":
        wrong, apart = _graded_figures(design, demands)
    else:
        stands, wrong, error = _binary_figures(design, demands, _rng(design, seed))
    return Figures(
        design=design,
        r=support.lower,
        r_exact=support.exact,
        max_malicious=stands,
        expected_mean=wrong,
        standard_error=error,
        margin=apart,
    )


def evaluate(found: Figures, demands: Demands, *, seed: int = 0, deadline: Deadline = NEVER) -> Evaluation:
    """The rest of the table for a design of the Pareto set: errors by n_m, and what dropouts do."""
    design, counts = found.design, range(demands.max_malicious + 1)
    rng = _rng(design, seed)
    if demands.evidence == "graded":
        wrong = ties(design, demands.max_malicious).expected_wrong
        missed = accused = frozen(np.full(len(wrong), np.nan), np.float64)
    else:
        try:
            errors = expected(
                design,
                demands.rates,
                malicious=counts,
                largest=demands.max_malicious,
                rng=rng,
                samples=_samples(demands),
                deadline=deadline,
            )
            missed, accused, wrong = errors.missed, errors.accused, frozen(errors.wrong, np.float64)
        except OutOfTimeError:
            missed = accused = wrong = frozen(np.full(len(counts), np.nan), np.float64)
    return Evaluation(
        figures=found,
        r_after=max(1, found.r - demands.dropouts),
        keeps_promise=_keeps_promise(design, demands, found.r, rng, deadline),
        missed=missed,
        accused=accused,
        wrong=wrong,
    )


def _rng(design: Design, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, *np.packbits(design.matrix).tolist()])


def _binary_figures(design: Design, demands: Demands, rng: np.random.Generator) -> tuple[int, float, float]:
    """n_m^max, expected wrong clients, and the standard error of these."""
    most = demands.max_malicious
    stands = contamination(design, rng=rng, samples=50_000).max_malicious(demands.kappa)
    if design.clients << design.groups <= MAX_TABLE:
        return stands, least_wrong(design, demands.rates, most), 0.0
    errors = expected(
        design, demands.rates, malicious=range(most + 1), largest=most, rng=rng, samples=_samples(demands)
    )
    # The same sets do not serve every n_m: the errors add like independent ones.
    error = float(np.sqrt((errors.standard_error**2).sum()) / (most + 1))
    return stands, float(errors.wrong.mean()), error


def _samples(demands: Demands) -> int:
    """Sets of each size that are drawn: fewer of large ones, so that a design is judged in seconds."""
    return int(np.clip(_SAMPLED // ((demands.max_malicious + 1) * demands.clients), _FEWEST_SAMPLES, _SAMPLES))


def _graded_figures(design: Design, demands: Demands) -> tuple[float, float]:
    """Ties by direction, noise-free, and the margin over the sizes that can be compared pair by pair."""
    most = demands.max_malicious
    found = ties(design, most)
    size = max((q for q in range(1, most + 1) if set_count(design.clients, q) <= _MARGIN_SETS), default=1)
    apart = margin(design, found if size == most else ties(design, size))
    return float(found.expected_wrong.mean()), float(apart.separation.min())


def _keeps_promise(design: Design, demands: Demands, r: int, rng: np.random.Generator, deadline: Deadline) -> float:
    k, n = demands.dropouts, demands.clients
    if k == 0 or r - k >= demands.privacy:
        return 1.0
    if comb(n, k) <= _DROPOUT_SETS:
        missing = [list(one) for one in combinations(range(n), k)]
    else:
        missing = np.argsort(rng.random((_DROPOUT_SETS, n)), axis=1)[:, :k].tolist()
    kept = tried = 0
    for one in missing:
        if tried and deadline.passed():
            break
        tried += 1
        rest = np.delete(design.matrix, one, axis=1)
        support = (
            minimum_support(rest, enough=demands.privacy, max_states=states(demands.clients)) if rest.any() else None
        )
        kept += support is None or support.lower >= demands.privacy
    return kept / tried


def states(clients: int) -> int:
    """What the exact r of one design may cost inside a search."""
    return min(_STATES, _PLACES // clients)


def private(design: Design, privacy: int) -> bool:
    """Whether r >= privacy is proved; combinations of up to three groups with weights 1 and -1 are tried first."""
    rows = design.matrix.astype(np.int64)
    for size in range(1, min(3, len(rows)) + 1):
        chosen = np.array(list(combinations(range(len(rows)), size)))
        for signs in product((1, -1), repeat=size - 1):
            mixed = np.tensordot(np.array([1, *signs]), rows[chosen], axes=(0, 1))
            weight = np.count_nonzero(mixed, axis=1)
            if ((weight > 0) & (weight < privacy)).any():
                return False
    support = minimum_support(rows, enough=privacy, max_states=states(design.clients))
    return support is not None and support.lower >= privacy


def objective(design: Design, demands: Demands) -> tuple[float, float]:
    """(how far P(all contaminated at max_malicious) exceeds kappa, mean expected wrong clients): smaller is better.

    Binary outcomes only, for designs whose outcomes can all be listed.
    """
    if design.clients << design.groups > MAX_TABLE:
        raise DesignError(f"design {design.name!r} is too large to be improved step by step")
    excess = max(0.0, float(contamination(design).probability[demands.max_malicious]) - demands.kappa)
    return excess, least_wrong(design, demands.rates, demands.max_malicious)
