"""`fedgt design`: what does an assignment matrix promise, or which one should a consortium take?"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fedgt.cli.seconds import DEFAULT_SECONDS, Seconds
from fedgt.defaults import ERROR_RATE, KAPPA

if TYPE_CHECKING:
    from fedgt.planning import Evidence

_ELEMENTS = 1e8
"""Array elements that the search for r looks at when a design is described, for effort 1."""


def _names() -> list[str]:
    from fedgt.design import named_designs, searched_designs

    return [name for name in (*named_designs(), *searched_designs()) if not name.endswith("-N")]


def design(
    matrix: Annotated[Path | None, typer.Option(help="Describe the matrix in this CSV or JSON file.")] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Describe a named design instead, such as bch-15x8.", autocompletion=_names),
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option(help="What groups for this many clients buy and cost (with --privacy; --max-malicious searches)."),
    ] = None,
    privacy: Annotated[int | None, typer.Option(help="No combination of sums may mix fewer clients.")] = None,
    max_malicious: Annotated[int | None, typer.Option(help="The most attackers that you fear.")] = None,
    kappa: Annotated[float, typer.Option(help="Accepted P(all groups contaminated).")] = KAPPA,
    groups_max: Annotated[int | None, typer.Option(help="The most groups (secure sums) of a test round.")] = None,
    error_rate: Annotated[
        float, typer.Option(help="False alarm and misdetection rate of one group's test.")
    ] = ERROR_RATE,
    dropouts: Annotated[int, typer.Option(help="Clients that are expected to be missing.")] = 0,
    evidence: Annotated[
        str,
        typer.Option(
            help="binary (outcomes) or graded (evidence from group sums).", autocompletion=lambda: ["binary", "graded"]
        ),
    ] = "binary",
    seed: Annotated[int, typer.Option(help="Of the search.")] = 0,
    effort: Annotated[
        float, typer.Option(help="Scales the search, and the proof of r; more needs more --seconds.")
    ] = 1.0,
    seconds: Seconds = DEFAULT_SECONDS,
    out: Annotated[Path | None, typer.Option(help="Write the recommended design as plan.json.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw what groups buy, or the designs that were found (.svg, .png or .pdf).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    write: Annotated[Path | None, typer.Option(help="Write the (recommended) matrix to this CSV file.")] = None,
    coefficients: Annotated[
        bool,
        typer.Option(
            "--coefficients", help="Clients may multiply their updates: entries of --matrix, or groups, up to 255."
        ),
    ] = False,
) -> None:
    """Describe a design (--matrix, --name), show what groups buy (--clients, --privacy), or search (--max-malicious)."""
    from fedgt.errors import SpecError

    if seed < 0:
        raise SpecError(f"--seed {seed}; a number from 0 on is needed")
    # A search takes a while: what cannot be written afterwards is said before.
    for option, path in (("--out", out), ("--plot", plot), ("--write", write)):
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise SpecError(f"{option} {path}: a file in a folder that exists is needed")
    described = (matrix is not None) + (name is not None)
    if clients is None and described == 1:
        lost = {
            "--privacy": privacy,
            "--max-malicious": max_malicious,
            "--groups-max": groups_max,
            "--out": out,
            "--plot": plot,
        }
        if given := [option for option, value in lost.items() if value is not None]:
            raise SpecError(f"{', '.join(given)} belong to a search: give --clients instead of --matrix or --name")
        _describe(matrix, name, kappa, seed, effort, seconds, as_json=as_json, write=write, coefficients=coefficients)
        return
    if clients is None or described:
        from fedgt.design import named_designs

        raise SpecError(
            "give --matrix FILE or --name NAME to describe a design, or --clients N --privacy R --max-malicious Q to search "
            f"one; known names are {', '.join(named_designs())}"
        )
    if privacy is None:
        raise SpecError("--privacy (the promised r) is needed with --clients; --max-malicious searches designs as well")
    if max_malicious is None:
        searched = {"--groups-max": groups_max, "--out": out}
        if given := [option for option, value in searched.items() if value is not None]:
            raise SpecError(
                f"{', '.join(given)} belong to a search: give --max-malicious (the most attackers you fear)"
            )
        from fedgt.cli.design_frontier import show_frontier

        show_frontier(
            clients,
            privacy,
            dropouts,
            seconds,
            as_json=as_json,
            write=write,
            plot=plot,
            coefficients=coefficients,
        )
        return
    if coefficients:
        raise SpecError("--coefficients: designs with coefficients are not searched; leave out --max-malicious")
    from fedgt.cli.design_search import search_designs
    from fedgt.planning import Demands

    search_designs(
        Demands(
            clients=clients,
            privacy=privacy,
            max_malicious=max_malicious,
            kappa=kappa,
            groups_max=groups_max,
            error_rate=error_rate,
            dropouts=dropouts,
            evidence=cast("Evidence", evidence),
        ),
        seed=seed,
        effort=effort,
        seconds=seconds,
        out=out,
        plot=plot,
        as_json=as_json,
        write=write,
    )


def _describe(
    matrix: Path | None,
    name: str | None,
    kappa: float,
    seed: int,
    effort: float,
    seconds: float,
    *,
    as_json: bool,
    write: Path | None,
    coefficients: bool,
) -> None:
    import numpy as np

    from fedgt.cli.design_search import write_csv
    from fedgt.cli.privacy_command import colluders_line, share_line
    from fedgt.deadline import Deadline
    from fedgt.design import StagedDesign, any_design, contamination, read_design, read_rows
    from fedgt.errors import DesignError
    from fedgt.privacy import disclosed_share, exposing_colluders, minimum_support

    rows = any_design(name or "") if matrix is None else read_rows(matrix) if coefficients else read_design(matrix)
    # Attackers contaminate the groups that they are in, whatever their coefficients.
    chosen = rows.membership if isinstance(rows, StagedDesign) else rows
    # So many array elements are looked at in a few seconds, whatever the number of clients.
    states = max(1, int(effort * _ELEMENTS / chosen.clients))
    support = minimum_support(rows.matrix, max_states=states, deadline=Deadline(seconds))
    share = disclosed_share(rows.matrix, weights=[1.0] * rows.clients)
    if support is None or share is None:  # a design has no empty group, so something is always revealed
        raise DesignError(f"design {chosen.name!r} reveals nothing")
    fewest = exposing_colluders(rows.matrix, support)
    found = contamination(chosen, rng=np.random.default_rng(seed))
    probabilities = found.probability.tolist()
    most = found.max_malicious(kappa)
    if write is not None:
        write_csv(write, rows)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "clients": chosen.clients,
                    "groups": chosen.groups,
                    "group_sizes": chosen.group_sizes.tolist(),
                    "privacy": support.r,
                    "share_mean": share.mean,
                    "share_largest": share.largest,
                    "exposing_somebody": fewest.somebody,
                    "exposing_somebody_upper": fewest.somebody_upper,
                    "exposing_everybody": fewest.everybody,
                    "contamination": probabilities,
                    "contamination_exact": found.exact,
                    "contamination_standard_error": found.standard_error.tolist(),
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
    if (largest := int(rows.matrix.max())) > 1:
        typer.echo(f"coefficients: updates are multiplied by whole numbers up to {largest}; for graded evidence only")
    bound = (
        ""
        if support.exact
        else f" (at least; a combination of {support.upper} exists; --effort and --seconds look further)"
    )
    typer.echo(f"privacy r: {support.r}{bound}: no combination of the group sums mixes fewer clients")
    terms = [f"{b} u{i}" for i, b in enumerate(support.combination) if b]
    typer.echo(f"  attained by {' + '.join(terms)} over clients {' '.join(map(str, support.clients))}")
    typer.echo(share_line(share))
    typer.echo(colluders_line(fewest))
    none = "; whoever decodes outcomes considers one all the same" if most == 0 else ""
    typer.echo(f"most attackers at kappa = {kappa:g}: {most}{'' if found.exact else ' (sampled)'}{none}")
    typer.echo("P(all groups contaminated | n_m attackers):")
    for attackers, probability in enumerate(probabilities):
        if attackers <= most + 3:
            error = found.standard_error[attackers]
            typer.echo(f"  {attackers:>3}  {probability:.6f}{f' +- {error:.6f}' if error else ''}")
    if chosen.untested:
        typer.echo(f"in no group, never tested: clients {' '.join(map(str, chosen.untested))}")
