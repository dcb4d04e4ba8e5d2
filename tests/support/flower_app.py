"""A complete Flower app with numpy training: the same file serves the in-process grid, the simulation and the deployment.

Every client holds Gaussian blobs of its own; the malicious ones call class 0 class 1. Nothing but the run config and the
node config decides what happens, and all of it is seeded.
"""

import hashlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedgt.engine import TrainedModel
from fedgt.flower import client_app

CLASSES, FEATURES, SAMPLES = 4, 25, 120
DESIGNS = {
    "5x3": [[0, 1, 0, 1, 1], [0, 0, 1, 1, 1], [1, 0, 1, 0, 1]],  # leaves room for one more row at r = 2
    "5x4 multiplied": [
        [1, 0, 2, 2, 0],
        [1, 2, 2, 0, 1],
        [2, 1, 2, 2, 0],
        [1, 0, 1, 2, 1],
    ],  # r = 2; client 3 always twice
    5: [[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 0, 1], [1, 0, 1, 1, 0]],
    8: [  # r = 3, from `fedgt design --clients 8 --privacy 3 --max-malicious 2 --evidence graded`
        [0, 1, 0, 0, 1, 1, 1, 0],
        [1, 0, 0, 0, 1, 1, 0, 1],
        [1, 0, 0, 1, 0, 1, 1, 0],
        [0, 1, 1, 1, 1, 1, 0, 0],
        [0, 0, 1, 0, 0, 1, 1, 1],
        [1, 1, 0, 1, 0, 0, 0, 1],
    ],
}


def blobs(key: int, samples: int = SAMPLES) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng([7, key])
    centers = np.random.default_rng(7).normal(size=(CLASSES, FEATURES))
    labels = rng.integers(CLASSES, size=samples)
    return (centers[labels] + rng.normal(size=(samples, FEATURES))).astype(np.float32), labels


def initial(start: float = 0.0) -> dict[str, Any]:
    """Sites with identities answer for one model once, over all runs: another run begins at another model.

    The same number in every weight would not do: no score changes then, so updates are the same, and count as one model's.
    """
    pattern = np.random.default_rng(3).normal(scale=0.1, size=(CLASSES, FEATURES))
    weight = (start * pattern).astype(np.float32)
    return {"weight": weight, "bias": np.zeros(CLASSES, dtype=np.float32)}


def logits(parameters: Any, images: Any) -> Any:
    return images @ parameters["weight"].T + parameters["bias"]


def train(parameters: Any, round: int, context: Context) -> TrainedModel:
    """Full-batch gradient descent."""
    number = int(context.node_config["partition-id"])
    if context.run_config.get("slow-client") == number and round == context.run_config.get("slow-round", 1):
        time.sleep(float(context.run_config["slow-seconds"]))
    if f"{number}:{round}" in str(context.run_config.get("fails", "")).split(","):
        raise RuntimeError("patient 4711 has no birthday")
    images, labels = blobs(number, int(context.run_config.get("samples", SAMPLES)))
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
    return Validation(logits=lambda model: logits(model, images), labels=labels, inputs=lambda model: images)


def names_of(config: Any) -> tuple[str, ...]:
    return tuple(f"client-{number}" for number in range(int(config["clients"])))


def credentials_of(config: Any) -> Any:
    from fedgt.secagg import Credentials, read_private_key, read_registry

    if not config.get("keys"):
        return None
    keys = Path(str(config["keys"]))
    return Credentials(
        identity=read_private_key(keys / "server.pem", "server"), registry=read_registry(keys / "consortium.toml")
    )


def options(config: Any) -> dict[str, Any]:
    """What the run is told on every engine, with the default evidence."""
    from fedgt.design import StagedDesign, named_design
    from fedgt.federation import DecodeSettings, ScreenSettings, SumSettings
    from fedgt.flower import inputs_of
    from fedgt.grouping import Grouping
    from fedgt.secagg import AgreementLog

    names = names_of(config)
    rows = DESIGNS.get(config.get("design") or len(names))
    matrix = np.array(rows or [[1]])
    made = StagedDesign(matrix=matrix, stages=(len(matrix),), name="test", source="test")
    design = named_design("bch-15x8") if rows is None else made.plain if made.largest_entry == 1 else made
    credentials = credentials_of(config)
    tested = bool(config.get("tested", True))
    return {
        "grouping": Grouping.of(design, names) if tested else None,
        "privacy": int(config["privacy"]),
        "validation": validation() if tested else None,
        "rounds": int(config["rounds"]),
        "screen": ScreenSettings(schedule=config.get("schedule", "first"), unannounced=0.0),
        "decode": DecodeSettings(undecided=float(config.get("undecided", 0.02))),
        "samples": dict.fromkeys(names, int(config.get("samples", SAMPLES))),
        "sums": SumSettings(timeout_seconds=float(config["timeout"]), colluders=1 if len(names) >= 15 else 0),
        "credentials": credentials,
        # What the sites have signed outlives a run: they answer no server that has lost it.
        "agreements": None
        if credentials is None
        else AgreementLog(credentials.registry, Path(str(config["keys"])) / "agreements"),
        "inputs": {} if credentials is None else inputs_of(config),
    }


