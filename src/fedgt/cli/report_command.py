"""`fedgt report`: the audit report of a run folder; `fedgt report tables`: a reproduction beside the paper."""

import json
from pathlib import Path
from typing import Annotated

import typer


def report(
    run_dir: Annotated[
        Path,
        typer.Argument(
            help="A folder of a run that has ended; only read. Or `tables`: what `fedgt reproduce` wrote and the paper."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Where report.html and report.json go; else the run folder.")] = None,
    results: Annotated[Path, typer.Option(help="For `tables`: the folder of `fedgt reproduce`.")] = Path(
        "reproduction"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json (or the tables) to stdout.")] = False,
) -> None:
    """Write report.html (one file, opens offline) and report.json: who was excluded and why, and what the server learned."""
    from fedgt.report import write_report

    if run_dir == Path("tables") and not run_dir.is_dir():
        _tables(results, as_json)
        return
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


def _tables(results: Path, as_json: bool) -> None:
    from dataclasses import asdict

    from fedgt.record.result import json_number
    from fedgt.reproduction.comparison import comparisons, markdown

    found = list(comparisons(results))
    if not as_json:
        typer.echo(markdown(found))
        return
    rows = [
        {**asdict(one), "deviation": json_number(one.deviation), "half_width": json_number(one.half_width)}
        for one in found
    ]
    typer.echo(json.dumps({"comparisons": rows}, allow_nan=False))
