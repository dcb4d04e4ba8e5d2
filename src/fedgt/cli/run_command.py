"""`fedgt run`: one experiment from a specification file into a run folder."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def run(
    spec: Annotated[Path, typer.Argument(help="TOML file; docs/specification.md lists every key.")],
    out: Annotated[Path, typer.Option(help="Run folder: spec.toml (resolved), result.json, rounds.csv, log.")],
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with MNIST/raw/*-ubyte; else the environment variable FEDGT_DATA.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Overrides `seed`.")] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Overrides `method`; `paper` is fedgt with the paper's designs, clusters and FedGT-Delta."),
    ] = None,
    malicious: Annotated[int | None, typer.Option(help="Overrides `attack.malicious`.")] = None,
    strategy: Annotated[str | None, typer.Option(help="Overrides `decode.strategy`.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Any other key: --set screen.round=5 (repeatable).")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace the result that the folder holds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print result.json to stdout.")] = False,
) -> None:
    """Simulate the federation of a specification through real secure aggregation."""
    from fedgt.cli.progress import round_bar
    from fedgt.cli.tables import print_run
    from fedgt.errors import SpecError
    from fedgt.experiment import PAPER, read_spec, run_into

    if method == "paper":
        change = [*(f"{key}={value}" for key, value in PAPER.items()), *(change or [])]
        method, strategy = "fedgt", strategy or "delta"
    overrides: dict[str, Any] = {
        key: value
        for key, value in (
            ("seed", seed),
            ("method", method),
            ("attack.malicious", malicious),
            ("decode.strategy", strategy),
        )
        if value is not None
    }
    overrides |= dict(_assignment(text) for text in change or [])
    if (out / "spec.toml").resolve() == spec.resolve():
        raise SpecError(f"--out {out} would overwrite the specification {spec}; take another folder")
    resolved = read_spec(spec, overrides)
    with round_bar(resolved.method) as on_round:
        result = run_into(resolved, out, data_dir=data_dir, on_round=on_round, overwrite=overwrite)
    if as_json:
        typer.echo(json.dumps(result.model_dump(mode="json"), allow_nan=False))
    else:
        print_run(result)
        typer.echo(f"written to {out}")
    if result.status != "finished":
        raise typer.Exit(1)


def _assignment(text: str) -> tuple[str, Any]:
    """`key=value` with the value as TOML, or as a plain string where it is no TOML value."""
    import tomllib

    from fedgt.errors import SpecError

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SpecError(f"--set {text!r}: KEY=VALUE is needed, such as decode.strategy=count")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value
