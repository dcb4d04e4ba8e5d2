"""`fedgt report`: the audit report of a run folder."""

import json
from pathlib import Path
from typing import Annotated

import typer


def report(
    run_dir: Annotated[Path, typer.Argument(help="A folder that `fedgt run --out` wrote; only read.")],
    out: Annotated[Path | None, typer.Option(help="Where report.html and report.json go; else the run folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json to stdout as well.")] = False,
) -> None:
    """Write report.html (one file, opens offline) and report.json: who was excluded and why, and what the server learned."""
    from fedgt.report import write_report

    content = write_report(run_dir, out)
    if as_json:
        typer.echo(json.dumps(content, allow_nan=False))
        return
    target = run_dir if out is None else out
    summary = content["summary"]
    excluded = ", ".join(summary["excluded"]) or "nobody"
    typer.echo(f"excluded: {excluded} ({summary['excluded_count']} of {summary['clients']})")
    typer.echo(f"same decision again: {content['recheck']['status']} ({content['recheck']['reason']})")
    typer.echo(f"written to {target / 'report.html'} and {target / 'report.json'}")
