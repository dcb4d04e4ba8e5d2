"""How fast the parts are that a user waits for, against a floor of the same run and a goal: CPU time, one thread.

    python benchmarks/speed.py [--only NAME ...] [--repeats 3] [--before FOLDER] [--csv FILE]

Every measurement is a process of its own, so that nothing is warm that would not be. Medians of CPU seconds over processes,
and over rounds within a process; the machine may be shared. `--before` names a checkout of earlier code: both are measured
in turns, and the median of the ratios of such pairs is printed. The row of MNIST needs FEDGT_DATA, a folder with MNIST/raw.

Floors: of a client and of opening, the AES-256-CTR keystream of as many masks alone; of receiving, the additions of as many
vectors that are in no cache; of a client with ten parameters, its signatures and key agreements alone.
"""

import argparse
import csv
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MNIST = 'privacy = 4\n[data]\nname = "mnist"\n[federation]\nrounds = 10\n'
HEAD = """\
| work | measured | floor | times the floor | goal | reached | times as fast as before |
|---|---|---|---|---|---|---|"""
PIECE = 2**18
"""Bytes of keystream at a time: what fits into the cache of a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        name: Of the row, and for `--only`.
        what: In words.
        measure: Runs in a process of its own and returns the value, and the floor if there is one.
        unit: Of value and floor.
        most: The goal: of the value over its floor if `times`, else of the value itself; none if infinite.
        times: Whether the goal is a multiple of the floor.
    """

    name: str
    what: str
    measure: Callable[[], Mapping[str, float]]
    unit: str
    most: float
    times: bool = False


def cpu_ms(work: Callable[[], object]) -> float:
    """CPU milliseconds of one call."""
    began = time.process_time()
    work()
    return 1e3 * (time.process_time() - began)


