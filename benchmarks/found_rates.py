"""What sweeps over seeds find, as the cells of a table: for the benchmarks that print rates."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedgt.experiment import make_spec
from fedgt.reproduction.sweep import sweep


def seeds_given(first: int, last: int) -> range:
    """The seeds of the command line, `[first] [last]`; without any, those from the first to the last here."""
    told = [int(one) for one in sys.argv[1:3]] if len(sys.argv) > 2 else [first, last]
    return range(told[0], told[1] + 1)


def found_rates(base: Mapping[str, Any], changes: Mapping[str, Any], seeds: range, results: Path) -> str:
    """Run what is missing: clients missed, falsely excluded (means a run), runs that wrong somebody, as Markdown cells."""
    specs = [make_spec(base, {"screen.schedule": "first", "seed": seed, **changes}) for seed in seeds]
    rows = sweep(specs, results, masks=False, workers=1)
    missed = np.array([float(row["missed_clients"] or 0) for row in rows])
    wronged = np.array([float(row["falsely_excluded_clients"] or 0) for row in rows])
    return f"{missed.mean():.2f} | {wronged.mean():.2f} | {(wronged > 0).sum()} of {len(rows)}"
