"""Frozen specifications, runs through real secure aggregation, and results that a report can be made of."""

from fedgt.experiment.folder import run_into
from fedgt.experiment.one_run import run
from fedgt.experiment.result import RunResult, result_schema, write_result
from fedgt.experiment.spec import PAPER, ExperimentSpec, make_spec, read_spec

__all__ = [
    "PAPER",
    "ExperimentSpec",
    "RunResult",
    "make_spec",
    "read_spec",
    "result_schema",
    "run",
    "run_into",
    "write_result",
]