def kept(config: Any) -> dict[str, Any]:
    """With a folder the run goes on after a restart; where the config says so the process is killed, once."""
    folder = str(config.get("folder", ""))
    if not folder:
        return {}

    def told(round: int, purpose: str, stage: str) -> None:
        marker = Path(f"{folder}.killed")
        if f"{round}:{stage}" == config.get("killed") and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return {"folder": folder, "resume": True, "name": str(config.get("run", "winter")), "on_stage": told}


def over(grid: Grid, config: Any, **changes: Any) -> Any:
    """The server's half: the transport of a grid, and the run that drives it."""
    from fedgt.federation import FederationRun
    from fedgt.flower import FlowerTransport

    told = options(config) | kept(config) | changes
    transport = FlowerTransport(
        grid,
        names_of(config),
        credentials=told["credentials"],
        wait=float(config["wait"]),
        patience=float(config.get("patience", min(float(config["timeout"]), 120.0))),
    )
    return transport, FederationRun(transport, **told)


def stopping(run: Any, parameters: Any) -> Iterator[tuple[Any, str]]:
    """Each round with why the run stops after it, if it does."""
    from fedgt.errors import RunHaltedError

    try:
        for step in run.rounds(parameters):
            yield step, ""
    except RunHaltedError as halt:
        yield halt.step, str(halt)


def digest(parameters: Any) -> str:
    return hashlib.sha256(b"".join(parameters[name].tobytes() for name in sorted(parameters))).hexdigest()


def row(step: Any, halt: str = "", transport: Any = None) -> dict[str, Any]:
    """What must be the same on every engine, and what a test wants to look at."""
    screening = step.screening
    return {
        "round": step.round,
        "purpose": step.purpose,
        "model": digest(step.parameters),
        "verdicts": [[v.client, v.verdict, repr(v.posterior)] for v in screening.exclusion.verdicts]
        if screening
        else None,
        "excluded": step.excluded,
        "members": step.members,
        "refused": {} if transport is None else {str(node): why for node, why in transport.roster.refused.items()},
        "status": [[one.purpose, one.status, one.members, dict(one.dropped)] for one in step.result.records],
        "bytes_up": step.result.bytes_up,
        "bytes_down": step.result.bytes_down,
        "seconds": dict(step.result.seconds),
        "halt": halt,
    }


def by_hand(run: Any, parameters: Any, config: Any, transport: Any = None) -> dict[str, Any]:
    """What a scenario looks at that holds no whole run."""
    return (staged if "staged" in config else multiplied)(run, parameters, transport)


def multiplied(run: Any, parameters: Any, transport: Any = None) -> dict[str, Any]:
    """The sums of one test, each entry with its coefficients."""
    from fedgt.federation.sums import take
    from fedgt.secagg import PrekeyRequest

    federation, grouping = run.federation, run.grouping
    if transport is not None:
        transport.prekeys.request = PrekeyRequest(run=federation.run, round=1, groups=grouping.design.groups)
        transport.meet()
    numbers = range(grouping.design.groups)
    taken = take(
        federation,
        parameters,
        round=1,
        purpose="test",
        groups=[grouping.members(number) for number in numbers],
        coefficients=[grouping.factors(number) for number in numbers],
        test=True,
    )
    return {
        "status": [[one.purpose, one.status, one.members, one.weights] for one in taken.records],
        "sums": [[digest(one.total), one.weight] if one.total else None for one in taken.sums.sums],
        "total": [{name: array.tolist() for name, array in (one.total or {}).items()} for one in taken.sums.sums],
    }


def staged(run: Any, parameters: Any, transport: Any = None) -> dict[str, Any]:
    """A round in two stages, by hand: what was open after the first, and in the end, over the federation of a run."""
    from fedgt.design import from_matrix
    from fedgt.federation import staged_round
    from fedgt.grouping import Grouping
    from fedgt.secagg import PrekeyRequest

    federation, seen = run.federation, []
    names = tuple(federation.samples)
    rows = [[1, 1, 0, 0, 0], [0, 0, 1, 1, 1], [1, 0, 1, 0, 0], [0, 1, 0, 1, 1]]
    if transport is not None:
        transport.prekeys.request = PrekeyRequest(run=federation.run, round=1, groups=2)
        transport.meet()

    def go_on(opened: Any) -> bool:
        seen.append([one.status for one in opened.sums])
        return True

    taken: Any = staged_round(
        federation,
        parameters,
        round=1,
        grouping=Grouping(design=from_matrix(rows, name="nested", source="by hand"), clients=names),
        stages=(2, 2),
        present=names,
        go_on=go_on,
        screening=lambda *_, taken, **more: taken,
    )
    return {
        "first": seen,
        "status": [[one.purpose, one.status, one.members, dict(one.dropped)] for one in taken.records],
        "sums": [digest(one.total) if one.total else None for one in taken.sums.sums],
    }


client = client_app(train)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    out = Path(str(context.run_config["out"]))
    rows: list[dict[str, Any]] = []

    def write(*, finished: bool) -> None:
        draft = out.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"rows": rows, "finished": finished}))
        draft.replace(out)

    transport, run = over(grid, context.run_config)
    if {"staged", "multiplied"} & set(context.run_config):
        first = initial(float(context.run_config.get("start", 0.0)))
        rows.append(by_hand(run, first, context.run_config, transport))
        write(finished=True)
        return
    for step, halt in stopping(run, initial(float(context.run_config.get("start", 0.0)))):
        rows.append(row(step, halt, transport))
        write(finished=False)
    write(finished=True)
