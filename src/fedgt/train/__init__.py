"""Local training: data sets, who holds which sample, label attacks, logistic regression for a cohort."""

from fedgt.train.attacks import (
    ATTACKS,
    Attack,
    LabelFlip,
    LabelPermutation,
    RandomLabels,
    attack_named,
    draw_malicious,
    nested_malicious,
    poison,
)
from fedgt.train.cohort import Cohort
from fedgt.train.data import ImageData, Standardisation, load
from fedgt.train.evaluate import attack_accuracy
from fedgt.train.logistic import LocalTraining, LogisticRegression, train_clients
from fedgt.train.partition import (
    Partition,
    partition_centres,
    partition_dirichlet,
    partition_iid,
    partition_single_class,
    unusual_clients,
)

__all__ = [
    "ATTACKS",
    "Attack",
    "Cohort",
    "ImageData",
    "LabelFlip",
    "LabelPermutation",
    "LocalTraining",
    "LogisticRegression",
    "Partition",
    "RandomLabels",
    "Standardisation",
    "attack_accuracy",
    "attack_named",
    "draw_malicious",
    "load",
    "nested_malicious",
    "partition_centres",
    "partition_dirichlet",
    "partition_iid",
    "partition_single_class",
    "poison",
    "train_clients",
    "unusual_clients",
]