def keystream(masks: int, entries: int) -> None:
    """So many masks of a 32-bit ring, generated and thrown away."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    zeros, scratch = memoryview(bytes(PIECE)), bytearray(PIECE + 16)
    for _ in range(masks):
        stream = Cipher(algorithms.AES256(bytes(32)), modes.CTR(bytes(16))).encryptor()
        for start in range(0, 4 * entries, PIECE):
            stream.update_into(zeros[: 4 * entries - start], scratch)


def cold_additions(clients: int, groups: int, entries: int) -> float:
    """CPU milliseconds of adding the vectors of all clients to the totals of the groups, none of them in a cache."""
    import numpy as np

    cold, totals = np.ones((clients, groups, entries), dtype=np.uint32), np.ones((groups, entries), dtype=np.uint32)
    return cpu_ms(lambda: [np.add(totals, one, out=totals) for one in cold])


def tags(clients: int, groups: int, entries: int) -> float:
    """CPU milliseconds of the Poly1305 tags of as many vectors, none of them in a cache."""
    from cryptography.hazmat.primitives.poly1305 import Poly1305

    cold = [b"\1" * (4 * entries) for _ in range(clients * groups)]
    return cpu_ms(lambda: [Poly1305.generate_tag(bytes(32), one) for one in cold])


def a_round(groups: Sequence[Sequence[str]], entries: int, *, signed: bool) -> dict[str, float]:
    """CPU milliseconds of a round of sums: of its first client, and of the server as it receives and as it opens."""
    import numpy as np

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
    from fedgt.secagg.challenge import draw_seed, seed_hash

    drawn = np.random.default_rng(0)
    model = {"w": drawn.normal(size=entries).astype(np.float32)}
    trained = {"w": model["w"] + drawn.normal(scale=0.1, size=entries).astype(np.float32)}
    seed = draw_seed()
    plan = RoundPlan(
        run="speed",
        round=1,
        purpose="test",
        groups=tuple(map(tuple, groups)),
        thresholds=tuple(default_threshold(len(group), colluders=1) for group in groups),
        weights={client: 1 for group in groups for client in group},
        encoding=fit_fixed_point(clip=8.0, fraction_bits=16, weight_sum=15, count_sum=15 * entries),
        tensors=tensor_specs(model),
        challenges=(seed_hash(seed),) if len(groups) > 1 else (),
    )
    names = plan.clients
    tower, people = Identity.generate("tower"), {name: Identity.generate(name) for name in names}
    registry = Registry(server=tower.public, clients={name: one.public for name, one in people.items()})

    def credentials(identity: Identity) -> Credentials | None:
        return Credentials(identity=identity, registry=registry) if signed else None

    clients = {name: ClientSession(name, credentials=credentials(people[name])) for name in names}
    server = ServerSession(plan, credentials=credentials(tower), seeds=(seed,) if len(groups) > 1 else ())
    spent = {"client": 0.0}

    def ask(stage: str, requests: Mapping[str, bytes], *given: Any, **named: Any) -> dict[str, bytes]:
        replies = {}
        for name, message in requests.items():
            began = time.process_time()
            replies[name] = getattr(clients[name], stage)(message, *given, **named)
            if name == names[0]:
                spent["client"] += 1e3 * (time.process_time() - began)
        return replies

    requests = server.shares(ask("keys", server.keys()))
    requests = server.masked(ask("shares", requests))
    replies = ask("masked", requests, trained, base=model)

    def receive() -> None:
        for name, reply in replies.items():
            server.receive(name, reply)

    spent["receive"] = cpu_ms(receive)
    authorise = lambda members: (None,) * len(members)  # noqa: E731
    if signed:
        requests = server.unmask(ask("agree", server.agree({}, authorise=authorise)))
    else:
        requests = server.unmask({}, authorise=authorise)
    released = ask("unmask", requests)
    sums: list[Any] = []
    spent["open"] = cpu_ms(lambda: sums.extend(server.results(released)))
    if any(one.status != "open" for one in sums):
        raise RuntimeError("a group was lost: the benchmark is void")
    return spent


def client(entries: int, *, signed: bool, times: int = 7) -> Mapping[str, float]:
    """All stages of one client in a group of 4, and the keystream of its 4 masks."""
    values, floors = [], []
    for _ in range(times):
        values.append(a_round([["ada", "bob", "cleo", "dan"]], entries, signed=signed)["client"])
        floors.append(cpu_ms(lambda: keystream(4, entries)))
    return {"value": statistics.median(values), "floor": statistics.median(floors)}


def curves() -> None:
    """What a client with identities in a group of 4 signs, checks and agrees on: no parameter is in it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    signer, other = Ed25519PrivateKey.from_private_bytes(bytes(32)), X25519PrivateKey.generate().public_key()
    public, digest = signer.public_key(), bytes(32)
    for _ in range(7):
        signature = signer.sign(digest)
    for _ in range(12):  # 4 letters of the server, 4 members' keys and 4 signatures under the agreement
        public.verify(signature, digest)
    for _ in range(2):
        own = X25519PrivateKey.generate()
    for _ in range(10):  # of 3 masks, 3 shares sent, 3 received, and a tag
        own.exchange(other)


def client_alone(times: int = 41) -> Mapping[str, float]:
    """What a client with identities costs whatever the model is: with ten parameters, and its curves alone."""
    group = [["ada", "bob", "cleo", "dan"]]
    values = [a_round(group, 10, signed=True)["client"] for _ in range(times)]
    return {"value": statistics.median(values), "floor": statistics.median(cpu_ms(curves) for _ in range(times))}


def server(part: str, times: int = 2) -> Mapping[str, float]:
    """What the server does about 15 clients that are in all of 10 groups, with 1,000,000 parameters."""
    groups, entries = [[f"client-{number:02d}" for number in range(15)]] * 10, 1_000_000
    values, floors = [], []
    for _ in range(times):
        values.append(a_round(groups, entries, signed=True)[part])
        if part == "open":
            floors.append(cpu_ms(lambda: keystream(150, entries)))
        else:
            floors.append(cold_additions(15, 10, entries))
    return {"value": statistics.median(values), "floor": statistics.median(floors)}


def server_tags(times: int = 5) -> Mapping[str, float]:
    """What no code of ours can save of receiving: the additions and the tags of as many vectors, next to the additions."""
    values, floors = [], []
    for _ in range(times):
        floors.append(cold_additions(15, 10, 1_000_000))
        values.append(floors[-1] + tags(15, 10, 1_000_000))
    return {"value": statistics.median(values), "floor": statistics.median(floors)}


