"""The paper's test of the group means (section IV.D), one bit a group, as pure functions on arrays."""

from fedgt.screen.cluster_screen import ScreenResult, ScreenStatus, all_negative, cluster_screen
from fedgt.screen.clustering import (
    Clustering,
    check_settings,
    cluster_points,
    dunn_index,
    silhouette_score,
    silhouette_values,
)
from fedgt.screen.projection import first_component, layer_features
from fedgt.screen.utility import Utility, balanced_accuracy, measure, recall, top1_accuracy

__all__ = [
    "Clustering",
    "ScreenResult",
    "ScreenStatus",
    "Utility",
    "all_negative",
    "balanced_accuracy",
    "check_settings",
    "cluster_points",
    "cluster_screen",
    "dunn_index",
    "first_component",
    "layer_features",
    "measure",
    "recall",
    "silhouette_score",
    "silhouette_values",
    "top1_accuracy",
]
