"""`fedgt keygen`: a long-term identity for a client or the server."""

import json
from pathlib import Path
from typing import Annotated

import typer


def keygen(
    name: Annotated[str, typer.Argument(help="The client id that plans will name, or what the server is called.")],
    key: Annotated[Path, typer.Option(help="Where the private key goes (PEM, mode 0600); never overwritten.")],
    registry: Annotated[
        Path | None, typer.Option(help="Add the public key to this registry file (TOML), which all must share.")
    ] = None,
    server: Annotated[bool, typer.Option("--server", help="This is the server's identity.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make an Ed25519 identity: a private key file, and the public key on stdout as a line of a registry."""
    import tomli_w

    from fedgt.errors import SpecError
    from fedgt.secagg import Identity, add_to_registry, write_private_key

    identity = Identity.generate(name)
    write_private_key(key, identity)
    if registry is not None:
        try:
            add_to_registry(registry, identity, server=server)
        except SpecError:
            key.unlink()  # nobody will ever know its public half
            raise
    if as_json:
        typer.echo(json.dumps({"name": name, "server": server, "public": identity.public.hex(), "key": str(key)}))
        return
    label = "server" if server else name
    typer.echo(tomli_w.dumps({label: identity.public.hex()}).rstrip())
