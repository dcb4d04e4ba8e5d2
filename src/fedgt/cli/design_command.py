"""`fedgt design`: what does an assignment matrix promise?"""

import json
from pathlib import Path
from typing import Annotated

import typer


def design(
    matrix: Annotated[Path | None, typer.Option(help="CSV or JSON file with the assignment matrix.")] = None,
    name: Annotated[str | None, typer.Option(help="A named design instead, such as bch-15x8.")] = None,
    kappa: Annotated[float, typer.Option(help="Accepted P(all groups contaminated).")] = 0.2,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    write: Annotated[Path | None, typer.Option(help="Write the matrix to this CSV file as well.")] = None,
) -> None:
    """Describe a design: group sizes, real privacy r, P(all groups contaminated), the most attackers it stands."""
    from fedgt.design import all_contaminated, max_malicious, named_design, named_designs, read_design
    from fedgt.errors import DesignError, SpecError
    from fedgt.privacy import minimum_support

    if (matrix is None) == (name is None):
        raise SpecError(f"give --matrix FILE or --name NAME; known names are {', '.join(named_designs())}")
    chosen = read_design(matrix) if matrix is not None else named_design(name or "")
    support = minimum_support(chosen.matrix)
    if support is None:  # a design has no empty group, so something is always revealed
        raise DesignError(f"design {chosen.name!r} reveals nothing")
    contamination = all_contaminated(chosen).tolist()
    most = max_malicious(chosen, kappa)
    if write is not None:
        write.write_text("".join(",".join(map(str, row)) + "\n" for row in chosen.matrix.tolist()), encoding="utf-8")
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "clients": chosen.clients,
                    "groups": chosen.groups,
                    "group_sizes": chosen.group_sizes.tolist(),
                    "privacy": support.r,
                    "contamination": contamination,
                    "max_malicious": most,
                    "privacy_exact": support.exact,
                    "privacy_combination": {
                        "groups": [str(b) for b in support.combination],
                        "clients": list(support.clients),
                    },
                    "untested": list(chosen.untested),
                    "name": chosen.name,
                    "source": chosen.source,
                }
            )
        )
        return
    typer.echo(f"{chosen.name}: {chosen.clients} clients in {chosen.groups} groups ({chosen.source})")
    typer.echo(f"group sizes: {' '.join(map(str, chosen.group_sizes.tolist()))}")
    bound = "" if support.exact else f" (at least; a combination of {support.upper} exists)"
    typer.echo(f"privacy r: {support.r}{bound}: no combination of the group sums mixes fewer clients")
    terms = [f"{b} u{i}" for i, b in enumerate(support.combination) if b]
    typer.echo(f"  attained by {' + '.join(terms)} over clients {' '.join(map(str, support.clients))}")
    typer.echo(f"most attackers at kappa = {kappa:g}: {most}")
    typer.echo("P(all groups contaminated | n_m attackers):")
    for attackers, probability in enumerate(contamination):
        if attackers <= most + 3:
            typer.echo(f"  {attackers:>3}  {probability:.6f}")
    if chosen.untested:
        typer.echo(f"in no group, never tested: clients {' '.join(map(str, chosen.untested))}")