def first_decode(*, loaded: bool) -> Mapping[str, float]:
    """The paper's 15 x 8 design compiled and decoded: for the first time in the process, or with everything imported."""
    from fedgt.decode import IndependentPrior, compile
    from fedgt.decode.compiled import _schedule
    from fedgt.design import named_design
    from fedgt.types import ErrorRates, Outcomes

    design, outcomes = named_design("bch-15x8"), Outcomes.parse("11010000")

    def once() -> None:
        _schedule.cache_clear()
        compile(design, ErrorRates.symmetric(0.05), IndependentPrior.uniform(15, 0.2)).decode(outcomes)

    first = cpu_ms(once)
    return {"value": statistics.median(cpu_ms(once) for _ in range(15)) if loaded else first}


def dense(*, memory: bool) -> Mapping[str, float]:
    """A random design of 50 clients in 20 groups with a prior on the number: CPU seconds, or MB at most."""
    import numpy as np

    from fedgt.decode import CountPrior, compile
    from fedgt.design import from_matrix
    from fedgt.types import ErrorRates, Outcomes

    design = from_matrix((np.random.default_rng(1).random((20, 50)) < 0.5).astype(int), name="dense-50x20")
    outcomes = Outcomes.parse("11010000110100001101")
    spent = cpu_ms(
        lambda: compile(design, ErrorRates.symmetric(0.05), CountPrior.uniform(10)).decode(outcomes),
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"value": peak if memory else spent / 1e3}


def children() -> float:
    """CPU seconds of all finished child processes."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def command(*words: str) -> float:
    """CPU seconds of a command as a whole process."""
    before = children()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    return children() - before


def whole_run() -> Mapping[str, float]:
    """`fedgt run` of 15 clients on MNIST for 10 rounds; its floor is to start the command and read the data."""
    start = command(
        "-c", "import fedgt.cli.run_command, fedgt.experiment as e; e.run; import fedgt.train as t; t.load('mnist')"
    )
    with tempfile.TemporaryDirectory() as scratch:
        spec = Path(scratch) / "spec.toml"
        spec.write_text(MNIST)
        return {"value": command("-m", "fedgt", "run", str(spec), "--out", str(Path(scratch) / "out")), "floor": start}


def design_interval() -> Mapping[str, float]:
    """`fedgt design --name bch-127x35`, to an interval of r."""
    return {"value": command("-m", "fedgt", "design", "--name", "bch-127x35")}


ROWS = (
    *(
        Row(
            name=f"client-{size}-{'identities' if signed else 'anonymous'}",
            what=f"client, one group of 4, {entries:,} parameters, {'with identities' if signed else 'anonymous'}",
            measure=lambda entries=entries, signed=signed: client(
                entries, signed=signed, times=3 if entries > 2e6 else 9
            ),  # type: ignore[misc]
            unit="ms",
            most=3,
            times=True,
        )
        for size, entries in (("1M", 1_000_000), ("11M", 11_000_000))
        for signed in (False, True)
    ),
    Row(
        name="client-fixed",
        what="client, one group of 4, 10 parameters, with identities",
        measure=client_alone,
        unit="ms",
        most=math.inf,
        times=True,
    ),
    Row(
        name="server-open",
        what="server, open 10 groups of 15 clients, 1,000,000 parameters",
        measure=lambda: server("open"),
        unit="ms",
        most=4,
        times=True,
    ),
    Row(
        name="server-receive",
        what="server, receive the vectors of these groups",
        measure=lambda: server("receive"),
        unit="ms",
        most=2,
        times=True,
    ),
    Row(
        name="first-decode",
        what="first decode in a process, 15 x 8",
        measure=lambda: first_decode(loaded=False),
        unit="ms",
        most=30,
    ),
    Row(
        name="loaded-decode",
        what="compile and decode once loaded, 15 x 8",
        measure=lambda: first_decode(loaded=True),
        unit="ms",
        most=2,
    ),
    Row(
        name="dense-time",
        what="dense 50 x 20 design, a prior on the number",
        measure=lambda: dense(memory=False),
        unit="s",
        most=2,
    ),
    Row(
        name="dense-memory",
        what="the same, peak memory of the process",
        measure=lambda: dense(memory=True),
        unit="MB",
        most=500,
    ),
    Row(
        name="run-mnist",
        what="`fedgt run` MNIST, 10 rounds, secure, whole process",
        measure=whole_run,
        unit="s",
        most=4,
    ),
    Row(
        name="design-bch",
        what="`fedgt design --name bch-127x35`, an interval",
        measure=design_interval,
        unit="s",
        most=10,
    ),
    Row(
        name="server-tags",
        what="what a server receives: only adding it and checking its tags",
        measure=server_tags,
        unit="ms",
        most=math.inf,
        times=True,
    ),
)


def in_a_process(row: Row, source: Path, bytecode: str) -> dict[str, float]:
    """One measurement of a row with the code of a checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "PYTHONPATH": str(source / "src"),
        "PYTHONPYCACHEPREFIX": bytecode,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, __file__, "--measure", row.name],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    return dict(json.loads(done.stdout))


