"""`fedgt terms`: look at the agreed terms of a run, and sign them."""

import json
from pathlib import Path
from typing import Annotated

import typer


def terms(
    file: Annotated[Path, typer.Argument(help="The terms, as fedgt.secagg.write_terms makes them.")],
    registry: Annotated[Path, typer.Option(help="The registry of the consortium.")],
    sign: Annotated[bool, typer.Option("--sign", help="Add this client's signature; needs --name and --key.")] = False,
    name: Annotated[str | None, typer.Option(help="The client that signs.")] = None,
    key: Annotated[Path | None, typer.Option(help="Its private key.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what was agreed for a run and who has signed it. Exit code 1 while too few have."""
    from fedgt.errors import SpecError
    from fedgt.foreign_text import plain
    from fedgt.secagg import Credentials, quorum, read_private_key, read_registry, sign_terms, terms_in, terms_signers

    known = read_registry(registry)
    if sign:
        if name is None or key is None:
            raise SpecError("--sign needs --name and --key: whose signature it is, and with which key")
        sign_terms(file, Credentials(identity=read_private_key(key, name), registry=known))
    agreed = terms_in(file)
    signers = terms_signers(file, known)
    needed = quorum(len(known.clients), colluders=agreed.colluders)
    missing = [client for client in sorted(known.clients) if client not in signers]
    if as_json:
        found = {"terms": agreed.to_json(), "digest": agreed.digest, "signed": signers, "missing": missing}
        typer.echo(json.dumps({**found, "needed": needed, "binding": len(signers) >= needed}))
    else:
        rows = (
            "any groups that keep the promise" if agreed.groups is None else f"{len(agreed.groups)} groups and no other"
        )
        others = "" if agreed.members_only or agreed.groups is not None else " and whoever else is in the registry"
        weights = ", ".join(f"{client} {weight}" for client, weight in sorted(agreed.weights.items()))
        typer.echo(f"run         {plain(agreed.run)}, {len(agreed.weights)} clients{others}")
        typer.echo(f"groups      {rows}")
        typer.echo(f"weights     {plain(weights, longest=None)}")
        typer.echo(f"promise     no combination of sums mixes fewer than {agreed.privacy} clients")
        if agreed.largest_share < 1:
            typer.echo(f"share       sums tell at most {agreed.largest_share:g} of what is particular to a client")
        typer.echo(f"colluders   {agreed.colluders} may help a server that lies")
        typer.echo(f"clip        {agreed.clip:g}")
        typer.echo(f"SHA-256     {agreed.digest}; compare it by telephone before you sign")
        typer.echo(
            f"signed by   {plain(', '.join(signers), longest=None) or 'nobody'}: {len(signers)}, {needed} are needed"
        )
        if missing:
            typer.echo(f"not yet     {plain(', '.join(missing), longest=None)}")
    if len(signers) < needed:
        raise typer.Exit(1)
