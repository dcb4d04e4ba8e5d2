"""The two files of a report."""

import json
from pathlib import Path
from typing import Any

from fedgt.errors import SpecError
from fedgt.report.audit import audit
from fedgt.report.html import render_html
from fedgt.text_file import write_text

PAGE, DATA = "report.html", "report.json"


def write_report(folder: Path, out: Path | None = None) -> dict[str, Any]:
    """Write `report.html` and `report.json` for a run folder; earlier ones are replaced.

    The same run folder and version give the same bytes.

    Args:
        folder: As `fedgt run --out` leaves it.
        out: Where the two files go; the run folder itself if not given.

    Returns:
        The content of `report.json`.

    Raises:
        SpecError: If the folder holds no usable result, or the files cannot be written.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.experiment import make_spec, run_into
        >>> from fedgt.report import write_report
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_into(make_spec({"privacy": 4, "federation": {"rounds": 1}}), Path(folder))
        ...     report = write_report(Path(folder))
        ...     (Path(folder) / "report.html").is_file()
        True
    """
    report = audit(folder)
    target = folder if out is None else out
    page = render_html(report)
    try:
        target.mkdir(parents=True, exist_ok=True)
        text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False)
        write_text(target / DATA, text + "\n")
        write_text(target / PAGE, page)
    except OSError as error:
        raise SpecError(f"report in {target}: {error}") from error
    return report
