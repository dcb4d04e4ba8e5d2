"""SuperLink and SuperNodes on loopback: seconds per stage, bytes and memory of a federation with group tests.

    python benchmarks/flower_deployment.py [--nodes 15] [--rounds 2] [--insecure] [--anonymous]

Every message starts a ClientApp process at its node, and all nodes share this machine's cores, so that seconds per stage are
those of `nodes` process starts. Needs the extra `flower`.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from flower_machines import Deployment, write_app, write_consortium


def peak_megabytes(deployment: Deployment) -> dict[str, float]:
    """The largest resident memory so far of the SuperLink and of the largest SuperNode, from Linux's /proc."""
    peaks = {}
    for name, process in deployment.processes.items():
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        peaks[name] = kilobytes / 1024
    return {
        "superlink": peaks["link"],
        "largest supernode": max(value for name, value in peaks.items() if name != "link"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, choices=(5, 15), default=15)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--insecure", action="store_true", help="no TLS, no SuperNode authentication")
    parser.add_argument("--anonymous", action="store_true", help="no fedgt identities: three stages instead of four")
    parser.add_argument("--timeout", type=float, default=300.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        configs: list[dict[str, Any]] = [{"partition-id": number} for number in range(options.nodes)]
        if not options.anonymous:
            configs = write_consortium(root / "keys", options.nodes)
        config = {
            "clients": options.nodes,
            "privacy": 4 if options.nodes == 15 else 2,
            "rounds": options.rounds,
            "timeout": options.timeout,
            "wait": options.timeout,
            "malicious": "3",
            "out": str(root / "out.json"),
            "keys": "" if options.anonymous else str(root / "keys"),
        }
        app = write_app(root / "app", config)
        with Deployment(root / "site", configs, secure=not options.insecure) as deployment:
            began = time.monotonic()
            run = deployment.run(app)
            rows = deployment.rows(run, root / "out.json", options.timeout * (2 + 5 * options.rounds))
            total = time.monotonic() - began
            peaks = peak_megabytes(deployment)
    print(
        f"{options.nodes} SuperNodes, {'insecure' if options.insecure else 'TLS and SuperNode authentication'}, "
        f"{'anonymous' if options.anonymous else 'fedgt identities'}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}: {total:.0f} s from flwr run to the last record"
    )
    print("| round | sums | " + " | ".join(rows[0]["seconds"]) + " | bytes up | bytes down | excluded |")
    for row in rows:
        stages = " | ".join(f"{seconds:.1f}" for seconds in row["seconds"].values())
        opened = sum(1 for one in row["status"] if one[1] == "open")
        print(
            f"| {row['round']} | {opened} | {stages} | {row['bytes_up']} | {row['bytes_down']} | "
            f"{', '.join(row['excluded']) or 'nobody'} |"
        )
    print(json.dumps({"peak MiB": peaks, "models": [row["model"] for row in rows]}))


if __name__ == "__main__":
    main()
