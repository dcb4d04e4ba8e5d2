"""`fedgt design --clients N --privacy R`: what each further sum buys and costs, as a table, a picture or JSON."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from fedgt.design import AnyDesign
    from fedgt.planning import FrontierRow

_HEAD = (
    "    secure   fewest   disclosed share    opened in   uploads of   attackers",
    "      sums    mixed     mean     most       stages     a client       found",
)


def show_frontier(
    clients: int,
    privacy: int,
    dropouts: int,
    seconds: float,
    *,
    as_json: bool,
    write: Path | None,
    plot: Path | None,
    coefficients: bool,
) -> None:
    """Print the frontier; draw it, and write the default design, if that was asked for.

    Raises:
        DesignError: If the numbers are out of range, or the default is to be written and there is none.
        SpecError: If the picture cannot be drawn.
    """
    from fedgt.cli.design_search import write_csv
    from fedgt.deadline import Deadline
    from fedgt.errors import DesignError
    from fedgt.planning import SPARE, default_design, design_with_coefficients, draw_frontier, frontier
    from fedgt.planning.picture import check_picture
    from fedgt.planning.with_coefficients import rows_at_the_bound

    if plot is not None:
        check_picture(plot)
    lines = frontier(clients, privacy + dropouts, deadline=Deadline(seconds), coefficients=coefficients)
    chosen: AnyDesign | None = None
    why = ""
    try:
        if coefficients:
            chosen = design_with_coefficients(clients, privacy=privacy, absences=dropouts)
        else:
            chosen = default_design(clients, graded=True, privacy=privacy, absences=dropouts, spare=SPARE)
    except DesignError as error:
        if write is not None:
            raise
        why = str(error)
    name = None if chosen is None else chosen.name
    title = f"{clients} clients, r = {privacy}" + (f" with {dropouts} missing" if dropouts else "")
    title += ", with coefficients" if coefficients else ""
    if write is not None and chosen is not None:
        write_csv(write, chosen)
    if plot is not None:
        draw_frontier(plot, lines, title=title, chosen=name)
    if as_json:
        rows = [_row(one, coefficients=coefficients) for one in lines]
        typer.echo(json.dumps({"frontier": rows, "default": name, "reason": why}))
        return
    typer.echo(title)
    typer.echo("\n".join(line + column for line, column in zip(_HEAD, _more(coefficients), strict=True)))
    for one in lines:
        mark = "*" if name == one.design.name else " "
        typer.echo(_line(one, mark, coefficients=coefficients))
    typer.echo("fewest mixed: no combination of the sums mixes fewer clients (r)")
    typer.echo(
        f"attackers found: the share of up to {lines[-1].power.n_max} attackers, each 4 standard deviations of a client's "
        "model away, when 0.05 honest clients are wronged in a run without attackers"
    )
    if chosen is None:
        typer.echo(f"no default: {why}")
    else:
        typer.echo(f"the default, `auto`: * {chosen.name} ({chosen.source})")
    more = rows_at_the_bound(clients, privacy + dropouts)
    if not coefficients and more is not None and more.groups > lines[-1].design.groups:
        typer.echo(f"with --coefficients up to {more.groups} sums keep this promise")


def _more(coefficients: bool) -> tuple[str, str]:
    return ("       largest", "   coefficient") if coefficients else ("", "")


def _line(one: "FrontierRow", mark: str, *, coefficients: bool) -> str:
    stages = "+".join(map(str, one.design.stages))
    text = (
        f"{mark} {one.design.groups:>8} {one.r:>8} {one.share.mean:>8.2f} {one.share.largest:>8.2f} {stages:>12} "
        f"{int(one.design.uploads.max()):>12} {one.power.found:>11.2f}"
    )
    return f"{text}{one.design.largest_entry:>14}" if coefficients else text


def _row(one: "FrontierRow", *, coefficients: bool) -> dict[str, Any]:
    row = {
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
    return row | {"largest_coefficient": one.design.largest_entry} if coefficients else row
