"""What secure sums cost: CPU time, bytes and memory, without any training.

`client`: one client in 4 groups of 4, all it does in a round, against
  * the physical floor: generating and adding the same keystream alone;
  * the primitives of flwr's SecAgg+ (quantise, and one mask per neighbour and group), if flwr can be imported.
`rounds`: whole rounds of 15 clients in 8 groups of 4 in this process, against adding the same updates in clear.
`large`: one round with a large model in a process of its own, with its peak memory.

Run: python benchmarks/secure_sums.py client rounds
     python benchmarks/secure_sums.py large --entries 11000000
With the baseline, in an environment of its own that has flwr>=1.42: PYTHONPATH=src python benchmarks/secure_sums.py client
"""

import argparse
import importlib.util
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgt.engine import ClientEndpoint, LocalTransport, SecureSums, TrainedModel, secure_sums
from fedgt.secagg import (
    ClientSession,
    Credentials,
    Identity,
    Registry,
    RoundPlan,
    ServerSession,
    default_threshold,
    fit_fixed_point,
    tensor_specs,
)
from fedgt.secagg.frames import pack_in_place
from fedgt.secagg.masks import CHUNK_BYTES, MaskStream, mask_scratch
from fedgt.types import Parameters

CLIENTS = tuple(f"client-{number:02d}" for number in range(15))
ROWS = tuple(tuple(CLIENTS[row + one] for one in (0, 1, 3, 7)) for row in range(8))
SAMPLES = 100


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Given:
    """A client whose model is known in advance."""

    model: Parameters

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        """No work: only the secure sums are measured."""
        return TrainedModel(parameters=self.model, samples=SAMPLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identities:
    """Nobody's (anonymous mode) or everybody's."""

    server: Identity | None
    clients: Mapping[str, Identity]

    @classmethod
    def of(cls, names: tuple[str, ...], *, signed: bool) -> "Identities":
        """Fresh ones for everybody, or none."""
        if not signed:
            return cls(server=None, clients={})
        return cls(server=Identity.generate("server"), clients={name: Identity.generate(name) for name in names})

    def credentials(self, client: str | None = None) -> Credentials | None:
        """Of a client, or of the server."""
        if self.server is None:
            return None
        registry = Registry(server=self.server.public, clients={n: one.public for n, one in self.clients.items()})
        return Credentials(identity=self.server if client is None else self.clients[client], registry=registry)


def make_plan(groups: tuple[tuple[str, ...], ...], model: Parameters, ring_bits: int, weight: int = 1) -> RoundPlan:
    entries = sum(array.size for array in model.values())
    size = max(map(len, groups))
    return RoundPlan(
        run="benchmark",
        round=0,
        purpose="test",
        groups=groups,
        thresholds=tuple(default_threshold(len(group), colluders=1) for group in groups),
        weights={client: weight for group in groups for client in group},
        encoding=fit_fixed_point(
            clip=8.0, fraction_bits=16, weight_sum=weight * size, count_sum=entries * size, ring_bits=ring_bits
        ),
        tensors=tensor_specs(model),
    )


def median_cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def one_client(plan: RoundPlan, update: Parameters, *, signed: bool) -> tuple[float, int]:
    """CPU seconds of the first client of the plan, all stages together, and the bytes that it sends."""
    who = plan.groups[0][0]
    identities = Identities.of(plan.clients, signed=signed)
    sessions = {name: ClientSession(name, credentials=identities.credentials(name)) for name in plan.clients}
    server = ServerSession(plan, credentials=identities.credentials())
    seconds, sent = 0.0, 0

    def stage(name: str, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        nonlocal seconds, sent
        replies = {}
        for client, message in requests.items():
            given = (update,) if name == "masked" else ()
            start = time.process_time()
            replies[client] = getattr(sessions[client], name)(message, *given)
            if client == who:
                seconds += time.process_time() - start
                sent += len(replies[client])
        return replies

    requests = server.shares(stage("keys", server.keys()))
    requests = server.masked(stage("shares", requests))
    replies = stage("masked", requests)
    if signed:
        requests = server.agree(replies, authorise=lambda members: (None,) * len(members))
        requests = server.unmask(stage("agree", requests))
    else:
        requests = server.unmask(replies, authorise=lambda members: (None,) * len(members))
    if any(one.status != "open" for one in server.results(stage("unmask", requests))):
        raise RuntimeError("a group was lost: the benchmark is void")
    return seconds, sent


def floor(entries: int, dtype: np.dtype[Any], groups: int, masks: int) -> bytes:
    """Generate and add as much keystream as the masks of one client are: what no implementation can go below.

    The result is one message, as in the protocol: fresh memory costs up to a millisecond per 2 MB in page faults, for the
    floor as for us, unless the allocator keeps it (GLIBC_TUNABLES=glibc.malloc.hugetlb=1 removes that cost for both).
    """

    def fill(body: memoryview) -> None:
        scratch = mask_scratch()
        step = CHUNK_BYTES // dtype.itemsize
        for vector in np.frombuffer(body, dtype=dtype).reshape(groups, entries):
            for _ in range(masks):
                stream = MaskStream(bytes(32))
                for start in range(0, entries, step):
                    stream.apply(vector[start : start + step], scratch)

    return pack_in_place({}, groups * entries * dtype.itemsize, fill)


def flwr_seconds(update: npt.NDArray[np.float64], groups: int, neighbours: int, repeats: int) -> tuple[float, float]:
    """CPU seconds of flwr's quantise (once a group) and masks (one a neighbour and group); NaN without flwr."""
    if importlib.util.find_spec("flwr") is None:
        return float("nan"), float("nan")
    arithmetic, quantization, utils = (
        importlib.import_module(f"flwr.common.secure_aggregation.{name}")
        for name in ("ndarrays_arithmetic", "quantization", "secaggplus_utils")
    )
    quantised = quantization.quantize([update], 8.0, 1 << 22)

    def mask() -> None:
        arithmetic.parameters_addition(quantised, utils.pseudo_rand_gen(bytes(32), 1 << 32, [update.shape]))

    quantise = median_cpu_seconds(lambda: quantization.quantize([update], 8.0, 1 << 22), repeats)
    return groups * quantise, groups * neighbours * median_cpu_seconds(mask, repeats)


def client_part(entries: int, repeats: int) -> None:
    groups = tuple(("me", *(f"peer-{number}" for number in range(3 * row, 3 * row + 3))) for row in range(4))
    update = np.random.default_rng(0).normal(scale=0.1, size=entries)
    quantise, masks = flwr_seconds(update, 4, 3, repeats)
    print(f"one client in 4 groups of 4, {entries} parameters, CPU time of all stages, median of {repeats}")
    if np.isnan(quantise):
        print("flwr cannot be imported here: no ratio against its primitives (see the head of this file)")
    else:
        print(f"flwr SecAgg+ primitives: quantise {quantise:.3f} s + masks {masks:.3f} s = {quantise + masks:.3f} s")
    baseline = quantise + masks
    print(
        f"{'ring':>4} {'mode':>10} {'ms':>7} {'floor, ms':>9} {'x floor':>8} {'flwr / ours':>11} "
        f"{'up, bytes':>10} {'bound':>10}"
    )
    for ring_bits in (32, 64):
        plan = make_plan(groups, {"w": update}, ring_bits)
        least = median_cpu_seconds(lambda plan=plan: floor(entries, plan.encoding.dtype, 4, 4), repeats)  # type: ignore[misc]
        for signed in (False, True):
            runs = [one_client(plan, {"w": update}, signed=signed) for _ in range(repeats)]
            seconds = statistics.median(one for one, _ in runs)
            bound = 1.1 * 4 * entries * ring_bits // 8 + 4000
            print(
                f"{ring_bits:>4} {'identities' if signed else 'anonymous':>10} {1e3 * seconds:>7.1f} {1e3 * least:>9.1f} "
                f"{seconds / least:>8.2f} {baseline / seconds:>11.1f} {runs[0][1]:>10} {int(bound):>10}"
            )


def whole_round(plan: RoundPlan, model: Parameters, models: Mapping[str, Parameters], *, signed: bool) -> SecureSums:
    identities = Identities.of(plan.clients, signed=signed)
    transport = LocalTransport(
        {
            name: ClientEndpoint(name, Given(model=models[name]), credentials=identities.credentials(name)).handle
            for name in plan.clients
        }
    )
    result = secure_sums(
        transport,
        plan,
        model,
        authorise=lambda members: (None,) * len(members),
        timeout=600.0,
        credentials=identities.credentials(),
    )
    if any(group.status != "open" for group in result.sums):
        raise RuntimeError("a group was lost: the benchmark is void")
    return result


def plain_round(models: Mapping[str, Parameters], groups: tuple[tuple[str, ...], ...]) -> None:
    for group in groups:
        total = np.zeros_like(models[group[0]]["w"], dtype=np.float64)
        for client in group:
            total += SAMPLES * models[client]["w"].astype(np.float64)


def rounds_part(sizes: tuple[int, ...], repeats: int) -> None:
    rng = np.random.default_rng(0)
    print("whole rounds in this process, clients and server together")
    print(
        f"{'groups':>9} {'entries':>9} {'ring':>4} {'mode':>10} {'wall, s':>8} {'CPU, s':>8} {'numpy, ms':>9} "
        f"{'up / client, bytes':>18} {'down / client':>13}"
    )
    for entries in sizes:
        model = {"w": np.zeros(entries, dtype=np.float32)}
        models = {name: {"w": rng.normal(scale=0.1, size=entries).astype(np.float32)} for name in CLIENTS}
        for name, groups in (("8 of 4", ROWS), ("1 of 15", (CLIENTS,))):
            clear = median_cpu_seconds(lambda groups=groups, models=models: plain_round(models, groups), repeats)  # type: ignore[misc]
            for ring_bits in (32, 64):
                plan = make_plan(groups, model, ring_bits, SAMPLES)
                for signed in (False, True):
                    wall, cpu = [], []
                    for _ in range(repeats):
                        since, start = time.perf_counter(), time.process_time()
                        result = whole_round(plan, model, models, signed=signed)
                        wall.append(time.perf_counter() - since)
                        cpu.append(time.process_time() - start)
                    print(
                        f"{name:>9} {entries:>9} {ring_bits:>4} {'identities' if signed else 'anonymous':>10} "
                        f"{statistics.median(wall):>8.3f} {statistics.median(cpu):>8.3f} {1e3 * clear:>9.2f} "
                        f"{result.bytes_up // 15:>18} {result.bytes_down // 15:>13}"
                    )


def large_part(entries: int, ring_bits: int, clients: int, *, signed: bool) -> None:
    model = {"w": np.zeros(entries, dtype=np.float32)}
    # All clients return the same trained model, so that the memory measured is that of the secure sums.
    trained = {"w": np.random.default_rng(0).normal(scale=0.1, size=entries).astype(np.float32)}
    groups = tuple(tuple(name for name in row if name in CLIENTS[:clients]) for row in ROWS)
    plan = make_plan(tuple(group for group in groups if len(group) > 1), model, ring_bits)
    since = time.perf_counter()
    result = whole_round(plan, model, dict.fromkeys(CLIENTS, trained), signed=signed)
    seconds = time.perf_counter() - since
    error = max(
        float(np.abs(one.total["w"] - len(one.members) * trained["w"].astype(np.float64)).max())
        for one in result.sums
        if one.total is not None
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{len(plan.clients)} clients x {len(plan.groups)} groups, {entries} parameters, ring {ring_bits}, "
        f"{'identities' if signed else 'anonymous'}: {seconds:.1f} s, peak memory {peak:.2f} GiB, largest error {error:.2g} "
        f"(bound {4 * plan.encoding.step / 2:.2g})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["client", "rounds"], help="client, rounds, large")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--entries", type=int, help="1,000,000 for client, 11,000,000 for large")
    parser.add_argument("--sizes", type=int, nargs="+", default=[7850, 1_000_000], help="for rounds")
    parser.add_argument("--ring", type=int, default=32, choices=(32, 64), help="for large")
    parser.add_argument("--clients", type=int, default=15, help="for large")
    parser.add_argument("--anonymous", action="store_true", help="for large")
    given = parser.parse_args()
    for part in given.parts:
        if part == "client":
            client_part(given.entries or 1_000_000, given.repeats)
        elif part == "rounds":
            rounds_part(tuple(given.sizes), given.repeats)
        elif part == "large":
            large_part(given.entries or 11_000_000, given.ring, given.clients, signed=not given.anonymous)
        else:
            parser.error(f"there is no part {part!r}")


if __name__ == "__main__":
    main()
