"""The programs of a FLARE server and its sites: what `flower_app` does, without Flower's messages.

A job's `config` is what Flower calls the run config, and a site `client-3` has partition 3.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flower_app as app
from fedgt.engine import TrainedModel
from fedgt.nvflare import FlareTransport, SiteContext


def train(parameters: Any, round: int, site: SiteContext) -> TrainedModel:
    number = int(site.name.rpartition("-")[2])
    here: Any = SimpleNamespace(node_config={"partition-id": number}, run_config=site.config)
    return app.train(parameters, round, here)


def rows(clients: Collection[Any], config: Mapping[str, Any]) -> Any:
    """Of each round, as it ends."""
    from fedgt.federation import FederationRun

    told = app.options(config) | app.kept(config)
    patience = min(float(config["timeout"]), 120.0)
    transport = FlareTransport(clients, app.names_of(config), credentials=told["credentials"], patience=patience)
    run = FederationRun(transport, **told)
    first = app.initial(float(config.get("start", 0.0)))
    if {"staged", "multiplied"} & set(config):
        yield app.by_hand(run, first, config, transport)
        return
    for step, halt in app.stopping(run, first):
        yield app.row(step, halt, transport)


def main(clients: Collection[Any], config: Mapping[str, Any]) -> None:
    out, found = Path(str(config["out"])), []
    for row in rows(clients, config):
        found.append(row)
        draft = out.with_suffix(".draft")
        draft.write_text(json.dumps({"rows": found, "finished": False}))
        draft.replace(out)
    out.write_text(json.dumps({"rows": found, "finished": True}))
