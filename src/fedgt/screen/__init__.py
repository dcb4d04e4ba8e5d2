"""Group sums to evidence, as pure functions on arrays: graded evidence, and the paper's test of the group means (IV.D)."""

from fedgt.screen.cluster_screen import ScreenResult, ScreenStatus, all_negative, cluster_screen
from fedgt.screen.clustering import (
    Clustering,
    check_settings,
    cluster_points,
    dunn_index,
    silhouette_score,
    silhouette_values,
)
from fedgt.screen.contrasts import Contrasts, contrasts
from fedgt.screen.damage import Damage, LabelFinding, damage, label_under_attack
from fedgt.screen.features import class_losses, margins, outputs
from fedgt.screen.graded_evidence import GradedEvidence
from fedgt.screen.graded_screen import GradedScreen, graded_screen
from fedgt.screen.label_spread import label_spread
from fedgt.screen.margin_evidence import MarginEvidence
from fedgt.screen.margin_hypotheses import FEWEST_CLASSES, Hypothesis, class_steps
from fedgt.screen.margin_screen import margin_screen
from fedgt.screen.projection import first_component, layer_features
from fedgt.screen.second_opinion import SecondOpinion
from fedgt.screen.significance import SIGNIFICANT, evidence_of_difference
from fedgt.screen.together import together
from fedgt.screen.utility import Utility, balanced_accuracy, measure, recall, top1_accuracy

__all__ = [
    "FEWEST_CLASSES",
    "SIGNIFICANT",
    "Clustering",
    "Contrasts",
    "Damage",
    "GradedEvidence",
    "GradedScreen",
    "Hypothesis",
    "LabelFinding",
    "MarginEvidence",
    "ScreenResult",
    "ScreenStatus",
    "SecondOpinion",
    "Utility",
    "all_negative",
    "balanced_accuracy",
    "check_settings",
    "class_losses",
    "class_steps",
    "cluster_points",
    "cluster_screen",
    "contrasts",
    "damage",
    "dunn_index",
    "evidence_of_difference",
    "first_component",
    "graded_screen",
    "label_spread",
    "label_under_attack",
    "layer_features",
    "margin_screen",
    "margins",
    "measure",
    "outputs",
    "recall",
    "silhouette_score",
    "silhouette_values",
    "together",
    "top1_accuracy",
]
