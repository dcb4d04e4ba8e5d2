"""How many kinds of groups there are: k-means, silhouette and Dunn index of section IV.D of the paper.

Distances are squared Euclidean distances throughout, as in the paper's formulas.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgt.errors import CalibrationError, ShapeError, SpecError
from fedgt.types import FloatArray, IntArray, as_array, as_count, as_number, as_numbers, frozen

_RESOLUTION = 1e-6
"""Points closer than this fraction of the spread are one point: k-means in doubles resolves about 3e-8 of it."""

_ROUNDING = 1e-12
"""A spread below this fraction of the largest coordinate is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clustering:
    """Which points belong together.

    Attributes:
        labels: int64[points], from 0 to clusters - 1.
        clusters: k-hat of the paper.
        silhouette_max: The largest silhouette score of all numbers of clusters tried, from 0 (one cluster) to 1.
        distinct: The number of distinct points.

    Examples:
        >>> from fedgt.screen import cluster_points
        >>> points = [[0.0, 0.0], [0.0, 0.1], [9.0, 5.0], [9.0, 5.1]]
        >>> found = cluster_points(points, max_clusters=3, silhouette_threshold=0.6, restarts=5, seed=0)
        >>> found.distinct, round(found.silhouette_max, 3)
        (4, 1.0)
    """

    labels: IntArray
    clusters: int
    silhouette_max: float
    distinct: int

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "labels", frozen(self.labels, np.int64))


def silhouette_values(points: npt.ArrayLike, labels: npt.ArrayLike) -> FloatArray:
    """The silhouette s_i of every point (section IV.D of the paper).

    Args:
        points: float[points, dimensions].
        labels: int[points], the cluster of each point, any numbers.

    Returns:
        float64[points], each from -1 to 1; 0 for the only point of a cluster, and, completing the paper's formula, for
        a point that coincides with its whole cluster and with another one (0 / 0).

    Raises:
        ShapeError: If the shapes do not fit.
        CalibrationError: If there are fewer than two clusters: there is no other cluster to be distant from.

    Examples:
        >>> from fedgt.screen import silhouette_values
        >>> silhouette_values([[0.0], [0.1], [9.0], [9.1]], [0, 0, 1, 1]).round(3).tolist()
        [1.0, 1.0, 1.0, 1.0]
    """
    array, member = _partition(points, labels)
    own = member.argmax(axis=1)
    sizes = member.sum(axis=0)
    sums = _squared_distances(array) @ member
    everyone = np.arange(len(array))
    others = np.maximum(sizes[own] - 1, 1)
    within = sums[everyone, own] / others
    between = sums / sizes
    between[everyone, own] = np.inf
    nearest = between.min(axis=1)
    largest = np.maximum(within, nearest)
    defined = (sizes[own] > 1) & (largest > 0)
    return np.where(defined, (nearest - within) / np.where(defined, largest, 1.0), 0.0)


