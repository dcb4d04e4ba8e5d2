"""What malicious clients do: to their labels, to their pictures, or to the update that they send. One idea a file."""

from fedgt.train.attacks.attack_names import ATTACKS, Attack, attack_named
from fedgt.train.attacks.backdoor import Backdoor, with_trigger
from fedgt.train.attacks.free_rider import FreeRider
from fedgt.train.attacks.inner_product import InnerProduct
from fedgt.train.attacks.labels import LabelAttack, LabelFlip, LabelPermutation, RandomLabels, poison
from fedgt.train.attacks.little_is_enough import LittleIsEnough
from fedgt.train.attacks.min_max import MinMax
from fedgt.train.attacks.noise import GaussianNoise
from fedgt.train.attacks.on_updates import UpdateAttack
from fedgt.train.attacks.placement import draw_malicious, nested_malicious
from fedgt.train.attacks.sign_flip import SignFlip

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
