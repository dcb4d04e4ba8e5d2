"""What the baselines of `robust_rules.py` are, and what stands in their rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from contribution_scores import mean_difference, pair_points
from fedgt.experiment.spec import ExperimentSpec
from fedgt.reproduction.paper import Cell, planned

COLUMNS: Final = (
    "spec_hash",
    "version",
    "rules",
    "dataset",
    "rounds",
    "attack",
    "malicious_clients",
    "seed",
    "method",
    "told",
    "expected_attackers",
    "utility",
    "server_sees",
    "status",
    "reason",
    "top1_accuracy_percent",
    "attack_accuracy_percent",
    "attackers_auc",
    "missed_clients",
    "falsely_excluded_clients",
    "top1_accuracy_by_round_percent",
    "attack_accuracy_by_round_percent",
    "cpu_seconds",
)
Row = dict[str, str]
Dataset = Literal["mnist", "cifar10"]
Experiment = Literal["targeted", "untargeted"]
ATTACKS: Final[Mapping[Experiment, str]] = {"targeted": "label-flip", "untargeted": "label-permutation"}
MALICIOUS: Final[Mapping[Dataset, tuple[int, ...]]] = {"mnist": (0, 1, 2, 3, 4, 5), "cifar10": (0, 1, 3, 5)}
SCORES: Final = {"score-difference": mean_difference, "score-pairs": pair_points}
UTILITIES: Final = ("paper", "loss")
"""`paper`: recall of the attacked label or top-1 accuracy, so it is told what the attack is after; `loss`: told nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What makes a row of a cell.

    Attributes:
        name: `mean`, a rule, or a score.
        told: What `f` is: `n_m`, `nothing` (floor((n - 1) / 2)), `most` (the largest that Multi-Krum allows); empty
            without f.
        utility: Of a score.
    """

    name: str
    told: str = ""
    utility: str = ""

    def expected(self, clients: int, malicious: int) -> int | None:
        """The number of attackers that the rule is told; None if it asks for none."""
        known = {"n_m": malicious, "nothing": (clients - 1) // 2, "most": (clients - 3) // 2}
        return known.get(self.told)


RULES: Final = (
    Method(name="mean"),
    Method(name="median"),
    Method(name="trimmed-mean", told="n_m"),
    Method(name="trimmed-mean", told="nothing"),
    Method(name="multi-krum", told="n_m"),
    Method(name="multi-krum", told="most"),
    Method(name="multi-krum", told="nothing"),
)
METHODS: Final = (*RULES, *(Method(name=name, utility=utility) for name in SCORES for utility in UTILITIES))


def spec_of(dataset: Dataset, experiment: Experiment, malicious: int, variant: str, seed: int) -> ExperimentSpec:
    """The specification that `fedgt reproduce` would run."""
    cell = Cell(attack=ATTACKS[experiment], malicious=malicious, variant=variant)
    return planned(cell, dataset, experiment=experiment, seeds=seed + 1)[seed].spec
