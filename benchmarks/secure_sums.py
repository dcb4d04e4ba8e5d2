"""CPU time of one whole round of secure sums, clients and server together, without any training.

Baseline "numpy": adding the same float64 updates, weighted, in clear.

Run: python benchmarks/secure_sums.py
"""

import argparse
import statistics
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedgt.engine import ClientEndpoint, LocalTransport, TrainedModel, secure_sums
from fedgt.secagg import RoundPlan, TensorSpec, default_threshold, fit_fixed_point
from fedgt.types import Parameters

CLIENTS = tuple(f"client-{number:02d}" for number in range(15))
DESIGNS = {
    "15 clients x 8 groups of 4": tuple(tuple(CLIENTS[row + one] for one in (0, 1, 3, 7)) for row in range(8)),
    "one group of 15": (CLIENTS,),
}
MODEL = {"weight": np.zeros((10, 784), dtype=np.float32), "bias": np.zeros(10, dtype=np.float32)}
SAMPLES = 100


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Given:
    """A client whose model is known in advance."""

    model: Parameters

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        """No work: only the secure sums are measured."""
        return TrainedModel(parameters=self.model, samples=SAMPLES)


def median_cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    rng = np.random.default_rng(0)
    models = {
        client: {name: rng.normal(scale=0.1, size=array.shape) for name, array in MODEL.items()} for client in CLIENTS
    }
    print(f"{'design':28} {'ring':>4} {'secure, ms':>11} {'numpy, ms':>10} {'ratio':>7} {'up, kB':>7} {'down, kB':>8}")
    for name, groups in DESIGNS.items():
        weights = SAMPLES * max(map(len, groups))
        for ring_bits in (32, 64):
            plan = RoundPlan(
                run="benchmark",
                round=0,
                purpose="test",
                groups=groups,
                thresholds=tuple(default_threshold(len(group)) for group in groups),
                weights=dict.fromkeys(CLIENTS, SAMPLES),
                encoding=fit_fixed_point(clip=8.0, fraction_bits=16, weight_sum=weights, ring_bits=ring_bits),
                tensors=tuple(TensorSpec(name=key, shape=array.shape) for key, array in MODEL.items()),
            )
            traffic: list[tuple[int, int]] = []

            def secure(plan: RoundPlan = plan, traffic: list[tuple[int, int]] = traffic) -> None:
                transport = LocalTransport({c: ClientEndpoint(c, Given(model=models[c])).handle for c in CLIENTS})
                result = secure_sums(
                    transport, plan, MODEL, authorise=lambda members: (None,) * len(members), timeout=60.0
                )
                if any(group.status != "open" for group in result.sums):
                    raise RuntimeError("a group was lost: the benchmark is void")
                traffic.append((result.bytes_up, result.bytes_down))

            def plain(groups: tuple[tuple[str, ...], ...] = groups) -> None:
                for group in groups:
                    for tensor, array in MODEL.items():
                        total = np.zeros(array.shape)
                        for client in group:
                            total += SAMPLES * models[client][tensor]

            secure_seconds = median_cpu_seconds(secure, repeats)
            plain_seconds = median_cpu_seconds(partial(timeit.timeit, plain, number=100), repeats) / 100
            up, down = traffic[-1]
            print(
                f"{name:28} {ring_bits:>4} {1e3 * secure_seconds:>11.1f} {1e3 * plain_seconds:>10.3f} "
                f"{secure_seconds / plain_seconds:>7.0f} {up / 1e3:>7.0f} {down / 1e3:>8.0f}"
            )


if __name__ == "__main__":
    main()
