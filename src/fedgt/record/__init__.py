"""What a run leaves, whoever holds it: rows of a result, how far it is, and who works in its folder.

Everything is imported when it is first used: to look at a run needs none of what a run needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgt.record.progress import RunProgress, read_progress
    from fedgt.record.result import RunResult, result_schema, write_result

_HOMES = {
    "progress": ("RunProgress", "read_progress"),
    "result": ("RunResult", "result_schema", "write_result"),
}
_HOME_OF = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}

__all__ = ["RunProgress", "RunResult", "read_progress", "result_schema", "write_result"]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
