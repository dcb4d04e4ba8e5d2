"""`fedgt run`: one experiment from a specification file into a run folder."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgt.cli.root import INTERRUPTED


def _strategies() -> list[str]:
    from fedgt.decode import STRATEGIES

    return ["auto", *STRATEGIES]


def run(
    spec: Annotated[Path, typer.Argument(help="TOML file; docs/specification.md lists every key.")],
    out: Annotated[Path, typer.Option(help="Run folder: spec.toml (resolved), result.json, rounds.csv, log.")],
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with MNIST/raw/*-ubyte; else the environment variable FEDGT_DATA.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Overrides `seed`.")] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Overrides `method`; `paper` is fedgt with the paper's designs, clusters and FedGT-Delta.",
            autocompletion=lambda: ["fedgt", "paper", "no-defence", "oracle", "rfa"],
        ),
    ] = None,
    malicious: Annotated[int | None, typer.Option(help="Overrides `attack.malicious`.")] = None,
    strategy: Annotated[
        str | None, typer.Option(help="Overrides `decode.strategy`.", autocompletion=_strategies)
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Any other key: --set screen.round=5 (repeatable).")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that the folder holds.")] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with an interrupted run; begin if none was, print the result if it is there."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print result.json to stdout.")] = False,
) -> None:
    """Simulate the federation of a specification through real secure aggregation.

    Ctrl-C leaves a run that goes on with --resume: every sum is on disk as soon as it is open, and the result is that of a
    run that was never interrupted.
    """
    from fedgt.cli.round_bar import round_bar
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
    overrides |= dict(assignment(text) for text in change or [])
    if (out / "spec.toml").resolve() == spec.resolve() and not resume:
        raise SpecError(f"--out {out} would overwrite the specification {spec}; take another folder")
    resolved = read_spec(spec, overrides)
    try:
        with round_bar(resolved.method) as bar:
            result = run_into(
                resolved,
                out,
                data_dir=data_dir,
                on_round=bar,
                on_stage=bar.stage,
                on_test=bar.tested,
                overwrite=overwrite,
                resume=resume,
            )
    except KeyboardInterrupt:
        typer.echo(f"\nfedgt: interrupted; what was done is kept. Go on with:\n{_go_on(out, data_dir)}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps(result.model_dump(mode="json"), allow_nan=False))
    else:
        print_run(result)
        typer.echo(f"written to {out}")
    if result.status != "finished":
        raise typer.Exit(1)


def _go_on(out: Path, data_dir: Path | None) -> str:
    import shlex

    words = ["fedgt", "run", str(out / "spec.toml"), "--out", str(out), "--resume"]
    return shlex.join(words if data_dir is None else [*words, "--data-dir", str(data_dir)])


def assignment(text: str) -> tuple[str, Any]:
    """`key=value` with the value as TOML, or as a plain string where it is no TOML value."""
    import tomllib

    from fedgt.errors import SpecError

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SpecError(f"--set {text!r}: KEY=VALUE is needed, such as decode.strategy=count")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return key.strip(), value
