"""The whole example on this machine, in FLARE's simulation environment: a process for each of the 15 sites."""

import argparse
from pathlib import Path

from fedgt.nvflare import FlareJob

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--malicious", default="2,9,13", help="these sites call every 1 a 7")
parser.add_argument("--out", type=Path, default=Path("out"), help="a new folder; run/ in it is for `fedgt report`")
told = parser.parse_args()

here, out = Path(__file__).parent, told.out.absolute()
job = FlareJob(
    "mnist",
    config={
        "data": "",  # a folder with MNIST/raw/*-ubyte; the environment variable FEDGT_DATA if empty
        "rounds": told.rounds,
        "privacy": 4,  # no combination of what is opened mixes fewer clients
        "seed": 1,
        "malicious": told.malicious,
        "credentials": "",  # a folder with server.pem and consortium.toml; empty is anonymous, for simulations
        "folder": str(out / "run"),
        "timeout": 600.0,  # seconds per stage
    },
    minimum_sites=15,
)
job.simulate([f"client-{number}" for number in range(15)], local=here / "fedgt.toml", workspace=out / "flare")