def silhouette_score(points: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The mean silhouette s^(k) of a clustering; see `silhouette_values` for arguments and errors.

    Examples:
        >>> from fedgt.screen import silhouette_score
        >>> round(silhouette_score([[0.0], [0.1], [9.0], [9.1]], [0, 0, 1, 1]), 3)
        1.0
    """
    return float(silhouette_values(points, labels).mean())


def dunn_index(points: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The Dunn index d_k in the paper's form: smallest distance of two cluster centres over the largest diameter.

    Both are squared Euclidean distances.

    Args:
        points: float[points, dimensions].
        labels: int[points], the cluster of each point, any numbers.

    Returns:
        A number from 0; infinite when every cluster has zero diameter and no two centres coincide, 0 when two do.

    Raises:
        ShapeError: If the shapes do not fit.
        CalibrationError: If there are fewer than two clusters: there are no two centres.

    Examples:
        >>> from fedgt.screen import dunn_index
        >>> round(dunn_index([[0.0], [1.0], [9.0], [10.0]], [0, 0, 1, 1]))
        81
    """
    array, member = _partition(points, labels)
    centres = (member.T @ array) / member.sum(axis=0)[:, None]
    apart = _squared_distances(centres)
    np.fill_diagonal(apart, np.inf)
    separation = float(apart.min())
    diameter = float((_squared_distances(array) * (member @ member.T)).max())
    if diameter > 0:
        return separation / diameter
    return float("inf") if separation > 0 else 0.0


def cluster_points(
    points: npt.ArrayLike, *, max_clusters: int, silhouette_threshold: float, restarts: int, seed: int
) -> Clustering:
    """Choose the number of clusters k-hat and the clusters (equation for k-hat in section IV.D of the paper).

    K-means runs for every k from 2 to `max_clusters`, never above the number of distinct points. If the largest
    silhouette score reaches the threshold, the k of the largest Dunn index wins, the smallest such k if several tie;
    otherwise there is one cluster. A partition into singletons only is not eligible: its Dunn index is always infinite.
    The score of the trivial partition, k = 1, is taken as 0. The order of the points does not matter.

    Args:
        points: float[points, dimensions], finite, used unscaled.
        max_clusters: The largest k to try.
        silhouette_threshold: s^thres, from -1 to 1; at 0 or below the Dunn index decides alone.
        restarts: How many starting positions k-means tries for each k.
        seed: Seeds those positions; equal seeds give equal answers.

    Raises:
        ShapeError: If the points are not a matrix of finite numbers with at least one row and column.
        SpecError: If a number is out of range.

    Examples:
        >>> from fedgt.screen import cluster_points
        >>> points = [[0.9, 0.0], [0.9, 0.1], [0.2, 5.0], [0.2, 5.1]]
        >>> found = cluster_points(points, max_clusters=3, silhouette_threshold=0.6, restarts=5, seed=0)
        >>> found.clusters, found.labels.tolist()
        (2, [0, 0, 1, 1])
    """
    array = as_numbers(points, "points")
    if array.ndim != 2 or array.size == 0 or not np.isfinite(array).all():
        raise ShapeError(f"points of shape {array.shape} were given; a non-empty matrix of finite numbers is needed")
    check_settings(max_clusters=max_clusters, silhouette_threshold=silhouette_threshold, restarts=restarts, seed=seed)
    distinct, which = _distinct_points(array)
    merged, counts = distinct[which], np.bincount(which)
    best, best_index, silhouette_max = np.zeros(len(array), dtype=np.int64), -np.inf, 0.0
    for clusters in range(2, min(max_clusters, len(distinct)) + 1):
        labels = _k_means(distinct, counts, clusters, restarts, seed)[which]
        score = silhouette_score(merged, labels)
        silhouette_max = max(silhouette_max, score)
        index = dunn_index(merged, labels)
        if clusters < len(array) and index > best_index:
            best, best_index = labels, index
    if silhouette_max < silhouette_threshold:
        best = np.zeros(len(array), dtype=np.int64)
    return Clustering(labels=best, clusters=int(best.max()) + 1, silhouette_max=silhouette_max, distinct=len(distinct))


def check_settings(*, max_clusters: int, silhouette_threshold: float, restarts: int, seed: int) -> None:
    """Refuse settings that cannot be meant.

    Raises:
        SpecError: If a number is out of range.

    Examples:
        >>> from fedgt.screen import check_settings
        >>> check_settings(max_clusters=3, silhouette_threshold=0.6, restarts=10, seed=0)  # raises if one is wrong
    """
    for name, value in (("max_clusters", max_clusters), ("restarts", restarts), ("seed", seed)):
        as_count(value, name)
    as_number(silhouette_threshold, "silhouette_threshold")
    if max_clusters < 1:
        raise SpecError(f"at most {max_clusters} clusters were asked for; at least 1 is needed")
    if not -1.0 <= silhouette_threshold <= 1.0:
        raise SpecError(f"the silhouette threshold is {silhouette_threshold}; a number from -1 to 1 is needed")
    if restarts < 1:
        raise SpecError(f"{restarts} restarts of k-means were asked for; at least 1 is needed")
    if not 0 <= seed < 2**32:
        raise SpecError(f"the k-means seed is {seed}; a number from 0 to 2^32 - 1 is needed")


def _k_means(distinct: FloatArray, counts: IntArray, clusters: int, restarts: int, seed: int) -> IntArray:
    """int64[distinct points]: the clusters of the best of several runs of Lloyd's algorithm, with repeated points."""
    if clusters == len(distinct):
        return np.arange(clusters)
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    # tol = 0: run until no point changes its cluster, as Lloyd's algorithm says.
    k_means = KMeans(n_clusters=clusters, n_init=restarts, random_state=seed, tol=0.0, algorithm="lloyd")
    # A dozen points: on a busy machine several threads spend all their time waiting for one another.
    with threadpool_limits(limits=1):
        labels: IntArray = k_means.fit(distinct, sample_weight=counts).labels_.astype(np.int64)
    return labels


def _distinct_points(points: FloatArray) -> tuple[FloatArray, IntArray]:
    """The distinct points, sorted, centred and divided by their spread, and for each point the number of its own.

    One common factor changes neither k-means nor silhouette nor Dunn index, and keeps every square in range. The sorted
    order makes the answer independent of the order in which the points came.
    """
    scaled = points / (float(np.abs(points).max()) or 1.0)
    order = np.lexsort(scaled.T[::-1])
    scaled = scaled - scaled[order].mean(axis=0)
    spread = float(np.abs(scaled).max())
    if spread <= _ROUNDING:
        return np.zeros((1, points.shape[1])), np.zeros(len(points), dtype=np.int64)
    scaled = scaled / spread
    leaders: list[int] = []
    which = np.empty(len(points), dtype=np.int64)
    for i in order.tolist():
        near = (np.abs(scaled[leaders] - scaled[i]).max(axis=1) <= _RESOLUTION).nonzero()[0]
        if near.size:
            which[i] = near[0]
        else:
            which[i] = len(leaders)
            leaders.append(i)
    return scaled[leaders], which


def _partition(points: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The points, and float64[points, clusters] with a 1 where a point belongs to a cluster."""
    array, numbers = as_numbers(points, "points"), as_array(labels, "labels")
    if array.ndim != 2 or numbers.shape != array.shape[:1]:
        raise ShapeError(
            f"points of shape {array.shape} and labels of shape {numbers.shape} were given; "
            "(points, dimensions) and (points,) are needed"
        )
    present, own = np.unique(numbers, return_inverse=True)
    if len(present) < 2:
        raise CalibrationError(
            f"the labels name {len(present)} cluster; silhouette and Dunn index compare at least two"
        )
    return array, np.eye(len(present))[own]


def _squared_distances(points: FloatArray) -> FloatArray:
    """float64[points, points], by differences, so that equal points are at distance 0 exactly."""
    distances: FloatArray = np.square(points[:, None, :] - points[None, :, :]).sum(axis=2)
    return distances
