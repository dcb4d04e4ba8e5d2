"""What a run leaves, whoever holds it: rows of a result, how far it is, and who works in its folder.

Everything is imported when it is first used: to look at a run needs none of what a run needs.
"""

from typing import TYPE_CHECKING

from fedgt.lazy_names import lazy_names

if TYPE_CHECKING:
    from fedgt.record.progress import RunProgress, read_progress
    from fedgt.record.result import RunResult, result_schema, write_result

__all__ = ["RunProgress", "RunResult", "read_progress", "result_schema", "write_result"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "progress": ("RunProgress", "read_progress"),
        "result": ("RunResult", "result_schema", "write_result"),
    },
)
