"""The paper's experiments as specifications, and the values that it prints.

Every experiment is a list of cells (attack, n_m, variant); a variant is a way to go on in the face of attackers. The
paper's own two are here twice: as its text states them (`count`, `delta`: attackers drawn uniformly, exact calibration,
nothing opened after the test), and as its published code works (`published-count`, `published-delta`: its decision tables,
attackers redrawn until some group has none, one more sum of the test round's local models, which breaks the promised r by
name).
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, Literal, get_args

from fedgt.errors import SpecError
from fedgt.experiment.spec import ExperimentSpec, make_spec
from fedgt.reproduction.sweep import Planned

Experiment = Literal["targeted", "untargeted", "thirty-clients"]
EXPERIMENTS: tuple[Experiment, ...] = get_args(Experiment)
Dataset = Literal[
    "mnist",
    "cifar10",
    "isic2019",
    "isic2019-flamby",
    "cifar10-paper",
    "isic2019-paper",
    "isic2019-flamby-paper",
]
DATASETS: tuple[Dataset, ...] = get_args(Dataset)
"""What experiments are run on. `cifar10` and `isic2019` are linear heads on frozen features, for a CPU; `-paper` are the
paper's networks, for a GPU. MNIST's network is small enough for both. ISIC2019 has the paper's random test set, or FLamby's
fold."""
PAPER_SCALE: Final[tuple[Dataset, ...]] = ("mnist", "cifar10-paper", "isic2019-paper", "isic2019-flamby-paper")
"""Where the model is the paper's, so that its printed values are about the same thing."""
PaperMetric = Literal["attack_accuracy", "top1_accuracy", "balanced_accuracy"]
Conditioning = Literal["all", "some-group-clean"]
AfterTestOption = Literal["next-round", "same-round"]

_SAME_ROUND: Final = {"decode.after_test": "same-round", "decode.allow_below_promise": True}

FLAMBY_WEIGHTS: Final = (5.5813, 2.0472, 7.0204, 26.1194, 9.5369, 101.0707, 92.5224, 38.3443)
"""The class weights of FLamby's focal loss for Fed-ISIC2019."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A way to go on in the face of attackers.

    Attributes:
        says: What it is.
        changes: Dotted keys of the specification.
        tests: Whether it holds a test round.
        groups: Whether it is told what the attack is after and tests the paper's groups.
        paper: The paper's name for it, if it has one.
        ours: Whether it goes beyond the paper.
    """

    says: str
    changes: Mapping[str, Any]
    tests: bool = False
    groups: bool = False
    paper: str | None = None
    ours: bool = False


def _clusters(strategy: str, **changes: Any) -> dict[str, Any]:
    return {
        "screen.kind": "clusters",
        "decode.strategy": strategy,
        # The paper's code goes on with everybody when nobody can be cleared.
        "decode.on_undecidable": "keep-all",
        **changes,
    }


VARIANTS: Final[Mapping[str, Variant]] = {
    "no-defence": Variant(says="plain federated averaging", changes={"method": "no-defence"}, paper="no-defence"),
    "oracle": Variant(says="without the attackers from the start", changes={"method": "oracle"}, paper="oracle"),
    "rfa": Variant(says="geometric median, three secure sums a round", changes={"method": "rfa"}, paper="rfa"),
    "count": Variant(says="FedGT-n_m", changes=_clusters("count"), tests=True, groups=True, paper="fedgt-count"),
    "delta": Variant(
        says="FedGT-Delta, calibrated exactly", changes=_clusters("delta"), tests=True, groups=True, paper="fedgt-delta"
    ),
    "published-count": Variant(
        says="FedGT-n_m by the published code",
        changes=_clusters("published-count", **_SAME_ROUND) | {"attack.require_clean_group": True},
        tests=True,
        groups=True,
        paper="fedgt-count",
    ),
    "published-delta": Variant(
        says="FedGT-Delta by the published code",
        changes=_clusters("published-delta", **_SAME_ROUND) | {"attack.require_clean_group": True},
        tests=True,
        groups=True,
        paper="fedgt-delta",
    ),
    "bayes": Variant(
        says="the paper's test, decided by posteriors", changes=_clusters("bayes"), tests=True, groups=True, ours=True
    ),
    "graded": Variant(says="graded evidence, told nothing", changes={}, tests=True, ours=True),
}