def measured(row: Row, repeats: int, before: Path | None, bytecode: str) -> dict[str, str]:
    """A row of the table, as text."""
    times: list[dict[str, float]] = []
    faster: list[float] = []
    in_a_process(row, ROOT, bytecode)  # not counted: compiles what is imported, and warms the page cache
    if before is not None:
        in_a_process(row, before, bytecode)
    for _ in range(repeats):
        earlier = None if before is None else in_a_process(row, before, bytecode)
        times.append(in_a_process(row, ROOT, bytecode))
        if earlier is not None:
            faster.append(earlier["value"] / times[-1]["value"])
    value = statistics.median(one["value"] for one in times)
    floors = [one["floor"] for one in times if "floor" in one]
    ratio = statistics.median(one["value"] / one["floor"] for one in times) if floors else None
    reached = (ratio if row.times and ratio is not None else value) <= row.most
    goal = f"{row.most:g} x floor" if row.times else f"{row.most:g} {row.unit}"
    return {
        "name": row.name,
        "work": row.what,
        "unit": row.unit,
        "measured": f"{value:.3g}" if value < 1000 else f"{value:.0f}",
        "floor": f"{statistics.median(floors):.3g}" if floors else "",
        "ratio": "" if ratio is None else f"{ratio:.2f}",
        "goal": "" if math.isinf(row.most) else goal,
        "reached": "" if math.isinf(row.most) else "yes" if reached else "no",
        "times_as_fast": f"{statistics.median(faster):.2f}" if faster else "",
        "repeats": str(repeats),
    }


def as_line(row: Mapping[str, str]) -> str:
    """A row as a line of the table, here and in docs/results/speed.md."""
    floor = f"{row['floor']} {row['unit']}" if row["floor"] else ""
    cells = (row["work"], f"{row['measured']} {row['unit']}", floor)
    return "| " + " | ".join((*cells, row["ratio"], row["goal"], row["reached"], row["times_as_fast"])) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[row.name for row in ROWS], choices=[row.name for row in ROWS])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--before", type=Path, help="a checkout of earlier code, to pair with")
    parser.add_argument("--csv", type=Path, help="rows are appended")
    parser.add_argument("--measure", choices=[row.name for row in ROWS], help="one measurement, as JSON")
    given = parser.parse_args()
    by_name = {row.name: row for row in ROWS}
    if given.measure:
        print(json.dumps(dict(by_name[given.measure].measure())))
        return
    if not os.environ.get("FEDGT_DATA") and "run-mnist" in given.only:
        print("run-mnist is left out: set FEDGT_DATA to a folder with MNIST/raw", file=sys.stderr)
        given.only.remove("run-mnist")
    print(HEAD)
    with tempfile.TemporaryDirectory() as bytecode:
        for name in given.only:
            row = measured(by_name[name], given.repeats, given.before, bytecode)
            print(as_line(row), flush=True)
            if given.csv is not None:
                fresh = not given.csv.exists()
                with given.csv.open("a", newline="", encoding="utf-8") as file:
                    writer = csv.DictWriter(file, fieldnames=list(row))
                    if fresh:
                        writer.writeheader()
                    writer.writerow(row)


if __name__ == "__main__":
    main()
