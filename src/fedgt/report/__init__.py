"""The audit report: what was decided and why, what the server learned, what cannot be known. Reads results, never re-runs.

`audit` makes the content of `report.json` from a run folder, `render_html` the page from that content, `write_report` both
files; `report_schema` is the JSON schema of that content.
"""

from fedgt.report.audit import audit
from fedgt.report.html import render_html
from fedgt.report.reading import RunRecord, read_run
from fedgt.report.schema import report_schema
from fedgt.report.write import write_report

__all__ = ["RunRecord", "audit", "read_run", "render_html", "report_schema", "write_report"]
