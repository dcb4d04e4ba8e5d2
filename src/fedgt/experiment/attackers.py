"""Who misbehaves in a simulation, and how: malicious clients, and honest ones whose data or software is broken."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedgt.errors import SpecError
from fedgt.experiment.spec import AttackersSpec, ExperimentSpec
from fedgt.grouping import Grouping
from fedgt.train import (
    Backdoor,
    Behaviour,
    ImageData,
    LabelFlip,
    LabelPermutation,
    Partition,
    RandomLabels,
    attack_named,
    draw_malicious,
    nested_malicious,
    poison,
    unusual_clients,
)
from fedgt.train.failures import Failure, inverted, shuffled

_MOST_REDRAWS = 10_000
_AMONG_UNUSUAL = {"nested": 0, "nested-neither": 0, "nested-one": 1, "nested-both": 2}


def attackers(
    spec: ExperimentSpec,
    clients: tuple[str, ...],
    grouping: Grouping | None,
    split: Partition,
    data: ImageData,
    *,
    rng: np.random.Generator,
) -> list[tuple[AttackersSpec, list[int]]]:
    """Client numbers of the attackers of each kind, ascending; the kinds in the order of the specification.

    Raises:
        SpecError: If the placement does not suit the data, or no draw leaves a group without attackers.
    """
    kinds = (spec.attack, *spec.attack.further)
    drawn = _placed(spec, clients, grouping, split, data, rng)
    order = drawn if len(kinds) == 1 else rng.permutation(drawn).tolist()
    ends = np.cumsum([kind.malicious for kind in kinds]).tolist()
    return [(kind, sorted(order[end - kind.malicious : end])) for kind, end in zip(kinds, ends, strict=True)]


def failing(
    spec: ExperimentSpec, malicious: Sequence[int], *, rng: np.random.Generator
) -> list[tuple[Failure, list[int]]]:
    """Client numbers of the honest clients that fail in each way, none of them twice."""
    honest = rng.permutation([j for j in range(spec.federation.clients) if j not in malicious]).tolist()
    ends = np.cumsum([one.clients for one in spec.failures]).tolist()
    return [(one.kind, honest[end - one.clients : end]) for one, end in zip(spec.failures, ends, strict=True)]


def malicious_behaviours(
    kind: AttackersSpec,
    numbers: Sequence[int],
    clients: tuple[str, ...],
    split: Partition,
    data: ImageData,
    *,
    rng: np.random.Generator,
) -> Mapping[str, Behaviour]:
    """What the attackers of one kind do, client id -> behaviour.

    Args:
        kind: What they do, and when.
        numbers: Which clients do it.
        clients: The ids of all clients.
        split: Who holds which sample.
        data: The data set.
        rng: Draws random labels, and the samples that get a trigger.

    Raises:
        SpecError: If the attack does not fit the data.
    """
    attack = attack_named(kind.kind, source=kind.source, target=kind.target, share=kind.share, strength=kind.strength)
    plain = Behaviour(
        kind=kind.model_dump_json(),
        first_round=kind.first_round,
        last_round=kind.last_round,
        boost=kind.boost,
        growth=kind.growth,
        knowledge=kind.knowledge,
    )
    parts = [split.clients[j] for j in numbers]
    if isinstance(attack, LabelFlip | LabelPermutation | RandomLabels):
        labels = poison(data.train_labels, attack=attack, parts=parts, classes=data.classes, rng=rng)
        own = [replace(plain, labels=labels[part]) for part in parts]
    elif isinstance(attack, Backdoor):
        own = []
        for k, part in enumerate(parts):
            images, poisoned = attack.poisoned(
                data.train_images[part],
                data.train_labels[part],
                shape=data.shape,
                classes=data.classes,
                brightest=data.train_images.max(),
                attacker=k,
                rng=rng,
            )
            own.append(replace(plain, images=images, labels=poisoned))
    else:
        own = [replace(plain, update=attack) for _ in parts]
    return {clients[j]: behaviour for j, behaviour in zip(numbers, own, strict=True)}


def failing_behaviour(
    kind: Failure, number: int, split: Partition, data: ImageData, *, rng: np.random.Generator
) -> Behaviour:
    """What a client whose data or software is broken sends."""
    part = split.clients[number]
    if kind == "inverted-images":
        return Behaviour(kind=kind, images=inverted(data.train_images[part]))
    if kind == "shuffled-labels":
        return Behaviour(kind=kind, labels=shuffled(data.train_labels[part], rng=rng))
    return Behaviour(kind=kind, stale=True)


def _placed(
    spec: ExperimentSpec,
    clients: tuple[str, ...],
    grouping: Grouping | None,
    split: Partition,
    data: ImageData,
    rng: np.random.Generator,
) -> list[int]:
    for _ in range(_MOST_REDRAWS):
        drawn = _drawn(spec, split, data, rng)
        if not spec.attack.require_clean_group or grouping is None:
            return drawn
        ids = {clients[j] for j in drawn}
        if any(not ids & set(grouping.members(i)) for i in range(grouping.design.groups)):
            return drawn
    raise SpecError(
        f"attack.require_clean_group: {spec.attack.everybody} malicious clients contaminated every group in "
        f"{_MOST_REDRAWS} draws; take fewer, or another design"
    )


def _drawn(spec: ExperimentSpec, split: Partition, data: ImageData, rng: np.random.Generator) -> list[int]:
    count, n = spec.attack.everybody, spec.federation.clients
    among = _AMONG_UNUSUAL.get(spec.attack.placement)
    if among is None:
        chosen = draw_malicious(clients=n, count=count, rng=rng)
    else:
        unusual: tuple[int, ...] = ()
        if spec.attack.placement != "nested":
            if data.centres is None or spec.data.partition != "centres":
                raise SpecError(
                    f'attack.placement = "{spec.attack.placement}" needs data.partition = "centres"; take "nested" or '
                    '"uniform"'
                )
            unusual = unusual_clients(parts=split.clients, labels=data.train_labels, centres=data.centres)
        chosen = nested_malicious(clients=n, count=count, unusual=unusual[:2], among=among, rng=rng)
    drawn: list[int] = chosen.tolist()
    return drawn
