"""Attacks by name, as specifications write them."""

from typing import TypeAlias

from fedgt.errors import SpecError
from fedgt.train.attacks.backdoor import Backdoor
from fedgt.train.attacks.labels import LabelAttack, LabelFlip, LabelPermutation, RandomLabels
from fedgt.train.attacks.on_updates import (
    FreeRider,
    GaussianNoise,
    InnerProduct,
    LittleIsEnough,
    MinMax,
    SignFlip,
    UpdateAttack,
)

Attack: TypeAlias = LabelAttack | Backdoor | UpdateAttack

DISTRIBUTED_BACKDOOR = "distributed-backdoor"

_WITH_STRENGTH: dict[str, type[SignFlip | GaussianNoise | LittleIsEnough | InnerProduct | FreeRider]] = {
    one.name: one for one in (SignFlip, GaussianNoise, LittleIsEnough, InnerProduct, FreeRider)
}

ATTACKS = (
    LabelFlip.name,
    LabelPermutation.name,
    RandomLabels.name,
    Backdoor.name,
    DISTRIBUTED_BACKDOOR,
    *_WITH_STRENGTH,
    MinMax.name,
)
"""The names that `attack_named` knows."""


def attack_named(
    name: str,
    *,
    source: int | None = None,
    target: int | None = None,
    offset: int = 1,
    share: float = 0.5,
    strength: float | None = None,
) -> Attack:
    """An attack by name.

    Args:
        name: One of `ATTACKS`.
        source: The label under attack; `label-flip` needs it.
        target: What it is to be taken for; `label-flip` and the backdoors need it.
        offset: How far `label-permutation` moves every label.
        share: Which part of its own samples a backdoor changes.
        strength: Of an attack on the update; None is the attack's own default.

    Raises:
        SpecError: If the name is unknown, a label that the attack needs is not given, or a strength is given to an attack
            that has none.

    Example:
        >>> attack_named("label-flip", source=9, target=3)
        LabelFlip(source=9, target=3)
        >>> attack_named("sign-flip", strength=2.0)
        SignFlip(strength=2.0)
    """
    if name in _WITH_STRENGTH:
        kind = _WITH_STRENGTH[name]
        return kind() if strength is None else kind(strength=strength)
    if name not in ATTACKS:
        raise SpecError(f"unknown attack {name!r}; choose one of {', '.join(ATTACKS)}")
    if strength is not None:
        raise SpecError(
            f"{name} has no strength, got {strength}; these have one: {', '.join(_WITH_STRENGTH)}. To send more, boost it"
        )
    if name == LabelPermutation.name:
        return LabelPermutation(offset=offset)
    if name == RandomLabels.name:
        return RandomLabels()
    if name == MinMax.name:
        return MinMax()
    if name == LabelFlip.name:
        if source is None or target is None:
            raise SpecError(f"{name} needs a source and a target label, got source {source} and target {target}")
        return LabelFlip(source=source, target=target)
    if target is None:
        raise SpecError(f"{name} needs a target label, got none")
    return Backdoor(target=target, share=share, distributed=name == DISTRIBUTED_BACKDOOR)
