"""Local training: data sets, who holds which sample, attacks and failures, logistic regression for a cohort."""

from fedgt.train.attacks import (
    ATTACKS,
    Attack,
    Backdoor,
    FreeRider,
    GaussianNoise,
    InnerProduct,
    LabelAttack,
    LabelFlip,
    LabelPermutation,
    LittleIsEnough,
    MinMax,
    RandomLabels,
    SignFlip,
    UpdateAttack,
    attack_named,
    draw_malicious,
    nested_malicious,
    poison,
    with_trigger,
)
from fedgt.train.behaviour import Behaviour
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
    "Backdoor",
    "Behaviour",
    "Cohort",
    "FreeRider",
    "GaussianNoise",
    "ImageData",
    "InnerProduct",
    "LabelAttack",
    "LabelFlip",
    "LabelPermutation",
    "LittleIsEnough",
    "LocalTraining",
    "LogisticRegression",
    "MinMax",
    "Partition",
    "RandomLabels",
    "SignFlip",
    "Standardisation",
    "UpdateAttack",
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
    "with_trigger",
]
