"""A run of `flower_app` with all nodes in this process."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from flwr.app import Message

import flower_app as app
from fedgt.engine.journal import RoundJournal
from fedgt.federation import FederationRun, Step
from fedgt.flower import FlowerTransport, InProcessGrid
from fedgt.privacy import Ledger
from fedgt.secagg import Registry

Sums = set[tuple[str, frozenset[str]]]
"""(global model, members) each."""

CONFIG: dict[str, Any] = {
    "clients": 15,
    "privacy": 4,
    "rounds": 2,
    "timeout": 20.0,
    "wait": 0.0,
    "malicious": "3",
}
SMALL = CONFIG | {"clients": 5, "privacy": 2}
NAMES = tuple(f"client-{number}" for number in range(15))


def nodes(count: int = 15, **config: Any) -> dict[int, dict[str, Any]]:
    return {100 + number: {"partition-id": number} | config for number in range(count)}


def over(grid: InProcessGrid, config: Any = CONFIG, **changes: Any) -> tuple[FlowerTransport, FederationRun]:
    """The transport and the run; `changes` are arguments of `FederationRun`."""
    made: tuple[FlowerTransport, FederationRun] = app.over(grid, config, **changes)
    return made


def steps(grid: InProcessGrid, config: Any = CONFIG, **changes: Any) -> Iterator[Step]:
    """The rounds one by one, the last one also if the run stops with it."""
    return (step for step, _ in app.stopping(over(grid, config, **changes)[1], app.initial()))


def played(grid: InProcessGrid, config: Any = CONFIG, **changes: Any) -> list[Step]:
    return list(steps(grid, config, **changes))


def trips(grid: InProcessGrid) -> list[tuple[str, list[int]]]:
    """Filled with the type of every trip and the nodes that it goes to."""
    pushed: list[tuple[str, list[int]]] = []
    push = grid.push_messages

    def counted(messages: Iterable[Message]) -> Iterable[str]:
        batch = list(messages)
        (kind,) = {message.metadata.message_type for message in batch}
        pushed.append((kind, [message.metadata.dst_node_id for message in batch]))
        return push(batch)

    grid.push_messages = counted  # type: ignore[method-assign]
    return pushed


def opened_in(folder: Path) -> Sums:
    """Every sum in the account of a run of five clients."""
    ledger = Ledger.load(folder / "ledger.json")
    nothing = Ledger(clients=app.names_of(SMALL), promised=ledger.promised)
    return {(model, frozenset(row)) for model, row in ledger.since(nothing)}


def agreed_at(journal: Path, registry: Registry) -> Sums:
    """Every sum that a site has agreed to open."""
    signed = RoundJournal(journal).agreements(registry)
    return {(link.model, frozenset(group.alive)) for link in signed.links for group in link.groups}
