"""A complete Flower app with numpy training: the same file serves the in-process grid, the simulation and the deployment.

Every client holds Gaussian blobs of its own; the malicious ones call class 0 class 1. Nothing but the run config and the
node config decides what happens, and all of it is seeded.
"""

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedgt.engine import TrainedModel
from fedgt.flower import client_app

CLASSES, FEATURES, SAMPLES = 4, 25, 120
DESIGNS = {5: [[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 0, 1], [1, 0, 1, 1, 0]]}


def blobs(key: int, samples: int = SAMPLES) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng([7, key])
    centers = np.random.default_rng(7).normal(size=(CLASSES, FEATURES))
    labels = rng.integers(CLASSES, size=samples)
    return (centers[labels] + rng.normal(size=(samples, FEATURES))).astype(np.float32), labels


def initial() -> dict[str, Any]:
    return {"weight": np.zeros((CLASSES, FEATURES), dtype=np.float32), "bias": np.zeros(CLASSES, dtype=np.float32)}


def logits(parameters: Any, images: Any) -> Any:
    return images @ parameters["weight"].T + parameters["bias"]


def train(parameters: Any, round: int, context: Context) -> TrainedModel:
    """Full-batch gradient descent."""
    number = int(context.node_config["partition-id"])
    if context.run_config.get("slow-client") == number and round == context.run_config.get("slow-round", 1):
        time.sleep(float(context.run_config["slow-seconds"]))
    images, labels = blobs(number)
    if str(number) in str(context.run_config["malicious"]).split(","):
        labels = np.where(labels == 0, 1, labels)
    weight, bias = parameters["weight"].copy(), parameters["bias"].copy()
    for _ in range(20):
        scores = logits({"weight": weight, "bias": bias}, images)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(labels)), labels] -= 1
        weight -= 0.3 * (p.T @ images) / np.float32(len(labels))
        bias -= 0.3 * p.mean(axis=0)
    return TrainedModel(parameters={"weight": weight, "bias": bias}, samples=len(labels))


def validation() -> Any:
    from fedgt.federation import Validation

    images, labels = blobs(1000, 300)
    return Validation(logits=lambda parameters: logits(parameters, images), labels=labels)


def federation(config: Any) -> Any:
    """The server's half, from the run config."""
    from fedgt.design import from_matrix, named_design
    from fedgt.federation import DecodeSettings, ScreenSettings
    from fedgt.flower import FedGT
    from fedgt.grouping import Grouping
    from fedgt.secagg import Credentials, read_private_key, read_registry

    count = int(config["clients"])
    credentials = None
    if config.get("keys"):
        keys = Path(str(config["keys"]))
        credentials = Credentials(
            identity=read_private_key(keys / "server.pem", "server"), registry=read_registry(keys / "consortium.toml")
        )
    design = (
        from_matrix(DESIGNS[count], name=f"{count}", source="test") if count in DESIGNS else named_design("bch-15x8")
    )
    return FedGT(
        grouping=Grouping(design=design, clients=tuple(f"client-{number}" for number in range(count))),
        privacy=int(config["privacy"]),
        validation=validation(),
        screen=ScreenSettings(kind="clusters"),
        decoding=DecodeSettings(on_undecidable="keep-all"),
        rounds=int(config["rounds"]),
        samples={f"client-{number}": SAMPLES for number in range(count)},
        timeout=float(config["timeout"]),
        wait=float(config["wait"]),
        credentials=credentials,
        colluders=1 if count >= 15 else 0,
        config=config if credentials is not None else {},
    )


def digest(parameters: Any) -> str:
    return hashlib.sha256(b"".join(parameters[name].tobytes() for name in sorted(parameters))).hexdigest()


def row(record: Any) -> dict[str, Any]:
    """What must be the same on every engine, and what a test wants to look at."""
    screening = record.screening
    return {
        "round": record.round,
        "model": digest(record.parameters),
        "outcomes": None if screening is None else str(screening.screen.outcomes),
        "verdicts": None if screening is None else [[v.client, v.verdict] for v in screening.exclusion.verdicts],
        "excluded": record.excluded,
        "connected": record.connected,
        "refused": {str(node): reason for node, reason in record.refused.items()},
        "status": [[one.purpose, one.status, one.members, dict(one.dropped)] for one in record.result.records],
        "bytes_up": record.result.bytes_up,
        "bytes_down": record.result.bytes_down,
        "seconds": dict(record.seconds),
        "halt": record.halt,
    }


client = client_app(train)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    out = Path(str(context.run_config["out"]))
    rows: list[dict[str, Any]] = []
    for record in federation(context.run_config).start(grid, initial()):
        rows.append(row(record))
        draft = out.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"rows": rows, "finished": False}))
        draft.replace(out)
    draft = out.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"rows": rows, "finished": True}))
    draft.replace(out)
