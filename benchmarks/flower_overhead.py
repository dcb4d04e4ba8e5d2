"""Sums of 15 clients in 8 groups, d = 1,000: the in-process Flower grid against the local transport of the engine.

    python benchmarks/flower_overhead.py

Both run the same protocol in this process; the difference is Flower's messages, the state that is suspended after each of
them, and that keys come one round ahead. Needs the extra `flower`.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fedgt.design import named_design
from fedgt.engine import ClientEndpoint, LocalTransport, MeetingTransport, TrainedModel, Transport, secure_sums
from fedgt.flower import FlowerTransport, InProcessGrid, client_app
from fedgt.secagg import PrekeyRequest, RoundPlan, default_threshold, fit_fixed_point, tensor_specs

DIMENSION, REPEATS = 1000, 15
NAMES = tuple(f"client-{number}" for number in range(15))


class Zero:
    """Returns what it gets: no training is timed."""

    def train(self, parameters: Any, *, round: int) -> TrainedModel:
        """Nothing."""
        return TrainedModel(parameters=parameters, samples=1)


def plan(number: int, model: Any) -> RoundPlan:
    design = named_design("bch-15x8")
    groups = tuple(tuple(sorted(NAMES[j] for j in design.members(i))) for i in range(design.groups))
    return RoundPlan(
        run="overhead",
        round=number,
        purpose="test",
        groups=groups,
        thresholds=tuple(default_threshold(len(group), colluders=1) for group in groups),
        weights=dict.fromkeys(NAMES, 1),
        encoding=fit_fixed_point(clip=8.0, fraction_bits=24, weight_sum=4, count_sum=4 * DIMENSION),
        tensors=tensor_specs(model),
    )


def local() -> Transport:
    return LocalTransport({name: ClientEndpoint(name, Zero()).handle for name in NAMES})


def flower() -> Transport:
    app = client_app(lambda parameters, round, context: TrainedModel(parameters=parameters, samples=1))
    grid = InProcessGrid(app, {100 + number: {"partition-id": number} for number in range(15)})
    transport = FlowerTransport(grid, NAMES, wait=0.0)
    transport.prekeys.request = wanted(0)
    transport.meet()
    return transport


def wanted(number: int) -> PrekeyRequest:
    return PrekeyRequest(run="overhead", round=number, groups=8)


def seconds(make: Callable[[], Transport]) -> list[float]:
    transport, model = make(), {"w": np.zeros(DIMENSION, dtype=np.float32)}
    times = []
    for number in range(REPEATS):
        agreed = plan(number, model)
        if isinstance(transport, MeetingTransport):
            transport.prekeys.request = wanted(number + 1)
        began = time.perf_counter()
        sums = secure_sums(
            transport,
            agreed,
            model,
            authorise=lambda members: (None,) * len(members),
            timeout=60.0,
        )
        times.append(time.perf_counter() - began)
        if any(one.status != "open" for one in sums.sums):
            raise SystemExit("a sum was not opened")
    return times


def main() -> None:
    results = {name: seconds(make) for name, make in (("local transport", local), ("in-process Flower grid", flower))}
    base = min(results["local transport"])
    print("| transport | best s | median s | best / local best |")
    print("|---|---|---|---|")
    for name, times in results.items():
        print(f"| {name} | {min(times):.3f} | {np.median(times):.3f} | {min(times) / base:.2f} |")


if __name__ == "__main__":
    main()
