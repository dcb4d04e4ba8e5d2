"""Frozen specifications, and runs of them through real secure aggregation.

Everything is imported when it is first used: to look at a run needs none of what a run needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgt.experiment.folder import run_into
    from fedgt.experiment.one_run import run
    from fedgt.experiment.spec import PAPER, ExperimentSpec, make_spec, read_spec

_HOMES = {
    "folder": ("run_into",),
    "one_run": ("run",),
    "spec": ("PAPER", "ExperimentSpec", "make_spec", "read_spec"),
}
_HOME_OF = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}

__all__ = [
    "PAPER",
    "ExperimentSpec",
    "make_spec",
    "read_spec",
    "run",
    "run_into",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
