"""`fedgt privacy`: what would the server know, and about whom?"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedgt.cli.seconds import DEFAULT_SECONDS, Seconds

if TYPE_CHECKING:
    from fedgt.deadline import Deadline
    from fedgt.privacy import DisclosedShare, ExposingColluders, Support
    from fedgt.types import FloatArray


def privacy(
    matrix: Annotated[
        Path,
        typer.Option(help="CSV or JSON file with the assignment matrix: one row of 0,1, or coefficients, per group."),
    ],
    row: Annotated[
        list[str] | None,
        typer.Option(help="One more aggregate of the same models, as weights: 1,1,0.5,... (repeatable)."),
    ] = None,
    flagged: Annotated[
        str | None, typer.Option(help="Clients left out of one more sum over all others, such as 2,12.")
    ] = None,
    colluding: Annotated[int, typer.Option(help="How many clients help the server, in the worst places.")] = 0,
    seconds: Seconds = DEFAULT_SECONDS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The real minimum support r of everything revealed about one set of local models, and how much it discloses."""
    import numpy as np

    from fedgt.deadline import Deadline
    from fedgt.design import read_rows
    from fedgt.errors import DesignError
    from fedgt.privacy import exposing_colluders, exposure

    deadline = Deadline(seconds)
    design = read_rows(matrix)
    rows = [design.matrix.astype(float)]
    names = [f"u{group}" for group in range(design.groups)]
    for number, text in enumerate(row or []):
        rows.append(_weights(text, design.clients)[None])
        names.append(f"row{number}")
    if flagged is not None:
        final = np.ones((1, design.clients))
        final[0, _clients(flagged, design.clients)] = 0.0
        rows.append(final)
        names.append("u_final")
    revealed = np.vstack(rows)
    found = exposure(revealed, colluding=colluding, deadline=deadline.part(_SHARE_OF_R))
    share, unknown = _share(revealed, colluding, deadline)
    if found is None:  # a design has no empty group
        raise DesignError(f"design {design.name!r} reveals nothing")
    terms = _terms(names, found.support)
    fewest = exposing_colluders(revealed, found.support)
    personal = {j: one for j, one in enumerate(found.personal) if one is not None}
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "r": found.r,
                    "exact": found.support.exact,
                    "combination": terms,
                    "exposed_clients": list(found.clients),
                    "combination_clients": list(found.support.clients),
                    "upper": max(1, found.support.upper - colluding),
                    "exposed_clients_complete": found.complete,
                    "colluding": colluding,
                    "share_mean": None if share is None else share.mean,
                    "share_largest": None if share is None else share.largest,
                    "exposing_somebody": fewest.somebody,
                    "exposing_somebody_upper": fewest.somebody_upper,
                    "exposing_everybody": fewest.everybody,
                    "clients": [
                        {
                            "client": j,
                            "r": max(1, one.lower - colluding),
                            "upper": max(1, one.upper - colluding),
                            "share": None if share is None else share.shares[j],
                            "combination": _terms(names, one),
                            "combination_clients": list(one.clients),
                        }
                        for j, one in personal.items()
                    ],
                }
            )
        )
        return
    more = f"; not settled in {seconds:g} s, more time: --seconds" if deadline.part(_SHARE_OF_R).passed() else ""
    bound = "" if found.support.exact else f" at least (a combination of {found.support.upper} exists{more})"
    helped = f" with {colluding} colluding" if colluding else ""
    typer.echo(f"r = {found.r}{bound}{helped}: no combination of {len(names)} aggregates mixes fewer clients")
    typer.echo(f"attained by {_sum(terms)}")
    typer.echo(f"which mixes the clients {' '.join(map(str, found.support.clients))}")
    typer.echo(f"disclosed share: not computed, {unknown}" if share is None else share_line(share))
    typer.echo(colluders_line(fewest))
    more = "" if found.complete else " (and perhaps others)"
    typer.echo(f"clients in some least combination: {' '.join(map(str, found.clients))}{more}")
    typer.echo(f"the smallest combination that contains each client{', without help' if colluding else ''}:")
    for j, one in sorted(personal.items(), key=lambda item: (item[1].lower, item[1].upper, item[0])):
        size = f"{one.upper}" if one.exact else f"{one.lower} to {one.upper}"
        told = "" if share is None else f" share {share.shares[j]:.2f},"
        typer.echo(f"  client {j}: mixes {size},{told} as in {_sum(_terms(names, one))}")
    nowhere = sorted(set(range(design.clients)) - set(personal))
    if nowhere:
        typer.echo(f"in no aggregate: {' '.join(map(str, nowhere))}")


_SHARE_OF_R = 0.7  # of the time; the rest is for the disclosed share with colluders


def _share(rows: "FloatArray", colluding: int, deadline: "Deadline") -> tuple["DisclosedShare | None", str]:
    """The disclosed share, or why it is not known."""
    from fedgt.errors import OutOfTimeError
    from fedgt.privacy import disclosed_share
    from fedgt.privacy.disclosed_share import MAX_SETS, can_try

    if not can_try(rows.shape[1], colluding):
        return None, f"up to {colluding} colluders are more than {MAX_SETS} sets"
    try:
        equal = [1.0] * rows.shape[1]  # what the matrix has above 1 are coefficients
        return disclosed_share(rows, weights=equal, colluding=colluding, deadline=deadline), ""
    except OutOfTimeError as error:
        return None, str(error)


def share_line(share: "DisclosedShare") -> str:
    """What the sums let a server guess, in a sentence."""
    helped = f", with {share.colluding} colluding," if share.colluding else ""
    return (
        f"disclosed share{helped} {share.mean:.2f} in the mean, {share.largest:.2f} at most (client {share.client}): how "
        "much of what is particular to a client the sums explain, if clients differ equally and independently"
    )


def colluders_line(fewest: "ExposingColluders") -> str:
    """How many colluders expose somebody and everybody."""
    somebody = f"{fewest.somebody}"
    if fewest.somebody_upper != fewest.somebody:
        somebody += f" to {fewest.somebody_upper}"
    return f"colluders in the worst places that expose somebody: {somebody}; all others at once: {fewest.everybody}"


def _terms(names: list[str], support: "Support") -> dict[str, str]:
    return {name: str(b) for name, b in zip(names, support.combination, strict=True) if b}


def _sum(terms: dict[str, str]) -> str:
    return " + ".join(f"{b} {name}" for name, b in terms.items()).replace("+ -", "- ")


def _weights(text: str, clients: int) -> "FloatArray":
    import numpy as np

    from fedgt.errors import SpecError

    try:
        values = np.array([float(part) for part in text.split(",")])
    except ValueError as error:
        raise SpecError(f"--row {text!r}: weights separated by commas are needed ({error})") from error
    if len(values) != clients or not np.isfinite(values).all():
        raise SpecError(f"--row {text!r}: {clients} finite weights are needed, one per client; got {len(values)}")
    return values


def _clients(text: str, clients: int) -> list[int]:
    from fedgt.errors import SpecError

    try:
        chosen = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise SpecError(f"--flagged {text!r}: client numbers separated by commas are needed ({error})") from error
    if any(not 0 <= client < clients for client in chosen) or len(set(chosen)) == clients:
        raise SpecError(f"--flagged {text!r}: clients are numbered 0 to {clients - 1}, and somebody must be left")
    return chosen
