"""The run: who shares a group, what is promised, how groups are tested. It does not know what carries its messages."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedgt.design import named_design
from fedgt.engine import Transport
from fedgt.federation import FederationRun, ScreenSettings, SumSettings, Validation
from fedgt.federation.run import NextModel
from fedgt.grouping import assign
from fedgt.secagg import Credentials, read_private_key, read_registry
from mnist_app import task

Reach = Callable[[tuple[str, ...], Credentials | None], Transport]
"""(names of the sites, credentials) -> what reaches them."""


def hold(
    reach: Reach, config: Mapping[str, Any], inputs: Mapping[str, str], next_model: NextModel | None = None
) -> None:
    """Run the rounds and print what was found."""
    seed, data = int(config["seed"]), str(config["data"])
    names = tuple(f"client-{number}" for number in range(task.CLIENTS))
    images, labels = task.load(data, "train")
    mine = task.partition(None, seed)
    test_images, test_labels = task.load(data, "t10k")
    credentials = _credentials(str(config["credentials"]))
    run = FederationRun(
        reach(names, credentials),
        grouping=assign(named_design("graded-15x10-b"), names, rng=np.random.default_rng(seed)),
        privacy=int(config["privacy"]),
        validation=Validation(
            logits=lambda model: task.logits(model, images[mine]),
            labels=labels[mine],
            inputs=lambda model: task.features(model, images[mine]),
        ),
        screen=ScreenSettings(layer=task.CLASSIFICATION_LAYER),
        rounds=int(config["rounds"]),
        samples={name: len(task.partition(number, seed)) for number, name in enumerate(names)},
        sums=SumSettings(timeout_seconds=float(config["timeout"])),
        inputs=inputs,
        credentials=credentials,
        next_model=next_model,
        seed=seed,
        folder=str(config["folder"]) or None,
        resume=bool(config["folder"]),
    )
    for step in run.rounds(task.initial(seed)):
        predicted = task.logits(step.parameters, test_images).argmax(axis=1)
        source = test_labels == task.SOURCE
        print(
            f"round {step.round}, {step.purpose}: accuracy {np.mean(predicted == test_labels):.4f}, "
            f"attack accuracy {np.mean(predicted[source] == task.TARGET):.4f}, "
            f"excluded {', '.join(step.excluded) or 'nobody'}, {sum(step.result.seconds.values()):.1f} s",
            flush=True,
        )
        for verdict in step.verdicts:
            if verdict.verdict != "keep":
                print(f"  {verdict.client}: {verdict.verdict}: {verdict.reason}", flush=True)
        for warning in (*step.warnings, *step.result.warnings):
            print(f"  warning: {warning}", flush=True)


def _credentials(folder: str) -> Credentials | None:
    if not folder:
        return None
    keys = Path(folder)
    return Credentials(
        identity=read_private_key(keys / "server.pem", "server"), registry=read_registry(keys / "consortium.toml")
    )
