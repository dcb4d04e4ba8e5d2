"""A provisioned NVIDIA FLARE server and sites on loopback: seconds per stage, CPU seconds and memory of a federation.

    python benchmarks/flare_deployment.py [--sites 15] [--rounds 2] [--parameters 0]

Mutual TLS and fedgt identities; all processes share this machine's cores. The clock starts when all sites of the job are
there: what FLARE takes until then is told by itself. Needs the extra `nvflare`, and `flower` for the model of the tests.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import flare_app
import flower_app as app
from fedgt.engine import TrainedModel
from fedgt.nvflare import FlareTransport, SiteContext

PROGRAMS = 'main = "flare_deployment:main"\ntrain = "flare_deployment:train"\n'
PAUSE = 3.0  # seconds in which the measuring process looks at the CPU seconds so far


def train(parameters: Any, round: int, site: SiteContext) -> TrainedModel:
    """The model of the tests, and beside it a body of as many parameters as wanted, which moves a little."""
    trained = flare_app.train(parameters, round, site)
    body = parameters["body"] + np.float32(1e-3)
    return TrainedModel(parameters={**trained.parameters, "body": body}, samples=trained.samples)


def main(clients: Collection[Any], config: Mapping[str, Any]) -> None:
    """The server's program."""
    from fedgt.design import searched_design
    from fedgt.federation import FederationRun, ScreenSettings
    from fedgt.grouping import Grouping

    names, out = app.names_of(config), Path(str(config["out"]))
    told = app.options(config)
    if len(names) == 15:
        told["grouping"] = Grouping(design=searched_design("nested-15x12-r4").design.plain, clients=names)
    transport = FlareTransport(clients, names, credentials=told["credentials"])
    run = FederationRun(
        transport,
        **told,
        screen=ScreenSettings(layer="weight"),
    )
    out.with_suffix(".ready").touch()
    time.sleep(PAUSE)
    first = app.initial(1.0) | {"body": np.zeros(int(config["parameters"]), dtype=np.float32)}
    rows, began = [], time.monotonic()
    for step in run.rounds(first):
        ended = time.monotonic()
        rows.append({"seconds": dict(step.result.seconds), "whole": ended - began, "sums": len(step.result.records)})
        rows[-1] |= {"up": step.result.bytes_up, "down": step.result.bytes_down, "excluded": step.excluded}
        out.with_suffix(".draft").write_text(json.dumps(rows))
        out.with_suffix(".draft").replace(out)
        time.sleep(PAUSE)
        began = time.monotonic()


def measured() -> None:
    """Deploy, run one job, print a table."""
    import psutil

    from flare_machines import Deployment, identity_files
    from flower_machines import write_consortium

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, choices=(5, 15), default=15)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--parameters", type=int, default=0, help="besides the 104 of the model")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        write_consortium(root / "keys", options.sites)
        config = {"clients": options.sites, "privacy": 4 if options.sites == 15 else 2, "rounds": options.rounds}
        config |= {"timeout": 300.0, "malicious": "3", "keys": str(root / "keys"), "out": str(root / "out.json")}
        config |= {"parameters": options.parameters}
        began = time.monotonic()
        with Deployment(root / "site", options.sites, path=[Path(__file__).parent]) as deployment:
            deployment.local(PROGRAMS + identity_files(root / "keys"))
            deployment.wait()
            print(f"{options.sites} sites have joined after {time.monotonic() - began:.0f} s")
            began = time.monotonic()
            deployment.submit(config)

            def processes() -> list[psutil.Process]:
                return [one for name in ("localhost", *deployment.sites) for one in deployment.tree(name)]

            def cpu() -> float:
                return sum(sum(one.cpu_times()[:2]) for one in processes())

            until(root / "out.ready", deployment)
            print(f"the job has begun after {time.monotonic() - began:.0f} s more")
            before = cpu()
            rows: list[dict[str, Any]] = []
            for number in range(options.rounds):
                while len(rows) <= number:
                    until(root / "out.json", deployment)
                    rows = json.loads((root / "out.json").read_text())
                    time.sleep(0.1)
                now = cpu()
                print(json.dumps({**rows[number], "cpu": round(now - before, 1)}))
                before = now
            print("resident MB, largest process:", max(one.memory_info().rss for one in processes()) >> 20)


def until(marker: Path, deployment: Any, seconds: float = 120.0) -> None:
    """Until a file is there."""
    deadline = time.monotonic() + seconds
    while not marker.exists():
        if time.monotonic() > deadline:
            lines = deployment.log("localhost").splitlines()
            raise TimeoutError("\n".join(line for line in lines if "rror" in line or "ail" in line)[-4000:])
        time.sleep(0.1)


if __name__ == "__main__":
    measured()