PRIVATE_IN_PAPER: Final = ("rfa", "fedgt-count", "fedgt-delta")
"""The paper's methods that defend without seeing a single update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """What an experiment on a data set is made of (section VI.A and the appendix).

    Attributes:
        base: Keys of the specification.
        seeds: Runs of a cell.
        malicious: The values of n_m.
        source: The label under attack.
        target: What it is flipped to.
        untargeted: The utility of the paper's test against an untargeted attack.
        accuracy: The metric of the paper's column ACC.
        placements: Where the attackers are; more than one are averaged.
        paper: The data set's name in the paper's tables.
    """

    base: Mapping[str, Any]
    seeds: int
    malicious: tuple[int, ...]
    source: int
    target: int
    untargeted: str
    accuracy: Literal["top1_accuracy", "balanced_accuracy"]
    paper: str
    placements: tuple[str, ...] = ("uniform",)


_CPU_SETTINGS: Final[Mapping[str, _Setting]] = {
    "mnist": _Setting(
        base={"data.name": "mnist", "federation.rounds": 10, "screen.round": 1},
        seeds=10,
        malicious=(0, 1, 2, 3, 4, 5),
        source=1,
        target=7,
        untargeted="top1",
        accuracy="top1_accuracy",
        paper="MNIST",
    ),
    "cifar10": _Setting(
        base={"data.name": "cifar10-lite0", "federation.rounds": 30, "screen.round": 5},
        seeds=5,
        malicious=(0, 1, 3, 5),
        source=7,
        target=4,
        untargeted="top1",
        accuracy="top1_accuracy",
        paper="CIFAR10",
    ),
    "isic2019": _Setting(
        base={
            "data.name": "isic2019-lite0",
            "data.partition": "centres",
            "federation.rounds": 40,
            "screen.round": 5,
            "screen.silhouette_threshold": 0.0,
            "training.learning_rate": 0.0005,
            "training.momentum": 0.9,
            "training.weight_decay": 0.0001,
            "training.focusing": 2.0,
            "training.class_weights": FLAMBY_WEIGHTS,
        },
        seeds=3,
        malicious=(0, 1, 2, 3, 4, 5),
        source=0,
        target=1,
        untargeted="balanced-accuracy",
        accuracy="balanced_accuracy",
        paper="ISIC2019",
        placements=("nested-neither", "nested-one", "nested-both"),
    ),
}


def _with(setting: _Setting, changes: Mapping[str, Any], **others: Any) -> _Setting:
    return replace(setting, base={**setting.base, **changes}, **others)


_CIFAR_NETWORK: Final = {
    "data.name": "cifar10",
    "screen.layer": "fc.weight",
    "training.model": "resnet18",
    "training.learning_rate": 0.05,
    "training.momentum": 0.9,
    "training.weight_decay": 0.001,
    "training.batch_size": 128,
    "training.local_epochs": 5,
}
_ISIC_NETWORK: Final = {
    "data.name": "isic2019",
    "screen.layer": "classifier.1.weight",
    "training.model": "efficientnet-b0",
    "training.pretrained": True,
}
_SETTINGS: Final[Mapping[str, _Setting]] = {
    **_CPU_SETTINGS,
    "cifar10-paper": _with(_CPU_SETTINGS["cifar10"], _CIFAR_NETWORK, malicious=(0, 1, 2, 3, 4, 5)),
    "isic2019-flamby": _with(_CPU_SETTINGS["isic2019"], {"data.name": "isic2019-lite0-flamby"}),
    "isic2019-paper": _with(_CPU_SETTINGS["isic2019"], _ISIC_NETWORK),
    "isic2019-flamby-paper": _with(_CPU_SETTINGS["isic2019"], {**_ISIC_NETWORK, "data.name": "isic2019-flamby"}),
}

_ATTACKS: Final = {"targeted": ("label-flip",), "untargeted": ("label-permutation",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table.

    Attributes:
        attack: The kind of attack.
        malicious: n_m.
        variant: A key of `VARIANTS`.
    """

    attack: str
    malicious: int
    variant: str


def settings_of(dataset: Dataset) -> Mapping[str, Any]:
    """What is the same in all runs of a data set: its shares, training and test round, as keys of a specification."""
    return _SETTINGS[dataset].base


def default_seeds(dataset: Dataset) -> int:
    """How many runs of a cell the paper has."""
    return _SETTINGS[dataset].seeds


def accuracy_of(dataset: Dataset) -> Literal["top1_accuracy", "balanced_accuracy"]:
    """The metric of the paper's column ACC."""
    return _SETTINGS[dataset].accuracy


