"""Shared fixtures: where the real data sets are, hypothesis profiles, and small federations with known sums."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from fedgt.design import Design, named_design
from fedgt.engine import ClientEndpoint, LocalTransport, TrainedModel
from fedgt.errors import ProtocolError
from fedgt.federation import Federation, SumSettings, Weighting
from fedgt.grouping import Grouping
from fedgt.privacy import Ledger
from fedgt.types import Parameters
from slow_cases import EXAMPLES

# The tests run side by side already: threads of the linear algebra would only wait for each other, here and in commands.
os.environ.setdefault("OMP_NUM_THREADS", "1")
threadpool_limits(1)

# `make test` asks for fewer examples of each law than `make test-all`.
settings.register_profile("fedgt", deadline=None, derandomize=True, max_examples=EXAMPLES)
settings.load_profile("fedgt")


@pytest.fixture(scope="session")
def mnist_dir() -> Path:
    """The folder with MNIST/raw/*-ubyte; tests that need it say so when they skip."""
    root = os.environ.get("FEDGT_DATA", "")
    if not root or not (Path(root) / "MNIST" / "raw").is_dir():
        pytest.skip("needs MNIST: set FEDGT_DATA to a folder with MNIST/raw/*-ubyte (the torchvision layout)")
    return Path(root)


Update = Mapping[str, npt.NDArray[np.float64]]


@dataclass
class FixedClient:
    """Returns the received model plus its own update, and counts how often it was asked."""

    update: Update
    samples: int
    calls: int = 0

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        self.calls += 1
        return TrainedModel(
            parameters={name: parameters[name] + self.update[name] for name in parameters}
            if set(self.update) == set(parameters)
            else {name: np.asarray(value) for name, value in self.update.items()},
            samples=self.samples,
        )


@dataclass
class Bench:
    """A federation and the clients behind it."""

    federation: Federation
    clients: dict[str, FixedClient]


@pytest.fixture
def bench() -> Callable[..., Bench]:
    def make(
        updates: Mapping[str, Update],
        *,
        samples: Mapping[str, int] | None = None,
        privacy: int = 1,
        weighting: Weighting = "samples",
        silent: Mapping[str, str] | None = None,
        workers: int = 1,
    ) -> Bench:
        counts = dict(samples or dict.fromkeys(updates, 1))
        clients = {name: FixedClient(update=update, samples=counts[name]) for name, update in updates.items()}
        order = ("keys", "shares", "masked", "unmask")

        def handler(name: str) -> Callable[[str, bytes], bytes]:
            endpoint = ClientEndpoint(name, clients[name], minimum_group_size=min(privacy, 2))
            leaves = (silent or {}).get(name)

            def answer(stage: str, payload: bytes) -> bytes:
                if leaves is not None and order.index(stage) >= order.index(leaves):
                    raise ProtocolError(f"{name} has left")
                return endpoint.handle(stage, payload)

            return answer

        federation = Federation(
            run="test",
            transport=LocalTransport({name: handler(name) for name in clients}, workers=workers),
            ledger=Ledger(clients=list(clients), promised=privacy),
            samples=counts,
            weighting=weighting,
            sums=SumSettings(timeout_seconds=20.0),
        )
        return Bench(federation=federation, clients=clients)

    return make


@pytest.fixture
def design() -> Design:
    return named_design("bch-15x8")


@pytest.fixture
def grouping(design: Design) -> Grouping:
    """Client cNN sits in column NN."""
    return Grouping(design=design, clients=tuple(f"c{j:02d}" for j in range(15)))
