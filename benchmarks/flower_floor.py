"""The rehearsal of a new Flower app, against Flower alone with as many messages: CPU seconds.

    python benchmarks/flower_floor.py [--sites 8] [--rounds 2] [--csv FILE]

`fedgt new flower-app` writes an app, and `sh rehearse.sh` runs it: certificates, a SuperLink, a SuperNode for every site,
the run, the report. Then the same SuperLink and SuperNodes carry as many messages to an app that imports nothing but Flower.
One message of four trains, by the same program as fedgt's app; the others are answered with nothing. What this costs is the
floor. Needs the extra `flower`, Linux, and ten minutes.

Compared are the processes that answer the messages. What all processes cost together is printed, too: Flower's own ask for
work again and again, so that it grows with the time that a busy machine takes.
"""

import argparse
import contextlib
import csv
import ctypes
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

SUBREAPER = 36  # prctl: orphans among the descendants become children of this process, so that it sees what they cost
GOAL = 1.15
MESSAGES = 4
"""Of a round to each site; with one of them it trains."""

CLIENT = """\
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def query(message, context):
    return Message(RecordDict(), reply_to=message)


@app.train()
def train(message, context):
    from consortium.data import load
    from consortium.model import first, trained

    trained(first("floor"), *load(context.node_config["data"]))
    return Message(RecordDict(), reply_to=message)
"""

SERVER = """\
import time

from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp

COUNTS = {counts}  # messages for each node
app = ServerApp()


@app.main()
def main(grid, context):
    while len(nodes := sorted(grid.get_node_ids())) < len(COUNTS):
        time.sleep(1)
    for number in range(max(COUNTS)):
        asked = [node for node, count in zip(nodes, COUNTS) if count > number]
        kind = "train" if number % {messages} == 1 else "query"
        messages = [Message(RecordDict(), dst_node_id=node, message_type=kind) for node in asked]
        replies = list(grid.send_and_receive(messages, timeout=600))
        assert len(replies) == len(asked) and not any(reply.has_error() for reply in replies)
    print("round: all answered", flush=True)
"""


class Answering(threading.Thread):
    """Watches the processes that answer messages, by Linux's /proc: Flower's SuperNodes start one for each."""

    def __init__(self, folder: Path) -> None:
        """Those that work in this folder."""
        super().__init__(daemon=True)
        self.folder, self.over = folder, threading.Event()
        self.seconds: dict[str, float] = {}

    def run(self) -> None:
        """Look until it is over; who has ended stays to be seen until its parent asks for it."""
        while not self.over.wait(0.1):
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    if process.name in self.seconds or self.answers(process):
                        spent = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
                        self.seconds[process.name] = sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")

    def answers(self, process: Path) -> bool:
        """Whether a process is one."""
        return b"flwr-clientapp" in (process / "cmdline").read_bytes() and (process / "cwd").readlink() == self.folder


def cpu_seconds(*words: str, folder: Path) -> tuple[float, float, float]:
    """CPU seconds of a command and of everything that it has started, of the answering processes, and wall seconds."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    before, began = spent(), time.monotonic()
    with (folder / "benchmark.log").open("wb") as log:
        environment["OMP_NUM_THREADS"] = "1"
        answering = Answering(folder)
        answering.start()
        done = subprocess.run(words, check=False, cwd=folder, env=environment, stdout=log, stderr=log)
        answering.over.set()
        answering.join()
    wall = time.monotonic() - began
    if done.returncode:
        raise RuntimeError((folder / "benchmark.log").read_text()[-4000:])
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return spent() - before, sum(answering.seconds.values()), wall


def messages(folder: Path) -> tuple[int, ...]:
    """How many messages each SuperNode has had, by their logs; the most first."""
    logs = [path.with_suffix(".log").read_text(errors="replace") for path in folder.glob("*.node")]
    return tuple(sorted((len(re.findall(r"Receiving: \S+ message", log)) for log in logs), reverse=True))


def bare(folder: Path, counts: tuple[int, ...]) -> None:
    """Make a new app one that trains, and otherwise only carries messages."""
    code = folder / "app" / "consortium"
    (code / "client_app.py").write_text(CLIENT)
    (code / "server_app.py").write_text(SERVER.format(counts=list(counts), messages=MESSAGES))
    rehearsal = folder / "rehearse.sh"
    kept, skipping = [], False
    for line in rehearsal.read_text().splitlines():
        skipping = (skipping or line.startswith('echo "== meanwhile')) and not line.startswith("for one in $joining")
        if line == "python share.py" or not (skipping or line.startswith("fedgt ")):
            kept.append(line)
    rehearsal.write_text("\n".join(kept) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--privacy", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--csv", type=Path, help="a row is appended")
    given = parser.parse_args()
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as scratch:
        spent: dict[str, tuple[float, float]] = {}
        counts: tuple[int, ...] = ()
        for kind in ("fedgt", "Flower alone"):
            folder = Path(scratch) / kind.partition(" ")[0]
            options = ("--sites", str(given.sites), "--privacy", str(given.privacy), "--rounds", str(given.rounds))
            subprocess.run([sys.executable, "-m", "fedgt", "new", "flower-app", str(folder), *options], check=True)
            if kind != "fedgt":
                bare(folder, counts)
            cpu, answering, wall = cpu_seconds("sh", "rehearse.sh", folder=folder)
            had = messages(folder)
            if kind != "fedgt" and Counter(had) != Counter(counts):
                raise RuntimeError(f"{had} messages, {counts} were meant: the benchmark is void")
            spent[kind], counts = (answering, cpu), had
            print(
                f"{kind}: {sum(had)} messages, {answering:.1f} CPU s to answer them ({answering / sum(had):.2f} a message), "
                f"{cpu:.0f} CPU s in all, {wall:.0f} s of wall time"
            )
    ours, floor = spent["fedgt"], spent["Flower alone"]
    ratio = ours[0] / floor[0]
    print(f"{ratio:.2f} times Flower alone; the goal is {GOAL}: {'reached' if ratio <= GOAL else 'not reached'}")
    if given.csv is not None:
        row = {
            "sites": given.sites,
            "rounds": given.rounds,
            "messages": sum(counts),
            "answering_fedgt": round(ours[0], 1),
            "answering_flower_alone": round(floor[0], 1),
            "ratio": round(ratio, 2),
            "all_fedgt": round(ours[1]),
            "all_flower_alone": round(floor[1]),
        }
        fresh = not given.csv.exists()
        with given.csv.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(row))
            if fresh:
                writer.writeheader()
            writer.writerow(row)


if __name__ == "__main__":
    main()