def cells(
    experiment: Experiment,
    dataset: Dataset,
    *,
    malicious: Sequence[int] | None = None,
    variants: Sequence[str] | None = None,
) -> list[Cell]:
    """The cells of an experiment; the oracle of n_m = 0 is no defence and left out.

    Raises:
        SpecError: If the experiment does not exist for the data set, or a variant is unknown.
    """
    if experiment == "thirty-clients" and dataset.startswith("isic2019"):
        raise SpecError(
            "thirty-clients: the paper has it for mnist and cifar10; isic2019 has six centres, take another data set"
        )
    chosen = list(VARIANTS) if variants is None else list(variants)
    if unknown := [one for one in chosen if one not in VARIANTS]:
        raise SpecError(f"unknown method {', '.join(unknown)}; known are {', '.join(VARIANTS)}")
    if experiment == "thirty-clients":
        # The published decision tables are for 15 x 8 only.
        chosen = [one for one in chosen if not one.startswith("published")]
    numbers = malicious or ((6, 8) if experiment == "thirty-clients" else _SETTINGS[dataset].malicious)
    attacks = _ATTACKS.get(experiment, ("label-flip", "label-permutation"))
    return [
        Cell(attack=attack, malicious=number, variant=variant)
        for attack in attacks
        for number in numbers
        for variant in chosen
        if number or variant != "oracle"
    ]


def planned(
    cell: Cell,
    dataset: Dataset,
    *,
    experiment: Experiment,
    seeds: int,
    conditioning: Conditioning = "all",
    after_test: AfterTestOption | None = None,
) -> list[Planned]:
    """The runs of a cell: one for each seed and placement of the attackers.

    Args:
        cell: The cell.
        dataset: The data set.
        experiment: The experiment.
        seeds: How many.
        conditioning: Attackers drawn among all sets, or redrawn until some group has none of them.
        after_test: Overrides what becomes of the test round's local models.
    """
    setting, variant = _SETTINGS[dataset], VARIANTS[cell.variant]
    changes: dict[str, Any] = {
        "privacy": 4,
        **setting.base,
        "attack.kind": cell.attack,
        "attack.malicious": cell.malicious,
        "attack.source": setting.source,
        "attack.target": setting.target,
        **variant.changes,
    }
    if experiment == "thirty-clients":
        changes |= {"federation.clients": 30, "privacy": 6}
    if variant.groups:
        changes |= (
            {"screen.utility": "recall", "screen.source_label": setting.source}
            if cell.attack == "label-flip"
            else {"screen.utility": setting.untargeted}
        )
    if conditioning == "some-group-clean":
        changes["attack.require_clean_group"] = True
    if changes.get("attack.require_clean_group") and cell.variant != "graded":
        # The groups that one of must be clean are those of the paper, also where the method has none.
        changes |= {"screen.kind": "clusters"}
    if variant.tests and after_test is not None:
        changes |= _SAME_ROUND if after_test == "same-round" else {"decode.after_test": after_test}
    placements = setting.placements if cell.malicious else setting.placements[:1]
    return [
        Planned(spec=_spec(changes | {"seed": seed, "attack.placement": placement}), variant=cell.variant)
        for seed in range(seeds)
        for placement in placements
    ]


def _spec(changes: Mapping[str, Any]) -> ExperimentSpec:
    return make_spec({}, changes, origin="reproduce")


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperValue:
    """A value of the paper's tables, in percent.

    Attributes:
        mean: Over its runs.
        deviation: Standard deviation; None where it made one run.
    """

    mean: float
    deviation: float | None


@lru_cache(maxsize=1)
def _paper_values() -> Mapping[tuple[str, str, int, str, str], PaperValue]:
    text = (files("fedgt.reproduction") / "paper_tables.csv").read_text(encoding="utf-8")
    return {
        (row["dataset"], row["attack"], int(row["malicious_clients"]), row["method"], row["metric"]): PaperValue(
            mean=float(row["mean_percent"]), deviation=float(row["std_percent"]) if row["std_percent"] else None
        )
        for row in csv.DictReader(text.splitlines())
    }


def paper_value(dataset: Dataset, cell: Cell, metric: str) -> PaperValue | None:
    """What the paper prints for this cell: `attack_accuracy`, or the accuracy of `accuracy_of`; None if nothing."""
    name = VARIANTS[cell.variant].paper
    if name is None:
        return None
    return _paper_values().get((_SETTINGS[dataset].paper, cell.attack, cell.malicious, name, metric))


def best_private(dataset: Dataset, cell: Cell, metric: str) -> tuple[str, PaperValue] | None:
    """The paper's best method in a row of its table among those that see no single update."""
    found = [
        (name, value)
        for name in PRIVATE_IN_PAPER
        if (value := _paper_values().get((_SETTINGS[dataset].paper, cell.attack, cell.malicious, name, metric)))
    ]
    if not found:
        return None
    sign = 1 if metric == "attack_accuracy" else -1
    return min(found, key=lambda one: sign * one[1].mean)


def metrics_of(dataset: Dataset, attack: str) -> Iterator[PaperMetric]:
    """The columns of the paper's table."""
    if attack == "label-flip":
        yield "attack_accuracy"
    yield accuracy_of(dataset)
