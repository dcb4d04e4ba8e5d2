"""The two halves of `Damage.log_harm`, which the product only asks for together."""

from fedgt.evidence.harm import Damage
from fedgt.types import BoolArray, FloatArray


def log_harmful(damage: Damage, sets: BoolArray) -> FloatArray:
    """float64[B]: log P(each set does harm rather than good)."""
    return damage._harmful(damage._along(sets))


def log_risen(damage: Damage, sets: BoolArray) -> FloatArray:
    """float64[B]: log-likelihood ratio of the balanced loss moving along each set."""
    return damage._risen(damage._along(sets))
