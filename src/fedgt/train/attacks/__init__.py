"""What malicious clients do: to their labels, to their pictures, or to the update that they send."""

from fedgt.train.attacks.attack_names import ATTACKS, Attack, attack_named
from fedgt.train.attacks.backdoor import Backdoor, with_trigger
from fedgt.train.attacks.labels import LabelAttack, LabelFlip, LabelPermutation, RandomLabels, poison
from fedgt.train.attacks.on_updates import (
    FreeRider,
    GaussianNoise,
    InnerProduct,
    LittleIsEnough,
    MinMax,
    SignFlip,
    UpdateAttack,
)
from fedgt.train.attacks.placement import draw_malicious, nested_malicious

__all__ = [
    "ATTACKS",
    "Attack",
    "Backdoor",
    "FreeRider",
    "GaussianNoise",
    "InnerProduct",
    "LabelAttack",
    "LabelFlip",
    "LabelPermutation",
    "LittleIsEnough",
    "MinMax",
    "RandomLabels",
    "SignFlip",
    "UpdateAttack",
    "attack_named",
    "draw_malicious",
    "nested_malicious",
    "poison",
    "with_trigger",
]
