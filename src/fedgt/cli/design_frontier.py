"""`fedgt design --clients N --privacy R`: what each further sum buys and costs, as a table or JSON."""

import json
from pathlib import Path

import typer


def show_frontier(
    clients: int, privacy: int, dropouts: int, seconds: float, *, as_json: bool, write: Path | None
) -> None:
    """Print the frontier, and write the default design if that was asked for.

    Raises:
        DesignError: If the numbers are out of range, or the default is to be written and there is none.
    """
    from fedgt.cli.design_search import write_csv
    from fedgt.deadline import Deadline
    from fedgt.errors import DesignError
    from fedgt.planning import default_design, frontier

    lines = frontier(clients, privacy + dropouts, deadline=Deadline(seconds))
    chosen, why = None, ""
    try:
        chosen = default_design(clients, graded=True, privacy=privacy, absences=dropouts)
    except DesignError as error:
        if write is not None:
            raise
        why = str(error)
    if write is not None and chosen is not None:
        write_csv(write, chosen)
    rows = [
        {
            "name": one.design.name,
            "sums": one.design.groups,
            "r": one.r,
            "share_mean": one.share.mean,
            "share_largest": one.share.largest,
            "stages": list(one.design.stages),
            "uploads": int(one.design.uploads.max()),
            "power": one.power.found,
            "power_attackers": one.power.n_max,
        }
        for one in lines
    ]
    if as_json:
        typer.echo(json.dumps({"frontier": rows, "default": None if chosen is None else chosen.name, "reason": why}))
        return
    typer.echo(f"{clients} clients, r = {privacy}" + (f" with {dropouts} missing" if dropouts else ""))
    typer.echo("  sums    r  share  largest  stages  uploads  power")
    for one, row in zip(lines, rows, strict=True):
        mark = "*" if chosen is not None and chosen.name == one.design.name else " "
        stages = "+".join(map(str, one.design.stages))
        typer.echo(
            f"{mark} {one.design.groups:>4} {one.r:>4}  {one.share.mean:>5.2f}  {one.share.largest:>7.2f}  {stages:>6}  "
            f"{row['uploads']:>7}  {one.power.found:>5.2f}"
        )
    most = lines[-1].power.n_max
    typer.echo(
        f"power: the share of up to {most} attackers that is found, each 4 standard deviations of a client's model away, "
        "when 0.05 honest clients are wronged in a run without attackers"
    )
    if chosen is None:
        typer.echo(f"no default: {why}")
    else:
        typer.echo(f"the default, `auto`: * {chosen.name} ({chosen.source})")
