"""The example with torch, its samples dealt out anew: are its four attackers named, and is somebody wronged?

    python benchmarks/torch_placements.py [placements]

Needs torch. Placement 0 is the example itself; the others deal the samples out by their number as a seed. Two minutes.
"""

import runpy
import sys
from pathlib import Path

import numpy as np

from fedgt import FederationRun, ScreenSettings, Validation

EXAMPLE = Path(__file__).parent.parent / "examples" / "torch-digits" / "federation.py"
ATTACKERS = {"site-02", "site-05", "site-11", "site-13"}


def main() -> None:
    """Print who was missed and who was wronged, a line a placement."""
    of = runpy.run_path(str(EXAMPLE))
    x, y, part = of["x"], of["y"], of["VALIDATION"]
    for placement in range(int(sys.argv[1]) if len(sys.argv) > 1 else 11):
        order = np.random.default_rng(placement).permutation(len(y) - 500) if placement else np.arange(len(y) - 500)
        shares = np.array_split(500 + order, 15)
        sites = {f"site-{number:02d}": of["Site"](x[rows], y[rows].clone()) for number, rows in enumerate(shares)}
        for name in ATTACKERS:
            sites[name].y[sites[name].y == 9] = 3
        run = FederationRun(
            sites,
            privacy=4,
            samples={name: len(site.y) for name, site in sites.items()},
            validation=Validation(
                logits=lambda parameters: of["scores"](parameters, part), labels=y[part].numpy(), inputs=of["seen"]
            ),
            screen=ScreenSettings(layer="2.weight"),
            rounds=5,
        )
        *_, last = run.rounds(of["to_arrays"](of["make_model"]()))
        out = set(last.excluded)
        print(f"{placement}: missed {sorted(ATTACKERS - out)}, wronged {sorted(out - ATTACKERS)}", flush=True)


if __name__ == "__main__":
    main()
