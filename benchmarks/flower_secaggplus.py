"""Flower's own SecAgg+, once per group, over SuperLink and SuperNodes on loopback: the baseline of flower_deployment.py.

    python benchmarks/flower_secaggplus.py [--groups 8] [--insecure]

15 SuperNodes; the groups are the rows of bch-15x8, four nodes each, one after the other, because one workflow of Flower
takes one sum. A model of 104 parameters, as in flower_deployment.py. Each message starts a ClientApp process there as here.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp

NODES = 15


class Still(NumPyClient):
    """Trains nothing: the rounds are about messages."""

    def fit(self, parameters: Any, config: Any) -> Any:
        """The model, a little changed."""
        return [np.asarray(one) + 0.01 for one in parameters], 120, {}


class Few:
    """A grid of which only some nodes are seen: the workflow takes all that it sees."""

    def __init__(self, grid: Grid, nodes: list[int]) -> None:
        """All else is the grid's."""
        self._grid, self._nodes = grid, nodes

    def get_node_ids(self) -> list[int]:
        """The chosen ones."""
        return self._nodes

    def __getattr__(self, name: str) -> Any:
        """Of the grid."""
        return getattr(self._grid, name)


client = ClientApp(client_fn=lambda context: Still().to_client(), mods=[secaggplus_mod])
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    from flwr.common import ndarrays_to_parameters

    from fedgt.design import named_design

    out = Path(str(context.run_config["out"]))
    while len(nodes := sorted(grid.get_node_ids())) < NODES:
        time.sleep(0.5)
    rows = []
    for row in named_design("bch-15x8").matrix[: int(context.run_config["groups"])]:
        members = [node for node, inside in zip(nodes, row, strict=True) if inside]
        began = time.monotonic()
        strategy = FedAvg(
            fraction_evaluate=0.0,
            min_fit_clients=len(members),
            min_available_clients=len(members),
            initial_parameters=ndarrays_to_parameters([np.zeros((4, 25), np.float32), np.zeros(4, np.float32)]),
        )
        legacy = LegacyContext(context=context, config=ServerConfig(num_rounds=1), strategy=strategy)
        workflow = DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2))
        few: Any = Few(grid, members)
        workflow(few, legacy)
        rows.append({"seconds": time.monotonic() - began, "members": len(members)})
        out.with_suffix(".draft").write_text(json.dumps({"rows": rows, "finished": False}))
        out.with_suffix(".draft").replace(out)
    out.write_text(json.dumps({"rows": rows, "finished": True}))


def measure() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    from flower_machines import PYPROJECT, Deployment

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--insecure", action="store_true", help="no TLS, no SuperNode authentication")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        app = root / "app"
        app.mkdir()
        shutil.copy(Path(__file__), app)
        (app / "LICENSE").write_text("Apache-2.0\n")
        out = root / "out.json"
        config = f'out = "{out}"\ngroups = {options.groups}'
        (app / "pyproject.toml").write_text(PYPROJECT.format(config=config).replace("flower_app", Path(__file__).stem))
        nodes = [{"partition-id": number} for number in range(NODES)]
        with Deployment(root / "site", nodes, secure=not options.insecure) as deployment:
            rows = deployment.rows(deployment.run(app), out, 150.0 * (1 + options.groups))
    each = [row["seconds"] for row in rows]
    print(
        f"SecAgg+ per group, {NODES} SuperNodes, {'insecure' if options.insecure else 'TLS and SuperNode authentication'}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}: {sum(each):.0f} s for {len(each)} groups "
        f"({', '.join(f'{one:.1f}' for one in each)})"
    )


if __name__ == "__main__":
    measure()
