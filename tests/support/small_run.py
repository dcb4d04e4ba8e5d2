"""A small federation of one's own clients: fifteen sites of a model with four classes, of which three exchange two."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt import FederationRun, ScreenSettings, TrainedModel, Validation
from fedgt.federation import DecodeSettings
from fedgt.record import RunResult
from fedgt.types import Parameters

NAMES = [f"c{j:02d}" for j in range(15)]
ATTACKERS = {"c02", "c05", "c11"}
START: dict[str, Any] = {"weight": np.zeros((4, 6)), "bias": np.zeros(4)}
IMAGES = np.eye(6)[np.arange(48) % 4] + np.random.default_rng(0).normal(0, 0.1, (48, 6))
LABELS = np.arange(48) % 4


@dataclass
class Site:
    """Moves the model to what is right, or to what poison makes of it; each round a little differently."""

    name: str
    asked: list[int] = field(default_factory=list)

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        self.asked.append(round)
        rng = np.random.default_rng([round, NAMES.index(self.name)])
        weight = parameters["weight"] + 0.3 * np.eye(4, 6) + rng.normal(0, 0.01, (4, 6))
        if self.name in ATTACKERS:
            weight[[2, 3]] = weight[[3, 2]]
        return TrainedModel(parameters={"weight": weight, "bias": parameters["bias"]}, samples=10)


def logits(parameters: Parameters) -> Any:
    return IMAGES @ np.asarray(parameters["weight"]).T + parameters["bias"]


VALIDATION = Validation(logits=logits, labels=LABELS, inputs=lambda _: IMAGES)


def made(sites: Any = None, **changes: Any) -> FederationRun:
    """A run that tests once, unless its settings say otherwise."""
    options: dict[str, Any] = {
        "screen": ScreenSettings(schedule="first"),
        "privacy": 4,
        "samples": dict.fromkeys(NAMES, 10),
        "validation": VALIDATION,
        "rounds": 3,
        "seed": 1,
    }
    return FederationRun(sites or {name: Site(name) for name in NAMES}, **(options | changes))


def held(folder: Path, **changes: Any) -> FederationRun:
    run = made(folder=folder, **changes)
    list(run.rounds(START))
    return run


def result_of(folder: Path) -> RunResult:
    return RunResult.model_validate_json((folder / "result.json").read_text())


def same(result: RunResult) -> Any:
    return result.model_dump(mode="json", exclude={"cpu_seconds", "spec_hash"})


TWICE: dict[str, Any] = {"decode": DecodeSettings(undecided=1e-300), "rounds": 4}


def interrupted(folder: Path, after: int, **changes: Any) -> FederationRun:
    """A run whose process ends between two rounds."""
    run = made(folder=folder, **changes)
    steps = run.rounds(START)
    for _ in range(after):
        next(steps)
    steps.close()  # type: ignore[attr-defined]
    return run


class Crash(BaseException):
    """The process is gone."""


def crashing(folder: Path, number: int, stage: str, **changes: Any) -> None:
    """A run whose process is killed when this stage of this round begins."""

    def told(round: int, _: str, now: str) -> None:
        if (round, now) == (number, stage):
            raise Crash

    run = made(folder=folder, on_stage=told, **changes)
    with pytest.raises(Crash):
        list(run.rounds(START))
