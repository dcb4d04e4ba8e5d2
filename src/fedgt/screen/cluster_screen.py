"""The paper's group test (section IV.D): cluster the groups, call the cluster of highest mean utility negative."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedgt.errors import ShapeError, SpecError
from fedgt.screen.clustering import Clustering, check_settings, cluster_points
from fedgt.screen.projection import LARGEST_USABLE, first_component, usable_rows
from fedgt.types import (
    ERASED,
    NEGATIVE,
    POSITIVE,
    BoolArray,
    FloatArray,
    IntArray,
    Outcomes,
    as_array,
    as_count,
    as_numbers,
    frozen,
)

_TIE = 1e-12
"""Mean utilities closer than this are equal: a utility is a ratio of counts, so any real difference is far larger."""

ScreenStatus = Literal["tested", "no-evidence", "no-utility", "too-few-groups"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScreenResult:
    """What the screen found, and why.

    Attributes:
        outcomes: One outcome per group.
        utilities: float64[groups], v of the paper; NaN for a group that is not tested.
        projection: float64[groups], p of the paper; NaN for a group that is not tested.
        clusters: int64[groups], the cluster of each group, numbered by falling mean utility; -1 for a group not tested.
        number_of_clusters: k-hat of the paper; 0 when there were too few groups to cluster.
        silhouette_max: The largest silhouette score of all numbers of clusters tried; 0 when none was.
        status: "tested" (some groups are positive); "no-evidence" (one cluster, all negative); "no-utility" (several
            clusters, but all of the same mean utility: all negative); "too-few-groups" (fewer than two usable groups:
            all erased, since a lone group cannot be compared with anything).
        reason: The same in plain words, with the groups that were left out and why.

    Examples:
        >>> from fedgt.screen import all_negative
        >>> found = all_negative([[0.0], [1.0]], [0.9, 0.8], erased=[False, False], reason="nothing was asked")
        >>> found.status, found.number_of_clusters
        ('no-evidence', 1)
    """

    outcomes: Outcomes
    utilities: FloatArray
    projection: FloatArray
    clusters: IntArray
    number_of_clusters: int
    silhouette_max: float
    status: ScreenStatus
    reason: str

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "utilities", frozen(self.utilities, np.float64))
        object.__setattr__(self, "projection", frozen(self.projection, np.float64))
        object.__setattr__(self, "clusters", frozen(self.clusters, np.int64))


def cluster_screen(
    means_layer: npt.ArrayLike,
    utilities: npt.ArrayLike,
    *,
    erased: npt.ArrayLike,
    max_group_size: int,
    silhouette_threshold: float,
    restarts: int,
    seed: int,
) -> ScreenResult:
    """Test every group from its mean model and its utility (section IV.D of the paper).

    The points (v_i, p_i) are clustered unscaled into at most min(usable groups, max_group_size + 1) clusters. The
    cluster of highest mean utility is negative, and so is every cluster that ties with it; all others are positive.

    Args:
        means_layer: float[groups, features], the part of the classification layer of each group mean that
            `projection.layer_features` selects; rows of erased groups may hold anything.
        utilities: float[groups], the utility of each group mean, higher is better.
        erased: bool[groups], true where the sum of the group was not opened.
        max_group_size: The largest number of clients in a group, max |P_i|.
        silhouette_threshold: s^thres, from -1 to 1; the paper uses 0.6, and 0 for heterogeneous clients.
        restarts: How many starting positions k-means tries for each number of clusters.
        seed: Seeds those positions; equal seeds give equal answers.

    Returns:
        The outcomes with their evidence. A group whose layer or utility is not finite, or beyond 1e150, is erased, and
        the rest is tested.

    Raises:
        ShapeError: If the shapes do not fit.
        SpecError: If a number is out of range.

    Examples:
        >>> import numpy as np
        >>> from fedgt.screen import cluster_screen
        >>> layers = np.array([[0.0, 0.0], [0.0, 0.1], [5.0, 0.0], [5.0, 0.1]])  # of the mean models of four groups
        >>> found = cluster_screen(
        ...     layers,
        ...     utilities=[0.9, 0.9, 0.2, 0.2],
        ...     erased=[False] * 4,
        ...     max_group_size=4,
        ...     silhouette_threshold=0.6,
        ...     restarts=10,
        ...     seed=0,
        ... )
        >>> str(found.outcomes), found.status
        ('0011', 'tested')
    """
    layer, values, closed = _checked(means_layer, utilities, erased)
    if as_count(max_group_size, "max_group_size") < 1:
        raise SpecError(f"the largest group is said to have {max_group_size} clients; at least 1 is needed")
    check_settings(
        max_clusters=max_group_size + 1, silhouette_threshold=silhouette_threshold, restarts=restarts, seed=seed
    )
    usable, left_out = _usable(layer, values, closed)
    if usable.sum() < 2:
        return _untested(usable, values, left_out)

    projection = np.full(len(values), np.nan)
    projection[usable] = first_component(layer[usable])
    found = cluster_points(
        np.column_stack((values[usable], projection[usable])),
        max_clusters=min(int(usable.sum()), max_group_size + 1),
        silhouette_threshold=silhouette_threshold,
        restarts=restarts,
        seed=seed,
    )
    labels, means = _by_falling_utility(found, values[usable], projection[usable])
    best = means >= means[0] - _TIE
    clusters = np.full(len(values), -1, dtype=np.int64)
    clusters[usable] = labels
    outcomes = np.full(len(values), ERASED, dtype=np.int8)
    outcomes[usable] = np.where(best[labels], NEGATIVE, POSITIVE)
    status, reason = _verdict(found, means, values[usable], outcomes, silhouette_threshold)
    return ScreenResult(
        outcomes=Outcomes(values=outcomes),
        utilities=np.where(usable, values, np.nan),
        projection=projection,
        clusters=clusters,
        number_of_clusters=found.clusters,
        silhouette_max=found.silhouette_max,
        status=status,
        reason=reason + left_out,
    )


def all_negative(
    means_layer: npt.ArrayLike, utilities: npt.ArrayLike, *, erased: npt.ArrayLike, reason: str
) -> ScreenResult:
    """Every usable group negative without clustering, because they do not differ; arguments as `cluster_screen`.

    Examples:
        >>> from fedgt.screen import all_negative
        >>> found = all_negative([[0.0], [1.0], [2.0]], [0.9, 0.8, 0.9], erased=[False, False, True], reason="no difference")
        >>> str(found.outcomes), found.reason
        ('00?', 'no difference; erased: group 2 (sum not opened)')
    """
    layer, values, closed = _checked(means_layer, utilities, erased)
    usable, left_out = _usable(layer, values, closed)
    if usable.sum() < 2:
        return _untested(usable, values, left_out)
    projection = np.full(len(values), np.nan)
    projection[usable] = first_component(layer[usable])
    return ScreenResult(
        outcomes=Outcomes(values=np.where(usable, NEGATIVE, ERASED).astype(np.int8)),
        utilities=np.where(usable, values, np.nan),
        projection=projection,
        clusters=np.where(usable, 0, -1),
        number_of_clusters=1,
        silhouette_max=0.0,
        status="no-evidence",
        reason=reason + left_out,
    )


def _by_falling_utility(
    found: Clustering, utilities: FloatArray, projection: FloatArray
) -> tuple[IntArray, FloatArray]:
    """The clusters renumbered so that 0 has the highest mean utility, and the mean utilities in that order."""
    sizes = np.bincount(found.labels)
    means = np.bincount(found.labels, weights=utilities) / sizes
    # Which of two tied clusters comes first has no meaning; the projection only makes it reproducible.
    order = np.lexsort((np.bincount(found.labels, weights=projection) / sizes, -means))
    return order.argsort()[found.labels], means[order]


def _verdict(
    found: Clustering, means: FloatArray, utilities: FloatArray, outcomes: npt.NDArray[np.int8], threshold: float
) -> tuple[ScreenStatus, str]:
    """The status, and the reason in plain words."""
    constant = float(np.ptp(utilities)) <= _TIE
    silent = f"the utility carries no information: it is {means[0]:.4g} in every "
    if found.clusters == 1:
        if found.distinct == 1:
            why = "all have the same utility and the same model"
        elif found.silhouette_max < threshold:
            why = f"the largest silhouette, {found.silhouette_max:.3g}, is below the threshold {threshold:.3g}"
        else:
            why = "no number of clusters puts two groups together and others apart"
        text = f"no evidence: the {len(utilities)} groups form one cluster ({why}), so all are negative"
        return "no-evidence", text + (f"; {silent}group" if constant else "")
    if means[0] - means[-1] <= _TIE:
        where = "group" if constant else f"one of the {found.clusters} clusters on average"
        return "no-utility", f"{silent}{where}, so all are negative"
    return "tested", (
        f"{found.clusters} clusters (largest silhouette {found.silhouette_max:.3g}): {_groups(outcomes == NEGATIVE)} "
        f"of mean utility {means[0]:.4g} negative, {_groups(outcomes == POSITIVE)} positive"
    )


def _untested(usable: BoolArray, utilities: FloatArray, left_out: str) -> ScreenResult:
    """All groups erased: a lone group cannot be compared with anything, and a clean bill needs evidence."""
    nothing = np.full(len(usable), np.nan)
    return ScreenResult(
        outcomes=Outcomes(values=np.full(len(usable), ERASED, dtype=np.int8)),
        utilities=np.where(usable, utilities, np.nan),
        projection=nothing,
        clusters=np.full(len(usable), -1, dtype=np.int64),
        number_of_clusters=0,
        silhouette_max=0.0,
        status="too-few-groups",
        reason=f"{int(usable.sum())} of {len(usable)} groups can be tested and the screen compares at least two, "
        f"so every outcome is erased{left_out}",
    )


def _usable(layer: FloatArray, utilities: FloatArray, closed: BoolArray) -> tuple[BoolArray, str]:
    """Which groups are tested, and of the others why not; the words are empty when all are."""
    broken_layer = ~closed & ~usable_rows(layer)
    broken_utility = ~closed & ~broken_layer & ~(np.abs(utilities) < LARGEST_USABLE)
    causes = (
        (closed, "sum not opened"),
        (broken_layer, "classification layer not finite"),
        (broken_utility, "utility not finite"),
    )
    parts = [f"{_groups(mask)} ({cause})" for mask, cause in causes if mask.any()]
    usable = ~(closed | broken_layer | broken_utility)
    return usable, f"; erased: {', '.join(parts)}" if parts else ""


def _groups(mask: BoolArray) -> str:
    """The groups of a mask in words."""
    numbers = np.flatnonzero(mask).tolist()
    return ("group " if len(numbers) == 1 else "groups ") + ", ".join(map(str, numbers))


def _checked(
    means_layer: npt.ArrayLike, utilities: npt.ArrayLike, erased: npt.ArrayLike
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """The three arrays with the shapes (m, D), (m,) and (m,)."""
    layer = as_numbers(means_layer, "group means")
    values = as_numbers(utilities, "utilities")
    closed = as_array(erased, "erasures")
    if layer.ndim != 2 or layer.shape[1] == 0 or values.shape != layer.shape[:1] or closed.shape != layer.shape[:1]:
        raise ShapeError(
            f"group means of shape {layer.shape}, utilities of shape {values.shape} and erasures of shape "
            f"{closed.shape} were given; (groups, features), (groups,) and (groups,) are needed"
        )
    if closed.dtype != np.bool_:
        raise ShapeError(f"erasures have dtype {closed.dtype}; bool is needed, true where a sum was not opened")
    return layer, values, closed
