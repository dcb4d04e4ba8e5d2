"""Frozen specifications, and runs of them through real secure aggregation.

Everything is imported when it is first used: to look at a run needs none of what a run needs.
"""

from typing import TYPE_CHECKING

from fedgt.lazy_names import lazy_names

if TYPE_CHECKING:
    from fedgt.experiment.folder import run_into
    from fedgt.experiment.one_run import run
    from fedgt.experiment.spec import PAPER, ExperimentSpec, make_spec, read_spec

__all__ = [
    "PAPER",
    "ExperimentSpec",
    "make_spec",
    "read_spec",
    "run",
    "run_into",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "folder": ("run_into",),
        "one_run": ("run",),
        "spec": ("PAPER", "ExperimentSpec", "make_spec", "read_spec"),
    },
)
